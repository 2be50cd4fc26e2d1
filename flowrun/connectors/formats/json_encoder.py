"""Encodes rows as JSON lines with string kernels, a column at a time.

Each column becomes a string array of JSON texts. They are joined element by element with the field names between them, and the value
buffer of the result is the output. Nested values are joined in the same way from their children. No Python code runs for each row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.value_text import pieces_of, value_text
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot

_NUMERIC = (
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INTEGER,
    TypeRoot.BIGINT,
    TypeRoot.DECIMAL,
    TypeRoot.BOOLEAN,
    TypeRoot.INTERVAL_YEAR_MONTH,
    TypeRoot.INTERVAL_DAY_TIME,
)
MAX_ENCODED_BYTES = 128 << 20
"""A batch of more bytes is encoded in pieces."""
_QUOTE, _BACKSLASH, _SPACE = b'"\\ '


class JsonEncoder:
    """Encodes each row as a JSON object in a line of its own.

    Args:
        schema: the columns of the rows.
        iso_timestamps: whether timestamps are written as `2024-03-01T10:00:00.123` instead of as in SQL.
        ignore_null_fields: whether fields that are NULL are left out instead of written as null.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        iso_timestamps: bool = False,
        ignore_null_fields: bool = False,
    ) -> None:
        self._schema = schema
        self._iso = iso_timestamps
        self._ignore_null_fields = ignore_null_fields
        self._keys = [json.dumps(name, ensure_ascii=False) + ":" for name in schema.names]

    def header(self) -> bytes:
        """Empty: JSON has no header."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All rows as JSON lines."""
        if columns.nbytes > MAX_ENCODED_BYTES and columns.num_rows > 1:  # a string array holds less than 2 GiB
            middle = columns.num_rows // 2
            halves = (columns.slice(0, middle), columns.slice(middle))
            return pa.py_buffer(b"".join(memoryview(self.encode(half)) for half in halves))
        return joined_bytes(self.encode_messages(columns, behind="\n"))

    def encode_messages(
        self, columns: pa.RecordBatch, before: str | pa.Array = "", behind: str | pa.Array = ""
    ) -> pa.Array:
        """A JSON object for each row, between the texts `before` and `behind`, each of which is the same for all rows or one for each."""
        return self._object(columns.columns, self._schema.types, self._keys, columns.num_rows, before, behind)

    def _object(
        self,
        columns: Sequence[pa.Array],
        types: Sequence[DataType],
        keys: Sequence[str],
        rows: int,
        before: str | pa.Array = "",
        behind: str | pa.Array = "",
    ) -> pa.Array:
        if not columns:
            return pc.binary_join_element_wise(before, pa.array(["{}"] * rows, pa.string()), behind, "")
        if self._ignore_null_fields and any(c.null_count for c in columns):
            return self._object_without_nulls(columns, types, keys, before, behind)
        parts: list[pa.Array | str] = []
        literal = "{"
        if isinstance(before, str):
            literal = before + literal
        else:
            parts.append(before)
        for i, (column, source, key) in enumerate(zip(columns, types, keys, strict=True)):
            literal += key if i == 0 else "," + key
            text, quoted = self._text(column, source)
            if quoted and not text.null_count:
                parts += [literal + '"', text]
                literal = '"'
            else:
                parts += [literal, _or_null(text, quoted)]
                literal = ""
        parts += [literal + "}" + behind] if isinstance(behind, str) else [literal + "}", behind]
        return pc.binary_join_element_wise(*parts, "")

    def _object_without_nulls(
        self,
        columns: Sequence[pa.Array],
        types: Sequence[DataType],
        keys: Sequence[str],
        before: str | pa.Array,
        behind: str | pa.Array,
    ) -> pa.Array:
        parts = []
        for column, source, key in zip(columns, types, keys, strict=True):
            text, quoted = self._text(column, source)
            quote = '"' if quoted else ""
            parts.append(pc.fill_null(pc.binary_join_element_wise("," + key + quote, text, quote, ""), ""))
        fields = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, ""), 1)  # without the first comma
        return pc.binary_join_element_wise(before, "{", fields, "}", behind, "")

    def _text(self, column: pa.Array, source: DataType) -> tuple[pa.Array, bool]:
        """(the JSON text of each value, where NULL stays NULL; whether the texts must be quoted)."""
        match source.root:
            case root if root in _NUMERIC:
                return value_text(column, source), False
            case TypeRoot.FLOAT | TypeRoot.DOUBLE:
                return self._floating(column, source), False
            case TypeRoot.CHAR | TypeRoot.VARCHAR:
                return escaped(column), True
            case TypeRoot.VARIANT:
                return column.cast(pa.string()), False
            case TypeRoot.ARRAY:
                return self._array(column, source), False
            case TypeRoot.MAP:
                return self._map(column, source), False
            case TypeRoot.ROW:
                return self._row(column, source), False
            case TypeRoot.NULL:
                return pa.nulls(len(column), pa.string()), False
            case _:
                return value_text(column, source, iso=self._iso), True

    def _floating(self, column: pa.Array, source: DataType) -> pa.Array:
        text = value_text(column, source)
        finite = pc.is_finite(column)
        if pc.all(finite).as_py() in (True, None):
            return text
        return pc.if_else(finite, text, pc.binary_join_element_wise('"', text, '"', ""))

    def _row(self, column: pa.Array, source: DataType) -> pa.Array:
        keys = [json.dumps(name, ensure_ascii=False) + ":" for name in source.names]
        text = self._object(column.flatten(), source.children, keys, len(column))
        return _where_valid(column, text)

    def _array(self, column: pa.Array, source: DataType) -> pa.Array:
        lists, offsets, start, length = _span(column)
        text, quoted = self._text(lists.values.slice(start, length), source.children[0])
        return _joined(column, offsets, _or_null(text, quoted), "[", "]")

    def _map(self, column: pa.Array, source: DataType) -> pa.Array:
        key_type, item_type = source.children
        maps, offsets, start, length = _span(column)
        keys = value_text(maps.keys.slice(start, length), key_type, iso=self._iso)
        text, quoted = self._text(maps.items.slice(start, length), item_type)
        fields = pc.binary_join_element_wise('"', escaped(keys), '":', _or_null(text, quoted), "")
        return _joined(column, offsets, fields, "{", "}")


