"""What is noted when the old version of a pipeline has ended and the new one begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.logs import LogOptions
from flowrun.cli.supervising import begin_trial
from flowrun.cli.versions.following import take_over
from flowrun.errors import StateError
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


@pytest.mark.parametrize(("phase", "secret"), [(Phase.ACCEPTED, "NEW"), (Phase.WENT_BACK, "OLD")])
def test_a_job_that_was_lost_right_after_an_upgrade_is_resumed_with_the_secrets_of_the_version_that_ran(
    tmp_path: Path, phase: Phase, secret: str
) -> None:
    history = VersionHistory(resolve(str(tmp_path)))
    old, new = (
        history.add(PipelineVersion(0, PipelineText("p.sql", name, "/home/ada", withheld=(name,)), f"a={name}", 7))
        for name in ("OLD", "NEW")
    )
    history.write_upgrade(Upgrade("u1", phase, old.number, new.number, "job", 9, HealthRules(1_000)))
    view = ViewOptions(quiet=True, log=LogOptions(), live=None, report=None)
    with pytest.raises(StateError) as lost:
        take_over(history, {}, view, lambda: None)
    assert lost.value.hint is not None
    assert lost.value.hint.endswith(f"flowrun resume --from-savepoint {tmp_path} --secret-var {secret}=…")
