"""What a job looks like now: execution states and metrics summed up for people."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from flowrun.core.clock import Clock
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.graph.execution_graph import ExecutionGraph
from flowrun.graph.job_graph import JobVertex
from flowrun.runtime.job_status import JobStatus, VertexStatus
from flowrun.runtime.jobmaster.execution import Executions
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.metrics import MetricRegistry

LATENCY = "latency_ms."
"""How the names of histograms of latency markers begin."""


_COUNTERS = {
    "records_in": "numRecordsIn",
    "bytes_in": "numBytesIn",
    "records_out": "numRecordsOut",
    "bytes_out": "numBytesOut",
}
"""Field of `VertexStatus` → the metric that it adds up; metrics have the names of Apache Flink's."""


class StatusReader:
    """Reads the status of one job; from any thread, while it runs."""

    def __init__(self, graph: ExecutionGraph, executions: Executions, metrics: MetricRegistry, clock: Clock) -> None:
        self._graph = graph
        self._executions = executions
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()

    def read(self, job_id: str, state: JobState, running_ms: int) -> JobStatus:
        """The present status."""
        with self._lock:  # the time samplers have one reader at a time
            vertices = tuple(self._vertex(v.job_vertex) for v in self._graph.job_vertices)
        name = self._graph.job_graph.name
        return JobStatus(job_id, name, state, self._clock.monotonic_ns(), running_ms, vertices)

    def accumulators(self) -> dict[str, dict[str, int]]:
        """Operator name → counter → sum over all subtasks."""
        return {
            operator.name: counters
            for job_vertex in self._graph.job_vertices
            for operator in job_vertex.job_vertex.operators
            for counters in (self._operator_counters(job_vertex.job_vertex, operator.operator_id),)
        }

    def notes(self) -> dict[str, str]:
        """Operator name → what its first subtask with a note tells users."""
        found: dict[str, str] = {}
        for job_vertex in self._graph.job_vertices:
            vertex = job_vertex.job_vertex
            for operator in vertex.operators:
                groups = (
                    self._metrics.group(vertex.vertex_id, str(i), operator.operator_id)
                    for i in range(vertex.parallelism)
                )
                if noted := next((g.noted for g in groups if g.noted is not None), None):
                    found.setdefault(operator.name, noted)
        return found

    def _vertex(self, vertex: JobVertex) -> VertexStatus:
        subtasks = [str(i) for i in range(vertex.parallelism)]
        states = Counter(e.state for e in self._executions if e.vertex.vertex_id == vertex.vertex_id)
        totals: Counter[str] = Counter()
        for subtask in subtasks:
            totals.update(self.subtask_counts(vertex, subtask))
        watermarks = [self.watermark(vertex, s) for s in subtasks]
        running = [w for w in watermarks if w < MAX_TIMESTAMP]
        watermark = min(running, default=MAX_TIMESTAMP)
        known = watermark > MIN_TIMESTAMP
        rates = [use.read() for s in subtasks if (use := self._metrics.time_use(vertex.vertex_id, s)) is not None]
        return VertexStatus(
            vertex.vertex_id,
            vertex.name,
            vertex.parallelism,
            dict(states),
            **totals,
            watermark=watermark if known else None,
            watermark_lag_ms=self._clock.now_ms() - watermark if known and watermark < MAX_TIMESTAMP else None,
            busy_ms_per_s=_mean(r[0] for r in rates),
            idle_ms_per_s=_mean(r[1] for r in rates),
            back_pressured_ms_per_s=_mean(r[2] for r in rates),
            max_back_pressured_ms_per_s=max((r[2] for r in rates), default=0.0),
            latency_ms=self._latencies(vertex),
            counters={o.name: self._operator_counters(vertex, o.operator_id) for o in vertex.operators},
        )

    def subtask_counts(self, vertex: JobVertex, subtask: str) -> dict[str, int]:
        """The records and bytes that went in and out of one subtask, by the names of the fields of `VertexStatus`."""
        task = self._metrics.group(vertex.vertex_id, subtask).counters()
        counts = {field: task.get(counter, 0) for field, counter in _COUNTERS.items()}
        if not vertex.inputs:
            counts["records_in"] = self._of_operator(vertex, subtask, 0).get("numRecordsOut", 0)
        if not vertex.results:
            counts["records_out"] = self._of_operator(vertex, subtask, -1).get("numRecordsIn", 0)
        return counts

    def time_use(self, vertex: JobVertex, subtask: str) -> tuple[float, float, float]:
        """Busy, idle and back-pressured ms per second of one subtask in about the last second; zeros before it starts."""
        use = self._metrics.time_use(vertex.vertex_id, subtask)
        if use is None:
            return (0.0, 0.0, 0.0)
        with self._lock:
            return use.read()

    def watermark(self, vertex: JobVertex, subtask: str) -> int:
        """Event time of one subtask: of its input, or for a source what its chain sends on (it may assign watermarks itself)."""
        if vertex.inputs:
            read = self._metrics.group(vertex.vertex_id, subtask).read_gauge("currentInputWatermark")
            return MIN_TIMESTAMP if read is None else int(read)
        sent = [
            self._metrics.group(vertex.vertex_id, subtask, o.operator_id).read_gauge("currentOutputWatermark")
            for o in vertex.operators
        ]
        return max((int(w) for w in sent if w is not None), default=MIN_TIMESTAMP)

    def _of_operator(self, vertex: JobVertex, subtask: str, position: int) -> dict[str, int]:
        return self._metrics.group(vertex.vertex_id, subtask, vertex.operators[position].operator_id).counters()

    def _operator_counters(self, vertex: JobVertex, operator_id: str) -> dict[str, int]:
        total: Counter[str] = Counter()
        for subtask in range(vertex.parallelism):
            total.update(self._metrics.group(vertex.vertex_id, str(subtask), operator_id).counters())
        return dict(total)

    def _latencies(self, vertex: JobVertex) -> dict[str, tuple[float, float]]:
        """Source → worst median and worst 99th percentile over the subtasks."""
        found: dict[str, tuple[float, float]] = {}
        for group in self._metrics.under(vertex.vertex_id):
            for name, histogram in group.histograms().items():
                if name.startswith(LATENCY) and histogram.total:
                    source = name.removeprefix(LATENCY)
                    median, tail = found.get(source, (0.0, 0.0))
                    found[source] = (max(median, histogram.quantile(0.5)), max(tail, histogram.quantile(0.99)))
        return found


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
