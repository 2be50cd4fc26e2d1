"""What an upgrade would mean, before anything is stopped: what changes in meaning, and what becomes of state."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import PipelineError, StateError
from flowrun.plan.guarantees import SinkGuarantee
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.making import modules_in_cache, version_of
from flowrun.runners.versions.plan_difference import Difference, changes_meaning, hidden_difference, plan_differences
from flowrun.runners.versions.records import Outcome, PipelineVersion
from flowrun.runtime.checkpoint.comparison import Comparison
from flowrun.runtime.checkpoint.compatibility import compare
from flowrun.runtime.jobmaster.job_state import state_directory
from flowrun.state.checkpoints import CheckpointMetadata, PipelineText
from flowrun.state.storage.locate import locate_in
from flowrun.state.storage.names import job_slug
from flowrun.state.storage.state_path import StatePath, resolve

EXACTLY_ONCE = "exactly once"
FIRST_CHECKPOINT_MS = 10_000
_LOOK_MS = 100


@record(eq=False)
class UpgradePlan:
    """What an upgrade would mean.

    Attributes:
        old: the version that runs; its number is 0 if it is not kept yet.
        new: the version that is to run; its number is 0.
        differences: in meaning; None: the plan of the old one is not known.
        comparison: what becomes of state.
        not_exact: sinks whose rows of a version that is not healthy are not held back, or are written again.
    """

    old: PipelineVersion
    new: PipelineVersion
    differences: Sequence[Difference] | None
    comparison: Comparison
    not_exact: Sequence[SinkGuarantee]

    @property
    def is_empty(self) -> bool:
        """Whether the new version is the old one, but for names and layout."""
        return self.differences is not None and not changes_meaning(self.differences)


def newest_state(job_folder: StatePath, name: str, clock: Clock) -> CheckpointMetadata:
    """The newest checkpoint of a job that runs; waits for the first one of a job that has just begun.

    Raises:
        PipelineError: it has completed none within ten seconds.
    """
    pause, until = threading.Condition(), clock.now_ms() + FIRST_CHECKPOINT_MS
    while True:
        try:
            return locate_in(job_folder).metadata
        except StateError as error:
            if clock.now_ms() >= until:
                raise PipelineError.of(
                    f"'{name}' has no checkpoint yet that could be compared with: {error.message}",
                    "try again when it has one: flowrun jobs shows its checkpoints",
                ) from error
        with pause:
            clock.wait(pause, _LOOK_MS)


def running_version(history: VersionHistory, state: CheckpointMetadata, now_ms: int) -> PipelineVersion:
    """The version that runs; its number is 0 if it is not kept yet.

    Raises:
        PipelineError: its text is not known.
        StateError: the history cannot be read.
    """
    text = state.pipeline
    if text is None:
        raise PipelineError.of(
            f"'{state.job_name}' was made in Python: its text is not known", "stop it with a savepoint and resume it"
        )
    last = history.latest()
    return last if last is not None and _is_same_text(last.text, text) else PipelineVersion(0, text, "", now_ms)


def _is_same_text(one: PipelineText, other: PipelineText) -> bool:
    return (one.text, one.variables, one.project) == (other.text, other.variables, other.project)


def plan_upgrade(
    history: VersionHistory,
    compiled: CompiledPipeline,
    old: PipelineVersion,
    state: CheckpointMetadata,
    now_ms: int,
    functions_from: Path | None = None,
) -> UpgradePlan:
    """What it would mean if a compiled pipeline took the place of the one that runs.

    Args:
        history: of the pipeline that runs.
        compiled: the new version.
        old: the version that runs.
        state: its newest checkpoint.
        now_ms: epoch ms.
        functions_from: the folder that the new version's modules were imported from; None: that of its text.

    Raises:
        PipelineError: the new version cannot be one of that job.
    """
    _check_may_follow(history.job_folder, compiled, state)
    files = modules_in_cache(compiled, functions_from)
    new = version_of(compiled, now_ms, files=files, outcome=Outcome.TRIAL)
    differences = None
    if old.plan is not None and new.plan is not None:
        differences = plan_differences(old.plan, new.plan, old.modules, new.modules)
        differences = differences or hidden_difference(old.fingerprint, new.fingerprint)
    not_exact = [g for g in compiled.guarantees if g.word != EXACTLY_ONCE]
    return UpgradePlan(old, new, differences, compare(state, compiled.job_graph), not_exact)


def _check_may_follow(job_folder: StatePath, compiled: CompiledPipeline, state: CheckpointMetadata) -> None:
    name = compiled.job_graph.name
    if compiled.is_batch:
        raise PipelineError.of(f"'{name}' is a batch now, which keeps no state", "stop the stream, then run the batch")
    settings = compiled.job_graph.settings.checkpoint
    if settings is None:
        raise PipelineError.of(
            f"the new version of '{name}' takes no checkpoints: nobody could tell whether it is healthy, nor go back",
            "give it settings.checkpoint.interval",
        )
    folder = resolve(state_directory(compiled.job_graph)) / job_slug(name)
    if folder.uri != job_folder.uri:
        raise PipelineError.of(
            f"the new version keeps its state in '{folder}', the one that runs ('{state.job_name}') in '{job_folder}'",
            f"give it the same name (in SQL: SET 'pipeline.name' = '{state.job_name}') and settings.checkpoint.dir; to move, stop the job "
            "with a savepoint and resume from that",
        )
