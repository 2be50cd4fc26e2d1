"""Keys numbered by slots, found again without searching all of them.

A slot is the number of a key: state of a key is an entry of a NumPy array at its slot, or positions of rows in a log.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.aggregation.numbering import by_appearance, first_rows
from flowrun.operators.keyed.hash_lists import HashLists, SortedTags
from flowrun.operators.keyed.key_store import KeyStore, key_store


@record
class LocatedKeys:
    """The keys of one batch.

    Attributes:
        local: for each row, the number of its key among the batch's keys, which are numbered by first appearance.
        slots: slot of each of the batch's keys.
        encoded: the batch's keys themselves, as groupable columns (see `KeyCodec`).
    """

    local: Integers
    slots: Integers
    encoded: list[pa.Array]

    @property
    def of_rows(self) -> Integers:
        """Slot of the key of each row."""
        slots: Integers = self.slots[self.local]
        return slots

    def row_order(self) -> Integers:
        """Positions of the rows, grouped by key and in arrival order within a key."""
        small = len(self.slots) <= np.iinfo(np.uint16).max
        order: Integers = np.argsort(self.local.astype(np.uint16) if small else self.local, kind="stable")
        return order


class KeySlots:
    """Numbers keys 0, 1, …; looks up one entry for each distinct key of a batch, never all keys.

    Keys are found by their hash and then compared.
    """

    def __init__(self, codec: KeyCodec) -> None:
        self._codec = codec
        self._types = codec.types
        self._index = HashLists()
        self._store = key_store(codec.groupable)
        self._count = 0

    @classmethod
    def of(cls, schema: Schema, keys: Sequence[int]) -> KeySlots:
        """Slots for the key columns at these positions.

        Raises:
            DataError: a column's type cannot be a key.
        """
        fields = [schema.fields[k] for k in keys]
        return cls(KeyCodec.of([(f.name, f.type) for f in fields]))

    def __len__(self) -> int:
        return self._count

    def locate(self, columns: Sequence[pa.Array], rows: int, *, add: bool = True) -> LocatedKeys:
        """Slots of the keys of `rows` rows; new keys get the next ones, or −1 unless `add`. Without key columns all rows have slot 0."""
        if not self._types:
            self._count = 1
            return LocatedKeys(np.zeros(rows, np.int64), np.zeros(min(rows, 1), np.int64), [])
        encoded = self._codec.encode(columns)
        ids, total = by_appearance(encoded, rows)
        if total < rows:
            firsts = pa.array(first_rows(ids, total))
            encoded = [c.take(firsts) for c in encoded]
        slots = self._slots_of(pa.RecordBatch.from_arrays(encoded, names=_names(encoded)), add)
        return LocatedKeys(ids, slots, encoded)

    def _slots_of(self, distinct: pa.RecordBatch, add: bool) -> Integers:
        tags = SortedTags.of_columns(distinct.columns, distinct.num_rows)
        found = np.full(distinct.num_rows, -1, np.int64)
        pairs = self._index.find(tags)
        if len(pairs):
            pairs = pairs.where(self._store.equal(pairs.numbers, distinct, pairs.probe))
            found[pairs.probe] = pairs.numbers
        missing = found < 0
        if add and missing.any():
            new = np.arange(self._count, self._count + np.count_nonzero(missing))
            found[missing] = new
            self._count += len(new)
            self._store.append(distinct.filter(pa.array(missing)))  # a copy: it keeps no larger buffers alive
            self._index.add(tags.where(missing), new)
        return found

    def keys_in(self, located: LocatedKeys) -> list[pa.Array]:
        """Key columns of a batch's keys; cheaper than to look up what `keys_of` their slots are."""
        return self._codec.decode(located.encoded)

    def keys_of(self, slots: Integers) -> list[pa.Array]:
        """Key columns of some slots."""
        return self._codec.decode(self._store.take(slots))

    def view(self) -> KeyList:
        """The keys as they are now."""
        return KeyList(self._codec, self._store.view(), self._count)

    def forget(self, keep: npt.NDArray[np.bool_]) -> Integers:
        """Forget the slots that are not kept; gives the old slots of the remaining ones, which are numbered anew in order."""
        kept = np.flatnonzero(keep)
        if self._types:
            renumbered = np.full(self._count, -1)
            renumbered[kept] = np.arange(len(kept))
            self._store.keep(kept)
            self._index = self._index.renumbered(renumbered)
        self._count = len(kept)
        return kept


@record
class KeyList:
    """The keys of `KeySlots` at one moment, by slot. Immutable: may be read by another thread."""

    codec: KeyCodec
    store: KeyStore
    count: int

    def __len__(self) -> int:
        return self.count

    def keys_of(self, slots: Integers) -> list[pa.Array]:
        """Key columns of some slots."""
        return self.codec.decode(self.store.take(slots))


def _names(columns: Sequence[pa.Array]) -> list[str]:
    return [f"k{i}" for i in range(len(columns))]
