from __future__ import annotations

import decimal
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullOrder, SortKey
from flowrun.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, DataType, TypeRoot, timestamp
from flowrun.core.types import decimal as decimal_type
from flowrun.operators.ranking.order import RowOrder, sorted_order
from flowrun.operators.ranking.slot_lists import SlotLists
from tests.operators.ranking.oracles import sort_key
from tests.slices import everyday

TINY = DataType(TypeRoot.TINYINT)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BIGINT: st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 2**63 - 2, 0])),
    TINY: st.integers(-128, 127),
    BOOLEAN: st.booleans(),
    DOUBLE: st.floats(allow_nan=False),
    STRING: st.text(alphabet="ab\0é", max_size=12),
    DATE: st.dates(),
    timestamp(6): st.datetimes(),
    decimal_type(38, 2): st.decimals(-(10**35), 10**35, places=2, allow_nan=False),
    decimal_type(10, 2): st.decimals(-(10**7), 10**7, places=2, allow_nan=False),
}


@pytest.mark.parametrize("kind", everyday(VALUES, 3), ids=str)
@given(data=st.data())
def test_codes_and_ranks_order_values_of_every_type(kind: DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[kind]), min_size=1, max_size=30))
    key = SortKey(0, data.draw(st.booleans()), data.draw(st.sampled_from(NullOrder)))
    order = RowOrder(Schema((Field("v", kind),)), [key])
    column = pa.array([None, *values, None], kind.arrow).slice(1, len(values))
    (codes,) = order.codes([column], len(values))
    ranks = order.ranks([column])
    comparable = [v.encode() if isinstance(v, str) else v for v in column.to_pylist()]
    keys = [sort_key((v,), [key]) for v in comparable]
    for i in range(len(values)):
        for j in range(len(values)):
            assert (ranks[i] < ranks[j]) == (keys[i] < keys[j])
            assert (ranks[i] == ranks[j]) == (keys[i] == keys[j])
            assert not codes[i] < codes[j] or keys[i] < keys[j]
            if order.exact and codes[i] == codes[j]:
                assert keys[i] == keys[j]
    assert order.exact or kind in (STRING, BIGINT, decimal_type(38, 2), timestamp(6))


def test_nan_is_above_all_numbers_and_the_zeros_are_equal() -> None:
    order = RowOrder(Schema.of(v=DOUBLE), [SortKey(0)])
    (codes,) = order.codes([pa.array([math.nan, math.inf, 0.0, -0.0, -math.nan, -1.0])], 6)
    assert np.argsort(codes, kind="stable").tolist() == [5, 2, 3, 1, 0, 4]
    assert codes[0] == codes[4]


def test_wide_decimals_are_ranked_by_their_columns_from_the_first_wide_one_on() -> None:
    order = RowOrder(Schema.of(v=decimal_type(38, 0)), [SortKey(0)])
    order.codes([pa.array([decimal.Decimal(5)], pa.decimal128(38, 0))], 1)
    assert order.exact
    order.codes([pa.array([decimal.Decimal(10) ** 30], pa.decimal128(38, 0))], 1)
    assert not order.exact


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)), max_size=40))
def test_rows_of_equal_parts_keep_their_order(rows: list[tuple[int, int]]) -> None:
    parts = [np.array([r[i] for r in rows], np.int64) for i in (1, 0)]
    expected = sorted(range(len(rows)), key=lambda i: (rows[i][1], rows[i][0]))
    assert sorted_order(parts).tolist() == expected


@given(st.integers(0, 2**32))
def test_lists_by_slot_hold_what_was_put_in_them(seed: int) -> None:
    dice = random.Random(seed)
    lists, expected = SlotLists(), [[] for _ in range(6)]
    lists.reserve(6)
    for _ in range(30):
        slots = dice.sample(range(6), dice.randrange(1, 5))
        new = [[dice.randrange(100) for _ in range(dice.choice([0, 1, 3, 9]))] for _ in slots]
        lengths = np.array([len(n) for n in new])
        flat = np.array([x for n in new for x in n], np.int64)
        if dice.random() < 0.5:
            lists.put(np.array(slots), lengths, flat)
        else:
            lists.extend(np.array(slots), lengths, flat)
            new = [expected[s] + n for s, n in zip(slots, new, strict=True)]
        for slot, numbers in zip(slots, new, strict=True):
            expected[slot] = numbers
        if dice.random() < 0.1:
            moved = np.array([x - 1 if x % 3 else -1 for x in range(100)])
            lists.renumber(moved)
            expected = [[int(moved[x]) for x in e if moved[x] >= 0] for e in expected]
    owners, numbers = lists.get(np.arange(6))
    assert [numbers[owners == s].tolist() for s in range(6)] == expected
