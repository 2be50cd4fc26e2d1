"""Arrow columns as PostgreSQL writes their values: fields of COPY, and arrays that queries hold as literals."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from flowrun.connectors.formats.text_values import floor_to_unit
from flowrun.core.arrays import Bools

_HEX_DIGITS = np.frombuffer(b"".join(f"{i:02x}".encode() for i in range(256)), np.uint8).reshape(256, 2)
_CSV = pa_csv.WriteOptions(include_header=False, quoting_style="needed")
TRUE, FALSE = "t", "f"


def copy_lines(rows: pa.RecordBatch, deletes: Bools | None = None) -> bytes:
    r"""Rows as lines of `COPY … (FORMAT csv)`: NULL is nothing, an empty text is quoted.

    Args:
        rows: any columns that `texts` can write.
        deletes: if given, a boolean column before the others.

    >>> copy_lines(pa.record_batch([pa.array(["a", "", None]), pa.array([[1, None], [], None])], names=["s", "a"]))
    b'"a","{1,NULL}"\n"","{}"\n,\n'
    """
    columns = [_field(c) for c in rows.columns]
    names = [str(i) for i in range(len(columns))]
    if deletes is not None:
        columns.insert(0, pa.array(deletes))
        names.append("deletes")
    out = io.BytesIO()
    pa_csv.write_csv(pa.RecordBatch.from_arrays(columns, names=names), out, _CSV)
    return out.getvalue()


def _field(column: pa.Array) -> pa.Array:
    """The column as it is where Arrow writes its values as PostgreSQL reads them, else as texts."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return floor_to_unit(column, pa.timestamp("us", kind.tz))
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pc.cast(column, pa.time64("us"), safe=False)
    if pa.types.is_list(kind) or pa.types.is_binary(kind):
        return texts(column)
    return column


def texts(column: pa.Array) -> pa.StringArray:
    """Each value as PostgreSQL's input functions read it; NULL stays NULL.

    Raises:
        ArrowException: the type has no texts.
    """
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind):
        return _hexadecimal(column)
    if pa.types.is_list(kind):
        return _array_texts(column)
    return pc.cast(_field(column), pa.string())


def array_literal(column: pa.Array) -> str:
    r"""All values of a column as the text of one array.

    >>> array_literal(pa.array(["a", 'b"c', None]))
    '{"a","b\\"c",NULL}'
    """
    whole = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
    text: str = _array_texts(whole)[0].as_py()
    return text


def _array_texts(column: pa.ListArray) -> pa.StringArray:
    elements = column.flatten()  # without what NULL lists and slices leave out
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    written = texts(elements)
    if _is_quoted(elements.type):
        written = pc.replace_substring(pc.replace_substring(written, "\\", "\\\\"), '"', '\\"')
        quote = pa.scalar('"')
        written = pc.binary_join_element_wise(quote, written, quote, "")
    written = pc.fill_null(written, "NULL")
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), written), ",")
    braced = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(column.is_valid(), braced, pa.scalar(None, pa.string())) if column.null_count else braced


def _is_quoted(kind: pa.DataType) -> bool:
    """Whether elements of this type could hold what has a meaning in an array."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return not (plain or pa.types.is_boolean(kind) or pa.types.is_list(kind))


def _hexadecimal(column: pa.BinaryArray) -> pa.StringArray:
    compact = pc.fill_null(column, b"")
    offsets = np.frombuffer(compact.buffers()[1], np.int32)[compact.offset : compact.offset + len(compact) + 1]
    raw = (
        np.frombuffer(compact.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        if len(compact)
        else np.zeros(0, np.uint8)
    )
    digits = _HEX_DIGITS[raw].tobytes()
    doubled = (
        pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int32))
        if len(compact)
        else pa.py_buffer(np.zeros(1, np.int32))
    )
    plain = pa.StringArray.from_buffers(len(compact), doubled, pa.py_buffer(digits))
    prefixed = pc.binary_join_element_wise("\\x", plain, "")
    return pc.if_else(column.is_valid(), prefixed, pa.scalar(None, pa.string())) if column.null_count else prefixed
