from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TINYINT,
    DataType,
    time,
    timestamp,
    timestamp_ltz,
)  # fmt: skip
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.keyed import hash_lists
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.keyed.key_store import IntegerKeys, key_store
from flowrun.operators.keyed.row_log import RowLog
from flowrun.state.key_groups import hash_columns

NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "", "é" * 9]))
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), 1.5]))
INTEGERS: dict[DataType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    TINYINT: st.sampled_from([-128, 0, 1, 127]),
    INT: st.sampled_from([-(1 << 31), 0, 7, (1 << 31) - 1]),
    BIGINT: st.sampled_from([-(1 << 63), -1, 0, 1 << 32, (1 << 63) - 1]),
    DATE: st.dates(date(1969, 12, 30), date(1970, 1, 2)),
    time(3): st.sampled_from([datetime.min.time(), datetime(1970, 1, 1, 23, 59, 59, 999000).time()]),
    timestamp(6): st.sampled_from(
        [datetime(1, 1, 1), datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]
    ),
    timestamp_ltz(3): st.sampled_from([datetime(1969, 7, 20, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]),
}
"""Types whose values are integers underneath, with values at their limits."""
BATCHES = st.lists(st.lists(st.tuples(NAMES, NUMBERS, FLOATS), min_size=1, max_size=12), max_size=8)


def columns(rows: list[Any]) -> list[pa.Array]:
    names, numbers, floats = zip(*rows, strict=True)
    return [pa.array(names, pa.string()), pa.array(numbers, pa.int64()), pa.array(floats, pa.float64())]


def key_of(row: Any) -> Any:
    return (*row[:2], "nan" if row[2] is not None and row[2] != row[2] else row[2])


class Oracle:
    """What slots should be, key by key; `key_of` makes equal what is one key."""

    def __init__(self, codec: KeyCodec, key_of: Callable[[Any], Any], forgotten: set[int]) -> None:
        self.slots = KeySlots(codec)
        self.expected: dict[Any, int] = {}
        self.views: list[tuple[KeyList, dict[Any, int]]] = []
        self._key_of = key_of
        self._forgotten = forgotten

    def locate(self, rows: list[Any], columns: list[pa.Array]) -> None:
        located = self.slots.locate(columns, len(rows))
        keys = [self._key_of(r) for r in rows]
        for key in keys:
            self.expected.setdefault(key, len(self.expected))
        assert located.slots[located.local].tolist() == [self.expected[k] for k in keys]
        assert self._keys(self.slots.keys_of(located.slots[located.local])) == keys
        assert [self._keys(self.slots.keys_in(located))[i] for i in located.local] == keys
        self.views.append((self.slots.view(), dict(self.expected)))

    def forget(self) -> None:
        kept = self.slots.forget(np.array([s not in self._forgotten for s in range(len(self.slots))]))
        by_slot = {s: k for k, s in self.expected.items()}
        self.expected = {by_slot[old]: new for new, old in enumerate(kept.tolist())}
        assert len(self.slots) == len(self.expected)

    def check_views(self) -> None:
        """They show what was there when they were made."""
        for view, known in self.views:
            assert self._keys(view.keys_of(np.arange(len(view)))) == list(known)

    def _keys(self, columns: list[pa.Array]) -> list[Any]:
        return [self._key_of(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)]


@contextmanager
def colliding(hashes: int) -> Iterator[None]:
    """So many different hashes; with 3 they are far apart, else next to each other."""
    shift = np.uint64(62 if hashes == 3 else 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hash_lists, "hash_columns", lambda c: hash_columns(c) % np.uint64(hashes) << shift)
        yield


@given(BATCHES, st.sampled_from([1, 3, 1 << 62]), st.sets(st.integers(0, 30)))
def test_equal_keys_have_one_slot_whatever_keys_have_the_same_hash(
    batches: Any, hashes: int, forgotten: set[int]
) -> None:
    oracle = Oracle(KeyCodec((STRING, BIGINT, DOUBLE)), key_of, forgotten)
    with colliding(hashes):
        for number, rows in enumerate(batches):
            oracle.locate(rows, columns(rows))
            if number % 3 == 2:
                oracle.forget()
    oracle.check_views()


@given(st.data(), st.sampled_from([1, 3, 1 << 62]), st.sets(st.integers(0, 30)))
def test_keys_of_integers_keep_their_values_and_nulls(data: st.DataObject, hashes: int, forgotten: set[int]) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(INTEGERS, key=str)), min_size=1, max_size=3))
    row = st.tuples(*(st.one_of(st.none(), INTEGERS[kind]) for kind in kinds))
    oracle = Oracle(KeyCodec(tuple(kinds)), lambda key: key, forgotten)
    assert isinstance(key_store(KeyCodec(tuple(kinds)).groupable), IntegerKeys)
    with colliding(hashes):
        for number in range(data.draw(st.integers(1, 6))):
            rows = data.draw(st.lists(row, min_size=1, max_size=12))
            arrays = [pa.array([r[i] for r in rows], kind.arrow) for i, kind in enumerate(kinds)]
            oracle.locate([tuple(v) for v in zip(*(a.to_pylist() for a in arrays), strict=True)], arrays)
            if number % 3 == 2:
                oracle.forget()
    oracle.check_views()


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
