"""What is said of windows that are not aligned: which windows rows belong to."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.operators.timed.assigners import check_session_gap


@record
class SessionAssigner:
    """Sessions: windows of `gap_ms` from each row on, merged where they touch."""

    gap_ms: int

    def __post_init__(self) -> None:
        check_session_gap(self.gap_ms)


@record
class GlobalAssigner:
    """One window for ever."""
