"""The worker processes of a task manager: one for each slot, as a process has one interpreter lock, and so uses one core."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import threading
from dataclasses import replace
from functools import partial

from flowrun.core.clock import ForwardClock, SystemClock
from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.cluster.fork_server import ForkEvent, ForkServer, ProcessEnded, ServerGone
from flowrun.runtime.cluster.session_messages import (
    SESSION_RESOURCES,
    TASK_MANAGER,
    SessionResourcesGateway,
    TaskManagerGateway,
    TaskManagerRegistration,
    WorkerAssignment,
)
from flowrun.runtime.cluster.worker_process import ROLE, WorkerOffer, serve_job_manager
from flowrun.runtime.network.host_folder import HostFolder, remove_rest
from flowrun.runtime.rpc.address import Address, TcpAddress, parse_address
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.rpc.link import Link, open_link
from flowrun.runtime.timers import TimerThread

AFTER_A_DEATH_MS = 1_000
"""Before a worker takes the place of one that failed, so that one that cannot begin does not keep a core busy."""
UNREACHABLE = 3
"""Exit code of a worker whose job manager is not there."""
_EVERY_HOST = ("0.0.0.0", "::")

_log = logging.getLogger(__name__)


def serve_dispatcher(link: Link, dispatcher: Address, offer: WorkerOffer, name: str) -> str:
    """Offer slots until the connection to the dispatcher is closed; gives the reason why. All workers have ended then.

    To be called before the process starts a thread.

    Args:
        link: to the dispatcher.
        dispatcher: its address as this process knows it.
        offer: what this task manager brings.
        name: of this task manager, unique in the cluster.
    """
    forks = ForkServer(partial(_run_worker, offer, dispatcher), partial(_remove_rest, offer, os.getpid()))
    connection = RpcConnection(link)
    reasons: list[str] = []
    gone = threading.Event()

    def hear(reason: str) -> None:
        reasons.append(reason)
        gone.set()

    workers = _Workers(forks, connection, offer.host_folder)
    connection.serve(TASK_MANAGER, TaskManagerGateway, workers)
    connection.on_close(hear)
    clock = ForwardClock(SystemClock())
    heartbeats = Heartbeats(connection, TimerThread(clock), clock)
    forks.listen(workers.hear)
    connection.start()
    heartbeats.start()
    try:
        connection.gateway(SessionResourcesGateway, SESSION_RESOURCES).register_task_manager(
            TaskManagerRegistration(name, os.getpid(), socket.gethostname(), offer.slots)
        )
        gone.wait()
    finally:
        forks.close()
    return reasons[0]


def serve_with_processes(link: Link, job_manager: Address, offer: WorkerOffer, name: str) -> str:
    """Serve the job manager of one pipeline with a process for each slot until all their connections are closed; gives the reason why.

    To be called before the process starts a thread.

    Args:
        link: to the job manager, by which it was found; it is closed, as each process has one of its own.
        job_manager: its address.
        offer: what this task manager brings.
        name: of this task manager, unique in the cluster.
    """
    link.stream.close()
    forks = ForkServer(partial(_run_worker, offer, job_manager), partial(_remove_rest, offer, os.getpid()))
    workers = _WorkersOfOneJob(forks)
    forks.listen(workers.hear)
    try:
        for number in range(1, offer.slots + 1):
            workers.start(_as_text(WorkerAssignment(f"{name}-{number}", str(job_manager), 1)))
        return workers.wait()
    finally:
        forks.close()


class _WorkersOfOneJob:
    """Worker processes that are replaced when they die, until the job manager is gone."""

    def __init__(self, forks: ForkServer) -> None:
        self._forks = forks
        clock = ForwardClock(SystemClock())
        self._timers = TimerThread(clock)
        self._lock = threading.Lock()
        self._living: set[str] = set()
        self._reason = ""
        self._over = threading.Event()

    def start(self, name: str) -> None:
        with self._lock:
            self._living.add(name)
        try:
            self._forks.spawn(name)
        except ClusterError as error:
            self._end(name, error.message)

    def hear(self, event: ForkEvent) -> None:
        """Something has become of a process."""
        if isinstance(event, ServerGone):
            self._reason = "the process that forks workers was ended from outside"
            self._over.set()
        if not isinstance(event, ProcessEnded):
            return
        if event.exit_code in (0, UNREACHABLE):
            self._end(event.name, "it closed the connections")
        else:
            _log.warning("worker %s %s: another takes its place", _assignment(event.name).worker, event)
            self._timers.after(AFTER_A_DEATH_MS, partial(self.start, event.name))

    def wait(self) -> str:
        """Why all of them have ended, once they have."""
        self._over.wait()
        self._timers.close()
        return self._reason

    def _end(self, name: str, reason: str) -> None:
        with self._lock:
            self._living.discard(name)
            self._reason = reason
            if not self._living:
                self._over.set()


@record(eq=False)
class _Workers:
    """The worker processes of this task manager."""

    forks: ForkServer
    connection: RpcConnection
    host_folder: HostFolder | None

    def start_worker(self, assignment: WorkerAssignment) -> None:
        """See `TaskManagerGateway`."""
        try:
            self.forks.spawn(_as_text(assignment))
        except ClusterError as error:
            self.connection.close(error.message)  # the session begins anew

    def forget_job_manager(self, job_manager: str) -> None:
        """See `TaskManagerGateway`."""
        if self.host_folder is not None:
            shutil.rmtree(self.host_folder.within(job_manager).path, ignore_errors=True)

    def hear(self, event: ForkEvent) -> None:
        """Something has become of a process."""
        if not isinstance(event, ProcessEnded):
            return
        how, failed = str(event), event.exit_code != 0
        try:
            self.connection.gateway(SessionResourcesGateway, SESSION_RESOURCES).report_worker_end(
                _assignment(event.name).worker, how, failed
            )
        except ClusterError as error:
            _log.debug("the dispatcher was not told that a worker %s: %s", how, error.message)


def _run_worker(offer: WorkerOffer, dispatcher: Address, text: str) -> None:
    """The life of a worker process."""
    assignment = _assignment(text)
    place = _reachable(parse_address(assignment.job_manager), dispatcher)
    own, roles = Introduction(ROLE, assignment.worker), frozenset({"jobmanager"})
    try:
        link = open_link(place, own, Purpose.CONTROL, offer.credentials, roles=roles)
    except ClusterError as error:  # such as that the job is over
        _log.warning("worker %s does not reach its job manager: %s", assignment.worker, error.message)
        sys.exit(UNREACHABLE)
    offer = of_job_manager(replace(offer, slots=assignment.slots), assignment.job_manager)
    serve_job_manager(link, offer, assignment.worker)
    os._exit(0)  # subtasks may still be at work: nobody needs them


def of_job_manager(offer: WorkerOffer, job_manager: str) -> WorkerOffer:
    """An offer to one job manager: its jobs have a folder of their own."""
    folder = offer.host_folder
    return offer if folder is None else replace(offer, host_folder=folder.within(job_manager))


def _remove_rest(offer: WorkerOffer, session: int) -> None:
    """All workers have ended: delete what they have spilled, if the task manager itself is gone, and so nobody else does."""
    if offer.host_folder is not None:
        remove_rest(offer.host_folder.path, session)


def _reachable(place: Address, dispatcher: Address) -> Address:
    """An address of the dispatcher's machine, under the name by which this process reaches that machine."""
    if isinstance(place, TcpAddress) and isinstance(dispatcher, TcpAddress) and place.host in _EVERY_HOST:
        return TcpAddress(dispatcher.host, place.port)
    return place


def _as_text(assignment: WorkerAssignment) -> str:
    """An assignment as the name of a process.

    >>> _assignment(_as_text(WorkerAssignment("m-1", "tcp://127.0.0.1:9", 2)))
    WorkerAssignment(worker='m-1', job_manager='tcp://127.0.0.1:9', slots=2)
    """
    return f"{assignment.worker} {assignment.slots} {assignment.job_manager}"


def _assignment(text: str) -> WorkerAssignment:
    worker, slots, job_manager = text.split(" ", 2)
    return WorkerAssignment(worker, job_manager, int(slots))
