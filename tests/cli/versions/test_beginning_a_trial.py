"""What is noted when the old version of a pipeline has ended and the new one begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.cli.supervising import begin_trial
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import HealthRules, Outcome, Phase, PipelineVersion, Upgrade
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.state_path import resolve


@pytest.mark.parametrize(("savepoint", "restored_from"), [("/s/savepoint-3", "/s/savepoint-3"), ("", None)])
def test_the_new_version_says_where_it_began(tmp_path: Path, savepoint: str, restored_from: str | None) -> None:
    history = VersionHistory(resolve(str(tmp_path)))
    old = history.note_running(PipelineVersion(0, PipelineText("p.sql", "SELECT 1", "/home/ada"), "a=1", 7))
    new = history.add(
        PipelineVersion(0, PipelineText("p.sql", "SELECT 2", "/home/ada"), "a=2", 8, outcome=Outcome.TRIAL)
    )
    upgrade = history.write_upgrade(Upgrade("u1", Phase.STOPPING, old.number, new.number, "job", 9, HealthRules(1_000)))
    begun = begin_trial(history, upgrade, savepoint)
    assert (begun.phase, begun.savepoint) == (Phase.TRIAL, savepoint)
    assert [v.restored_from for v in history.versions()] == [None, restored_from]
    assert history.version(new.number).outcome is Outcome.TRIAL
