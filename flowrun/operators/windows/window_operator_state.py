"""State tables of the general window operator.

`windows`: key group, key columns, window_start, window_end, and what the trigger remembers as JSON. `rows`: key group, key columns,
window_start, window_end, then a row of the window, in arrival order within it. `timers`: see `InternalTimerService`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot
from flowrun.errors import StateError
from flowrun.operators.timers import DOMAIN_COLUMN, NAMESPACE_COLUMN, TIMESTAMP_COLUMN, TimeDomain
from flowrun.operators.windows.keyed_rows import Integers, KeySlots
from flowrun.operators.windows.trigger_contract import Window
from flowrun.operators.windows.window_contents import OpenWindow, WindowContents
from flowrun.state.key_groups import key_groups_or_zero

WINDOWS = "windows"
ROWS = "rows"
TIMERS = "timers"

_BOUNDS = [pa.field("window_start", pa.int64()), pa.field("window_end", pa.int64())]


class WindowTables:
    """Writes and reads the tables of one operator."""

    def __init__(self, key_schema: pa.Schema, contents: WindowContents, max_parallelism: int) -> None:
        self._contents = contents
        self._max_parallelism = max_parallelism
        self._keys = len(key_schema)
        leading = [pa.field(KEY_GROUP_COLUMN, pa.int32()), *key_schema, *_BOUNDS]
        self._windows = pa.schema([*leading, pa.field("trigger", pa.string())])
        self._rows = pa.schema([*leading, *contents.state_schema])

    def write(self, windows: Sequence[OpenWindow], slots: KeySlots) -> dict[str, pa.Table]:
        """The tables of the open windows."""
        if not windows:
            return {}
        leading = self._leading(windows, slots)
        states = pa.array([orjson.dumps(w.state).decode() for w in windows], pa.string())
        tables = {WINDOWS: pa.Table.from_arrays([*leading, states], schema=self._windows)}
        positions = np.concatenate([w.positions for w in windows])
        if len(positions):
            owners = pa.array(np.repeat(np.arange(len(windows)), [len(w.positions) for w in windows]))
            stored = self._contents.stored(positions).columns
            tables[ROWS] = pa.Table.from_arrays([*(c.take(owners) for c in leading), *stored], schema=self._rows)
        return tables

    def _leading(self, windows: Sequence[OpenWindow], slots: KeySlots) -> list[pa.Array]:
        keys = slots.keys_of(np.array([w.slot for w in windows]))
        groups = key_groups_or_zero(keys, len(windows), self._max_parallelism)
        starts = pa.array([w.window.start for w in windows], pa.int64())
        return [pa.array(groups), *keys, starts, pa.array([w.window.end for w in windows], pa.int64())]

    def read(self, snapshot: OperatorSnapshot, slots: KeySlots) -> list[OpenWindow]:
        """The open windows of a snapshot; their rows go to the contents, their keys become known to `slots`.

        Raises:
            StateError: a table has other columns.
        """
        table = self._checked(snapshot, WINDOWS, self._windows)
        if table is None:
            return []
        bounds = zip(table.column("window_start").to_pylist(), table.column("window_end").to_pylist(), strict=True)
        opened: dict[tuple[int, Window], OpenWindow] = {}
        states = table.column("trigger").to_pylist()
        for slot, bound, state in zip(self._slots(slots, table).tolist(), bounds, states, strict=True):
            window = Window(*bound)
            opened[slot, window] = OpenWindow(slot, window, orjson.loads(state))
        rows = self._checked(snapshot, ROWS, self._rows)
        if rows is not None:
            self._read_rows(rows, slots, opened)
        return list(opened.values())

    def _read_rows(self, rows: pa.RecordBatch, slots: KeySlots, opened: dict[tuple[int, Window], OpenWindow]) -> None:
        columns = rows.columns[1 + self._keys + len(_BOUNDS) :]
        base = self._contents.append_stored(pa.RecordBatch.from_arrays(columns, schema=self._contents.state_schema))
        owners = self._slots(slots, rows)
        starts, ends = rows.column("window_start").to_numpy(), rows.column("window_end").to_numpy()
        changes = (owners[1:] != owners[:-1]) | (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
        begins = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(owners)]]).tolist()
        for begin, end in pairwise(begins):
            window = Window(int(starts[begin]), int(ends[begin]))
            opened[int(owners[begin]), window].add(base + np.arange(begin, end))

    def read_timers(
        self, snapshot: OperatorSnapshot, schema: pa.Schema, slots: KeySlots, keys: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[int, tuple[Any, ...], Window], bool]]:
        """((time, key as in `keys`, window), in processing time?) of each timer whose window is open.

        Raises:
            StateError: the table has other columns.
        """
        table = self._checked(snapshot, TIMERS, schema)
        if table is None:
            return
        known = len(keys)
        windows = [Window(*n.values()) for n in table.column(NAMESPACE_COLUMN).to_pylist()]
        domains = table.column(DOMAIN_COLUMN).to_pylist()
        times = table.column(TIMESTAMP_COLUMN).to_pylist()
        for slot, window, time, domain in zip(self._slots(slots, table).tolist(), windows, times, domains, strict=True):
            if slot < known:
                yield (time, keys[slot], window), domain == TimeDomain.PROCESSING_TIME.value

    def _slots(self, slots: KeySlots, table: pa.RecordBatch) -> Integers:
        located = slots.locate(table.columns[1 : 1 + self._keys], table.num_rows)
        found: Integers = located.slots[located.local]
        return found

    def _checked(self, snapshot: OperatorSnapshot, name: str, schema: pa.Schema) -> pa.RecordBatch | None:
        table = snapshot.keyed.get(name)
        if table is None:
            return None
        if not table.schema.equals(schema):
            raise StateError(
                f"state table '{name}' of a window has columns {_text(table.schema)}; expected {_text(schema)}",
                hint="the input or the keys changed since the snapshot; give the step another uid to start it empty",
            )
        return table.combine_chunks().to_batches()[0] if table.num_rows else None


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
