"""Texts of PostgreSQL as columns of declared types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.text_values import is_textual, parse_text
from flowrun.core.arrays import Bools, Bytes, Integers
from flowrun.core.schema import Field, Schema
from flowrun.core.types import TypeRoot
from flowrun.errors import DataError, OptionError


def check_columns(schema: Schema) -> None:
    """Whether columns can be read. Raises OptionError for one that cannot."""
    for field in schema:
        if field.type.root not in (TypeRoot.VARBINARY, TypeRoot.BINARY) and not is_textual(field.type):
            raise OptionError(
                "connector",
                f"column '{field.name}' is {field.type}, which connector 'postgres-cdc' does not read",
                hint="declare it as STRING: arrays and composite values come as PostgreSQL writes them",
            )


def typed_rows(schema: Schema, columns: Sequence[pa.Array], table: str) -> pa.RecordBatch:
    """Columns of text as those of the schema.

    Args:
        schema: declared.
        columns: string or binary arrays, one a column.
        table: for messages.

    Raises:
        DataError: a value is not of the declared type.
    """
    arrays = [_typed(field, texts, table) for field, texts in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _typed(field: Field, texts: pa.Array, table: str) -> pa.Array:
    kind = field.type
    if kind.root in (TypeRoot.VARBINARY, TypeRoot.BINARY):
        return _from_hexadecimal(texts).cast(kind.arrow)
    values = _strings(field, texts, table)
    if kind.root is TypeRoot.BOOLEAN:
        values = pc.if_else(pc.equal(values, "t"), "true", pc.if_else(pc.equal(values, "f"), "false", values))
    parsed = parse_text(values, kind)
    if parsed.bad:
        row, reason = next(iter(parsed.bad.items()))
        raise DataError(
            f"column '{field.name}' of table {table}: {reason}",
            row=row,
            hint="compare the declared types with those of the table",
        )
    return parsed.values if parsed.values.type == kind.arrow else parsed.values.cast(kind.arrow)


def _strings(field: Field, texts: pa.Array, table: str) -> pa.Array:
    if pa.types.is_string(texts.type):
        return texts
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        raise DataError(
            f"column '{field.name}' of table {table} has a text that is not UTF-8",
            hint="a database in SQL_ASCII may hold any bytes: convert it, or do not declare the column",
        ) from None


def _from_hexadecimal(texts: pa.Array) -> pa.Array:
    r"""The bytes of texts like `\x00ff`.

    >>> _from_hexadecimal(pa.array(["\\x00ff", None, "\\x"])).to_pylist()
    [b'\x00\xff', None, b'']
    """
    compact = pc.binary_replace_slice(texts.cast(pa.binary()), start=0, stop=2, replacement=b"")
    compact = pc.fill_null(compact, b"") if texts.null_count else compact
    offsets = np.frombuffer(compact.buffers()[1], np.int32)[compact.offset : compact.offset + len(compact) + 1]
    digits = np.frombuffer(compact.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]] if len(compact) else b""
    values = pa.py_buffer(bytes.fromhex(bytes(digits).decode()))
    halves = pa.py_buffer(((offsets - offsets[0]) // 2).astype(np.int32))
    found = pa.BinaryArray.from_buffers(pa.binary(), len(compact), [None, halves, values])
    return pc.if_else(texts.is_valid(), found, pa.scalar(None, pa.binary())) if texts.null_count else found


def texts_at(data: Bytes, starts: Integers, ends: Integers, is_text: Bools) -> pa.Array:
    """The texts between these places; NULL where there is none.

    >>> data = np.frombuffer(b"some more texts", np.uint8)
    >>> texts_at(data, np.array([5, 0, 0]), np.array([9, 0, 4]), np.array([True, False, True])).to_pylist()
    [b'more', None, b'some']
    """
    size = len(starts)
    validity = None if is_text.all() else pa.array(is_text).buffers()[1]
    if size and (starts[1:] >= ends[:-1]).all():
        # As the texts are in the order of the data, an array of texts and of what is between them needs no copy: every second one is taken.
        bounds = np.empty(2 * size, np.int32)
        bounds[0::2], bounds[1::2] = starts, ends
        every = pa.BinaryArray.from_buffers(pa.binary(), 2 * size - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
        taken = every.take(pa.array(np.arange(0, 2 * size, 2, dtype=np.int32)))
        return taken if validity is None else pa.Array.from_buffers(pa.binary(), size, [validity, *taken.buffers()[1:]])
    lengths = ends - starts
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return pa.Array.from_buffers(pa.binary(), size, [validity, pa.py_buffer(offsets), pa.py_buffer(data[places])])
