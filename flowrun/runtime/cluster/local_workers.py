"""The worker processes of one command on its own machine: forked, replaced when they die, ended with the command."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.errors import ClusterError
from flowrun.graph.job_graph import JobGraph
from flowrun.operators.implementations import import_operators
from flowrun.runtime.cluster.fork_server import (
    ForkEvent,
    ForkServer,
    ProcessEnded,
    ProcessStarted,
    ServerGone,
    check_no_threads,
)
from flowrun.runtime.cluster.job_files import FetchFile
from flowrun.runtime.cluster.private_folder import private_folder
from flowrun.runtime.cluster.resource_manager import take_on
from flowrun.runtime.cluster.task_executor import JobGraphs
from flowrun.runtime.cluster.worker_process import ROLE, WorkerPlan, run_worker
from flowrun.runtime.cluster_messages import JobObserverGateway, JobOpening, ResourceManagerGateway, WorkerGateway
from flowrun.runtime.messages import JobMasterGateway, TaskExecutorGateway
from flowrun.runtime.network.host_folder import new_host_folder, remove_owned
from flowrun.runtime.rpc.address import UnixAddress
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, Link
from flowrun.runtime.rpc.methods import prepare_protocol
from flowrun.runtime.rpc.secret import secret_of_text, text_of_new_secret
from flowrun.runtime.rpc.server import Server
from flowrun.runtime.slot_pool import Expect
from flowrun.runtime.timers import TimerThread
from flowrun.runtime.watchdog.job_board import JobBoard
from flowrun.runtime.watchdog.memory import MemoryKills

MOST_FAILED_STARTS = 5
"""After so many workers in a row that died before they had connected, none is started any more. One that dies later was at work: how
often that may happen is for the job's restart strategy to say."""
_EXIT_KNOWN_WITHIN_S = 2.0

_PROTOCOLS = (
    JobMasterGateway, JobObserverGateway, ResourceManagerGateway, TaskExecutorGateway, WorkerGateway,
)  # fmt: skip

_log = logging.getLogger(__name__)


@record
class WorkerNumbers:
    """How many workers there are, and what each of them offers."""

    workers: int
    slots: int
    resources: ResourceProfile = ResourceProfile()


