"""Joins by time from plan to result: what is lowered runs as a job, and what cannot be lowered says why."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import JoinKind
from flowrun.core.types import BIGINT, INT, STRING, timestamp
from flowrun.errors import PipelineError, UnsupportedPlanError
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import OneInputTransformation, TwoInputTransformation
from flowrun.lowering import lower
from flowrun.operators.joins.lookup_options import CacheMode, LookupSettings
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.joins import IntervalJoin, LookupJoin, TemporalJoin
from flowrun.plan.nodes import (
    NodeHints,
    Plan,
    PlanNode,
    Scan,
    Sink,
    TableReference,
    WatermarkKind,
    WatermarkSpec,
)
from flowrun.runners.embedded import run_embedded

LEFT = Schema((Field("k", STRING), Field("t", timestamp(3)), Field("v", BIGINT)))
RIGHT = Schema((Field("k2", STRING), Field("t2", timestamp(3)), Field("w", BIGINT)))
BOTH = Schema((*LEFT.fields, *RIGHT.fields))
TABLE = Schema((Field("id", STRING), Field("name", STRING)))
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
    memory.put(name, [whole.slice(i, 3) for i in range(0, len(rows), 3)])
    time = ColumnRef(schema.types[1], 1, schema.names[1])
    return Scan(
        schema=schema,
        hints=NodeHints(name=name),
        table=TableReference(name, "memory", {"table": name}),
        physical=schema,
        projections=columns(schema),
        watermark=WatermarkSpec(WatermarkKind.BOUNDED, time, 1_000, column=schema.names[1]),
    )


def left() -> Scan:
    return scan("left", LEFT, [("a", 10, 1), ("b", 20, 2), ("a", 30, 3), (None, 30, 4), ("c", 40, 5)])


def right() -> Scan:
    return scan("right", RIGHT, [("a", 5, 1), ("a", 25, 2), ("b", 26, 3), ("d", 30, 4)])


def interval(kind: JoinKind) -> IntervalJoin:
    hints = NodeHints(name="near")
    return IntervalJoin(
        schema=BOTH,
        hints=hints,
        left=left(),
        right=right(),
        kind=kind,
        left_keys=(0,),
        right_keys=(0,),
        left_time=1,
        right_time=1,
        lower_ms=-10,
        upper_ms=0,
    )


def temporal(kind: JoinKind) -> TemporalJoin:
    return TemporalJoin(
        schema=BOTH,
        hints=NodeHints(),
        left=left(),
        right=right(),
        kind=kind,
        left_keys=(0,),
        right_keys=(0,),
        left_time=1,
        right_time=1,
    )


def lookup(path: Path, kind: JoinKind, **options: str) -> LookupJoin:
    path.mkdir(exist_ok=True)
    (path / "names.csv").write_text("a,Ann\nb,Bob\nb,Bea\n")
    table = TableReference("names", "filesystem", {"path": str(path), **options}, format="csv")
    return LookupJoin(
        schema=Schema((*LEFT.fields, Field("name", STRING))),
        hints=NodeHints(),
        input=left(),
        kind=kind,
        table=table,
        physical=TABLE,
        projections=(ColumnRef(STRING, 1, "name"),),
        keys=((ColumnRef(STRING, 0, "k"), "id"),),
    )


def run(node: PlanNode, parallelism: int = 2) -> Counter[Row]:
    out = TableReference("out", "memory", {"table": "out"})
    plan = Plan("test", (Sink(schema=node.schema, hints=NodeHints(name="out"), input=node, table=out),))
    graph = build_job_graph(build_stream_graph("test", lower(plan), GraphSettings(parallelism=parallelism)))
    run_embedded(pickle.loads(pickle.dumps(graph)))
    found: Counter[Row] = Counter()
    for batch in memory.take("out"):
        plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns.columns]
        found.update(zip(*(c.to_pylist() for c in plain), strict=True))
    return found


@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_interval_join_runs(parallelism: int) -> None:
    matched = [("a", 10, 1, "a", 5, 1), ("a", 30, 3, "a", 25, 2)]
    assert run(interval(JoinKind.INNER), parallelism) == Counter(matched)
    lonely = [
        ("b", 20, 2, None, None, None),
        (None, 30, 4, None, None, None),
        ("c", 40, 5, None, None, None),
        (None, None, None, "b", 26, 3),
        (None, None, None, "d", 30, 4),
    ]
    assert run(interval(JoinKind.FULL), parallelism) == Counter(matched + lonely)


def test_without_keys_an_interval_join_runs_alone() -> None:
    join = replace(interval(JoinKind.INNER), left_keys=(), right_keys=(), lower_ms=0)
    assert run(join) == Counter([(None, 30, 4, "d", 30, 4), ("a", 30, 3, "d", 30, 4)])
    (lowered,) = lower(
        Plan("test", (Sink(schema=BOTH, hints=NodeHints(), input=join, table=TableReference("o", "blackhole", {})),))
    )
    (alone,) = lowered.inputs
    assert isinstance(alone, TwoInputTransformation)
    assert alone.parallelism == 1


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_temporal_join_runs(parallelism: int) -> None:
    matched = [("a", 10, 1, "a", 5, 1), ("a", 30, 3, "a", 25, 2)]
    assert run(temporal(JoinKind.INNER), parallelism) == Counter(matched)
    lonely = [(k, t, v, None, None, None) for k, t, v in [("b", 20, 2), (None, 30, 4), ("c", 40, 5)]]
    assert run(temporal(JoinKind.LEFT), parallelism) == Counter(matched + lonely)


@pytest.mark.parametrize("concurrent", ["true", "false"])
def test_a_lookup_join_runs(tmp_path: Path, concurrent: str) -> None:
    join = lookup(tmp_path / "names", JoinKind.LEFT, **{"lookup.async": concurrent})
    found = [("a", 10, 1, "Ann"), ("b", 20, 2, "Bob"), ("b", 20, 2, "Bea"), ("a", 30, 3, "Ann")]
    assert run(join) == Counter([*found, (None, 30, 4, None), ("c", 40, 5, None)])


def lowered_lookup(node: LookupJoin) -> OneInputTransformation:
    (out,) = lower(
        Plan(
            "test",
            (Sink(schema=node.schema, hints=NodeHints(), input=node, table=TableReference("o", "blackhole", {})),),
        )
    )
    (join,) = out.inputs
    assert isinstance(join, OneInputTransformation)
    return join


def test_options_of_the_table_say_how_it_is_asked(tmp_path: Path) -> None:
    options = {"lookup.cache": "PARTIAL", "lookup.partial-cache.max-rows": "7", "lookup.max-retries": "1"}
    join = lowered_lookup(lookup(tmp_path / "names", JoinKind.INNER, **options))
    assert join.factory.settings == LookupSettings(CacheMode.PARTIAL, max_keys=7, max_retries=1)  # type: ignore[attr-defined]


def test_what_a_connector_holds_in_memory_is_not_cached_again(tmp_path: Path) -> None:
    join = lowered_lookup(lookup(tmp_path / "names", JoinKind.INNER, **{"lookup.cache": "FULL"}))
    assert join.factory.settings.cache is CacheMode.NONE  # type: ignore[attr-defined]


def test_values_are_cast_to_the_type_of_the_column_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "names").mkdir()
    node = lookup(tmp_path / "names", JoinKind.INNER)
    (tmp_path / "names" / "names.csv").write_text("3,Cleo\n4,Dan\n")
    asked = replace(
        node,
        physical=Schema((Field("id", INT), Field("name", STRING))),
        keys=((ColumnRef(BIGINT, 2, "v"), "id"),),
    )
    assert run(asked) == Counter([("a", 30, 3, "Cleo"), (None, 30, 4, "Dan")])


def test_wrong_options_name_the_table(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"table 'names': .*grow without end"):
        lowered_lookup(lookup(tmp_path / "names", JoinKind.INNER, **{"lookup.cache": "PARTIAL"}))
    unable = replace(lookup(tmp_path / "names", JoinKind.INNER), table=TableReference("names", "datagen", {}))
    with pytest.raises(PipelineError, match="table 'names': connector 'datagen' cannot be looked up in"):
        lowered_lookup(unable)


def test_joins_of_another_kind_say_what_works(tmp_path: Path) -> None:
    for node in (interval(JoinKind.SEMI), temporal(JoinKind.FULL), lookup(tmp_path / "names", JoinKind.RIGHT)):
        sink = Sink(schema=node.schema, hints=NodeHints(), input=node, table=TableReference("o", "blackhole", {}))
        with pytest.raises(UnsupportedPlanError, match="expected inner"):
            lower(Plan("test", (sink,)))
