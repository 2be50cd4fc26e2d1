"""Rows that a filter has chosen and nobody has copied yet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.core.elements import RecordBatch


def positions_of(mask: pa.BooleanArray) -> pa.Int64Array:
    """Where a mask is true; NULL counts as false.

    >>> positions_of(pa.array([True, None, False, True])).to_pylist()
    [0, 3]
    """
    if mask.null_count:
        mask = mask.fill_null(False)
    return pa.array(np.flatnonzero(mask.to_numpy(zero_copy_only=False)))


class SelectedRows:
    """Some rows of a batch.

    Who needs them in columns of their own calls `rows`. Who copies them anyway, as an exchange that deals rows to several subtasks,
    reads the batch at their positions, and so copies each row once.

    Attributes:
        batch: at least one row, without watermarks between its rows. What it has at other positions means nothing.
        positions: of the rows, int64, ascending, no NULLs, at least one.
    """

    __slots__ = ("_rows", "batch", "positions")

    def __init__(self, batch: RecordBatch, positions: pa.Int64Array) -> None:
        self.batch = batch
        self.positions = positions
        self._rows: RecordBatch | None = None

    @property
    def num_rows(self) -> int:
        """How many rows are chosen."""
        return len(self.positions)

    @property
    def nbytes(self) -> int:
        """What the rows take in memory when they are gathered, in bytes, if they are as long as others of the batch."""
        return self.batch.nbytes * self.num_rows // self.batch.num_rows

    def rows(self) -> RecordBatch:
        """The rows, gathered at the first call."""
        if self._rows is None:
            self._rows = self.batch.take(self.positions)
        return self._rows

    def with_columns(self, columns: pa.RecordBatch) -> SelectedRows:
        """The same rows with other columns, which have the length of the batch."""
        return SelectedRows(self.batch.with_columns(columns), self.positions)
