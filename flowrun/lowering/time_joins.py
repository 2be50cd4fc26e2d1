"""Joins by time: interval joins, temporal joins, and lookups in outside tables."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from flowrun.api.lookup import LookupSource
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind
from flowrun.errors import Diagnostic, OptionError, PipelineError, UnsupportedPlanError
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import keyed_pair, with_hints
from flowrun.operators.joins.factories import IntervalJoinFactory, LookupJoinFactory, OuterSides, TemporalJoinFactory
from flowrun.operators.joins.lookup_options import (
    LOOKUP_JOIN_OPTIONS,
    RELOAD_INTERVAL,
    CacheMode,
    LookupSettings,
    lookup_settings,
)
from flowrun.plan.compiled import Projection, predicate_of
from flowrun.plan.expressions import Cast, Expression
from flowrun.plan.joins import IntervalJoin, LookupJoin, TemporalJoin
from flowrun.plan.nodes import PlanNode, Settings, TableReference
from flowrun.plan.row_errors import row_errors_of
from flowrun.plan.tables import TableRole, create_lookup, usable_connector

_OUTER = {
    JoinKind.INNER: OuterSides.NONE,
    JoinKind.LEFT: OuterSides.LEFT,
    JoinKind.RIGHT: OuterSides.RIGHT,
    JoinKind.FULL: OuterSides.BOTH,
}


def lower_interval_join(plan: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """The transformation of an `IntervalJoin`, behind shuffles by its keys.

    Raises:
        UnsupportedPlanError: it is a semi or anti join.
    """
    node = cast(IntervalJoin, plan)
    name = node.hints.name or "interval join"
    outer = _OUTER.get(node.kind)
    if outer is None:
        raise UnsupportedPlanError(
            f"'{name}' is an interval join of kind {node.kind.value}; expected inner, left, right or full",
            hint="write the join with IN or EXISTS over equal keys, which makes it a regular join, or join and deduplicate",
        )
    factory = IntervalJoinFactory(
        schemas=(node.left.schema, node.right.schema),
        keys=(node.left_keys, node.right_keys),
        times=(node.left_time, node.right_time),
        lower_ms=node.lower_ms,
        upper_ms=node.upper_ms,
        output_schema=node.schema,
        outer=outer,
        condition=predicate_of(node.condition),
        domain=node.domain,
        name=name,
        errors=row_errors_of(node, settings),
    )
    return keyed_pair(node, factory, inputs.transformations, (node.left_keys, node.right_keys), name)


def lower_temporal_join(plan: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """The transformation of a `TemporalJoin`, behind shuffles by its keys.

    Raises:
        UnsupportedPlanError: it is neither an inner nor a left join.
    """
    node = cast(TemporalJoin, plan)
    name = node.hints.name or "temporal join"
    factory = TemporalJoinFactory(
        schemas=(node.left.schema, node.right.schema),
        keys=(node.left_keys, node.right_keys),
        left_time=node.left_time,
        right_time=node.right_time,
        output_schema=node.schema,
        outer=_is_outer(node.kind, name),
        condition=predicate_of(node.condition),
        domain=node.domain,
        name=name,
        errors=row_errors_of(node, settings),
    )
    return keyed_pair(node, factory, inputs.transformations, (node.left_keys, node.right_keys), name)


def lower_lookup_join(plan: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """The transformation of a `LookupJoin`, in the task of its input.

    Raises:
        UnsupportedPlanError: it is neither an inner nor a left join.
        PipelineError: the table cannot be asked by these columns, or its options do not go together.
    """
    node = cast(LookupJoin, plan)
    hints = node.hints
    name = hints.name or "lookup join"
    try:
        source = create_lookup(node.table, node.physical, tuple(column for _, column in node.keys), node.declared)
        how = _lookup_settings(node.table)
    except OptionError as error:
        problem = Diagnostic(f"table '{node.table.name}': {error.message}", location=hints.location, hint=error.hint)
        raise PipelineError([problem]) from error
    projected = Schema(node.schema.fields[len(node.input.schema) :])
    factory = LookupJoinFactory(
        source=source,
        keys=Projection(_asked(node, source), source.keys),
        projection=Projection(node.projections, projected),
        output_schema=node.schema,
        table=node.table.name,
        outer=_is_outer(node.kind, name),
        condition=predicate_of(node.condition),
        settings=how,
        name=name,
        errors=row_errors_of(node, settings),
    )
    made = OneInputTransformation(
        name=name,
        schema=node.schema,
        factory=factory,
        input=inputs.only,
    )
    return with_hints(made, node.hints)


def _asked(node: LookupJoin, source: LookupSource) -> tuple[Expression, ...]:
    """The values to ask by, in the order and of the types of the table's columns."""
    by_column = {column: value for value, column in node.keys}
    return tuple(
        value if value.type.arrow == field.type.arrow else Cast(field.type, value)
        for field in source.keys
        for value in (by_column[field.name],)
    )


def _lookup_settings(table: TableReference) -> LookupSettings:
    names = {option.name for option in LOOKUP_JOIN_OPTIONS}
    given = {name: value for name, value in table.options.items() if name in names}
    options, problems = parse_options(LOOKUP_JOIN_OPTIONS, given, f"table '{table.name}'")
    if problems:
        raise problems[0]
    how = lookup_settings(options)
    connector = usable_connector(table.connector, TableRole.LOOKUP)
    if how.cache is CacheMode.FULL and any(o.name == RELOAD_INTERVAL for o in connector.lookup_options):
        return replace(how, cache=CacheMode.NONE)  # the connector holds the table in memory already
    return how


def _is_outer(kind: JoinKind, name: str) -> bool:
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise UnsupportedPlanError(
            f"'{name}' with FOR SYSTEM_TIME AS OF is a join of kind {kind.value}; expected inner or left",
            hint="put the table whose versions are looked up on the right of a JOIN or LEFT JOIN",
        )
    return kind is JoinKind.LEFT