class LocalWorkers:
    """Thread-safe once it is started. To be made before the process starts a thread.

    Args:
        job_graph: that workers run: they inherit it.
        numbers: of workers, and what they offer.
        board: where subtasks note what they are doing; in memory that is shared; None if no watchdog reads that.
        compile: gives the job graph of a job that comes with its text, as it has been rescaled since; None: there are none.

    Raises:
        ClusterError: there are threads already.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        numbers: WorkerNumbers,
        board: JobBoard | None = None,
        compile: JobGraphs | None = None,
    ) -> None:
        check_no_threads()
        self.numbers = numbers
        self._folder, self._host_folder = private_folder("flowrun-workers-"), new_host_folder()
        self._address = UnixAddress(str(self._folder / "manager"))
        self._credentials = Credentials(secret_of_text(text_of_new_secret(), "this run"))

        def graphs(opening: JobOpening, fetch: FetchFile) -> JobGraph:
            return job_graph if opening.text is None or compile is None else compile(opening, fetch)

        plan = WorkerPlan(
            graphs,
            numbers.slots,
            numbers.resources,
            self._folder,
            self._address,
            self._credentials,
            board,
            self._host_folder,
        )
        try:
            _prepare(job_graph)
            self._forks = ForkServer(partial(run_worker, plan), self._remove_folders)
        except BaseException:
            self._remove_folders()
            raise
        finally:
            gc.unfreeze()
        self._changed = threading.Condition()
        self._started: dict[str, int] = {}
        """Name → process."""
        self._connected: set[str] = set()
        """Names of those that have connected."""
        self._ended: dict[str, str] = {}
        """Name → how it ended."""
        self._next = 1
        self._failed_starts = 0
        self._memory_kills = MemoryKills()
        self._closing = False
        self._server: Server | None = None
        self._expect: Expect = lambda _slots, _why: None

    def start(self, accept: Callable[[RpcConnection], None], expect: Expect, timers: TimerThread) -> None:
        """Start all workers.

        Args:
            accept: is given the control connection of each worker.
            expect: is told how many slots there will be when all workers have come.
            timers: of the process.
        """
        self._expect = expect

        def on_link(link: Link) -> None:
            with self._changed:
                self._connected.add(link.peer.id)
                self._failed_starts = 0
            take_on(link, accept, timers)

        own = Introduction("jobmanager", f"{os.getpid()}")
        self._server = Server(
            self._address, own, self._credentials, {Purpose.CONTROL: on_link}, roles=frozenset({ROLE})
        )
        self._forks.listen(self._hear)
        expect(self.numbers.workers * self.numbers.slots, "")
        for _ in range(self.numbers.workers):
            self._spawn()

    @property
    def bring_slots(self) -> bool:
        """They have as many as this process says."""
        return False

    def provide(self, slots: int) -> int:
        """Have so many slots in all, spread evenly; gives the number of each worker, which takes the place of what it says itself."""
        each = -(-slots // self.numbers.workers)
        self.numbers = replace(self.numbers, slots=each)
        if self._failed_starts < MOST_FAILED_STARTS:
            self._expect(self.numbers.workers * each, "")
        return each

    def why_closed(self, name: str, reason: str) -> str:
        """How a worker ended whose connection was closed; that it was closed, if its process is still there (it is then killed)."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._ended, _EXIT_KNOWN_WITHIN_S)
            how = self._ended.get(name)
            pid = self._started.get(name)
        if how is None and pid is not None:
            _kill(pid)
            return f"its connection was closed ({reason}), so it was ended"
        return how or reason

    def stop_accepting(self) -> None:
        """Let no worker connect any more, and replace none. Idempotent."""
        with self._changed:
            self._closing = True
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """End all workers. Idempotent."""
        self.stop_accepting()
        self._forks.close()
        self._remove_folders()

    def _remove_folders(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        remove_owned(self._host_folder.path)

    def _spawn(self) -> None:
        with self._changed:
            name, self._next = f"w{self._next}", self._next + 1
        self._forks.spawn(name)

    def _hear(self, event: ForkEvent) -> None:
        match event:
            case ProcessStarted(name=name, pid=pid):
                with self._changed:
                    self._started[name] = pid
            case ProcessEnded():
                self._replace(event)
            case ServerGone():
                self._lose_all()

    def _replace(self, event: ProcessEnded) -> None:
        with self._changed:
            self._ended[event.name] = self._how(event)
            self._changed.notify_all()
            if self._closing:
                return
            if event.name not in self._connected:
                self._failed_starts += 1
            gives_up = self._failed_starts >= MOST_FAILED_STARTS
        if gives_up:
            why = f"{MOST_FAILED_STARTS} workers in a row died before they had connected (the last one {event})"
            _log.error("%s: no other is started", why)
            self._expect(0, why)
            return
        try:
            self._spawn()
        except ClusterError as error:
            _log.error("a worker cannot be replaced: %s", error)

    def _how(self, event: ProcessEnded) -> str:
        """How a process ended, as a clause; if the system ended it for want of memory, that is said."""
        if event.signal == signal.SIGKILL and self._memory_kills.is_more():
            return f"{event}, as memory ran out"
        return str(event)

    def _lose_all(self) -> None:
        with self._changed:
            for name in self._started:
                self._ended.setdefault(name, "was ended with the process that had forked it")
            self._changed.notify_all()
        self._expect(0, "the process that forks workers was ended from outside, so none can be started any more")


def _prepare(job_graph: JobGraph) -> None:
    """Have everything in memory that each worker would otherwise import or build for itself."""
    import_operators(operator.factory for vertex in job_graph.vertices for operator in vertex.operators)
    for protocol in _PROTOCOLS:
        prepare_protocol(protocol)
    gc.freeze()  # a collection in a worker would write to every page that holds objects, and so copy it


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
