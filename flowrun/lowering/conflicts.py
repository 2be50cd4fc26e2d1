"""Lowering of ON CONFLICT: the watermark beside each row, before rows are shuffled by the primary key; what compares rows, behind that."""

from __future__ import annotations

from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.change_order import keep_changes_in_order
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import keyed
from flowrun.lowering.settings import state_ttl_ms
from flowrun.operators.rows.factories import WatermarkColumnFactory
from flowrun.operators.updating.factories import ConflictResolutionFactory
from flowrun.plan.conflicts import OnConflict, ResolveConflicts
from flowrun.plan.nodes import PlanNode, Settings
from flowrun.plan.recognition.nodes_made import unique_name

_NAME = "on-conflict"


def lower_conflicts(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Rows with the watermark before which they came, then what compares those of one key."""
    assert isinstance(node, ResolveConflicts)
    column = Field(unique_name("$watermark", node.input.schema.names), BIGINT, nullable=False)
    schema = Schema((*node.input.schema.fields, column))
    hints = node.hints
    marked = OneInputTransformation(
        name=f"{hints.name or _NAME} (watermark)",
        schema=schema,
        factory=WatermarkColumnFactory(schema),
        input=inputs.only,
        slot_sharing_group=hints.slot_sharing_group,
    )
    if inputs.changing:
        keep_changes_in_order(marked, settings.parallelism)
    factory = ConflictResolutionFactory(
        node.schema, node.keys, node.table, node.action is OnConflict.ERROR, state_ttl_ms(hints, settings)
    )
    return keyed(node, factory, marked, node.keys, _NAME)
