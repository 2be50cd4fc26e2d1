"""The metrics that `/metrics` gives: names, kinds and meanings. `docs/reference/metrics.md` is made of them.

Names are those of Apache Flink behind the scope. What only grows is a counter, whose name ends with `_total`, as Prometheus wants it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from flowrun.core.record import record

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricScope(Enum):
    """What a metric is of; the beginning of its name."""

    PROCESS = "flowrun"
    JOB = "flowrun_job"
    TASK = "flowrun_task"
    OPERATOR = "flowrun_operator"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its series."""
        return _LABELS[self]


_OF_A_JOB = ("job_id", "job_name")
_OF_A_VERTEX = (*_OF_A_JOB, "vertex_id", "vertex")
_LABELS = {
    MetricScope.PROCESS: (),
    MetricScope.JOB: _OF_A_JOB,
    MetricScope.TASK: (*_OF_A_VERTEX, "subtask", "worker"),
    MetricScope.OPERATOR: (*_OF_A_VERTEX, "subtask", "worker", "operator_id", "operator"),
}


@record
class MetricName:
    """One metric.

    Attributes:
        scope: what it is of.
        name: without the scope; Flink's where there is one.
        text: what it says, with its unit.
        is_counter: whether it only grows.
        labels: beside those of the scope.
        without: labels of the scope that it has not.
    """

    scope: MetricScope
    name: str
    text: str
    is_counter: bool = False
    labels: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Its name without the ending of counters.

        >>> MetricName(MetricScope.TASK, "numRecordsIn", "Rows.", is_counter=True).family
        'flowrun_task_numRecordsIn'
        """
        return f"{self.scope.value}_{self.name}"

    @property
    def series(self) -> str:
        """The name of its series.

        >>> MetricName(MetricScope.TASK, "numRecordsIn", "Rows.", is_counter=True).series
        'flowrun_task_numRecordsIn_total'
        """
        return f"{self.family}_total" if self.is_counter else self.family


def _job(name: str, text: str, *labels: str) -> MetricName:
    return MetricName(MetricScope.JOB, name, text, labels=labels)


def _job_counter(name: str, text: str) -> MetricName:
    return MetricName(MetricScope.JOB, name, text, is_counter=True)


def _task(name: str, text: str) -> MetricName:
    return MetricName(MetricScope.TASK, name, text)


def _of_input(name: str, text: str) -> MetricName:
    return MetricName(MetricScope.TASK, f"input_{name}", text, labels=("input",))


def _task_counter(name: str, text: str) -> MetricName:
    return MetricName(MetricScope.TASK, name, text, is_counter=True)


def _operator(name: str, text: str) -> MetricName:
    return MetricName(MetricScope.OPERATOR, name, text)


def _operator_counter(name: str, text: str, *labels: str) -> MetricName:
    return MetricName(MetricScope.OPERATOR, name, text, is_counter=True, labels=labels)


def _state(name: str, text: str) -> MetricName:
    return MetricName(MetricScope.OPERATOR, name, text, without=("subtask", "worker"))


METRICS: tuple[MetricName, ...] = (
    MetricName(MetricScope.PROCESS, "build_info", "Always 1; says what runs.", labels=("version", "python", "pyarrow")),
    MetricName(MetricScope.PROCESS, "numRunningJobs", "Jobs that run, of those that this process serves."),
    _job("state", "1 for the state that the job is in, 0 for the others.", "state"),
    _job("uptime", "How long the job has been running without an end, in ms."),
    _job("parallelism", "Subtasks of the vertex that has the most."),
    _job("slots", "Slots that the job has."),
    _job("waitsForResources", "1 while the job waits for slots, else 0."),
    _job_counter("numRestarts", "Restarts after failures."),
    _job_counter("numberOfCompletedCheckpoints", "Checkpoints and savepoints that were completed."),
    _job_counter("numberOfFailedCheckpoints", "Those that failed."),
    _job("numberOfInProgressCheckpoints", "Those that are under way."),
    _job("lastCompletedCheckpointId", "Number of the last completed one."),
    _job("lastCheckpointDuration", "How long the last completed one took, in ms."),
    _job("lastCheckpointSize", "Bytes that were written for the last completed one."),
    _job("lastCheckpointFullSize", "Bytes of all files that the last completed one names."),
    _job("lastCheckpointCompletedTimestamp", "When the last one was completed, in ms since the epoch."),
    _job("checkpointInterval", "How often one is to be taken, in ms."),
    _task_counter("numRecordsIn", "Rows that came from other vertices; in a source, those that it read."),
    _task_counter("numRecordsOut", "Rows that went to other vertices; in a vertex without outputs, those that reached its last operator."),
    _task_counter("numBytesIn", "Bytes that came from other vertices."),
    _task_counter("numBytesOut", "Bytes that went to other vertices."),
    _task("currentInputWatermark", "Event time that the subtask has reached, in ms since the epoch; none before the first watermark."),
    _task("watermarkLag", "How far that is behind the time of day, in ms. Of sources, too: what they send on."),
    _task("busyTimeMsPerSecond", "Time that the subtask worked, in ms of about the last second."),
    _task("idleTimeMsPerSecond", "Time that it waited for input."),
    _task("backPressuredTimeMsPerSecond", "Time that it waited for room downstream."),
    _task("currentInput1Watermark", "The same of the first input, where there are several; the next are 2, 3, …"),
    _task("currentInput2Watermark", "Of the second one."),
    _of_input("records", "Rows that came from an input."),
    _of_input("openChannels", "Channels of an input that have not ended."),
    _of_input("idleChannels", "Those that hold no watermark back, as they are idle."),
    _of_input("slowestWatermark", "Event time of the channel of an input that holds its watermark back, in ms since the epoch."),
    _of_input("slowestChannel", "The number of that channel: of its producer among those of the input."),
    MetricName(
        MetricScope.TASK, "latency",
        "How long markers took from a source to the end of the pipeline here, in ms; the slowest subtask (`settings.latency_interval`).",
        labels=("source_id", "quantile"), without=("subtask", "worker"),
    ),
    _state("stateSize", "Bytes of the operator's state in the last completed checkpoint."),
    _state("stateRows", "Rows of it, deleted ones and those that later files replace included."),
    _operator_counter("numRecordsIn", "Rows that reached the operator."),
    _operator_counter("numRecordsOut", "Rows that it sent on; with `detail` those to the side output of that name.", "detail"),
    _operator("currentOutputWatermark", "Event time up to which it has sent on, in ms since the epoch."),
    _operator("isOutputIdle", "1 while it holds no watermark back downstream, else 0."),
    _operator("numSplits", "Splits of a source, such as partitions of a topic, that count for its watermark."),
    _operator("numIdleSplits", "Those that are idle."),
    _operator("numStateRows", "Rows, groups or partitions that only a time to live makes the operator forget."),
    _operator("numRecordsExpired", "Those that it has forgotten for that."),
    _operator("nextEventTimeFiring", "Event time at which the operator fires next, in ms since the epoch."),
    _operator("nextProcessingTimeFiring", "Time of day at which it does."),
    _operator_counter("numLeftRecordsUnmatched", "Rows of the left side of a join that had no match."),
    _operator_counter("numRightRecordsUnmatched", "Rows of the right side that had none."),
    _operator_counter("numLeftRecordsUnmatchedOnArrival", "Rows of the left side that had none when they came; later ones may match."),
    _operator_counter("numRightRecordsUnmatchedOnArrival", "Rows of the right side that had none when they came."),
    _operator_counter("numLateRecordsDropped", "Rows that came too late, and were dropped."),
    _operator_counter("numLateRecordsSideOutput", "Rows that came too late, and went to a side output."),
    _operator_counter("numRecordsOutOfOrder", "Rows whose event time was before the watermark when they were given one."),
    _operator_counter("numRecordsSkipped", "Rows that could not be processed, and were left out."),
    _operator_counter("numRecordsDeadLettered", "Rows that could not be processed, and became dead letters."),
    _operator_counter("numRecordsFailed", "Rows that could not be processed, by what went wrong (`detail`).", "detail"),
    _operator_counter("numNullKeyRecordsDropped", "Rows without a key that were dropped."),
    _operator_counter("numNullRecordsDropped", "Rows that a sink dropped, as a column that is NOT NULL was NULL."),
    _operator_counter("numUnknownRetractionsDropped", "Retractions of rows that the operator does not know."),
    _operator_counter("numTombstonesSkipped", "Messages of Kafka without a value that were left out."),
    _operator_counter("numRecordsOfOtherSources", "Rows of a hybrid source that another of its sources gives."),
    _operator_counter("numRecordsInErrors", "Answers to a lookup that could not be read."),
    _operator_counter("numRequests", "Requests of connector http."),
    _operator_counter("sinkRetries", "What a sink sent once more, as it had failed."),
    _operator_counter("lookupRetries", "Lookups that were asked once more."),
    _operator_counter("lookupCacheHits", "Keys of lookups that were at hand."),
    _operator_counter("lookupCacheMisses", "Keys that had to be asked for."),
    _operator_counter("numAsyncTimeouts", "Calls of an asynchronous function that took too long."),
    _operator_counter("numAsyncRetries", "Calls of one that were made once more."),
    _operator("asyncCallsInFlight", "Calls of one that are under way."),
    _operator_counter("commitsSucceeded", "Commits of offsets to Kafka."),
    _operator_counter("commitsFailed", "Those that failed; the checkpoint counts, not they."),
    _operator("pendingRecords", "Messages of Kafka that are still to be read: the lag of the consumer."),
)  # fmt: skip
"""In the order in which they are documented."""

BY_FAMILY = {metric.family: metric for metric in METRICS}

PROCESS_METRICS = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
"""Of the process that answers, by the names that all client libraries of Prometheus give them; only where there is `/proc`."""

_INTRODUCTION = """# Metrics

