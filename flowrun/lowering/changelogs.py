# ruff: noqa: ARG001 - all lowerings have one signature
"""Lowering of TO_CHANGELOG and FROM_CHANGELOG, of what makes whole changes, and of ON CONFLICT, which keeps one row a key."""

from __future__ import annotations

from flowrun.api.operator import OperatorSpec
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import BIGINT
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.change_order import keep_changes_in_order
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import by_key, keyed, with_hints
from flowrun.lowering.settings import state_ttl_ms
from flowrun.operators.rows.factories import FromChangelogFactory, ToChangelogFactory, WatermarkColumnFactory
from flowrun.operators.updating.factories import ChangelogNormalizeFactory, ConflictResolutionFactory
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.conflicts import OnConflict, ResolveConflicts
from flowrun.plan.nodes import PlanNode, Settings
from flowrun.plan.recognition.nodes_made import unique_name
from flowrun.plan.traits import TraitIndex


def lower_to_changelog(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Changes as inserts, behind a shuffle if there are keys."""
    assert isinstance(node, ToChangelog)
    return _one_input(node, ToChangelogFactory(node.schema, node.codes), inputs.only, node.keys)


def lower_from_changelog(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Rows as changes, behind a shuffle if there are keys."""
    assert isinstance(node, FromChangelog)
    name = node.hints.name or "changes"
    factory = FromChangelogFactory(node.schema, node.operation, node.codes, node.skip, name, node.upsert)
    return _one_input(node, factory, inputs.only, node.keys)


def lower_normalize(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Whole changes behind a shuffle by key."""
    assert isinstance(node, ChangelogNormalize)
    ttl_ms = state_ttl_ms(node.hints, settings)
    traits = enumerate(TraitIndex()[node].columns)
    clocks = tuple(i for i, t in traits if t is not None and t.domain is TimeDomain.PROCESSING)
    factory = ChangelogNormalizeFactory(node.schema, node.keys, ttl_ms, clocks)
    return keyed(node, factory, inputs.only, node.keys, "normalize")


def _one_input(node: PlanNode, factory: OperatorSpec, source: Transformation, keys: tuple[int, ...]) -> Transformation:
    name = node.hints.name or type(node).__name__
    shuffled = by_key(source, keys, name)
    made = OneInputTransformation(name=name, schema=node.schema, factory=factory, input=shuffled)
    return with_hints(made, node.hints)


_CONFLICTS = "on-conflict"


def lower_conflicts(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Rows with the watermark before which they came, and, behind a shuffle by the primary key, what compares those of one key."""
    assert isinstance(node, ResolveConflicts)
    column = Field(unique_name("$watermark", node.input.schema.names), BIGINT, nullable=False)
    schema = Schema((*node.input.schema.fields, column))
    hints = node.hints
    marked = OneInputTransformation(
        name=f"{hints.name or _CONFLICTS} (watermark)",
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
    return keyed(node, factory, marked, node.keys, _CONFLICTS)
