"""The common part of window operators whose windows fire as time passes, be it event time or the machine's clock."""

from __future__ import annotations

from flowrun.api.operator import TimerHandle
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.operators.base import AbstractOperator
from flowrun.operators.timed.assigners import WindowTime


class TimeDrivenOperator(AbstractOperator):
    """Says when windows fire: as the watermark advances in event time, by one timer for the next firing in processing time.

    In processing time what is open at the regular end of bounded input fires then, as a user of bounded input expects.
    Subclasses implement `_advance` and keep `_next_firing`, what the clock must show for the next window to fire, up to date; they
    call `_arm_timer` after rows have changed it.
    """

    def __init__(self, domain: WindowTime) -> None:
        self._processing = domain is WindowTime.PROCESSING
        self._next_firing: int | None = None
        self._timer: TimerHandle | None = None
        self._timer_at: int | None = None

    def open(self) -> None:
        """Arm the timer of restored processing-time windows."""
        self._arm_timer()

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_watermark(self, timestamp: int) -> None:
        """Fire the windows that the watermark has passed."""
        if not self._processing:
            self._advance(timestamp)

    def finish(self) -> None:
        """Fire what processing time has left open at the regular end of bounded input."""
        if self._processing and self.current_watermark == MAX_TIMESTAMP:
            self._advance(MAX_TIMESTAMP)

    def _advance(self, time: int) -> None:
        """Fire and clean up: this subtask's time is `time` now."""
        raise NotImplementedError

    def _time_at(self, now: int) -> int:
        """This subtask's time when the clock shows `now`."""
        return now

    def _advance_to_clock(self) -> int:
        """Fire what the clock has passed; gives the time of rows that come now, ms."""
        now = self.context.processing_time.now_ms()
        self._advance(self._time_at(now))
        return now if self.context.wall_clock is None else self.context.wall_clock.now_ms()

    def _arm_timer(self) -> None:
        if not self._processing or self._next_firing == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = self._next_firing
        if self._next_firing is not None:
            self._timer = self.context.processing_time.register(self._next_firing, self._on_timer)

    def _on_timer(self, _: int) -> None:
        self._timer = self._timer_at = None
        self._advance_to_clock()
        self._arm_timer()
