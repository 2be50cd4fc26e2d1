"""A job that does what a control endpoint asks of it, step by step as a test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from flowrun.core.elements import CheckpointKind
from flowrun.errors import JobFailedError, StateError
from flowrun.rest.doors import Door
from flowrun.rest.endpoint import JobEndpoint, open_endpoint
from flowrun.runners import control
from flowrun.runners.job_document import JobDocument
from flowrun.runners.registry import JobRegistry
from flowrun.runtime.checkpoint.events import CheckpointFigures, CheckpointsStatus
from flowrun.runtime.checkpoint.records import CheckpointRecord
from flowrun.runtime.job_details import (
    ExchangeDescription,
    FailureRecord,
    JobDetails,
    OperatorDescription,
    OperatorMetrics,
    SubtaskDetails,
    VertexDetails,
)
from flowrun.runtime.job_status import JobResult, JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState, JobState


class FakeTicket:
    """A ticket that the test answers."""

    def __init__(self) -> None:
        self._answered = threading.Event()
        self._path = ""
        self._failure: StateError | None = None

    def succeed(self, path: str) -> None:
        self._path = path
        self._answered.set()

    def fail(self, reason: str, hint: str | None = None) -> None:
        self._failure = StateError(reason, hint=hint)
        self._answered.set()

    @property
    def is_answered(self) -> bool:
        return self._answered.is_set()

    def wait(self, timeout_ms: float | None = None) -> str:
        assert self._answered.is_set()
        if self._failure is not None:
            raise self._failure
        return self._path


class FakeJob:
    """Records what it is asked, and answers as it is told."""

    def __init__(self, job_id: str = "0123456789abcdef", *, takes_checkpoints: bool = True) -> None:
        self.job_id = job_id
        self.asked: list[tuple[object, ...]] = []
        self.tickets: list[FakeTicket] = []
        self.state = JobState.RUNNING
        self.refusal: StateError | None = None
        self.answer_with: str | None = None
        self.restarts = 2
        self.waits_for: str | None = None
        self.failure: FailureRecord | None = None
        self._takes_checkpoints = takes_checkpoints
        self.checkpoint_root = "/state" if takes_checkpoints else None

    def status(self) -> JobStatus:
        last = CheckpointFigures(7, CheckpointKind.CHECKPOINT, "/state/chk-7", 1_000, 12.5, 2_000, 100, 1.0, 2.0)
        checkpoints = CheckpointsStatus(completed=7, failed=1, last=last) if self._takes_checkpoints else None
        vertices = (
            VertexStatus("s", "source", 1, {ExecutionState.RUNNING: 1}, records_in=6_000),
            VertexStatus("k", "sink", 1, {ExecutionState.RUNNING: 1}, records_in=5_000),
        )
        about = {"restarts": self.restarts, "waits_for": self.waits_for}
        return JobStatus(self.job_id, "orders", self.state, 0, 2_000, vertices, checkpoints, **about)  # type: ignore[arg-type]

    def details(self) -> JobDetails:
        status = self.status()
        vertices = tuple(_vertex(vertex) for vertex in status.vertices)
        exchange = ExchangeDescription("x", "s", "k", 0, "HASH[user_id]", "pipelined", (("user_id", "BIGINT"),))
        checkpoint = CheckpointRecord(7, "checkpoint", "completed", 1_000, 12.5, 2, 2, "/state/chk-7")
        failures = () if self.failure is None else (self.failure,)
        settings = {"checkpoint.interval_ms": 1_000}
        return JobDetails(status, 2_000, 1, vertices, (exchange,), (checkpoint,), failures, settings)

    def stop(self, drain: bool = False) -> None:
        self.asked.append(("stop", drain))
        self.state = JobState.FINISHED

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        if self.state is JobState.FAILED:
            raise JobFailedError("job 'orders' failed: no space", hint="make room")
        if not self.state.is_terminal:
            return None
        return JobResult(self.job_id, "orders", self.state, 2_000, (), {}, stopped_at=self.answer_with)

    def cancel(self) -> None:
        self.asked.append(("cancel",))
        self.state = JobState.CANCELED

    def sample_rows(self, exchange: str, for_ms: int) -> None:
        self.asked.append(("sample", exchange, for_ms))

    def rescale(self, parallelism: int) -> FakeTicket:
        self.asked.append(("rescale", parallelism))
        if self.refusal is not None:
            raise self.refusal
        self.tickets.append(FakeTicket())
        return self.tickets[-1]

    def take_snapshot(
        self, directory: str | None = None, *, savepoint: bool = True, stop: bool = False, drain: bool = False
    ) -> FakeTicket:
        self.asked.append(("snapshot", directory, savepoint, stop, drain))
        if self.refusal is not None:
            raise self.refusal
        self.tickets.append(FakeTicket())
        if self.answer_with is not None:
            self.tickets[-1].succeed(self.answer_with)
            self.state = JobState.FINISHED if stop else self.state
        return self.tickets[-1]


def _vertex(status: VertexStatus) -> VertexDetails:
    operator = OperatorDescription(f"{status.vertex_id}-1", status.name, columns=(("user_id", "BIGINT"),))
    metrics = OperatorMetrics(operator.operator_id, {"numLateRecordsDropped": 1}, {"lag": None})
    subtask = SubtaskDetails(0, 0, f"{status.vertex_id}-0", ExecutionState.RUNNING, 1_000, operators=(metrics,))
    return VertexDetails(status, 128, "default", (operator,), (subtask,))


@contextmanager
def controlled(
    job: FakeJob,
    folder: Path,
    *,
    name: str = "orders",
    file: str | None = None,
    checkpoints: bool = True,
    savepoints: str | None = None,
    document: JobDocument | None = None,
    door: Door | None = None,
) -> Iterator[JobEndpoint]:
    """The job with its endpoint, registered in `folder`."""
    endpoint = open_endpoint(
        job,
        name=name,
        file=file or f"{name}.yaml",
        sources=frozenset({"s"}),
        checkpoints=checkpoints,
        savepoints=savepoints,
        document=document,
        door=door,
        registry=JobRegistry([folder]),
    )
    try:
        yield endpoint
    finally:
        with patch.object(control, "LINGER_MS", 0):  # no page looks on that is to see the end
            endpoint.close()
