"""The client of a session cluster: submits jobs, and follows and controls those that run there."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar, cast

from flowrun.api.source import JsonValue
from flowrun.core.clock import SystemClock
from flowrun.core.record import record
from flowrun.errors import ClusterError, ConnectionOverError, RefusedError, StateError
from flowrun.graph.fingerprint import fingerprint
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.control import Json, Order
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
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.rpc.address import Address
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.error_values import error_from_value
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, open_link

LOOK_MS = 200
"""How often a job is looked at."""
PATIENCE_S = 30.0
"""How long the dispatcher is looked for after it was lost."""
_RETRY_S = 0.5

R = TypeVar("R")


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


class ClusterClient:
    """Thread-safe. A connection that was lost is made anew with the next call.

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

    def submit(self, submission: JobSubmission, files: JobFiles) -> str:
        """Run a job; gives its id. Raises ClusterError: it was not taken; if the connection was lost just then, it may have been."""
        dispatcher = self._gateway()
        self._connection.serve(FILES, JobFilesGateway, files)
        try:
            return dispatcher.submit(submission)
        finally:
            self._connection.withdraw(FILES)

    def rest_place(self) -> RestPlace | None:
        """See `DispatcherGateway`."""
        return self._ask(lambda dispatcher: dispatcher.rest_place())

    def list_jobs(self) -> Sequence[JobSummary]:
        """See `DispatcherGateway`."""
        return self._ask(lambda dispatcher: dispatcher.list_jobs())

    def describe_job(self, job_id: str) -> Mapping[str, Json]:
        """See `DispatcherGateway`."""
        return _object(self._ask(lambda dispatcher: dispatcher.describe_job(job_id)))

    def job_details(self, job_id: str) -> JobDetails:
        """See `DispatcherGateway`."""
        return self._ask(lambda dispatcher: dispatcher.job_details(job_id))

    def watch_job(self, job_id: str) -> JobProgress:
        """See `DispatcherGateway`."""
        return self._ask(lambda dispatcher: dispatcher.watch_job(job_id))

    def place_order(self, job_id: str, order: Order) -> str:
        """See `DispatcherGateway`."""
        return self._gateway().place_order(job_id, order)

    def answer_order(self, job_id: str, order_id: str) -> Mapping[str, Json]:
        """See `DispatcherGateway`.

        Raises:
            ClusterError: the job knows no such order: its process was replaced meanwhile.
        """
        answer = self._ask(lambda dispatcher: dispatcher.answer_order(job_id, order_id))
        if answer is None:
            raise ClusterError(f"job {job_id} does not know of the request any more", hint="ask again")
        return _object(answer)

    def close(self) -> None:
        """End the connection. Idempotent."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, call: Callable[[DispatcherGateway], R]) -> R:
        """Make a call that may be made twice."""
        try:
            return call(self._gateway())
        except ConnectionOverError:
            return call(self._gateway())

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


@record(eq=False)
class ClusterJobClient:
    """One job of a cluster, as the commands that control jobs know it; see `flowrun.runners.control_client.JobClient`."""

    client: ClusterClient
    entry: JobSummary

    def describe(self) -> Mapping[str, Json]:
        """See `JobClient.describe`."""
        return self.client.describe_job(self.entry.job_id)

    def why(self) -> Mapping[str, Json]:
        """See `JobClient.why`."""
        from flowrun.runners.why.summary import why_as_json

        return why_as_json(self.client.job_details(self.entry.job_id))

    def place(
        self, kind: str, directory: str | None = None, *, drain: bool = False, parallelism: int | None = None
    ) -> str:
        """See `JobClient.place`."""
        return self.client.place_order(self.entry.job_id, Order(kind, directory, drain, parallelism))

    def answer(self, order: str) -> Mapping[str, Json]:
        """See `JobClient.answer`."""
        return self.client.answer_order(self.entry.job_id, order)


class ClusterJob:
    """A job of a cluster with the methods of a `LocalJob`. Orders are carried out by a thread of its own, which also looks at the job now
    and then, so `stop`, `cancel` and `take_snapshot` may be called in a signal handler.
    """

    def __init__(self, client: ClusterClient, job_id: str) -> None:
        self.job_id = job_id
        self._client = client
        self._progress = client.watch_job(job_id)
        self._orders: queue.SimpleQueue[tuple[Order, SnapshotTicket | None] | None] = queue.SimpleQueue()
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
        return self._client.job_details(self.job_id)

    def take_snapshot(
        self, directory: str | None = None, *, savepoint: bool = True, stop: bool = False, drain: bool = False
    ) -> SnapshotTicket:
        """See `LocalJob.take_snapshot`; a checkpoint is taken only to stop with."""
        self._tickets_made += 1
        ticket = SnapshotTicket(str(self._tickets_made), SystemClock())
        kind = "stop" if stop else "savepoint"
        self._orders.put((Order(kind, directory, drain), ticket))
        return ticket

    def rescale(self, parallelism: int) -> SnapshotTicket:
        """See `RescalableJob.rescale`."""
        self._tickets_made += 1
        ticket = SnapshotTicket(str(self._tickets_made), SystemClock())
        self._orders.put((Order("rescale", parallelism=parallelism), ticket))
        return ticket

    def sample_rows(self, exchange: str, for_ms: int) -> None:
        """See `LocalJob.sample_rows`."""
        self._orders.put((Order("sample", exchange=exchange, seconds=for_ms // 1000), None))

    def stop(self, drain: bool = False) -> None:
        """See `LocalJob.stop`."""
        self._orders.put((Order("stop", None, drain), None))

    def cancel(self) -> None:
        """See `LocalJob.cancel`."""
        self._orders.put((Order("cancel"), None))

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

    def _look(self) -> None:
        for number, ticket in list(self._tickets.items()):
            answer = self._client.answer_order(self.job_id, number)
            if answer["state"] == "pending" and answer.get("path") is None:
                continue
            del self._tickets[number]
            if answer.get("path") is not None:
                ticket.succeed(str(answer["path"]))
            else:
                hint = answer.get("hint")
                ticket.fail(str(answer.get("message", "the job is over")), None if hint is None else str(hint))
        self._progress = self._client.watch_job(self.job_id)
        if self._progress.is_over:
            self._over.set()

    def _place(self, order: Order, ticket: SnapshotTicket | None) -> None:
        try:
            number = self._client.place_order(self.job_id, order)
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


def _object(value: JsonValue) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise ClusterError("the cluster answered with something that is no JSON object")
    return cast(Mapping[str, Json], value)
