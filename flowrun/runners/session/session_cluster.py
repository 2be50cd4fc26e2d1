"""A session cluster in this process: listens for clients and task managers, and forks the job manager processes of jobs."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from flowrun.api.source import JsonValue
from flowrun.core.clock import ForwardClock, SystemClock
from flowrun.core.record import record
from flowrun.runners.rest_requests import RestReply
from flowrun.runners.session import messages
from flowrun.runners.session.dispatcher import Dispatcher
from flowrun.runners.session.job_process import JobProcessPlan, run_job_process
from flowrun.runners.session.job_store import JobStore
from flowrun.runtime.cluster.fork_server import ForkEvent, ForkServer, ProcessEnded, ProcessStarted, ServerGone
from flowrun.runtime.cluster.private_folder import private_folder
from flowrun.runtime.cluster.session_messages import (
    DISPATCHER_ROLE,
    SESSION_RESOURCES,
    SessionResourcesGateway,
    TaskManagerRegistration,
)
from flowrun.runtime.cluster.session_slots import SessionSlots, TaskManagerSlots
from flowrun.runtime.cluster.worker_process import ROLE as TASK_MANAGER_ROLE
from flowrun.runtime.cluster_messages import JobFilesGateway, JobText
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.rpc.address import Address, TcpAddress, UnixAddress
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.rpc.link import Credentials, Link
from flowrun.runtime.rpc.secret import secret_of_text, text_of_new_secret
from flowrun.runtime.rpc.server import Server
from flowrun.runtime.timers import TimerThread

AnswerRequest: TypeAlias = Callable[[str, str, bytes | None], RestReply]
"""Answers a request (method, path, body) as the REST API does."""

_log = logging.getLogger(__name__)


class SessionCluster:
    """Thread-safe. To be made before the process starts a thread.

    Args:
        address: where clients and task managers come.
        credentials: of the cluster.
        rest: answers requests of clients as the REST API does: a function of the dispatcher.
        store: keeps its jobs for the next cluster, and those of the one before; None: jobs end with the cluster.

    Raises:
        ClusterError: there are threads already, the address is taken, or listening there would let strangers in.
        StateError: the store cannot be read.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        rest: Callable[[Dispatcher], AnswerRequest],
        store: JobStore | None = None,
    ) -> None:
        folder = private_folder("flowrun-session-")
        inside = UnixAddress(str(folder / "dispatcher"))
        own_credentials = Credentials(secret_of_text(text_of_new_secret(), "this cluster"))
        plan = JobProcessPlan(inside, _beside(address, folder), own_credentials, credentials)
        try:
            credentials.check_place(address)
            self._forks = ForkServer(partial(run_job_process, plan), partial(_remove, folder))
        except BaseException:
            _remove(folder)
            raise
        self._folder = folder
        self._clock = ForwardClock(SystemClock())
        self._timers = TimerThread(self._clock)
        self.dispatcher = Dispatcher(SessionSlots(self._timers), self._forks, self._timers, store)
        self._answer = rest(self.dispatcher)
        self._gone = threading.Event()
        self._servers: list[Server] = []
        try:
            self._forks.listen(self._hear)
            self._servers.append(self._server(inside, own_credentials, messages.JOB_MANAGER_ROLE))
            self.dispatcher.recover()
            self._servers.append(self._server(address, credentials, messages.CLIENT_ROLE, TASK_MANAGER_ROLE))
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> Address:
        """Where clients and task managers come, with the port that was chosen."""
        return self._servers[-1].address

    def wait(self, timeout_s: float) -> bool:
        """Whether the cluster can start no job any more, because the process that forks was ended; waits that long for it."""
        return self._gone.wait(timeout_s)

    def close(self) -> None:
        """End the cluster and all processes of its jobs, whose last checkpoints stay. Idempotent."""
        self.dispatcher.close()
        for server in self._servers:
            server.close()
        self._forks.close()
        self._timers.close()
        _remove(self._folder)

    def __enter__(self) -> SessionCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hear(self, event: ForkEvent) -> None:
        match event:
            case ProcessStarted(name=name, pid=pid):
                self.dispatcher.process_started(messages.JobProcess.named(name), pid)
            case ProcessEnded(name=name):
                self.dispatcher.process_ended(messages.JobProcess.named(name), str(event))
            case ServerGone():
                self._gone.set()

    def _server(self, address: Address, credentials: Credentials, *roles: str) -> Server:
        own = Introduction(DISPATCHER_ROLE, str(os.getpid()))
        return Server(address, own, credentials, {Purpose.CONTROL: self._serve}, roles=frozenset(roles))

    def _serve(self, link: Link) -> None:
        connection = RpcConnection(link)
        role = link.peer.role
        heartbeats = Heartbeats(connection, self._timers, self._clock) if role != messages.CLIENT_ROLE else None
        {
            messages.JOB_MANAGER_ROLE: self._serve_job_manager,
            messages.CLIENT_ROLE: self._serve_client,
            TASK_MANAGER_ROLE: self._serve_task_manager,
        }[role](connection)
        connection.start()
        if heartbeats is not None:
            heartbeats.start()

    def _serve_client(self, connection: RpcConnection) -> None:
        connection.serve(
            messages.DISPATCHER, messages.DispatcherGateway, _ClientSide(self.dispatcher, self._answer, connection)
        )

    def _serve_job_manager(self, connection: RpcConnection) -> None:
        process = messages.JobProcess.named(connection.peer.id)
        connection.serve(messages.JOBS, messages.JobsGateway, _JobManagerSide(self.dispatcher, process))
        self.dispatcher.attach(process, connection)

    def _serve_task_manager(self, connection: RpcConnection) -> None:
        connection.serve(SESSION_RESOURCES, SessionResourcesGateway, _TaskManagerSide(self.dispatcher, connection))


