"""Job graphs of fake operators, written down vertex by vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flowrun.api.operator import ChainingStrategy, OperatorRecipe
from flowrun.core.resources import ResourceSpec
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.graph.job_graph import (
    ChainedOperator,
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    OutputEdge,
    ResultType,
)
from flowrun.graph.partitioner import Partitioner

SCHEMA = Schema.of(x=BIGINT)


@dataclass(frozen=True, slots=True)
class FakeFactory:
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS

    def create(self) -> Any:
        raise AssertionError("graphs never create operators")


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of the job graph to be: names of vertices, partitioner, input index, result type."""

    source: str
    target: str
    partitioner: Partitioner
    input_index: int = 0
    type: ResultType = ResultType.PIPELINED


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex of the job graph to be; its id is its name."""

    name: str
    parallelism: int = 1
    group: str = "default"
    co_location_key: str | None = None
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    factory: OperatorRecipe = field(default_factory=FakeFactory)


def job_graph(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> JobGraph:
    """The job graph of the given vertices (in topological order) and edges."""
    data_sets = {i: f"{e.source}-{e.target}-{i}" for i, e in enumerate(edges)}
    built = []
    for v in vertices:
        outputs = [(i, e) for i, e in enumerate(edges) if e.source == v.name]
        built.append(
            JobVertex(
                vertex_id=v.name,
                name=v.name,
                parallelism=v.parallelism,
                max_parallelism=128,
                operators=(ChainedOperator(v.name, v.name, None, v.factory, SCHEMA),),
                chain_edges=(),
                inputs=tuple(
                    JobEdge(data_sets[i], e.source, e.target, e.input_index, e.partitioner, SCHEMA)
                    for i, e in enumerate(edges)
                    if e.target == v.name
                ),
                output_edges=tuple(
                    OutputEdge(0, result, e.partitioner, SCHEMA) for result, (_, e) in enumerate(outputs)
                ),
                results=tuple(IntermediateDataSet(data_sets[i], v.name, e.type, e.partitioner) for i, e in outputs),
                slot_sharing_group=v.group,
                co_location_key=v.co_location_key,
                min_resources=v.resources,
                preferred_resources=v.resources,
            )
        )
    return JobGraph("job", tuple(built))
