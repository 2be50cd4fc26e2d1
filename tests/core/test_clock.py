"""The manual clock moves only when told, and wakes those whose time has come."""

import threading

from flowrun.core.clock import ForwardClock, ManualClock, SystemClock


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


class _SettableClock(ManualClock):
    """A manual clock whose time of day is set apart from its monotonic part."""

    offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


def test_time_goes_on_when_the_clock_is_set_back_until_it_has_caught_up() -> None:
    machine = _SettableClock(10_000)
    clock = ForwardClock(machine)
    machine.advance(100)
    assert clock.now_ms() == 10_100
    machine.offset_ms = -5_000
    assert clock.now_ms() == 10_100
    machine.advance(7)
    assert clock.now_ms() == 10_107
    machine.offset_ms = 1_000
    assert clock.now_ms() == 11_107
    assert clock.monotonic_ns() == machine.monotonic_ns()


def test_time_begins_where_it_was_left() -> None:
    machine = ManualClock(10_000)
    clock = ForwardClock(machine)
    assert clock.not_before(9_000) == 0
    assert clock.now_ms() == 10_000
    assert clock.not_before(70_000) == 60_000
    machine.advance(5)
    assert clock.now_ms() == 70_005


def test_a_wait_for_ever_so_long_is_no_error() -> None:
    condition, done = threading.Condition(), list[bool]()

    def wait() -> None:
        with condition:
            done.append(SystemClock().wait(condition, 2.0**62))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while waiting.is_alive():
        with condition:
            condition.notify_all()
        waiting.join(0.01)
    assert done == [True]
