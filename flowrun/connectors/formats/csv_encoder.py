"""Encodes rows as CSV: columns of text, quoted where necessary, are joined element by element into one buffer, the output."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.csv_options import CsvSettings
from flowrun.connectors.formats.json_encoder import MAX_ENCODED_BYTES
from flowrun.connectors.formats.value_text import pieces_of, value_text
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError


class CsvEncoder:
    """Encodes rows as delimited lines. A field with a delimiter, a quote or a line end is quoted, and quotes in it are doubled."""

    def __init__(self, schema: Schema, settings: CsvSettings) -> None:
        self._schema = schema
        self._settings = settings
        self._null = settings.null_literal or ""
        special = settings.delimiter + (settings.quote or "") + (settings.escape or "") + "\r\n"
        self._codes = [ord(c) for c in special + ("#" if settings.comments else "")]
        self._special = "[" + re.escape(special) + "]" + ("|^#" if settings.comments else "")

    def header(self) -> bytes:
        """The line of column names, if the option `header` is on."""
        if not self._settings.header:
            return b""
        names = self._quoted(pa.array(self._schema.names, pa.string())).to_pylist()
        return (self._settings.delimiter.join(names) + "\n").encode()

    @property
    def refuses(self) -> bool:
        """Whether there are values that cannot be written: without quotes, those with a delimiter or a line end."""
        return self._settings.quote is None

    def check(self, columns: pa.RecordBatch) -> None:
        """Check that all values can be written.

        Raises:
            DataError: a value needs quotes, and the format has none.
        """
        if self.refuses:
            self._joined(columns, "")

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All rows as delimited lines."""
        if columns.nbytes > MAX_ENCODED_BYTES and columns.num_rows > 1:
            middle = columns.num_rows // 2
            halves = (columns.slice(0, middle), columns.slice(middle))
            return pa.py_buffer(b"".join(memoryview(self.encode(half)) for half in halves))
        lines = self._joined(columns, "\n")
        _, offsets, data = lines.buffers()
        ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
        return data.slice(int(ends[0]), int(ends[-1] - ends[0])) if data is not None else pa.py_buffer(b"")

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """A delimited line for each row, without line end."""
        return self._joined(columns, "")

    def _joined(self, columns: pa.RecordBatch, end: str) -> pa.Array:
        parts: list[pa.Array | str] = []
        for i, (column, field) in enumerate(zip(columns.columns, self._schema, strict=True)):
            if i:
                parts.append(self._settings.delimiter)
            parts.append(self._field(column, field.type))
        return pc.binary_join_element_wise(*parts, end, "")

    def _field(self, column: pa.Array, source: DataType) -> pa.Array:
        text = self._text(column, source)
        return pc.fill_null(self._quoted(text), self._null)

    def _text(self, column: pa.Array, source: DataType) -> pa.Array:
        between = self._settings.element_delimiter
        match source.root:
            case TypeRoot.ARRAY:
                texts = pc.fill_null(self._text(column.values, source.children[0]), self._null)
                lists = pa.ListArray.from_arrays(pa.array(column.offsets.to_numpy()), texts)
                joined = pc.binary_join(lists, between)
                return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string()))
            case TypeRoot.ROW:
                texts = [
                    pc.fill_null(self._text(child, kind), self._null)
                    for child, kind in zip(column.flatten(), source.children, strict=True)
                ]
                joined = pc.binary_join_element_wise(*texts, between)
                return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string()))
            case _:
                return value_text(column, source)

    def _quoted(self, text: pa.Array) -> pa.Array:
        if not any((piece == code).any() for piece in pieces_of(text) for code in self._codes):
            return text
        special = pc.match_substring_regex(text, self._special)
        if not pc.any(special).as_py():
            return text
        quote, escape = self._settings.quote, self._settings.escape
        if quote is None:
            row = int(np.argmax(pc.fill_null(special, False).to_numpy(zero_copy_only=False)))
            raise DataError(
                f"'{text[row].as_py()}' holds a delimiter or line end and cannot be written without quotes",
                row=row,
                hint="leave csv.disable-quote-character off, or choose another csv.field-delimiter",
            )
        inner = text if escape is None else pc.replace_substring(text, escape, escape * 2)
        inner = pc.replace_substring(inner, quote, quote * 2)
        return pc.if_else(special, pc.binary_join_element_wise(quote, inner, quote, ""), text)
