"""The end of a job that ends well: what was asked for comes first, then a last checkpoint, then the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from flowrun.core.clock import SystemClock
from flowrun.errors import StateError
from flowrun.runtime.checkpoint.events import SnapshotRequested
from flowrun.runtime.jobmaster.commits import CommitCoordinator
from flowrun.runtime.jobmaster.final_commit import FinalCommit
from flowrun.runtime.jobmaster.snapshot_requests import SnapshotRequests
from flowrun.runtime.mailbox import Mailbox


class Ending:
    """A job whose subtasks have all finished, without a coordinator: requests are answered by hand."""

    def __init__(self, *, takes_checkpoints: bool = True) -> None:
        self.submitted: list[SnapshotRequested] = []
        self.happened: list[str] = []
        self.stopped = False
        self.mailbox = Mailbox()
        self.requests = SnapshotRequests(self.mailbox, SystemClock(), takes_checkpoints, self.submitted.append)
        self.requests.resume()
        self.final = FinalCommit(
            self.requests,
            cast(CommitCoordinator, cast(Any, self)),
            takes_checkpoints=takes_checkpoints,
            stopped=lambda: self.stopped,
            post=self.mailbox.put,
            committed=lambda: self.happened.append("committed"),
            failed=lambda error: self.happened.append(str(error)),
        )

    def commit_all(self, done: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """What the coordinator of commits does last."""
        self.happened.append("commit")
        done()

    def deliver(self) -> None:
        while (mail := self.mailbox.take_nowait()) is not None:
            mail()

    def answer(self, number: int, failure: str | None = None) -> None:
        path = None if failure else f"chk-{number}"
        self.requests.answer(self.submitted[number].request_id, path, failure, None)
        self.final.look()
        self.deliver()


def test_a_last_checkpoint_comes_before_the_commit() -> None:
    job = Ending()
    job.final.begin()
    job.deliver()
    assert (len(job.submitted), job.happened) == (1, [])
    job.answer(0)
    assert job.happened == ["commit", "committed"]


def test_a_job_without_checkpoints_commits_at_once() -> None:
    job = Ending(takes_checkpoints=False)
    job.final.begin()
    job.deliver()
    assert (job.submitted, job.happened) == ([], ["commit", "committed"])


def test_a_failed_last_checkpoint_is_told() -> None:
    job = Ending()
    job.final.begin()
    job.deliver()
    job.answer(0, "disk full")
    assert job.happened == ["disk full"]


def test_the_input_ends_while_a_stop_is_stored_which_then_is_the_last_checkpoint() -> None:
    job = Ending()
    stop = job.requests.ask("/savepoints", savepoint=True, stop=True, drain=False)
    job.deliver()
    job.final.begin()
    job.deliver()
    assert len(job.submitted) == 1, "another checkpoint would be refused: the job is being stopped already"
    job.stopped = True
    job.answer(0)
    assert stop.wait() == "chk-0"
    assert job.happened == ["commit", "committed"]


def test_the_input_ends_while_a_stop_is_stored_and_fails() -> None:
    job = Ending()
    stop = job.requests.ask("/savepoints", savepoint=True, stop=True, drain=False)
    job.deliver()
    job.final.begin()
    job.answer(0, "disk full")
    with pytest.raises(StateError, match="disk full"):
        stop.wait()
    assert len(job.submitted) == 2, "then a last checkpoint is taken after all"
    job.answer(1)
    assert job.happened == ["commit", "committed"]
