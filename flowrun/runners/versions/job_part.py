"""What a job is in an upgrade, in the process of its job master: by itself, the new version on trial, or the old one again."""

from __future__ import annotations

from typing import Protocol

from flowrun.core.clock import Clock
from flowrun.errors import JobFailedError, StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.rescaling import RescalableJob
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.keeping import VersionKeeper, keeper_of
from flowrun.runners.versions.records import Phase
from flowrun.runners.versions.trial import GoingBack, Trial
from flowrun.runtime.cluster.job_files import JobFiles
from flowrun.runtime.jobmaster.commit_hold import CommitHold
from flowrun.state.storage.state_path import StatePath


class JobPart(Protocol):
    """What sees to versions while a job runs."""

    @property
    def hold(self) -> CommitHold | None:
        """What holds back its commits; None: nothing does."""
        ...

    @property
    def forgets_later(self) -> bool:
        """Whether checkpoints after what it restores from are deleted."""
        ...

    def look(self, job: RescalableJob) -> None:
        """To be called a few times a second, and once when the job is over."""
        ...

    def end(self, reason: str) -> None:
        """The job is over; `reason` says how."""
        ...


class OfNone:
    """A job that takes part in nothing; `keeper` keeps its version."""

    hold = None
    forgets_later = False

    def __init__(self, keeper: VersionKeeper | None) -> None:
        self._keeper = keeper

    def look(self, job: RescalableJob) -> None:
        """See `JobPart`."""
        if self._keeper is not None:
            self._keeper.look(job)

    def end(self, reason: str) -> None:
        """See `JobPart`."""


class OfUpgrade:
    """A job that is a part of an upgrade."""

    forgets_later = True

    def __init__(self, of: Trial | GoingBack) -> None:
        self._of = of

    @property
    def hold(self) -> CommitHold | None:
        """See `JobPart`."""
        return self._of if isinstance(self._of, Trial) else None

    def look(self, job: RescalableJob) -> None:
        """See `JobPart`."""
        self._of.look(job)

    def end(self, reason: str) -> None:
        """See `JobPart`."""
        self._of.end(reason)


def job_part(
    upgrade_id: str, job_folder: StatePath, job_graph: JobGraph, clock: Clock, *, is_first_process: bool
) -> JobPart | None:
    """The part of a job in an upgrade, as the record in its folder tells; None: the upgrade is decided, and it runs by itself.

    Args:
        upgrade_id: of the upgrade that it was submitted for.
        job_folder: of the job.
        job_graph: that runs.
        clock: time.
        is_first_process: whether no other process has run the job since it was submitted.

    Raises:
        JobFailedError: the process of a version on trial was lost: it is not healthy.
        StateError: the record is of another upgrade, or cannot be read.
    """
    history = VersionHistory(job_folder)
    upgrade = history.upgrade()
    if upgrade is None or upgrade.upgrade_id != upgrade_id:
        raise StateError(f"the upgrade that job '{job_graph.name}' was submitted for is over")
    if upgrade.phase is Phase.GOING_BACK:
        return OfUpgrade(GoingBack(history, upgrade))
    if upgrade.phase is not Phase.TRIAL:
        if is_first_process:
            raise StateError(
                f"the upgrade that job '{job_graph.name}' was submitted for is over ({upgrade.phase.value})"
            )
        return None
    sources = frozenset(v.vertex_id for v in job_graph.vertices if not v.inputs)
    trial = Trial(history, upgrade, sources, clock)
    if not is_first_process:
        trial.end("its job manager process was lost")
        raise JobFailedError("the job manager process of a version on trial was lost", operator=None, subtask=None)
    return OfUpgrade(trial)


def part_of_itself(compiled: object, files: JobFiles, restored_from: str | None, clock: Clock) -> JobPart:
    """The part of a job that runs by itself; `files` came with it."""
    return OfNone(keeper_of(compiled, None, restored_from, clock, files))
