"""Rows that a function on batches sends: conformed to the output's columns, with the event times of their parents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.keyed_state import Values
from flowrun.api.operator import Output, OutputTag
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.errors import DataError, did_you_mean
from flowrun.operators.conformance import as_record_batch, conform
from flowrun.operators.process.added_columns import AddedColumns
from flowrun.operators.process.current import as_column


class BatchOutputs:
    """The main and the side outputs of one operator.

    Attributes:
        source: the rows (or timers) that what is sent comes from: their event times and change kinds count.
    """

    def __init__(
        self, output: Output, schema: Schema, sides: Mapping[str, Schema], place: str, added: AddedColumns | None = None
    ) -> None:
        self._output = output
        self._schema = schema
        self._sides = {name: OutputTag(name, s) for name, s in sides.items()}
        self._place = place
        self._added = added
        self._rows = 0
        self._times: pa.Array | None = None
        self._kinds: pa.Array | None = None

    def begin(self, rows: int, times: pa.Array | None, kinds: pa.Array | None) -> None:
        """What is sent from now on comes from so many rows or timers."""
        self._rows, self._times, self._kinds = rows, times, kinds

    def returned(self, value: Any) -> None:
        """Send what the function returned: rows, or (rows, parents)."""
        parents = None
        if isinstance(value, tuple) and len(value) == 2:
            value, parents = value
        self.collect(value, parents, None)

    def collect(self, rows: Any, parents: Values | None, timestamps: Values | None) -> None:
        """Send rows to the main output."""
        batch = self._batch(rows, self._schema, self._place, parents, timestamps)
        if batch.num_rows and self._added is not None:
            positions = self._positions(parents, batch.num_rows)
            columns = self._added.around(batch.columns, positions, batch.timestamps)
            batch = RecordBatch(columns, batch.timestamps, batch.row_kinds)
        if batch.num_rows:
            self._output.emit(batch)

    def _positions(self, parents: Values | None, rows: int) -> pa.Array | None:
        """Of what the rows are made of; None: row i of row i."""
        if parents is not None:
            return self._parents(parents, rows, self._place)
        if rows != self._rows:
            raise DataError(
                f"{self._place} got {self._rows} rows and sent {rows} without saying which rows they came from",
                hint="give parents: for each row the position of the row it is made of, e.g. context.last_rows",
            )
        return None

    def side(self, name: str, rows: Any, parents: Values | None, timestamps: Values | None) -> None:
        """Send rows to a side output.

        Raises:
            DataError: there is none of this name.
        """
        tag = self._sides.get(name)
        if tag is None:
            raise DataError(
                f"{self._place} has no side output '{name}'",
                hint=did_you_mean(name, self._sides) or "declare it in side_outputs",
            )
        batch = self._batch(rows, tag.schema, f"{self._place}, side output '{name}'", parents, timestamps)
        if batch.num_rows:
            self._output.emit_side(tag, batch)

    def _batch(
        self, rows: Any, schema: Schema, place: str, parents: Values | None, timestamps: Values | None
    ) -> RecordBatch:
        columns = conform(as_record_batch(rows, place), schema, place)
        if timestamps is not None:
            if self._times is None:
                raise DataError(
                    f"{place}: rows were given event times, but the stream has none",
                    hint="give the source a watermark, or leave the timestamps out",
                )
            times = as_column(timestamps, BIGINT, f"{place}: timestamps", columns.num_rows)
            if times.null_count:
                raise DataError(f"{place}: an event time is NULL", hint="give every row one")
            return RecordBatch(columns, times)
        if self._times is None and self._kinds is None:
            return RecordBatch(columns)
        if parents is None:
            if columns.num_rows == self._rows:
                return RecordBatch(columns, self._times, self._kinds)
            if columns.num_rows == 0:
                return RecordBatch(columns)
            raise DataError(
                f"{place} got {self._rows} rows and sent {columns.num_rows} without saying which rows they came from",
                hint="give parents: for each row the position of the row it is made of, e.g. context.last_rows",
            )
        positions = self._parents(parents, columns.num_rows, place)
        return RecordBatch(
            columns,
            None if self._times is None else self._times.take(positions),
            None if self._kinds is None else self._kinds.take(positions),
        )

    def _parents(self, parents: Values, rows: int, place: str) -> pa.Array:
        positions = as_column(parents, BIGINT, f"{place}: parents", rows)
        values = positions.to_numpy(zero_copy_only=False)
        if rows and (positions.null_count or values.min() < 0 or values.max() >= self._rows):
            raise DataError(
                f"{place}: parents must be positions from 0 to {self._rows - 1}",
                hint="they are those of the rows of the batch, or of the timers",
            )
        return pa.array(values.astype(np.int64, copy=False))