<!-- Generated by `make docs`. Do not edit. -->

What `GET /metrics` gives; how to scrape it, and what to look at, is told [here](../metrics.md). Names are those of Apache Flink
behind `flowrun_job_`, `flowrun_task_` and `flowrun_operator_`. What only grows ends with `_total`. Times are in milliseconds, as in
Flink. A series that has nothing to say is not there: no watermark before the first one, no checkpoints of a job that takes none, no
`worker` in a job of one process.
"""

_TITLES = {
    MetricScope.PROCESS: "Process",
    MetricScope.JOB: "Jobs",
    MetricScope.TASK: "Subtasks",
    MetricScope.OPERATOR: "Operators and connectors",
}


def reference_markdown() -> str:
    """The whole page."""
    sections = [_INTRODUCTION]
    for scope, title in _TITLES.items():
        found = [m for m in METRICS if m.scope is scope]
        labels = f"Labels: {_listed(scope.labels)}; more or fewer where it says so.\n\n" if scope.labels else ""
        about = _ABOUT.get(scope, "")
        sections.append(f"## {title}\n\n{labels}{_table(found)}{about}")
    return "\n".join(sections)


_ABOUT = {
    MetricScope.PROCESS: "\nBesides, of the process that answers, where the system tells: "
    + ", ".join(f"`{name}`" for name in PROCESS_METRICS)
    + ".\n",
    MetricScope.OPERATOR: (
        "\nFunctions of yours that count (`context.metrics`) are found here by the names that they give: a counter `payments`"
        " is `flowrun_operator_payments_total`. Other characters than letters, digits and `_` become `_`, and the label `name`"
        " has the name as it is; what stands behind a point becomes the label `detail`."
        " A histogram `paid` gives the quantiles of its recent values,"
        ' `flowrun_operator_paid{quantile="0.99"}`, and how many there were, `flowrun_operator_paid_count_total`.\n'
    ),
}


def _table(metrics: Iterable[MetricName]) -> str:
    lines = ["| metric | kind | what it says |", "|---|---|---|"]
    for metric in metrics:
        more = f" Also by {_listed(metric.labels)}." if metric.labels else ""
        fewer = f" Not by {_listed(metric.without)}." if metric.without else ""
        kind = "counter" if metric.is_counter else "gauge"
        lines.append(f"| `{metric.series}` | {kind} | {metric.text}{more}{fewer} |")
    return "\n".join(lines) + "\n"


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)
