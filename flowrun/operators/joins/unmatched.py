"""How many rows of each side of a join found no match: counters, so that one can see that a join gives nothing for want of matches."""

from __future__ import annotations

from flowrun.api.metrics import Counter, MetricGroup
from flowrun.operators.joins.factories import LEFT, RIGHT

NUM_RECORDS_UNMATCHED = {LEFT: "numLeftRecordsUnmatched", RIGHT: "numRightRecordsUnmatched"}
"""Rows that have no match and cannot get one any more."""
NUM_RECORDS_UNMATCHED_ON_ARRIVAL = {
    LEFT: "numLeftRecordsUnmatchedOnArrival",
    RIGHT: "numRightRecordsUnmatchedOnArrival",
}
"""Rows that found no match when they came; rows of the other side that come later may match them."""


def unmatched_counters(metrics: MetricGroup, *, on_arrival: bool = False) -> tuple[Counter, Counter]:
    """The counters of both sides, left and right."""
    names = NUM_RECORDS_UNMATCHED_ON_ARRIVAL if on_arrival else NUM_RECORDS_UNMATCHED
    return metrics.counter(names[LEFT]), metrics.counter(names[RIGHT])
