# ruff: noqa: ARG001 - all lowerings have one signature
"""Lowering of TO_CHANGELOG and FROM_CHANGELOG, and of what makes whole changes."""

from __future__ import annotations

from flowrun.api.operator import OperatorSpec
from flowrun.core.semantics import TimeDomain
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import by_key, keyed
from flowrun.lowering.lowering import with_hints
from flowrun.lowering.settings import state_ttl_ms
from flowrun.operators.rows.factories import FromChangelogFactory, ToChangelogFactory
from flowrun.operators.updating.factories import ChangelogNormalizeFactory
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.nodes import PlanNode, Settings
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
