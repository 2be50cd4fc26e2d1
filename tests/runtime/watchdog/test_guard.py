"""When the watchdog ends a process, and whom it blames."""

from __future__ import annotations

import signal
from collections.abc import Iterable

import pytest

from flowrun.runtime.watchdog.board import SubtaskNames, SubtaskState
from flowrun.runtime.watchdog.guard import Case, culprits, describe, verdict

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def subtask(
    index: int = 0, operator: str | None = "f", *, calls: int = 1, waiting: bool = False, cancelled_s: float = 0
) -> SubtaskState:
    names = SubtaskNames(f"v ({index + 1}/9)", ("f",))
    return SubtaskState(index, names, 100 + index, operator, waiting, calls, int(cancelled_s * 1e9))


def after(
    signals: Iterable[tuple[int, float]],
    now: float,
    *,
    answered: int,
    at_work: SubtaskState | None = None,
    timeout_s: float = 20,
) -> str | None:
    case = Case()
    for number, at in signals:
        case.receive(number, at, [subtask()])
    return verdict(case, answered, [at_work or subtask(operator=None)], timeout_s, now)


@pytest.mark.parametrize(
    ("signals", "answered", "last"),
    [
        ([], 0, 1e6),
        ([(INT, 10)], 0, 1e6),  # the user is told, and decides
        ([(INT, 10)], 1, 1e6),
        ([(HUP, 10), (HUP, 11)], 0, 1e6),
        ([(TERM, 10)], 1, 1e6),  # it answers and goes on: a last checkpoint may take long
        ([(INT, 10), (INT, 12)], 1, 14.9),
        ([(INT, 10), (INT, 12)], 2, 21.9),
        ([(TERM, 10)], 0, 29.9),
        ([(INT, 10), (INT, 10.1), (INT, 10.2)], 3, 11.05),  # somebody is nervous
    ],
)
def test_a_process_lives_as_long_as_it_may(signals: list[tuple[int, float]], answered: int, last: float) -> None:
    assert after(signals, last, answered=answered) is None


@pytest.mark.parametrize(
    ("signals", "answered", "at", "reason"),
    [
        ([(INT, 10), (INT, 12)], 1, 15, "did not answer a second signal (Ctrl-C) for 3 s"),
        ([(INT, 10), (INT, 12)], 0, 15, "did not answer a second signal (Ctrl-C) for 3 s"),
        ([(INT, 10), (INT, 12)], 2, 22, "did not end within 10 s after it was cancelled by a second signal (Ctrl-C)"),
        ([(INT, 10), (TERM, 12)], 2, 22, "by a second signal (SIGTERM)"),
        ([(TERM, 10)], 0, 30, "did not answer SIGTERM for 20 s"),
        ([(INT, 10), (INT, 10.1), (INT, 10.2)], 3, 11.1, "asked to end a third time"),
    ],
)
def test_a_process_ends_when_its_time_is_over(
    signals: list[tuple[int, float]], answered: int, at: float, reason: str
) -> None:
    assert reason in (after(signals, at, answered=answered) or "")


def test_a_subtask_that_is_still_in_the_call_of_the_first_sigterm_hangs() -> None:
    assert "has not returned from one call since SIGTERM, 20 s ago" in (
        after([(TERM, 10)], 30, answered=1, at_work=subtask()) or ""
    )
    assert after([(TERM, 10)], 30, answered=1, at_work=subtask(calls=2)) is None
    assert after([(TERM, 10)], 30, answered=1, at_work=subtask(waiting=True)) is None
    assert after([(TERM, 10)], 1e6, answered=1, at_work=subtask(), timeout_s=0) is None


def test_a_cancellation_that_nobody_could_time_out_does() -> None:
    cancelled = subtask(cancelled_s=5)
    assert verdict(Case(), 0, [cancelled], 20, 26.9) is None, "the job master says more, if it can"
    assert verdict(Case(), 0, [cancelled], 20, 27) == "a subtask did not end within 22 s after it was cancelled"
    assert verdict(Case(), 0, [cancelled], 0, 1e6) is None


def test_a_shorter_time_out_shortens_the_time_after_the_second_signal() -> None:
    signals = [(INT, 10), (INT, 12)]
    assert after(signals, 15.9, answered=2, timeout_s=2) is None
    assert after(signals, 16, answered=2, timeout_s=2) is not None
    assert after(signals, 21.9, answered=2, timeout_s=0) is None
    assert after(signals, 22, answered=2, timeout_s=0) is not None


def test_suspension_does_not_count() -> None:
    case = Case()
    for number in (INT, INT):
        case.receive(number, 10, [])
    case.restart(100)
    assert verdict(case, 0, [], 20, 102.9) is None
    assert verdict(case, 0, [], 20, 103) is not None


def test_those_that_compute_hang_and_the_others_wait_for_them() -> None:
    one, two, idle, waiting = subtask(0), subtask(1), subtask(2, None), subtask(3, waiting=True)
    everybody = [one, two, idle, waiting]
    assert culprits(everybody, {100: 0.01, 101: 0.98}) == [two]
    assert culprits(everybody, {100: 0.0, 101: 0.12}) == [two], "the machine is busy"
    assert culprits(everybody, {100: 0.01, 101: 0.02}) == [one, two], "both sleep"
    assert culprits(everybody, {}) == [one, two]
    assert describe([two]) == "operator 'f' of subtask v (2/9) hung"
    assert describe([one, two]) == "operators 'f' of subtask v (1/9), 'f' of subtask v (2/9) hung"
    assert describe([]) == "no operator was at work"
