"""Savepoints that upgrades took are deleted when they are old, and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import HealthRules, Phase, PipelineVersion, Upgrade
from flowrun.runners.versions.savepoints import forget_savepoints
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.leases import holding_leases, lease
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.stop_note import StopNote, write_stop_note

VERSION = PipelineVersion(0, PipelineText("p.sql", "SELECT 1", "/home/ada"), "a=1", 7)


@pytest.fixture
def history(tmp_path: Path) -> VersionHistory:
    return VersionHistory(resolve(str(tmp_path / "orders")))


def taken(history: VersionHistory, *numbers: int) -> list[Path]:
    """Savepoints of upgrades at these checkpoints; the names of the upgrades say nothing of their order."""
    made = [Path(history.savepoints) / f"{(number * 7) % 10:012x}" / f"savepoint-orders-{number}" for number in numbers]
    for folder in made:
        folder.mkdir(parents=True)
        (folder / "_metadata.json").write_text("{}")
    return made


def test_the_last_ones_are_kept(history: VersionHistory) -> None:
    made = taken(history, 1, 2, 3, 9, 10)
    mine = Path(history.savepoints) / "mine" / "savepoint-orders-0"
    mine.mkdir(parents=True)
    assert forget_savepoints(history, 2) == 3
    assert [folder.exists() for folder in made] == [False, False, False, True, True]
    assert mine.exists(), "it is of no upgrade"
    assert forget_savepoints(history, 2) == 0


def test_what_somebody_may_go_on_from_is_kept_however_old_it_is(history: VersionHistory) -> None:
    made = taken(history, 1, 2, 3, 4, 5, 6)
    history.note_running(replace(VERSION, restored_from=str(made[0])))
    tried = history.add(replace(VERSION, fingerprint="b", restored_from=str(made[1])))
    rules = HealthRules(1_000)
    history.write_upgrade(Upgrade("u", Phase.WENT_BACK, 1, tried.number, "job", 7, rules, savepoint=str(made[2])))
    write_stop_note(history.job_folder, StopNote(4, str(made[3])))
    assert forget_savepoints(history, 1) == 1
    assert [folder.exists() for folder in made] == [True, True, True, True, False, True]


def test_nothing_is_deleted_while_somebody_reads(history: VersionHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    made = taken(history, 1, 2)
    with holding_leases():
        lease(history.job_folder)
        monkeypatch.setattr("flowrun.state.storage.leases.os.getpid", lambda: 1)  # as another process sees it
        assert forget_savepoints(history, 1) == 0
        monkeypatch.undo()
    assert made[0].exists()
    assert forget_savepoints(history, 1) == 1


def test_a_folder_without_versions_has_nothing_to_forget(history: VersionHistory) -> None:
    assert forget_savepoints(history, 1) == 0
