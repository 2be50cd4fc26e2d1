"""The states of a job and of each attempt to run a subtask, and which state may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from flowrun.errors import InternalError


class JobState(Enum):
    """Where a job is."""

    CREATED = "created"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    FAILING = "failing"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELED = "canceled"

    @property
    def is_terminal(self) -> bool:
        """Whether the job is over."""
        return self in (JobState.FINISHED, JobState.FAILED, JobState.CANCELED)


class ExecutionState(Enum):
    """Where one attempt is. The normal way is CREATED → SCHEDULED → DEPLOYING → INITIALIZING → RUNNING → FINISHED."""

    CREATED = "created"
    SCHEDULED = "scheduled"
    DEPLOYING = "deploying"
    INITIALIZING = "initializing"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELING = "canceling"
    CANCELED = "canceled"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the attempt is over."""
        return not TRANSITIONS[self]


_S = ExecutionState

TRANSITIONS: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    # Nothing was deployed yet, so there is nothing to wait for: cancelling ends at once.
    _S.CREATED: frozenset({_S.SCHEDULED, _S.CANCELED, _S.FAILED}),
    _S.SCHEDULED: frozenset({_S.DEPLOYING, _S.CANCELED, _S.FAILED}),
    _S.DEPLOYING: frozenset({_S.INITIALIZING, _S.CANCELING, _S.FAILED}),
    _S.INITIALIZING: frozenset({_S.RUNNING, _S.CANCELING, _S.FAILED}),
    _S.RUNNING: frozenset({_S.FINISHED, _S.CANCELING, _S.FAILED}),
    _S.CANCELING: frozenset({_S.CANCELED, _S.FAILED}),
    _S.FINISHED: frozenset(),
    _S.CANCELED: frozenset(),
    _S.FAILED: frozenset(),
}
"""State → the states that may follow it."""


def check_transition(source: ExecutionState, target: ExecutionState) -> None:
    """Pass if `target` may follow `source`.

    Raises:
        InternalError: it may not; names what may.
    """
    if target not in TRANSITIONS[source]:
        allowed = ", ".join(s.name for s in ExecutionState if s in TRANSITIONS[source]) or "nothing, it is over"
        raise InternalError(f"an execution cannot go from {source.name} to {target.name}; allowed: {allowed}")
