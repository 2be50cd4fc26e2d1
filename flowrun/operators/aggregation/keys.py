"""Key columns: what a NULL key means, and how nested and floating keys become columns that can be grouped."""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.state.key_groups import hash_columns


def apply_null_keys(batch: RecordBatch, keys: Sequence[int], policy: NullKeys, schema: Schema) -> RecordBatch:
    """The rows that are grouped under `policy`; the same batch if no key is NULL.

    Raises:
        DataError: a key is NULL and the policy is FAIL; names the column and the row.
    """
    if policy is NullKeys.GROUP:
        return batch
    keep = None
    for position in keys:
        column = batch.columns.column(position)
        if not column.null_count:
            continue
        if policy is NullKeys.FAIL:
            row = int(pc.index(column.is_null(), True).as_py())
            raise DataError(
                f"key column '{schema.names[position]}' is NULL in row {row} of the batch; expected a value",
                row=row,
                hint="filter such rows, fill them with COALESCE, or set null_keys to group or drop",
            )
        valid = column.is_valid()
        keep = valid if keep is None else pc.and_(keep, valid)
    return batch if keep is None else batch.filter(keep)


@record
class KeyCodec:
    """Turns columns into groupable ones of equal meaning, and back.

    Flat types stay; floats lose the difference between −0.0 and 0.0 and between NaNs; rows and arrays become canonical JSON text,
    built once per distinct value of a batch (found by hash, then verified).
    """

    types: tuple[DataType, ...]

    @classmethod
    def of(cls, fields: Sequence[tuple[str, DataType]]) -> KeyCodec:
        """A codec for named columns.

        Raises:
            DataError: a column's type cannot be a key.
        """
        for name, kind in fields:
            if _contains_map(kind):
                raise DataError(
                    f"column '{name}' of type {kind} cannot be a key or DISTINCT",
                    hint="use its parts, or cast it to STRING",
                )
        return cls(tuple(t for _, t in fields))

    @property
    def groupable(self) -> tuple[pa.DataType, ...]:
        """Arrow types of the encoded columns."""
        return tuple(pa.string() if t.is_nested else t.arrow for t in self.types)

    def encode(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Groupable columns."""
        return [_encode(c, t) for c, t in zip(columns, self.types, strict=True)]

    def decode(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The original columns."""
        return [_decode(c, t) if t.is_nested else c for c, t in zip(columns, self.types, strict=True)]


def _contains_map(kind: DataType) -> bool:
    return kind.root is TypeRoot.MAP or any(_contains_map(c) for c in kind.children)


def _encode(column: pa.Array, kind: DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kind.is_approximate:
        return _canonical_floats(column)
    return _encode_nested(column, kind) if kind.is_nested else column


def _canonical_floats(column: pa.Array) -> pa.Array:
    values = column.to_numpy(zero_copy_only=False) if not column.null_count else pc.fill_null(column, 0).to_numpy()
    if not np.isnan(values).any() and not ((values == 0.0) & np.signbit(values)).any():
        return column
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, column.type, mask=mask, from_pandas=False)


def _encode_nested(column: pa.Array, kind: DataType) -> pa.Array:
    if len(column) == 0:
        return pa.array([], pa.string())
    hashes = hash_columns([column])
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    distinct = column.take(pa.array(first))
    if not distinct.take(pa.array(inverse)).equals(column) and not _is_approximate(kind):
        return pa.array([_to_text(v, kind) for v in column.to_pylist()], pa.string())  # two values of one hash
    texts = pa.array([_to_text(v, kind) for v in distinct.to_pylist()], pa.string())
    return texts.take(pa.array(inverse))


def _is_approximate(kind: DataType) -> bool:
    """Whether equal keys may differ in bits (−0.0, NaN), which `Array.equals` would take for another key."""
    return kind.is_approximate or any(_is_approximate(c) for c in kind.children)


def _to_text(value: Any, kind: DataType) -> str | None:
    return None if value is None else orjson.dumps(_to_json(value, kind)).decode()


def _to_json(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    match kind.root:
        case TypeRoot.ARRAY:
            return [_to_json(v, kind.children[0]) for v in value]
        case TypeRoot.ROW:
            return [_to_json(value[n], c) for n, c in zip(kind.names, kind.children, strict=True)]
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return "nan" if math.isnan(value) else repr(value + 0.0)
        case TypeRoot.DECIMAL:
            return str(value)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return base64.b64encode(value).decode()
        case _ if kind.is_temporal or kind.is_interval:
            return _number_of(value, kind)
        case _:
            return value


def _number_of(value: Any, kind: DataType) -> int:
    scalar = pa.array([value], kind.arrow)
    return int(scalar.view(pa.int64() if kind.arrow.bit_width == 64 else pa.int32())[0].as_py())


def _decode(column: pa.Array, kind: DataType) -> pa.Array:
    return pa.array(
        [None if t is None else _from_json(orjson.loads(t), kind) for t in column.to_pylist()],
        kind.arrow,
    )


def _from_json(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    match kind.root:
        case TypeRoot.ARRAY:
            return [_from_json(v, kind.children[0]) for v in value]
        case TypeRoot.ROW:
            return {n: _from_json(v, c) for n, c, v in zip(kind.names, kind.children, value, strict=True)}
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return float(value)
        case TypeRoot.DECIMAL:
            return decimal.Decimal(value)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return base64.b64decode(value)
        case _:
            return value
