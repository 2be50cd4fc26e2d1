"""The jobs of a session cluster, as the REST API serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from flowrun.core.recent_logs import LogLines
from flowrun.core.record import record
from flowrun.errors import ClusterError, StateError
from flowrun.rest.served import ServedJob
from flowrun.runners.control import Json, Order
from flowrun.runners.job_document import JobDocument
from flowrun.runners.session.dispatcher import Dispatcher
from flowrun.runners.session.messages import JobSubmission
from flowrun.runtime.cluster.job_files import NO_FILES
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_progress import JobProgress


@record(eq=False)
class DispatcherJobs:
    """The `ServedJobs` of a dispatcher."""

    dispatcher: Dispatcher

    def jobs(self) -> Sequence[ServedJob]:
        """See `ServedJobs`."""
        return [_DispatcherJob(self.dispatcher, job_id) for job_id in self.dispatcher.job_ids()]

    def job(self, job_id: str) -> ServedJob | None:
        """See `ServedJobs`."""
        return _DispatcherJob(self.dispatcher, job_id) if self.dispatcher.has_job(job_id) else None

    def check_takes_jobs(self) -> None:
        """A cluster takes jobs."""

    def submit(self, submission: JobSubmission) -> str:
        """See `ServedJobs`."""
        return self.dispatcher.submit(submission, NO_FILES.read_file)


@record(eq=False)
class _DispatcherJob:
    """One job; see `ServedJob`."""

    dispatcher: Dispatcher
    job_id: str

    def describe(self) -> Mapping[str, Json]:
        """See `ServedJob`."""
        return cast(Mapping[str, Json], self.dispatcher.describe_job(self.job_id))

    def details(self, *, within_ms: int | None = None) -> JobDetails:
        """See `ServedJob`."""
        try:
            return self.dispatcher.job_details(self.job_id, within_ms)
        except StateError as error:
            raise _not_yet(error) from error

    def watch(self) -> JobProgress:
        """See `ServedJob`."""
        return self.dispatcher.watch_job(self.job_id)

    def document(self) -> JobDocument | None:
        """See `ServedJob`."""
        try:
            return self.dispatcher.job_document(self.job_id)
        except StateError as error:
            raise _not_yet(error) from error

    def logs(self, after: int = 0) -> LogLines:
        """See `ServedJob`."""
        return self.dispatcher.job_logs(self.job_id, after)

    def place(self, order: Order) -> str:
        """See `ServedJob`."""
        if self.dispatcher.is_over(self.job_id):
            raise StateError("the job is over", hint="`flowrun run` or `flowrun resume` starts it again")
        return self.dispatcher.place_order(self.job_id, order)

    def answer(self, number: str) -> Mapping[str, Json] | None:
        """See `ServedJob`."""
        return cast("Mapping[str, Json] | None", self.dispatcher.answer_order(self.job_id, number))

    def delivered(self, number: str) -> None:
        """The job's process counts an answer as delivered when the dispatcher has it."""


def _not_yet(error: StateError) -> ClusterError:
    """The job is being compiled: whoever looks comes too early, and does nothing wrong."""
    return ClusterError(error.message, hint=error.hint)
