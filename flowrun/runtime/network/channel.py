"""Input channels: the consumer's end of one subpartition, in this process or (later) another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from flowrun.errors import InternalError
from flowrun.runtime.network.credit import ChannelCredit
from flowrun.runtime.network.subpartition import Control, Data, SubpartitionView

OpenView = Callable[[Callable[[], None], Callable[[], None]], SubpartitionView]
"""Opens the reading end of a subpartition, given whom to call when there is something to read, and when something has overtaken."""


class InputChannel(Protocol):
    """One channel of a gate. `request`, `poll` and `recycle` are called by the gate's one reader thread.

    A remote channel keeps received batches in its own queue and answers `poll` from it; its sender knows its credit.
    """

    def request(self, listener: Callable[[], None], urgent: Callable[[], None]) -> None:
        """Ask for the subpartition; `listener` is called, from any thread, each time something came after `poll` gave None or
        `more=False`, and `urgent` when something overtook what was queued: this channel should be read next.
        """
        ...

    @property
    def holds_rows(self) -> bool:
        """Whether rows wait in it, as far as the reader knows."""
        ...

    def poll(self, max_rows: int) -> Data | Control | None:
        """What comes next, without waiting; see `SubpartitionView.poll`. None also if there is no credit before `recycle`."""
        ...

    def recycle(self) -> None:
        """The task has processed all rows that `poll` gave: their slots are free."""
        ...

    def release(self) -> None:
        """Stop reading and free everything. Idempotent."""
        ...


class LocalInputChannel:
    """A channel whose producer runs in this process: elements are handed over by reference, as far as the channel has credit.

    Args:
        name: of the partition that it reads.
        open_view: opens its subpartition.
        credit: slots for what it takes.
    """

    def __init__(self, name: str, open_view: OpenView, credit: ChannelCredit) -> None:
        self.name = name
        self._credit = credit
        self._open_view = open_view
        self._view: SubpartitionView | None = None
        self._listener: Callable[[], None] | None = None
        self._is_out_of_credit = False
        self._expected = 0

    def request(self, listener: Callable[[], None], urgent: Callable[[], None]) -> None:
        """Open the view."""
        self._listener = listener
        self._view = self._open_view(listener, urgent)

    @property
    def holds_rows(self) -> bool:
        """Whether the producer has put rows that were not taken."""
        return self._view is not None and self._view.backlog > 0

    def poll(self, max_rows: int) -> Data | Control | None:
        """What comes next; checks that no element was lost or repeated.

        Raises:
            InternalError: a gap in the sequence numbers.
        """
        view = self._view
        if view is None:
            return None
        credit = self._credit
        slots = credit.for_backlog(view.backlog)
        element = view.poll(max_rows, slots)
        if element is None:
            self._is_out_of_credit = slots <= 0
            return None
        if element.sequence != self._expected:
            raise InternalError(f"channel {self.name}: expected element {self._expected}, got {element.sequence}")
        if isinstance(element, Data):
            self._expected += len(element.batches)
            credit.receive(element.slots)
        else:
            self._expected += 1
        return element

    def recycle(self) -> None:
        """Free the slots of what was taken; tells the listener if there was no credit for more."""
        self._credit.recycle()
        if self._is_out_of_credit:
            self._is_out_of_credit = False
            assert self._listener is not None
            self._listener()

    def release(self) -> None:
        """Release the view, and what was taken."""
        self._credit.release()
        if self._view is not None:
            self._view.release()
