"""What a task processes: the element source behind its default action; here that of a task whose head is a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from flowrun.api.operator import InputStatus, SourceOperator
from flowrun.core.elements import ACTIVE, MAX_TIMESTAMP, MAX_WATERMARK
from flowrun.errors import InternalError
from flowrun.runtime.task.chain import OperatorChain


class TaskInput(Protocol):
    """Feeds the head of a chain."""

    def process_next(self) -> InputStatus:
        """Have the chain process about one batch or one event, without waiting for input."""
        ...

    @property
    def has_urgent(self) -> bool:
        """Whether there is something to process even while the chain has no room for rows: a barrier that has overtaken them."""
        ...

    def stop(self, drain: bool) -> None:
        """End the input early, if this task is where it starts."""
        ...

    def end_event_time(self) -> None:
        """Have event time end before the barrier of a job that is stopped with draining: MAX, then the end of all inputs."""
        ...

    def release(self) -> None:
        """Free what was requested. Idempotent."""
        ...


class SourceInput:
    """The input of a task whose head is a source: the source polls the outside.

    When it ends, MAX follows (after ACTIVE, if it was idle) unless the source sent it or was stopped without drain.
    """

    def __init__(self, chain: OperatorChain, listener: Callable[[], None]) -> None:
        self._chain = chain
        head = chain.operators[0]
        if not hasattr(head, "emit_next"):
            raise InternalError(f"'{chain.name_of(0)}' has no inputs but is no source operator: it has no emit_next")
        self._source: SourceOperator = head  # type: ignore[assignment]
        self._source.set_availability_listener(listener)
        self._wake = listener
        self._drain = True

    def process_next(self) -> InputStatus:
        """Poll the source."""
        try:
            status = self._source.emit_next()
        except BaseException as error:
            self._chain.note_failure(0, error)
            raise
        if status is InputStatus.END_OF_INPUT and self._drain:
            output = self._chain.head_output
            if output.current_watermark < MAX_TIMESTAMP:
                if output.idle:
                    output.emit_status(ACTIVE)
                output.emit_watermark(MAX_WATERMARK)
        return status

    @property
    def has_urgent(self) -> bool:
        """Barriers come as mails."""
        return False

    def stop(self, drain: bool) -> None:
        """Have the source end early."""
        self._drain = self._drain and drain
        try:
            self._source.stop(drain)
        except BaseException as error:
            self._chain.note_failure(0, error)
            raise
        self._wake()

    def end_event_time(self) -> None:
        """Have the source end now, with MAX.

        Raises:
            InternalError: the source does not end although it was told to stop.
        """
        self.stop(drain=True)
        while (status := self.process_next()) is not InputStatus.END_OF_INPUT:
            if status is InputStatus.NOTHING_AVAILABLE:
                raise InternalError(f"'{self._chain.name_of(0)}' does not end although it was told to stop and drain")

    def release(self) -> None:
        """The operator is closed with its chain."""


class FinishedInput:
    """The input of a source that had finished before the checkpoint that its job restores from: it is empty."""

    def process_next(self) -> InputStatus:
        """The end."""
        return InputStatus.END_OF_INPUT

    @property
    def has_urgent(self) -> bool:
        """Nothing comes."""
        return False

    def stop(self, drain: bool) -> None:
        """It has ended anyway."""

    def end_event_time(self) -> None:
        """The task sends MAX at its end."""

    def release(self) -> None:
        """Nothing was requested."""
