"""What the REST API takes and gives: JSON objects, as records whose schemas the OpenAPI document has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from flowrun.core.record import record
from flowrun.core.typed_values import to_kind
from flowrun.runners.control import Json, Order
from flowrun.runners.why.finding import Finding
from flowrun.runtime.checkpoint.events import CheckpointsStatus
from flowrun.runtime.checkpoint.records import CheckpointRecord
from flowrun.runtime.job_details import ExchangeDescription, FailureRecord, JobDetails, OperatorDescription, Setting
from flowrun.runtime.job_status import VertexStatus

Text = Annotated[str, Meta(min_length=1, max_length=4_096)]


@record
class LastCheckpoint:
    """A checkpoint or savepoint that was completed. Times in epoch ms.

    Attributes:
        id: its number.
        kind: `checkpoint` or `savepoint`.
        path: from which a job can be resumed.
        triggered_ms: when.
        duration_ms: from then until it was complete.
        state_bytes: that were written for it.
    """

    id: int
    kind: str
    path: str
    triggered_ms: int
    duration_ms: float
    state_bytes: int


@record
class CheckpointCounts:
    """Of a run of a job.

    Attributes:
        completed: how many.
        failed: how many.
        in_progress: how many now.
        last_failure: why the last one that failed did.
        last: that was completed.
    """

    completed: int
    failed: int
    in_progress: int
    last_failure: str | None = None
    last: LastCheckpoint | None = None


@record
class JobAnswer:
    """A job at one moment. What is not known now, as its process is being started, is null.

    Attributes:
        job_id: unique.
        name: of the pipeline.
        file: of the pipeline, for people.
        pid: of the process of its job master; 0: there is none now.
        state: `created`, `running`, `restarting`, `finished`, `canceled`, `failed` and the like.
        started_ms: epoch ms.
        running_ms: for how long its present execution runs.
        rows_read: by all sources.
        rows_per_s: of those, on average.
        restarts: how many.
        slots: that it has.
        waits_for: before it can run.
        watermark: of the slowest subtask, epoch ms; null: there is none yet.
        folder: of its checkpoints; null: it takes none.
        takes_versions: whether `flowrun apply` can put another version of its pipeline in its place.
        checkpoints: null: it takes none.
        failure: why it failed, if its process never began with it, or was lost.
    """

    job_id: str
    name: str
    file: str
    pid: int
    state: str
    started_ms: int
    running_ms: int | None = None
    rows_read: int | None = None
    rows_per_s: float | None = None
    restarts: int | None = None
    slots: int | None = None
    waits_for: str | None = None
    watermark: int | None = None
    folder: str | None = None
    takes_versions: bool | None = None
    checkpoints: CheckpointCounts | None = None
    failure: str | None = None


@record
class JobsAnswer:
    """The jobs of a process, oldest first."""

    jobs: tuple[JobAnswer, ...]


@record
class OrderRequest:
    """What somebody asks of a job.

    Attributes:
        kind: what to do.
        directory: for savepoints; null: the job's own. A `stop` without one ends with a checkpoint.
        drain: `stop` lets event time end, so that open windows fire.
        parallelism: to which `rescale` takes the job.
    """

    further: ClassVar[Mapping[str, object]] = {
        "if": {"properties": {"kind": {"const": "rescale"}}},
        "then": {"required": ["parallelism"], "properties": {"parallelism": {"type": "integer"}}},
        "else": {"properties": {"parallelism": {"type": "null"}}},
    }
    """What the schema says besides: how the parts fit together, as `order` checks it."""

    kind: Literal["savepoint", "stop", "cancel", "rescale"]
    directory: Text | None = None
    drain: bool = False
    parallelism: Annotated[int, Meta(ge=1, le=32_768)] | None = None

    def order(self) -> Order:
        """The order. Raises ValueError: its parts do not fit together.

        >>> OrderRequest("stop", drain=True).order()
        Order(kind='stop', directory=None, drain=True, parallelism=None, exchange=None, seconds=0)
        """
        if self.kind == "rescale" and self.parallelism is None:
            raise ValueError("'parallelism' says to what a rescale takes the job")
        if self.kind != "rescale" and self.parallelism is not None:
            raise ValueError("'parallelism' goes with rescale")
        return Order(self.kind, self.directory, self.drain, self.parallelism)


@record
class SampleRequest:
    """Whose last rows somebody wants to see: the subtasks of the vertex that writes them have them in their `rows`.

    Attributes:
        exchange: its id, as the graph has it.
        seconds: for how long; 0: not any more.
    """

    exchange: Text
    seconds: Annotated[int, Meta(ge=0, le=300)] = 30

    def order(self) -> Order:
        """The order."""
        return Order("sample", exchange=self.exchange, seconds=self.seconds)


@record
class OrderPlaced:
    """An order that is being carried out: `GET …/orders/{order}` tells what becomes of it."""

    order: str


@record
class OrderAnswer:
    """What became of an order.

    Attributes:
        state: `done` for orders that end a job means that it has ended.
        path: of the checkpoint or savepoint that was taken.
        job_state: after what was done.
        message: why it failed.
        hint: what to do then.
    """

    state: Literal["pending", "done", "failed"]
    path: str | None = None
    job_state: str | None = None
    message: str | None = None
    hint: str | None = None


@record
class Overview:
    """All that a page which shows a job needs each second.

    Attributes:
        job: in short.
        details: vertices with their operators and subtasks, exchanges, checkpoints and failures.
    """

    job: JobAnswer
    details: JobDetails


@record
class GraphVertex:
    """A vertex of a job graph, with its figures now.

    Attributes:
        vertex_id: of it.
        status: sums over its subtasks.
        max_parallelism: its number of key groups.
        slot_sharing_group: of it.
        operators: of its chain.
    """

    vertex_id: str
    status: VertexStatus
    max_parallelism: int
    slot_sharing_group: str
    operators: tuple[OperatorDescription, ...]


@record
class Graph:
    """A job graph: vertices in topological order, and the exchanges between them."""

    vertices: tuple[GraphVertex, ...]
    exchanges: tuple[ExchangeDescription, ...]


@record
class Checkpoints:
    """Checkpoints and savepoints of a job, oldest first; `counts` is null if it takes none."""

    counts: CheckpointsStatus | None
    history: tuple[CheckpointRecord, ...]


@record
class Exceptions:
    """The last failures of a job, oldest first: each with its causes, and what was restarted because of it."""

    failures: tuple[FailureRecord, ...]


@record
class Findings:
    """Why nothing comes out of a job, or slowly.

    Attributes:
        summary: what they amount to; if nothing is wrong, by what one sees that.
        findings: the worst first.
    """

    summary: str
    findings: tuple[Finding, ...]


@record
class Configuration:
    """With what a job runs.

    Attributes:
        settings: by name, such as `checkpoint.interval_ms`; null: it is off, or follows from something else.
        variables: of the command line, without those that are secret.
        overrides: of the command line.
        withheld: names of secret variables.
    """

    settings: Mapping[str, Setting]
    variables: Mapping[str, str]
    overrides: Mapping[str, str]
    withheld: tuple[str, ...]


@record
class Health:
    """Whether the process answers (`/healthz`), or a job of its runs (`/readyz`)."""

    status: Literal["ok", "not ready"]


def job_answer(description: Mapping[str, Json]) -> JobAnswer:
    """A job as it describes itself; see `JobControl.describe`."""
    return to_kind(description, JobAnswer)


def order_answer(answer: Mapping[str, Json]) -> OrderAnswer:
    """What became of an order; see `JobControl.answer`."""
    return to_kind(answer, OrderAnswer)
