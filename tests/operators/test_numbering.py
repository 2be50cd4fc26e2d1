"""Rows are numbered by key in the order in which keys appear, whatever types and ranges the keys have."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import pyarrow as pa
import pytest

from flowrun.operators.aggregation.grouping import numbered_groups
from flowrun.operators.aggregation.numbering import by_appearance, first_rows

_FAR = 2**63 - 1
_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small integers": (pa.int64(), [3, 1, None, 2]),
    "integers of any range": (pa.int64(), [_FAR, -_FAR - 1, 0, None]),
    "unsigned": (pa.uint64(), [2**64 - 1, 0, None]),
    "booleans": (pa.bool_(), [True, False, None]),
    "texts": (pa.string(), ["", "a", "b", None]),
    "bytes": (pa.binary(), [b"", b"a", None]),
    "decimals": (pa.decimal128(38, 2), [decimal.Decimal("1.25"), decimal.Decimal("-3"), None]),
    "floats": (pa.float64(), [1.5, -2.0, None]),
    "dates": (pa.date32(), [datetime.date(2024, 1, 1), datetime.date(1900, 1, 1), None]),
    "times": (pa.timestamp("ms", "UTC"), [datetime.datetime(2024, 1, 1), datetime.datetime(2001, 1, 1), None]),
    "nothing": (pa.null(), [None]),
}


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_numbers_are_those_of_a_dictionary_of_tuples(seed: int, width: int) -> None:
    chance = random.Random(seed * 3 + width)
    rows = chance.choice([1, 2, 50])
    kinds = [_VALUES[chance.choice(list(_VALUES))] for _ in range(width)]
    columns = [[chance.choice(values) for _ in range(rows)] for _, values in kinds]
    expected: dict[tuple[Any, ...], int] = {}
    numbers = [expected.setdefault(key, len(expected)) for key in zip(*columns, strict=True)]

    keys = [pa.array(c, k) for c, (k, _) in zip(columns, kinds, strict=True)]
    ids, total = by_appearance(keys, rows)

    assert (ids.tolist(), total) == (numbers, len(expected))
    assert first_rows(ids, total).tolist() == [numbers.index(n) for n in range(total)]


def test_ranges_whose_product_leaves_64_bits() -> None:
    keys = [pa.array([_FAR, 0, _FAR, 0]), pa.array([1, 2**62 - 7, 1, 1]), pa.array([-_FAR, 5, -_FAR, 5])]
    assert by_appearance(keys, 4)[0].tolist() == [0, 1, 0, 2]


def test_no_keys_and_no_rows() -> None:
    assert by_appearance([], 2)[0].tolist() == [0, 0]
    assert by_appearance([], 0)[1] == 0
    assert by_appearance([pa.array([], pa.string()), pa.array([], pa.int64())], 0)[1] == 0


def test_groups_know_their_first_rows() -> None:
    ids, total, first = numbered_groups([pa.array(["b", "a", "b", None])], 4)
    assert (ids.tolist(), total, first.to_pylist()) == ([0, 1, 0, 2], 3, [0, 1, 3])
