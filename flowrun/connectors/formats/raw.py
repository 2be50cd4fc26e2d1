"""The raw format: a record is the value of the only column, which is STRING (UTF-8 text) or BYTES."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import BadRecord, DecodedRecords, ReadRequest, RecordChunk, RecordFormat
from flowrun.connectors.formats.framing import at_any_line, framer_for_lines
from flowrun.connectors.formats.json_decoder import text_is_utf8
from flowrun.connectors.formats.records import batch_of
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.errors import DataError, OptionError


class RawDecoder:
    """Copies records into one column; STRING records that are not UTF-8 are bad."""

    has_header = False

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def read_header(self, record: bytes) -> None:
        """Nothing to do: there is no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        records = np.arange(len(chunk))
        if not self._schema.fields:
            return DecodedRecords(batch_of([], self._schema, len(chunk)), records)
        if self._schema.types[0].is_binary or text_is_utf8(chunk.data):
            return DecodedRecords(batch_of([self._values(chunk)], self._schema, len(chunk)), records)
        bad, good = [], np.ones(len(chunk), np.bool_)
        for i in range(len(chunk)):
            try:
                chunk.record(i).decode("utf-8")
            except UnicodeDecodeError as error:
                bad.append(BadRecord(i, f"not UTF-8 text: {error.reason} at byte {error.start}"))
                good[i] = False
        kept = chunk.select(good)
        return DecodedRecords(batch_of([self._values(kept)], self._schema, len(kept)), records[good], tuple(bad))

    def _values(self, chunk: RecordChunk) -> pa.Array:
        """The records as an array; the bytes between them are removed with one mask."""
        arrow = self._schema.types[0].arrow
        if not len(chunk):
            return pa.array([], arrow)
        data = np.frombuffer(chunk.data, np.uint8)
        lengths = chunk.stops - chunk.starts
        ends = np.zeros(len(chunk) + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        inside = np.zeros(len(data) + 1, np.int8)
        np.add.at(inside, chunk.starts, 1)
        np.add.at(inside, chunk.stops, -1)
        kept = data[np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)]
        return pa.Array.from_buffers(arrow, len(chunk), [None, pa.py_buffer(ends), pa.py_buffer(kept)])


class RawEncoder:
    """Writes the only column; NULL is an empty record."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def header(self) -> bytes:
        """Empty: there is no header."""
        return b""

    @property
    def refuses(self) -> bool:
        """True: values with a line end cannot be written."""
        return True

    def check(self, columns: pa.RecordBatch) -> None:
        """Check that no value contains a line end.

        Raises:
            DataError: one does.
        """
        self.encode(columns)

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """A line for each row.

        Raises:
            DataError: a value contains a line end.
        """
        values = self.encode_messages(columns)
        broken = pc.match_substring(values, "\n")
        if pc.any(broken).as_py():
            row = int(np.argmax(broken.to_numpy(zero_copy_only=False)))
            raise DataError("the raw format writes one line a row, but the value holds a line end", row=row)
        lines = pc.binary_join_element_wise(values, b"\n", b"")
        _, offsets, data = lines.buffers()
        size = int(np.frombuffer(offsets, np.int32)[len(lines)]) if len(lines) else 0
        return data.slice(0, size) if size else pa.py_buffer(b"")

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """The values as bytes."""
        return pc.fill_null(columns.column(0).cast(pa.binary()), b"")


def _check(schema: Schema, _options: Options) -> None:
    if len(schema) > 1 or any(not (t.is_character or t.is_binary) for t in schema.types):
        raise OptionError("format", f"raw: the table needs exactly one column, STRING or BYTES, got ({schema})")


def _decoder(request: ReadRequest) -> RawDecoder:
    _check(request.declared, request.options)
    return RawDecoder(request.schema)


def _encoder(schema: Schema, _options: Options) -> RawEncoder:
    return RawEncoder(schema)


FORMAT = RecordFormat(
    name="raw",
    summary="One STRING or BYTES column: a line of a file, or a whole message.",
    extension="txt",
    options=(),
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
    create_framer=framer_for_lines,
    splittable=at_any_line,
)
