"""A stream that counts the rows that a backfill counts: what tells how things stand gets nothing of what comes after the range.

Sources are read to their end all the same, so that results that are final, of windows say, are the stream's: only those that a
backfill would count go on to be counted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.keyed_state import Values
from flowrun.api.process_function import BatchContext, ProcessFunction
from flowrun.plan.nodes import NodeHints, Plan, PlanNode, Process, Scan, SideOutput, walk_plan
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks
from flowrun.spark.ranges import Reading, tells_state


def stop_at_range_end(plan: Plan, reading: Reading) -> Plan:
    """The plan with rows left out where `reading` stops: of what nodes read that tell how things stand, and of tables of changes."""
    states = tells_state(plan)
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        stop = reading.stops.get(id(node))
        made = with_inputs(node, tuple(_before(done[id(i)], stop) for i in node.inputs))
        if isinstance(node, Scan) and node.event_time and id(node) in states:
            made = _before(made, reading.bounds[id(node)].stop)
        done[id(node)] = made
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def _before(node: PlanNode, stop: int | None) -> PlanNode:
    """The rows of a node with event times before `stop`."""
    if stop is None or not node.event_time:
        return node
    made_by = node.input if isinstance(node, SideOutput) else node
    return Process(
        schema=node.schema,
        hints=NodeHints(parallelism=made_by.hints.parallelism),
        input=node,
        function=f"{RowsBefore.__module__}:{RowsBefore.__name__}",
        arguments={"stop": stop},
    )


class RowsBefore(ProcessFunction):
    """Passes the rows with event times before `stop`, ms."""

    def __init__(self, stop: int) -> None:
        self._stop = stop

    def process_batch(self, batch: pa.RecordBatch, context: BatchContext) -> tuple[pa.RecordBatch, Values]:
        """The rows, and where they were in the batch."""
        assert context.timestamps is not None
        kept = np.flatnonzero(context.timestamps.to_numpy() < self._stop)
        return batch.take(pa.array(kept)), kept
