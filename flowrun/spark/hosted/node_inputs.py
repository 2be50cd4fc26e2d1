"""The inputs of a hosted node as sources. They stand for rows that exist already, and are never run."""

from __future__ import annotations

from typing import NoReturn

from flowrun.api.changelog import ChangelogMode
from flowrun.api.source import Boundedness, Delivery, JsonValue, ReaderContext
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import timestamp
from flowrun.errors import InternalError
from flowrun.plan.expressions import ColumnRef, Literal
from flowrun.plan.nodes import NodeHints, PlanNode, Scan, TableReference, WatermarkKind, WatermarkSpec


@record
class NodeInputSource:
    """Stands for input `number` of a node."""

    number: int
    schema: Schema
    changelog_mode: ChangelogMode

    @property
    def boundedness(self) -> Boundedness:
        """Bounded: a batch ends."""
        return Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once: a batch that fails is run again from its beginning."""
        return Delivery.EXACTLY_ONCE

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> NoReturn:
        """Never called."""
        raise InternalError(f"input {self.number} of a hosted node has no splits")

    def create_reader(self, context: ReaderContext) -> NoReturn:
        """Never called."""
        raise InternalError(f"input {self.number} of a hosted node has no reader")


def node_input_scan(node: PlanNode, number: int) -> Scan:
    """A scan with the columns of a node, and with event time if its rows have one."""
    schema = node.schema
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))
    time = WatermarkSpec(WatermarkKind.NONE, Literal(timestamp(3), None)) if node.event_time else None
    name = f"input {number + 1}"
    return Scan(schema, NodeHints(name=name), TableReference(name, "hosted", {}), schema, columns, time)
