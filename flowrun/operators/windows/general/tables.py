"""State tables of the general window operator.

`windows`: key group, key columns, window_start, window_end, and what the trigger remembers as JSON. `rows`: key group, key columns,
window_start, window_end, the position by which rows of a window are in arrival order, then a row of the window. `timers`: see
`window_timers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, keyed_schema
from flowrun.api.window_function import Window
from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.layout import state_key_fields
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.keyed.restored_tables import restored_rows
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.windows.general.contents import OpenWindow, WindowContents, row_schema
from flowrun.operators.windows.general.timer_log import restored_timers, timer_schema
from flowrun.state.key_groups import key_groups_or_zero

WINDOWS = "windows"
ROWS = "rows"
TIMERS = "timers"

_BOUNDS = [pa.field(n, pa.int64(), nullable=False) for n in ("window_start", "window_end")]
POSITION = "position"
"""Column by which the rows of a window are in arrival order."""
_POSITION = pa.field(POSITION, pa.int64(), nullable=False)


def window_schemas(input_schema: Schema, keys: Sequence[int]) -> dict[str, pa.Schema]:
    """Name of each state table → its columns; `keys` are positions of the key columns."""
    rows = row_schema(input_schema)
    key_fields = state_key_fields([input_schema.fields[k] for k in keys], (*rows.names, POSITION))
    return {
        WINDOWS: keyed_schema(key_fields, [*_BOUNDS, pa.field("trigger", pa.string(), nullable=False)]),
        ROWS: keyed_schema(key_fields, [*_BOUNDS, _POSITION, *rows]),
        TIMERS: timer_schema(key_fields),
    }


@record
class WindowsView:
    """The open windows of a subtask at one moment. Immutable: another thread writes them."""

    schemas: dict[str, pa.Schema]
    max_parallelism: int
    windows: Sequence[OpenWindow]
    keys: KeyList
    rows: RowLog

    def tables(self) -> dict[str, pa.Table]:
        """`windows` and `rows`."""
        windows = self.windows
        leading = self._leading()
        states = pa.array([orjson.dumps(w.state).decode() for w in windows], pa.string())
        parts = [part for w in windows for part in w.parts]
        positions = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        lengths = [sum(len(p) for p in w.parts) for w in windows]
        owners = pa.array(np.repeat(np.arange(len(windows)), lengths))
        stored = self.rows.take(positions).columns
        columns = [*(c.take(owners) for c in leading), pa.array(positions), *stored]
        return {
            WINDOWS: pa.Table.from_arrays([*leading, states], schema=self.schemas[WINDOWS]),
            ROWS: pa.Table.from_arrays(columns, schema=self.schemas[ROWS]),
        }

    def _leading(self) -> list[pa.Array]:
        count = len(self.windows)
        keys = self.keys.keys_of(np.fromiter((w.slot for w in self.windows), np.int64, count))
        starts = np.fromiter((w.window.start for w in self.windows), np.int64, count)
        ends = np.fromiter((w.window.end for w in self.windows), np.int64, count)
        groups = key_groups_or_zero(keys, count, self.max_parallelism)
        return [pa.array(groups), *keys, pa.array(starts), pa.array(ends)]


class WindowTables:
    """Reads the tables of one operator."""

    def __init__(
        self, input_schema: Schema, keys: Sequence[int], contents: WindowContents, max_parallelism: int
    ) -> None:
        self._contents = contents
        self._max_parallelism = max_parallelism
        self._keys = len(keys)
        self.schemas = window_schemas(input_schema, keys)

    def view(self, windows: Sequence[OpenWindow], slots: KeySlots) -> WindowsView:
        """The open windows as they are now."""
        return WindowsView(self.schemas, self._max_parallelism, windows, slots.view(), self._contents.view())

    def read(self, snapshot: OperatorSnapshot, slots: KeySlots) -> list[OpenWindow]:
        """The open windows of a snapshot; their rows go to the contents, their keys become known to `slots`.

        Raises:
            StateError: a table has other columns.
        """
        table = self._checked(snapshot, WINDOWS)
        if table is None:
            return []
        bounds = zip(table.column("window_start").to_pylist(), table.column("window_end").to_pylist(), strict=True)
        opened: dict[tuple[int, Window], OpenWindow] = {}
        states = table.column("trigger").to_pylist()
        for slot, bound, state in zip(self._slots(slots, table).tolist(), bounds, states, strict=True):
            window = Window(*bound)
            opened[slot, window] = OpenWindow(slot, window, orjson.loads(state))
        rows = self._checked(snapshot, ROWS)
        if rows is not None:
            self._read_rows(rows, slots, opened)
        return list(opened.values())

    def _read_rows(self, rows: pa.RecordBatch, slots: KeySlots, opened: dict[tuple[int, Window], OpenWindow]) -> None:
        owners = self._slots(slots, rows)
        starts, ends = rows.column("window_start").to_numpy(), rows.column("window_end").to_numpy()
        order = np.argsort(rows.column(POSITION).to_numpy(), kind="stable")  # for windows that merge later, too
        first = rows.schema.get_field_index(POSITION) + 1
        stored = pa.RecordBatch.from_arrays(rows.columns[first:], schema=self._contents.state_schema)
        base = self._contents.append_stored(stored.take(pa.array(order)))
        grouped = np.lexsort((ends[order], starts[order], owners[order]))
        owners, starts, ends = (c[order][grouped] for c in (owners, starts, ends))
        changes = (owners[1:] != owners[:-1]) | (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
        begins = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(owners)]]).tolist()
        for begin, end in pairwise(begins):
            window = Window(int(starts[begin]), int(ends[begin]))
            opened[int(owners[begin]), window].add(base + grouped[begin:end])

    def read_timers(
        self, snapshot: OperatorSnapshot, slots: KeySlots, keys: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[int, tuple[Any, ...], Window], bool]]:
        """((time, key as in `keys`, window), in processing time?) of each timer whose window is open.

        Raises:
            StateError: the table has other columns.
        """
        table = self._checked(snapshot, TIMERS)
        if table is None:
            return
        known = len(keys)
        for slot, (time, window, processing) in zip(
            self._slots(slots, table).tolist(), restored_timers(table), strict=True
        ):
            if slot < known:
                yield (time, keys[slot], window), processing

    def _slots(self, slots: KeySlots, table: pa.RecordBatch) -> Integers:
        return slots.locate(table.columns[1 : 1 + self._keys], table.num_rows).of_rows

    def _checked(self, snapshot: OperatorSnapshot, name: str) -> pa.RecordBatch | None:
        return restored_rows(name, snapshot, self.schemas[name], self._keys, self._max_parallelism)
