"""Folders in which what lost workers had written is still, and which of them nobody can read at present. A part of the scheduler, and pure.

A worker that dies leaves its finished blocking partitions in a folder of its host. Other workers of that host read them, or serve them to
others. If there is none at present, because they died together or there was only one, those that take their places come within a moment:
until then what reads these partitions does not start. If nobody comes the host is gone, and what it had is written again.
"""

from __future__ import annotations

from flowrun.runtime.jobmaster.scheduler_events import AwaitHostFolder, WorkerLost


class HostFolders:
    """Not thread-safe: owned by the job master's thread."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}
        """Of the lost workers whose partitions are needed still, where these are."""
        self._out_of_reach: dict[str, str] = {}
        """Folders that nobody reads, and why that is so."""

    def lose_worker(self, lost: WorkerLost) -> list[AwaitHostFolder]:
        """A worker is gone that had a folder; asks for the end of its wait if nobody reads that now."""
        self._folders[lost.worker] = lost.host_folder
        if lost.is_reached:
            return []
        self._out_of_reach[lost.host_folder] = lost.reason
        return [AwaitHostFolder(lost.host_folder)]

    def find(self, host_folder: str) -> bool:
        """A worker has come that reads a folder; whether there was none."""
        return self._out_of_reach.pop(host_folder, None) is not None

    def give_up(self, host_folder: str) -> tuple[frozenset[str], str]:
        """A folder is lost: the workers that had written there, and why. Nothing if somebody reads it again."""
        reason = self._out_of_reach.pop(host_folder, None)
        if reason is None:
            return frozenset(), ""
        workers = frozenset(worker for worker, folder in self._folders.items() if folder == host_folder)
        for worker in workers:
            del self._folders[worker]
        return workers, f"{reason}; what it had written could not be read any more"

    def is_out_of_reach(self, worker: str | None) -> bool:
        """Whether nobody can read at present what a worker had written."""
        return worker is not None and self._folders.get(worker) in self._out_of_reach
