"""Users' classes are opened once a subtask, and closed with it."""

from __future__ import annotations

from typing import Any

import pytest

from flowrun.errors import DataError, PipelineError
from flowrun.operators.opened_functions import OpenedFunctions
from flowrun.operators.user_functions import load_aggregate, load_callable, made_aggregate

events: list[str] = []


class Resource:
    def open(self) -> None:
        events.append("open")

    def __call__(self, a: int) -> int:
        return a

    def close(self) -> None:
        events.append("close")


class Managed:
    def __enter__(self) -> Any:
        events.append("enter")
        return lambda a: a + 1

    def __exit__(self, *error: object) -> None:
        events.append("exit")

    def __call__(self, a: int) -> int:
        return a


class FailsToOpen(Resource):
    def open(self) -> None:
        raise OSError("no such host")


class FailsToClose(Resource):
    def close(self) -> None:
        raise ValueError("lost")


class Unmakeable:
    def __init__(self) -> None:
        raise KeyError("MODEL")


class Total(Resource):
    def create_accumulator(self) -> int:
        return 0

    def accumulate(self, total: int, a: int) -> int:
        return total + a

    def get_value(self, total: int) -> int:
        return total


@pytest.fixture(autouse=True)
def functions() -> OpenedFunctions:
    events.clear()
    found = OpenedFunctions()
    found.enter()
    return found


def of_test(name: str) -> str:
    return f"{__name__}:{name}"


def test_a_class_is_opened_once_for_all_its_calls(functions: OpenedFunctions) -> None:
    assert load_callable(of_test("Resource")) is load_callable(of_test("Resource"))
    load_aggregate(of_test("Total"))
    assert events == ["open", "open"]
    assert functions.close() == functions.close() == []
    assert events == ["open", "open", "close", "close"]


def test_each_subtask_on_a_thread_has_its_own(functions: OpenedFunctions) -> None:
    first = load_callable(of_test("Resource"))
    other = OpenedFunctions()
    other.enter()
    assert load_callable(of_test("Resource")) is not first
    functions.enter()
    assert load_callable(of_test("Resource")) is first
    assert not [*other.close(), *functions.close()]


def test_a_context_manager_is_entered_and_left(functions: OpenedFunctions) -> None:
    assert load_callable(of_test("Managed"))(1) == 2
    functions.close()
    assert events == ["enter", "exit"]


def test_what_fails_is_named_and_the_rest_is_closed(functions: OpenedFunctions) -> None:
    load_callable(of_test("Resource"))
    load_callable(of_test("FailsToClose"))
    with pytest.raises(DataError, match=r"FailsToOpen': open failed: OSError: no such host at .*test_opened_functions"):
        load_callable(of_test("FailsToOpen"))
    with pytest.raises(PipelineError, match=r"making a Unmakeable failed: KeyError: 'MODEL' at .*test_opened"):
        load_callable(of_test("Unmakeable"))
    (failure,) = functions.close()
    assert "FailsToClose': close failed: ValueError: lost" in failure.message
    assert events == ["open", "open", "close", "close"]  # also what failed to open, as it may have acquired something


def test_looking_at_an_aggregate_opens_nothing() -> None:
    assert made_aggregate(of_test("Total")).get_value(5) == 5
    assert events == []
