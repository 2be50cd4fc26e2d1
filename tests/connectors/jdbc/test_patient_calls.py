"""Calls that may never come back do not keep a subtask."""

from __future__ import annotations

import threading

import pytest

from flowrun.connectors.jdbc.patient_calls import PatientCalls
from flowrun.errors import ConnectorError, JobCancelledError


class Connection:
    """An outside system that answers when it is let."""

    def __init__(self, silence_s: float = 60.0) -> None:
        self.answers = threading.Event()
        self.began = threading.Event()
        self.released = threading.Event()
        self.interrupted = 0
        self.calls = PatientCalls("test", silence_s, "the system", self.released.set, self._interrupt)

    def _interrupt(self) -> None:
        self.interrupted += 1

    def ask(self) -> str:
        self.began.set()
        assert self.answers.wait(60)
        return "an answer"


def test_answers_and_errors_come_back_in_order() -> None:
    connection = Connection()
    connection.answers.set()
    assert [connection.calls.call(connection.ask), connection.calls.call(lambda: None)] == ["an answer", None]
    with pytest.raises(ZeroDivisionError):
        connection.calls.call(lambda: 1 / 0)
    connection.calls.close()
    connection.calls.close()
    assert connection.released.is_set()
    assert connection.interrupted == 0
    with pytest.raises(JobCancelledError):
        connection.calls.call(connection.ask)


def test_a_call_that_takes_too_long_is_given_up_and_let_go_of_later() -> None:
    connection = Connection(silence_s=0.05)
    with pytest.raises(ConnectorError, match=r"the system did not answer for 0\.05 s") as raised:
        connection.calls.call(connection.ask)
    assert raised.value.retryable
    connection.calls.close()
    assert connection.interrupted == 1
    assert not connection.released.is_set()
    connection.answers.set()
    assert connection.released.wait(60)


def test_another_thread_may_end_a_call() -> None:
    connection = Connection()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            connection.calls.call(connection.ask)
        except JobCancelledError as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert connection.began.wait(60)
    connection.calls.cancel()
    asking.join(60)
    assert len(errors) == 1
    connection.answers.set()
    assert connection.released.wait(60)
