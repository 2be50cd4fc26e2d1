"""Numbers for keys: each key that has state gets a small integer, so that state can live in arrays.

An open-addressing hash table in NumPy arrays, probed for all distinct keys of a batch at once: linear probing at a load of at most
one half needs a few passes over ever fewer keys. A match of the 64-bit hash is verified against the key itself. About 0.1 µs a
distinct key with a million keys in the table, against 1 µs for a Python dict of that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, UInt64s
from flowrun.core.record import record
from flowrun.operators.aggregation.dense import Slots
from flowrun.operators.aggregation.grouping import numbered_groups
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.state_arrays import resized, room_for
from flowrun.state.key_groups import hash_columns

_EMPTY = -1
_DELETED = -2
_MIN_CELLS = 1024
_MIN_DEAD = 4096


class KeyIndex:
    """Maps encoded key columns to numbers and back. `types` are the Arrow types of the encoded columns."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._cells: Slots = np.full(_MIN_CELLS, _EMPTY, np.int64)
        self._used_cells = 0
        self._hashes: UInt64s = np.zeros(0, np.uint64)
        self._cell_of: Slots = np.zeros(0, np.int64)
        self._row_of: Slots = np.zeros(0, np.int64)
        self._free: Slots = np.zeros(0, np.int64)
        self._keys = _KeyLog(types)
        self._live = 0

    def __len__(self) -> int:
        return self._live

    @property
    def capacity(self) -> int:
        """One more than the highest number that may have been given."""
        return len(self._hashes)

    def number(self, columns: Sequence[pa.Array], rows: int) -> tuple[Slots, Slots]:
        """(position of each row's key among the distinct keys of these rows, number of each distinct key)."""
        positions, _, first = numbered_groups(columns, rows)
        keys = [c.take(first) for c in columns]
        hashes = hash_columns(keys)
        numbers = self._find(hashes, keys)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            taken = pa.array(new)
            numbers[new] = self._add(hashes[new], [k.take(taken) for k in keys])
        return positions, numbers

    def columns(self, numbers: Slots) -> list[pa.Array]:
        """The encoded key columns of numbers."""
        return self._keys.take(self._row_of[numbers])

    def view(self) -> KeyView:
        """The keys as they are now."""
        return KeyView(self._keys.view(), self._row_of.copy())

    def forget(self, numbers: Slots) -> None:
        """These keys have no state any more; their numbers may be given again."""
        self._cells[self._cell_of[numbers]] = _DELETED
        self._cell_of[numbers] = _EMPTY
        self._free = np.concatenate([self._free, numbers])
        self._live -= len(numbers)
        if self._keys.rows - self._live > self._live + _MIN_DEAD:
            live = np.flatnonzero(self._cell_of >= 0)
            self._keys.keep(self._row_of[live])
            self._row_of[live] = np.arange(len(live))

    def _find(self, hashes: UInt64s, keys: list[pa.Array]) -> Slots:
        """The number of each key, −1 for unknown ones."""
        numbers = np.full(len(hashes), _EMPTY, np.int64)
        open_ = np.arange(len(hashes))
        cells = (hashes & np.uint64(len(self._cells) - 1)).astype(np.int64)
        while len(open_):  # once, unless different keys have one hash
            cells = self._search(hashes[open_], cells)
            found = self._cells[cells]
            held = np.flatnonzero(found >= 0)
            open_, cells, found = open_[held], cells[held], found[held]
            same = self._are(found, keys, open_)
            numbers[open_[same]] = found[same]
            open_, cells = open_[~same], (cells[~same] + 1) & (len(self._cells) - 1)
        return numbers

    def _search(self, hashes: UInt64s, cells: Slots) -> Slots:
        """From some cells on the first that has a number with the hash, or none and never had."""
        searching, at = np.arange(len(hashes)), cells.copy()
        while len(searching):
            found = self._cells[at[searching]]
            going = found != _EMPTY
            held = np.flatnonzero(found >= 0)
            going[held] = self._hashes[found[held]] != hashes[searching[held]]
            searching = searching[going]
            at[searching] = (at[searching] + 1) & (len(self._cells) - 1)
        return at

    def _are(self, numbers: Slots, keys: list[pa.Array], positions: Slots) -> Bools:
        """Whether numbers are those of the keys at some positions."""
        if not len(numbers):
            return np.zeros(0, np.bool_)
        every = len(positions) == len(keys[0])
        given = keys if every else [k.take(pa.array(positions)) for k in keys]
        return rows_equal(self._keys.take(self._row_of[numbers]), given, len(numbers))

    def _add(self, hashes: UInt64s, keys: list[pa.Array]) -> Slots:
        count = len(hashes)
        if 2 * (self._used_cells + count) > len(self._cells):
            self._rebuild(self._live + count)
        if len(self._free) < count:
            size = self.capacity
            room = room_for(size + count - len(self._free), size, self._hashes.itemsize)
            self._free = np.concatenate([self._free, np.arange(size, room)])
            self._hashes = resized(self._hashes, room)
            self._cell_of, self._row_of = resized(self._cell_of, room, _EMPTY), resized(self._row_of, room, _EMPTY)
        numbers, self._free = self._free[:count], self._free[count:]
        self._hashes[numbers] = hashes
        self._row_of[numbers] = np.arange(self._keys.rows, self._keys.rows + count)
        self._keys.append(keys)
        self._place(numbers)
        self._live += count
        return numbers

    def _place(self, numbers: Slots) -> None:
        """Enter numbers into free cells; of several that want one cell, one gets it and the others go on."""
        mask = len(self._cells) - 1
        cells = (self._hashes[numbers] & np.uint64(mask)).astype(np.int64)
        self._used_cells += len(numbers)
        while len(numbers):
            free = self._cells[cells] < 0
            self._cells[cells[free]] = numbers[free]
            placed = self._cells[cells] == numbers
            self._cell_of[numbers[placed]] = cells[placed]
            numbers, cells = numbers[~placed], (cells[~placed] + 1) & mask

    def _rebuild(self, expected: int) -> None:
        """Enter the live numbers into a table of a fitting size without deleted cells."""
        size = _MIN_CELLS
        while size < 4 * expected:
            size *= 2
        live = np.flatnonzero(self._cell_of >= 0)
        self._cells = np.full(size, _EMPTY, np.int64)
        self._used_cells = 0
        self._place(live)


