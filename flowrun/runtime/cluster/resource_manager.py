"""The resource manager: which workers there are, and the slots that they offer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.cluster_messages import (
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    ResourceManagerGateway,
    WorkerGateway,
    WorkerRegistration,
)
from flowrun.runtime.jobmaster.job_tasks import WorkerPlace
from flowrun.runtime.jobmaster.scheduler_events import WorkerLost
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.rpc.link import Link
from flowrun.runtime.slot_pool import LocalSlots, SlotPool
from flowrun.runtime.timers import TimerThread

REMEMBERED_WORKERS = 10_000
"""That are gone: so long it is known where their partitions are."""

_log = logging.getLogger(__name__)


class WorkerListener(Protocol):
    """Is told of workers, by any thread; must not block."""

    def lose_worker(self, lost: WorkerLost) -> None:
        """A worker is gone."""
        ...

    def find_host_folder(self, host_folder: str) -> None:
        """A worker has come that reads this folder."""
        ...


@record(eq=False)
class ConnectedWorker:
    """A worker that has offered its slots, and how it is reached."""

    registration: WorkerRegistration
    connection: RpcConnection

    @property
    def name(self) -> str:
        """Unique in the cluster."""
        return self.registration.worker

    @property
    def gateway(self) -> WorkerGateway:
        """What the job manager calls."""
        return self.connection.gateway(WorkerGateway, TASK_EXECUTOR)

    def __str__(self) -> str:
        """As messages call it."""
        return f"worker {self.name} (process {self.registration.pid} on {self.registration.host})"


class ResourceManager:
    """Thread-safe.

    Args:
        expected: slots that there will be when all workers have come that are being started: what needs more is refused; None:
            workers may come at any time, and nothing is refused.
        why_closed: why a worker's connection was closed, as a clause, when it is known better than by the connection; may wait a moment.
    """

    def __init__(self, expected: int | None, why_closed: Callable[[str, str], str] = lambda _, reason: reason) -> None:
        self.slots = LocalSlots(SlotPool(None, None, expected=expected))
        """Gives slots to jobs."""
        self._why_closed = why_closed
        self._lock = threading.Lock()
        self._workers: dict[str, ConnectedWorker] = {}
        self._gone: dict[str, str] = {}
        """Workers that are gone → the folders where their partitions are."""
        self._listeners: dict[str, WorkerListener] = {}
        self._slots_each: int | None = None

    def accept(self, connection: RpcConnection) -> None:
        """A worker has connected: have it offer its slots."""
        connection.serve(RESOURCE_MANAGER, ResourceManagerGateway, _Registrar(self, connection))

    def register(self, registration: WorkerRegistration, connection: RpcConnection) -> None:
        """A worker offers its slots. One of a name that is known takes its place."""
        worker = ConnectedWorker(registration, connection)
        with self._lock:
            known = self._workers.get(registration.worker)
        if known is not None:
            self._lose(known, "it was replaced by another process of its name")
            known.connection.close()
        with self._lock:
            self._workers[registration.worker] = worker
            slots = self._slots_each or registration.slots
            self.slots.add_worker(registration.worker, slots, registration.resources)
            listeners = list(self._listeners.values()) if registration.host_folder else []
        for listener in listeners:
            listener.find_host_folder(registration.host_folder)
        _log.info("%s offers %d slots", worker, slots)
        connection.on_close(lambda reason: self._closed(worker, reason))

    def set_slots(self, each: int) -> None:
        """From now on every worker has so many slots, whatever it offers: those that are there, too, none of whose slots is in use."""
        with self._lock:
            self._slots_each = each
            for worker in self._workers.values():
                self.slots.remove_worker(worker.name)
                self.slots.add_worker(worker.name, each, worker.registration.resources)

    def worker(self, name: str) -> ConnectedWorker:
        """The worker of that name.

        Raises:
            ClusterError: there is none (any more).
        """
        with self._lock:
            found = self._workers.get(name)
        if found is None:
            raise ClusterError(f"worker {name} is not there any more")
        return found

    @property
    def workers(self) -> Sequence[ConnectedWorker]:
        """All that are there."""
        with self._lock:
            return list(self._workers.values())

    def place_of(self, worker: str) -> WorkerPlace:
        """Where what a worker has written is read: by itself, or, when it is gone, by another one of its host."""
        with self._lock:
            found = self._workers.get(worker)
            if found is not None:
                return WorkerPlace(worker, found.registration.data_address, found.registration.host_folder)
            folder = self._gone.get(worker, "")
            heir = self._reader_of(folder)
        if heir is None:
            return WorkerPlace(worker, "", folder, is_gone=True)
        return WorkerPlace(heir.name, heir.registration.data_address, folder, is_gone=True)

    def reaches(self, host_folder: str) -> bool:
        """Whether a worker is there that reads a folder."""
        with self._lock:
            return self._reader_of(host_folder) is not None

    def listen(self, job_id: str, listener: WorkerListener) -> None:
        """Have a job told of every worker that is lost."""
        with self._lock:
            self._listeners[job_id] = listener

    def forget(self, job_id: str) -> None:
        """A job is over."""
        with self._lock:
            self._listeners.pop(job_id, None)

    def release_idle(self, keep: int) -> None:
        """Close the connections to workers none of whose slots is used, as long as so many slots are left."""
        left = sum(worker.total or 0 for worker in self.slots.workers)
        for slots in self.slots.workers:
            if slots.total is None or slots.free != slots.total or left - slots.total < keep:
                continue
            with self._lock:
                worker = self._workers.get(slots.name)
            if worker is not None:
                left -= slots.total
                worker.connection.close("its slots are not needed any more")

    def close(self) -> None:
        """Close all connections; no job is told."""
        with self._lock:
            workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            worker.connection.close()

    def _closed(self, worker: ConnectedWorker, reason: str) -> None:
        with self._lock:
            is_known = self._workers.get(worker.name) is worker
        if is_known:
            self._lose(worker, self._why_closed(worker.name, reason))

    def _lose(self, worker: ConnectedWorker, reason: str) -> None:
        with self._lock:
            if self._workers.get(worker.name) is not worker:
                return
            del self._workers[worker.name]
            folder = worker.registration.host_folder
            if folder:
                self._gone[worker.name] = folder
                while len(self._gone) > REMEMBERED_WORKERS:
                    del self._gone[next(iter(self._gone))]
            lost = WorkerLost(worker.name, f"{worker}: {reason}", folder, self._reader_of(folder) is not None)
            listeners = list(self._listeners.values())
        _log.warning("%s is lost: %s", worker, reason)
        self.slots.remove_worker(worker.name)
        for listener in listeners:
            listener.lose_worker(lost)

    def _reader_of(self, host_folder: str) -> ConnectedWorker | None:
        """A worker that reads a folder."""
        workers = self._workers.values() if host_folder else ()
        return next((worker for worker in workers if worker.registration.host_folder == host_folder), None)


def take_on(link: Link, accept: Callable[[RpcConnection], None], timers: TimerThread) -> None:
    """A worker has connected: have it call, and watch whether it lives.

    Args:
        link: after its handshake.
        accept: is given the connection before it takes calls, such as `ResourceManager.accept`.
        timers: of the process.
    """
    connection = RpcConnection(link)
    heartbeats = Heartbeats(connection, timers, timers.clock)
    accept(connection)
    connection.start()
    heartbeats.start()


class _Registrar:
    """Takes the offer of the worker at the other end of one connection."""

    def __init__(self, manager: ResourceManager, connection: RpcConnection) -> None:
        self._manager = manager
        self._connection = connection

    def register_worker(self, registration: WorkerRegistration) -> None:
        """See `ResourceManagerGateway`."""
        self._manager.register(registration, self._connection)
