"""Whether rows that were in flight in an unaligned checkpoint can go on in a pipeline whose exchanges or parallelism changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.graph.job_graph import JobEdge, JobGraph, JobVertex, OutputEdge
from flowrun.runtime.checkpoint.comparison import Problem
from flowrun.runtime.checkpoint.recorded_graph import RecordedExchange
from flowrun.state.checkpoints import CheckpointMetadata

_REMEDY = (
    "resume the pipeline as it was, at the same parallelism, and take a savepoint (always aligned: no rows in flight) "
    "before the change"
)


@record
class _Exchange:
    """An exchange of the new pipeline."""

    edge: JobEdge
    output: OutputEdge
    producer: JobVertex
    consumer: JobVertex


def in_flight_problems(
    metadata: CheckpointMetadata, graph: JobGraph, recorded: Mapping[str, RecordedExchange]
) -> tuple[Problem, ...]:
    """What keeps rows in flight from going on, one problem an exchange.

    Args:
        metadata: of the checkpoint.
        graph: the pipeline that is to go on.
        recorded: data set → what the checkpoint's own job graph says of it.
    """
    rows: dict[str, int] = {}
    schemas: dict[str, pa.Schema] = {}
    for channel in metadata.in_flight:
        for element in channel.elements:
            if isinstance(element, RecordBatch) and element.num_rows:
                rows[channel.data_set_id] = rows.get(channel.data_set_id, 0) + element.num_rows
                schemas[channel.data_set_id] = element.columns.schema
    exchanges = {e.edge.data_set_id: e for e in _exchanges(graph)}
    problems = []
    for data_set_id, count in rows.items():
        exchange, was = exchanges.get(data_set_id), recorded.get(data_set_id)
        text = (
            "an exchange that the pipeline does not have any more"
            if exchange is None
            else _difference(exchange, was, schemas[data_set_id])
        )
        if text is not None:
            place = "" if was is None else f" from '{was.producer}' to '{was.consumer}'"
            plural = "row was" if count == 1 else "rows were"
            problems.append(Problem(f"{count} {plural} in flight{place}, {text}", _REMEDY))
    return tuple(problems)


def _exchanges(graph: JobGraph) -> Iterator[_Exchange]:
    consumers = {edge.data_set_id: (edge, vertex) for vertex in graph.vertices for edge in vertex.inputs}
    for producer in graph.vertices:
        for output in producer.output_edges:
            data_set = producer.results[output.result].data_set_id
            if data_set in consumers:
                yield _Exchange(consumers[data_set][0], output, producer, consumers[data_set][1])


def _difference(exchange: _Exchange, was: RecordedExchange | None, schema: pa.Schema) -> str | None:
    """Why rows of an exchange cannot go on; None if they can."""
    edge = exchange.edge
    if not schema.equals(edge.schema.arrow, check_metadata=False):
        return f"with the columns {_columns(schema)}; they are {_columns(edge.schema.arrow)} now"
    if was is not None and was.kind != edge.partitioner.label.partition("[")[0]:
        return f"on a {was.kind} exchange; it is {edge.partitioner.label} now"
    return None


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
