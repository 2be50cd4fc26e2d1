"""The context of the translation of a plan to Spark, which all nodes share."""

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
    """The context of one translation.

    Attributes:
        session: the session in which the DataFrames are made.
        settings: the settings of the pipeline.
        now_ms: processing time, which PROCTIME() and CURRENT_TIMESTAMP give; it is the same for the whole run.
        arrivals: the `id` of each node whose frame must carry `ARRIVAL`.
        bounds: `id` of a scan → the event times to read; other scans are read whole.
        stops: `id` of a node → the event time before which the rows that it reads must lie (see `flowrun.spark.ranges`).
        exact: whether scans do not use Spark's own readers (see `flowrun.spark.input.exactness`).
        optimistic: the names of the sources that Spark's own readers read; translation adds to it.
        tallies: counts rows that are left out; None: they are not counted.
        kept: DataFrames that translation let Spark persist; whoever runs the plan releases them at the end.
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
        """The counts for the node that is translated next; None: nothing is counted."""
        return None if self.tallies is None else self.tallies.of_node()

    def needs_arrival(self, node: PlanNode) -> bool:
        """Whether the node's rows must carry the order in which they were read."""
        return id(node) in self.arrivals

    def range_of(self, node: PlanNode) -> TimeRange:
        """The event times that a scan reads."""
        return self.bounds.get(id(node), ALL_TIME)
