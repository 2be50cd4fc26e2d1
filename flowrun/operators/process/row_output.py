"""Rows that a function on rows sends: collected as dicts, checked, and sent as batches.

Watermarks between the rows of an input batch are held back, so that rows leave in batches; but a row that is late by one of them is
sent behind it. What is late does so not depend on how many rows a batch has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.annotated_values import fields_of, is_record
from flowrun.api.operator import Output, OutputTag
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.errors import DataError, did_you_mean
from flowrun.operators.conformance import check_row, rows_to_columns
from flowrun.operators.process.added_columns import AddedColumns

_MAX_ROWS = 64 * 1024
_NEVER = -(2**63)


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
        self.held_back = 0
        """How many watermarks that are held back stand before the next row."""
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Mapping[str, Any]] = []
        self._times: list[int | None] = []
        self._sources: list[int | None] = []
        self._kinds: list[int] = []
        self._keys: list[tuple[Any, ...]] = []
        self._behind: list[int] = []
        """How many watermarks that are held back stand before each row; empty while none stands before any."""

    def add(self, row: Any, time: int | None, source: int | None, kind: int | None) -> bool:
        """Collect a row; whether there are so many now that they should be sent.

        Raises:
            DataError: it is no mapping with the declared columns.
        """
        if type(row) is not dict and not isinstance(row, Mapping):
            row = self._record(row, source)
        if row.keys() != self._names:
            check_row(row, self._schema, self._place, source)
        self._rows.append(row)
        self._times.append(time)
        self._sources.append(source)
        if self.held_back or self._behind:
            if not self._behind:
                self._behind = [0] * (len(self._rows) - 1)
            self._behind.append(self.held_back)
        if kind is not None:
            self._kinds.append(kind)
        if source is None and self._added is not None:
            self._keys.append(self.key)
        return len(self._rows) >= _MAX_ROWS

    def _record(self, row: Any, source: int | None) -> Mapping[str, Any]:
        found = fields_of(row, tuple(self._schema.names)) if is_record(row) else None
        if found is None:
            kind_text = "nothing (None)" if row is None else type(row).__name__
            raise DataError(
                f"{self._place} must give rows as dicts, dataclasses or NamedTuples, got {kind_text}", row=source
            )
        return found

    def discard(self, source: int) -> None:
        """Forget what the row at this position of the batch gave."""
        kept = [i for i, given in enumerate(self._sources) if given != source]
        self._rows = [self._rows[i] for i in kept]
        self._times = [self._times[i] for i in kept]
        if self._kinds:
            self._kinds = [self._kinds[i] for i in kept]
        self._sources = [self._sources[i] for i in kept]
        if self._behind:
            self._behind = [self._behind[i] for i in kept]

    def late_by(self, held_back: list[int]) -> set[int]:
        """Numbers of the watermarks (how many there are up to it) that must be sent first, as a row behind them is late by them."""
        if not self._behind or self._behind[-1] == 0 or self._times[0] is None:
            return set()
        behind = np.array(self._behind)
        bounds = np.array([_NEVER, *held_back])
        late: Integers = behind[(np.array(self._times) <= bounds[behind]) & (behind > 0)]
        return set(late.tolist())

    def build(self) -> tuple[RecordBatch, list[int]] | None:
        """What was collected, and how many watermarks stand before each row; None: nothing. If it raises, all of it is still there.

        Raises:
            DataError: a value does not fit its column.
        """
        if not self._rows:
            return None
        rows, times, sources, kinds, keys = self._rows, self._times, self._sources, self._kinds, self._keys
        try:
            columns = rows_to_columns(rows, self._schema, self._place)
        except DataError as error:
            error.row = None if error.row is None else sources[error.row]
            raise
        event_times = None if times[0] is None else pa.array(times, pa.int64())
        if self._added is not None:
            leading = self._added.of_keys(keys) if keys else None
            columns = self._added.around(columns, None if keys else pa.array(sources), event_times, leading)
        behind = self._behind or [0] * len(rows)
        return RecordBatch(columns, event_times, pa.array(kinds, pa.int8()) if kinds else None), behind

    def flush(self) -> None:
        """Send what was collected. If it raises, all of it is still there.

        Raises:
            DataError: a value does not fit its column.
        """
        built = self.build()
        if built is not None:
            self.clear()
            self.send(built[0])

    def clear(self) -> None:
        """Forget what was collected."""
        if self._rows:
            self._clear()

    def send(self, batch: RecordBatch) -> None:
        """Send rows."""
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

    __slots__ = ("_all", "_forward", "_held_back", "_holds", "_main", "_place", "_sides", "kind", "row", "time")

    def __init__(
        self,
        output: Output,
        schema: Schema,
        sides: Mapping[str, Schema],
        place: str,
        added: AddedColumns | None = None,
        forward: Callable[[int], None] | None = None,
    ) -> None:
        self._main = RowOutput(output, schema, place, added=added)
        self._sides = {
            name: RowOutput(output, s, f"{place}, side output '{name}'", OutputTag(name, s))
            for name, s in sides.items()
        }
        self._all = (self._main, *self._sides.values())
        self._place = place
        self._forward = forward
        self._held_back: list[int] = []
        self._holds = False
        self.time: int | None = None
        self.row: int | None = None
        self.kind: int | None = None

    def of_timer(self, key: tuple[Any, ...]) -> None:
        """What is sent from now on comes from a timer of that key."""
        self.row = self.kind = None
        self._main.key = key

    def returned(self, value: Any) -> None:
        """Collect what the function returned: a row, or an iterable of rows; a generator runs here."""
        if type(value) is dict or isinstance(value, Mapping) or is_record(value):
            if self._main.add(value, self.time, self.row, self.kind):
                self._flush_full()
        elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            for row in value:
                if self._main.add(row, self.time, self.row, self.kind):
                    self._flush_full()
        else:
            raise DataError(
                f"{self._place} must return nothing, a row (a dict) or an iterable of rows, got {type(value).__name__}",
                row=self.row,
            )

    def collect(self, row: Mapping[str, Any], timestamp: int | None) -> None:
        """Collect a row of the main output."""
        time = self.time if timestamp is None else self._checked(timestamp)
        if self._main.add(row, time, self.row, self.kind):
            self._flush_full()

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
        time = self.time if timestamp is None else self._checked(timestamp)
        if output.add(row, time, self.row, self.kind):
            self._flush_full()

    def _checked(self, timestamp: int) -> int:
        if self.time is None:
            raise DataError(
                f"{self._place} gave a row the event time {timestamp}, but the stream has no event time",
                row=self.row,
                hint="give the source a watermark, or leave the timestamp out",
            )
        return timestamp

    def _flush_full(self) -> None:
        if not self._holds:
            self.flush()

    def hold(self) -> None:
        """Send only what `flush` is called for, however much it is: until then it can be discarded."""
        self._holds = True

    def discard(self, row: int) -> None:
        """Forget what the row at this position of the batch gave, so far as it was not sent."""
        for output in self._all:
            output.discard(row)

    # ---- watermarks between the rows

    def hold_back(self, watermark: int) -> None:
        """A watermark stands here, but need not be sent before a row is late by it."""
        self._held_back.append(watermark)
        self._count_held_back()

    def forget_held_back(self) -> None:
        """A later watermark was sent, behind all rows."""
        if self._held_back:
            self._held_back.clear()
            self._count_held_back()

    def _count_held_back(self) -> None:
        for output in self._all:
            output.held_back = len(self._held_back)

    def flush(self) -> None:
        """Send everything, and those watermarks that were held back of which rows behind them are late."""
        built = [(output, found) for output in self._all if (found := output.build()) is not None]
        late = sorted(set().union(*(output.late_by(self._held_back) for output, _ in built))) if self._held_back else []
        for output, _ in built:
            output.clear()
        sent = [0] * len(built)
        for number in late:
            for i, (output, (batch, behind)) in enumerate(built):
                sent[i] = _send_up_to(output, batch, sent[i], bisect_left(behind, number))
            assert self._forward is not None
            self._forward(self._held_back[number - 1])
        for start, (output, (batch, _)) in zip(sent, built, strict=True):
            _send_up_to(output, batch, start, batch.num_rows)
        if self._held_back:
            del self._held_back[:-1]
            if late and late[-1] == self._main.held_back:
                self._held_back.clear()
            self._count_held_back()


def _send_up_to(output: RowOutput, batch: RecordBatch, start: int, stop: int) -> int:
    if stop > start:
        output.send(batch if stop - start == batch.num_rows else batch.slice(start, stop - start))
    return max(start, stop)
