"""How a job stands at one moment, or how it has ended, as another process is told."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.rpc.error_values import ErrorValue


@record
class JobProgress:
    """A job at one moment, or at its end.

    Attributes:
        status: how it stands; the last one if it is over.
        result: of a job that finished or was cancelled.
        failure: of a job that failed.
    """

    status: JobStatus
    result: JobResult | None = None
    failure: ErrorValue | None = None

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.result is not None or self.failure is not None
