from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.types import BIGINT, DOUBLE, STRING
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.keyed import hash_lists
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.keyed.row_log import RowLog
from flowrun.state.key_groups import hash_columns

NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "", "é" * 9]))
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), 1.5]))
BATCHES = st.lists(st.lists(st.tuples(NAMES, NUMBERS, FLOATS), min_size=1, max_size=12), max_size=8)


def columns(rows: list[Any]) -> list[pa.Array]:
    names, numbers, floats = zip(*rows, strict=True)
    return [pa.array(names, pa.string()), pa.array(numbers, pa.int64()), pa.array(floats, pa.float64())]


def key_of(row: Any) -> Any:
    return (*row[:2], "nan" if row[2] is not None and row[2] != row[2] else row[2])


@given(BATCHES, st.sampled_from([1, 3, 1 << 62]), st.sets(st.integers(0, 30)))
def test_equal_keys_have_one_slot_whatever_keys_have_the_same_hash(
    batches: Any, hashes: int, forgotten: set[int]
) -> None:
    slots = KeySlots(KeyCodec((STRING, BIGINT, DOUBLE)))
    expected: dict[Any, int] = {}
    views = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hash_lists, "hash_columns", lambda c: hash_columns(c) % np.uint64(hashes) << np.uint64(2))
        if hashes == 3:
            patch.setattr(hash_lists, "hash_columns", lambda c: hash_columns(c) % np.uint64(3) << np.uint64(62))
        for number, rows in enumerate(batches):
            located = slots.locate(columns(rows), len(rows))
            for row in rows:
                expected.setdefault(key_of(row), len(expected))
            assert located.slots[located.local].tolist() == [expected[key_of(r)] for r in rows]
            found = zip(*(c.to_pylist() for c in slots.keys_of(located.slots[located.local])), strict=True)
            assert [key_of(k) for k in found] == [key_of(r) for r in rows]
            views.append((slots.view(), dict(expected)))
            if number % 3 == 2:
                keep = np.array([s not in forgotten for s in range(len(slots))])
                kept = slots.forget(keep).tolist()
                by_slot = {s: k for k, s in expected.items()}
                expected = {by_slot[old]: new for new, old in enumerate(kept)}
            assert len(slots) == len(expected)
    for view, known in views:
        of_slots = zip(*(c.to_pylist() for c in view.keys_of(np.arange(len(view)))), strict=True)
        assert [key_of(k) for k in of_slots] == list(known)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=40), st.data())
def test_a_log_finds_rows_by_position(sizes: list[int], data: st.DataObject) -> None:
    log, total = RowLog(), 0
    for size in sizes:
        assert log.append(pa.record_batch({"v": np.arange(total, total + size)})) == total
        total += size
    if total:
        wanted = np.array(data.draw(st.lists(st.integers(0, total - 1), max_size=20)), np.int64)
        assert log.take(wanted).column(0).to_pylist() == wanted.tolist()
        log.keep(wanted)
        assert len(log) == len(wanted)
    assert len(log._chunks) < 24
