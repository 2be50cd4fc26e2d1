"""Joins by key from plan to result: what is lowered runs as a job."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.core.elements import RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import JoinKind
from flowrun.core.types import BIGINT, BOOLEAN, STRING, timestamp
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import TwoInputTransformation
from flowrun.lowering import lower
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.relational import lower_relational
from flowrun.operators.joins.factories import RegularJoinFactory
from flowrun.plan.expressions import Call, ColumnRef, Expression
from flowrun.plan.joins import Join, WindowJoin
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
from flowrun.plan.relational import WindowTableFunction, window_columns
from flowrun.plan.windows import TumblingWindow
from flowrun.runners.embedded import run_embedded

LEFT = Schema((Field("k", STRING), Field("t", timestamp(3)), Field("v", BIGINT)))
RIGHT = Schema((Field("k2", STRING), Field("t2", timestamp(3)), Field("w", BIGINT)))
LEFT_ROWS = [("a", 10, 1), ("b", 20, 2), ("a", 1030, 3), (None, 30, 4), ("c", 40, 5)]
RIGHT_ROWS = [("a", 5, 1), ("a", 25, 2), ("b", 26, 3), ("a", 1040, 4)]
Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _tables() -> Iterator[None]:
    yield
    memory.clear()


def columns(schema: Schema) -> tuple[Expression, ...]:
    return tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))


def scan(name: str, schema: Schema, rows: list[Row]) -> Scan:
    keys, times, values = zip(*rows, strict=True)
    arrays = [pa.array(keys), pa.array(times, pa.int64()).cast(pa.timestamp("ms")), pa.array(values, pa.int64())]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    memory.put(name, [whole.slice(i, 2) for i in range(0, len(rows), 2)])
    time = ColumnRef(schema.types[1], 1, schema.names[1])
    return Scan(
        schema=schema,
        hints=NodeHints(name=name),
        table=TableReference(name, "memory", {"table": name}),
        physical=schema,
        projections=columns(schema),
        watermark=WatermarkSpec(WatermarkKind.BOUNDED, time, 5_000, column=schema.names[1]),
    )


def join(kind: JoinKind, **options: Any) -> Join:
    options = {"left_keys": (0,), "right_keys": (0,), **options}
    return Join(
        schema=LEFT if kind.left_only else Schema((*LEFT.fields, *RIGHT.fields)),
        hints=NodeHints(name="both"),
        left=scan("left", LEFT, LEFT_ROWS),
        right=scan("right", RIGHT, RIGHT_ROWS),
        kind=kind,
        **options,
    )


def windowed(name: str, schema: Schema, rows: list[Row], suffix: str) -> WindowTableFunction:
    found = window_columns(schema, 1)
    unique = Schema(tuple(Field(f.name + suffix * (i > 2), f.type) for i, f in enumerate(found)))
    return WindowTableFunction(
        schema=unique,
        hints=NodeHints(name=f"{name} windows"),
        input=scan(name, schema, rows),
        window=TumblingWindow(1000),
        time=1,
    )


def run(node: PlanNode, parallelism: int = 2, **settings: Any) -> Counter[Row]:
    """What comes out, folded."""
    out = TableReference("out", "memory", {"table": "out"})
    plan = Plan("test", (Sink(schema=node.schema, hints=NodeHints(name="out"), input=node, table=out),), **settings)
    graph = build_job_graph(build_stream_graph("test", lower(plan), GraphSettings(parallelism=parallelism)))
    run_embedded(pickle.loads(pickle.dumps(graph)))
    found: Counter[Row] = Counter()
    for batch in memory.take("out"):
        plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns.columns]
        kinds = batch.row_kinds.to_pylist() if batch.row_kinds is not None else [0] * batch.num_rows
        for kind, row in zip(kinds, zip(*(c.to_pylist() for c in plain), strict=True), strict=True):
            found[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    return +found


PAIRS = [
    ("a", 10, 1, "a", 5, 1),
    ("a", 10, 1, "a", 25, 2),
    ("a", 10, 1, "a", 1040, 4),
    ("a", 1030, 3, "a", 5, 1),
    ("a", 1030, 3, "a", 25, 2),
    ("a", 1030, 3, "a", 1040, 4),
    ("b", 20, 2, "b", 26, 3),
]
LONELY: list[Row] = [(None, 30, 4), ("c", 40, 5)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_regular_join_runs(parallelism: int) -> None:
    assert run(join(JoinKind.INNER), parallelism) == Counter(PAIRS)
    padded = [(*row, None, None, None) for row in LONELY]
    assert run(join(JoinKind.LEFT), parallelism) == Counter(PAIRS + padded)
    assert run(join(JoinKind.SEMI), parallelism) == Counter(r[:3] for r in [PAIRS[0], PAIRS[3], PAIRS[6]])
    assert run(join(JoinKind.ANTI), parallelism) == Counter(LONELY)


def test_a_join_by_a_condition_alone_runs_once() -> None:
    condition = Call(BOOLEAN, "<", (ColumnRef(BIGINT, 2, "v"), ColumnRef(BIGINT, 5, "w")))
    node = join(JoinKind.INNER, left_keys=(), right_keys=(), condition=condition)
    expected = [left + right for left in LEFT_ROWS for right in RIGHT_ROWS if left[2] < right[2]]
    assert run(node, 3) == Counter(expected)
    lowered = lower_relational(node, Inputs(tuple(lowered_inputs(node))), Settings())
    assert isinstance(lowered, TwoInputTransformation)
    assert lowered.parallelism == 1


def lowered_inputs(node: Join) -> Iterator[Any]:
    for side in node.inputs:
        sinks = lower(
            Plan(
                "side",
                (
                    Sink(
                        schema=side.schema,
                        hints=NodeHints(name="s"),
                        input=side,
                        table=TableReference("o", "memory", {"table": "o"}),
                    ),
                ),
            )
        )
        yield sinks[0].inputs[0]


@pytest.mark.parametrize(
    ("said", "ttl_ms"),
    [((), (60_000, 60_000)), ((None, 90_000), (60_000, 90_000)), ((5, 7), (5, 7)), ((0, 7), (0, 7))],
)
def test_the_time_to_live_of_each_side_is_what_was_said_of_it_or_that_of_the_settings(
    said: tuple[int | None, ...], ttl_ms: tuple[int, int]
) -> None:
    node = replace(join(JoinKind.INNER, null_safe=(True,)), hints=NodeHints(name="join", state_ttl_ms=said))
    lowered = lower_relational(node, Inputs(tuple(lowered_inputs(node))), Settings(state_ttl_ms=60_000))
    assert isinstance(lowered, TwoInputTransformation)
    assert isinstance(lowered.factory, RegularJoinFactory)
    assert lowered.factory.ttl_ms == ttl_ms
    assert lowered.factory.null_safe == (True,)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_window_join_runs(parallelism: int) -> None:
    def node(kind: JoinKind) -> WindowJoin:
        left, right = windowed("left", LEFT, LEFT_ROWS, ""), windowed("right", RIGHT, RIGHT_ROWS, "_2")
        return WindowJoin(
            schema=left.schema if kind.left_only else Schema((*left.schema.fields, *right.schema.fields)),
            hints=NodeHints(name="windows"),
            left=left,
            right=right,
            kind=kind,
            left_keys=(0,),
            right_keys=(0,),
            left_window=(3, 4),
            right_window=(3, 4),
        )

    inner = run(node(JoinKind.INNER), parallelism)
    same_window = [p for p in PAIRS if p[1] // 1000 == p[4] // 1000]
    assert Counter({(*r[:3], *r[6:9]): n for r, n in inner.items()}) == Counter(same_window)
    assert Counter({r[:3]: n for r, n in run(node(JoinKind.ANTI), parallelism).items()}) == Counter(LONELY)
