"""What is committed when, and what is never aborted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from checkpoint_fakes import Table, commit_all
from runtime_fakes import Count, job, vertex

from flowrun.api.sink import Committable
from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.jobmaster.commit_hold import CommitHold
from flowrun.runtime.jobmaster.commits import CommitCoordinator, CommitError
from flowrun.runtime.messages import CommittablesReport
from flowrun.state.commit_log import LoggedCommit


class World:
    """One sink whose staged files are named after their commit ids."""

    def __init__(self, *, checkpoints: bool = True, hold: CommitHold | None = None) -> None:
        self.table = Table()
        self.noted: list[LoggedCommit] = []
        source = vertex("source", Count)
        sink = vertex("sink", Count, parallelism=2, sink=self.table).read(source)
        self.commits = CommitCoordinator(
            job(source, sink), checkpoints=checkpoints, log=self.noted.extend, hold=hold, before_hold={"old"}
        )

    def submit(
        self, *names: str, at_end: bool = False, subtask: int = 0, running: bool = True, after_snapshot: int = 0
    ) -> None:
        self.table.staged.update({n: [1] for n in names if n not in self.table.visible})
        entries = tuple(Committable(n, {}) for n in names)
        self.commits.report(
            CommittablesReport(ExecutionVertexId("sink-0", subtask), "a", "sink-0", entries, at_end, after_snapshot),
            running=running,
        )

    def complete(self, *names: str) -> None:
        self.table.staged.update({n: [1] for n in names if n not in self.table.visible})
        self.commits.checkpoint_completed({"sink-0": [Committable(n, {}) for n in names]})

    @property
    def visible(self) -> list[str]:
        return list(self.table.visible)


def test_what_a_running_sink_submits_belongs_to_a_completed_checkpoint_and_is_committed_in_whatever_state_the_job_is() -> (
    None
):
    world = World()
    world.submit("a", running=False)
    assert world.visible == ["a"]


def test_without_checkpoints_only_a_running_job_shows_what_it_rolled() -> None:
    world = World(checkpoints=False)
    world.submit("a")
    world.submit("b", running=False)
    assert world.visible == ["a"]
    assert world.commits.settle() == []
    assert world.table.aborted == {"b"}


@pytest.mark.parametrize(("checkpoints", "noted"), [(False, [(5, ["a"])]), (True, [])])
def test_what_no_checkpoint_will_hold_is_noted_for_those_who_go_back_behind_it(
    checkpoints: bool, noted: list[tuple[int, list[str]]]
) -> None:
    world = World(checkpoints=checkpoints)
    world.submit("a", after_snapshot=4)
    world.submit("b")
    assert [(n.checkpoint_id, [c.commit_id for c in n.committables]) for n in world.noted] == noted


def test_what_a_finished_subtask_left_waits_for_a_checkpoint_that_holds_it() -> None:
    world = World()
    world.submit("a", at_end=True)
    world.submit("b", at_end=True, subtask=1)
    assert {k: [c.commit_id for c in v] for k, v in world.commits.held().items()} == {
        ("sink-0", 0): ["a"],
        ("sink-0", 1): ["b"],
    }
    world.complete("a")
    assert world.visible == ["a"]
    assert list(world.commits.held()) == [("sink-0", 1)]


def test_the_end_commits_in_the_order_of_subtasks() -> None:
    world = World()
    world.submit("b", at_end=True, subtask=1)
    world.submit("a", at_end=True)
    commit_all(world.commits)
    assert world.visible == ["a", "b"]


def test_what_a_completed_checkpoint_holds_is_committed_when_the_job_ends_without_success() -> None:
    world = World()
    world.complete("a", "b")
    world.submit("a")
    world.submit("c", at_end=True)
    assert world.commits.settle() == []
    assert world.visible == ["a", "b"]
    assert world.table.aborted == {"c"}


def test_a_commit_that_fails_at_the_end_stays_in_the_checkpoint() -> None:
    world = World()
    world.complete("a")

    def fail() -> None:
        raise OSError("away")

    world.table.before_commit = fail
    assert world.commits.settle() == [
        "sink 'sink' could not commit what the last checkpoint holds: away; resuming from it tries again"
    ]
    assert world.table.aborted == set()


@pytest.mark.parametrize("going_back", [True, False])
def test_what_cannot_be_discarded_is_said_and_ends_nothing(going_back: bool) -> None:
    world = World()
    world.submit("a", at_end=True)

    def fail() -> None:
        raise OSError("away")

    world.table.before_abort = fail
    problems = world.commits.abort_uncovered([ExecutionVertexId("sink-0", 0)]) if going_back else world.commits.settle()
    assert problems == ["sink 'sink' could not discard what it had written: away"]
    assert held(world) == []


def held(world: World) -> list[str]:
    return [c.commit_id for entries in world.commits.held().values() for c in entries]


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_failed_commit_names_the_sink_and_keeps_the_committables(checkpoints: bool) -> None:
    world = World(checkpoints=checkpoints)

    def fail() -> None:
        raise OSError("away")

    world.table.before_commit = fail
    with pytest.raises(CommitError) as raised:
        world.submit("a")
    assert raised.value.sink == "sink"
    assert held(world) == ["a"]
    world.submit("b", at_end=True)
    with pytest.raises(CommitError):
        commit_all(world.commits)
    assert held(world) == ["a", "b"]
    world.table.before_commit = lambda: None
    commit_all(world.commits)
    assert world.visible == ["a", "b"]
    assert held(world) == []


def test_a_commit_that_fails_when_its_checkpoint_is_complete_is_still_owed() -> None:
    world = World()
    world.submit("a", at_end=True)

    def fail() -> None:
        raise OSError("away")

    world.table.before_commit = fail
    with pytest.raises(CommitError):
        world.complete("a")
    world.table.before_commit = lambda: None
    assert world.commits.settle() == []
    assert world.visible == ["a"]
    assert world.table.aborted == set()


def test_the_end_commits_what_the_last_checkpoint_holds_before_what_came_after_it() -> None:
    world = World()
    world.complete("owed")
    world.submit("later", at_end=True)
    commit_all(world.commits)
    assert world.visible == ["owed", "later"]


def test_a_subtask_commits_in_the_order_in_which_it_handed_over() -> None:
    world = World()
    for name in ("z", "m", "a"):
        world.submit(name, at_end=True, subtask=1)
    world.submit("y", at_end=True)
    assert [c.commit_id for c in world.commits.held()["sink-0", 1]] == ["z", "m", "a"]
    commit_all(world.commits)
    assert world.visible == ["y", "z", "m", "a"]


def test_a_completed_checkpoint_commits_in_the_order_in_which_it_was_handed_over() -> None:
    world = World()
    world.submit("z", "a", at_end=True)
    world.complete("a", "z")
    assert world.visible == ["z", "a"]


def test_going_back_aborts_what_the_checkpoint_does_not_hold_of_these_subtasks() -> None:
    world = World()
    world.commits.go_back_to({"sink-0": [Committable("kept", {})]})
    world.submit("kept", "new", at_end=True)
    world.submit("other", at_end=True, subtask=1)
    assert world.commits.abort_uncovered([ExecutionVertexId("sink-0", 0)]) == []
    assert world.table.aborted == {"new"}
    assert list(world.commits.held()) == [("sink-0", 1)]
    world.commits.commit_owed({"another"})
    assert world.visible == []
    world.commits.commit_owed({"sink-0"})
    assert world.visible == ["kept"]


def test_what_a_savepoint_of_the_user_holds_is_never_deleted() -> None:
    world = World()
    world.submit("a", "b", at_end=True)
    world.commits.protect({"sink-0": [Committable("a", {})]})
    world.commits.abort_uncovered([ExecutionVertexId("sink-0", 0)])
    assert world.table.aborted == {"b"}
    world.commits.discard_orphans("lineage", {"x"})
    assert world.table.orphans == [("lineage", frozenset({"a", "x"}))]
    assert list(world.table.staged) == ["a"]


class PlainCommitter:
    """Cannot tell what earlier attempts have left."""

    def commit(self, committables: Sequence[Committable]) -> None:
        raise AssertionError("nothing was handed over")

    abort = commit


class PlainTable(Table):
    def create_committer(self) -> Any:
        return PlainCommitter()


def test_a_sink_that_cannot_delete_what_was_left_does_not_keep_others_from_it() -> None:
    table = Table({"left": [1]})
    source = vertex("source", Count)
    sinks = [vertex(name, Count, sink=s).read(source) for name, s in (("a", PlainTable()), ("b", table))]
    CommitCoordinator(job(source, *sinks), checkpoints=True).discard_orphans("lineage", ())
    assert table.orphans == [("lineage", frozenset())]
    assert table.staged == {}


class FailingCommitter(PlainCommitter):
    def discard_orphans(self, owner: str, keep: Any) -> int:
        raise OSError("away")


class FailingTable(Table):
    def create_committer(self) -> Any:
        return FailingCommitter()


def test_a_sink_that_fails_to_delete_what_was_left_is_named() -> None:
    source = vertex("source", Count)
    commits = CommitCoordinator(job(source, vertex("a", Count, sink=FailingTable()).read(source)), checkpoints=True)
    with pytest.raises(CommitError) as raised:
        commits.discard_orphans("lineage", ())
    assert raised.value.sink == "a"
    assert str(raised.value.__cause__) == "away"


class OpenCommitter:
    """Is open from its first commit on. The one of `stuck` cannot be closed."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def commit(self, committables: Sequence[Committable]) -> None:
        self._log.append(f"{self._name} is open")

    abort = commit

    def close(self) -> None:
        self._log.append(f"{self._name} is closed")
        if self._name == "stuck":
            raise OSError("away")


