"""The rows of the general window operator's windows: stored once, however many windows they are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.window_function import Window
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.windows.general.evictors import WindowRows
from flowrun.operators.windows.general.trigger_contract import Number

_NOTHING = np.zeros(0, np.int64)


@dataclass(slots=True)
class OpenWindow:
    """One key's window.

    Attributes:
        state: what its trigger remembers.
        epoch: number of snapshots that were taken before it was made. One that a snapshot has seen never changes any more: its
            successor is a copy.
    """

    slot: int
    window: Window
    state: dict[str, Number] = field(default_factory=dict)
    epoch: int = 0
    _parts: list[Integers] = field(default_factory=list)
    _is_ordered: bool = True
    """Whether the pieces are in arrival order; if not, their rows are put in order when somebody asks for them."""

    def successor(self, epoch: int) -> OpenWindow:
        """A copy that may change."""
        return OpenWindow(self.slot, self.window, dict(self.state), epoch, list(self._parts), self._is_ordered)

    @property
    def parts(self) -> Sequence[Integers]:
        """Where its rows are, in pieces in any order; unlike `positions` this changes nothing."""
        return self._parts

    @property
    def positions(self) -> Integers:
        """Where its rows are, in arrival order."""
        if len(self._parts) != 1:
            whole = np.concatenate(self._parts) if self._parts else _NOTHING
            self._parts = [whole if self._is_ordered else np.sort(whole)]
            self._is_ordered = True
        return self._parts[0]

    def add(self, positions: Integers) -> None:
        """Rows that arrived after all others."""
        if len(positions):
            self._parts.append(positions)

    def take_over(self, other: OpenWindow) -> None:
        """Have the rows of a window that is given up, too. Costs as much as the smaller of the two has pieces."""
        if self._parts and other._parts:
            self._is_ordered = False
        else:
            self._is_ordered = self._is_ordered and other._is_ordered
        if len(self._parts) < len(other._parts):
            self._parts, other._parts = other._parts, self._parts
        self._parts.extend(other._parts)

    def replace(self, positions: Integers) -> None:
        """Have these rows only."""
        self._parts = [positions]
        self._is_ordered = True


def row_schema(schema: Schema) -> pa.Schema:
    """Columns of stored rows, in the log and in state tables: the row, by which time it was assigned, its event time."""
    columns = [pa.field(f"row.{f.name}", f.type.arrow) for f in schema]
    return pa.schema([*columns, pa.field("time", pa.int64(), nullable=False), pa.field("event_time", pa.int64())])


class WindowContents:
    """A log of rows with their times and event times (NULL on a stream without)."""

    def __init__(self, schema: Schema) -> None:
        self.state_schema = row_schema(schema)
        self._columns = len(schema)
        self._schema = schema
        self._log = RowLog()
        self._log.append(pa.RecordBatch.from_pylist([], schema=self.state_schema))

    def __len__(self) -> int:
        return len(self._log)

    def view(self) -> RowLog:
        """The rows, with the columns of the state, as they are now."""
        return self._log.view()

    def append(self, batch: RecordBatch, times: Integers) -> int:
        """Add rows; gives the position of the first."""
        stamps = batch.timestamps if batch.timestamps is not None else pa.nulls(batch.num_rows, pa.int64())
        columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns.columns]
        return self.append_stored(
            pa.RecordBatch.from_arrays([*columns, pa.array(times), stamps], schema=self.state_schema)
        )

    def append_stored(self, rows: pa.RecordBatch) -> int:
        """Add rows that have the columns of the state."""
        return self._log.append(rows)

    def rows(self, positions: Integers) -> RecordBatch:
        """Rows as they came."""
        stored = self._log.take(positions)
        columns = pa.RecordBatch.from_arrays(stored.columns[: self._columns], schema=self._schema.arrow)
        return RecordBatch(columns, stored.column(self._columns + 1))

    def evictable(self, positions: Integers, column: int | None) -> WindowRows:
        """What an evictor looks at."""
        stored = self._log.take(positions)
        values = None if column is None else as_floats(stored.column(column))
        return WindowRows(stored.column(self._columns).to_numpy(), values)

    def timed_rows(self, positions: Integers) -> tuple[pa.RecordBatch, pa.Array]:
        """Rows as they came, and the times by which they were assigned."""
        stored = self._log.take(positions)
        columns = pa.RecordBatch.from_arrays(stored.columns[: self._columns], schema=self._schema.arrow)
        return columns, stored.column(self._columns)

    def keep_rows(self, positions: Integers) -> None:
        """Keep only these rows, which get the positions 0, 1, …"""
        self._log.keep(positions)

    def keep(self, windows: Sequence[OpenWindow]) -> None:
        """Forget rows that are in no window."""
        used = np.zeros(len(self._log), np.bool_)
        for window in windows:
            used[window.positions] = True
        kept = np.flatnonzero(used)
        moved = np.cumsum(used) - 1
        self._log.keep(kept)
        for window in windows:
            window.replace(moved[window.positions])


def as_floats(column: pa.Array) -> npt.NDArray[np.float64]:
    """Numbers as floats, NULL as NaN."""
    values: npt.NDArray[np.float64] = pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy()
    return values
