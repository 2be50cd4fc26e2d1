"""Folds the changes of a partition to the rows that were added and not removed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.connectors.newest_rows import content_hashes, numbers_of
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, RowKind, concat_batches

_LEAST_FOLD = 65_536
_REMOVING = (RowKind.UPDATE_BEFORE, RowKind.DELETE)


class FoldedRows:
    """A multiset of rows with their event times. Changes are gathered, and applied when there are as many of them as rows.

    A change that removes a row removes the oldest one of the equal rows.
    """

    def __init__(self) -> None:
        self._alive: RecordBatch | None = None
        self._changes: list[RecordBatch] = []
        self._waiting = 0

    def add(self, batch: RecordBatch) -> None:
        """Apply changes, in order."""
        self._changes.append(batch)
        self._waiting += batch.num_rows
        if self._waiting >= max(_LEAST_FOLD, 0 if self._alive is None else self._alive.num_rows):
            self._fold()

    def rows(self) -> RecordBatch | None:
        """All rows as inserts, in the order in which they came; None if none ever came."""
        self._fold()
        return self._alive

    def _fold(self) -> None:
        if not self._changes:
            return
        changes, self._changes, self._waiting = self._changes, [], 0
        batch = concat_batches(changes if self._alive is None else [self._alive, *changes])
        removes = np.zeros(batch.num_rows, np.bool_)
        if batch.row_kinds is not None:
            removes = np.isin(batch.row_kinds.to_numpy(), _REMOVING)
        kept = _remaining(batch, removes)
        rows = batch if kept is None else batch.take(pa.array(kept))
        self._alive = RecordBatch(rows.columns, rows.timestamps)


def _remaining(batch: RecordBatch, removes: Bools) -> Integers | None:
    """Ascending positions of the added rows that are not removed; None: all of them."""
    if not removes.any():
        return None
    contents = numbers_of(content_hashes(batch.columns.columns))
    adds = np.flatnonzero(~removes)
    left = np.bincount(contents[adds], minlength=int(contents.max()) + 1)
    left -= np.bincount(contents[removes], minlength=len(left))
    order = adds[np.argsort(contents[adds], kind="stable")]
    of = contents[order]
    age = np.searchsorted(of, of, side="right") - np.arange(len(of))  # 1 for the youngest of equal rows
    kept: Integers = np.sort(order[age <= left[of]])
    return kept
