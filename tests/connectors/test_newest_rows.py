"""The newest row of each key, against a row at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.connectors import newest_rows
from flowrun.connectors.newest_rows import NewestRows, key_numbers

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string()), ("more", pa.map_(pa.string(), pa.int64()))])
Row = tuple[int | None, str | None]


def of(*rows: Row) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"key": k, "value": v, "more": [("m", 1)]} for k, v in rows], schema=SCHEMA)


def pairs(batch: pa.RecordBatch) -> list[Row]:
    return list(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))


def test_an_update_replaces_and_a_delete_removes() -> None:
    table = NewestRows(SCHEMA, [0])
    table.add(of((1, "a"), (2, "b"), (1, "a"), (1, "c")), np.array([False, False, True, False]))
    assert pairs(table.newest()) == [(2, "b"), (1, "c")]
    table.add(of((2, "b")), np.array([True]))
    assert pairs(table.newest()) == [(1, "c")]


def test_the_row_before_comes_back_when_the_newest_goes() -> None:
    """Two groups upstream write one key: the one that is left is its row."""
    table = NewestRows(SCHEMA, [0])
    table.add(of((1, "from x"), (1, "from y")), None)
    assert pairs(table.newest()) == [(1, "from y")]
    table.add(of((1, "from y")), np.array([True]))
    assert pairs(table.newest()) == [(1, "from x")]


def test_nothing_has_no_newest_row() -> None:
    table = NewestRows(SCHEMA, [0])
    assert table.newest().num_rows == 0
    assert table.alive().schema == SCHEMA


@given(
    changes=st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "a", "b"]), st.booleans())),
    cuts=st.lists(st.integers(1, 5)),
    least=st.integers(1, 20),
)
def test_as_a_row_at_a_time(changes: list[tuple[int | None, str | None, bool]], cuts: list[int], least: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest_rows, "_LEAST_FOLD", least)
        table = NewestRows(SCHEMA, [0])
        alive: list[Row] = []
        applied: list[tuple[Row, bool]] = []
        for key, value, wants_removal in changes:
            row = (key, value)
            removes = wants_removal and row in alive  # nothing is taken back that was not sent
            if removes:
                alive.remove(row)
            else:
                alive.append(row)
            applied.append((row, removes))
        while applied:
            size = cuts.pop() if cuts else len(applied)
            part, applied = applied[:size], applied[size:]
            table.add(of(*(r for r, _ in part)), np.array([removes for _, removes in part]))
        assert pairs(table.alive()) == alive
        last = {key: i for i, (key, _) in enumerate(alive)}
        assert pairs(table.newest()) == [alive[i] for i in sorted(last.values())]


def test_keys_with_one_hash_are_two_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_rows, "hash_columns", lambda columns: np.zeros(len(columns[0]), np.uint64))
    assert key_numbers([pa.array(["a", "b", None, "a"])], [0]).tolist() == [0, 1, 2, 0]
