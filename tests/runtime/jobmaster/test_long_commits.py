"""Committers that take long run beside the job master, and what they were given is held until they have returned."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from checkpoint_fakes import Table
from runtime_fakes import Count, job, vertex

from flowrun.api.sink import Committable
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.jobmaster.commits import CommitCoordinator, CommitError
from flowrun.runtime.jobmaster.io_thread import IoThread
from flowrun.runtime.jobmaster.long_commits import LongCommits
from flowrun.runtime.mailbox import Mailbox
from flowrun.runtime.messages import CommittablesReport

SOON_S = 20


class World:
    """A sink whose committer waits for a gate, and a job master whose mails run when the test says so."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.committing = threading.Semaphore(0)
        self.calls = 0
        self.error: Exception | None = None
        self.failures: list[Exception] = []
        self.mailbox = Mailbox()
        self.table = Table(before_commit=self._wait, commits_long=True)
        source = vertex("source", Count)
        sink = vertex("sink", Count, parallelism=2, sink=self.table).read(source)
        self.long = LongCommits(IoThread("commits", self.mailbox.put), self.failures.append)
        self.commits = CommitCoordinator(job(source, sink), checkpoints=True, long=self.long)

    def _wait(self) -> None:
        self.calls += 1
        self.committing.release()
        assert self.open.wait(SOON_S)
        if self.error is not None:
            raise self.error

    def submit(self, *names: str, at_end: bool = False, subtask: int = 0) -> None:
        self.table.staged.update({n: [1] for n in names if n not in self.table.visible})
        entries = tuple(Committable(n, {}) for n in names)
        report = CommittablesReport(ExecutionVertexId("sink-0", subtask), "a", "sink-0", entries, at_end, 0)
        self.commits.report(report, running=True)

    def complete(self, *names: str) -> None:
        self.commits.checkpoint_completed({"sink-0": [Committable(n, {}) for n in names]})

    def deliver(self, mails: int = 1) -> None:
        for _ in range(mails):
            self.mailbox.wait_for_mail()
            mail = self.mailbox.take_nowait()
            assert mail is not None
            mail()

    @property
    def held(self) -> list[str]:
        return [c.commit_id for entries in self.commits.held().values() for c in entries]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.open.set()
    made.commits.close()


def test_the_job_master_goes_on_while_a_commit_is_under_way_and_holds_it(world: World) -> None:
    world.submit("a")
    assert world.committing.acquire(timeout=SOON_S)
    assert (world.held, list(world.table.visible)) == (["a"], [])
    world.open.set()
    world.deliver()
    assert (world.held, list(world.table.visible)) == ([], ["a"])
    assert world.failures == []


def test_a_checkpoint_that_holds_what_is_under_way_does_not_commit_it_twice(world: World) -> None:
    world.submit("a")
    assert world.committing.acquire(timeout=SOON_S)
    world.complete("a")
    world.open.set()
    world.deliver()
    assert world.commits.settle() == []
    assert (world.calls, world.held) == (1, [])


def test_what_a_checkpoint_holds_is_committed_in_one_call_whoever_submits_it(world: World) -> None:
    world.open.set()
    world.table.staged.update({"a": [1], "b": [1]})
    world.complete("a", "b")
    world.deliver()
    assert (world.calls, list(world.table.visible)) == (1, ["a", "b"])


def test_commits_of_one_sink_keep_their_order(world: World) -> None:
    world.submit("b")
    world.submit("a", subtask=1)
    world.open.set()
    world.deliver(2)
    assert list(world.table.visible) == ["b", "a"]


def test_what_waited_for_a_checkpoint_is_committed_beside_the_job_master_too(world: World) -> None:
    world.submit("last", at_end=True)
    world.complete("last")
    assert world.committing.acquire(timeout=SOON_S)
    assert list(world.table.visible) == []
    world.open.set()
    world.deliver()
    assert list(world.table.visible) == ["last"]


def test_what_a_subtask_leaves_behind_a_barrier_is_no_part_of_that_checkpoint(world: World) -> None:
    subtask = ExecutionVertexId("sink-0", 0)
    world.submit("before", at_end=True)
    world.complete("before")  # it is being committed, and part of every checkpoint until it is
    assert world.committing.acquire(timeout=SOON_S)
    world.submit("after", at_end=True)
    world.submit("of another", at_end=True, subtask=1)
    held = world.commits.held({subtask})
    assert [c.commit_id for c in held["sink-0", 0]] == ["before"]
    assert [c.commit_id for c in held["sink-0", 1]] == ["of another"]
    assert [c.commit_id for c in world.commits.held()["sink-0", 0]] == ["before", "after"]


def test_a_failed_commit_is_told_with_its_cause_and_stays_held(world: World) -> None:
    world.error = OSError("away")
    world.open.set()
    world.submit("a")
    world.deliver()
    (failure,) = world.failures
    assert isinstance(failure, CommitError)
    assert (failure.sink, str(failure.__cause__)) == ("sink", "away")
    assert world.held == ["a"]


def test_the_end_of_a_failed_job_waits_and_does_not_abort_what_a_checkpoint_holds(world: World) -> None:
    world.submit("a")
    assert world.committing.acquire(timeout=SOON_S)
    world.submit("b", at_end=True, subtask=1)
    world.complete("a")
    threading.Timer(0.05, world.open.set).start()
    assert world.commits.settle() == []
    assert list(world.table.visible) == ["a"]
    assert world.table.aborted == {"b"}


def test_subtasks_that_go_back_wait_for_what_is_under_way(world: World) -> None:
    world.complete("a")
    world.submit("a")
    assert world.committing.acquire(timeout=SOON_S)
    threading.Timer(0.05, world.open.set).start()
    assert world.commits.abort_uncovered([ExecutionVertexId("sink-0", 0)]) == []
    assert list(world.table.visible) == ["a"]


def test_a_restore_commits_all_that_the_checkpoint_holds_in_its_order_before_subtasks_submit_their_parts(
    world: World,
) -> None:
    world.open.set()
    world.table.staged.update({"2": [1], "1": [1]})
    world.commits.go_back_to({"sink-0": [Committable(n, {}) for n in ("2", "1")]})
    world.commits.commit_owed(())
    assert list(world.table.visible) == ["2", "1"]


@pytest.mark.parametrize("error", [None, OSError("away")])
def test_the_last_commit_is_over_in_a_later_mail(world: World, error: Exception | None) -> None:
    happened: list[str] = []
    world.error = error
    world.submit("a", at_end=True)
    world.commits.commit_all(lambda: happened.append("done"), lambda error: happened.append(str(error.__cause__)))
    assert world.committing.acquire(timeout=SOON_S)
    assert happened == []
    world.open.set()
    world.deliver()
    assert happened == ["done" if error is None else "away"]
    assert world.held == ([] if error is None else ["a"])
    assert world.failures == []


def test_a_job_that_is_cancelled_amid_its_last_commit_does_not_end_well_too(world: World) -> None:
    happened: list[str] = []
    world.submit("a", at_end=True)
    world.commits.commit_all(lambda: happened.append("done"), lambda error: happened.append(str(error)))
    assert world.committing.acquire(timeout=SOON_S)
    threading.Timer(0.05, world.open.set).start()
    assert world.commits.settle() == []
    world.deliver()
    assert happened == []
