"""The keys that `KeySlots` has numbered, by number: integers in one array, all others in a log of rows.

A key that is looked up is compared with that of each entry of its hash. For integers that is one access to memory a key, where a log takes
the rows out of each of its chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.operators.aggregation.dense import from_words, is_addressable, to_words
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.keyed.state_arrays import allocated, extended


class KeyStore(Protocol):
    """Keys 0, 1, … in the order in which they were added; groupable columns of fixed types, as `KeyCodec` gives them."""

    def append(self, keys: pa.RecordBatch) -> None:
        """Add keys."""
        ...

    def equal(self, numbers: Integers, keys: pa.RecordBatch, rows: Integers) -> Bools:
        """Whether the key of each number is that of a row. NULL equals NULL.

        Args:
            numbers: at least one.
            keys: of the same columns.
            rows: positions in `keys`, one for each number.
        """
        ...

    def take(self, numbers: Integers) -> list[pa.Array]:
        """The columns of some keys."""
        ...

    def view(self) -> KeyStore:
        """The keys as they are now: never changes, and may be read by another thread."""
        ...

    def keep(self, numbers: Integers) -> None:
        """Keep only these keys, which become 0, 1, …"""
        ...


def key_store(types: Sequence[pa.DataType]) -> KeyStore:
    """An empty store for keys of some columns."""
    return IntegerKeys(types) if all(map(is_addressable, types)) else LoggedKeys(types)


class IntegerKeys:
    """Keys of columns whose values are integers of up to 64 bits underneath; also the one key of no columns, which is never added.

    Attributes:
        _words: keys × columns, 0 for NULL. What is there stays as it is, so a view may refer to it.
        _nulls: the same shape, True for NULL; None as long as there was none.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._words: Integers = allocated(0, np.zeros((1, len(self._types)), np.int64))
        self._nulls: Bools | None = None
        self._count = 0

    def append(self, keys: pa.RecordBatch) -> None:
        """Add keys."""
        start, self._count = self._count, self._count + keys.num_rows
        self._words = extended(self._words, self._count, 0)
        if self._nulls is None and any(c.null_count for c in keys.columns):
            self._nulls = np.zeros(self._words.shape, np.bool_)
        if self._nulls is not None:
            self._nulls = extended(self._nulls, len(self._words), 0)
        for i, column in enumerate(keys.columns):
            self._words[start : self._count, i] = to_words(column)
            if column.null_count and self._nulls is not None:
                self._nulls[start : self._count, i] = _null(column)

    def equal(self, numbers: Integers, keys: pa.RecordBatch, rows: Integers) -> Bools:
        """Whether the key of each number is that of a row."""
        held = self._words[numbers]
        same = np.ones(len(numbers), np.bool_)
        for i, column in enumerate(keys.columns):
            same &= held[:, i] == to_words(column)[rows]
            if column.null_count:
                same &= _null(column)[rows] == (False if self._nulls is None else self._nulls[numbers, i])
            elif self._nulls is not None:
                same &= ~self._nulls[numbers, i]
        return same

    def take(self, numbers: Integers) -> list[pa.Array]:
        """The columns of some keys."""
        if not self._types:
            return []
        held = self._words[numbers]
        nulls = None if self._nulls is None else self._nulls[numbers]
        return [
            from_words(np.ascontiguousarray(held[:, i]), None if nulls is None else nulls[:, i], kind)
            for i, kind in enumerate(self._types)
        ]

    def view(self) -> IntegerKeys:
        """The keys as they are now."""
        view = IntegerKeys(self._types)
        view._words, view._nulls, view._count = self._words, self._nulls, self._count
        return view

    def keep(self, numbers: Integers) -> None:
        """Keep only these keys."""
        self._words = self._words[numbers]
        self._nulls = None if self._nulls is None else self._nulls[numbers]
        self._count = len(numbers)


class LoggedKeys:
    """Keys of any columns."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._log = RowLog()

    def append(self, keys: pa.RecordBatch) -> None:
        """Add keys."""
        self._log.append(keys)

    def equal(self, numbers: Integers, keys: pa.RecordBatch, rows: Integers) -> Bools:
        """Whether the key of each number is that of a row."""
        every = len(rows) == keys.num_rows and np.array_equal(rows, np.arange(len(rows)))
        asked = keys if every else keys.take(pa.array(rows))
        return rows_equal(self._log.take(numbers).columns, asked.columns, len(numbers))

    def take(self, numbers: Integers) -> list[pa.Array]:
        """The columns of some keys."""
        if not len(self._log):
            return [pa.array([], kind) for kind in self._types]
        return list(self._log.take(numbers).columns)

    def view(self) -> LoggedKeys:
        """The keys as they are now."""
        view = LoggedKeys(self._types)
        view._log = self._log.view()
        return view

    def keep(self, numbers: Integers) -> None:
        """Keep only these keys."""
        self._log.keep(numbers)


def _null(column: pa.Array) -> npt.NDArray[np.bool_]:
    mask: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return mask
