"""Whether a job is restarted after a failure, and how long it waits before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.recovery import RestartSettings
from flowrun.errors import (
    ConnectorError,
    DataError,
    Diagnostic,
    FlowrunError,
    InternalError,
    JobCancelledError,
    OptionError,
    PipelineError,
    SetupError,
    StateError,
    UnsupportedPlanError,
)
from flowrun.runtime.jobmaster.restart import RestartStrategy, is_retryable, restart_strategy
from flowrun.runtime.messages import TaskFailure


def delays(settings: RestartSettings | None, *times_ms: int) -> list[int | None]:
    strategy = restart_strategy(settings, checkpoints=False)
    return [strategy.on_failure(at) for at in times_ms]


def test_none_never_restarts() -> None:
    assert delays(RestartSettings("none"), 0) == [None]


def test_fixed_delay_restarts_a_number_of_times_however_far_apart() -> None:
    assert delays(RestartSettings("fixed_delay", attempts=2, delay_ms=7), 0, 10**9, 2 * 10**9) == [7, 7, None]


def test_failure_rate_forgets_failures_that_are_long_ago() -> None:
    settings = RestartSettings("failure_rate", max_failures=2, interval_ms=100, delay_ms=5)
    assert delays(settings, 0, 50, 101, 160, 161) == [5, 5, 5, 5, None]


@pytest.mark.parametrize(("third_ms", "delay"), [(99, None), (100, None), (101, 5)])
def test_failure_rate_counts_a_failure_until_its_interval_has_passed(third_ms: int, delay: int | None) -> None:
    settings = RestartSettings("failure_rate", max_failures=2, interval_ms=100, delay_ms=5)
    assert delays(settings, 0, 50, third_ms) == [5, 5, delay]


def test_failure_rate_survives_a_clock_that_goes_back() -> None:
    settings = RestartSettings("failure_rate", max_failures=2, interval_ms=100, delay_ms=5)
    assert delays(settings, 1_000_000, 0, 101, 202) == [5, 5, 5, 5]


def test_exponential_waits_longer_each_time_up_to_the_longest_wait() -> None:
    settings = RestartSettings("exponential", initial_delay_ms=100, max_delay_ms=500, multiplier=2)
    assert delays(settings, 0, 200, 600, 1_200, 2_000) == [100, 200, 400, 500, 500]


def test_exponential_starts_over_after_a_quiet_time_that_begins_with_the_restart() -> None:
    settings = RestartSettings(
        "exponential", initial_delay_ms=100, max_delay_ms=500, multiplier=2, reset_after_ms=1_000
    )
    assert delays(settings, 0, 1_099, 2_299) == [100, 200, 100]


@given(st.lists(st.integers(0, 10**6), max_size=30))
def test_waits_stay_within_their_limits_whatever_the_clock_does(times: list[int]) -> None:
    settings = RestartSettings("exponential", initial_delay_ms=10, max_delay_ms=500, multiplier=3, reset_after_ms=100)
    assert all(delay is not None and 10 <= delay <= 500 for delay in delays(settings, *times))


def described(settings: RestartSettings | None, *, checkpoints: bool) -> str:
    strategy: RestartStrategy = restart_strategy(settings, checkpoints=checkpoints)
    return strategy.description


def test_descriptions_say_what_was_configured() -> None:
    assert described(RestartSettings("fixed_delay", attempts=3), checkpoints=False) == "fixed_delay, attempts 3"
    assert described(RestartSettings("failure_rate"), checkpoints=False) == (
        "failure_rate, at most 1 failures in 60000 ms, at most 60 in a row without a new checkpoint"
    )


def test_jobs_that_take_checkpoints_restart_unless_told_otherwise() -> None:
    assert described(None, checkpoints=True) == (
        "exponential, 1000 to 60000 ms, at most 60 in a row without a new checkpoint"
    )
    assert described(None, checkpoints=False) == ""
    assert described(RestartSettings("none"), checkpoints=True) == ""


def test_an_unknown_strategy_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(InternalError, match="none, fixed_delay, failure_rate, exponential"):
        restart_strategy(RestartSettings("sometimes"), checkpoints=False)


@pytest.mark.parametrize(
    "error",
    [
        PipelineError([Diagnostic("bad")]),
        OptionError("path", "missing"),
        UnsupportedPlanError("no"),
        SetupError("not installed"),
        ConnectorError("wrong password", retryable=False),
        JobCancelledError("over"),
        KeyboardInterrupt(),
    ],
)
def test_errors_that_would_certainly_come_again_are_not_tried_again(error: BaseException) -> None:
    assert not is_retryable(TaskFailure(error), restoring=False)


@pytest.mark.parametrize(
    "error",
    [
        DataError("no number"),
        ConnectorError("gone"),
        ConnectorError("the server starts", retryable=True),
        OSError("disk full"),
        InternalError("?"),
        FlowrunError("!"),
    ],
)
def test_other_errors_are_tried_again(error: Exception) -> None:
    assert is_retryable(TaskFailure(error), restoring=False)
    assert is_retryable(TaskFailure(error), restoring=True)


def test_state_that_cannot_be_read_back_is_not_tried_again_but_state_that_cannot_be_written_is() -> None:
    damaged = StateError("checksum")
    assert not is_retryable(TaskFailure(damaged), restoring=True)
    assert not is_retryable(TaskFailure(damaged, phase="initialize_state"), restoring=False)
    assert is_retryable(TaskFailure(damaged), restoring=False)


@pytest.mark.parametrize("strategy", ["exponential", "failure_rate"])
def test_restarts_that_lead_nowhere_come_to_an_end(strategy: str) -> None:
    made = restart_strategy(
        RestartSettings(
            strategy, delay_ms=5, max_failures=99, initial_delay_ms=5, max_delay_ms=5, attempts_without_progress=3
        ),
        checkpoints=True,
    )
    assert [made.on_failure(at) for at in range(3)] == [5, 5, 5]
    made.progressed()
    assert [made.on_failure(at) for at in range(4)] == [5, 5, 5, None]
    assert "at most 3 in a row without a new checkpoint" in made.description


def test_by_default_restarts_do_not_go_on_for_ever() -> None:
    made = restart_strategy(None, checkpoints=True)
    waits = [made.on_failure(0) for _ in range(61)]
    assert None not in waits[:60]
    assert waits[60] is None
    assert 45 < sum(w for w in waits if w is not None) / 60_000 < 75, "minutes"