@record(eq=False)
class _ClientSide:
    """What one client may call."""

    dispatcher: Dispatcher
    answer: AnswerRequest
    connection: RpcConnection

    def submit(self, submission: messages.JobSubmission) -> str:
        """See `DispatcherGateway`."""
        return self.dispatcher.submit(submission, self.connection.gateway(JobFilesGateway, messages.FILES).read_file)

    def rest_place(self) -> messages.RestPlace | None:
        """See `DispatcherGateway`."""
        return self.dispatcher.rest

    def ask(self, method: str, path: str, body: bytes | None) -> RestReply:
        """See `DispatcherGateway`."""
        return self.answer(method, path, body)


@record(eq=False)
class _JobManagerSide:
    """What one job manager process may call."""

    dispatcher: Dispatcher
    process: messages.JobProcess

    def fetch_job(self) -> messages.JobRunOrder:
        """See `JobsGateway`."""
        return self.dispatcher.fetch_job(self.process)

    def read_file(self, digest: str) -> bytes:
        """See `JobsGateway`."""
        return self.dispatcher.read_file(self.process, digest)

    def require_slots(self, job_manager: str, slots: int, checkpoint_id: int) -> None:
        """See `JobsGateway`."""
        self.dispatcher.require_slots(self.process, job_manager, slots, checkpoint_id)

    def rescale_job(self, text: JobText, fingerprint: str) -> None:
        """See `JobsGateway`."""
        self.dispatcher.rescale_job(self.process, text, fingerprint)

    def end_job(self, last: JobProgress, description: JsonValue, remains: messages.JobRemains) -> bool:
        """See `JobsGateway`."""
        return self.dispatcher.end_job(self.process, last, description, remains)


class _TaskManagerSide:
    """What one task manager may call; calls of one connection come one after the other."""

    def __init__(self, dispatcher: Dispatcher, connection: RpcConnection) -> None:
        self._dispatcher = dispatcher
        self._connection = connection
        self._manager: TaskManagerSlots | None = None

    def register_task_manager(self, registration: TaskManagerRegistration) -> None:
        """See `SessionResourcesGateway`."""
        if self._manager is None:
            self._manager = self._dispatcher.add_task_manager(registration, self._connection)

    def report_worker_end(self, worker: str, how: str, failed: bool) -> None:
        """See `SessionResourcesGateway`."""
        if self._manager is not None:
            self._dispatcher.slots.end_worker(self._manager, worker, how, failed=failed)


def _beside(address: Address, folder: Path) -> Address:
    """Where job managers listen for their workers: any port of the same host."""
    return TcpAddress(address.host, 0) if isinstance(address, TcpAddress) else UnixAddress(str(folder / "job"))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
