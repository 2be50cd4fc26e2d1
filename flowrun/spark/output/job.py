"""What outputs on Spark have in common: under whose name they are written, and the step between writing and being seen."""

from __future__ import annotations

from typing import Protocol

from flowrun.core.record import record
from flowrun.plan.nodes import Sink

ALL = "all"
"""The period of a run that reads everything."""


@record
class OutputJob:
    """Under what name a run writes. A later run with the same `pipeline` and `period` replaces what this one wrote.

    Attributes:
        pipeline: name of the pipeline.
        period: `all`, or the event-time range of a backfill in a form that file names may hold.
        run_id: unique to this run.
    """

    pipeline: str
    period: str
    run_id: str


class StagedOutput(Protocol):
    """Rows of one sink, written but not visible."""

    @property
    def name(self) -> str:
        """Of the sink."""
        ...

    @property
    def rows(self) -> int:
        """How many were written."""
        ...

    @property
    def runs_on_commit(self) -> bool:
        """Whether committing sends rows to a system that shows them at once: that may fail, and cannot be taken back."""
        ...

    def commit(self) -> None:
        """Make them visible in place of what an earlier run of the same job and period wrote; idempotent."""
        ...

    def abort(self) -> None:
        """Remove them; idempotent."""
        ...


def place(sink: Sink) -> str:
    """What messages call a sink."""
    return f"sink '{name_of(sink)}'"


def name_of(sink: Sink) -> str:
    """The user's name of a sink."""
    return sink.hints.name or sink.table.name
