"""Entries of which a key has several: found by the key's slot and one more value, a map's key or a timer's time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.state import TimeToLive
from flowrun.core.arrays import Bools, Integers
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DataType
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.process.entries import Capture, Entries, entry_values

_SLACK = 1 << 16


class IndexedEntries:
    """Entries by (slot of a key, further value).

    Args:
        further: type of the further value.
        kind: Arrow type of the entries' values; None: they have none.
        ttl: of the state.

    Attributes:
        entries: by number.
    """

    def __init__(self, further: DataType, kind: pa.DataType | None, ttl: TimeToLive | None) -> None:
        self._schema = Schema.of(slot=BIGINT, further=further)
        self._index = KeySlots.of(self._schema, (0, 1))
        self._owners: Integers = np.zeros(0, np.int64)
        self._used_since_check = 0
        self.entries = Entries(entry_values(kind) if kind is not None else None, ttl)

    def numbers(self, slots: Integers, further: pa.Array, *, add: bool) -> Integers:
        """The number of each (slot, further value); those that are not known get one if `add`, else −1."""
        if len(slots) == 0:
            return np.zeros(0, np.int64)
        self._used_since_check += len(slots)
        located = self._index.locate([pa.array(slots), further], len(slots), add=add)
        numbers: Integers = located.of_rows
        if add:
            size = len(self._index)
            self.entries.reserve(size)
            self._owners = extended(self._owners, size, 0)
            self._owners[numbers] = slots
        return numbers

    def owners(self, numbers: Integers) -> Integers:
        """Slots of entries."""
        slots: Integers = self._owners[numbers]
        return slots

    def further(self, numbers: Integers) -> pa.Array:
        """Further values of entries."""
        return self._index.keys_of(numbers)[1]

    def needed_slots(self, slots: int) -> Bools:
        """Which of the slots 0 … slots − 1 own entries that must stay."""
        needed = np.zeros(slots, np.bool_)
        needed[self._owners[np.flatnonzero(self.entries.needed())]] = True
        return needed

    def renumber_slots(self, kept: Integers, slots: int) -> None:
        """The `kept` of so many slots are 0, 1, … now."""
        numbers = np.flatnonzero(self.entries.needed())
        new = np.full(slots, -1, np.int64)
        new[kept] = np.arange(len(kept))
        owners, further = new[self._owners[numbers]], self.further(numbers)
        self._index = KeySlots.of(self._schema, (0, 1))
        self.entries.keep(numbers)
        self._owners = np.zeros(0, np.int64)
        self.numbers(owners, further, add=True)  # distinct: they get 0, 1, …

    def compact(self) -> Integers | None:
        """Forget entries that are gone, if there are many: the old numbers of those that stay, which are 0, 1, … now; else None."""
        size = len(self._index)
        if size <= _SLACK or self._used_since_check < size // 4:
            return None
        self._used_since_check = 0  # looking at all entries is paid by those that were used since
        needed = self.entries.needed()
        if size <= 2 * int(np.count_nonzero(needed)) + _SLACK:
            return None
        kept = self._index.forget(needed)
        self.entries.keep(kept)
        self._owners = self._owners[kept]
        return kept

    def capture(self) -> tuple[Capture, Integers, KeyList]:
        """(what changed since the last call, the slot of each entry, the entries by number), which later changes do not touch."""
        return (
            self.entries.capture(),
            self._owners,
            self._index.view(),
        )  # the owner of a number never changes in one array
