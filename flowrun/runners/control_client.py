"""Talks to the REST API of a job in another process of the same user."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping

from flowrun.errors import ClusterError, StateError
from flowrun.runners.control import Json
from flowrun.runners.registry import LOOPBACK, JobEntry
from flowrun.runtime.job_details import JobDetails

_REQUEST_TIMEOUT_S = 10.0
_OK = 300


class JobClient:
    """One job's endpoint. All methods block for a round trip and raise ClusterError if the job cannot be reached."""

    def __init__(self, entry: JobEntry) -> None:
        self.entry = entry
        self._path = f"/v1/jobs/{entry.job_id}"

    def describe(self) -> Mapping[str, Json]:
        """The job at this moment, as `JobControl.describe` gives it."""
        return self._request("GET", self._path)

    def why(self) -> Mapping[str, Json]:
        """Findings about the job at this moment, as JSON: `summary` and `findings` (see `flowrun.runners.why.finding`)."""
        return self._request("GET", f"{self._path}/why")

    def details(self) -> JobDetails:
        """The job at this moment in full."""
        from flowrun.core.typed_values import to_kind

        found = self._request("GET", f"{self._path}/overview")
        return to_kind(found["details"], JobDetails)

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
        return str(self._request("POST", f"{self._path}/orders", order)["order"])

    def answer(self, order: str) -> Mapping[str, Json]:
        """What became of an order; see `JobControl.answer`."""
        return self._request("GET", f"{self._path}/orders/{order}")

    def _request(self, method: str, path: str, body: Mapping[str, Json] | None = None) -> Mapping[str, Json]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.entry.token}"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(LOOPBACK, self.entry.port, timeout=_REQUEST_TIMEOUT_S)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            status, text = response.status, response.read()
        except TimeoutError:
            raise ClusterError(
                f"job {self.entry.job_id} (process {self.entry.pid}) does not answer",
                hint="it may be suspended: look at its terminal",
            ) from None
        except (
            OSError,
            ValueError,
            http.client.HTTPException,
        ):  # ValueError: a part of the head that HTTP does not allow
            raise self._gone() from None
        finally:
            connection.close()
        try:
            found = json.loads(text)
        except ValueError:
            raise self._gone() from None
        if status < _OK:
            answer: Mapping[str, Json] = found
            return answer
        if status == http.client.CONFLICT:
            raise StateError(str(found.get("error")), hint=found.get("hint"))
        raise ClusterError(f"job {self.entry.job_id} refuses the request: {found.get('error')} ({status})")

    def _gone(self) -> ClusterError:
        return ClusterError(
            f"job {self.entry.job_id} ('{self.entry.name}', process {self.entry.pid}) is gone",
            hint="`flowrun jobs` lists what runs",
        )
