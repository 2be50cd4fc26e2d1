"""Calls between two processes, whose connection is a socket pair here: order, answers, errors, fencing, heartbeats, the end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from runtime_fakes import until

from flowrun.core.clock import SystemClock
from flowrun.errors import ClusterError, ConnectorError, FencingError, RpcError
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.rpc.link import link_of_pair
from flowrun.runtime.timers import TimerThread

A, B = Introduction("jobmanager", "a"), Introduction("taskmanager", "b")


class Calculator(Protocol):
    """What the other side calls."""

    def note(self, value: int) -> None: ...

    def add(self, one: int, other: int) -> int: ...

    def fail(self, message: str) -> int: ...

    def wait(self) -> int: ...


class Target:
    def __init__(self) -> None:
        self.noted: list[int] = []
        self.release = threading.Event()

    def note(self, value: int) -> None:
        self.noted.append(value)

    def add(self, one: int, other: int) -> int:
        return one + other

    def fail(self, message: str) -> int:
        raise ConnectorError(message, hint="try again", retryable=True)

    def wait(self) -> int:
        assert self.release.wait(10)
        return 1


class Pair:
    def __init__(self) -> None:
        one, other = socket.socketpair()
        self.caller, self.target = RpcConnection(link_of_pair(one, B)), Target()
        self.callee = RpcConnection(link_of_pair(other, A))
        self.callee.serve("calculator", Calculator, self.target)
        self.callee.serve("fenced", Calculator, self.target, token="7")

    def start(self) -> None:
        self.caller.start()
        self.callee.start()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.target.release.set()
    made.caller.close()
    made.callee.close()
    until(lambda: not any(t.name.startswith("flowrun-answer") for t in threading.enumerate()))


def test_calls_without_an_answer_come_in_their_order(pair: Pair) -> None:
    pair.start()
    calculator = pair.caller.gateway(Calculator, "calculator")
    for value in range(1000):
        calculator.note(value)
    assert calculator.add(1, other=2) == 3
    assert pair.target.noted == list(range(1000))


def test_an_error_is_raised_where_the_call_was_made(pair: Pair) -> None:
    pair.start()
    with pytest.raises(ConnectorError, match="no answer") as raised:
        pair.caller.gateway(Calculator, "calculator").fail("no answer")
    assert (raised.value.hint, raised.value.retryable) == ("try again", True)


def test_a_slow_answer_holds_up_no_other_call(pair: Pair) -> None:
    pair.start()
    calculator = pair.caller.gateway(Calculator, "calculator")
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(calculator.wait()))
    waiting.start()
    assert calculator.add(2, 2) == 4
    with pytest.raises(ClusterError, match=r"did not answer wait within 0.05 s"):
        pair.caller.gateway(Calculator, "calculator", timeout_ms=50).wait()
    pair.target.release.set()
    waiting.join(10)
    assert got == [1]


def test_who_does_not_know_the_token_is_refused(pair: Pair) -> None:
    pair.start()
    with pytest.raises(FencingError, match="the fencing token is stale"):
        pair.caller.gateway(Calculator, "fenced", token="6").add(1, 1)
    pair.caller.gateway(Calculator, "fenced", token="6").note(1)
    assert pair.caller.gateway(Calculator, "fenced", token="7").add(1, 1) == 2
    assert pair.target.noted == []


def test_what_is_not_served_or_does_not_fit_is_an_error(pair: Pair) -> None:
    pair.start()
    with pytest.raises(RpcError, match="nothing is not served here"):
        pair.caller.gateway(Calculator, "nothing").add(1, 1)
    with pytest.raises(RpcError):
        pair.caller.gateway(Calculator, "calculator").add("one", 1)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        pair.caller.gateway(Calculator, "calculator").other()  # type: ignore[attr-defined]


def test_a_call_that_comes_too_late_is_no_warning_but_one_to_nobody_is(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.callee.serve("of a job", Calculator, pair.target)
    pair.callee.withdraw("of a job")
    pair.start()
    pair.caller.gateway(Calculator, "of a job").note(1)
    pair.caller.gateway(Calculator, "nothing").note(1)
    pair.caller.gateway(Calculator, "nothing").note(2)
    assert pair.caller.gateway(Calculator, "calculator").add(1, 1) == 2
    pair.callee.serve("of a job", Calculator, pair.target, token="8")
    pair.caller.gateway(Calculator, "of a job", token="7").note(1)
    assert pair.caller.gateway(Calculator, "calculator").add(1, 1) == 2
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings[0] == "a call was dropped: nothing is not served here"
    assert "note of of a job was refused: the fencing token is stale" in warnings[1]
    assert len(warnings) == 2


def test_the_end_is_told_to_both_and_to_who_waits(pair: Pair) -> None:
    pair.start()
    reasons: list[str] = []
    pair.caller.on_close(reasons.append)
    failed: list[Exception] = []

    def call() -> None:
        try:
            pair.caller.gateway(Calculator, "calculator").wait()
        except ClusterError as error:
            failed.append(error)

    waiting = threading.Thread(target=call)
    waiting.start()
    until(lambda: pair.caller._pending)
    pair.callee.close("it had enough")
    waiting.join(10)
    assert "it had enough" in str(failed[0])
    until(lambda: reasons)  # who waits for an answer is told first
    assert reasons == ["it had enough"]
    pair.caller.on_close(reasons.append)
    assert reasons == ["it had enough"] * 2
    with pytest.raises(ClusterError, match="is over: it had enough"):
        pair.caller.gateway(Calculator, "calculator").note(1)


def test_who_says_nothing_for_too_long_is_given_up(pair: Pair) -> None:
    timers = TimerThread(SystemClock())
    heartbeats = Heartbeats(pair.caller, timers, timers.clock, interval_ms=20, timeout_ms=150)
    reasons: list[str] = []
    pair.caller.on_close(reasons.append)
    pair.start()
    heartbeats.start()
    until(lambda: reasons)
    assert reasons == ["no heartbeat for 0 s"]
    timers.close()


def test_who_answers_is_not_given_up(pair: Pair) -> None:
    timers = TimerThread(SystemClock())
    both = [Heartbeats(c, timers, timers.clock, interval_ms=20, timeout_ms=400) for c in (pair.caller, pair.callee)]
    pair.start()
    for one in both:
        one.start()
    released = threading.Event()
    released.wait(1)
    assert not pair.caller.is_closed
    timers.close()


def test_a_token_counts_when_the_call_runs_and_not_when_it_comes(pair: Pair) -> None:
    token, mails = ["1"], []

    def post(mail: Callable[[], None]) -> bool:
        mails.append(mail)
        return len(mails) < 3

    pair.callee.serve("led", Calculator, pair.target, token=lambda: token[0], post=post)
    pair.start()
    led = pair.caller.gateway(Calculator, "led", token="1")
    led.note(1)
    led.note(2)
    until(lambda: len(mails) == 2)
    mails[0]()
    token[0] = "2"
    mails[1]()
    assert pair.target.noted == [1]
    token[0] = "1"
    with pytest.raises(ClusterError, match="led has ended"):
        led.add(1, 1)
