"""Jobs as Prometheus scrapes them: text of the exposition format 0.0.4, made of `JobDetails` when somebody asks.

Nothing is counted for it: a job that nobody scrapes pays nothing.
"""

from __future__ import annotations

import platform
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from flowrun import __version__
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.printable import printable
from flowrun.core.record import record
from flowrun.masking import masked
from flowrun.rest.metric_names import BY_FAMILY, MetricScope
from flowrun.runtime.checkpoint.records import COMPLETED, CheckpointRecord
from flowrun.runtime.job_details import HistogramSummary, JobDetails, OperatorDescription, SubtaskDetails, VertexDetails
from flowrun.runtime.lifecycle import JobState

LONGEST_LABEL = 200
"""Code points; of longer names the end is left out, as ids tell them apart."""
_WITHOUT_BOUND = ("heavyKey.", "split.")
"""Gauges with keys of rows, or with splits such as files, in their names. They are for people who look at a job: a store of time series
would get new ones for ever."""
_OF_INPUT = re.compile(r"input\.(\d+)\.([A-Za-z0-9_]+)")
"""Gauges of the inputs of a subtask."""
_UNCLEAN = re.compile(r"[^A-Za-z0-9_]")
_CHECKPOINT_INTERVAL = "checkpoint.interval_ms"
_OF_A_USER = "A metric of the pipeline's own functions."

Labels = Mapping[str, str]


@record
class ListedJob:
    """A job that gives no details, as it is over or does not answer.

    Attributes:
        job_id: of it.
        name: of the pipeline.
        state: that is known of it.
    """

    job_id: str
    name: str
    state: str


