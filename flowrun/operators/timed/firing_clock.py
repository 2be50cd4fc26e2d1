"""When what an operator keeps is due: as its watermark advances, or as the machine's clock does."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.api.operator import OperatorContext
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.semantics import TimeDomain
from flowrun.operators.first_timer import FirstTimer
from flowrun.operators.next_firing import show_next_firing


class FiringClock:
    """The clock of one operator. In event time it follows the watermark; in processing time one timer waits for the next firing.

    An operator holds one and passes it the calls of its contract that have to do with time (`open`, `on_watermark`, `finish`, `close`).
    In processing time what is open at the regular end of bounded input is due then, as a user of bounded input expects.

    Args:
        domain: which clock it is.
        context: of the operator.
        advance: fires and cleans up; its argument is the operator's time from now on, ms: the watermark, or what the clock shows
            less `behind_ms`.
        next_firing: what the clock must show for the next firing, ms; None: nothing is waited for. Changes nothing.
        behind_ms: 1 where what fires is named by an end that does not belong to it, as that of a window.
    """

    def __init__(
        self,
        domain: TimeDomain,
        context: OperatorContext,
        advance: Callable[[int], None],
        next_firing: Callable[[], int | None],
        *,
        behind_ms: int = 0,
    ) -> None:
        self.is_processing = domain is TimeDomain.PROCESSING
        self._context = context
        self._advance = advance
        self._behind_ms = behind_ms
        self._next_firing = next_firing
        self._timer = FirstTimer(context.processing_time, next_firing, self._on_timer)

    def show_next_firing(self, next_event_firing: Callable[[], int | None] | None = None) -> None:
        """Show by a gauge what is waited for; called once, when `next_firing` can be asked by any thread.

        Args:
            next_event_firing: the watermark at which the next firing is, ms, where it is not `next_firing` less `behind_ms`.
        """
        if self.is_processing:
            show_next_firing(self._context, self._next_firing, TimeDomain.PROCESSING)
        else:
            show_next_firing(self._context, next_event_firing or self._watermark_of_next, TimeDomain.EVENT)

    def _watermark_of_next(self) -> int | None:
        first = self._next_firing()
        return None if first is None else first - self._behind_ms

    def rearm(self) -> None:
        """Wait for the next firing, which may be another one than before."""
        if self.is_processing:
            self._timer.rearm()

    def on_watermark(self, timestamp: int) -> None:
        """Fire what the watermark has passed."""
        if not self.is_processing:
            self._advance(timestamp)

    def time_of_rows(self) -> int:
        """Fire what the machine's clock has passed; gives the processing time of rows that come now, ms, on the clock that they go by."""
        now = self._advance_to_now()
        return now if self._context.wall_clock is None else self._context.wall_clock.now_ms()

    def finish(self, watermark: int) -> None:
        """Fire what processing time has left open, if the watermark says that the input is at its regular end."""
        if self.is_processing and watermark == MAX_TIMESTAMP:
            self._advance(MAX_TIMESTAMP)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._timer.close()

    def _on_timer(self, _: int) -> None:
        self._advance_to_now()

    def _advance_to_now(self) -> int:
        now = self._context.processing_time.now_ms()
        self._advance(now - self._behind_ms)
        return now
