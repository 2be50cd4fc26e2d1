"""One plan on both engines: the embedded runner's stream and Spark, over the same rows, which Spark sees shuffled and repartitioned.

Tables live in the `memory` connector: the stream reads them in order, and on Spark scans of them are local DataFrames, so that nothing
but the nodes under test runs there. Sinks of any kind are collected. For example:

    events = Table("events", "k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", rows)
    assert_same(spark, [events], "SELECT k, COUNT(*) FROM events GROUP BY k; SELECT DISTINCT v FROM events")
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowrun.connectors import memory
from flowrun.core.elements import RecordBatch, RowKind, timestamps_from_column
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, DataType, TypeRoot
from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan.compiler import compile_columns
from flowrun.plan.nodes import Plan, PlanNode, Scan, Sink, TableReference, walk_plan
from flowrun.plan.rewrites import optimise
from flowrun.plan.rewrites.traversal import with_sinks
from flowrun.runners.embedded import run_embedded
from flowrun.spark import translation
from flowrun.spark.arrival import arrival_needs
from flowrun.spark.arrow import from_spark, spark_data_type, to_spark
from flowrun.spark.context import Context
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, SparkFrame, quoted
from flowrun.spark.translated import Inputs, Translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_700_000_000_000
"""Processing time on Spark."""
Rows = Counter[tuple[Any, ...]]
_numbers = count()


@record
class Table:
    """A table that scripts read.

    Attributes:
        name: in the script.
        columns: the inside of its CREATE TABLE.
        rows: a value a stored column, in the order in which the stream reads them; times, dates and decimals may be text.
        batch: how many rows the source gives at a time.
    """

    name: str
    columns: str
    rows: Sequence[tuple[Any, ...]]
    batch: int = 3


@record
class Result:
    """What one sink ends with on one engine: rows, each with its event time (ms) as the last value if the sink's input has any."""

    rows: Rows
    hosted: tuple[str, ...] = ()


def sql_plan(tables: Iterable[Table], text: str, settings: Mapping[str, str] | None = None) -> Plan:
    """The optimised plan of a script whose bare SELECTs (and INSERTs) are its sinks; the tables are there for it to read."""
    stored = {f"{t.name}${next(_numbers)}": t for t in tables}
    for name in stored:
        memory.put(name, ())
    declarations = (
        f"CREATE TABLE {t.name} ({t.columns}) WITH ('connector'='memory', 'table'='{s}');" for s, t in stored.items()
    )
    plan = load_text(SourceText("test.sql", "\n".join([*declarations, text])), Path(), {}, settings or {}).plan
    put_rows(plan, {s: t.rows for s, t in stored.items()}, {s: t.batch for s, t in stored.items()})
    return optimise(plan)


def yaml_plan(text: str, tables: Mapping[str, Sequence[tuple[Any, ...]]], batch: int = 3) -> Plan:
    """The optimised plan of a YAML pipeline whose sources have `connector: memory`; rows by the source's option `table`."""
    for name in tables:
        memory.put(name, ())
    plan = load_text(SourceText("test.yaml", text), Path(), {}, {}).plan
    put_rows(plan, tables, dict.fromkeys(tables, batch))
    return optimise(plan)


def put_rows(plan: Plan, tables: Mapping[str, Sequence[tuple[Any, ...]]], batch: Mapping[str, int]) -> None:
    """Make rows readable for the plan's scans of `memory` tables."""
    for scan in walk_plan(plan):
        if isinstance(scan, Scan) and scan.table.connector == "memory":
            stored = str(scan.table.options["table"])
            schema = scan.declared or scan.physical
            columns = [_array([row[i] for row in tables[stored]], f.type) for i, f in enumerate(schema)]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
            memory.put(stored, [rows.slice(i, batch[stored]) for i in range(0, rows.num_rows, batch[stored])])


def _array(values: Sequence[Any], type: DataType) -> pa.Array:
    if type.root is TypeRoot.TIME:
        values = [dt.time.fromisoformat(v) if isinstance(v, str) else v for v in values]
    if not type.is_character and any(isinstance(v, str) for v in values):
        return pa.array(values, pa.string()).cast(type.arrow)
    return pa.array(values, type.arrow)


