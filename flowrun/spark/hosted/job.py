"""The vertices of a job graph as stages: which destinations their rows have, and how they are distributed to the next ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowrun.api.operator import ChainingStrategy
from flowrun.api.sink import Sink
from flowrun.core.constraints import SinkConstraints
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.graph.job_graph import ChainedOperator, IntermediateDataSet, JobVertex, OutputEdge, ResultType
from flowrun.graph.partitioner import BroadcastPartitioner, ForwardPartitioner, KeyGroupPartitioner
from flowrun.operators.asynchronous.factories import AsyncFunctionFactory
from flowrun.operators.base import AbstractOperator
from flowrun.operators.factories import CalcFactory, PythonFunctionFactory, SinkOperatorFactory, SplitFactory
from flowrun.operators.joins.factories import LookupJoinFactory
from flowrun.operators.rows.factories import AssignTimeFactory, ExpandFactory, TableFunctionFactory, UnnestFactory
from flowrun.operators.sink_constraints import ConstraintEnforcer
from flowrun.spark.hosted.flows import BY_ROW, TO_ALL, Exchange, Flow, Spreading


@record
class PassFactory:
    """Creates operators that pass on what they get; with a schema they enforce its constraints, as the sink `place` would."""

    schema: Schema | None = None
    place: str = ""
    constraints: SinkConstraints = SinkConstraints()

    chaining = ChainingStrategy.ALWAYS

    def create(self) -> _PassOperator:
        """A new operator."""
        return _PassOperator(self)


class _PassOperator(AbstractOperator):
    def __init__(self, factory: PassFactory) -> None:
        schema, constraints = factory.schema, factory.constraints
        self._enforcer = None if schema is None else ConstraintEnforcer(schema, constraints, factory.place)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Pass the batch on."""
        if self._enforcer is not None:
            batch, _ = self._enforcer.enforced(batch)
        if batch.num_rows:
            self.output.emit(batch)


_ROW_BY_ROW = (
    PassFactory, CalcFactory, SplitFactory, PythonFunctionFactory, ExpandFactory, UnnestFactory, TableFunctionFactory,
    AssignTimeFactory, LookupJoinFactory, AsyncFunctionFactory,
)  # fmt: skip
"""Factories of operators for which the order of rows means nothing."""


@record(eq=False)
class SinkPlace:
    """A sink of a vertex whose rows are taken instead of written.

    Attributes:
        position: the position of its operator in the chain.
        operator: the operator as it was.
        sink: the sink that rows would go to.
        result: the number of the vertex's result that they go to instead.
        identity: the name that the sink's files by key have; empty: it has no such files.
    """

    position: int
    operator: ChainedOperator
    sink: Sink
    result: int
    identity: str = ""


@record(eq=False)
class OpenVertex:
    """A vertex whose source takes rows from Spark, and whose sinks give rows to Spark."""

    vertex: JobVertex
    sinks: tuple[SinkPlace, ...]

    @property
    def goes_row_by_row(self) -> bool:
        """Whether the result of none of its operators depends on the order of rows."""
        return all(isinstance(o.factory, _ROW_BY_ROW) for o in self.vertex.operators)

    @property
    def is_passing(self) -> bool:
        """Whether it does nothing at all."""
        return all(isinstance(o.factory, PassFactory) for o in self.vertex.operators)


def open_vertex(vertex: JobVertex, *, checked: bool) -> OpenVertex:
    """A vertex whose source and sinks are replaced by operators that only pass rows on.

    Args:
        vertex: a vertex of the job.
        checked: whether NOT NULL columns of sinks are checked.
    """
    operators, edges, results = list(vertex.operators), list(vertex.output_edges), list(vertex.results)
    sinks = []
    for position, operator in enumerate(vertex.operators):
        if operator.source is not None:
            operators[position] = replace(operator, factory=PassFactory(), source=None)
        elif operator.sink is not None:
            place = f"sink '{operator.name.removeprefix('Sink: ')}'"
            schema = operator.sink.schema if checked else None
            given = operator.factory
            constraints = given.constraints if isinstance(given, SinkOperatorFactory) else SinkConstraints()
            operators[position] = replace(operator, factory=PassFactory(schema, place, constraints), sink=None)
            sinks.append(SinkPlace(position, operator, operator.sink, len(results)))
            edges.append(OutputEdge(position, len(results), ForwardPartitioner(), operator.schema))
            results.append(
                IntermediateDataSet(
                    f"rows of {operator.operator_id}", vertex.vertex_id, ResultType.BLOCKING, ForwardPartitioner()
                )
            )
    opened = replace(vertex, operators=tuple(operators), output_edges=tuple(edges), results=tuple(results))
    return OpenVertex(opened, tuple(sinks))


def edges_by_result(vertex: JobVertex) -> list[OutputEdge]:
    """The edges out of a vertex, in the order of its results."""
    return sorted(vertex.output_edges, key=lambda e: e.result)


def input_flows(vertex: JobVertex, flows: Mapping[str, Flow]) -> list[tuple[int, Flow]]:
    """The flows that a vertex reads, each with the number of its input."""
    return [(edge.input_index, flows[edge.data_set_id]) for edge in vertex.inputs]


def exchange_by_hash(vertex: JobVertex, partitions: int) -> Exchange | None:
    """How rows are distributed to a vertex each of whose partitions is run on its own: rows with equal keys must be in the same one.

    Beside a broadcast input, which all partitions get whole, rows without keys are dealt out.

    None: rows stay where they are. `partitions` is the number of partitions of the run; a vertex of parallelism 1 has one.
    """
    if vertex.parallelism == 1:
        return Exchange(1)
    if not vertex.inputs:
        return None
    is_beside = any(isinstance(edge.partitioner, BroadcastPartitioner) for edge in vertex.inputs)
    keys: dict[int, Spreading] = {}
    for edge in vertex.inputs:
        match edge.partitioner:
            case KeyGroupPartitioner(keys=by):
                keys[edge.input_index] = by
            case BroadcastPartitioner():
                keys[edge.input_index] = TO_ALL
            case _ if is_beside:
                keys[edge.input_index] = BY_ROW
            case _:
                return None
    return Exchange(partitions, tuple(keys[i] for i in sorted(keys)))
