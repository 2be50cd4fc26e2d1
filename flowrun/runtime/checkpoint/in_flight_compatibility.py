"""Whether rows that were in flight in an unaligned checkpoint can go on in a pipeline whose exchanges or parallelism changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.graph.job_graph import JobGraph, JobVertex
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    ForwardPartitioner,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
)
from flowrun.runtime.checkpoint.comparison import Problem
from flowrun.runtime.checkpoint.in_flight import copies_are_alike, keeps_changes_in_order
from flowrun.runtime.checkpoint.recorded_graph import RecordedExchange
from flowrun.state.checkpoints import CheckpointMetadata, has_row_kinds, rows_of, schema_in_flight

_REMEDY = (
    "resume the pipeline as it was, at the same parallelism, and take a savepoint (always aligned: no rows in flight) "
    "before the change"
)


_BY_PARALLELISM = frozenset(p().label for p in (ForwardPartitioner, RebalancePartitioner))
"""Kinds that an exchange which the user did not choose takes turns between: forward at equal parallelism, else rebalance."""


@record
class _Exchange:
    """An exchange of the new pipeline, or what has become of one inside a chain."""

    data_set_id: str
    partitioner: Partitioner
    schema: Schema | None
    consumer: JobVertex
    operator: int


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
    changes: set[str] = set()
    for channel in metadata.in_flight:
        for element in rows_of(channel.elements):
            if element.num_rows:
                rows[channel.data_set_id] = rows.get(channel.data_set_id, 0) + element.num_rows
                schemas[channel.data_set_id] = schema_in_flight(element)
                if has_row_kinds(element):
                    changes.add(channel.data_set_id)
    exchanges = {e.data_set_id: e for e in _exchanges(graph)}
    problems = []
    for data_set_id, count in rows.items():
        exchange, was = exchanges.get(data_set_id), recorded.get(data_set_id)
        text = (
            "an exchange that the pipeline does not have any more"
            if exchange is None
            else _difference(exchange, was, schemas[data_set_id])
        )
        if text is None and exchange is not None and data_set_id in changes:
            text = _disorder(exchange, metadata)
        if text is None and exchange is not None:
            text = _unequal_copies(exchange, metadata)
        if text is not None:
            place = "" if was is None else f" from '{was.producer}' to '{was.consumer}'"
            plural = "row was" if count == 1 else "rows were"
            problems.append(Problem(f"{count} {plural} in flight{place}, {text}", _REMEDY))
    return tuple(problems)


def _exchanges(graph: JobGraph) -> Iterator[_Exchange]:
    for consumer in graph.vertices:
        for edge in consumer.inputs:
            yield _Exchange(edge.data_set_id, edge.partitioner, edge.schema, consumer, 0)
        for inner in consumer.chain_edges:
            yield _Exchange(inner.data_set_id, ForwardPartitioner(), inner.schema, consumer, inner.target)


def _difference(exchange: _Exchange, was: RecordedExchange | None, schema: pa.Schema) -> str | None:
    """Why rows of an exchange cannot go on; None if they can."""
    if exchange.schema is not None and not schema.equals(exchange.schema.arrow, check_metadata=False):
        return f"with the columns {_columns(schema)}; they are {_columns(exchange.schema.arrow)} now"
    kind = exchange.partitioner.label.partition("[")[0]
    if was is not None and was.kind != kind and not {was.kind, kind} <= _BY_PARALLELISM:
        return f"on a {was.kind} exchange; it is {exchange.partitioner.label} now"
    return None


def _disorder(exchange: _Exchange, metadata: CheckpointMetadata) -> str | None:
    """Why changes would not keep their order; None if they do."""
    old, new = _parallelism_before(exchange, metadata), exchange.consumer.parallelism
    if old is None or old == new or keeps_changes_in_order(exchange.partitioner, old, new):
        return None
    return f"changes whose order would be lost between parallelism {old} and {new}"


def _unequal_copies(exchange: _Exchange, metadata: CheckpointMetadata) -> str | None:
    """Why keys would miss broadcast rows at another subtask; None if they do not."""
    old, new = _parallelism_before(exchange, metadata), exchange.consumer.parallelism
    if old is None or old == new or not isinstance(exchange.partitioner, BroadcastPartitioner):
        return None
    by_key = any(isinstance(edge.partitioner, KeyGroupPartitioner) for edge in exchange.consumer.inputs)
    if not by_key or copies_are_alike(metadata.in_flight, exchange.data_set_id, old):
        return None
    return f"broadcast rows that some of {old} subtasks had processed for their keys: at parallelism {new} keys would miss them"


def _parallelism_before(exchange: _Exchange, metadata: CheckpointMetadata) -> int | None:
    """That of the consumer when the checkpoint was taken."""
    operators = exchange.consumer.operators[exchange.operator :]
    return next((s.parallelism for o in operators if (s := metadata.operators.get(o.operator_id)) is not None), None)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
