"""Changelogs, vectorised: what the row kinds of a batch do, and the batch of changes that leads from old results to new ones.

Updating operators treat a batch as a mini-batch: they remember the result of a key when the batch first touches it, apply all rows, then
send what became of it (`change_batch`): one adjacent −U/+U pair, +I for what is new, −D for what is gone, nothing for what is equal.
Consumers read any row as "add" (+I, +U) or "remove" (−U, −D): a filter between two operators may have taken half of a pair away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.arrays import Bools
from flowrun.core.elements import RecordBatch, RowKind, removals
from flowrun.operators.keyed.equality import rows_equal

"""By `RowKind`: whether a row of the kind adds or removes."""


def only_adds(batch: RecordBatch) -> bool:
    """Whether no row of the batch removes anything; free for batches without kinds.

    >>> only_adds(RecordBatch(pa.record_batch({"n": [1]}), row_kinds=pa.array([2], pa.int8())))
    True
    """
    if batch.row_kinds is None:
        return True
    return not removals(batch.row_kinds).any()


def added(batch: RecordBatch) -> Bools:
    """For each row whether it adds (+I, +U) or removes (−U, −D) what it holds.

    >>> added(RecordBatch(pa.record_batch({"n": [1, 1, 2]}), row_kinds=pa.array([0, 1, 2], pa.int8()))).tolist()
    [True, False, True]
    """
    if batch.row_kinds is None:
        return np.ones(batch.num_rows, np.bool_)
    return ~removals(batch.row_kinds)


def change_batch(
    before: pa.RecordBatch | None,
    had: Bools | None,
    after: pa.RecordBatch | None,
    has: Bools | None,
    *,
    compare: Sequence[int] | None = None,
    repeat: bool = False,
) -> RecordBatch | None:
    """The changes that lead from the old results of some keys to their new ones, or None if there are none.

    Keys are in the order in which their changes come out; they should be in the order in which they were first touched.

    Args:
        before: the old result of each key that had one, in order of the keys; None: no key had one.
        had: for each key whether it had a result; None: all have a row in `before` (none has, without `before`).
        after: the new result of each key that has one, in order of the keys; None: no key has one.
        has: for each key whether it has a result; None: all have a row in `after` (none has, without `after`).
        compare: positions of the columns that tell whether a result changed (those of a key need not be among them); None: all.
        repeat: send an update although the result is equal, as Apache Flink does when state has a time to live.

    >>> old, new = pa.record_batch({"k": ["a", "b"], "n": [1, 1]}), pa.record_batch({"k": ["a", "c"], "n": [2, 1]})
    >>> had, has = np.array([True, True, False]), np.array([True, False, True])
    >>> changes = change_batch(old, had, new, has)
    >>> changes.columns.to_pydict()
    {'k': ['a', 'a', 'b', 'c'], 'n': [1, 2, 1, 1]}
    >>> [RowKind(k).symbol for k in changes.row_kinds.to_pylist()]
    ['-U', '+U', '-D', '+I']
    """
    if before is None or before.num_rows == 0:
        return None if after is None or after.num_rows == 0 else RecordBatch(after)
    if after is None or after.num_rows == 0:
        return RecordBatch(before, row_kinds=_constant(RowKind.DELETE, before.num_rows))
    old = _positions(before, had)
    new = _positions(after, has)
    both = (old >= 0) & (new >= 0)
    rows = int(np.count_nonzero(both))
    if rows and not repeat:
        columns = range(before.num_columns) if compare is None else compare
        if rows == len(both):
            same = rows_equal([before.column(c) for c in columns], [after.column(c) for c in columns], rows)
        else:
            left, right = pa.array(old[both]), pa.array(new[both])
            same = np.zeros(len(both), np.bool_)
            same[both] = rows_equal(
                [before.column(c).take(left) for c in columns], [after.column(c).take(right) for c in columns], rows
            )
        if same.any():
            old, new, both = old[~same], new[~same], both[~same]
    return _pairs(before, old, after, new, both)


def _pairs(
    before: pa.RecordBatch, old: npt.NDArray[np.int64], after: pa.RecordBatch, new: npt.NDArray[np.int64], both: Bools
) -> RecordBatch | None:
    """The rows `old[i]` (removed; −1: none), then `new[i]` (added; −1: none) for each key i."""
    positions = np.empty((len(old), 2), np.int64)
    positions[:, 0] = old
    positions[:, 1] = np.where(new >= 0, new + before.num_rows, -1)
    kinds = np.empty((len(old), 2), np.int8)
    kinds[:, 0] = np.where(both, np.int8(RowKind.UPDATE_BEFORE), np.int8(RowKind.DELETE))
    kinds[:, 1] = np.where(both, np.int8(RowKind.UPDATE_AFTER), np.int8(RowKind.INSERT))
    flat = positions.ravel()
    sent = flat >= 0
    if not sent.any():
        return None
    rows = pa.concat_batches([before, after]).take(pa.array(flat[sent]))
    return RecordBatch(rows, row_kinds=pa.array(kinds.ravel()[sent]))


def _positions(rows: pa.RecordBatch, mask: Bools | None) -> npt.NDArray[np.int64]:
    """For each key its row, −1 for those that have none."""
    if mask is None:
        return np.arange(rows.num_rows)
    return np.where(mask, np.cumsum(mask) - 1, -1)


def _constant(kind: RowKind, rows: int) -> pa.Array:
    return pa.array(np.full(rows, int(kind), np.int8))
