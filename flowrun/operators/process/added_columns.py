"""Columns that a process table function does not send itself: those of the row or key before its own, and the event time behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flowrun.core.schema import Schema


class AddedColumns:
    """Puts columns around those that a function sends.

    Args:
        schema: all columns that leave the operator.
        leading: how many of them come from the row, or from the key of the timer, that a row was made of.
        rowtime: whether the last one is the row's event time.
    """

    def __init__(self, schema: Schema, leading: int, rowtime: bool) -> None:
        self._schema = schema.arrow
        self._leading = schema.types[:leading]
        self._rowtime = schema.types[-1].arrow if rowtime else None
        self._given: Sequence[pa.Array] = ()

    def begin(self, given: Sequence[pa.Array]) -> None:
        """What is sent from now on is made of rows (or timers) with these leading columns."""
        self._given = given

    def of_keys(self, keys: Sequence[Sequence[Any]]) -> list[pa.Array]:
        """Leading columns of rows that timers sent, from the values of the timers' keys."""
        return [pa.array([key[i] for key in keys], type.arrow) for i, type in enumerate(self._leading)]

    def around(
        self,
        sent: pa.RecordBatch,
        parents: pa.Array | None,
        times: pa.Array | None,
        leading: Sequence[pa.Array] | None = None,
    ) -> pa.RecordBatch:
        """The rows with all columns.

        Args:
            sent: the function's own columns, n rows.
            parents: positions of what each row is made of; None: row i is made of row i.
            times: event times in ms, n; must be there if the event time is a column.
            leading: the leading columns of the n rows; None: those that `begin` was given, by `parents`.
        """
        if leading is None:
            leading = self._given if parents is None else [column.take(parents) for column in self._given]
        columns = [*leading, *sent.columns]
        if self._rowtime is not None:
            assert times is not None
            columns.append(times.cast(pa.timestamp("ms")).cast(self._rowtime))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
