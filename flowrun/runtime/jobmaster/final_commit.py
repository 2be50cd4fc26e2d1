"""The end of a job that ends well: a last checkpoint, then the last commit. Used by the job master's thread only."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.errors import StateError
from flowrun.runtime.jobmaster.commits import CommitCoordinator
from flowrun.runtime.jobmaster.snapshot_requests import SnapshotRequests
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.mailbox import Post


class FinalCommit:
    """Commits what a job left once every subtask has finished, and every snapshot that somebody asked for is there or has failed.

    Args:
        requests: open ones are waited for; the last checkpoint is one of them.
        commits: of the job.
        takes_checkpoints: whether the job has a folder for checkpoints.
        stopped: whether the job ends with a snapshot by now, which then is the last checkpoint.
        post: puts a mail into the job master's mailbox.
        committed: everything is visible.
        failed: the last checkpoint, or a commit, failed.
    """

    def __init__(
        self,
        requests: SnapshotRequests,
        commits: CommitCoordinator,
        *,
        takes_checkpoints: bool,
        stopped: Callable[[], bool],
        post: Post,
        committed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._requests = requests
        self._commits = commits
        self._takes_checkpoints = takes_checkpoints
        self._stopped = stopped
        self._post = post
        self._committed = committed
        self._failed = failed
        self._last: SnapshotTicket | None = None
        self._under_way = False

    def begin(self) -> None:
        """Every subtask has finished. A checkpoint before the commit lets a resume make good a crash amid it."""
        self._under_way = True
        self.look()

    def interrupt(self) -> None:
        """The job goes back, or is taken down."""
        self._under_way, self._last = False, None

    def look(self) -> None:
        """A request may have been answered: commit, once all that comes with the answer is carried out, if it was the last."""
        if self._under_way and not self._requests.has_open:
            self._post(self._commit)

    def _commit(self) -> None:
        if not self._under_way or self._requests.has_open:
            return
        if self._last is None and self._takes_checkpoints and not self._stopped():
            # Not before what was asked for is answered: a stop that is still being stored becomes the last checkpoint itself.
            self._last = self._requests.ask_last()
            self.look()
            return
        last = self._last
        self.interrupt()
        try:
            if last is not None:
                last.wait()  # answered
        except StateError as error:
            self._failed(error)
            return
        self._commits.commit_all(self._committed, self._failed)
