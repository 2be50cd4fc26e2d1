"""The manual clock moves only when told, and wakes those whose time has come."""

import threading

from flowrun.core.clock import ManualClock, SystemClock


def test_time_moves_only_by_advance() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms() == 1_000
    clock.advance(250)
    assert clock.now_ms() == 1_250
    assert clock.monotonic_ns() == 1_250_000_000


def test_a_waiter_is_woken_by_advance_and_told_of_its_deadline() -> None:
    clock, condition = ManualClock(), threading.Condition()
    waiting, results = threading.Event(), []

    def wait() -> None:
        with condition:
            waiting.set()
            results.append(clock.wait(condition, 100))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    while thread.is_alive():
        clock.advance(100)
        thread.join(0.01)
    assert results == [False]


def test_a_passed_deadline_does_not_wait() -> None:
    condition = threading.Condition()
    with condition:
        assert ManualClock().wait(condition, 0) is False
        assert SystemClock().wait(condition, 0) is False
