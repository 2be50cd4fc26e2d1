"""Accumulators as text: every plain value comes back as it was, and text that was tampered with runs nothing."""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.operators.aggregation.accumulator_codec import AccumulatorCodec, AccumulatorError


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.made += 1


class Plain:
    pass


CODEC = AccumulatorCodec(sys.modules[__name__])
KEYS = st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    KEYS | st.floats(allow_nan=False) | st.binary() | st.decimals(allow_nan=False),
    lambda v: st.lists(v) | st.tuples(v, v) | st.dictionaries(KEYS, v),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    back = CODEC.decode(CODEC.encode(value))
    assert repr(back) == repr(value)  # tells True from 1 and -0.0 from 0.0


@pytest.mark.parametrize(
    "value",
    [
        2**70,
        math.inf,
        {"!": "decimal", "value": "1"},
        Counter("abca"),
        OrderedDict(b=1, a=2),
        defaultdict(list, {1: [2]}),
        deque([1, 2], maxlen=5),
        {1, 2},
        bytearray(b"x"),
        UUID(int=7),
        1 + 2j,
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 1, 1),
        time(1, 2, 3, 4),
        timedelta(-1, 2, 3),
        np.float32(1.5),
        np.datetime64("2026-01-01", "ms"),
        pa.scalar(5, pa.int16()),
        Point(1, ["a"]),
        [Point(2), (Point(3),)],
    ],
)
def test_other_values_keep_their_type(value: object) -> None:
    back = CODEC.decode(CODEC.encode(value))
    assert (type(back), repr(back)) == (type(value), repr(value))
    assert back == value


def test_arrays_come_back() -> None:
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3)
    back = CODEC.decode(CODEC.encode(numbers))
    assert (back.dtype, back.tolist()) == (numbers.dtype, numbers.tolist())
    assert back.flags.writeable
    assert CODEC.decode(CODEC.encode(pa.array(["a", None]))).to_pylist() == ["a", None]


@pytest.mark.parametrize("value", [Plain(), [lambda: 1], defaultdict(Plain), np.array([Plain()]), os.system])
def test_what_is_no_plain_value_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(AccumulatorError, match=r"cannot be stored|the factory of a defaultdict"):
        CODEC.encode(value)


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(AccumulatorError, match="contains itself"):
        CODEC.encode(loop)


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("was-here",)


def test_a_pickle_in_the_state_runs_nothing(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    with pytest.raises(AccumulatorError, match="pickled"):
        CODEC.decode(pickle.dumps(_Runs()))
    assert os.listdir() == []


@pytest.mark.parametrize(
    "document",
    [
        {"!": "dataclass", "class": "os.system", "fields": {}},
        {"!": "dataclass", "class": "Plain", "fields": {}},
        {"!": "dataclass", "class": "Counter", "fields": {}},
        {"!": "dataclass", "class": "Point", "fields": {"x": 1, "__class__": 2, "made": 1}},
        {"!": "defaultdict", "factory": "eval", "items": []},
        {"!": "numpy", "type": "|O", "shape": [1], "value": "AAAAAAAAAAA="},
        {"!": "os.system", "value": "id"},
        {"!": ["set"], "value": 1},
        {"!": "timedelta"},
    ],
)
def test_text_that_was_tampered_with_is_an_error_and_nothing_else(document: object) -> None:
    with pytest.raises(AccumulatorError):
        CODEC.decode(orjson.dumps(document))
    with pytest.raises(AccumulatorError, match="damaged"):
        CODEC.decode(b"{")