def test_the_end_closes_committers_and_is_no_failure_if_one_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    class OpenTable(Table):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def create_committer(self) -> Any:
            return OpenCommitter(self._name, log)

    source = vertex("source", Count)
    sinks = [vertex(name, Count, sink=OpenTable(name)).read(source) for name in ("stuck", "other", "unused")]
    commits = CommitCoordinator(job(source, *sinks), checkpoints=True)
    commits.checkpoint_completed({f"{name}-0": [Committable("c", {})] for name in ("stuck", "other")})
    commits.commit_all(lambda: None, lambda error: pytest.fail(str(error)))
    commits.close()
    assert log == ["stuck is open", "other is open", "stuck is closed", "other is closed"]
    assert "the committer of sink 'stuck' cannot be closed: away" in caplog.text


class Hold:
    """Accepts unless it is told not to."""

    def __init__(self) -> None:
        self.refusal: StateError | None = None
        self.asked = 0

    def accept(self) -> None:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal


def covered(*names: str) -> dict[str, list[Committable]]:
    return {"sink-0": [Committable(n, {}) for n in names]}


def test_a_job_on_trial_commits_only_what_it_restored_until_it_is_accepted() -> None:
    world = World(hold=Hold())
    world.submit("old")
    world.submit("a")
    assert world.visible == ["old"]
    world.commits.hold_back(7, covered("a", "b"))
    world.commits.commit_owed({"sink-0"})
    assert (world.visible, world.noted) == (["old"], [])
    world.commits.accept()
    world.complete("a", "b")
    world.submit("b")
    assert sorted(world.visible) == ["a", "b", "old"]
    assert [(n.checkpoint_id, [c.commit_id for c in n.committables]) for n in world.noted] == [(7, ["a", "b"])]


def test_a_trial_that_fails_leaves_nothing_behind_that_anybody_sees() -> None:
    world = World(hold=Hold())
    world.submit("a")
    world.commits.hold_back(7, covered("a"))
    world.submit("b", at_end=True)
    assert world.commits.settle() == []
    assert (world.visible, world.noted, world.table.aborted) == ([], [], {"b"})


def test_a_trial_that_must_not_count_any_more_commits_nothing_even_at_its_end() -> None:
    hold = Hold()
    hold.refusal = StateError("another version runs")
    world = World(hold=hold)
    world.submit("a", at_end=True)
    world.commits.hold_back(7, covered("a"))
    with pytest.raises(StateError, match="another version runs"):
        commit_all(world.commits)
    assert world.visible == []
    hold.refusal = None
    commit_all(world.commits)
    assert (world.visible, hold.asked, world.commits.is_held) == (["a"], 2, False)
