"""Workers that are threads of the test's process: everything between them and the job master travels, but what tests control is shared."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

from flowrun.core.clock import ForwardClock, SystemClock
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.cluster.task_executor import TaskExecutor
from flowrun.runtime.cluster_messages import (
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    ResourceManagerGateway,
    WorkerGateway,
    WorkerRegistration,
)
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.host_folder import HostFolder
from flowrun.runtime.network.remote.data_server import DataServer
from flowrun.runtime.rpc.address import UnixAddress
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction
from flowrun.runtime.rpc.link import Credentials, link_of_pair
from flowrun.runtime.rpc.secret import SharedSecret
from flowrun.runtime.slot_pool import Expect
from flowrun.runtime.timers import TimerThread

CREDENTIALS = Credentials(SharedSecret(b"of the workers of one test"))


class ThreadWorker:
    """One worker: its data server, its task executor, and both ends of its control connection."""

    def __init__(self, name: str, folder: Path, job_graph: JobGraph, slots: int, host_folder: HostFolder) -> None:
        self.name = name
        self.host_folder = host_folder
        ours, theirs = socket.socketpair()
        self.timers, self.pool = TimerThread(SystemClock()), GlobalBufferPool()
        self.data = DataServer(
            UnixAddress(str(folder / name)),
            Introduction("taskmanager", name),
            CREDENTIALS,
            self.timers,
            host_folder=host_folder,
        )
        self.job_manager_end = RpcConnection(link_of_pair(ours, Introduction("taskmanager", name)))
        self.connection = RpcConnection(link_of_pair(theirs, Introduction("jobmanager", "test")))
        self.executor = TaskExecutor(
            name, self.connection, lambda *_: job_graph, self.data, self.pool, self.timers, ForwardClock(SystemClock())
        )
        self.connection.serve(TASK_EXECUTOR, WorkerGateway, self.executor)
        self._slots = slots

    def start(self, accept: Callable[[RpcConnection], None]) -> None:
        accept(self.job_manager_end)
        self.job_manager_end.start()
        self.connection.start()
        self.connection.gateway(ResourceManagerGateway, RESOURCE_MANAGER).register_worker(
            WorkerRegistration(
                self.name, 1, "here", str(self.data.address), self._slots, host_folder=self.host_folder.id
            )
        )

    def die(self) -> None:
        """What a job manager, and those that read from here, see of a process that is killed; its subtasks are there until `close`."""
        self.job_manager_end.abandon("was killed")
        self.data.close()

    def close(self) -> None:
        self.connection.close()
        self.job_manager_end.close()
        self.executor.close()
        self.data.close()
        self.timers.close()


class ThreadWorkers:
    """Takes the place of `LocalWorkers`.

    Args:
        job_graph: that they run.
        number: of workers.
        slots: of each.
        hosts: on which they are, in turn.
    """

    def __init__(self, job_graph: JobGraph, number: int, slots: int, hosts: int = 1) -> None:
        self._job_graph = job_graph
        self._number = number
        self._slots = slots
        self._folder = Path(tempfile.mkdtemp(prefix="workers-"))
        self.hosts = [HostFolder(self._folder / f"host{n}", f"host{n}") for n in range(hosts)]
        self.workers: list[ThreadWorker] = []
        self.accepts = False
        self._accept: Callable[[RpcConnection], None] = lambda _: None

    def start(self, accept: Callable[[RpcConnection], None], expect: Expect, timers: TimerThread) -> None:
        self._accept, self.accepts = accept, True
        expect(self._number * self._slots, "")
        for _ in range(self._number):
            self.add()

    @property
    def files(self) -> list[Path]:
        """What is spilled on all hosts."""
        return [path for host in self.hosts for path in host.path.rglob("*") if path.is_file()]

    def add(self, host: int | None = None) -> ThreadWorker:
        number = len(self.workers)
        place = self.hosts[number % len(self.hosts) if host is None else host]
        worker = ThreadWorker(f"w{number + 1}", self._folder, self._job_graph, self._slots, place)
        self.workers.append(worker)
        worker.start(self._accept)
        return worker

    def why_closed(self, name: str, reason: str) -> str:
        return reason

    def stop_accepting(self) -> None:
        self.accepts = False

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        shutil.rmtree(self._folder)
