"""Lowering of updating group aggregations, and the inputs of group and OVER aggregations."""

from __future__ import annotations

import pickle
from dataclasses import replace

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit, SortKey, TimeDomain
from flowrun.core.types import BIGINT, row
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.transformation import OneInputTransformation, PartitionTransformation
from flowrun.lowering import lower
from flowrun.operators.state_meanings import state_meanings
from flowrun.operators.updating.factories import GroupAggregateFactory, LocalGroupAggregateFactory
from flowrun.plan.expressions import AggregateCall, ColumnRef, UserAggregateReference
from flowrun.plan.nodes import Calc, NodeHints, PlanNode, Settings
from flowrun.plan.relational import Frame, GroupAggregate, OverAggregate
from flowrun.plan.window_inputs import prepare_window_inputs
from tests.lowering.test_lowering import PARALLEL, all_of, factory, names
from tests.plan.plans import ORDERS, aggregate_calls, plan, scan


def group(
    node: PlanNode,
    *aggregates: str,
    keys: tuple[str, ...] = (),
    name: str = "totals",
    calls: tuple[AggregateCall, ...] = (),
) -> GroupAggregate:
    positions = tuple(node.schema.index(k) for k in keys)
    found = calls or aggregate_calls(node, *aggregates)
    fields = (*(node.schema.fields[p] for p in positions), *(Field(c.name, c.type) for c in found))
    return GroupAggregate(Schema(fields), NodeHints(name=name), node, positions, found)


def test_a_group_aggregation_is_aggregated_before_the_shuffle_too() -> None:
    node = group(scan(), "SUM(amount * 2) AS total", "COUNT(DISTINCT id) AS ids", keys=("user",))
    lowered = lower(plan(node, settings=replace(PARALLEL, state_ttl_ms=5000)))
    assert names(lowered) == [
        "Source: orders",
        "totals.input",
        "totals (local)",
        "totals (by key)",
        "totals",
        "Sink: out",
    ]
    local, final = factory(lowered, LocalGroupAggregateFactory), factory(lowered, GroupAggregateFactory)
    assert isinstance(local, LocalGroupAggregateFactory)
    assert isinstance(final, GroupAggregateFactory)
    assert (local.keys, local.aggregates, local.input_schema, local.retracting) == (
        final.keys,
        final.aggregates,
        final.input_schema,
        final.retracting,
    )
    assert final.partial_input
    assert final.ttl_ms == 5000
    assert not final.retracting
    assert str(final.input_schema) == "user STRING, $1 DECIMAL(21, 2), id BIGINT"
    (shuffle,) = (t for t in all_of(lowered) if isinstance(t, PartitionTransformation))
    assert shuffle.partitioner == KeyGroupPartitioner((0,))
    assert pickle.loads(pickle.dumps(final)).layout.columns == final.layout.columns


def test_aggregates_that_depend_on_order_are_not_aggregated_before_the_shuffle() -> None:
    for aggregate in ("LAST_VALUE(status) AS x", "LISTAGG(status) AS x", "ARRAY_AGG(DISTINCT status) AS x"):
        assert "totals (local)" not in names(lower(plan(group(scan(), aggregate, keys=("user",)), settings=PARALLEL)))
    off = replace(PARALLEL, local_aggregation=False)
    assert "totals (local)" not in names(lower(plan(group(scan(), "COUNT(*) AS n", keys=("user",)), settings=off)))


def test_an_aggregation_over_results_that_change_takes_rows_back() -> None:
    inner = group(scan(), "COUNT(*) AS n", keys=("user",), name="inner")
    outer = group(inner, "MAX(n) AS most", "FIRST_VALUE(n) AS first", name="outer")
    lowered = lower(plan(outer, settings=PARALLEL))
    (final,) = (t for t in all_of(lowered) if isinstance(t, OneInputTransformation) and t.name == "outer")
    assert final.parallelism == 1
    assert isinstance(final.factory, GroupAggregateFactory)
    assert final.factory.retracting
    assert not final.factory.partial_input


def test_state_is_explained_in_the_words_of_the_query() -> None:
    node = group(
        scan(),
        "SUM(amount * 2) AS total",
        "COUNT(DISTINCT id) FILTER (WHERE status = 'paid') AS ids",
        "LISTAGG(status) AS texts",
        keys=("user",),
    )
    final = factory(lower(plan(node)), GroupAggregateFactory)
    assert isinstance(final, GroupAggregateFactory)
    assert state_meanings(final) == {
        "groups": {
            "rows": "COUNT(*)",
            "touched_ms": "time of the last row, ms since the epoch, if state has a time to live",
            "sum_total": "SUM(amount * 2)",
            "count_total": "COUNT(amount * 2)",
            "distinct_count_ids": "COUNT(DISTINCT id) FILTER (WHERE status = 'paid')",
        },
        "values_id": {
            "value": "different values of id",
            "count_ids": "how many rows have the value FILTER (WHERE status = 'paid')",
        },
        "list_status": {"value": "values of status"},
    }
    assert set(final.state_schemas()) == set(state_meanings(final))


def test_the_rows_of_over_keep_their_columns_and_get_the_computed_ones_behind() -> None:
    source = scan(event_time=True)
    calls = aggregate_calls(source, "SUM(amount * 2) AS total", "COUNT(id) AS ids")
    schema = Schema((*ORDERS.fields, *(Field(c.name, c.type) for c in calls)))
    order = (SortKey(ORDERS.index("ts")),)
    frame = Frame(FrameUnit.ROWS, 2)
    over = OverAggregate(schema, NodeHints(), source, (1,), order, TimeDomain.EVENT, frame, calls)
    prepared = prepare_window_inputs(plan(over)).sinks[0].input
    assert isinstance(prepared, OverAggregate)
    assert prepared.input.schema.names == (*ORDERS.names, "$5")
    assert [str(a) for c in prepared.calls for a in c.arguments] == ["$5", "id"]
    plain = replace(over, calls=calls[1:], schema=Schema((*ORDERS.fields, Field("ids", BIGINT))))
    kept = prepare_window_inputs(plan(plain)).sinks[0].input
    assert isinstance(kept, OverAggregate)
    assert not isinstance(kept.input, Calc)


def test_a_users_aggregate_gets_its_arguments_as_one_row() -> None:
    reference = UserAggregateReference("tests.operators.updating.users:WeightedSum", retractable=True)
    first, second = (ColumnRef(BIGINT, 0, "id") for _ in range(2))
    call = AggregateCall("WEIGHTED", (first, second), BIGINT, "w", reference=reference)
    rows = AggregateCall(
        "ROWS_SEEN", (), BIGINT, "r", reference=replace(reference, reference="tests.operators.updating.users:Rows")
    )
    lowered = lower(plan(group(scan(), keys=("user",), calls=(call, rows)), settings=Settings()))
    final = factory(lowered, GroupAggregateFactory)
    assert isinstance(final, GroupAggregateFactory)
    assert [f.type for f in final.input_schema.fields[1:2]] == [row(("f0", BIGINT), ("f1", BIGINT))]
    users = [a.kernel.user for a in final.aggregates]
    assert [u.arguments for u in users if u is not None] == [(BIGINT, BIGINT), ()]
    assert "totals (local)" not in names(lowered)
    assert state_meanings(final)["groups"]["accumulator_w"] == "accumulator of WEIGHTED(id, id), as JSON text"
