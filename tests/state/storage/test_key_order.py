"""The order of rows in state files, and which keys are equal."""

from __future__ import annotations

import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.state.storage.key_order import key_ranks, sorted_by_group_and_key
from tests.state.storage.arrow_values import TYPES, columns


def canonical(value: Any) -> Any:
    """A hashable value that is equal for keys that are."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((k, canonical(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(canonical(v) for v in value)
    return value


def exact(array: pa.Array) -> list[Any]:
    """Values of an array as Python objects; times as integers, since Python has no nanoseconds."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    return list(array.to_pylist())


@given(st.data())
def test_equal_keys_have_one_rank_and_unequal_ones_have_different_ranks(data: st.DataObject) -> None:
    kind = data.draw(TYPES.filter(lambda t: not has_times(t) or not pa.types.is_nested(t)))
    array = data.draw(columns(kind, data.draw(st.integers(0, 12))))
    ranks = key_ranks([array]).tolist()
    keys = [canonical(v) for v in exact(array)]
    assert [[a == b for b in ranks] for a in ranks] == [[a == b for b in keys] for a in keys]


def has_times(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(has_times(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.sampled_from(["", "a", "b"]), st.none()), max_size=40)
)
def test_rows_are_sorted_by_group_then_key_and_stay_in_order_within_a_key(
    rows: list[tuple[int, int, str, None]],
) -> None:
    groups = np.array([r[0] for r in rows], np.int32)
    keys = [pa.array([r[1] for r in rows], pa.int64()), pa.array([r[2] for r in rows], pa.string())]
    order = sorted_by_group_and_key(groups, keys).tolist()
    assert order == sorted(range(len(rows)), key=lambda i: (rows[i][0], rows[i][1], rows[i][2], i))


def test_rows_without_key_columns_stay_in_order_within_their_group() -> None:
    assert sorted_by_group_and_key(np.array([1, 0, 1, 0], np.int32), []).tolist() == [1, 3, 0, 2]


def test_many_key_columns_with_many_values_do_not_overflow() -> None:
    rows = 3000
    rng = np.random.default_rng(1)
    keys = [pa.array(rng.permutation(rows)) for _ in range(8)]
    groups = rng.integers(0, 32768, rows).astype(np.int32)
    expected = np.lexsort((*(k.to_numpy() for k in reversed(keys)), groups))
    assert sorted_by_group_and_key(groups, keys).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        (pa.array([math.nan, 1.0, -0.0, 0.0, math.nan]), [2, 1, 0, 0, 2]),
        (pa.array([None, math.nan, 1.0, None]), [2, 1, 0, 2]),
        (pa.array([None, None]), [0, 0]),
        (pa.array([True, False, None]), [1, 0, 2]),
        (pa.array([decimal.Decimal("1.10"), decimal.Decimal("-2.00")]), [1, 0]),
        (pa.array(["b", "a", None, "b"]).dictionary_encode(), [1, 0, 2, 1]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), pa.array(["b", None])), [0, 1, 1]),
        (pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string())), [0, 0]),
        (pa.array([1.5, None, 1.5], pa.float16()), [0, 1, 0]),
        (pa.array(["x", "w"], pa.string_view()), [1, 0]),
        (pa.array([b"xy", b"wz"], pa.binary(2)), [1, 0]),
        (pa.array([[1, 2], [1, 1]], pa.list_(pa.int8(), 2)), [1, 0]),
    ],
    ids=lambda v: str(getattr(v, "type", "")),
)
def test_special_keys(values: pa.Array, ranks: list[int]) -> None:
    assert key_ranks([values]).tolist() == ranks
