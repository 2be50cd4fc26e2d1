"""Numbers of keys against a dict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.types import BIGINT, DOUBLE, STRING
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.keyed import key_index
from flowrun.operators.keyed.key_index import KeyIndex, KeyView
from tests.examples import examples

Key = tuple[Any, ...]
CODEC = KeyCodec((STRING, BIGINT, DOUBLE))
keys_strategy = st.tuples(
    st.sampled_from(["a", "b", "", None]),
    st.sampled_from([0, 1, -(2**63), None]),
    st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]),
)
steps_strategy = st.lists(
    st.tuples(st.sampled_from(["number", "number", "forget", "view"]), st.lists(keys_strategy, max_size=12)),
    max_size=30,
)


def _columns(keys: list[Key]) -> list[pa.Array]:
    return CODEC.encode([pa.array([k[i] for k in keys], t.arrow) for i, t in enumerate(CODEC.types)])


def _same(key: Key) -> Key:
    """NaN equals NaN."""
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in key)


def _read(columns: list[pa.Array]) -> list[Key]:
    return [_same(k) for k in zip(*(c.to_pylist() for c in columns), strict=True)]


@pytest.mark.parametrize("hashes", [1, 3, 2**64])
def test_behaves_as_a_dict(hashes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keys have the same hash."""
    real = key_index.hash_columns
    monkeypatch.setattr(key_index, "hash_columns", lambda c: (real(c).astype(object) % hashes).astype(np.uint64))
    monkeypatch.setattr(key_index, "_MIN_CELLS", 8)
    monkeypatch.setattr(key_index, "_MIN_DEAD", 2)
    _check_random()


@examples(100)
@given(steps_strategy)
def _check_random(steps: list[tuple[str, list[Key]]]) -> None:
    types = [c.type for c in _columns([])]
    index, model = KeyIndex(types), dict[Key, int]()
    views = list[tuple[KeyView, dict[Key, int]]]()
    for kind, keys in steps:
        if kind == "number":
            positions, numbers = index.number(_columns(keys), len(keys))
            given_numbers = numbers[positions].tolist()
            for key, number in zip(map(_same, keys), given_numbers, strict=True):
                assert model.setdefault(key, number) == number
        elif kind == "forget":
            gone = sorted({_same(k) for k in keys if _same(k) in model}, key=repr)
            index.forget(np.array([model.pop(k) for k in gone], np.int64))
        else:
            views.append((index.view(), dict(model)))
        assert len(index) == len(model) == len(set(model.values()))
        assert all(n < index.capacity for n in model.values())
        assert _read(index.columns(np.array(list(model.values()), np.int64))) == list(model)
    for view, known in views:
        assert _read(view.columns(np.array(list(known.values()), np.int64))) == list(known)


def test_numbers_of_forgotten_keys_are_given_again() -> None:
    index = KeyIndex([pa.int64()])
    for start in range(0, 200_000, 1000):
        _, numbers = index.number([pa.array(range(start, start + 1000))], 1000)
        index.forget(numbers)
    assert len(index) == 0
    assert index.capacity < 10_000