def assert_same(
    spark: SparkSession,
    tables: Iterable[Table],
    text: str,
    *,
    settings: Mapping[str, str] | None = None,
    hosted: Sequence[str] = (),
    times: bool = True,
) -> list[Rows]:
    """Both engines end with the same rows in every sink of the script, whose rows are given.

    Args:
        tables: to read.
        text: the script, without their declarations.
        settings: of the pipeline, by path (`settings.parallelism`).
        hosted: kinds of the nodes that have no native form, e.g. `Process`; all others must be native.
        times: whether event times are compared too.
    """
    return assert_same_plan(spark, sql_plan(tables, text, settings), hosted=hosted, times=times)


def assert_same_plan(spark: SparkSession, plan: Plan, *, hosted: Sequence[str] = (), times: bool = True) -> list[Rows]:
    """`assert_same` of an optimised plan over `memory` tables."""
    streamed = stream_results(plan, times=times)
    batch = spark_results(spark, plan, times=times)
    for sink, wanted, got in zip(plan.sinks, streamed, batch, strict=True):
        assert sorted(got.hosted) == sorted(hosted), f"hosted in {_name(sink)}: {got.hosted}"
        negative = {row: n for row, n in wanted.rows.items() if n < 0}
        assert not negative, f"the stream retracted rows that it had not sent: {negative}"
        missing, extra = wanted.rows - got.rows, got.rows - wanted.rows
        different = {"missing on Spark": dict(missing), "only there": dict(extra)}
        assert not any(different.values()), f"{_name(sink)}: {different}"
    return [r.rows for r in streamed]


def stream_results(plan: Plan, *, times: bool = True) -> list[Result]:
    """What each sink of the optimised plan collects on the embedded runner, folded."""
    stored = [f"sink${next(_numbers)}" for _ in plan.sinks]
    sinks = [
        replace(s, table=TableReference(t, "memory", {"table": t})) for s, t in zip(plan.sinks, stored, strict=True)
    ]
    collecting = with_sinks(plan, tuple(sinks))
    graph = build_stream_graph(plan.name, lower(collecting), graph_settings(plan.settings))
    run_embedded(build_job_graph(graph))
    return [
        Result(_folded(memory.take(t), s.input.event_time and times)) for s, t in zip(plan.sinks, stored, strict=True)
    ]


def _folded(batches: Sequence[RecordBatch], times: bool) -> Rows:
    rows: Rows = Counter()
    for batch in batches:
        columns = [c.to_pylist() for c in batch.columns.columns]
        if times:
            assert batch.timestamps is not None, "the stream's rows have no event time, but the plan says so"
            columns.append(batch.timestamps.to_pylist())
        kinds = [RowKind.INSERT] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
        for row, kind in zip(zip(*columns, strict=True), kinds, strict=True):
            weight = -1 if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) else 1
            rows[tuple(map(comparable, row))] += weight
    return Counter({row: n for row, n in rows.items() if n})


def spark_results(spark: SparkSession, plan: Plan, *, seed: int = 1, times: bool = True) -> list[Result]:
    """What each sink of the optimised plan ends with on Spark, over shuffled rows; checks names and types of all frames."""
    nodes = translate_shuffled(spark, plan, seed)
    reasons = tuple(type(n).__name__ for n in walk_plan(plan) if nodes[id(n)].hosted is not None)
    return [Result(collected(nodes[id(s)].main, times=times), reasons) for s in plan.sinks]


def translate_shuffled(spark: SparkSession, plan: Plan, seed: int = 1) -> dict[int, Translated]:
    """What each node of the plan becomes, by `id`; scans of `memory` tables are local DataFrames in an order of their own."""
    context = Context(spark, plan.settings, NOW_MS, arrival_needs(plan))
    done: dict[int, Translated] = {}
    for node in walk_plan(plan):
        if isinstance(node, Scan) and node.table.connector == "memory":
            done[id(node)] = Translated(shuffled_scan(spark, node, seed, arrival=context.needs_arrival(node)))
        else:
            done[id(node)] = translation._translate_node(node, Inputs(node, done), context)
        for frame in (done[id(node)].main, *done[id(node)].sides.values()):
            check_frame(frame, node)
    return done


