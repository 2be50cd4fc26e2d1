"""Decodes JSON records: a compiled reader takes what is plainly right, pyarrow's reader most of the rest, and Python's parsers what is odd.

The compiled reader (`json_compiled`) says of each record whether it read it. The others go on to pyarrow, as all do where the compiled
reader was not built. pyarrow parses many records at once. If it refuses them, they are halved until those that it refuses are in small
pieces. Python's JSON parsers read these, and say exactly what is wrong with which record. So a few odd records cost little, and the
result never depends on where blocks begin. docs/adr/044-a-compiled-first-reader-of-json.md says which other parsers were tried.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from flowrun.api.format import BadRecord, DecodedRecords, Offsets, ParsedColumn, RecordChunk
from flowrun.connectors.formats.json_compiled import IN_DOUBT, READ, compiled_reader
from flowrun.connectors.formats.json_values import (
    MAX_NESTING,
    LostNumberTextError,
    column_from_json,
    load_exact,
    load_fast,
    needs_exact_numbers,
    nesting,
)
from flowrun.connectors.formats.json_wire import NoWireFormError, WireSchema, wire_schema
from flowrun.connectors.formats.records import assemble, batch_of, concat_decoded, merge_decoded
from flowrun.connectors.formats.text_values import OddTextError
from flowrun.core.schema import Schema

_BLANKS = b"\t\r "
_BLANK = np.isin(np.arange(256), list(_BLANKS))
"""Byte → whether it is white space within a line of JSON."""
_OPEN, _CLOSE = ord("{"), ord("}")
_EXACT_RECORDS = 64
"""Pieces of this many records or fewer are not halved."""
_ODD_CHUNKS = 2
"""After how many consecutive chunks of mostly odd records a fast reader is tried only now and then."""
_RETRY_EVERY = 16
_E, _MINUS, _ZERO, _POINT = ord("e"), ord("-"), ord("0"), ord(".")
_TINY_NUMBER = re.compile(rb"(?:^|[^0-9A-Za-z_.-])-?[0-9.]+[eE]-0*(?:[2-9][0-9]|[0-9]{3,})(?![0-9A-Za-z_-])")
_NUMBER_WINDOW = 100


class _Trust:
    """Whether a fast reader is worth a try: not if it could not read most of the records before, but for a chunk now and then."""

    def __init__(self) -> None:
        self._odd_chunks = 0
        self._chunks = 0

    def next_chunk(self) -> bool:
        """Whether to try it for the next chunk."""
        self._chunks += 1
        return self._odd_chunks < _ODD_CHUNKS or self._chunks % _RETRY_EVERY == 0

    def note(self, odd: int, records: int) -> None:
        """Note how many records of a chunk it could not read."""
        self._odd_chunks = self._odd_chunks + 1 if odd * 2 > records else 0


class JsonDecoder:
    """Decodes records that are JSON objects.

    Args:
        schema: the columns to give; other fields of the objects are ignored.
        ignore_parse_errors: whether a field that cannot be read becomes NULL, instead of making its record bad.
        fail_on_missing_field: whether a field that is absent (not one that is null) makes its record bad.
        compiled: whether the compiled reader comes first, if there is one. Rows and errors are the same without it.
    """

    has_header = False

    def __init__(
        self,
        schema: Schema,
        *,
        ignore_parse_errors: bool = False,
        fail_on_missing_field: bool = False,
        compiled: bool = True,
    ):
        self._schema = schema
        self._ignore = ignore_parse_errors
        self._no_missing = fail_on_missing_field
        self._exact_numbers = any(needs_exact_numbers(t) for t in schema.types)
        self._widened = False
        self._compiled = compiled_reader(schema, all_fields=fail_on_missing_field) if compiled else None
        self._compiled_trust = _Trust()
        self._arrow_trust = _Trust()
        self._wire = self._new_wire()

    def _new_wire(self) -> WireSchema | None:
        if not self._schema.fields:
            return None
        try:
            return wire_schema(self._schema, widened=self._widened)
        except NoWireFormError:
            return None

    def read_header(self, record: bytes) -> None:
        """Nothing to do: JSON has no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        if self._compiled is None or not self._compiled_trust.next_chunk():
            return self._parse(chunk)
        try:
            found = self._compiled.read(chunk)
        except OddTextError:
            found = None
        if found is None:
            self._compiled_trust.note(len(chunk), len(chunk))
            return self._parse(chunk)
        columns, statuses = found
        doubts = statuses == IN_DOUBT
        self._compiled_trust.note(int(np.count_nonzero(doubts)), len(chunk))
        read = DecodedRecords(columns, np.flatnonzero(statuses == READ))
        if not doubts.any():
            return read
        return merge_decoded(read, self._parse(chunk.select(doubts)), np.flatnonzero(doubts))

    def _parse(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk, as pyarrow and Python's parsers read them."""
        if self._wire is None or not self._arrow_trust.next_chunk():
            return self._exact(chunk)
        if not chunk.separated:
            chunk = chunk.as_lines()
            if not chunk.separated:
                return self._exact(chunk)
        trimmed, places = _trim(chunk)
        if not len(trimmed):
            return DecodedRecords(batch_of([], self._schema, 0), places)
        pieces: list[tuple[int, DecodedRecords]] = []
        odd = self._halve(trimmed, 0, pieces)
        self._arrow_trust.note(odd, len(trimmed))
        decoded = concat_decoded(pieces, self._schema)
        if len(places) == len(chunk):
            return decoded
        bad = tuple(BadRecord(int(places[b.index]), b.reason) for b in decoded.bad)
        return DecodedRecords(decoded.columns, places[decoded.records], bad)

    def _halve(self, chunk: RecordChunk, first: int, pieces: list[tuple[int, DecodedRecords]]) -> int:
        """Decode the records from `first` on and append them to `pieces`; gives how many of them Python had to read."""
        columns = self._fast(chunk)
        if columns is not None:
            pieces.append((first, DecodedRecords(columns, np.arange(len(chunk)))))
            return 0
        if len(chunk) <= _EXACT_RECORDS:
            pieces.append((first, self._exact(chunk)))
            return len(chunk)
        middle = len(chunk) // 2
        odd = self._halve(chunk.slice(0, middle), first, pieces)
        return odd + self._halve(chunk.slice(middle, len(chunk)), first + middle, pieces)

    def _fast(self, chunk: RecordChunk) -> pa.RecordBatch | None:
        """The rows as pyarrow reads them, one for each record; None if it cannot read all of them."""
        if not _one_object_a_line(chunk):
            return None  # pyarrow would also crash on a line that is just `null`
        start, stop = int(chunk.starts[0]), int(chunk.stops[-1])
        text = chunk.data.slice(start, stop - start)
        if _may_be_too_deep(chunk, text):
            return None
        if self._exact_numbers and _has_tiny_number(text):
            return None
        if not text_is_utf8(text):  # pyarrow would read it, and kernels would stumble over it
            return None
        while True:
            wire = self._wire
            assert wire is not None
            try:
                return self._parse_block(text, len(chunk), wire)
            except (pa.ArrowInvalid, OddTextError) as error:
                if self._widened or not _finer_than_declared(str(error)):
                    return None
                self._widened = True
                self._wire = self._new_wire()

    def _parse_block(self, text: pa.Buffer, rows: int, wire: WireSchema) -> pa.RecordBatch | None:
        table = pa.json.read_json(
            pa.BufferReader(text),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=wire.arrow, newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != rows:
            return None
        arrays: list[pa.Array] = []
        for column, finish in zip(table.columns, wire.finishes, strict=True):
            array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            if self._no_missing and array.null_count:
                return None
            arrays.append(array if finish is None else finish(array))
        return batch_of(arrays, self._schema, rows)

    def _exact(self, chunk: RecordChunk) -> DecodedRecords:
        """The rows as Python's parsers read them."""
        loads = load_exact if self._exact_numbers else load_fast
        places: list[int] = []
        documents: list[dict[str, Any]] = []
        bad: list[BadRecord] = []
        for i in range(len(chunk)):
            record = chunk.record(i).strip(_BLANKS)  # as _trim does: errors count characters from the same place
            if not record or record.isspace():
                continue
            try:
                document = loads(record)
            except ValueError as error:
                bad.append(BadRecord(i, str(error)))
                continue
            if type(document) is dict:
                documents.append(document)
                places.append(i)
            else:
                bad.append(BadRecord(i, f"expected a JSON object, got {json.dumps(document, default=str)[:40]}"))
        try:
            columns = self._columns(documents)
        except LostNumberTextError:  # a number for a STRING: parse again, and keep numbers as they are written
            documents = [load_exact(chunk.record(i)) for i in places]
            columns = self._columns(documents)
        if self._ignore:
            columns = [ParsedColumn(c.values) for c in columns]
        if self._no_missing:
            self._report_missing(documents, columns)
        return assemble(self._schema, columns, np.array(places, np.int64), bad)

    def _columns(self, documents: list[dict[str, Any]]) -> list[ParsedColumn]:
        return [column_from_json([d.get(c.name) for d in documents], c.type) for c in self._schema]

    def _report_missing(self, documents: list[dict[str, Any]], columns: list[ParsedColumn]) -> None:
        for column, parsed in zip(self._schema, columns, strict=True):
            for i, document in enumerate(documents):
                if column.name not in document:
                    parsed.bad.setdefault(i, "the field is missing")


def text_is_utf8(text: pa.Buffer) -> bool:
    """Whether the bytes are UTF-8. For ASCII this takes nearly no time."""
    view = np.frombuffer(text, np.uint8)
    if not len(view) or int(view.max()) < 128:
        return True
    try:
        str(memoryview(text), "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _finer_than_declared(message: str) -> bool:
    """Whether pyarrow's error is about a timestamp or a decimal with more digits than its type has, or in another spelling."""
    return "requires scale" in message or "to timestamp[" in message


def _trim(chunk: RecordChunk) -> tuple[RecordChunk, Offsets]:
    """(the chunk without white space around records and without blank records, the index that each record had)."""
    starts, stops = chunk.starts, chunk.stops
    data = np.frombuffer(chunk.data, np.uint8)
    if len(starts) and starts[-1] < len(data) and _one_object_a_line(chunk):
        return chunk, np.arange(len(starts))
    places = np.flatnonzero(stops > starts)
    if len(places) != len(starts):
        starts, stops = starts[places], stops[places]
    if len(starts) and _BLANK[data[stops - 1]].any():  # lines that end in CR LF
        stops = stops - _BLANK[data[stops - 1]]
        keep = starts < stops
        starts, stops, places = starts[keep], stops[keep], places[keep]
    if len(starts) and (_BLANK[data[starts]] | _BLANK[data[stops - 1]]).any():
        begin = int(starts[0])
        solid = np.flatnonzero(~_BLANK[data[begin : int(stops[-1])]]) + begin
        first, after = np.searchsorted(solid, starts), np.searchsorted(solid, stops)
        keep = first < after
        starts, stops, places = solid[first[keep]], solid[after[keep] - 1] + 1, places[keep]
    return RecordChunk(chunk.data, starts, stops, chunk.separated), places


def _may_be_too_deep(chunk: RecordChunk, text: pa.Buffer) -> bool:
    """Whether some record may be nested too deeply. Most records are too short for that, which is known without reading them."""
    if int((chunk.stops - chunk.starts).max(initial=0)) <= 2 * MAX_NESTING:
        return False
    data = np.frombuffer(text, np.uint8)
    if int(np.count_nonzero((data | 0x20) == _OPEN)) <= MAX_NESTING:
        return False
    long = np.flatnonzero(chunk.stops - chunk.starts > 2 * MAX_NESTING)
    records = (chunk.record(int(i)) for i in long)
    return any(r.count(b"[") + r.count(b"{") > MAX_NESTING and nesting(r) > MAX_NESTING for r in records)


def _has_tiny_number(text: pa.Buffer) -> bool:
    """Whether some number has a large negative exponent: pyarrow 26 crashes when it converts 1e-999999999 to a decimal."""
    data = np.frombuffer(text, np.uint8)
    exponents = ((data[1:-2] | 0x20) == _E) & (data[2:-1] == _MINUS)
    if not exponents.any():
        return False
    places = np.flatnonzero(exponents) + 1
    digits = (data[places - 1] - _ZERO < 10) | (data[places - 1] == _POINT)
    places = places[digits & (data[places + 2] - _ZERO < 10)]
    view = memoryview(text)
    return any(_TINY_NUMBER.search(view[max(0, p - _NUMBER_WINDOW) : p + _NUMBER_WINDOW]) for p in places.tolist())


def _one_object_a_line(chunk: RecordChunk) -> bool:
    """Whether each record begins and ends with a brace: then no object spans lines, and counting finds lines with several."""
    data = np.frombuffer(chunk.data, np.uint8)
    return bool((data[chunk.starts] == _OPEN).all() and (data[chunk.stops - 1] == _CLOSE).all())
