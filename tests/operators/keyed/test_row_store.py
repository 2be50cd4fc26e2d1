"""The row store against a plain list of rows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.state import SegmentedTable, keyed_schema
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DOUBLE, STRING
from flowrun.errors import InternalError
from flowrun.operators.keyed import state_columns
from flowrun.operators.keyed.hash_lists import SortedTags
from flowrun.operators.keyed.row_store import RowStore, row_store_schema
from tests.examples import examples
from tests.operators.stored import whole

SCHEMA = Schema.of(v=STRING, k=BIGINT, x=DOUBLE)
KEYS = (1,)
Row = tuple[Any, ...]


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [[r[i] for r in rows] for i in range(3)]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t.arrow) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA.arrow
    )


def _rows(batch: pa.RecordBatch) -> list[Row]:
    return [tuple(r.values()) for r in batch.to_pylist()]


def _store(**options: Any) -> RowStore:
    return RowStore(SCHEMA, KEYS, 16, counters=("n",), by_row=True, **options)


def test_finds_rows_of_a_key_in_order_of_arrival() -> None:
    store = _store()
    store.append(_batch([("a", 1, 0.0), ("b", 2, 0.0)]))
    store.append(_batch([("c", 1, 0.0), ("d", None, 0.0)]))
    pairs = store.find([pa.array([1, 3, None, 2])], 4)
    assert pairs.probe.tolist() == [0, 0, 3]
    assert [r[0] for r in _rows(store.take(pairs.numbers))] == ["a", "c", "b"]


def test_null_finds_null_where_it_is_told_so() -> None:
    store = _store(null_safe=(True,))
    store.append(_batch([("d", None, 0.0)]))
    assert store.find([pa.array([None, 1], pa.int64())], 2).probe.tolist() == [0]


def test_each_of_equal_rows_is_found_once() -> None:
    store = _store()
    store.append(_batch([("a", 1, -0.0), ("a", 1, 0.0), ("a", 1, 2.0), (None, 1, float("nan"))]))
    wanted = _batch([("a", 1, 0.0), ("a", 1, 0.0), ("a", 1, 0.0), (None, 1, float("nan"))])
    assert store.find_equal(wanted).tolist() == [0, 1, -1, 3]


def test_begins_to_find_equal_rows_when_it_is_first_asked() -> None:
    store = RowStore(SCHEMA, KEYS, 16)
    rows = _batch([("a", 1, 0.0), ("b", 2, 0.0), ("b", 2, 0.0)])
    store.append(rows)
    store.remove(np.array([1]))
    assert store.find_equal(rows).tolist() == [0, 2, -1]
    store.append(rows)
    assert store.find_equal(rows).tolist() == [0, 2, 4]


def test_without_keys_all_rows_have_one_key() -> None:
    store = RowStore(SCHEMA, (), 16)
    store.append(_batch([("a", 1, 0.0), ("b", 2, 0.0)]))
    assert store.find([], 2).numbers.tolist() == [0, 1, 0, 1]


def test_a_column_that_is_two_keys_is_stored_once() -> None:
    store = RowStore(SCHEMA, (1, 1), 16)
    store.append(_batch([("a", 1, 0.0), ("b", 2, 0.0)]))
    table = whole(store.snapshot_table())
    assert table.schema.names == ["__key_group", "k", "__row", "v", "x"]
    again = RowStore(SCHEMA, (1, 1), 16)
    again.restore(table)
    assert again.find([pa.array([1, 2, 2]), pa.array([1, 1, 2])], 3).probe.tolist() == [0, 2]


def test_a_state_table_has_no_column_twice() -> None:
    number = pa.field("n", pa.int64())
    with pytest.raises(InternalError, match="more than one column 'n'"):
        keyed_schema([number], [pa.field("v", pa.string()), number])


def test_a_snapshot_writes_what_changed_since_the_last() -> None:
    store = _store()
    store.append(_batch([(str(i), i, 0.0) for i in range(1000)]))
    first = store.snapshot_table()
    store.remove(np.array([5]))
    store.put("n", np.array([7]), 3)
    store.remove(store.append(_batch([("gone", 1, 0.0)])))
    second = store.snapshot_table()
    assert second.segments[0] is first.segments[0]
    assert second.segments[1].rows().num_rows == 2
    assert whole(second).num_rows == 999
    assert store.snapshot_table().segments == second.segments


rows_strategy = st.tuples(
    st.sampled_from(["a", "b", "ü", None]), st.sampled_from([1, 2, 3, None]), st.sampled_from([0.0, 1.5, None])
)
steps_strategy = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(rows_strategy, max_size=6)),
        st.tuples(st.just("remove"), st.integers(0, 10**6)),
        st.tuples(st.sampled_from(["count", "snapshot", "restore", "compact"]), st.integers(0, 10**6)),
    ),
    max_size=25,
)


@examples(150)
@given(steps_strategy, st.sampled_from([0, 1000]))
def test_behaves_as_a_list_of_rows(steps: list[tuple[str, Any]], copied_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_columns, "_COPIED_BYTES", copied_bytes)
        _check_steps(steps)


def _check_steps(steps: list[tuple[str, Any]]) -> None:
    store, numbers = _store(), np.zeros(0, np.int64)
    model: list[list[Any]] = []  # [row, counter], in order of arrival
    unread: list[
        tuple[SegmentedTable, list[str]]
    ] = []  # snapshots that nobody has written yet, and what they must hold
    for kind, argument in steps:
        if kind == "append":
            numbers = np.concatenate([numbers, store.append(_batch(argument), n=len(model))])
            model += [[row, counter] for counter in [len(model)] for row in argument]
        elif kind == "remove" and model:
            chosen = random.Random(argument).sample(range(len(model)), argument % len(model) + 1)
            store.remove(numbers[chosen])
            numbers = np.delete(numbers, chosen)
            model = [m for i, m in enumerate(model) if i not in set(chosen)]
        elif kind == "count" and model:
            at = argument % len(model)
            changed = numbers[at : at + 1]
            store.put("n", changed, store.counter("n")[changed] + 1)
            model[at][1] += 1
        elif kind == "snapshot":
            unread.append((store.snapshot_table(), sorted(repr((tuple(row), n)) for row, n in model)))
            if argument % 2:
                _check_snapshot(*unread.pop(argument % len(unread)))
        elif kind == "restore":
            table = whole(store.snapshot_table())
            store = _store()
            numbers = store.restore(table.take(pa.array(np.random.default_rng(argument).permutation(table.num_rows))))
        elif kind == "compact":
            moved = store.compact()
            numbers = numbers if moved is None else moved[numbers]
        _check(store, numbers, model)
    for snapshot, expected in unread:
        _check_snapshot(snapshot, expected)


def _check_snapshot(snapshot: SegmentedTable, expected: list[str]) -> None:
    rows = whole(snapshot).select(["v", "k", "x", "n"]).to_pylist()
    assert sorted(repr(((r["v"], r["k"], r["x"]), r["n"])) for r in rows) == expected


def _check(store: RowStore, numbers: np.ndarray[Any, Any], model: list[list[Any]]) -> None:
    assert len(store) == len(model)
    assert store.live().tolist() == numbers.tolist()
    assert _rows(store.take(numbers)) == [m[0] for m in model]
    assert store.counter("n")[numbers].tolist() == [m[1] for m in model]
    keys = [1, 2, 3, None]
    pairs = store.find([pa.array(keys, pa.int64())], 4)
    wanted = [[m[0] for m in model if k is not None and m[0][1] == k] for k in keys]
    found = _rows(store.take(pairs.numbers))
    assert [[f for f, p in zip(found, pairs.probe, strict=True) if p == i] for i in range(4)] == wanted
    together = np.array([False, False, True, False])
    columns = [pa.array(keys, pa.int64())]
    found_in_parts = list(
        store.find_in_parts(columns, SortedTags.of_columns(columns, 4), 2, together=together, with_rows=True)
    )
    parts = [f.pairs for f in found_in_parts]
    assert [_rows(f.rows) for f in found_in_parts] == [_rows(store.take(p.numbers)) for p in parts]
    assert np.concatenate([[], *(p.probe for p in parts)]).tolist() == pairs.probe.tolist()
    assert np.concatenate([[], *(p.numbers for p in parts)]).tolist() == pairs.numbers.tolist()
    assert sum(1 in p.probe or 2 in p.probe for p in parts) <= 1


@pytest.fixture(autouse=True)
def _compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowrun.operators.keyed.row_store._SPARE", 2)


def test_the_state_table_says_what_its_columns_are() -> None:
    assert row_store_schema(SCHEMA, KEYS, ("n",)).names == ["__key_group", "k", "__row", "v", "x", "n"]