def joined_bytes(lines: pa.Array) -> pa.Buffer:
    """The bytes of all strings, one behind the other; they are not copied."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return data.slice(int(ends[0]), int(ends[-1] - ends[0])) if data is not None else pa.py_buffer(b"")


def escaped(text: pa.Array) -> pa.Array:
    """Texts as they are written between the quotes of a JSON string; if nothing must be escaped they are returned as they are."""
    for code in sorted(_to_escape(text), key=_BACKSLASH.__ne__):  # backslashes first: the others become some
        text = pc.replace_substring(text, chr(code), json.dumps(chr(code))[1:-1])
    return text


def _to_escape(text: pa.Array) -> set[int]:
    """Which quotes, backslashes and control characters are among the bytes. It is ten times faster than a pattern for each row."""
    found: set[int] = set()
    for piece in pieces_of(text):
        found.update(code for code in (_QUOTE, _BACKSLASH) if code not in found and (piece == code).any())
        if piece.min() < _SPACE:
            found.update(np.flatnonzero(np.bincount(piece[piece < _SPACE])).tolist())
    return found


def _or_null(text: pa.Array, quoted: bool) -> pa.Array:
    full = pc.binary_join_element_wise('"', text, '"', "") if quoted else text
    return pc.fill_null(full, "null") if full.null_count else full


def _where_valid(column: pa.Array, text: pa.Array) -> pa.Array:
    return text if not column.null_count else pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))


def _span(column: pa.Array) -> tuple[pa.Array, pa.Array, int, int]:
    """(a list or map array whose NULLs are empty, its offsets from 0, the first and the last position of the children that it covers)."""
    lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
    if column.null_count and lengths[column.is_null().to_numpy(zero_copy_only=False)].any():
        column = column.take(pa.array(np.arange(len(column))))  # after `take` there are no children behind NULLs
    ends = column.offsets.to_numpy(zero_copy_only=False)
    return column, pa.array(ends - ends[0]), int(ends[0]), int(ends[-1] - ends[0])


def _joined(column: pa.Array, offsets: pa.Array, texts: pa.Array, left: str, right: str) -> pa.Array:
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return _where_valid(column, pc.binary_join_element_wise(left, joined, right, ""))
