"""Ranking and OVER from plan to result, against DuckDB where the input is complete; and what cannot be lowered says why."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.core.elements import RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit, NullOrder, RankFunction, SortKey, TimeDomain
from flowrun.core.types import BIGINT, DOUBLE, INT, STRING, array, timestamp
from flowrun.errors import UnsupportedPlanError
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression, Literal
from flowrun.plan.nodes import (
    NodeHints,
    Plan,
    PlanNode,
    Scan,
    Settings,
    Sink,
    TableReference,
    WatermarkKind,
    WatermarkSpec,
)
from flowrun.plan.relational import (
    Deduplicate,
    Frame,
    GroupAggregate,
    Keep,
    OverAggregate,
    Rank,
    TemporalSort,
    WindowRank,
)
from flowrun.runners.embedded import run_embedded

ROWS = Schema.of(id=BIGINT, k=STRING, v=BIGINT, x=DOUBLE, ts=timestamp(3))
Row = tuple[Any, ...]
BY_VALUE = (SortKey(2, descending=True, nulls=NullOrder.LAST), SortKey(0))


@pytest.fixture(autouse=True)
def _tables() -> Iterator[None]:
    yield
    memory.clear()


def table() -> pa.Table:
    dice = random.Random(11)
    count = 300
    columns = {
        "id": list(range(count)),
        "k": [dice.choice(["a", "b", "c", None]) for _ in range(count)],
        "v": [dice.choice([None, *range(20)]) for _ in range(count)],
        "x": [dice.choice([None, 0.5, 0.25, 8.0]) for _ in range(count)],
        "ts": [1000 * (i // 2) + dice.choice([0, 0, 900]) for i in range(count)],
    }
    arrays = [pa.array(columns[f.name], pa.int64() if i == 4 else f.type.arrow) for i, f in enumerate(ROWS)]
    arrays[4] = arrays[4].cast(pa.timestamp("ms"))
    return pa.Table.from_arrays(arrays, schema=ROWS.arrow)


def reference(schema: Schema) -> tuple[Expression, ...]:
    return tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))


def rows() -> Scan:
    whole = table().combine_chunks().to_batches()[0]
    memory.put("rows", [whole.slice(i, 70) for i in range(0, whole.num_rows, 70)])
    return Scan(
        schema=ROWS,
        hints=NodeHints(name="rows"),
        table=TableReference("rows", "memory", {"table": "rows"}),
        physical=ROWS,
        projections=reference(ROWS),
        watermark=WatermarkSpec(WatermarkKind.BOUNDED, ColumnRef(timestamp(3), 4, "ts"), 2_000, column="ts"),
    )


def totals() -> GroupAggregate:
    """The sum and the count of the values of each key: an input that changes."""
    total = AggregateCall("SUM", (ColumnRef(BIGINT, 2, "v"),), BIGINT, "total")
    schema = Schema.of(x=DOUBLE, k=STRING, total=BIGINT)
    return GroupAggregate(schema=schema, hints=NodeHints(name="totals"), input=rows(), keys=(3, 1), aggregates=(total,))


def run(node: PlanNode, parallelism: int = 2, settings: Settings | None = None) -> list[tuple[int, Row]]:
    out = TableReference("out", "memory", {"table": "out"})
    sink = Sink(schema=node.schema, hints=NodeHints(name="out"), input=node, table=out)
    plan = Plan("test", (sink,), settings or Settings())
    graph = build_job_graph(build_stream_graph("test", lower(plan), GraphSettings(parallelism=parallelism)))
    run_embedded(pickle.loads(pickle.dumps(graph)))
    found: list[tuple[int, Row]] = []
    for batch in memory.take("out"):
        kinds = [0] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
        plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns.columns]
        found += zip(kinds, zip(*(c.to_pylist() for c in plain), strict=True), strict=True)
    return found


def folded(changes: list[tuple[int, Row]]) -> Counter[Row]:
    held: Counter[Row] = Counter()
    for kind, row in changes:
        held[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    assert min(held.values(), default=0) >= 0
    return +held


def duck(query: str) -> Counter[Row]:
    rows = table()
    assert rows.num_rows
    return Counter(duckdb.sql(query).fetchall())


def extended(schema: Schema, *fields: Field) -> Schema:
    return Schema((*schema.fields, *fields))


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("function", list(RankFunction), ids=lambda f: f.value)
def test_top_n(function: RankFunction, parallelism: int) -> None:
    order = BY_VALUE if function is RankFunction.ROW_NUMBER else BY_VALUE[:1]
    node = Rank(
        schema=extended(ROWS, Field("rn", BIGINT)),
        hints=NodeHints(name="top"),
        input=rows(),
        partition=(1,),
        order=order,
        function=function,
        first=1,
        last=4,
        rank_column=True,
    )
    by = "v DESC NULLS LAST" + (", id" if function is RankFunction.ROW_NUMBER else "")
    expected = duck(
        f"SELECT id, k, v, x, epoch_ms(ts), {function.value}() OVER (PARTITION BY k ORDER BY {by}) AS rn FROM rows QUALIFY rn <= 4"
    )
    assert folded(run(node, parallelism)) == expected


def test_top_n_over_rows_that_change() -> None:
    node = Rank(
        schema=totals().schema,
        hints=NodeHints(),
        input=totals(),
        partition=(),
        order=(SortKey(2, descending=True, nulls=NullOrder.LAST), SortKey(1), SortKey(0)),
        function=RankFunction.ROW_NUMBER,
        first=2,
        last=5,
        rank_column=False,
    )
    grouped = "(SELECT x, k, sum(v)::BIGINT AS total FROM rows GROUP BY x, k)"
    order = "total DESC NULLS LAST, k NULLS FIRST, x NULLS FIRST"
    assert folded(run(node)) == duck(f"SELECT * FROM {grouped} ORDER BY {order} LIMIT 4 OFFSET 1")


def test_deduplication() -> None:
    for keep, direction in ((Keep.FIRST, "ASC"), (Keep.LAST, "DESC")):
        node = Deduplicate(
            schema=ROWS, hints=NodeHints(), input=rows(), keys=(1, 2), time=4, keep=keep, domain=TimeDomain.EVENT
        )
        expected = duck(
            "SELECT id, k, v, x, epoch_ms(ts) FROM rows"
            f" QUALIFY row_number() OVER (PARTITION BY k, v ORDER BY ts {direction}, id {direction}) = 1"
        )
        assert folded(run(node)) == expected


def test_the_first_of_each_key_by_processing_time() -> None:
    node = Deduplicate(
        schema=extended(ROWS, Field("rn", BIGINT)),
        hints=NodeHints(),
        input=rows(),
        keys=(1,),
        time=4,
        keep=Keep.FIRST,
        domain=TimeDomain.PROCESSING,
        rank_column=True,
    )
    found = run(node)
    assert {kind for kind, _ in found} == {RowKind.INSERT}
    assert Counter(row for _, row in found) == duck(
        "SELECT id, k, v, x, epoch_ms(ts), 1 FROM rows QUALIFY row_number() OVER (PARTITION BY k ORDER BY id) = 1"
    )


def test_the_top_rows_of_windows() -> None:
    source = rows()
    # ts stands for both bounds of a window: the rows of each millisecond are ranked
    node = WindowRank(
        schema=extended(ROWS, Field("rn", BIGINT)),
        hints=NodeHints(),
        input=source,
        window=(4, 4),
        partition=(1,),
        order=BY_VALUE,
        function=RankFunction.ROW_NUMBER,
        first=1,
        last=1,
        rank_column=True,
    )
    order = "v DESC NULLS LAST, id"
    assert folded(run(node)) == duck(
        f"SELECT id, k, v, x, epoch_ms(ts), 1 FROM rows QUALIFY row_number() OVER (PARTITION BY ts, k ORDER BY {order}) = 1"
    )


def test_sorting_by_time() -> None:
    node = TemporalSort(
        schema=ROWS,
        hints=NodeHints(),
        input=rows(),
        order=(SortKey(4), SortKey(2, descending=True, nulls=NullOrder.LAST)),
        domain=TimeDomain.EVENT,
    )
    whole = table()
    assert whole.num_rows
    expected = duckdb.sql("SELECT id FROM whole ORDER BY ts, v DESC NULLS LAST, id").fetchall()
    assert [(row[0],) for _, row in run(node, parallelism=1)] == expected  # one sink keeps the order


CALLS = (
    AggregateCall("COUNT", (), BIGINT, "n"),
    AggregateCall("SUM", (ColumnRef(BIGINT, 2, "v"),), BIGINT, "total"),
    AggregateCall("MAX", (ColumnRef(DOUBLE, 3, "x"),), DOUBLE, "most"),
    AggregateCall("COUNT", (ColumnRef(BIGINT, 2, "v"),), BIGINT, "values", distinct=True),
)


def over(source: PlanNode, calls: tuple[AggregateCall, ...], frame: Frame, **options: Any) -> OverAggregate:
    schema = extended(source.schema, *(Field(c.name, c.type) for c in calls))
    options = {"keys": (1,), "order": (SortKey(4),), "domain": TimeDomain.EVENT, **options}
    return OverAggregate(schema=schema, hints=NodeHints(), input=source, frame=frame, calls=calls, **options)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (Frame(FrameUnit.RANGE), "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"),
        (Frame(FrameUnit.RANGE, 5000), "RANGE BETWEEN INTERVAL 5 SECOND PRECEDING AND CURRENT ROW"),
    ],
    ids=["unbounded", "bounded"],
)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_over_a_range_of_time(frame: Frame, text: str, parallelism: int) -> None:
    window = f"OVER (PARTITION BY k ORDER BY ts {text})"
    expected = duck(
        f"SELECT id, k, v, x, epoch_ms(ts), count(*) {window}, (sum(v) {window})::BIGINT, max(x) {window},"
        f" count(DISTINCT v) {window} FROM rows"
    )
    assert folded(run(over(rows(), CALLS, frame), parallelism)) == expected


def test_over_rows_with_lag_of_an_expression() -> None:
    v = ColumnRef(BIGINT, 2, "v")
    calls = (
        AggregateCall("LAG", (v, Literal(INT, 2), ColumnRef(BIGINT, 0, "id")), BIGINT, "before"),
        AggregateCall("RANK", (), BIGINT, "rank"),
        AggregateCall("AVG", (v,), BIGINT, "mean"),
    )
    window = "OVER (PARTITION BY k ORDER BY ts, id ROWS UNBOUNDED PRECEDING)"
    expected = duck(
        f"SELECT id, k, v, x, epoch_ms(ts), lag(v, 2, id) {window}, rank() OVER (PARTITION BY k ORDER BY ts),"
        f" trunc(avg(v) {window})::BIGINT FROM rows"
    )
    assert folded(run(over(rows(), calls, Frame(FrameUnit.ROWS)))) == expected


def test_over_rows_that_change() -> None:
    calls = (
        AggregateCall("SUM", (ColumnRef(BIGINT, 2, "total"),), BIGINT, "sum3"),
        AggregateCall("LEAD", (ColumnRef(BIGINT, 2, "total"), Literal(INT, 1)), BIGINT, "next"),
    )
    order = (SortKey(2), SortKey(0))
    node = over(totals(), calls, Frame(FrameUnit.ROWS, 2), keys=(1,), order=order)
    grouped = "(SELECT x, k, sum(v)::BIGINT AS total FROM rows GROUP BY x, k)"
    by = "PARTITION BY k ORDER BY total NULLS FIRST, x NULLS FIRST"
    expected = duck(
        f"SELECT x, k, total, (sum(total) OVER ({by} ROWS 2 PRECEDING))::BIGINT, lead(total) OVER ({by}) FROM {grouped}"
    )
    assert folded(run(node)) == expected


def test_what_needs_later_rows_says_so_and_what_to_do() -> None:
    lead = AggregateCall("LEAD", (ColumnRef(BIGINT, 2, "v"), Literal(INT, 1)), BIGINT, "next")
    with pytest.raises(UnsupportedPlanError, match=r"LEAD\(\) OVER needs rows that have not come yet") as error:
        run(over(rows(), (lead,), Frame(FrameUnit.ROWS)))
    assert error.value.hint is not None
    assert "LAG" in error.value.hint


def test_a_range_of_time_over_another_order_says_so() -> None:
    call = AggregateCall("COUNT", (), BIGINT, "n")
    node = over(totals(), (call,), Frame(FrameUnit.RANGE, 5), order=(SortKey(2),))
    with pytest.raises(UnsupportedPlanError, match="ORDER BY a TIMESTAMP, not total BIGINT"):
        run(node)


def test_an_order_by_an_array_says_so() -> None:
    schema = Schema.of(id=BIGINT, tags=array(STRING))
    memory.put("tagged", [pa.RecordBatch.from_pylist([], schema=schema.arrow)])
    source = Scan(
        schema=schema,
        hints=NodeHints(name="tagged"),
        table=TableReference("tagged", "memory", {"table": "tagged"}),
        physical=schema,
        projections=reference(schema),
    )
    node = Rank(schema, NodeHints(), source, (), (SortKey(1),), RankFunction.ROW_NUMBER, 1, 3, False)
    with pytest.raises(UnsupportedPlanError, match=r"ORDER BY tags: ARRAY<STRING> has no order"):
        run(node)