class _KeyLog:
    """Key columns in order of arrival: a big part, and a tail that joins it when it has grown to half of it."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._base = [pa.array([], t) for t in types]
        self._tail: list[list[pa.Array]] = []
        self._tail_rows = 0

    @property
    def rows(self) -> int:
        """Keys in the log, forgotten ones included."""
        return len(self._base[0]) + self._tail_rows

    def view(self) -> _KeyLog:
        """The log as it is now; it shares the keys."""
        view = _KeyLog(())
        view._base, view._tail, view._tail_rows = self._base, list(self._tail), self._tail_rows
        return view

    def append(self, columns: list[pa.Array]) -> None:
        """Add keys."""
        self._tail.append(columns)
        self._tail_rows += len(columns[0])
        if 2 * self._tail_rows > len(self._base[0]):
            self._base = self._joined()
            self._tail, self._tail_rows = [], 0
        elif len(self._tail) > 16:
            self._tail = [[pa.concat_arrays(c) for c in zip(*self._tail, strict=True)]]

    def take(self, rows: Slots) -> list[pa.Array]:
        """The keys of rows, in that order."""
        border = len(self._base[0])
        if not self._tail or not (rows >= border).any():
            indices = pa.array(rows)
            return [c.take(indices) for c in self._base]
        old, new = np.flatnonzero(rows < border), np.flatnonzero(rows >= border)
        back = np.empty(len(rows), np.int64)
        back[old], back[new] = np.arange(len(old)), np.arange(len(old), len(rows))
        tail = [pa.concat_arrays(c) for c in zip(*self._tail, strict=True)]
        first, second, order = pa.array(rows[old]), pa.array(rows[new] - border), pa.array(back)
        return [
            pa.concat_arrays([b.take(first), t.take(second)]).take(order) for b, t in zip(self._base, tail, strict=True)
        ]

    def keep(self, rows: Slots) -> None:
        """Make `rows` the whole log, in that order."""
        self._base, self._tail, self._tail_rows = self.take(rows), [], 0

    def _joined(self) -> list[pa.Array]:
        return [pa.concat_arrays([b, *(t[i] for t in self._tail)]) for i, b in enumerate(self._base)]


@record
class KeyView:
    """The keys of a `KeyIndex` at one moment; never changes."""

    keys: _KeyLog
    row_of: Slots

    def columns(self, numbers: Slots) -> list[pa.Array]:
        """The encoded key columns of numbers."""
        return self.keys.take(self.row_of[numbers])
