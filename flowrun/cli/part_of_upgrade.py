"""What a run has to do with versions: it keeps which one it is, is a part of an upgrade, or makes room for the next one.

Every run imports this, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flowrun.cli.arguments import ViewOptions
    from flowrun.errors import FlowrunError
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.program import CompiledProgram
    from flowrun.runners.rescaling import RescalableJob
    from flowrun.runners.versions.keeping import VersionKeeper
    from flowrun.runtime.job_status import JobResult
    from flowrun.runtime.jobmaster.commit_hold import CommitHold

_SAVEPOINTS = "/_versions/savepoints/"
"""A part of the paths of savepoints with which a version ends that another one follows; see `flowrun.runners.versions.history`."""


class PartOfUpgrade(Protocol):
    """A run that is a part of an upgrade: the new version, or the old one that goes on again."""

    @property
    def hold(self) -> CommitHold | None:
        """What holds back its commits; None: nothing does."""
        ...

    @property
    def forget_later(self) -> bool:
        """Whether checkpoints after what it restores from are deleted."""
        ...

    def look(self, job: RescalableJob) -> None:
        """See to the upgrade. Is called a few times a second, and again when the job is over."""
        ...

    def failed(self, error: FlowrunError) -> None:
        """The job has failed, or could not be started."""
        ...


def ends_for_next(result: JobResult) -> bool:
    """Whether a job was stopped so that another version takes its place."""
    return result.stopped_at is not None and _SAVEPOINTS in result.stopped_at


def version_watch(
    part: PartOfUpgrade | None,
    job: RescalableJob,
    compiled: CompiledPipeline | CompiledProgram,
    functions_from: Path | None,
    restored_from: str | None,
) -> Callable[[], None]:
    """What is to be called a few times a second while a job runs, and once when it is over.

    Args:
        part: of the run in an upgrade; None: the run is none, and which version it is is kept.
        job: that runs.
        compiled: its pipeline.
        functions_from: the folder that its functions were imported from; None: that of its text.
        restored_from: the savepoint or checkpoint that it began at.
    """
    if part is not None:
        return lambda: part.look(job)
    if compiled.job_graph.settings.checkpoint is None:
        return lambda: None
    keepers: list[VersionKeeper | None] = []

    def look() -> None:
        if not keepers:  # small runs are over before that
            from flowrun.core.clock import SystemClock
            from flowrun.runners.versions.keeping import keeper_of

            keepers.append(keeper_of(compiled, functions_from, restored_from, SystemClock()))
        if keepers[0] is not None:
            keepers[0].look(job)

    return look


def go_on_with_next(
    result: JobResult, view: ViewOptions, workers: int | None, secrets: Mapping[str, str] | None
) -> int | None:
    """Run the version that takes the place of a job that was stopped for it, until it ends; gives the exit code.

    Args:
        result: of the job.
        view: what is shown.
        workers: as the job was given.
        secrets: values of its variables that are not kept; None: this process cannot start another version.

    Gives None if it is not for this process to do.
    """
    if result.stopped_at is None:
        return None
    from flowrun.cli.supervising import supervise_after

    return supervise_after(result.stopped_at, view, workers, secrets)
