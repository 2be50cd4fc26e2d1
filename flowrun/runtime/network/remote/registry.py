"""The partitions of a process that other processes may read, and those that they wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from flowrun.core.record import record
from flowrun.errors import ClusterError, FlowrunError
from flowrun.graph.execution_graph import PartitionId
from flowrun.runtime.network.blocking import StoredPartition
from flowrun.runtime.network.host_folder import HostFolder
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.timers import Timer, TimerThread

WAIT_MS = 30_000
"""How long a partition is waited for: its producer is deployed before its consumer, but to another process."""

REMEMBERED = 10_000
"""Partitions that were removed: the attempts that wrote them are over."""

Opened = Callable[[ResultPartition | StoredPartition | FlowrunError], None]
"""Is told of a partition that was asked for, or why there is none. By any thread; must not block."""


@record
class PartitionKey:
    """What one attempt of a producer writes in one run of a job."""

    job_id: str
    partition: PartitionId
    attempt_id: str


class PartitionRegistry:
    """Thread-safe.

    Args:
        timers: of the process.
        host_folder: with files of processes that are gone; None: there are none.
    """

    def __init__(self, timers: TimerThread, host_folder: HostFolder | None = None) -> None:
        self._timers = timers
        self._host_folder = host_folder
        self._lock = threading.Lock()
        self._partitions: dict[PartitionKey, ResultPartition] = {}
        self._waiting: dict[PartitionKey, list[tuple[Opened, Timer]]] = {}
        self._gone: dict[PartitionKey, None] = {}
        """Those that were removed last, so that nobody waits for them."""

    def add(self, key: PartitionKey, partition: ResultPartition) -> None:
        """A partition can be read from now on."""
        with self._lock:
            self._partitions[key] = partition
            waiting = self._waiting.pop(key, [])
        for opened, timer in waiting:
            timer.cancel()
            opened(partition)

    def remove(self, key: PartitionKey) -> None:
        """A partition is gone, and does not come again. Idempotent."""
        with self._lock:
            self._partitions.pop(key, None)
            self._gone[key] = None
            while len(self._gone) > REMEMBERED:
                del self._gone[next(iter(self._gone))]
            waiting = self._waiting.pop(key, [])
        for opened, timer in waiting:
            timer.cancel()
            opened(_no_more(key))

    def open(self, key: PartitionKey, opened: Opened) -> None:
        """Have `opened` told of a partition, now or when it is there."""
        with self._lock:
            partition, is_gone = self._partitions.get(key), key in self._gone
            if partition is None and not is_gone:
                timer = self._timers.after(WAIT_MS, lambda: self._give_up(key, opened))
                self._waiting.setdefault(key, []).append((opened, timer))
        if partition is not None:
            opened(partition)
        elif is_gone:
            opened(_no_more(key))

    def stored(self, key: PartitionKey) -> StoredPartition | FlowrunError:
        """A blocking partition whose writer is gone, or why there is none."""
        if self._host_folder is None:
            return ClusterError(f"partition {key.partition} is in files that this process cannot read")
        if not all(_is_name(part) for part in (key.job_id, key.attempt_id, key.partition.data_set_id)):
            return ClusterError(f"partition {key.partition} of attempt {key.attempt_id} is none of a job")
        return StoredPartition(self._host_folder.of_job(key.job_id), key.partition, key.attempt_id)

    def _give_up(self, key: PartitionKey, opened: Opened) -> None:
        with self._lock:
            waiting = self._waiting.get(key, [])
            left = [entry for entry in waiting if entry[0] is not opened]
            if len(left) == len(waiting):
                return
            if left:
                self._waiting[key] = left
            else:
                del self._waiting[key]
        opened(
            ClusterError(
                f"partition {key.partition} of attempt {key.attempt_id} is not there: it was waited for {WAIT_MS // 1000} s"
            )
        )


def _is_name(part: str) -> bool:
    """Whether a part of a request leads to no other folder."""
    return part not in ("", ".", "..") and "/" not in part and "\0" not in part


def _no_more(key: PartitionKey) -> ClusterError:
    return ClusterError(f"partition {key.partition} of attempt {key.attempt_id} is there no more: that attempt is over")
