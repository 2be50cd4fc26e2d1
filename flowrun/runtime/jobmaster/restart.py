"""Restart strategies: whether a job is restarted after a failure, and how long it waits before.

Pure: time is given, in epoch ms, and may jump. After Apache Flink's restart strategies, without their jitter: one process restarts
one job, so there is no herd to spread.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from flowrun.core.recovery import RestartSettings
from flowrun.errors import (
    ClusterError,
    ConnectorError,
    ExpressionError,
    InternalError,
    JobCancelledError,
    NeverEnoughSlotsError,
    OptionError,
    PipelineError,
    SetupError,
    StateError,
    UnsupportedPlanError,
)
from flowrun.runtime.messages import TaskFailure

_RECURRING = (
    PipelineError, OptionError, ExpressionError, UnsupportedPlanError, SetupError, NeverEnoughSlotsError, JobCancelledError,
)  # fmt: skip
"""Errors of the pipeline itself, of what it has to run in, and of nobody: trying again changes nothing."""

EXPONENTIAL_BY_DEFAULT = RestartSettings("exponential")
"""For jobs that take checkpoints and say nothing about restarts: after 1 s to a minute, for about an hour if there is no progress."""

DEFAULT_WITHOUT_PROGRESS = EXPONENTIAL_BY_DEFAULT.attempts_without_progress


class RestartStrategy(Protocol):
    """Decides about the restarts of one job; remembers earlier failures. Owned by the job master's thread."""

    @property
    def description(self) -> str:
        """For messages, such as `fixed_delay, attempts 3`; empty if failures are never followed by a restart."""
        ...

    def on_failure(self, now_ms: int) -> int | None:
        """A failure counts: ms to wait before the restart, or None to give up."""
        ...

    def progressed(self) -> None:
        """A checkpoint was completed: what failed before it is past."""
        ...


class NoRestart:
    """The first failure is the end."""

    description = ""

    def on_failure(self, now_ms: int) -> int | None:
        """Never again."""
        return None

    def progressed(self) -> None:
        """Changes nothing."""


class FixedDelay:
    """A number of restarts in the life of the job, each after the same wait.

    >>> strategy = FixedDelay(attempts=2, delay_ms=500)
    >>> [strategy.on_failure(0) for _ in range(3)]
    [500, 500, None]
    """

    def __init__(self, attempts: int, delay_ms: int) -> None:
        self._attempts = attempts
        self._delay_ms = delay_ms
        self._left = attempts

    @property
    def description(self) -> str:
        """For messages."""
        return f"fixed_delay, attempts {self._attempts}"

    def on_failure(self, now_ms: int) -> int | None:
        """The delay while attempts are left."""
        if self._left <= 0:
            return None
        self._left -= 1
        return self._delay_ms

    def progressed(self) -> None:
        """Changes nothing: attempts are those of the job's life."""


