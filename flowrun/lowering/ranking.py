# ruff: noqa: ARG001 - all lowerings have one signature
"""Lowering of ranking: top-N, deduplication, window top-N and sorting by time."""

from __future__ import annotations

from flowrun.core.schema import Schema
from flowrun.core.semantics import SortKey, TimeDomain
from flowrun.errors import InternalError, UnsupportedPlanError
from flowrun.graph.transformation import Transformation
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import keyed
from flowrun.lowering.settings import state_ttl_ms
from flowrun.operators.ranking.factories import (
    GREATEST_RANK,
    DeduplicateFactory,
    RankFactory,
    TemporalSortFactory,
    WindowRankFactory,
)
from flowrun.plan.nodes import PlanNode, Settings
from flowrun.plan.relational import Deduplicate, Keep, Rank, TemporalSort, WindowRank


def lower_rank(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Top-N behind a shuffle by its partition; without one it runs alone.

    Raises:
        UnsupportedPlanError: a column of the order has no order.
    """
    assert isinstance(node, Rank)
    schema = node.input.schema
    factory = RankFactory(
        input_schema=schema,
        output_schema=node.schema,
        partition=node.partition,
        order=sortable(node, schema, node.order),
        ranking=node.function,
        first=min(node.first, GREATEST_RANK),  # no row has that rank
        last=min(node.last, GREATEST_RANK),
        rank_column=node.rank_column,
        retracting=inputs.changing,
        ttl_ms=state_ttl_ms(node.hints, settings),
    )
    return keyed(node, factory, inputs.only, node.partition, "rank")


def lower_deduplicate(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Deduplication behind a shuffle by its keys."""
    assert isinstance(node, Deduplicate)
    if inputs.changing:
        raise InternalError("a deduplication over rows that change was planned; it should have been a top-N")
    factory = DeduplicateFactory(
        input_schema=node.input.schema,
        output_schema=node.schema,
        keys=node.keys,
        time=node.time if node.domain is TimeDomain.EVENT else None,
        keep_last=node.keep is Keep.LAST,
        rank_column=node.rank_column,
        ttl_ms=state_ttl_ms(node.hints, settings),
    )
    return keyed(node, factory, inputs.only, node.keys, "deduplicate")


def lower_window_rank(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Top-N of windows behind a shuffle by partition and window.

    Raises:
        UnsupportedPlanError: a column of the order has no order.
    """
    assert isinstance(node, WindowRank)
    schema = node.input.schema
    factory = WindowRankFactory(
        input_schema=schema,
        output_schema=node.schema,
        window=node.window,
        partition=node.partition,
        order=sortable(node, schema, node.order),
        ranking=node.function,
        first=min(node.first, GREATEST_RANK),  # no row has that rank
        last=min(node.last, GREATEST_RANK),
        rank_column=node.rank_column,
        domain=node.domain,
        newest_of_equals=node.newest_of_equals,
        time_zone=node.time_zone,
    )
    return keyed(node, factory, inputs.only, factory.keys, "window rank")


def lower_temporal_sort(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Sorting in one subtask.

    Raises:
        UnsupportedPlanError: a column of the order has no order.
    """
    assert isinstance(node, TemporalSort)
    schema = node.input.schema
    order = sortable(node, schema, node.order)
    factory = TemporalSortFactory(input_schema=schema, order=order, domain=node.domain)
    return keyed(node, factory, inputs.only, (), "sort")


def sortable(node: PlanNode, schema: Schema, order: tuple[SortKey, ...]) -> tuple[SortKey, ...]:
    """The sort keys, checked.

    Raises:
        UnsupportedPlanError: a column has a type without order.
    """
    for key in order:
        field = schema.fields[key.column]
        if field.type.is_nested:
            raise UnsupportedPlanError(
                f"{place_of(node)}ORDER BY {field.name}: {field.type} has no order; expected a number, string, boolean or time",
                hint="order by a part of it, such as a field or an element",
            )
    return order


def place_of(node: PlanNode) -> str:
    """Where the node is in the user's text, for the beginning of messages; empty if that is not known."""
    return f"{node.hints.location}: " if node.hints.location is not None else ""
