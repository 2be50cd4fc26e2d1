"""What the dispatcher of a session cluster and its task managers say to each other.

A session cluster runs many jobs. Each has a job manager process of its own, on the dispatcher's machine, and each slot that it is given is
a worker process of its own, which is the child of a task manager. Worker and job manager then speak `flowrun.runtime.cluster_messages`, as
they do in a cluster of one job.

| endpoint | where | contract |
|---|---|---|
| `session-resources` | dispatcher | `SessionResourcesGateway` |
| `task-manager` | task manager | `TaskManagerGateway` |
"""

from __future__ import annotations

from typing import Protocol

from flowrun.core.record import record

DISPATCHER_ROLE = "dispatcher"
"""As which a dispatcher introduces itself: a task manager that meets one offers slots to many jobs."""
SESSION_RESOURCES = "session-resources"
TASK_MANAGER = "task-manager"


@record
class TaskManagerRegistration:
    """A task manager offers its slots to the jobs of a session.

    Attributes:
        name: unique in the cluster.
        pid: of its process.
        host: of that process, for people.
        slots: how many it has.
    """

    name: str
    pid: int
    host: str
    slots: int


@record
class WorkerAssignment:
    """Slots of a task manager that are given to a job.

    Attributes:
        worker: name of the process that is to run subtasks in them; unique in the cluster, without spaces.
        job_manager: address of the job's job manager; its host may be one that only means "this machine".
        slots: how many.
    """

    worker: str
    job_manager: str
    slots: int


class SessionResourcesGateway(Protocol):
    """What a task manager calls."""

    def register_task_manager(self, registration: TaskManagerRegistration) -> None:
        """Offer slots; once a connection, before anything else."""
        ...

    def report_worker_end(self, worker: str, how: str, failed: bool) -> None:
        """A worker process is over, and its slots are free.

        Args:
            worker: its name.
            how: it ended, as a clause.
            failed: whether it did not end because its job manager was gone.
        """
        ...


class TaskManagerGateway(Protocol):
    """What the dispatcher calls."""

    def start_worker(self, assignment: WorkerAssignment) -> None:
        """Have a new process serve a job manager; it ends with the connection to that."""
        ...

    def forget_job_manager(self, job_manager: str) -> None:
        """A job manager at this address is no more: delete what its workers have left."""
        ...
