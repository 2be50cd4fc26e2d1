"""Rows that a function on rows sends: collected as dicts, checked, and sent as batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from flowrun.api.operator import Output, OutputTag
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.errors import DataError, did_you_mean
from flowrun.operators.conformance import check_row, rows_to_columns
from flowrun.operators.process.added_columns import AddedColumns

_MAX_ROWS = 64 * 1024


class RowOutput:
    """One output of one operator."""

    def __init__(
        self,
        output: Output,
        schema: Schema,
        place: str,
        tag: OutputTag | None = None,
        added: AddedColumns | None = None,
    ) -> None:
        self._output = output
        self._schema = schema
        self._names = frozenset(schema.names)
        self._place = place
        self._tag = tag
        self._added = added
        self.key: tuple[Any, ...] = ()
        self.holds = False
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Mapping[str, Any]] = []
        self._times: list[int | None] = []
        self._sources: list[int | None] = []
        self._kinds: list[int] = []
        self._keys: list[tuple[Any, ...]] = []

    def add(self, row: Any, time: int | None, source: int | None, kind: int | None) -> None:
        """Collect a row.

        Raises:
            DataError: it is no mapping with the declared columns.
        """
        if type(row) is not dict and not isinstance(row, Mapping):
            kind_text = "nothing (None)" if row is None else type(row).__name__
            raise DataError(f"{self._place} must give rows as dicts, got {kind_text}", row=source)
        if row.keys() != self._names:
            check_row(row, self._schema, self._place, source)
        self._rows.append(row)
        self._times.append(time)
        self._sources.append(source)
        if kind is not None:
            self._kinds.append(kind)
        if source is None and self._added is not None:
            self._keys.append(self.key)
        if len(self._rows) >= _MAX_ROWS and not self.holds:
            self.flush()

    def discard(self, source: int) -> None:
        """Forget what the row at this position of the batch gave."""
        kept = [i for i, given in enumerate(self._sources) if given != source]
        self._rows = [self._rows[i] for i in kept]
        self._times = [self._times[i] for i in kept]
        if self._kinds:
            self._kinds = [self._kinds[i] for i in kept]
        self._sources = [self._sources[i] for i in kept]

    def flush(self) -> None:
        """Send what was collected. If it raises, all of it is still there.

        Raises:
            DataError: a value does not fit its column.
        """
        if not self._rows:
            return
        rows, times, sources, kinds, keys = self._rows, self._times, self._sources, self._kinds, self._keys
        try:
            columns = rows_to_columns(rows, self._schema, self._place)
        except DataError as error:
            error.row = None if error.row is None else sources[error.row]
            raise
        self._clear()
        event_times = None if times[0] is None else pa.array(times, pa.int64())
        if self._added is not None:
            leading = self._added.of_keys(keys) if keys else None
            columns = self._added.around(columns, None if keys else pa.array(sources), event_times, leading)
        batch = RecordBatch(columns, event_times, pa.array(kinds, pa.int8()) if kinds else None)
        if self._tag is None:
            self._output.emit(batch)
        else:
            self._output.emit_side(self._tag, batch)


class RowOutputs:
    """The main and the side outputs of one operator.

    Attributes:
        time: event time of the current row or timer, ms; None without event time.
        row: position of the current row in its batch; None while a timer fires.
        kind: change kind of the current row; None on streams of inserts.
    """

    __slots__ = ("_main", "_place", "_sides", "kind", "row", "time")

    def __init__(
        self, output: Output, schema: Schema, sides: Mapping[str, Schema], place: str, added: AddedColumns | None = None
    ) -> None:
        self._main = RowOutput(output, schema, place, added=added)
        self._sides = {
            name: RowOutput(output, s, f"{place}, side output '{name}'", OutputTag(name, s))
            for name, s in sides.items()
        }
        self._place = place
        self.time: int | None = None
        self.row: int | None = None
        self.kind: int | None = None

    def of_timer(self, key: tuple[Any, ...]) -> None:
        """What is sent from now on comes from a timer of that key."""
        self.row = self.kind = None
        self._main.key = key

    def returned(self, value: Any) -> None:
        """Collect what the function returned: a row, or an iterable of rows; a generator runs here."""
        if type(value) is dict or isinstance(value, Mapping):
            self._main.add(value, self.time, self.row, self.kind)
        elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            for row in value:
                self._main.add(row, self.time, self.row, self.kind)
        else:
            raise DataError(
                f"{self._place} must return nothing, a row (a dict) or an iterable of rows, got {type(value).__name__}",
                row=self.row,
            )

    def collect(self, row: Mapping[str, Any], timestamp: int | None) -> None:
        """Collect a row of the main output."""
        self._main.add(row, self._time(timestamp), self.row, self.kind)

    def side(self, name: str, row: Mapping[str, Any], timestamp: int | None) -> None:
        """Collect a row of a side output.

        Raises:
            DataError: there is none of this name.
        """
        output = self._sides.get(name)
        if output is None:
            raise DataError(
                f"{self._place} has no side output '{name}'",
                row=self.row,
                hint=did_you_mean(name, self._sides) or "declare it in side_outputs",
            )
        output.add(row, self._time(timestamp), self.row, self.kind)

    def _time(self, timestamp: int | None) -> int | None:
        if timestamp is None:
            return self.time
        if self.time is None:
            raise DataError(
                f"{self._place} gave a row the event time {timestamp}, but the stream has no event time",
                row=self.row,
                hint="give the source a watermark, or leave the timestamp out",
            )
        return timestamp

    def hold(self) -> None:
        """Send only what `flush` is called for, however much it is: until then it can be discarded."""
        for output in (self._main, *self._sides.values()):
            output.holds = True

    def discard(self, row: int) -> None:
        """Forget what the row at this position of the batch gave, so far as it was not sent."""
        self._main.discard(row)
        for output in self._sides.values():
            output.discard(row)

    def flush(self) -> None:
        """Send everything."""
        self._main.flush()
        for output in self._sides.values():
            output.flush()
