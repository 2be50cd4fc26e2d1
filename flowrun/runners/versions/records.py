"""What is kept of the versions of a pipeline, and of an upgrade from one to the next. Pure values.

An upgrade is a small state machine, whose record is durable, so that whoever comes next can finish it:

    STOPPING ──the old version ended with a savepoint──▶ TRIAL ──healthy──▶ ACCEPTED
        │                                                  │
        └──it goes on as it was──▶ ABORTED                 └──not healthy, or lost──▶ GOING_BACK ──▶ WENT_BACK, or FAILED

On trial a version takes checkpoints and commits nothing. It does from the moment in which ACCEPTED is written, and from then on there is
no way back. So a version that is gone back from has committed nothing, and the old one goes on from the savepoint as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from flowrun.core.record import record
from flowrun.runtime.cluster_messages import JobFile
from flowrun.state.checkpoints import PipelineText


class Outcome(Enum):
    """What became of a version."""

    RAN = "ran"
    """It was started as a job of its own."""
    TRIAL = "on trial"
    """It is on trial, or was lost then."""
    ACCEPTED = "accepted"
    """It took the place of the one before."""
    REJECTED = "rejected"
    """It was on trial and was gone back from."""


@record
class PipelineVersion:
    """A version of a pipeline that ran.

    Attributes:
        number: from 1, in the order in which they came.
        text: of the pipeline, as checkpoints keep it.
        fingerprint: of its job graph.
        began_ms: when it was first started, epoch ms.
        plan: what `flowrun explain --format json` shows of it, with its settings; None: it could not be made.
        files: the Python modules beside it that it uses, with their digests.
        restored_from: the savepoint or checkpoint that it began at; None: it began afresh.
        outcome: what became of it.
        reason: why it was rejected.
    """

    number: int
    text: PipelineText
    fingerprint: str
    began_ms: int
    plan: dict[str, Any] | None = None
    files: tuple[JobFile, ...] = ()
    restored_from: str | None = None
    outcome: Outcome = Outcome.RAN
    reason: str | None = None

    @property
    def modules(self) -> Mapping[str, str]:
        """Path → SHA-256 of the Python modules beside it."""
        return {file.path: file.digest for file in self.files}

    def is_same_as(self, other: PipelineVersion) -> bool:
        """Whether another one would run the same: text, values and modules are equal."""
        mine, its = self.text, other.text
        return (
            mine.text,
            mine.variables,
            mine.overrides,
            mine.directory,
            mine.project,
            self.fingerprint,
            self.modules,
        ) == (
            its.text,
            its.variables,
            its.overrides,
            its.directory,
            its.project,
            other.fingerprint,
            other.modules,
        )


def first_line(reason: str | None) -> str:
    r"""A reason where there is room for one line.

    >>> first_line("orders.sql:1:2: error: no such column\n  SELECT x")
    'orders.sql:1:2: error: no such column'
    """
    return (reason or "").partition("\n")[0]


class Phase(Enum):
    """How far an upgrade is."""

    STOPPING = "stopping the old version"
    TRIAL = "new version on trial"
    ACCEPTED = "accepted"
    GOING_BACK = "going back to the old version"
    WENT_BACK = "went back"
    FAILED = "failed"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"

    @property
    def is_open(self) -> bool:
        """Whether something is still to be done."""
        return self in (Phase.STOPPING, Phase.TRIAL, Phase.GOING_BACK)


@record
class HealthRules:
    """When a version on trial is healthy.

    Attributes:
        within_ms: it has to be by then.
        steady_ms: for how long all has to be well, at least.
        reads: whether it has to read rows, as the one before did just then.
        moves_watermark: whether its watermark has to move, as that of the one before did just then.
    """

    within_ms: int
    steady_ms: int = 0
    reads: bool = False
    moves_watermark: bool = False


@record
class Upgrade:
    """An upgrade of a running job from one version to another.

    Attributes:
        upgrade_id: unique.
        phase: how far it is.
        old: number of the version that ran.
        new: number of the version that is to run.
        job_id: of the job that is stopped.
        began_ms: epoch ms.
        health: when the new version is healthy.
        allow_non_restored: whether state of operators that the new version no longer has is dropped.
        cluster: the options that name the cluster that the job runs on; empty: it runs on a machine of its own.
        savepoint: with which the old version ended; None: it has not.
        process: that starts the versions on this machine, as `flowrun.runners.registry` tells processes apart; empty: none yet.
        reason: why it went no further.
        hint: what the user can do then.
    """

    upgrade_id: str
    phase: Phase
    old: int
    new: int
    job_id: str
    began_ms: int
    health: HealthRules
    allow_non_restored: bool = False
    cluster: str = ""
    savepoint: str | None = None
    process: str = ""
    reason: str | None = None
    hint: str | None = None