def check_frame(frame: SparkFrame, node: PlanNode) -> None:
    """A frame holds what it says: names, exact Spark types, hidden columns, and event time just where its node has it."""
    assert frame.schema.types == node.schema.types
    assert frame.event_time == node.event_time, f"event time of {type(node).__name__}: {frame.event_time}"
    wanted = [(f.name, spark_data_type(f.type).simpleString()) for f in frame.schema]
    wanted += [(EVENT_TIME, "bigint")] if frame.event_time else []
    got = [(f.name, f.dataType.simpleString()) for f in frame.data.schema]
    if frame.arrival:
        name, arrival = got.pop()
        assert name == ARRIVAL
        assert arrival in ("bigint", "array<bigint>")
    assert got == wanted, f"columns of {type(node).__name__}"


def shuffled_scan(spark: SparkSession, scan: Scan, seed: int, *, arrival: bool) -> SparkFrame:
    """The rows of a `memory` table as the scan reads them, in an order that has nothing to do with that of the stream."""
    stored = [b.columns for split in memory._inputs[str(scan.table.options["table"])] for b in split]
    batches = [b.select(scan.physical.names).cast(scan.physical.arrow) for b in stored]
    expressions = [*scan.projections, *([] if scan.watermark is None else [scan.watermark.time])]
    kernel = compile_columns(expressions)
    computed = [kernel(b) for b in batches]
    columns = [pa.chunked_array([c[i] for c in computed], e.type.arrow) for i, e in enumerate(expressions)]
    hidden = [Field(ARRIVAL, BIGINT)]
    if scan.watermark is not None:
        columns[-1] = timestamps_from_column(columns[-1].combine_chunks())
        hidden.insert(0, Field(EVENT_TIME, BIGINT))
    order = list(range(sum(b.num_rows for b in batches)))
    columns.append(pa.array(order, pa.int64()))
    random.Random(seed).shuffle(order)
    schema = Schema((*scan.schema.fields, *hidden))
    table = pa.Table.from_arrays(columns, names=list(schema.names)).take(pa.array(order, pa.int64()))
    data = to_spark(table, schema, spark).repartition(3)
    return SparkFrame(data if arrival else data.drop(ARRIVAL), scan.schema, scan.watermark is not None, arrival)


def collected(frame: SparkFrame, *, times: bool = True) -> Rows:
    """Runs Spark: the rows of a frame as Python values, its event time last."""
    shown = frame.schema.fields
    if frame.event_time and times:
        shown = (*shown, Field(EVENT_TIME, BIGINT))
    schema = Schema(shown)
    table = from_spark(frame.data.selectExpr(*map(quoted, schema.names)), schema)
    columns = [column.to_pylist() for column in table.columns]
    return Counter(tuple(map(comparable, row)) for row in zip(*columns, strict=True))


def comparable(value: Any) -> Any:
    """A value that compares: sums of floating numbers to nine digits, NaN as text, members of maps in order.

    -0.0 stays apart from 0.0.
    """
    match value:
        case float():
            return "NaN" if value != value else f"{value:.9g}"  # noqa: PLR0124
        case dict():
            return tuple((name, comparable(v)) for name, v in value.items())
        case list():
            return tuple(map(comparable, value))
        case tuple():
            return tuple(map(comparable, value))
    return value


def _name(sink: Sink) -> str:
    return sink.hints.name or sink.table.name


def _events(count: int) -> list[tuple[Any, ...]]:
    chance = random.Random(7)
    rows: list[tuple[Any, ...]] = []
    for number in range(count):
        if rows and chance.random() < 0.1:
            rows.append(chance.choice(rows[-3:]))  # a duplicate
            continue
        second = number // 2 + chance.choice([0, 0, -1, -2, -4])  # ties, and disorder within the watermark
        rows.append(
            (
                chance.choice(["a", "a", "b", "c", None]),
                chance.choice([None, *range(8)]),
                chance.choice([None, -0.0, 0.0, 1.5, -2.25, float("nan")]),
                chance.choice([None, "", "ä", "x", "xy", "Z"]),
                dt.datetime(2024, 1, 1, 0, 0, 30) + dt.timedelta(seconds=second),
            )
        )
    return rows


_COLUMNS = "k STRING, v INT, d DOUBLE, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
EVENTS = Table("events", _COLUMNS, _events(60), batch=7)
"""Rows with NULLs, duplicates, ties, disorder within the watermark, −0.0 and NaN."""
ONE = Table("one", _COLUMNS, [("a", 1, -0.0, "x", dt.datetime(2024, 1, 1, 0, 0, 7))])
NONE = Table("nothing", _COLUMNS, [])
