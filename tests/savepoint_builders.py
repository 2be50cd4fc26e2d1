"""Small pipelines, and savepoints as they would have taken them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flowrun.api.operator import ChainingStrategy
from flowrun.api.source import Boundedness, Delivery
from flowrun.api.state import KeyGroupRange, OperatorState, keyed_schema
from flowrun.core.elements import CheckpointKind
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.graph import transformation as t
from flowrun.graph.explain import Format, render_job_graph
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.partitioner import KeyGroupPartitioner, Partitioner
from flowrun.graph.stream_graph import GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    FileReference,
    InFlight,
    KeyedTableState,
    OperatorMetadata,
    OperatorSubtaskState,
    StateFile,
)

ROWS = Schema.of(user_id=STRING, amount=BIGINT)
COUNTS = keyed_schema([pa.field("user_id", pa.string())], [pa.field("n", pa.int64())])


@dataclass(frozen=True)
class Plain:
    """Makes operators without state."""

    chaining: ChainingStrategy = ChainingStrategy.ALWAYS

    def create(self) -> Any:
        raise AssertionError("nothing is run here")


@dataclass(frozen=True)
class Counting(Plain):
    """Makes operators with keyed state."""

    tables: Mapping[str, pa.Schema] = field(default_factory=lambda: {"counts": COUNTS})

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        return self.tables


@dataclass(frozen=True)
class Input:
    schema: Schema = ROWS
    boundedness: Boundedness = Boundedness.BOUNDED
    delivery: Delivery = Delivery.EXACTLY_ONCE


@dataclass(frozen=True)
class Out:
    schema: Schema = ROWS
    delivery: Delivery = Delivery.EXACTLY_ONCE


def source(name: str = "orders", **options: Any) -> Any:
    return t.SourceTransformation(
        name=name, schema=ROWS, factory=Plain(ChainingStrategy.HEAD), source=Input(), **options
    )


def step(name: str, read: t.Transformation, **options: Any) -> Any:
    return t.OneInputTransformation(name=name, schema=ROWS, input=read, **{"factory": Plain(), **options})


def sent(read: t.Transformation, partitioner: Partitioner) -> Any:
    return t.PartitionTransformation(name="sent", schema=ROWS, input=read, partitioner=partitioner)


def counted(read: t.Transformation, name: str = "per_user", **options: Any) -> Any:
    """A keyed, stateful step behind a shuffle."""
    by_user = sent(read, KeyGroupPartitioner((0,)))
    return step(name, by_user, **{"factory": Counting(), "state_keys": (0,), **options})


def sink(read: t.Transformation, name: str = "out", **options: Any) -> Any:
    return t.SinkTransformation(name=name, schema=ROWS, input=read, factory=Plain(), sink=Out(), **options)


def job(*sinks: Any, name: str = "shop", parallelism: int = 2, max_parallelism: int | None = None) -> JobGraph:
    return build_job_graph(build_stream_graph(name, sinks, GraphSettings(parallelism, max_parallelism)))


def table(schema: pa.Schema = COUNTS, *, subtask: int = 0, rows: int = 10, size: int = 1024) -> KeyedTableState:
    file = StateFile(f"chk-7/{subtask}-{len(schema)}.parquet", size, rows, "", KeyGroupRange(0, 64))
    return KeyedTableState(schema, (FileReference(file),) if rows else ())


def rows(count: int = 1, **columns: Any) -> OperatorState:
    return OperatorState(pa.table(columns or {"x": list(range(count))}))


def savepoint(
    graph: JobGraph,
    keyed: Mapping[str, Mapping[str, pa.Schema]] | None = None,
    operator: Mapping[str, Mapping[str, OperatorState]] | None = None,
    enumerators: Sequence[str] = ("orders",),
    finished: Sequence[str] = (),
    in_flight: Sequence[InFlight] = (),
    **options: Any,
) -> CheckpointMetadata:
    """What a savepoint of `graph` says, with state by the names of operators; 10 rows and 1 KiB a table and subtask."""
    keyed = {"per_user": {"counts": COUNTS}} if keyed is None else keyed
    operators = {}
    for vertex in graph.vertices:
        for o in vertex.operators:
            subtasks = {}
            for i in range(vertex.parallelism):
                tables = {n: table(s, subtask=i) for n, s in keyed.get(o.name, {}).items()}
                states = (operator or {}).get(o.name, {}) if i == 0 else {}
                if tables or states:
                    subtasks[i] = OperatorSubtaskState(o.operator_id, tables, states)
            operators[o.operator_id] = OperatorMetadata(
                o.operator_id,
                o.uid,
                o.name,
                vertex.vertex_id,
                vertex.parallelism,
                vertex.max_parallelism,
                subtasks,
                o.name in finished,
                {"splits": []} if o.name in enumerators else None,
            )
    return CheckpointMetadata(
        **{
            "checkpoint_id": 7,
            "kind": CheckpointKind.SAVEPOINT,
            "triggered_ms": 1_700_000_000_000,
            "completed_ms": 1_700_000_000_250,
            "job_name": graph.name,
            "lineage": "11111111-2222-3333-4444-555555555555",
            "job_folder": "/state/shop",
            "flowrun_version": "0.1",
            "pipeline": None,
            "job_graph": json.loads(render_job_graph(graph, Format.JSON)),
            "operators": operators,
            "in_flight": tuple(in_flight),
            "unaligned": bool(in_flight),
            **options,
        }
    )
