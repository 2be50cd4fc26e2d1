"""What an operator gets with object reuse off: the same rows, no byte of which is shared."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from flowrun.core.elements import PassingWatermarks, RecordBatch
from flowrun.runtime.task.outputs import copied

COLUMNS = {
    "integers": pa.array([1, None, 3, 4]),
    "texts": pa.array(["a", None, "ccc", ""]),
    "booleans": pa.array([True, None, False, True]),
    "decimals": pa.array([Decimal("1.50"), None, Decimal("2.25"), Decimal("0.00")], pa.decimal128(6, 2)),
    "lists": pa.array([[1], [2, 3], None, []]),
    "rows": pa.array([{"a": 1}, None, {"a": 2}, {"a": None}]),
    "maps": pa.array([[("a", 1)], [], None, [("b", 2)]], pa.map_(pa.string(), pa.int32())),
    "dictionaries": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "nothing": pa.nulls(4),
}


def addresses(array: pa.Array) -> set[int]:
    found = {b.address for b in array.buffers() if b is not None and b.size}
    return found | addresses(array.dictionary) if pa.types.is_dictionary(array.type) else found


@pytest.mark.parametrize("name", list(COLUMNS))
def test_a_copy_shares_no_memory(name: str) -> None:
    batch = RecordBatch(pa.record_batch({name: COLUMNS[name]}))
    for rows in (batch, batch.slice(1, 2), batch.slice(2, 0)):
        copy = copied(rows)
        assert copy.columns.equals(rows.columns)
        assert copy.columns.schema.equals(rows.columns.schema)
        assert addresses(copy.columns.column(0)).isdisjoint(addresses(rows.columns.column(0)))


def test_times_kinds_and_watermarks_are_copied_too() -> None:
    times, kinds = pa.array([1, 2]), pa.array([0, 3], pa.int8())
    between = PassingWatermarks(np.array([0, 1]), np.array([5, 6]))
    copy = copied(RecordBatch(pa.record_batch({"a": [1, 2]}), times, kinds, between))
    assert copy.timestamps is not None
    assert copy.row_kinds is not None
    assert copy.watermarks is not None
    assert copy.timestamps.equals(times)
    assert copy.row_kinds.equals(kinds)
    assert addresses(copy.timestamps).isdisjoint(addresses(times))
    between.rows[0] = 1
    assert copy.watermarks.rows.tolist() == [0, 1]


def test_rows_without_columns_are_still_as_many() -> None:
    rows = pa.record_batch({"a": [1, 2]}).select([])
    assert copied(RecordBatch(rows)).num_rows == 2
