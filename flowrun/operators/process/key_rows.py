"""Keys of a stream in the three forms that process functions need: columns, tuples of plain objects, and Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flowrun.core.schema import Field
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.state.backend.objects import Key


class KeyTuples:
    """Turns key columns into tuples that can be looked up in a dict, and back. Thread-safe.

    Times and floating numbers become the integers of their bits, so that NaN equals itself; rows and arrays become text.

    Raises:
        DataError: a column's type cannot be a key.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._codec = KeyCodec.of([(f.name, f.type) for f in fields])
        self._types = self._codec.groupable
        self._plain = tuple(_plain_type(t) for t in self._types)
        self._shown_as_kept = self._plain == tuple(f.type.arrow for f in fields)

    def tuples(self, columns: Sequence[pa.Array]) -> list[Key]:
        """The keys of rows."""
        return list(zip(*(_plain_column(c).to_pylist() for c in self._codec.encode(columns)), strict=True))

    def columns(self, keys: Sequence[Key]) -> list[pa.Array]:
        """The key columns."""
        plain = [pa.array([k[i] for k in keys], t) for i, t in enumerate(self._plain)]
        encoded = [c if c.type == t else c.view(t) for c, t in zip(plain, self._types, strict=True)]
        return self._codec.decode(encoded)

    def values(self, key: Key) -> tuple[Any, ...]:
        """What users see of a key."""
        if self._shown_as_kept:
            return key
        return tuple(c[0].as_py() for c in self.columns([key]))


def _plain_column(column: pa.Array) -> pa.Array:
    kind = _plain_type(column.type)
    return column if kind == column.type else column.view(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind) or pa.types.is_floating(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    return kind
