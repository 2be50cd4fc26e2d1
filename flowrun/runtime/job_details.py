"""Everything that a job tells of itself at one moment, subtask by subtask, for whoever looks into it: the REST API, its page, `why`.

`JobStatus` is the short form that views ask for many times a second; this one is made when somebody asks. Values only, which are sent
between processes and as JSON by the names of their fields. Times are epoch ms, durations ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.runtime.checkpoint.records import CheckpointRecord
from flowrun.runtime.job_status import JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.rpc.error_values import ErrorValue

Setting = None | bool | int | float | str


@record
class OperatorDescription:
    """One operator of a chain.

    Attributes:
        operator_id: its stable hash, by which state and counters name it.
        name: for people.
        uid: the user's; None: the id follows from the structure.
        columns: of the rows that it emits, with their types.
        key: names of the key columns an input, for operators with keyed state; positions that have no name are left out.
        connector: the class of its source or sink; None: it is neither.
        is_source: whether rows come from outside here.
        is_sink: whether rows leave here.
        file: of the pipeline's text that it comes from; None: it has no place in a text.
        line: there, from 1.
        column: there, from 1, in code points.
        kind: what it is, such as `Calc` or `WindowJoin`.
        facts: those of its settings by which rows come out, wait or go, such as `condition` or `ttl_ms`.
    """

    operator_id: str
    name: str
    uid: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    key: tuple[tuple[str, ...], ...] = ()
    connector: str | None = None
    is_source: bool = False
    is_sink: bool = False
    file: str | None = None
    line: int | None = None
    column: int | None = None
    kind: str = ""
    facts: Mapping[str, Setting] = field(default_factory=dict)


@record
class ExchangeDescription:
    """Rows between two vertices.

    Attributes:
        exchange_id: of the data set.
        source: vertex id of who writes it.
        target: vertex id of who reads it.
        input_index: of the target's inputs.
        partitioner: how rows are dealt out, such as `HASH[user_id]`.
        kind: `pipelined` or `blocking`.
        columns: of its rows, with their types.
        operator_id: of the operator of `source` whose rows they are.
    """

    exchange_id: str
    source: str
    target: str
    input_index: int
    partitioner: str
    kind: str
    columns: tuple[tuple[str, str], ...] = ()
    operator_id: str | None = None


@record
class HistogramSummary:
    """A distribution over the recent values of a histogram.

    Attributes:
        count: values that there were in all.
        median: of the recent ones.
        p95: their 95th percentile.
        p99: their 99th percentile.
    """

    count: int
    median: float
    p95: float
    p99: float


@record
class OperatorMetrics:
    """What one operator of one subtask has counted and measures now."""

    operator_id: str
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float | int | None] = field(default_factory=dict)
    histograms: Mapping[str, HistogramSummary] = field(default_factory=dict)


@record
class SubtaskDetails:
    """One subtask at one moment.

    Attributes:
        subtask: its number, from 0.
        attempt: its number, from 0; each restart is another one.
        attempt_id: unique to it.
        state: of the attempt.
        since_ms: when the attempt reached this state.
        worker: the process that it runs in; None: that of the job manager.
        records_in: rows that entered; for a source those that its head emitted.
        records_out: rows that left to other vertices; for a vertex without outputs those that entered its last operator.
        bytes_in: from other vertices.
        bytes_out: to other vertices.
        watermark: event time that it has reached; None before the first watermark.
        is_at_end: whether event time is over for it: no input comes any more.
        busy_ms_per_s: in about the last second; so are the next two.
        idle_ms_per_s: waiting for input.
        back_pressured_ms_per_s: waiting for room downstream.
        gauges: of the subtask itself.
        operators: in the order of the chain.
        rows: the last ones that it has sent to each exchange that somebody looks at, as JSON texts, the newest last.
    """

    subtask: int
    attempt: int
    attempt_id: str
    state: ExecutionState
    since_ms: int
    worker: str | None = None
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    watermark: int | None = None
    is_at_end: bool = False
    busy_ms_per_s: float = 0.0
    idle_ms_per_s: float = 0.0
    back_pressured_ms_per_s: float = 0.0
    gauges: Mapping[str, float | int | None] = field(default_factory=dict)
    operators: tuple[OperatorMetrics, ...] = ()
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@record
class VertexDetails:
    """One job vertex: what it is, how it stands, and each of its subtasks."""

    status: VertexStatus
    max_parallelism: int
    slot_sharing_group: str
    operators: tuple[OperatorDescription, ...]
    subtasks: tuple[SubtaskDetails, ...]


@record
class RestartedSubtasks:
    """Subtasks of one vertex that ended because of a failure."""

    vertex_id: str
    subtasks: tuple[int, ...]


@record
class FailureRecord:
    """A failure of the job, and what came of it.

    Attributes:
        at_ms: when it became known.
        place: where, as a clause: `operator 'x', subtask 1 of 2, failed while it ran`.
        error: the error with its causes.
        operator: the operator that is to blame; None: no single one.
        vertex_id: of the subtask; None: it happened beside the subtasks.
        subtask: its number, from 0.
        worker: where it ran.
        outcome: `restarted`, `joined` (a restart that was under way took it along) or `failed`: the job ended with it.
        why_failed: why no restart followed; None: one did, or none was to be expected.
        restarted: what was taken down because of it.
        restart_delay_ms: how long the restart waited.
    """

    at_ms: int
    place: str
    error: ErrorValue
    operator: str | None
    vertex_id: str | None
    subtask: int | None
    worker: str | None
    outcome: str
    why_failed: str | None = None
    restarted: tuple[RestartedSubtasks, ...] = ()
    restart_delay_ms: int = 0


@record
class JobDetails:
    """A job at one moment.

    Attributes:
        status: the short form.
        now_ms: the moment, epoch ms.
        parallelism: of the vertex with the most subtasks.
        vertices: in topological order.
        exchanges: between them.
        checkpoints: that are under way or have ended, oldest first; the last ones.
        failures: oldest first; the last ones.
        settings: of the job by name, such as `checkpoint.interval_ms`; None: it is off, or follows from something else.
    """

    status: JobStatus
    now_ms: int
    parallelism: int
    vertices: tuple[VertexDetails, ...]
    exchanges: tuple[ExchangeDescription, ...]
    checkpoints: tuple[CheckpointRecord, ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
