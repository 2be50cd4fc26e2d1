"""Changelogs as batches: what removes, and which changes lead from old results to new ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import RecordBatch, RowKind
from flowrun.operators.updating.changes import added, change_batch, only_adds


def kinds_of(batch: RecordBatch) -> list[str]:
    if batch.row_kinds is None:
        return ["+I"] * batch.num_rows
    return [RowKind(k).symbol for k in batch.row_kinds.to_pylist()]


def test_a_batch_without_kinds_only_adds() -> None:
    batch = RecordBatch(pa.record_batch({"n": [1, 2]}))
    assert only_adds(batch)
    assert added(batch).all()


def test_each_kind_adds_or_removes() -> None:
    batch = RecordBatch(pa.record_batch({"n": [1, 2, 3, 4]}), row_kinds=pa.array([0, 1, 2, 3], pa.int8()))
    assert not only_adds(batch)
    assert added(batch).tolist() == [True, False, True, False]


def test_new_results_are_plain_inserts() -> None:
    after = pa.record_batch({"n": [1, 2]})
    changes = change_batch(None, None, after, None)
    assert changes is not None
    assert changes.row_kinds is None
    assert changes.columns.equals(after)


def test_nothing_changed_is_nothing_sent() -> None:
    rows = pa.record_batch({"n": [1.0, math.nan, None]})
    assert change_batch(rows, None, rows, None) is None
    assert change_batch(None, None, None, None) is None


def test_equal_results_are_repeated_on_request() -> None:
    rows = pa.record_batch({"n": [1]})
    changes = change_batch(rows, None, rows, None, repeat=True)
    assert changes is not None
    assert kinds_of(changes) == ["-U", "+U"]


def test_results_that_are_gone_are_deleted() -> None:
    rows = pa.record_batch({"n": [1, 2]})
    changes = change_batch(rows, None, None, None)
    assert changes is not None
    assert kinds_of(changes) == ["-D", "-D"]


def test_only_the_columns_asked_for_tell_whether_a_result_changed() -> None:
    before, after = pa.record_batch({"k": [1], "n": [1]}), pa.record_batch({"k": [2], "n": [1]})
    assert change_batch(before, None, after, None, compare=[1]) is None
    assert change_batch(before, None, after, None) is not None


RESULT = st.one_of(st.none(), st.tuples(st.one_of(st.none(), st.sampled_from([0.5, 1.5, math.nan]))))


@given(st.lists(st.tuples(RESULT, RESULT), max_size=8))
def test_changes_are_those_of_each_key_by_itself(keys: list[tuple[Any, Any]]) -> None:
    expected: list[tuple[str, str]] = []
    for number, (old, new) in enumerate(keys):
        before, after = f"{number} {old}", f"{number} {new}"
        if old is None and new is not None:
            expected.append(("+I", after))
        elif old is not None and new is None:
            expected.append(("-D", before))
        elif old is not None and repr(old) != repr(new):
            expected += [("-U", before), ("+U", after)]
    had, has = (np.array([k[side] is not None for k in keys], np.bool_) for side in (0, 1))
    changes = change_batch(rows_of(keys, 0), had, rows_of(keys, 1), has)
    if not expected:
        assert changes is None
        return
    assert changes is not None
    found = zip(changes.columns["k"].to_pylist(), changes.columns["v"].to_pylist(), strict=True)
    assert list(zip(kinds_of(changes), [f"{k} ({v},)" for k, v in found], strict=True)) == expected


def rows_of(keys: list[tuple[Any, Any]], side: int) -> pa.RecordBatch:
    held = [(number, key[side][0]) for number, key in enumerate(keys) if key[side] is not None]
    return pa.record_batch(
        [pa.array([n for n, _ in held], pa.int64()), pa.array([v for _, v in held], pa.float64(), from_pandas=False)],
        names=["k", "v"],
    )
