"""What a run found when it began gives way when the run shows something, sink by sink."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from checkpoint_fakes import Table, TableCommitter, commit_all
from runtime_fakes import Count, job, vertex

from flowrun.api.sink import Committable
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.jobmaster.commits import CommitCoordinator, CommitError
from flowrun.runtime.messages import CommittablesReport

NAMES = ("left", "right")


@dataclass
class Overwritten(Table):
    """A sink that notes what becomes of the rows of earlier runs."""

    said: list[str] = field(default_factory=list)
    fails: bool = False

    def create_committer(self) -> TableCommitter:
        return OverwritingCommitter(self)


class OverwritingCommitter(TableCommitter):
    def __init__(self, table: Overwritten) -> None:
        super().__init__(table)
        self._overwritten = table

    def replace_earlier(self, run: str) -> None:
        if self._overwritten.fails:
            raise OSError("away")
        self._overwritten.said.append(f"replace {run}")

    def keep_earlier(self, run: str) -> None:
        self._overwritten.said.append(f"keep {run}")


class World:
    """Two such sinks behind one source; a third cannot replace anything."""

    def __init__(self, run: str = "r", *, checkpoints: bool = False) -> None:
        self.tables = {name: Overwritten() for name in NAMES}
        source = vertex("source", Count)
        sinks = [vertex(name, Count, sink=table).read(source) for name, table in self.tables.items()]
        plain = vertex("plain", Count, sink=Table()).read(source)
        self.commits = CommitCoordinator(job(source, *sinks, plain), checkpoints=checkpoints, run=run)

    def shows(self, name: str, commit_id: str) -> None:
        self.tables[name].staged[commit_id] = [1]
        vertex_id = ExecutionVertexId(f"{name}-0", 0)
        entries = (Committable(commit_id, {}),)
        self.commits.report(CommittablesReport(vertex_id, "a", f"{name}-0", entries, False), running=True)

    @property
    def said(self) -> dict[str, list[str]]:
        return {name: table.said for name, table in self.tables.items()}


def test_a_sink_replaces_once_when_it_shows_something_and_leaves_the_others_alone() -> None:
    world = World()
    world.shows("left", "a")
    world.shows("left", "b")
    assert world.said == {"left": ["replace r"], "right": []}


def test_a_run_that_ends_well_replaces_in_sinks_without_rows_too_but_not_again_in_the_others() -> None:
    world = World()
    world.shows("left", "a")
    commit_all(world.commits)
    assert world.said == {"left": ["replace r"], "right": ["replace r"]}


def test_a_completed_checkpoint_shows_something_in_every_sink() -> None:
    world = World(checkpoints=True)
    world.commits.checkpoint_completed({})
    assert world.said == {"left": ["replace r"], "right": ["replace r"]}


def test_what_a_sink_of_a_failed_run_did_not_replace_stays() -> None:
    world = World()
    world.shows("left", "a")
    assert world.commits.settle() == []
    assert world.said == {"left": ["replace r"], "right": ["keep r"]}


def test_where_somebody_can_go_on_from_a_failed_run_nothing_is_settled_yet() -> None:
    world = World(checkpoints=True)
    world.commits.protect({})
    assert world.commits.settle() == []
    assert world.said == {"left": [], "right": []}


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_run_that_replaces_nothing_asks_nobody(ends_well: bool) -> None:
    world = World(run="")
    world.shows("left", "a")
    if ends_well:
        commit_all(world.commits)
    else:
        world.commits.settle()
    assert world.said == {"left": [], "right": []}


def test_a_sink_that_cannot_replace_is_named_and_tries_again() -> None:
    world = World()
    world.tables["right"].fails = True
    with pytest.raises(CommitError) as raised:
        commit_all(world.commits)
    assert raised.value.sink == "right"
    world.tables["right"].fails = False
    commit_all(world.commits)
    assert world.said == {"left": ["replace r"], "right": ["replace r"]}
