"""The client of a session cluster: submits jobs, and follows and controls those that run there."""

from __future__ import annotations

import os
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from flowrun.core.clock import SystemClock
from flowrun.errors import ClusterError, ConnectionOverError, PipelineError, RefusedError, StateError
from flowrun.graph.fingerprint import fingerprint
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.control_client import JobClient
from flowrun.runners.http_requests import HttpRequests
from flowrun.runners.rest_requests import RestReply, RestRequests, answered
from flowrun.runners.session.messages import (
    CLIENT_ROLE,
    DISPATCHER,
    FILES,
    DispatcherGateway,
    JobSubmission,
    JobSummary,
    RestPlace,
)
from flowrun.runners.workers import slots_needed
from flowrun.runtime.cluster.job_files import JobFiles
from flowrun.runtime.cluster.session_messages import DISPATCHER_ROLE
from flowrun.runtime.cluster_messages import JobFilesGateway, JobText
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.rpc.address import Address
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.error_values import error_from_value
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, open_link

if TYPE_CHECKING:
    from flowrun.runners.control import Json

LOOK_MS = 200
"""How often a job is looked at."""
PATIENCE_S = 30.0
"""How long the dispatcher is looked for after it was lost."""
_RETRY_S = 0.5


def job_submission(
    job_graph: JobGraph, text: JobText, *, restore_from: str | None, allow_non_restored: bool, committed_after: str
) -> JobSubmission:
    """A job that this process has compiled, as it is handed in; see `JobSubmission`."""
    return JobSubmission(
        job_graph.name,
        text,
        fingerprint(job_graph),
        restore_from,
        allow_non_restored,
        committed_after,
        slots_needed(job_graph),
    )


