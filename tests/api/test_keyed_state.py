"""How state is declared in the class of a process function."""

from __future__ import annotations

import copy
import datetime as dt
import pickle

import pyarrow as pa
import pytest

from flowrun.api.keyed_state import StateDeclaration, declared_states
from flowrun.api.process_function import (
    KeyedProcessFunction,
    TimeToLive,
    list_state,
    map_state,
    operator_state,
    reducing_state,
    value_state,
)
from flowrun.api.state import MapStateDescriptor, Redistribution, ValueStateDescriptor
from flowrun.core.types import BIGINT, DATE, STRING, decimal
from flowrun.errors import StateError


class Base(KeyedProcessFunction):
    first = value_state("BIGINT")
    second = list_state(pa.string())


class Derived(Base):
    second = None
    third = map_state(str, "DECIMAL(10, 2)", ttl="1h 30m", name="prices")

    def __init__(self) -> None:
        self.fourth = value_state(dt.date)


def test_declarations_of_the_class_its_bases_and_the_object() -> None:
    found = {a: d.descriptor(a) for a, d in declared_states(Derived()).items()}
    assert found == {
        "first": ValueStateDescriptor("first", BIGINT),
        "third": MapStateDescriptor("prices", decimal(10, 2), TimeToLive(5_400_000), key_type=STRING),
        "fourth": ValueStateDescriptor("fourth", DATE),
    }


@pytest.mark.parametrize("ttl", ["2s", 2000, dt.timedelta(seconds=2), TimeToLive(2000)])
def test_a_time_to_live_in_any_form(ttl: object) -> None:
    assert value_state("INT", ttl=ttl).descriptor("x").ttl == TimeToLive(2000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: value_state("BIGNIT"), "did you mean"),
        (lambda: value_state(dict), "not a type of state"),
        (lambda: value_state("INT", ttl="soon"), "write a number and a unit"),
        (lambda: value_state("INT", ttl=0), "longer than 0"),
        (lambda: reducing_state("mean", "INT"), "combines by sum, min, max or by a function, got 'mean'"),
        (lambda: operator_state("INT", redistribution="some"), "'some' is not a valid"),
    ],
)
def test_wrong_declarations_fail_where_they_are_written(declare: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declare()  # type: ignore[operator]


def test_state_has_no_handle_before_a_subtask_runs() -> None:
    with pytest.raises(StateError, match=r"no handle yet .'update' was asked"):
        Base().first.update(5)


def test_declarations_can_be_copied() -> None:
    declaration = operator_state("INT", redistribution="broadcast")
    for twin in (copy.deepcopy(declaration), pickle.loads(pickle.dumps(declaration))):
        assert isinstance(twin, StateDeclaration)
        assert twin.redistribution is Redistribution.BROADCAST
        assert twin.descriptor("x") == declaration.descriptor("x")
