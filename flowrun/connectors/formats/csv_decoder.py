"""Decodes CSV records: pyarrow splits blocks of lines into columns of text, and the text kernels convert these to values."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from flowrun.api.format import BadRecord, DecodedRecords, ParsedColumn, RecordChunk
from flowrun.connectors.formats.csv_options import CsvSettings
from flowrun.connectors.formats.json_decoder import text_is_utf8
from flowrun.connectors.formats.records import assemble, concat_decoded
from flowrun.connectors.formats.text_values import is_textual, parse_text
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError, did_you_mean

_EXACT_RECORDS = 16


class CsvDecoder:
    """Decodes delimited text.

    Args:
        schema: the columns to give.
        declared: all columns of the table, in the order that fields have in a file without a header.
        settings: the format's options.
    """

    def __init__(self, schema: Schema, declared: Schema, settings: CsvSettings) -> None:
        self._schema = schema
        self._settings = settings
        self._declared = declared.names
        self._names = list(declared.names)
        self._convert = pa.csv.ConvertOptions(
            check_utf8=False,
            column_types={n: pa.string() for n in self._names},
            null_values=[] if settings.null_literal is None else [settings.null_literal],
            strings_can_be_null=settings.null_literal is not None,
            include_columns=list(schema.names) or self._names[:1],
            include_missing_columns=True,
        )
        self._parse = pa.csv.ParseOptions(
            delimiter=settings.delimiter,
            quote_char=settings.quote if settings.quote is not None else False,
            double_quote=True,
            escape_char=settings.escape if settings.escape is not None else False,
            newlines_in_values=True,
            ignore_empty_lines=True,
        )

    @property
    def has_header(self) -> bool:
        """Whether files begin with the names of their columns."""
        return self._settings.header

    def read_header(self, record: bytes) -> None:
        """Take the column order of a file from its first line; columns that the file lacks are NULL.

        Names that the table does not declare may be empty, and stand there twice.

        Raises:
            DataError: the line is broken, names a column of the table twice, or none of them.
        """
        found = self._split(record.decode("utf-8-sig"))
        if found is None:
            raise DataError(f"the header line is broken: {record[:80].decode(errors='replace')}")
        names = [n.strip() for n in found]
        twice = next((n for i, n in enumerate(names) if n in self._declared and n in names[:i]), None)
        if twice is not None:
            raise DataError(
                f"the header line names column '{twice}' twice", hint="leave it out of the table, or rename one of them"
            )
        if not set(names) & set(
            self._declared
        ):  # compared with all declared columns, so that pruning does not change what is an error
            hint = did_you_mean(self._declared[0], names)
            raise DataError(f"the header names none of the columns {', '.join(self._declared)}", hint=hint)
        self._names = names

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        if not chunk.separated:
            chunk = chunk.as_lines()
        pieces: list[tuple[int, DecodedRecords]] = []
        if not len(chunk):
            return assemble(self._schema, self._values([[]] * len(self._schema)), np.empty(0, np.int64))
        self._halve(chunk, 0, pieces)
        return concat_decoded(pieces, self._schema)

    def _halve(self, chunk: RecordChunk, first: int, pieces: list[tuple[int, DecodedRecords]]) -> None:
        columns = self._fields(chunk)
        if columns is not None:
            pieces.append((first, assemble(self._schema, self._parsed(columns), np.arange(len(chunk)))))
        elif len(chunk) <= _EXACT_RECORDS:
            pieces.append((first, self._exact(chunk)))
        else:
            middle = len(chunk) // 2
            self._halve(chunk.slice(0, middle), first, pieces)
            self._halve(chunk.slice(middle, len(chunk)), first + middle, pieces)

    def _fields(self, chunk: RecordChunk) -> list[pa.Array] | None:
        """The text of each column, as pyarrow splits the records; None if it cannot split all of them into the declared fields."""
        start, stop = int(chunk.starts[0]), int(chunk.stops[-1])
        text = chunk.data.slice(start, stop - start)
        if not text_is_utf8(text):
            return None
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(text),
                read_options=pa.csv.ReadOptions(
                    use_threads=False,
                    block_size=text.size + 1,
                    column_names=self._names,
                    autogenerate_column_names=False,
                ),
                parse_options=self._parse,
                convert_options=self._convert,
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(chunk):
            return None
        return [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns[: len(self._schema)]]

    def _parsed(self, columns: list[pa.Array]) -> list[ParsedColumn]:
        parsed = [self._column(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        return [ParsedColumn(p.values) for p in parsed] if self._settings.ignore_parse_errors else parsed

    def _values(self, columns: list[list[str | None]]) -> list[ParsedColumn]:
        return self._parsed([pa.array(c, pa.string()) for c in columns])

    def _column(self, text: pa.Array, target: DataType) -> ParsedColumn:
        if text.type == pa.null():
            text = text.cast(pa.string())
        if target.is_character:
            return ParsedColumn(text)
        empty = pc.equal(text, "")
        if pc.any(empty).as_py():  # an empty field is NULL for everything but text
            text = pc.if_else(empty, pa.scalar(None, pa.string()), text)
        if is_textual(target):
            return parse_text(text, target)
        return self._nested(text, target)

    def _nested(self, text: pa.Array, target: DataType) -> ParsedColumn:
        """ARRAY and ROW values, whose elements are separated by `array-element-delimiter`."""
        parts = pc.split_pattern(text, self._settings.element_delimiter)
        if self._settings.null_literal is not None:
            values = parts.values
            values = pc.if_else(pc.equal(values, self._settings.null_literal), pa.scalar(None, pa.string()), values)
            mask = parts.is_null() if parts.null_count else None
            parts = pa.ListArray.from_arrays(parts.offsets, values, mask=mask)
        bad: dict[int, str] = {}
        if target.root is TypeRoot.ARRAY:
            elements = self._column(parts.values, target.children[0])
            for index, reason in elements.bad.items():
                row = int(np.searchsorted(parts.offsets.to_numpy(), index, side="right")) - 1
                bad.setdefault(row, f"element {reason}")
            mask = parts.is_null() if parts.null_count else None
            return ParsedColumn(
                pa.ListArray.from_arrays(parts.offsets, elements.values, type=target.arrow, mask=mask), bad
            )
        width = len(target.children)
        lengths = pc.list_value_length(parts)
        odd = pc.fill_null(pc.not_equal(lengths, width), False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(odd).tolist():
            bad[row] = f"'{text[row].as_py()}' has {lengths[row].as_py()} fields, not the {width} of {target}"
        usable = pc.if_else(pc.equal(lengths, width), parts, pa.scalar(None, parts.type))
        children = []
        for i, (name, child) in enumerate(zip(target.names, target.children, strict=True)):
            parsed = self._column(pc.list_element(usable, i), child)
            children.append(parsed.values)
            for row, reason in parsed.bad.items():
                bad.setdefault(row, f"field '{name}': {reason}")
        return ParsedColumn(pa.StructArray.from_arrays(children, fields=list(target.arrow), mask=usable.is_null()), bad)

    def _exact(self, chunk: RecordChunk) -> DecodedRecords:
        """The rows, split one by one, with the reason for each record that cannot be split."""
        places: list[int] = []
        rows: list[list[str]] = []
        bad: list[BadRecord] = []
        for i in range(len(chunk)):
            reason = "a quote is opened but not closed, or text follows it"
            try:
                fields = self._split(chunk.record(i).decode("utf-8"))
            except UnicodeDecodeError as error:
                fields, reason = None, f"not UTF-8 text: {error.reason} at byte {error.start}"
            if fields is not None and len(fields) != len(self._names):
                reason = f"expected {len(self._names)} fields, got {len(fields)}"
                fields = None
            if fields is None:
                bad.append(BadRecord(i, reason))
            else:
                rows.append(fields)
                places.append(i)
        null = self._settings.null_literal
        columns: list[list[str | None]] = []
        for name in self._schema.names:
            index = self._names.index(name) if name in self._names else None
            columns.append([None if index is None or r[index] == null else r[index] for r in rows])
        return assemble(self._schema, self._values(columns), np.array(places, np.int64), bad)

    def _split(self, record: str) -> list[str] | None:
        """The fields of one record; None if its quotes are not balanced."""
        settings = self._settings
        reader = csv.reader(
            [record],
            delimiter=settings.delimiter,
            quotechar=settings.quote,
            quoting=csv.QUOTE_NONE if settings.quote is None else csv.QUOTE_MINIMAL,
            escapechar=settings.escape,
            strict=True,
        )
        try:
            rows = list(reader)
        except csv.Error:
            return None
        return rows[0] if len(rows) == 1 else None
