"""What the translation of a plan to Spark needs to know beside the node at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.plan.nodes import PlanNode, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flowrun.spark.hosted.tallies import NodeTally, Tallies


@record
class TimeRange:
    """Event times `start` ≤ t < `stop`, ms since the epoch; None: without bound."""

    start: int | None = None
    stop: int | None = None

    def __str__(self) -> str:
        return f"[{'−∞' if self.start is None else self.start}, {'∞' if self.stop is None else self.stop})"


ALL_TIME = TimeRange()


@record(eq=False, slots=False)
class Context:
    """Of one translation.

    Attributes:
        session: in which the DataFrames are made.
        settings: of the pipeline.
        now_ms: processing time, the same for the whole run: what PROCTIME() and CURRENT_TIMESTAMP give.
        arrivals: `id` of each node whose frame must carry `ARRIVAL`.
        bounds: by `id` of a scan: the event times to read; a scan that is not in it is read whole.
        stops: by `id` of a node: only rows with an event time before this count of what it reads (see `flowrun.spark.ranges`).
        exact: whether scans leave Spark's own readers alone (see `flowrun.spark.input.exactness`).
        optimistic: places of scans by Spark's own readers.
        tallies: count rows that are left out; None: nobody does.
        kept: rows that the translation had Spark keep; who runs the plan releases them at the end.
    """

    session: SparkSession
    settings: Settings
    now_ms: int
    arrivals: frozenset[int] = frozenset()
    bounds: Mapping[int, TimeRange] = field(default_factory=dict)
    stops: Mapping[int, int] = field(default_factory=dict)
    exact: bool = False
    kept: list[DataFrame] = field(default_factory=list)
    optimistic: list[str] = field(default_factory=list)
    tallies: Tallies | None = None

    def node_tally(self) -> NodeTally | None:
        """What a node counts with that is about to be translated."""
        return None if self.tallies is None else self.tallies.of_node()

    def needs_arrival(self, node: PlanNode) -> bool:
        """Whether the node's rows must carry the order in which they were read."""
        return id(node) in self.arrivals

    def range_of(self, node: PlanNode) -> TimeRange:
        """The event times that a scan reads."""
        return self.bounds.get(id(node), ALL_TIME)
