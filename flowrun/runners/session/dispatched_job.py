"""A job as its dispatcher knows it, and what it can tell of it when the job's process does not."""

from __future__ import annotations

import threading
from dataclasses import field

from flowrun.api.source import JsonValue
from flowrun.core.record import record
from flowrun.runners.session.messages import NOTHING_REMAINS, JobProcess, JobRemains, JobSubmission
from flowrun.runtime.cluster.job_files import JobFiles
from flowrun.runtime.job_details import FailureRecord, JobDetails
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.rpc.connection import RpcConnection


@record(eq=False, frozen=False)
class DispatchedJob:
    """A job, from its submission on. Guarded by the dispatcher's lock, but for `reachable`."""

    job_id: str
    submission: JobSubmission
    files: JobFiles
    started_ms: int
    last: JobProgress
    reachable: threading.Event
    """Set while its job manager process is connected, and when the job is over."""
    pid: int = 0
    attempt: int = 0
    """Of its present process."""
    since_ms: int | None = None
    losses: int = 0
    """Processes that died since the last checkpoint that one of them went on from."""
    checkpoint_id: int = 0
    """From which the present process goes on."""
    connection: RpcConnection | None = None
    orders: dict[str, str] = field(default_factory=dict)
    """Kind of each order that its present process has taken."""
    told: JsonValue = None
    """How its present process described it last."""
    description: JsonValue = None
    """The last one, once the job is over."""
    remains: JobRemains = NOTHING_REMAINS
    """What its process has told of it at its end."""

    @property
    def is_over(self) -> bool:
        return self.last.is_over

    @property
    def process(self) -> JobProcess:
        """The present one, which may be on its way."""
        return JobProcess(self.job_id, self.attempt)

    def outline(self) -> JsonValue:
        """What is known of a job whose process does not tell."""
        failure = self.last.failure
        return {
            "job_id": self.job_id,
            "name": self.submission.name,
            "file": self.submission.text.pipeline.file_name,
            "pid": self.pid,
            "state": self.last.status.state.value,
            "started_ms": self.started_ms,
            "running_ms": None,
            "rows_read": None,
            "rows_per_s": None,
            "restarts": None,
            "checkpoints": None,
            "failure": None if failure is None else failure.links[0].message,
        }

    def last_answer(self, order_id: str) -> JsonValue:
        """What became of an order, now that the job is over and its process does not tell any more."""
        kind = self.orders.get(order_id)
        if kind is None:
            return None
        result, state = self.last.result, self.last.status.state.value
        if kind in ("stop", "cancel"):
            return {"state": "done", "path": None if result is None else result.stopped_at, "job_state": state}
        return {"state": "failed", "message": f"the job is {state}: that came first", "hint": None}

    def last_details(self, now_ms: int) -> JobDetails:
        """The job at its end; of one whose process was lost, or that never began, only why."""
        if self.remains.details is not None:
            return self.remains.details
        failure = self.last.failure
        failures = (
            ()
            if failure is None
            else (FailureRecord(now_ms, "the job's own process", failure, None, None, None, None, "failed"),)
        )
        parallelism = max((v.parallelism for v in self.last.status.vertices), default=1)
        return JobDetails(self.last.status, now_ms, parallelism, (), (), (), failures)
