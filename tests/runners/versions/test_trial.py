"""A version on trial in this process: what it writes shows only once it is accepted, and is gone without a trace if it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.core.clock import SystemClock
from flowrun.errors import JobFailedError, StateError
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.keeping import VersionKeeper
from flowrun.runners.versions.making import version_of
from flowrun.runners.versions.records import HealthRules, Outcome, Phase, Upgrade
from flowrun.runners.versions.trial import GoingBack, Trial
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.lifecycle import JobState
from flowrun.state.storage.state_path import resolve
from tests.end_to_end.running import json_rows
from tests.servers.postgres import PostgresDatabase

ROWS = 6_000
PIPELINE = """\
name: ids
settings:
  batch_rows: 64
  checkpoint: {{interval: 20ms, dir: '{folder}/state'}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: {rate}
    schema: {{id: BIGINT}}
    fields: {{id: {{kind: sequence, start: 0, end: {last}}}}}
sinks:
  out: {{from: rows, {sink}}}
"""
RULES = HealthRules(within_ms=30_000, reads=True)


class Project:
    """A pipeline whose first version was stopped with a savepoint, halfway."""

    def __init__(self, folder: Path, sink: str = "", read: Callable[[], Iterable[int]] | None = None) -> None:
        self.folder = folder
        self.sink = sink or f"connector: filesystem, path: '{folder}/out', format: json"
        self.read = read or (lambda: [int(str(row["id"])) for row in json_rows(folder / "out")])
        self.history = VersionHistory(resolve(str(folder / "state" / "ids")))
        keeper = None
        with self.start(None, rate=500) as job:  # slowly, so that it is stopped long before its end on any machine
            while not self.history.numbers():
                if keeper is None:
                    keeper = VersionKeeper(self.compiled(), None, None, SystemClock())
                keeper.look(job)
                assert job.wait(10) is None
            self.savepoint = job.take_snapshot(f"{self.history.savepoints}/u1", stop=True).wait(30_000)
            job.wait(30_000)
        new = self.history.add(version_of(self.compiled(), 1, outcome=Outcome.TRIAL))
        upgrade = Upgrade("u1", Phase.TRIAL, 1, new.number, "job", 1, RULES, savepoint=self.savepoint)
        self.upgrade = self.history.write_upgrade(upgrade)

    def compiled(self, rate: int = 3_000) -> CompiledPipeline:
        file = self.folder / "ids.yaml"
        file.write_text(PIPELINE.format(folder=self.folder, rows=ROWS, last=ROWS - 1, rate=rate, sink=self.sink))
        return compile_pipeline(file)

    def start(self, restore_from: str | None, hold: Trial | None = None, rate: int = 3_000) -> LocalJob:
        state = JobStateOptions(
            str(self.folder / "state"),
            restore_from=restore_from,
            committed_after=AfterRestore.REFUSE,
            hold=hold,
            forget_later=restore_from is not None,
        )
        return start_embedded(self.compiled(rate).job_graph, state=state)

    def trial(self, rules: HealthRules = RULES) -> Trial:
        graph = self.compiled().job_graph
        sources = frozenset(v.vertex_id for v in graph.vertices if not v.inputs)
        return Trial(self.history, replace(self.upgrade, health=rules), sources, SystemClock())

    @property
    def phase(self) -> Phase:
        found = self.history.upgrade()
        assert found is not None
        return found.phase

    @property
    def ids(self) -> list[int]:
        return sorted(self.read())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def checkpoints(job: LocalJob, number: int) -> None:
    """Wait for so many."""
    while (status := job.status().checkpoints) is None or status.completed < number:
        assert job.wait(10) is None, "it should not have come to its end"


@pytest.mark.exhaustive
def test_nothing_shows_before_it_is_accepted_and_all_of_it_after(project: Project) -> None:
    before = project.ids
    trial = project.trial()
    with project.start(project.savepoint, trial) as job:
        checkpoints(job, 3)
        assert (project.ids, project.phase) == (before, Phase.TRIAL)
        trial.look(job)
        while not trial.is_accepted:
            assert job.wait(10) is None
        assert project.phase is Phase.ACCEPTED
        checkpoints(job, job.status().checkpoints.completed + 2)  # type: ignore[union-attr]
        assert len(project.ids) > len(before)
        trial.end("it is over")
        assert project.phase is Phase.ACCEPTED
        job.wait(60_000)
    assert project.ids == list(range(ROWS))
    assert project.history.version(2).outcome is Outcome.ACCEPTED


@pytest.mark.exhaustive
def test_what_an_unhealthy_version_did_is_gone_and_the_old_one_goes_on(project: Project) -> None:
    before = project.ids
    trial = project.trial(replace(RULES, within_ms=0, steady_ms=10_000))
    with project.start(project.savepoint, trial) as job:
        checkpoints(job, 3)
        trial.look(job)
        result = job.wait(30_000)
        assert result is not None
        assert result.state is JobState.CANCELED
    trial.end("it is over")
    assert (project.ids, project.phase) == (before, Phase.GOING_BACK)
    rejected = project.history.version(2)
    assert (rejected.outcome, rejected.reason) == (Outcome.REJECTED, "after 0ms: it was well for less than 10s")
    going_back = GoingBack(project.history, replace(project.upgrade, phase=Phase.GOING_BACK))
    with project.start(project.savepoint, rate=1_000_000) as job:
        going_back.look(job)
        job.wait(60_000)
        going_back.look(job)
    assert project.phase is Phase.WENT_BACK
    assert project.ids == list(range(ROWS))
    assert not [p for p in (project.folder / "out").rglob("*") if p.is_file() and p.name.startswith(".part")]


@pytest.mark.exhaustive
def test_a_trial_that_comes_to_its_end_or_is_stopped_counts(project: Project) -> None:
    trial = project.trial()
    with project.start(project.savepoint, trial, rate=1_000_000) as job:
        job.wait(60_000)
    assert (trial.is_accepted, project.phase) == (True, Phase.ACCEPTED)
    assert project.ids == list(range(ROWS))


@pytest.mark.exhaustive
def test_a_trial_that_somebody_has_ended_never_commits(project: Project) -> None:
    before = project.ids
    trial = project.trial()
    project.history.supersede()
    with pytest.raises(StateError, match="version 2 must not go on"):
        trial.accept()
    job = project.start(project.savepoint, trial)
    checkpoints(job, 1)
    job.take_snapshot(savepoint=False, stop=True)
    with pytest.raises(JobFailedError, match="version 2 must not go on"):
        job.wait(60_000)
    assert project.ids == before


@pytest.mark.exhaustive
def test_rows_of_a_database_are_held_back_too(tmp_path: Path, postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE out (id bigint)")
    sink = (
        f"connector: jdbc, url: '{postgres.jdbc_url}', table-name: out, username: {postgres.user}, "
        f"password: '{postgres.password}', sink.delivery-guarantee: exactly-once"
    )
    check_held_back(Project(tmp_path, sink, lambda: [row[0] for row in postgres.execute("SELECT id FROM out")]))


def check_held_back(project: Project) -> None:
    """A version that is gone back from writes nothing, and the old one all."""
    before = project.ids
    assert before
    trial = project.trial(replace(RULES, within_ms=0, steady_ms=10_000))
    with project.start(project.savepoint, trial) as job:
        checkpoints(job, 3)
        trial.look(job)
        job.wait(30_000)
    trial.end("it is over")
    assert (project.ids, project.phase) == (before, Phase.GOING_BACK)
    with project.start(project.savepoint, rate=1_000_000) as job:
        job.wait(60_000)
    assert project.ids == list(range(ROWS))
