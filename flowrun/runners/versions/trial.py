"""A version on trial, in the process that runs its job: what it does is judged, and counts only once it is accepted."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Protocol

from flowrun.core.clock import Clock
from flowrun.errors import StateError
from flowrun.runners.versions.health import HealthWatch, Verdict, is_up
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import Outcome, Phase, Upgrade
from flowrun.runtime.job_status import JobStatus

_log = logging.getLogger(__name__)


class JudgedJob(Protocol):
    """What a trial needs of its job."""

    def status(self) -> JobStatus: ...

    def release_commits(self) -> None: ...

    def cancel(self) -> None: ...


class Trial:
    """The trial of the new version of an upgrade. `accept` is called by the job master's thread, all else by the one that follows the job.

    Args:
        history: of the pipeline.
        upgrade: whose phase is TRIAL.
        source_ids: ids of the vertices that read from outside.
        clock: time.
    """

    def __init__(self, history: VersionHistory, upgrade: Upgrade, source_ids: frozenset[str], clock: Clock) -> None:
        self._history = history
        self._upgrade = upgrade
        self._clock = clock
        self._watch = HealthWatch(upgrade.health, source_ids, self._now_ms())
        self._accepted = False
        self._rejected: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether what the version does counts."""
        return self._accepted

    @property
    def rejected(self) -> str | None:
        """Why the version was found not to be healthy; None: it was not."""
        return self._rejected

    def accept(self) -> None:
        """See `CommitHold`: the upgrade is noted as accepted, durably.

        Raises:
            StateError: the upgrade is not in this trial any more, or that cannot be written.
        """
        present = self._history.upgrade()
        if present is None or present.upgrade_id != self._upgrade.upgrade_id or present.phase not in _MAY_BE_ACCEPTED:
            what = "there is none any more" if present is None else present.phase.value
            raise StateError(f"version {self._upgrade.new} must not go on: its upgrade is over ({what})")
        # In this order: a version that was accepted and whose upgrade is on trial is gone back from, and noted so.
        self._history.note_outcome(self._upgrade.new, Outcome.ACCEPTED)
        self._history.write_upgrade(replace(present, phase=Phase.ACCEPTED))
        self._accepted = True

    def look(self, job: JudgedJob) -> None:
        """Judge the job as it is now: let it commit if it is healthy, end it if it is not. To be called a few times a second."""
        if self._accepted or self._rejected is not None:
            return
        judgement = self._watch.look(job.status(), self._now_ms())
        if judgement.verdict is Verdict.HEALTHY:
            job.release_commits()
        elif judgement.verdict is Verdict.UNHEALTHY:
            self._rejected = judgement.reason
            _log.warning("version %d is not healthy: %s", self._upgrade.new, judgement.reason)
            job.cancel()

    def end(self, reason: str) -> None:
        """The job is over; unless it was accepted, the old version is to go on. `reason`: why it ended, if not for what `look` saw.

        Raises:
            StateError: that cannot be written.
        """
        if not self._accepted:
            begin_going_back(self._history, self._upgrade, self._rejected or reason)

    def _now_ms(self) -> float:
        return self._clock.monotonic_ns() / 1e6


_MAY_BE_ACCEPTED = (Phase.TRIAL, Phase.ACCEPTED)


def begin_going_back(history: VersionHistory, upgrade: Upgrade, reason: str) -> Upgrade:
    """Note that a version on trial, whose job is over, is gone back from; gives the upgrade as it is then.

    Raises:
        StateError: it cannot be written.
    """
    present = history.upgrade()
    if present is None or present.upgrade_id != upgrade.upgrade_id or present.phase is not Phase.TRIAL:
        return upgrade if present is None else present
    history.note_outcome(upgrade.new, Outcome.REJECTED, reason)
    return history.write_upgrade(replace(present, phase=Phase.GOING_BACK, reason=reason))


class GoingBack:
    """The old version of an upgrade, as it goes on: once it runs, that is noted.

    Args:
        history: of the pipeline.
        upgrade: whose phase is GOING_BACK.
    """

    def __init__(self, history: VersionHistory, upgrade: Upgrade) -> None:
        self._history = history
        self._upgrade = upgrade
        self._is_up = False

    def look(self, job: JudgedJob) -> None:
        """Note that it runs, if it does. To be called a few times a second."""
        if self._is_up or not is_up(job.status()):
            return
        self._is_up = True
        end_going_back(self._history, self._upgrade)

    def end(self, reason: str) -> None:
        """The job is over; if it never ran, nobody can do more. Raises StateError: that cannot be written."""
        if not self._is_up:
            self._is_up = True
            end_going_back(self._history, self._upgrade, reason)


def end_going_back(history: VersionHistory, upgrade: Upgrade, failure: str | None = None) -> Upgrade:
    """Note that the old version of an upgrade runs again, or why it could not; gives the upgrade as it is then.

    Raises:
        StateError: it cannot be written.
    """
    present = history.upgrade()
    if present is None or present.upgrade_id != upgrade.upgrade_id or present.phase is not Phase.GOING_BACK:
        return upgrade if present is None else present
    if failure is None:
        return history.write_upgrade(replace(present, phase=Phase.WENT_BACK))
    reason = f"{present.reason}; and version {present.old} did not come up again: {failure}"
    hint = "see to what it says, then: flowrun apply FILE --continue"
    return history.write_upgrade(replace(present, phase=Phase.FAILED, reason=reason, hint=hint))
