"""Counts the rows that the stream's operators leave out on Spark: tasks send their counts to the driver.

If Spark runs a task again, or computes rows again for another sink, they count once: each partition of a node has one entry, which a later
run of it replaces. Spark Connect has no accumulators, so that nothing is counted there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowrun.core.record import record
from flowrun.graph.job_graph import JobVertex
from flowrun.operators.row_failures import FAULTS, ROWS_DEAD_LETTERED, ROWS_SKIPPED
from flowrun.runtime.metrics import MetricRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Entries = dict[tuple[int, int], dict[str, tuple[dict[str, int], str | None]]]
"""(number of the node, partition) → operator → (counters, the first example)."""


class _Latest:
    """Merges the entries of tasks; it is an `AccumulatorParam` of PySpark."""

    def zero(self, value: Entries) -> Entries:
        """No entries."""
        return {}

    def addInPlace(self, value: Entries, other: Entries) -> Entries:  # noqa: N802 - PySpark's name
        """The merged entries; the later entry of a partition counts."""
        value.update(other)
        return value


@record(eq=False)
class NodeTally:
    """The counts of one node. It can be pickled, and is used in tasks."""

    accumulator: Any
    number: int

    def tell(self, partition: int, vertex: JobVertex, metrics: MetricRegistry) -> None:
        """Send the counts of a partition that was processed."""
        names = {o.operator_id: o.name for o in vertex.operators}
        found: dict[str, tuple[dict[str, int], str | None]] = {}
        for group in metrics.under():
            counters = {n: c for n, c in group.counters().items() if c and _is_of_rows(n)}
            if counters and group.scope[-1] in names:
                found[names[group.scope[-1]]] = (counters, group.noted)
        if found:
            self.accumulator.add({(self.number, partition): found})


@record
class LeftOut:
    """The rows that one operator left out: how many by counter, and the first example."""

    counters: Mapping[str, int]
    example: str | None


class Tallies:
    """The counts of one run. The driver's thread uses it."""

    def __init__(self, session: SparkSession) -> None:
        self._accumulator: Any = None
        if hasattr(session, "_jsparkSession"):
            self._accumulator = session.sparkContext.accumulator({}, _Latest())
        self._nodes = 0

    def of_node(self) -> NodeTally | None:
        """The counts for one more node; None: nothing is counted."""
        if self._accumulator is None:
            return None
        self._nodes += 1
        return NodeTally(self._accumulator, self._nodes)

    def total(self) -> dict[str, LeftOut]:
        """Operator → what it left out, in the order of nodes."""
        if self._accumulator is None:
            return {}
        entries: Entries = self._accumulator.value
        counters: dict[str, Counter[str]] = {}
        examples: dict[str, str | None] = {}
        for key in sorted(entries):
            for name, (counts, example) in entries[key].items():
                counters.setdefault(name, Counter()).update(counts)
                examples[name] = examples.get(name) or example
        return {name: LeftOut(dict(counts), examples[name]) for name, counts in counters.items()}


def _is_of_rows(name: str) -> bool:
    return name in (ROWS_SKIPPED, ROWS_DEAD_LETTERED) or name.startswith(FAULTS)
