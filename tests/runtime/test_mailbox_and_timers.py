"""Mails run in order of priority; timers run when the clock says so, as mails of their subtask."""

from __future__ import annotations

import threading

import pytest

from flowrun.core.clock import ManualClock, SystemClock
from flowrun.runtime.mailbox import Mailbox, Priority
from flowrun.runtime.task.time_service import MailboxTimeService
from flowrun.runtime.timers import TimerThread

HOUR_MS = 3_600_000


def test_urgent_letters_go_first_and_equals_keep_their_order() -> None:
    mailbox, ran = Mailbox(), list[str]()
    for name, priority in (("a", Priority.NORMAL), ("b", Priority.LOW), ("c", Priority.NORMAL), ("d", Priority.URGENT)):
        mailbox.put(lambda name=name: ran.append(name), priority)  # type: ignore[misc]
    while (mail := mailbox.take_nowait()) is not None:
        mail()
    assert ran == ["d", "a", "c", "b"]


def test_a_letter_and_a_resume_wake_the_reader() -> None:
    mailbox, woken = Mailbox(), threading.Semaphore(0)

    def read() -> None:
        for _ in range(2):
            mailbox.wait()
            mailbox.take_nowait()
            woken.release()

    thread = threading.Thread(target=read)
    thread.start()
    mailbox.put(lambda: None)
    assert woken.acquire(timeout=10)
    mailbox.resume()
    assert woken.acquire(timeout=10)
    thread.join()


def test_a_resume_before_the_wait_is_not_lost() -> None:
    mailbox = Mailbox()
    mailbox.resume()
    mailbox.wait()


def test_who_does_not_wait_asks_whether_there_is_something_to_do_once_for_each_resume() -> None:
    mailbox = Mailbox()
    assert not mailbox.is_awake_nowait()
    mailbox.resume()
    assert mailbox.is_awake_nowait()
    assert not mailbox.is_awake_nowait()
    mailbox.put(lambda: None)
    assert mailbox.is_awake_nowait()
    assert mailbox.is_awake_nowait()


def test_a_closed_mailbox_refuses_letters() -> None:
    mailbox = Mailbox()
    mailbox.put(lambda: None)
    assert mailbox.close() == 1
    assert mailbox.put(lambda: None) is False


def test_timers_run_in_order_of_time() -> None:
    clock = ManualClock(1_000)
    timers, ran, done = TimerThread(clock), list[str](), threading.Event()
    timers.at(1_300, lambda: (ran.append("late"), done.set()))  # type: ignore[arg-type, func-returns-value]
    timers.at(1_100, lambda: ran.append("early"))
    cancelled = timers.at(1_200, lambda: ran.append("never"))
    cancelled.cancel()
    clock.advance(100)
    clock.advance(200)
    assert done.wait(10)
    timers.close()
    assert ran == ["early", "late"]


def test_no_advance_is_missed() -> None:
    """The clock moves while the timer thread is between looking at it and waiting."""
    for _ in range(200):
        clock = ManualClock()
        timers, done = TimerThread(clock), threading.Event()
        timers.at(5, done.set)
        clock.advance(5)
        assert done.wait(10)
        timers.close()


def test_a_failing_callback_is_remembered_and_the_thread_goes_on() -> None:
    timers, done = TimerThread(ManualClock()), threading.Event()

    def fail() -> None:
        raise ValueError("bad callback")

    timers.at(0, fail)
    timers.at(0, done.set)
    assert done.wait(10)
    timers.close()
    assert isinstance(timers.failure, ValueError)


def test_processing_time_callbacks_run_in_the_mailbox() -> None:
    clock, mailbox = ManualClock(), Mailbox()
    timers = TimerThread(clock)
    service, ran = MailboxTimeService(timers, mailbox), list[int]()
    service.register(10, ran.append)
    service.register(20, ran.append).cancel()
    clock.advance(25)
    mailbox.wait_for_mail()
    assert ran == []
    mail = mailbox.take_nowait()
    assert mail is not None
    mail()
    assert ran == [10]
    timers.close()
    assert mailbox.take_nowait() is None


def test_a_closed_service_runs_nothing_any_more() -> None:
    clock, mailbox = ManualClock(), Mailbox()
    timers = TimerThread(clock)
    service, ran = MailboxTimeService(timers, mailbox), list[int]()
    service.register(0, ran.append)
    mailbox.wait_for_mail()
    service.close()
    mail = mailbox.take_nowait()
    assert mail is not None
    mail()
    assert ran == []
    timers.close()


class _SetBack(ManualClock):
    """A clock whose time of day is set back by an hour as soon as somebody asks for it."""

    def now_ms(self) -> int:
        """An hour too early."""
        return super().now_ms() - 3_600_000


def test_a_clock_that_is_set_back_does_not_hold_up_what_waits_for_a_duration() -> None:
    clock = _SetBack(10_000_000)
    timers = TimerThread(clock)
    rang = threading.Event()
    timers.after(100, rang.set)
    timers.at(10_000_000, lambda: pytest.fail("this time of day has not come"))
    clock.advance(100)
    assert rang.wait(10)
    timers.close()
    assert timers.failure is None


def test_timers_that_are_cancelled_long_before_their_time_are_forgotten() -> None:
    clock = ManualClock()
    timers = TimerThread(clock)
    service = MailboxTimeService(timers, Mailbox())
    kept = [service.register(HOUR_MS, lambda _: None) for _ in range(100)]
    for moved in range(10_000):  # a session whose end is moved at each row
        service.register(HOUR_MS + moved, lambda _: None).cancel()
    assert timers.waiting <= 2 * (len(kept) + 100)
    timers.close()
    assert timers.waiting == 0


def test_what_waits_for_a_time_of_day_is_due_when_the_clock_jumps_there() -> None:
    class Jumping(SystemClock):
        ahead_ms = 0

        def now_ms(self) -> int:
            return super().now_ms() + self.ahead_ms

    clock, fired = Jumping(), threading.Event()
    timers = TimerThread(clock)
    timers.at(clock.now_ms() + 3_600_000, fired.set)
    clock.ahead_ms = 7_200_000
    assert fired.wait(20), "nothing but the clock says that it is time"
    timers.close()
