"""Asks a REST API for one job: of another process of the same user on this machine, or of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

from flowrun.errors import ClusterError
from flowrun.runners.control import Json
from flowrun.runners.http_requests import HttpRequests, RestAddress
from flowrun.runners.job_document import JobDocument
from flowrun.runners.registry import LOOPBACK, JobEntry
from flowrun.runners.rest_requests import RestRequests, answer_of, answered
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_progress import JobProgress

_LOCAL_TIMEOUT_S = 10.0


class ListedJob(Protocol):
    """A job as it is listed."""

    @property
    def job_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def started_ms(self) -> int: ...


class JobClient:
    """One job. All methods block for a round trip and raise ClusterError if the job cannot be reached.

    Args:
        requests: to the REST API that serves it.
        entry: the job.
    """

    def __init__(self, requests: RestRequests, entry: ListedJob) -> None:
        self.entry = entry
        self._requests = requests
        self._path = f"/v1/jobs/{entry.job_id}"

    def describe(self) -> Mapping[str, Json]:
        """The job at this moment, as `JobControl.describe` gives it."""
        return self._get("")

    def why(self) -> Mapping[str, Json]:
        """Findings about the job at this moment, as JSON: `summary` and `findings` (see `flowrun.runners.why.finding`)."""
        return self._get("/why")

    def document(self) -> JobDocument | None:
        """The text of the job; None: it is not known there."""
        from flowrun.core.typed_values import to_kind

        reply = self._requests.ask("GET", f"{self._path}/text")
        return None if reply.status == HTTPStatus.NOT_FOUND else to_kind(answer_of(reply), JobDocument)

    def details(self) -> JobDetails:
        """The job at this moment in full."""
        from flowrun.core.typed_values import to_kind

        return to_kind(self._get("/overview")["details"], JobDetails)

    def watch(self) -> JobProgress:
        """How the job stands, or how it has ended."""
        from flowrun.core.typed_values import to_kind

        return to_kind(self._get("/progress"), JobProgress)

    def place(
        self, kind: str, directory: str | None = None, *, drain: bool = False, parallelism: int | None = None
    ) -> str:
        """Have an order carried out (see `flowrun.runners.control.Order`); gives its id.

        Raises:
            StateError: the job refuses, and why.
        """
        order: dict[str, Json] = {"kind": kind, "directory": directory, "drain": drain}
        if parallelism is not None:
            order["parallelism"] = parallelism
        return str(answered(self._requests, "POST", f"{self._path}/orders", order)["order"])

    def sample(self, exchange: str, seconds: int) -> str:
        """Have the last rows of an exchange kept for so long; gives the id of the order. Raises as `place`."""
        body: dict[str, Json] = {"exchange": exchange, "seconds": seconds}
        return str(answered(self._requests, "POST", f"{self._path}/samples", body)["order"])

    def answer(self, order: str) -> Mapping[str, Json]:
        """What became of an order; see `JobControl.answer`."""
        return self._get(f"/orders/{order}")

    def _get(self, part: str) -> Mapping[str, Json]:
        return answered(self._requests, "GET", self._path + part)


def client_of(entry: JobEntry) -> JobClient:
    """The client of a job of this user on this machine."""
    return JobClient(_JobRequests(entry), entry)


class _JobRequests(HttpRequests):
    """Asks the process of a job."""

    def __init__(self, entry: JobEntry) -> None:
        super().__init__((RestAddress(LOOPBACK, entry.port),), (entry.token,), timeout_s=_LOCAL_TIMEOUT_S)
        self._entry = entry

    def silent(self, place: RestAddress) -> ClusterError:
        """See `HttpRequests`."""
        return ClusterError(
            f"job {self._entry.job_id} (process {self._entry.pid}) does not answer",
            hint="it may be suspended: look at its terminal",
        )

    def gone(self, place: RestAddress, error: Exception) -> ClusterError:
        """See `HttpRequests`."""
        return ClusterError(
            f"job {self._entry.job_id} ('{self._entry.name}', process {self._entry.pid}) is gone",
            hint="`flowrun jobs` lists what runs",
        )
