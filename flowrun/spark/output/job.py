"""The common part of outputs on Spark: the name under which they are written, and rows that are written but not visible."""

from __future__ import annotations

from typing import Protocol

from flowrun.core.record import record
from flowrun.plan.nodes import Sink

ALL = "all"
"""The period of a run that is no backfill."""


@record
class OutputJob:
    """The name under which a run writes. A later run with the same `pipeline` and `period` replaces the rows of this one.

    Attributes:
        pipeline: the name of the pipeline.
        period: `all`, or the range of event times of a backfill, in a form that file names may contain.
        run_id: an id that no other run has.
    """

    pipeline: str
    period: str
    run_id: str


class StagedOutput(Protocol):
    """The rows of one sink, which are written but not visible."""

    @property
    def name(self) -> str:
        """The name of the sink."""
        ...

    @property
    def rows(self) -> int:
        """How many rows were written."""
        ...

    @property
    def runs_on_commit(self) -> bool:
        """Whether the commit sends rows to a system that shows them at once, which may fail and cannot be undone."""
        ...

    def commit(self) -> None:
        """Make the rows visible instead of those of an earlier run of the same job and period. It may be called again."""
        ...

    def abort(self) -> None:
        """Remove the rows. It may be called again."""
        ...


def place(sink: Sink) -> str:
    """The name of a sink in messages."""
    return f"sink '{name_of(sink)}'"


def name_of(sink: Sink) -> str:
    """The name that the user gave a sink."""
    return sink.hints.name or sink.table.name
