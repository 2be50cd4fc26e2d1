"""What the REST API asks of whoever has the jobs: the process of one job, or a dispatcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from flowrun.core.record import record
from flowrun.errors import StateError

if TYPE_CHECKING:
    from flowrun.core.recent_logs import LogLines
    from flowrun.runners.control import JobControl, Json, Order
    from flowrun.runners.job_document import JobDocument
    from flowrun.runners.session.messages import JobSubmission
    from flowrun.runtime.job_details import JobDetails
    from flowrun.runtime.job_progress import JobProgress


class ServedJob(Protocol):
    """One job. All methods are thread-safe and may block for a round trip to the job's process.

    They raise StateError for what the job refuses, and ClusterError if it cannot be reached.
    """

    def describe(self) -> Mapping[str, Json]:
        """See `JobControl.describe`."""
        ...

    def details(self, *, within_ms: int | None = None) -> JobDetails:
        """See `JobControl.details`."""
        ...

    def watch(self) -> JobProgress:
        """See `JobControl.watch`."""
        ...

    def document(self) -> JobDocument | None:
        """See `JobControl.document`."""
        ...

    def logs(self, after: int = 0) -> LogLines:
        """See `JobControl.logs`."""
        ...

    def place(self, order: Order) -> str:
        """See `JobControl.place`."""
        ...

    def answer(self, number: str) -> Mapping[str, Json] | None:
        """See `JobControl.answer`."""
        ...

    def delivered(self, number: str) -> None:
        """See `JobControl.delivered`."""
        ...


class ServedJobs(Protocol):
    """The jobs of a process."""

    def jobs(self) -> Sequence[ServedJob]:
        """All of them, oldest first."""
        ...

    def job(self, job_id: str) -> ServedJob | None:
        """The job of that id; None: there is none."""
        ...

    def check_takes_jobs(self) -> None:
        """Pass if this process takes other jobs. Raises StateError: it does not."""
        ...

    def submit(self, submission: JobSubmission) -> str:
        """Run another job; gives its id. Raises StateError as `check_takes_jobs`, and ClusterError: it was not taken."""
        ...


@record(eq=False)
class OneJob:
    """The `ServedJobs` of a process that runs one job."""

    job_id: str
    control: JobControl

    def jobs(self) -> Sequence[ServedJob]:
        """See `ServedJobs`."""
        return (self.control,)

    def job(self, job_id: str) -> ServedJob | None:
        """See `ServedJobs`."""
        return self.control if job_id == self.job_id else None

    def check_takes_jobs(self) -> NoReturn:
        """See `ServedJobs`."""
        raise StateError(
            "this process runs one job, and takes no others", hint="submit it to a cluster: flowrun cluster up"
        )

    def submit(self, submission: JobSubmission) -> str:
        """See `ServedJobs`."""
        self.check_takes_jobs()
