"""When an operator that lets rows wait sends the next of them: gauges, so that one can see what a quiet operator waits for."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.api.operator import OperatorContext
from flowrun.core.semantics import TimeDomain

NEXT_EVENT_TIME_FIRING = "nextEventTimeFiring"
"""Gauge: the watermark, ms, at which something that waits now is sent or a timer fires; None: nothing waits."""
NEXT_PROCESSING_TIME_FIRING = "nextProcessingTimeFiring"
"""Gauge: the same of processing time, ms since the epoch."""

_NAMES = {TimeDomain.EVENT: NEXT_EVENT_TIME_FIRING, TimeDomain.PROCESSING: NEXT_PROCESSING_TIME_FIRING}


def show_next_firing(context: OperatorContext, read: Callable[[], int | None], domain: TimeDomain) -> None:
    """Register the gauge of a domain.

    Args:
        context: of the operator; where it goes by the clocks of a zone, so does what `read` gives, and the gauge shows the instant.
        read: when the next firing is, ms; None: nothing waits. Called by any thread, at any time: it changes nothing.
        domain: which time.
    """
    clock = context.wall_clock

    def shown() -> int | None:
        due = read()
        return due if due is None or clock is None else clock.last_instant(due)

    context.metrics.gauge(_NAMES[domain], shown)
