"""The data side of a worker process: listens for those who read what is written here, and connects to those who write what is read here.

    process A                                     process B
    DataServer ◀──── one connection for all ───── DataConnection ◀─ RemoteInputChannel ◀─ gate ◀─ task
      PartitionSender ◀─ views ◀─ partitions

A pair of processes that read from each other has two connections, one a direction.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from flowrun.core.clock import Clock
from flowrun.errors import ClusterError
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.host_folder import HostFolder
from flowrun.runtime.network.remote.environment import ConnectedEnvironment, JobPlace
from flowrun.runtime.network.remote.receiver import DataConnection
from flowrun.runtime.network.remote.registry import PartitionRegistry
from flowrun.runtime.network.remote.sender import PartitionSender
from flowrun.runtime.network.remote.shared_memory import SegmentBudget
from flowrun.runtime.network.remote.wire import DataFrames
from flowrun.runtime.rpc.address import Address, parse_address
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, Link, open_link
from flowrun.runtime.rpc.server import Server
from flowrun.runtime.timers import TimerThread


class DataServer:
    """Thread-safe. `close` ends all connections; the channels of those that still read fail.

    Args:
        address: where to listen.
        own: who this process is; its id is the worker's name.
        credentials: of the cluster.
        timers: of the process.
        lz4: compress rows: for slow links.
        host_folder: where files of blocking partitions outlive this process; None: they do not.

    Raises:
        ClusterError: the address is taken, or listening there would let strangers in.
    """

    def __init__(
        self,
        address: Address,
        own: Introduction,
        credentials: Credentials,
        timers: TimerThread,
        *,
        lz4: bool = False,
        host_folder: HostFolder | None = None,
    ) -> None:
        self._own = own
        self._credentials = credentials
        self._timers = timers
        self._lz4 = lz4
        self._host_folder = host_folder
        self._registry = PartitionRegistry(timers, host_folder)
        self._shared = None if lz4 else SegmentBudget()
        self._lock = threading.Lock()
        self._senders: set[PartitionSender] = set()
        self._connections: dict[str, DataConnection] = {}
        self._connecting: dict[str, threading.Lock] = {}
        self._ending: list[PartitionSender | DataConnection] = []
        """Those that have ended, while their threads may not have."""
        self._closed = False
        self._roles = frozenset({own.role})
        """Of those who exchange rows."""
        self._server = Server(address, own, credentials, {Purpose.DATA: self._serve}, roles=self._roles)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._server.address

    def environment(
        self, job_id: str, pool: GlobalBufferPool, clock: Clock, spill_dir: Path | None = None
    ) -> ConnectedEnvironment:
        """The exchanges of one job in this process.

        Args:
            job_id: the run of the job.
            pool: buffers of the process.
            clock: of the process.
            spill_dir: parent folder of what is spilled, if that ends with this process; None: the system's temporary folder.
        """
        place = JobPlace(job_id, self._own.id, self._host_folder)
        return ConnectedEnvironment(place, self._registry, self.connect, pool, self._timers, clock, spill_dir)

    def remove_files(self, job_id: str) -> None:
        """A job is over: delete what processes of this host have left of it."""
        if self._host_folder is not None:
            shutil.rmtree(self._host_folder.of_job(job_id), ignore_errors=True)

    def connect(self, address: str) -> DataConnection:
        """The connection to the data server of another process: the one that there is, or a new one. Blocks.

        Raises:
            ClusterError: nobody answers, or either side does not trust or understand the other.
        """
        with self._lock:
            connecting = self._connecting.setdefault(address, threading.Lock())
        with connecting:
            with self._lock:
                known = self._connections.get(address)
                if self._closed:
                    raise ClusterError("this process reads no more: its data server is closed")
            if known is not None:
                return known
            link = open_link(parse_address(address), self._own, Purpose.DATA, self._credentials, roles=self._roles)
            with self._lock:
                made = DataConnection(DataFrames(link.stream, str(link)), self._forget).start()
                self._connections[address] = made
            return made

    def close(self) -> None:
        """Listen no more, and end all connections. Idempotent."""
        with self._lock:
            self._closed = True
        self._server.close()
        with self._lock:
            ends: list[PartitionSender | DataConnection] = [*self._senders, *self._connections.values()]
            ended = list(self._ending)
        for end in ends:
            end.close()
        for end in (*ends, *ended):
            end.join()

    def _serve(self, link: Link) -> None:
        with self._lock:
            if self._closed:
                link.stream.close()
                return
            frames = DataFrames(link.stream, str(link))
            sender = PartitionSender(frames, self._registry, self._forget_sender, lz4=self._lz4, shared=self._shared)
            self._senders.add(sender.start())

    def _forget_sender(self, sender: PartitionSender) -> None:
        with self._lock:
            self._senders.discard(sender)
            self._remember(sender)

    def _forget(self, connection: DataConnection) -> None:
        with self._lock:
            for address, known in list(self._connections.items()):
                if known is connection:
                    del self._connections[address]
            self._remember(connection)

    def _remember(self, ended: PartitionSender | DataConnection) -> None:
        self._ending = [e for e in self._ending if e.is_alive]
        self._ending.append(ended)
