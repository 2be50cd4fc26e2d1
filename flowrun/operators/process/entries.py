"""State in columns, for functions on batches: entries are numbered, and what is known of entry n stands at position n of arrays.

Arrow tables of what changed are made later, on another thread (see `keyed.state_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.api.state import TimeToLive, TtlUpdate
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.keyed.state_columns import CapturedEntries, StateColumn, Values

_SLACK_ROWS = 4096


class EntryValues(Protocol):
    """The values of entries."""

    def reserve(self, size: int) -> None:
        """Make room for entries 0 … size − 1."""
        ...

    def put(self, numbers: Integers, values: pa.Array) -> None:
        """Set values, NULL too."""
        ...

    def take(self, numbers: Integers) -> pa.Array:
        """Values of entries; anything for those that were never set."""
        ...

    def columns(self) -> list[StateColumn]:
        """What is kept of entries by number, now."""
        ...

    def decoder(self) -> Callable[[Sequence[Values]], pa.Array]:
        """Makes values of what `columns` have of some entries now; for any thread, later too."""
        ...

    def keep(self, kept: Integers) -> None:
        """Forget all but these entries, which get the numbers 0, 1, …"""
        ...


def entry_values(kind: pa.DataType) -> EntryValues:
    """The store for values of an Arrow type."""
    plain = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)
    if plain or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return NumericValues(kind)
    return LoggedValues(kind)


class NumericValues:
    """Numbers, booleans and times in a NumPy array."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._storage = kind
        if pa.types.is_temporal(kind):
            self._storage = pa.int64() if kind.bit_width == 64 else pa.int32()
        self._values = StateColumn(np.zeros((), self._storage.to_pandas_dtype()))
        self._nulls: StateColumn | None = None

    def reserve(self, size: int) -> None:
        """Grow by doubling."""
        for column in self.columns():
            column.reserve(size)

    def put(self, numbers: Integers, values: pa.Array) -> None:
        """Set values."""
        if values.null_count and self._nulls is None:
            self._nulls = StateColumn(np.bool_(False))
            self._nulls.reserve(len(self._values))
        if self._nulls is not None:
            self._nulls.put(numbers, values.is_null().to_numpy(zero_copy_only=False))
        self._values.put(numbers, to_numpy(values))

    def numpy(self, numbers: Integers) -> npt.NDArray[Any]:
        """Values as an array of its own; times as integers."""
        return self._values.get(numbers)

    def take(self, numbers: Integers) -> pa.Array:
        """Values as a column."""
        return self._decoded([c.get(numbers) for c in self.columns()])

    def columns(self) -> list[StateColumn]:
        """The values, and which are NULL if any has ever been."""
        return [self._values] if self._nulls is None else [self._values, self._nulls]

    def decoder(self) -> Callable[[Sequence[Values]], pa.Array]:
        """Needs nothing that changes."""
        return self._decoded

    def _decoded(self, entries: Sequence[Values]) -> pa.Array:
        values, *nulls = entries
        made = pa.array(values, self._storage, mask=nulls[0] if nulls else None)
        return made if self._storage == self._kind else made.view(self._kind)

    def keep(self, kept: Integers) -> None:
        """Renumber."""
        for column in self.columns():
            column.keep(kept)


