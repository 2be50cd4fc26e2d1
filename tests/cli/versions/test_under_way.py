"""`flowrun apply` while another one has stopped the old version of a job and the new one has not begun: no job runs then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.cli.versions.under_way import note_upgrade, upgrade_under_way
from flowrun.runners.registry import JobRegistry
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import HealthRules, Phase, Upgrade
from flowrun.state.storage.state_path import resolve
from tests.end_to_end.conftest import Command

JOB = "aaaa1111" * 4
STOPPING = Upgrade("u1", Phase.STOPPING, 1, 2, JOB, 9, HealthRules(1_000))


@pytest.fixture
def history(tmp_path: Path, own_registry: Path) -> VersionHistory:
    """The versions of a job whose old version has stopped, somewhere on this machine."""
    made = VersionHistory(resolve(str(tmp_path / "somewhere" / "orders")))
    note_upgrade(JOB, "orders", made)
    made.write_upgrade(STOPPING)
    return made


@pytest.mark.parametrize("wanted", ["orders", "aaaa1111"])
def test_a_job_between_two_versions_is_no_job_that_does_not_run(
    flowrun: Command, history: VersionHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = flowrun("apply", "--to", wanted, "--version", "1", "--yes")
    assert refused.code == 1
    assert "an apply of version 2 is under way, or was interrupted: stopping the old version" in refused.err


def test_of_another_job_nothing_is_known(flowrun: Command, history: VersionHistory) -> None:
    refused = flowrun("apply", "--to", "payments", "--version", "1", "--yes")
    assert refused.code == 2
    assert "no job of yours runs on this machine" in refused.err


@pytest.mark.parametrize("after", [replace(STOPPING, phase=Phase.FAILED), replace(STOPPING, job_id="b" * 32)])
def test_an_upgrade_that_is_over_is_forgotten(history: VersionHistory, after: Upgrade) -> None:
    assert upgrade_under_way("orders") is not None
    history.write_upgrade(after)
    assert upgrade_under_way("orders") is None
    history.write_upgrade(STOPPING)
    assert upgrade_under_way("orders") is None, "its note is gone"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"job_id": "x"}'])
def test_notes_that_cannot_be_read_are_passed_over(history: VersionHistory, content: bytes) -> None:
    JobRegistry().leave("upgrade-0", content)
    assert upgrade_under_way("orders") is not None
