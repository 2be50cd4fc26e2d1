"""What is kept of versions and upgrades, and what becomes of files that somebody damaged or altered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.core.clock import ManualClock
from flowrun.errors import PipelineError, StateError
from flowrun.masking import learn_secret
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import HealthRules, Outcome, Phase, PipelineVersion, Upgrade
from flowrun.runtime.cluster_messages import JobFile
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.state_path import resolve

TEXT = PipelineText("p.sql", "SELECT 1", "/home/ada", {"N": "1"}, withheld=("PASSWORD",))
VERSION = PipelineVersion(0, TEXT, "a=1", 7, {"nodes": []}, (JobFile("f.py", "0" * 64, 3),))
UPGRADE = Upgrade("u1", Phase.STOPPING, 1, 2, "job", 7, HealthRules(1_000), savepoint="/s")


@pytest.fixture
def history(tmp_path: Path) -> VersionHistory:
    return VersionHistory(resolve(str(tmp_path / "orders")))


def test_a_version_is_kept_once_however_often_it_is_started(history: VersionHistory) -> None:
    assert (history.latest(), history.numbers(), history.upgrade()) == (None, [], None)
    first = history.note_running(VERSION)
    assert (first.number, history.version(1)) == (1, first)
    assert history.note_running(replace(VERSION, began_ms=8)) == first
    assert history.note_running(replace(VERSION, text=replace(TEXT, text="SELECT 2"))).number == 2
    assert history.note_running(replace(VERSION, files=())).number == 3


def test_what_was_rejected_is_not_the_one_that_runs(history: VersionHistory) -> None:
    history.note_running(VERSION)
    tried = history.add(replace(VERSION, fingerprint="a=2", outcome=Outcome.TRIAL))
    history.note_outcome(tried.number, Outcome.REJECTED, "it failed")
    latest = history.latest()
    assert latest is not None
    assert latest.number == 1
    assert history.version(2).reason == "it failed"


def test_a_reason_holds_no_secret(history: VersionHistory) -> None:
    history.note_running(VERSION)
    learn_secret("hunter2")
    history.note_outcome(1, Outcome.REJECTED, "no access with hunter2")
    assert history.write_upgrade(replace(UPGRADE, reason="hunter2 is wrong")).reason == "*** is wrong"
    assert history.version(1).reason == "no access with ***"


def test_old_versions_make_room_but_those_of_the_upgrade(
    history: VersionHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowrun.runners.versions.history.KEPT_VERSIONS", 4)
    history.write_upgrade(UPGRADE)
    for number in range(7):
        history.add(replace(VERSION, fingerprint=str(number)))
    assert history.numbers() == [1, 2, 4, 5, 6, 7]


def test_a_job_that_is_started_by_other_means_ends_an_upgrade(history: VersionHistory) -> None:
    assert history.supersede() is None
    history.write_upgrade(UPGRADE)
    ended = history.supersede()
    assert ended is not None
    assert ended.phase is Phase.SUPERSEDED
    assert history.upgrade() == ended
    assert history.supersede() is None


def test_one_at_a_time(history: VersionHistory, tmp_path: Path) -> None:
    lock = history.lock(ManualClock())
    with pytest.raises(StateError, match=r"another flowrun apply has this job in hand: process \d+ on ") as raised:
        VersionHistory(resolve(str(tmp_path / "orders"))).lock(ManualClock())
    assert raised.value.hint is not None
    assert "flowrun history" in raised.value.hint
    lock.release()
    history.lock(ManualClock()).release()


def test_a_damaged_file_is_named(history: VersionHistory, tmp_path: Path) -> None:
    history.add(VERSION)
    file = tmp_path / "orders" / "_versions" / "000001.json"
    file.write_text("{")
    with pytest.raises(StateError, match=r"000001\.json' is damaged"):
        history.latest()
    with pytest.raises(PipelineError, match="no version 5"):
        history.version(5)


def test_with_a_key_nobody_else_writes_versions(
    history: VersionHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.add(VERSION)
    monkeypatch.setenv("FLOWRUN_STATE_KEY", "k" * 32)
    with pytest.raises(StateError, match="is not signed"):
        history.version(1)
    history.add(VERSION)
    assert history.version(2).text == TEXT
    files = tmp_path / "orders" / "_versions"
    (files / "000003.json").write_bytes((files / "000002.json").read_bytes())
    with pytest.raises(StateError, match=r"the signature of .*000003\.json"):
        history.version(3)
    altered = (files / "000002.json").read_text().replace("SELECT 1", "SELECT 9")
    (files / "000002.json").write_text(altered)
    with pytest.raises(StateError, match=r"the signature of .*000002\.json"):
        history.version(2)
