"""What clients, the dispatcher and the job manager processes of a session cluster say to each other.

    flowrun run --cluster ──RPC──▶ dispatcher ──fork──▶ job manager process of a job ◀──RPC── worker processes
                                       ◀──────RPC──────────┘

| endpoint | where | contract |
|---|---|---|
| `dispatcher` | dispatcher | `DispatcherGateway`, for clients: they submit jobs, and ask the REST API for all else |
| `files` | client | `JobFilesGateway`: those of the job that it submits |
| `jobs` | dispatcher | `JobsGateway`, for job manager processes |
| `job-manager` | job manager process | `JobManagerGateway` |
"""

from __future__ import annotations

from typing import Protocol

from flowrun.api.source import JsonValue
from flowrun.core.recent_logs import LogLines
from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runners.control import Order
from flowrun.runners.job_document import JobDocument
from flowrun.runners.rest_requests import RestReply
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_progress import JobProgress

CLIENT_ROLE = "client"
JOB_MANAGER_ROLE = "jobmanager"
DISPATCHER = "dispatcher"
FILES = "files"
JOBS = "jobs"
JOB_MANAGER = "job-manager"


@record
class JobProcess:
    """A job manager process, of which a job has one at a time; as text it is the name of the process.

    Attributes:
        job_id: of its job.
        attempt: the first process of a dispatcher for the job is 1; what one says after the next was started is refused.
    """

    job_id: str
    attempt: int

    def __str__(self) -> str:
        """The name of the process.

        >>> str(JobProcess("5f", 2)), JobProcess.named("5f.2")
        ('5f.2', JobProcess(job_id='5f', attempt=2))
        """
        return f"{self.job_id}.{self.attempt}"

    @classmethod
    def named(cls, name: str) -> JobProcess:
        """The process of that name. Raises ClusterError: it is none."""
        job_id, _, attempt = name.rpartition(".")
        if not job_id or not attempt.isdecimal():
            raise ClusterError(f"'{name}' is not the name of a job manager process")
        return cls(job_id, int(attempt))


@record
class JobSubmission:
    """A job that a client hands in.

    Attributes:
        name: of the job.
        text: that is compiled again wherever the job runs.
        fingerprint: of the job graph that the client has compiled: all processes must come to the same.
        restore_from: a savepoint or checkpoint, as an absolute path or a URI; None: the job starts without state.
        allow_non_restored: whether state of operators that the pipeline no longer has is dropped.
        committed_after: the value of an `AfterRestore`.
        slots: that it needs when it begins, so that workers can start while it is compiled; 0: that is known only then.
        upgrade: the id of the upgrade that it is a part of, as the record in the job's folder tells; empty: it is a job by itself.
    """

    name: str
    text: JobText
    fingerprint: str
    restore_from: str | None = None
    allow_non_restored: bool = False
    committed_after: str = "refuse"
    slots: int = 0
    upgrade: str = ""


@record
class JobRunOrder:
    """What a job manager process is to run.

    Attributes:
        job_id: of the job, however often its process is replaced.
        submission: the job.
        since_ms: a checkpoint in the job's folder that was triggered at or after this time, epoch ms, is of an earlier process of the
            same job, which was lost: the job goes on from there. None: this is the first process.
    """

    job_id: str
    submission: JobSubmission
    since_ms: int | None = None


@record
class JobRemains:
    """What can be looked at of a job that is over, without its secrets.

    Attributes:
        details: at its end; None: it never began.
        document: its text; None: it never began.
    """

    details: JobDetails | None = None
    document: JobDocument | None = None


NOTHING_REMAINS = JobRemains()


@record
class JobSummary:
    """A job as a dispatcher lists it.

    Attributes:
        job_id: unique in the cluster.
        name: of the pipeline.
        file: the pipeline's file, for people.
        pid: of its job manager process on the dispatcher's machine; 0 if there is none now.
        started_ms: when it was submitted, epoch ms.
        state: the value of a `JobState`.
    """

    job_id: str
    name: str
    file: str
    pid: int
    started_ms: int
    state: str


@record
class RestPlace:
    """Where a cluster serves its REST API.

    Attributes:
        url: of the page.
        token: that requests carry; None: it is in a file of the user.
    """

    url: str
    token: str | None = None


class DispatcherGateway(Protocol):
    """What a client calls."""

    def rest_place(self) -> RestPlace | None:
        """Where the REST API listens; None: it does not yet."""
        ...

    def submit(self, submission: JobSubmission) -> str:
        """Run a job; gives its id. The files that its text lists are asked for meanwhile."""
        ...

    def ask(self, method: str, path: str, body: bytes | None) -> RestReply:
        """What the REST API answers to a request that comes with the cluster's secret or a certificate, in place of a token."""
        ...


class JobsGateway(Protocol):
    """What a job manager process calls."""

    def fetch_job(self) -> JobRunOrder:
        """The job that it is to run. Waits for the answer."""
        ...

    def read_file(self, digest: str) -> bytes:
        """A file that the job's text lists; see `JobFilesGateway`. Waits for the answer."""
        ...

    def require_slots(self, job_manager: str, slots: int, checkpoint_id: int) -> None:
        """The job needs so many slots, whose workers connect to `job_manager`. It goes on from that checkpoint of its own; 0: from none."""
        ...

    def rescale_job(self, text: JobText, fingerprint: str) -> None:
        """The job goes on at another parallelism, and so would another process: its text and the fingerprint of its job graph now."""
        ...

    def end_job(self, last: JobProgress, description: JsonValue, remains: JobRemains) -> bool:
        """The job is over; the last thing that this process says. Gives True, so that the caller knows that it was heard."""
        ...


class JobManagerGateway(Protocol):
    """What the dispatcher calls."""

    def describe(self) -> JsonValue:
        """The job as JSON; see `JobControl.describe`."""
        ...

    def document(self) -> JobDocument | None:
        """The text of the job, without secrets; see `JobControl.document`."""
        ...

    def logs(self, after: int) -> LogLines:
        """The last lines of this process's log; see `JobControl.logs`."""
        ...

    def details(self) -> JobDetails:
        """The job in full."""
        ...

    def watch(self) -> JobProgress:
        """How the job stands."""
        ...

    def place(self, order: Order) -> str:
        """Have an order carried out; see `JobControl.place`."""
        ...

    def answer(self, order_id: str) -> JsonValue:
        """What became of an order; see `JobControl.answer`."""
        ...
