"""What follows from checkpoints for the rest of the job master. Used by the job master's thread only."""

from __future__ import annotations

from flowrun.runtime.jobmaster.final_commit import FinalCommit
from flowrun.runtime.jobmaster.scheduler_driver import SchedulerDriver
from flowrun.runtime.jobmaster.scheduler_events import CheckpointCompleted, StopSnapshotCompleted
from flowrun.runtime.jobmaster.snapshot_requests import SnapshotRequests


class CheckpointOutcomes:
    """Tells the scheduler, and whoever asked for a snapshot, what became of checkpoints: a `CheckpointListener`.

    Args:
        driver: of the scheduler.
        requests: are answered.
    """

    def __init__(self, driver: SchedulerDriver, requests: SnapshotRequests) -> None:
        self._driver = driver
        self._requests = requests
        self._final_commit: FinalCommit | None = None
        self.stop_path: str | None = None
        """Path of the snapshot with which the job is stopped; None: there is none yet."""

    def connect(self, final_commit: FinalCommit) -> None:
        """Set who waits for answers before it commits; before anything else."""
        self._final_commit = final_commit

    def snapshot_answered(self, request_id: str, path: str | None, failure: str | None, hint: str | None) -> None:
        """A request for a snapshot is answered."""
        assert self._final_commit is not None
        self._requests.answer(request_id, path, failure, hint)
        self._final_commit.look()

    def stopped_at(self, path: str) -> None:
        """The job ends with this snapshot."""
        self.stop_path = path
        self._driver.handle(StopSnapshotCompleted())

    def checkpoint_completed(self) -> None:
        """There is a newer one to go back to."""
        self._driver.handle(CheckpointCompleted())

    def broke(self, error: Exception) -> None:
        """Too many checkpoints, a hook or a commit failed."""
        self._driver.fail(error)
