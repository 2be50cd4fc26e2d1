"""The rows that compiled expressions see: a batch, or the rows of it that reached a branch, with columns and shared results made lazily."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from flowrun.functions.contract import Datum

Indices = np.ndarray[tuple[int], np.dtype[np.int64]]
Evaluate = Callable[["EvaluatedRows"], Datum]


class EvaluatedRows:
    """Some rows of a batch while expressions are evaluated over them; used by one thread, thrown away after the batch.

    Attributes:
        rows: number of rows here.
    """

    __slots__ = ("_batch", "_columns", "_indices", "_parent", "_shared", "rows")

    def __init__(
        self,
        batch: pa.RecordBatch | None,
        rows: int,
        parent: EvaluatedRows | None = None,
        indices: Indices | None = None,
    ):
        self.rows = rows
        self._batch = batch
        self._parent = parent
        self._indices = indices
        self._columns: dict[int, pa.Array] = {}
        self._shared: dict[int, Datum] = {}

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> EvaluatedRows:
        """All rows of a batch."""
        return cls(batch, batch.num_rows)

    def select(self, indices: Indices) -> EvaluatedRows:
        """The rows at these positions (ascending)."""
        return EvaluatedRows(None, len(indices), self, indices)

    def column(self, index: int) -> pa.Array:
        """A column of the batch, for the rows here."""
        if self._batch is not None:
            return self._batch.column(index)
        found = self._columns.get(index)
        if found is None:
            assert self._parent is not None
            found = self._columns[index] = self._parent.column(index).take(pa.array(self._indices))
        return found

    def shared(self, slot: int, evaluate: Evaluate) -> Datum:
        """The value of a sub-expression that occurs several times: evaluated once, or taken from the rows around these."""
        found = self._known(slot)
        if found is None:
            found = self._shared[slot] = evaluate(self)
        return found

    def _known(self, slot: int) -> Datum | None:
        found = self._shared.get(slot)
        if found is None and self._parent is not None:
            outer = self._parent._known(slot)
            if outer is not None:
                inner = outer if isinstance(outer, pa.Scalar) else outer.take(pa.array(self._indices))
                found = self._shared[slot] = inner
        return found

    @property
    def batch(self) -> pa.RecordBatch:
        """The batch that the rows here are of."""
        if self._batch is not None:
            return self._batch
        assert self._parent is not None
        return self._parent.batch

    def origin(self, row: int) -> int:
        """The position in the batch of a row here."""
        if self._parent is None:
            return row
        assert self._indices is not None
        return self._parent.origin(int(self._indices[row]))


def to_array(datum: Datum, rows: int) -> pa.Array:
    """The value as a column; a constant is repeated."""
    if isinstance(datum, pa.Scalar):
        return pa.repeat(datum, rows) if datum.is_valid else pa.nulls(rows, datum.type)
    return datum