class ClusterClient(ABC):
    """A session cluster, which is asked by its REST API. Thread-safe."""

    @abstractmethod
    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        """See `RestRequests`."""

    @abstractmethod
    def submit(self, submission: JobSubmission, files: JobFiles) -> str:
        """Run a job; gives its id.

        Raises:
            PipelineError: it cannot travel so.
            ClusterError: it was not taken; if the connection was lost just then, it may have been.
        """

    @abstractmethod
    def rest_place(self) -> RestPlace | None:
        """Where the REST API listens; None: it does not yet."""

    @abstractmethod
    def close(self) -> None:
        """End the connection. Idempotent."""

    def list_jobs(self) -> Sequence[JobSummary]:
        """All jobs that run, and the last ones that ended, in the order in which they came."""
        return listed_jobs(self)

    def job(self, job_id: str) -> JobClient:
        """The client of one job. Raises ClusterError: there is none of that id."""
        return JobClient(self, _summary(answered(self, "GET", f"/v1/jobs/{job_id}")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def listed_jobs(requests: RestRequests) -> Sequence[JobSummary]:
    """All jobs of a cluster that run, and the last ones that ended, in the order in which they came.

    Raises:
        ClusterError: it does not answer.
    """
    listed = answered(requests, "GET", "/v1/jobs")["jobs"]
    return [_summary(job) for job in listed] if isinstance(listed, list) else []


def _summary(job: Json) -> JobSummary:
    """A job of which the REST API has told more."""
    from flowrun.core.typed_values import to_kind

    return to_kind(job, JobSummary)


class RpcCluster(ClusterClient):
    """A cluster that is reached at its own address, with its secret or a certificate.

    A connection that was lost is made anew with the next call.

    Args:
        addresses: where dispatchers listen, of which one leads: the others do not listen.
        credentials: of the cluster.

    Raises:
        ClusterError: no dispatcher answers there.
    """

    def __init__(self, addresses: Sequence[Address], credentials: Credentials) -> None:
        self.addresses = tuple(addresses)
        self._credentials = credentials
        self._lock = threading.Lock()
        self._connection = self._connect()

    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        """See `ClusterClient`."""
        try:
            return self._gateway().ask(method, path, body)
        except ConnectionOverError:
            if method != "GET":  # it may have been carried out
                raise
            return self._gateway().ask(method, path, body)

    def submit(self, submission: JobSubmission, files: JobFiles) -> str:
        """See `ClusterClient`."""
        dispatcher = self._gateway()
        self._connection.serve(FILES, JobFilesGateway, files)
        try:
            return dispatcher.submit(submission)
        finally:
            self._connection.withdraw(FILES)

    def rest_place(self) -> RestPlace | None:
        """See `ClusterClient`."""
        return self._gateway().rest_place()

    def close(self) -> None:
        """See `ClusterClient`."""
        with self._lock:
            self._connection.close()

    def _gateway(self) -> DispatcherGateway:
        with self._lock:
            if self._connection.is_closed:
                self._connection = self._connect()
            return self._connection.gateway(DispatcherGateway, DISPATCHER)

    def _connect(self) -> RpcConnection:
        reasons: list[ClusterError] = []
        for address in self.addresses:
            try:
                return self._connect_to(address)
            except RefusedError:
                raise
            except ClusterError as error:
                reasons.append(error)
        raise ClusterError("; ".join(error.message for error in reasons), hint=reasons[-1].hint)

    def _connect_to(self, address: Address) -> RpcConnection:
        own = Introduction(CLIENT_ROLE, f"{os.getpid()}")
        roles = frozenset({DISPATCHER_ROLE})
        connection = RpcConnection(open_link(address, own, Purpose.CONTROL, self._credentials, roles=roles))
        connection.start()
        return connection


class HttpCluster(ClusterClient):
    """A cluster that is reached over HTTP, with its token: Python modules do not travel so.

    Args:
        requests: to its REST API.
    """

    def __init__(self, requests: HttpRequests) -> None:
        self._requests = requests

    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        """See `ClusterClient`."""
        return self._requests.ask(method, path, body)

    def submit(self, submission: JobSubmission, files: JobFiles) -> str:
        """See `ClusterClient`. The cluster compiles the text in its own environment."""
        from flowrun.runners.compile import is_program  # few commands that ask a cluster compile anything

        kept = submission.text.pipeline
        if files.files or is_program(kept):
            what = "is a program" if is_program(kept) else "has Python modules of its own"
            raise PipelineError.of(
                f"'{submission.name}' {what}, which whoever has the token of a REST API cannot send",
                "submit it with the cluster's secret or a certificate: --cluster HOST:PORT, the address at which task managers join",
            )
        name = Path(kept.file_name).name
        body: dict[str, Json] = {
            "text": kept.text,
            "file": name if Path(name).suffix else "pipeline.sql",
            "variables": dict(kept.variables),
            "secrets": dict(submission.text.secrets),
            "overrides": dict(kept.overrides),
            "directory": kept.directory,
            "working_directory": kept.working_directory,
            "from_savepoint": submission.restore_from,
            "allow_non_restored_state": submission.allow_non_restored,
            "committed_after": submission.committed_after,
            "project": cast("Json", None if kept.project is None else asdict(kept.project)),
            "upgrade": submission.upgrade,
        }
        return str(answered(self, "POST", "/v1/jobs", body)["job_id"])

    def close(self) -> None:
        """Nothing to end: each request has a connection of its own."""

    def rest_place(self) -> RestPlace:
        """See `ClusterClient`."""
        place = self._requests.places[0]
        return RestPlace(f"{place}/", place.token)


class ClusterJob:
    """A job of a cluster with the methods of a `LocalJob`. Orders are carried out by a thread of its own, which also looks at the job now
    and then, so `stop`, `cancel` and `take_snapshot` may be called in a signal handler.
    """

    def __init__(self, client: JobClient) -> None:
        self.job_id = client.entry.job_id
        self._client = client
        self._progress = client.watch()
        self._orders: queue.SimpleQueue[tuple[Callable[[], str], SnapshotTicket | None] | None] = queue.SimpleQueue()
        self._tickets: dict[str, SnapshotTicket] = {}
        self._tickets_made = 0
        self._over = threading.Event()
        self._lost: ClusterError | None = None
        self._thread = threading.Thread(target=self._follow, name="flowrun-cluster-job", daemon=True)
        self._thread.start()

    def status(self) -> JobStatus:
        """What the job looked like a moment ago, or at its end."""
        return self._progress.status

    def details(self) -> JobDetails:
        """See `LocalJob.details`."""
        return self._client.details()

    def take_snapshot(
        self, directory: str | None = None, *, savepoint: bool = True, stop: bool = False, drain: bool = False
    ) -> SnapshotTicket:
        """See `LocalJob.take_snapshot`; a checkpoint is taken only to stop with."""
        return self._ordered("stop" if stop else "savepoint", directory, drain=drain)

    def rescale(self, parallelism: int) -> SnapshotTicket:
        """See `RescalableJob.rescale`."""
        return self._ordered("rescale", parallelism=parallelism)

    def sample_rows(self, exchange: str, for_ms: int) -> None:
        """See `LocalJob.sample_rows`."""
        self._orders.put((partial(self._client.sample, exchange, for_ms // 1000), None))

    def stop(self, drain: bool = False) -> None:
        """See `LocalJob.stop`."""
        self._orders.put((partial(self._client.place, "stop", drain=drain), None))

    def cancel(self) -> None:
        """See `LocalJob.cancel`."""
        self._orders.put((partial(self._client.place, "cancel"), None))

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        """The result once the job is over; None if it still runs after `timeout_ms`.

        Raises:
            JobFailedError: it failed.
            ClusterError: the dispatcher is gone. The job may go on.
        """
        if not self._over.wait(None if timeout_ms is None else timeout_ms / 1000):
            return None
        if self._lost is not None:
            raise self._lost
        if self._progress.failure is not None:
            raise error_from_value(self._progress.failure)
        return self._progress.result

    def close(self) -> None:
        """Follow the job no more; it goes on. Idempotent."""
        self._orders.put(None)
        self._thread.join()

    def __enter__(self) -> ClusterJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self) -> None:
        lost_at: float | None = None
        while not self._over.is_set():
            try:
                item = self._orders.get(timeout=LOOK_MS / 1000)
                if item is None:
                    return
                self._place(*item)
            except queue.Empty:
                pass
            try:
                self._look()
                lost_at = None
            except ClusterError as error:
                lost_at = self._wait_for_dispatcher(error, lost_at)

    def _ordered(
        self, kind: str, directory: str | None = None, *, drain: bool = False, parallelism: int | None = None
    ) -> SnapshotTicket:
        self._tickets_made += 1
        ticket = SnapshotTicket(str(self._tickets_made), SystemClock())
        order = partial(self._client.place, kind, directory, drain=drain, parallelism=parallelism)
        self._orders.put((order, ticket))
        return ticket

    def _look(self) -> None:
        for number, ticket in list(self._tickets.items()):
            answer = self._client.answer(number)
            if answer["state"] == "pending" and answer.get("path") is None:
                continue
            del self._tickets[number]
            if answer.get("path") is not None:
                ticket.succeed(str(answer["path"]))
            else:
                hint = answer.get("hint")
                message = answer.get("message") or "the job is over"
                ticket.fail(str(message), None if hint is None else str(hint))
        self._progress = self._client.watch()
        if self._progress.is_over:
            self._over.set()

    def _place(self, order: Callable[[], str], ticket: SnapshotTicket | None) -> None:
        try:
            number = order()
        except (StateError, ClusterError) as error:
            if ticket is not None:
                ticket.fail(error.message, error.hint)
            return
        if ticket is not None:
            self._tickets[number] = ticket

    def _wait_for_dispatcher(self, error: ClusterError, lost_at: float | None) -> float:
        now = time.monotonic()
        since = now if lost_at is None else lost_at
        if now - since > PATIENCE_S:
            self._lost = ClusterError(
                f"the cluster cannot be reached any more: {error.message}",
                hint="the job may go on there: `flowrun jobs --cluster` lists jobs",
            )
            self._over.set()
        time.sleep(_RETRY_S)
        return since
