"""Jobs that are over because an upgrade has stopped them, and those that are over for another reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowrun.runners.control_client import client_of
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import HealthRules, Phase, Upgrade
from flowrun.runtime.lifecycle import JobState
from flowrun.state.storage.state_path import resolve
from tests.rest.control_fakes import FakeJob, controlled

UPGRADE = Upgrade("u1", Phase.STOPPING, 1, 2, "job", 7, HealthRules(1_000))
KIND = "upgrade_unfinished"


def kinds(folder: Path, job: FakeJob) -> list[str]:
    job.checkpoint_root = str(folder)
    with controlled(job, folder / "run") as endpoint:
        answer: Any = client_of(endpoint.entry).why()
        return [found["kind"] for found in answer["findings"]]


@pytest.mark.parametrize("phase", Phase)
def test_a_job_that_is_over_tells_of_an_upgrade_that_is_not_finished(tmp_path: Path, phase: Phase) -> None:
    job, history = FakeJob(), VersionHistory(resolve(str(tmp_path)))
    job.state = JobState.FINISHED
    assert KIND not in kinds(tmp_path, job)
    history.write_upgrade(replace(UPGRADE, phase=phase))
    found = kinds(tmp_path, job)
    assert (KIND in found) == phase.is_open
    assert found[0] == KIND or not phase.is_open, "the rest follows from it"
    job.state = JobState.RUNNING
    assert KIND not in kinds(tmp_path, job), "a job that runs is no longer waited for"


def test_a_record_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    job = FakeJob()
    job.state = JobState.FINISHED
    VersionHistory(resolve(str(tmp_path))).write_upgrade(UPGRADE)
    (tmp_path / "_versions" / "upgrade.json").write_text("{")
    assert kinds(tmp_path, job)[-1] == "upgrade_unknown"