class LoggedValues:
    """Values of any type in a log of Arrow chunks; an entry holds the position of its latest value."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._positions = StateColumn(np.int64(0))
        self._log = self._empty()

    def _empty(self) -> RowLog:
        log = RowLog()
        log.append(pa.record_batch([pa.nulls(1, self._kind)], names=["value"]))  # of entries that were never set
        return log

    def reserve(self, size: int) -> None:
        """Grow by doubling."""
        self._positions.reserve(size)

    def put(self, numbers: Integers, values: pa.Array) -> None:
        """Append the values."""
        first = self._log.append(pa.record_batch([values], names=["value"]))
        self._positions.put(numbers, np.arange(first, first + len(values)))
        if len(self._log) > 2 * len(self._positions) + _SLACK_ROWS:
            self._collect()

    def _collect(self) -> None:
        """Drop values that were replaced."""
        used, positions = np.unique(self._positions.values, return_inverse=True)
        nothing = len(used) == 0 or used[0] != 0
        self._log.keep(np.concatenate([[0], used]) if nothing else used)
        self._positions.own()[:] = positions + nothing

    def take(self, numbers: Integers) -> pa.Array:
        """Values as a column."""
        return self._log.take(self._positions.get(numbers)).column(0)

    def columns(self) -> list[StateColumn]:
        """Positions in the log."""
        return [self._positions]

    def decoder(self) -> Callable[[Sequence[Values]], pa.Array]:
        """Takes values from the log as it is now."""
        log = self._log.view()
        return lambda entries: log.take(entries[0]).column(0)

    def keep(self, kept: Integers) -> None:
        """Renumber."""
        self._positions.keep(kept)
        self._collect()


@record
class Changed:
    """Entries that changed since the last snapshot.

    Attributes:
        numbers: of the entries.
        deleted: whether each is gone.
        columns: the value (NULL where deleted) unless entries have none, and with a time to live the ms of the last write.
    """

    numbers: Integers
    deleted: Bools
    columns: list[pa.Array]


@record
class Capture:
    """What changed since the last snapshot, as a number and what is made of it later."""

    count: int
    made: Callable[[], Changed]


class Entries:
    """Which entries are there, their values, when they were written, and which changed since the last snapshot.

    Args:
        values: None if entries only are there or not.
        ttl: of the state.
    """

    def __init__(self, values: EntryValues | None, ttl: TimeToLive | None) -> None:
        self.values = values
        self.now = 0
        self._ttl = ttl
        self._size = 0
        self._present = StateColumn(np.bool_(False))
        self._dirty: Bools = np.zeros(0, np.bool_)
        self._logged: Bools = np.zeros(0, np.bool_)
        self._written = StateColumn(np.int64(0))
        self._swept = -(2**63)

    def reserve(self, size: int) -> None:
        """Make room for entries 0 … size − 1."""
        self._size = size
        self._present.reserve(size)
        self._dirty = extended(self._dirty, size, 0)
        self._logged = extended(self._logged, size, 0)
        if self._ttl is not None:
            self._written.reserve(size)
        if self.values is not None:
            self.values.reserve(size)

    def alive(self, numbers: Integers) -> Bools:
        """Which entries are there and have not expired."""
        there: Bools = self._present.get(numbers)
        if self._ttl is not None:
            there &= self._written.get(numbers) > self.now - self._ttl.ttl_ms
        return there

    def all_alive(self) -> Integers:
        """Numbers of all entries that are there."""
        present = np.flatnonzero(self._present.values[: self._size])
        return present if self._ttl is None else present[self.alive(present)]

    def read(self, numbers: Integers) -> None:
        """These entries were read: with a time to live from the last read on, that counts as a write."""
        if self._ttl is not None and self._ttl.update is TtlUpdate.ON_READ_AND_WRITE:
            there = numbers[self.alive(numbers)]
            self._written.put(there, self.now)
            self._dirty[there] = True

    def get(self, numbers: Integers) -> pa.Array:
        """Values of entries, NULL for those that are not there."""
        self.read(numbers)
        there = self.alive(numbers)
        assert self.values is not None
        if there.all():
            return self.values.take(numbers)
        found = self.values.take(numbers[there])
        positions = np.cumsum(there) - 1
        return found.take(pa.array(positions, mask=~there))

    def put(self, numbers: Integers, values: pa.Array | None = None) -> None:
        """Set entries; of several settings of one the last counts."""
        self._present.put(numbers, True)
        self._dirty[numbers] = True
        if self._ttl is not None:
            self._written.put(numbers, self.now)
        if self.values is not None and values is not None:
            self.values.put(numbers, values)

    def drop(self, numbers: Integers) -> None:
        """Remove entries, as far as they are there. Those that no snapshot has leave no trace."""
        there = numbers[self._present.get(numbers)]
        if len(there) == 0:
            return
        self._present.put(there, False)
        self._dirty[there] = self._logged[there]

    def drop_all(self) -> None:
        """Remove all entries."""
        self.drop(np.flatnonzero(self._present.values[: self._size]))

    def expire(self, now: int, *, thorough: bool = False) -> None:
        """Time is `now`. Expired entries are not seen any more; every now and then, and if `thorough`, they are removed."""
        self.now = now
        if self._ttl is None or not (thorough or now >= self._swept + max(self._ttl.ttl_ms // 8, 1000)):
            return
        self._swept = now
        expired = self._written.values[: self._size] <= now - self._ttl.ttl_ms
        self.drop(np.flatnonzero(self._present.values[: self._size] & expired))

    @property
    def live(self) -> int:
        """How many entries are there."""
        return int(np.count_nonzero(self._present.values[: self._size]))

    @property
    def newest_write(self) -> int | None:
        """Latest write, ms; None without a time to live, or without entries."""
        if self._ttl is None or not self.live:
            return None
        return int(self._written.values[: self._size][self._present.values[: self._size]].max())

    def needed(self) -> Bools:
        """Which entries must keep their numbers: those that are there, or whose end no snapshot has."""
        needed: Bools = self._present.values[: self._size] | self._dirty[: self._size]
        return needed

    def keep(self, kept: Integers) -> None:
        """Forget all but these entries, which get the numbers 0, 1, …"""
        self._present.keep(kept)
        self._dirty, self._logged = self._dirty[kept], self._logged[kept]
        if self._ttl is not None:
            self._written.keep(kept)
        if self.values is not None:
            self.values.keep(kept)
        self._size = len(kept)

    def capture(self) -> Capture:
        """What changed since the last call.

        What snapshots have is what is there now: an entry that has not changed was in them before if and only if it is there.
        """
        timed, values = self._ttl is not None, self.values
        columns = [
            self._present,
            *([self._written] if timed else []),
            *(values.columns() if values is not None else []),
        ]
        captured = CapturedEntries(columns, self._dirty[: self._size])
        self._dirty = np.zeros(len(self._dirty), np.bool_)
        self._logged[: self._size] = self._present.values[: self._size]
        expired = self.now - self._ttl.ttl_ms if self._ttl is not None else None
        decoder = values.decoder() if values is not None else None
        return Capture(captured.count, partial(_changed, captured, expired, decoder))

    def restore(self, numbers: Integers, values: pa.Array | None, written: pa.Array | None) -> None:
        """Put entries back. Those that had no time to live before begin to live now."""
        self.put(numbers, values)
        if self._ttl is not None and written is not None:
            times = to_numpy(written).astype(np.int64, copy=True)
            if written.null_count:
                times[written.is_null().to_numpy(zero_copy_only=False)] = self.now
            self._written.put(numbers, times)


def _changed(
    captured: CapturedEntries, expired: int | None, decoder: Callable[[Sequence[Values]], pa.Array] | None
) -> Changed:
    """Entries as a snapshot shows them; with a time to live those written at `expired` or before count as deleted."""
    numbers, (present, *entries) = captured.read()
    deleted = ~present
    written = entries.pop(0) if expired is not None else None
    if written is not None:
        deleted |= written <= expired
    columns: list[pa.Array] = []
    if decoder is not None:
        column = decoder(entries)
        if deleted.any():
            column = column.take(pa.array(np.arange(len(numbers)), mask=deleted))
        columns.append(column)
    if written is not None:
        columns.append(pa.array(written, mask=deleted))
    return Changed(numbers, deleted, columns)


def to_numpy(column: pa.Array) -> npt.NDArray[Any]:
    """A column as NumPy; times as integers, 0 for NULL."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