class _Fruitless:
    """Counts restarts in a row between which no checkpoint was completed.

    >>> fruitless = _Fruitless(most=2)
    >>> [fruitless.may_go_on(), fruitless.may_go_on(), fruitless.may_go_on()], fruitless.reset(), fruitless.may_go_on()
    ([True, True, False], None, True)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._count = 0

    def may_go_on(self) -> bool:
        """One more; whether it is allowed."""
        self._count += 1
        return self._count <= self.most

    def reset(self) -> None:
        """There was progress."""
        self._count = 0

    def __str__(self) -> str:
        """For messages."""
        return f"at most {self.most} in a row without a new checkpoint"


class FailureRate:
    """A restart after each failure, unless there were more than `max_failures` within `interval_ms`, this one included, or too many in a
    row without progress.

    >>> strategy = FailureRate(max_failures=2, interval_ms=1_000, delay_ms=10)
    >>> [strategy.on_failure(at) for at in (0, 900, 1_001, 1_500)]
    [10, 10, 10, None]
    """

    def __init__(
        self, max_failures: int, interval_ms: int, delay_ms: int, without_progress: int = DEFAULT_WITHOUT_PROGRESS
    ) -> None:
        self._fruitless = _Fruitless(without_progress)
        self._max_failures = max_failures
        self._interval_ms = interval_ms
        self._delay_ms = delay_ms
        self._failures: deque[int] = deque(maxlen=max_failures + 1)

    @property
    def description(self) -> str:
        """For messages."""
        return f"failure_rate, at most {self._max_failures} failures in {self._interval_ms} ms, {self._fruitless}"

    def on_failure(self, now_ms: int) -> int | None:
        """The delay while the rate is not exceeded."""
        # After a clock went back, earlier failures count as of now: else they would be "recent" for as long as it went back.
        recent = [min(at, now_ms) for at in self._failures if now_ms - at <= self._interval_ms]
        self._failures.clear()
        self._failures.extend([*recent, now_ms])
        is_rare = len(self._failures) <= self._max_failures
        return self._delay_ms if self._fruitless.may_go_on() and is_rare else None

    def progressed(self) -> None:
        """Restarts lead somewhere."""
        self._fruitless.reset()


class ExponentialDelay:
    """A restart after each failure, unless too many in a row made no progress; the wait grows with each, and starts over after a quiet
    time.

    >>> strategy = ExponentialDelay(initial_ms=100, max_ms=350, multiplier=2.0, reset_after_ms=10_000)
    >>> [strategy.on_failure(at) for at in (0, 500, 1_000, 20_000)]
    [100, 200, 350, 100]
    """

    def __init__(
        self,
        initial_ms: int,
        max_ms: int,
        multiplier: float,
        reset_after_ms: int,
        without_progress: int = DEFAULT_WITHOUT_PROGRESS,
    ) -> None:
        self._fruitless = _Fruitless(without_progress)
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._multiplier = multiplier
        self._reset_after_ms = reset_after_ms
        self._next_ms = float(initial_ms)
        self._quiet_since_ms: int | None = None

    @property
    def description(self) -> str:
        """For messages."""
        return f"exponential, {self._initial_ms} to {self._max_ms} ms, {self._fruitless}"

    def on_failure(self, now_ms: int) -> int | None:
        """The present delay while restarts lead somewhere."""
        since = self._quiet_since_ms
        if since is not None and now_ms - since >= self._reset_after_ms:
            self._next_ms = float(self._initial_ms)
            self._fruitless.reset()
        if not self._fruitless.may_go_on():
            return None
        delay_ms = min(int(self._next_ms), self._max_ms)
        self._next_ms = min(self._next_ms * self._multiplier, float(self._max_ms))
        self._quiet_since_ms = now_ms + delay_ms
        return delay_ms

    def progressed(self) -> None:
        """Restarts lead somewhere."""
        self._fruitless.reset()


def restart_strategy(settings: RestartSettings | None, *, checkpoints: bool) -> RestartStrategy:
    """The strategy of a job. Without settings: `EXPONENTIAL_BY_DEFAULT` if it takes checkpoints, else none, as in Apache Flink.

    Args:
        settings: what the user says, if anything.
        checkpoints: whether the job takes periodic checkpoints.

    Raises:
        InternalError: an unknown strategy; front ends check the name.

    >>> restart_strategy(None, checkpoints=True).description
    'exponential, 1000 to 60000 ms, at most 60 in a row without a new checkpoint'
    """
    if settings is None:
        settings = EXPONENTIAL_BY_DEFAULT if checkpoints else RestartSettings("none")
    s = settings
    match s.strategy:
        case "none":
            return NoRestart()
        case "fixed_delay":
            return FixedDelay(s.attempts, s.delay_ms)
        case "failure_rate":
            return FailureRate(s.max_failures, s.interval_ms, s.delay_ms, s.attempts_without_progress)
        case "exponential":
            return ExponentialDelay(
                s.initial_delay_ms, s.max_delay_ms, s.multiplier, s.reset_after_ms, s.attempts_without_progress
            )
        case unknown:
            raise InternalError(
                f"unknown restart strategy '{unknown}'; there are none, fixed_delay, failure_rate, exponential"
            )


def is_loss(failure: TaskFailure) -> bool:
    """Whether a subtask only lost its process or the connection to another, and nothing went wrong when it closed.

    >>> is_loss(TaskFailure(ClusterError("worker w2: was killed by SIGKILL"))), is_loss(TaskFailure(OSError("no space")))
    (True, False)
    """
    return isinstance(failure.error, ClusterError) and not failure.secondary


def is_retryable(failure: TaskFailure, *, restoring: bool) -> bool:
    """Whether a restart may help. Errors in data may go away (a repaired file, a repaired service); those of the pipeline do not, nor
    those of which a connector says so.

    Args:
        failure: what happened.
        restoring: it happened while the job master restored state. State that cannot be restored is not tried again: each attempt
            would read the same damaged files.

    >>> is_retryable(TaskFailure(OSError("gone")), restoring=True), is_retryable(TaskFailure(StateError("bad")), restoring=True)
    (True, False)
    """
    error = failure.error
    if not isinstance(error, Exception) or isinstance(error, _RECURRING):
        return False
    if isinstance(error, ConnectorError) and error.retryable is False:
        return False
    return not (isinstance(error, StateError) and (restoring or failure.phase == "initialize_state"))
