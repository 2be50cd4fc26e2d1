"""What a job tells of itself in full; see `flowrun.runtime.job_details`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from flowrun.core.clock import Clock
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.graph.explain.drawing import partitioner_label
from flowrun.graph.job_graph import ChainedOperator, JobGraph, JobVertex
from flowrun.runtime.checkpoint.records import CheckpointRecord
from flowrun.runtime.job_details import (
    ExchangeDescription,
    FailureRecord,
    HistogramSummary,
    JobDetails,
    OperatorDescription,
    OperatorMetrics,
    Setting,
    SubtaskDetails,
    VertexDetails,
)
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.jobmaster.execution import Executions
from flowrun.runtime.jobmaster.operator_facts import operator_facts, operator_kind
from flowrun.runtime.jobmaster.status import LATENCY, StatusReader
from flowrun.runtime.messages import LOCAL_WORKER
from flowrun.runtime.metrics import MetricRegistry, ScopedMetrics


class DetailsReader:
    """Reads one job in full; from any thread, while it runs. What does not change while it runs is made once."""

    def __init__(
        self, graph: ExecutionGraph, executions: Executions, metrics: MetricRegistry, status: StatusReader, clock: Clock
    ) -> None:
        self._graph = graph
        self._executions = executions
        self._metrics = metrics
        self._status = status
        self._clock = clock
        vertices = [v.job_vertex for v in graph.job_vertices]
        self._operators = {v.vertex_id: tuple(describe_operators(v)) for v in vertices}
        self._exchanges = tuple(describe_exchanges(graph.job_graph))
        self._settings = dict(_settings(graph.job_graph.settings, ""))

    def read(
        self, status: JobStatus, checkpoints: tuple[CheckpointRecord, ...], failures: tuple[FailureRecord, ...]
    ) -> JobDetails:
        """The job at the moment of this status."""
        known = {v.vertex_id: v for v in status.vertices}
        return JobDetails(
            status,
            self._clock.now_ms(),
            max(v.parallelism for v in status.vertices),
            tuple(
                VertexDetails(
                    known[vertex.vertex_id],
                    vertex.max_parallelism,
                    vertex.slot_sharing_group,
                    self._operators[vertex.vertex_id],
                    tuple(self._subtask(vertex, i) for i in range(vertex.parallelism)),
                )
                for vertex in (v.job_vertex for v in self._graph.job_vertices)
            ),
            self._exchanges,
            checkpoints,
            failures,
            self._settings,
        )

    def _subtask(self, vertex: JobVertex, index: int) -> SubtaskDetails:
        execution = self._executions.current(ExecutionVertexId(vertex.vertex_id, index))
        state, subtask = execution.state, str(index)
        counts = self._status.subtask_counts(vertex, subtask)
        watermark = self._status.watermark(vertex, subtask)
        use, own = self._status.time_use(vertex, subtask), self._metrics.group(vertex.vertex_id, subtask)
        operators = [
            (o.operator_id, self._metrics.group(vertex.vertex_id, subtask, o.operator_id)) for o in vertex.operators
        ]
        return SubtaskDetails(
            index,
            execution.number,
            execution.attempt_id,
            state,
            execution.state_times_ms[state],
            None if execution.worker == LOCAL_WORKER else execution.worker,
            **counts,
            watermark=watermark if MIN_TIMESTAMP < watermark < MAX_TIMESTAMP else None,
            is_at_end=watermark >= MAX_TIMESTAMP,
            busy_ms_per_s=use[0],
            idle_ms_per_s=use[1],
            back_pressured_ms_per_s=use[2],
            gauges=own.gauges(),
            operators=tuple(
                OperatorMetrics(i, group.counters(), group.gauges(), _summaries(group)) for i, group in operators
            ),
            rows=own.sampled_rows(),
        )


def _summaries(group: ScopedMetrics) -> dict[str, HistogramSummary]:
    """The histograms of functions; those of latency markers are told by vertex."""
    return {
        name: HistogramSummary(h.total, h.quantile(0.5), h.quantile(0.95), h.quantile(0.99))
        for name, h in group.histograms().items()
        if h.total and not name.startswith(LATENCY)
    }


def describe_operators(vertex: JobVertex) -> Iterator[OperatorDescription]:
    """The operators of a vertex's chain."""
    for position, operator in enumerate(vertex.operators):
        edges = [vertex.operators[e.source].schema for e in vertex.chain_edges if e.target == position]
        inputs = edges or [e.schema for e in sorted(vertex.inputs, key=lambda e: e.input_index)]
        keys = zip(operator.state_keys or (), inputs, strict=False)  # edges that are one input have one schema
        yield _operator(operator, tuple(tuple(schema.names[k] for k in key) for key, schema in keys))


def _operator(operator: ChainedOperator, key: tuple[tuple[str, ...], ...]) -> OperatorDescription:
    connected, place = operator.source or operator.sink, operator.written_at
    return OperatorDescription(
        operator.operator_id,
        operator.name,
        operator.uid,
        _columns(operator.schema),
        key,
        None if connected is None else type(connected).__name__,
        is_source=operator.source is not None,
        is_sink=operator.sink is not None,
        file=None if place is None else place.file,
        line=None if place is None else place.line,
        column=None if place is None else place.column,
        kind=operator_kind(operator.factory),
        facts=operator_facts(operator.factory),
    )


def _columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    return tuple((column.name, str(column.type)) for column in schema.fields)


def describe_exchanges(job_graph: JobGraph) -> Iterator[ExchangeDescription]:
    """The exchanges of a job graph, by who reads them."""
    kinds = {result.data_set_id: result.type.value for vertex in job_graph.vertices for result in vertex.results}
    writers = {
        vertex.results[edge.result].data_set_id: vertex.operators[edge.source].operator_id
        for vertex in job_graph.vertices
        for edge in vertex.output_edges
    }
    for vertex in job_graph.vertices:
        for edge in vertex.inputs:
            yield ExchangeDescription(
                edge.data_set_id,
                edge.source,
                edge.target,
                edge.input_index,
                partitioner_label(edge.partitioner, edge.schema),
                kinds[edge.data_set_id],
                _columns(edge.schema),
                writers[edge.data_set_id],
            )


def _settings(value: object, prefix: str) -> Iterator[tuple[str, Setting]]:
    """Settings with their paths as names; whole values that are off are None."""
    if is_dataclass(value):
        for part in fields(value):
            yield from _settings(getattr(value, part.name), f"{prefix}.{part.name}".lstrip("."))
    elif value is None or isinstance(value, bool | int | float | str):
        yield prefix, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _settings(part, f"{prefix}.{name}")
    else:
        yield prefix, str(value)
