"""Input channels: the consumer's end of one subpartition, in this process or (later) another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from flowrun.errors import InternalError
from flowrun.runtime.network.subpartition import Control, Data, SubpartitionView

OpenView = Callable[[Callable[[], None], Callable[[], None]], SubpartitionView]
"""Opens the reading end of a subpartition, given whom to call when there is something to read, and when something has overtaken."""


class InputChannel(Protocol):
    """One channel of a gate. `request` and `poll` are called by the gate's one reader thread.

    A remote channel keeps received batches in its own queue and answers `poll` from it; its sender knows its credit.
    """

    def request(self, listener: Callable[[], None], urgent: Callable[[], None]) -> None:
        """Ask for the subpartition; `listener` is called, from any thread, each time something came after `poll` gave None or
        `more=False`, and `urgent` when something overtook what was queued: this channel should be read next.
        """
        ...

    def poll(self, max_rows: int) -> Data | Control | None:
        """What comes next, without waiting; see `SubpartitionView.poll`."""
        ...

    def release(self) -> None:
        """Stop reading and free everything. Idempotent."""
        ...


class LocalInputChannel:
    """A channel whose producer runs in this process: elements are handed over by reference."""

    def __init__(self, name: str, open_view: OpenView) -> None:
        self.name = name
        self._open_view = open_view
        self._view: SubpartitionView | None = None
        self._expected = 0

    def request(self, listener: Callable[[], None], urgent: Callable[[], None]) -> None:
        """Open the view."""
        self._view = self._open_view(listener, urgent)

    def poll(self, max_rows: int) -> Data | Control | None:
        """What comes next; checks that no element was lost or repeated.

        Raises:
            InternalError: a gap in the sequence numbers.
        """
        if self._view is None:
            return None
        element = self._view.poll(max_rows)
        if element is None:
            return None
        if element.sequence != self._expected:
            raise InternalError(f"channel {self.name}: expected element {self._expected}, got {element.sequence}")
        self._expected += len(element.batches) if isinstance(element, Data) else 1
        return element

    def release(self) -> None:
        """Release the view."""
        if self._view is not None:
            self._view.release()