def exposition(jobs: Iterable[JobDetails | ListedJob]) -> bytes:
    """The metrics of jobs and of this process, in UTF-8. Secrets in names are masked."""
    registry = CollectorRegistry()
    registry.register(_Jobs(tuple(jobs)))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Jobs(Collector):
    """Collects once: what was read of the jobs before."""

    def __init__(self, jobs: Sequence[JobDetails | ListedJob]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        """See `Collector`: a family a name, whose series are all different."""
        families: dict[str, Metric] = {}
        for family, is_counter, labels, value in _all(self._jobs):
            suffix = "_total" if is_counter else ""
            metric = families.get(family + suffix)
            if metric is None:
                known = BY_FAMILY.get(family)
                text = _OF_A_USER if known is None else known.text
                metric = families[family + suffix] = Metric(family, text, "counter" if is_counter else "gauge")
            metric.add_sample(family + suffix, dict(labels), value)
        return families.values()


_Sample = tuple[str, bool, Labels, float]
"""Family, whether it only grows, labels, value."""


def _all(jobs: Sequence[JobDetails | ListedJob]) -> Iterator[_Sample]:
    import pyarrow as pa

    versions = {"version": __version__, "python": platform.python_version(), "pyarrow": pa.__version__}
    yield "flowrun_build_info", False, versions, 1
    running = JobState.RUNNING.value
    states = [job.state if isinstance(job, ListedJob) else job.status.state.value for job in jobs]
    yield "flowrun_numRunningJobs", False, {}, states.count(running)
    for job in jobs:
        if isinstance(job, ListedJob):
            yield from _states(_job_labels(job.job_id, job.name), job.state)
        else:
            yield from _job(job)


def _job_labels(job_id: str, name: str) -> Labels:
    return {"job_id": job_id, "job_name": label_value(name)}


def _states(labels: Labels, present: str) -> Iterator[_Sample]:
    for state in JobState:
        yield "flowrun_job_state", False, {**labels, "state": state.value}, float(state.value == present)


def _job(job: JobDetails) -> Iterator[_Sample]:
    status = job.status
    labels = _job_labels(status.job_id, status.name)
    yield from _states(labels, status.state.value)
    for name, value in (
        ("uptime", status.running_ms),
        ("parallelism", job.parallelism),
        ("slots", status.slots),
        ("waitsForResources", status.waits_for is not None),
    ):
        yield f"flowrun_job_{name}", False, labels, float(value)
    yield "flowrun_job_numRestarts", True, labels, status.restarts
    yield from _checkpoints(job, labels)
    states = _last_states(job.checkpoints)
    for vertex in job.vertices:
        yield from _vertex(job, vertex, labels, states)


def _checkpoints(job: JobDetails, labels: Labels) -> Iterator[_Sample]:
    interval = job.settings.get(_CHECKPOINT_INTERVAL)
    if isinstance(interval, int | float):
        yield "flowrun_job_checkpointInterval", False, labels, interval
    status = job.status.checkpoints
    if status is None:
        return
    yield "flowrun_job_numberOfCompletedCheckpoints", True, labels, status.completed
    yield "flowrun_job_numberOfFailedCheckpoints", True, labels, status.failed
    yield "flowrun_job_numberOfInProgressCheckpoints", False, labels, status.in_progress
    if (last := status.last) is None:
        return
    for name, value in (
        ("lastCompletedCheckpointId", last.checkpoint_id),
        ("lastCheckpointDuration", last.duration_ms),
        ("lastCheckpointSize", last.written_bytes),
        ("lastCheckpointFullSize", last.state_bytes),
        ("lastCheckpointCompletedTimestamp", last.triggered_ms + last.duration_ms),
    ):
        yield f"flowrun_job_{name}", False, labels, value


def _last_states(checkpoints: Sequence[CheckpointRecord]) -> Mapping[tuple[str, str], tuple[int, int]]:
    """(Vertex id, operator id) → bytes and rows of its state in the last completed checkpoint."""
    last = next((c for c in reversed(checkpoints) if c.status == COMPLETED), None)
    vertices = () if last is None else last.vertices
    return {(v.vertex_id, o.operator_id): (o.state_bytes, o.state_rows) for v in vertices for o in v.operators}


def _vertex(
    job: JobDetails, vertex: VertexDetails, labels: Labels, states: Mapping[tuple[str, str], tuple[int, int]]
) -> Iterator[_Sample]:
    status = vertex.status
    labels = {**labels, "vertex_id": status.vertex_id, "vertex": label_value(status.name)}
    for source_id, (median, tail) in status.latency_ms.items():
        for quantile, value in (("0.5", median), ("0.99", tail)):
            found = {**labels, "source_id": label_value(source_id), "quantile": quantile}
            yield "flowrun_task_latency", False, found, value
    named = {o.operator_id: _operator_labels(labels, o) for o in vertex.operators}
    for operator_id, operator_labels in named.items():
        if (state := states.get((status.vertex_id, operator_id))) is not None:
            yield "flowrun_operator_stateSize", False, operator_labels, state[0]
            yield "flowrun_operator_stateRows", False, operator_labels, state[1]
    for subtask in vertex.subtasks:
        yield from _subtask(job.now_ms, subtask, labels)
        own = _place(subtask)
        for operator in subtask.operators:
            if operator.operator_id in named:
                found = {**named[operator.operator_id], **own}
                yield from _named(MetricScope.OPERATOR, operator.counters, found, is_counter=True)
                yield from _named(MetricScope.OPERATOR, operator.gauges, found, is_counter=False)
                for name, summary in operator.histograms.items():
                    yield from _histogram(name, summary, found)


def _operator_labels(labels: Labels, operator: OperatorDescription) -> Labels:
    return {**labels, "operator_id": operator.operator_id, "operator": label_value(operator.name)}


def _place(subtask: SubtaskDetails) -> Labels:
    found = {"subtask": str(subtask.subtask)}
    return found if subtask.worker is None else {**found, "worker": label_value(subtask.worker)}


def _subtask(now_ms: int, subtask: SubtaskDetails, labels: Labels) -> Iterator[_Sample]:
    labels = {**labels, **_place(subtask)}
    for name, count in (
        ("numRecordsIn", subtask.records_in),
        ("numRecordsOut", subtask.records_out),
        ("numBytesIn", subtask.bytes_in),
        ("numBytesOut", subtask.bytes_out),
    ):
        yield f"flowrun_task_{name}", True, labels, count
    for name, rate in (
        ("busyTimeMsPerSecond", subtask.busy_ms_per_s),
        ("idleTimeMsPerSecond", subtask.idle_ms_per_s),
        ("backPressuredTimeMsPerSecond", subtask.back_pressured_ms_per_s),
    ):
        yield f"flowrun_task_{name}", False, labels, rate
    if subtask.watermark is not None:
        yield "flowrun_task_watermarkLag", False, labels, now_ms - subtask.watermark
    yield from _named(MetricScope.TASK, subtask.gauges, labels, is_counter=False)


def _named(
    scope: MetricScope, metrics: Mapping[str, float | None], labels: Labels, *, is_counter: bool
) -> Iterator[_Sample]:
    """Counters or gauges by the names that operators, connectors and functions of users give them."""
    for name, value in metrics.items():
        if not isinstance(value, bool | int | float):  # None, or what a function of a user gives
            continue
        if name.endswith("Watermark") and not MIN_TIMESTAMP < value < MAX_TIMESTAMP:
            continue
        if name.startswith(_WITHOUT_BOUND):
            continue
        family, more = family_of(name, is_counter=is_counter)
        yield f"{scope.value}_{family}", is_counter, {**labels, **more}, value


def _histogram(name: str, summary: HistogramSummary, labels: Labels) -> Iterator[_Sample]:
    """A distribution that a function of a user measures: quantiles of its recent values, and how many there were."""
    for quantile, value in (("0.5", summary.median), ("0.95", summary.p95), ("0.99", summary.p99)):
        yield from _named(MetricScope.OPERATOR, {name: value}, {**labels, "quantile": quantile}, is_counter=False)
    yield from _named(MetricScope.OPERATOR, {f"{name}_count": summary.count}, labels, is_counter=True)


def family_of(name: str, *, is_counter: bool) -> tuple[str, Labels]:
    """The name of a metric as Prometheus allows it, and the labels that tell it from others which become the same.

    >>> family_of("numRecordsFailed.decoding", is_counter=True)
    ('numRecordsFailed', {'detail': 'decoding'})
    >>> family_of("input.1.idleChannels", is_counter=False)
    ('input_idleChannels', {'input': '1'})
    >>> family_of("Zahl der Käufe", is_counter=False)
    ('Zahl_der_K_ufe', {'name': 'Zahl der Käufe'})
    >>> family_of("paid_total", is_counter=True), family_of("paid_total", is_counter=False)
    (('paid', {'name': 'paid_total'}), ('paid_total_', {}))
    """
    if (part := _OF_INPUT.fullmatch(name)) is not None:
        return f"input_{part[2]}", {"input": part[1]}
    head, point, tail = name.partition(".")
    if point and head and not _UNCLEAN.search(head) and not head.endswith("_total"):
        return head, {"detail": label_value(tail)}
    family = _UNCLEAN.sub("_", name)
    if is_counter and family.endswith("_total"):
        return family.removesuffix("_total") or "_", {"name": label_value(name)}
    more = {} if family == name else {"name": label_value(name)}
    return (f"{family}_" if family.endswith(_RESERVED) else family), more


_RESERVED = ("_total", "_created", "_gsum", "_gcount", "_info", "_bucket")
"""Endings that mean something else in the format."""


def label_value(text: str) -> str:
    r"""A name as a label has it: one that can be encoded, shows what it is, and holds no secret. Long ones end with a checksum.

    >>> print(label_value("a\x1b[31m\ud800"))
    a\u001b[31m\ud800
    """
    shown = printable(masked(text)).encode("utf-8", "backslashreplace").decode()
    if len(shown) <= LONGEST_LABEL:
        return shown
    return f"{shown[: LONGEST_LABEL - 9]}…{zlib.crc32(shown.encode()):08x}"
