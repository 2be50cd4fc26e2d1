"""What a job manager and the processes that run its subtasks say to each other, beside what each job does (`messages`).

All messages are frozen values of plain data. One control connection a worker carries all calls, in order:

| endpoint | where | contract |
|---|---|---|
| `resource-manager` | job manager | `ResourceManagerGateway` |
| `job-master/ID` | job manager | `JobMasterGateway` |
| `job-observer/ID` | job manager | `JobObserverGateway` |
| `job-files/ID` | job manager | `JobFilesGateway` |
| `task-executor` | worker | `WorkerGateway` |
| `tasks/ID` | worker | `TaskExecutorGateway` of one job |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.runtime.metric_reports import MetricsReport
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.descriptor import StorageDescriptor

RESOURCE_MANAGER = "resource-manager"
TASK_EXECUTOR = "task-executor"


def job_master_endpoint(job_id: str) -> str:
    """Where subtasks report to."""
    return f"job-master/{job_id}"


def job_observer_endpoint(job_id: str) -> str:
    """Where workers tell how the subtasks of a job do."""
    return f"job-observer/{job_id}"


def job_files_endpoint(job_id: str) -> str:
    """Where workers get the files of a job."""
    return f"job-files/{job_id}"


def tasks_endpoint(job_id: str) -> str:
    """Where a worker takes calls for the subtasks of one job."""
    return f"tasks/{job_id}"


@record
class WorkerRegistration:
    """A worker offers its slots.

    Attributes:
        worker: its name, unique in the cluster.
        pid: its process.
        host: of that process, for people.
        data_address: of its data server.
        slots: how many it has.
        resources: what they divide among them.
        host_folder: names the folder where its blocking partitions outlive it; workers with the same one read them. Empty: they do not.
    """

    worker: str
    pid: int
    host: str
    data_address: str
    slots: int
    resources: ResourceProfile = ResourceProfile()
    host_folder: str = ""


@record
class JobFile:
    """A file that travels with a job, by what it contains.

    Attributes:
        path: below the folder of the pipeline, with `/`.
        digest: SHA-256 of the content, 64 hexadecimal digits; `JobFilesGateway` gives the content for it.
        size: bytes.
    """

    path: str
    digest: str
    size: int


@record
class JobText:
    """A job as it travels to processes that did not compile it: they compile it again, to the same job graph.

    Attributes:
        pipeline: its text, and what the command line added.
        secrets: name → value of what `pipeline.withheld` names. They go over authenticated connections only, and are not stored.
        files: the Python modules beside the pipeline that it needs. Functions are imported from these, and from installed packages.
    """

    pipeline: PipelineText
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[JobFile, ...] = ()


@record
class JobOpening:
    """A job of which a worker is about to get subtasks.

    Attributes:
        job_id: the run.
        job_name: for people.
        fingerprint: of the job graph: that which the worker compiles must have the same; None: it has inherited the job graph.
        max_parallelism: vertex → key groups, where they are those of the state that the job restores from.
        not_before_ms: processing time is not before this, epoch ms: the state that the job goes on from is of that time.
        storage: where snapshots are written and read; None: nowhere.
        text: that the worker compiles; None: it has inherited the job graph.
        parallelism: the greatest of its vertices.
        workers_here: how many workers the job's cluster has on the worker's machine, itself among them.
    """

    job_id: str
    job_name: str
    fingerprint: str | None
    max_parallelism: tuple[tuple[str, int], ...] = ()
    not_before_ms: int = 0
    storage: StorageDescriptor | None = None
    text: JobText | None = None
    parallelism: int = 1
    workers_here: int = 1


@record
class JobClosed:
    """What a worker says when it has freed what a job had.

    Attributes:
        metrics: the last ones.
        buffers: network buffer slots of the process.
        free_buffers: those that nobody has.
    """

    metrics: MetricsReport = MetricsReport()
    buffers: int = 0
    free_buffers: int = 0


class ResourceManagerGateway(Protocol):
    """What a worker calls."""

    def register_worker(self, registration: WorkerRegistration) -> None:
        """Offer slots; once a connection, before anything else."""
        ...


class JobObserverGateway(Protocol):
    """What a worker tells the job master of beside what subtasks do."""

    def report_metrics(self, worker: str, report: MetricsReport) -> None:
        """Present values of all metrics of the job in that worker; now and then, and at the end of each subtask before its last state."""
        ...


class JobFilesGateway(Protocol):
    """Where a worker gets what it does not have of a job."""

    def read_file(self, digest: str) -> bytes:
        """The content of a file that the job's text lists. Waits for the answer.

        Raises:
            ClusterError: no file of the job has this digest.
        """
        ...


class WorkerGateway(Protocol):
    """What the job manager calls."""

    def open_job(self, opening: JobOpening) -> None:
        """Get ready for subtasks of a job: calls for them wait until it is. If that fails, each deployment reports why."""
        ...

    def describe_stuck(self, job_id: str, attempt_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Which of these subtasks still run, and where their threads are. Waits for the answer."""
        ...

    def close_job(self, job_id: str, stuck: tuple[str, ...]) -> JobClosed:
        """Join the threads of a job but those of `stuck` attempts, and free what it had. Waits for the answer."""
        ...
