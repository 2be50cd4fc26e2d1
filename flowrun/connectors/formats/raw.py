"""The raw format: a record is the value of the only column: text, bytes, or a number or BOOLEAN of a fixed width, as in Apache Flink."""

from __future__ import annotations

import codecs

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import BadRecord, DecodedRecords, ReadRequest, RecordChunk, RecordFormat
from flowrun.connectors.formats.framing import at_any_line, framer_for_lines
from flowrun.connectors.formats.json_decoder import text_is_utf8
from flowrun.connectors.formats.records import batch_of
from flowrun.core.arrays import Bools
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError, OptionError

_WIDTHS = {
    TypeRoot.BOOLEAN: "i1",
    TypeRoot.TINYINT: "i1",
    TypeRoot.SMALLINT: "i2",
    TypeRoot.INTEGER: "i4",
    TypeRoot.BIGINT: "i8",
    TypeRoot.FLOAT: "f4",
    TypeRoot.DOUBLE: "f8",
}
_UTF_8, _BIG_ENDIAN = "utf-8", "big-endian"
_OPTIONS = (
    Option("charset", OptionType.STRING, "Encoding of text: UTF-8, ISO-8859-1, UTF-16BE …", default="UTF-8"),
    Option(
        "endianness",
        OptionType.ENUM,
        "Order of the bytes of numbers, which messages can hold.",
        default=_BIG_ENDIAN,
        choices=(_BIG_ENDIAN, "little-endian"),
    ),
)


class RawDecoder:
    """Copies records into one column; records that are no text of the charset, or not as wide as the number, are bad.

    Args:
        schema: the column, or none.
        charset: of text, as Python calls it.
        numbers: how NumPy calls the numbers; None: the column is text or bytes.
    """

    has_header = False

    def __init__(self, schema: Schema, charset: str, numbers: np.dtype[np.generic] | None) -> None:
        self._schema = schema
        self._charset = charset
        self._numbers = numbers

    def read_header(self, record: bytes) -> None:
        """Nothing to do: there is no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        records = np.arange(len(chunk))
        if not self._schema.fields:
            return DecodedRecords(batch_of([], self._schema, len(chunk)), records)
        reasons = self._bad(chunk)
        if not reasons:
            return DecodedRecords(batch_of([self._values(chunk)], self._schema, len(chunk)), records)
        good: Bools = np.ones(len(chunk), np.bool_)
        good[list(reasons)] = False
        kept = chunk.select(good)
        bad = tuple(BadRecord(i, reason) for i, reason in reasons.items())
        return DecodedRecords(batch_of([self._values(kept)], self._schema, len(kept)), records[good], bad)

    def _bad(self, chunk: RecordChunk) -> dict[int, str]:
        """The records that are no values, ascending, each with the reason."""
        kind = self._schema.types[0]
        if self._numbers is not None:
            lengths, width = chunk.stops - chunk.starts, self._numbers.itemsize
            wrong = np.flatnonzero(lengths != width).tolist()
            return {i: f"{kind} takes {width} bytes, got {lengths[i]}" for i in wrong}
        if kind.is_binary or (self._charset == _UTF_8 and text_is_utf8(chunk.data)):
            return {}
        found = {}
        for i in range(len(chunk)):
            try:
                chunk.record(i).decode(self._charset)
            except UnicodeDecodeError as error:
                found[i] = f"not {self._charset.upper()} text: {error.reason} at byte {error.start}"
        return found

    def _values(self, chunk: RecordChunk) -> pa.Array:
        """The records as an array; the bytes between them are removed with one mask."""
        kind = self._schema.types[0]
        if not len(chunk):
            return pa.array([], kind.arrow)
        if kind.is_character and self._charset != _UTF_8:
            return pa.array([chunk.record(i).decode(self._charset) for i in range(len(chunk))], kind.arrow)
        data = np.frombuffer(chunk.data, np.uint8)
        inside = np.zeros(len(data) + 1, np.int8)
        np.add.at(inside, chunk.starts, 1)
        np.add.at(inside, chunk.stops, -1)
        kept = data[np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)]
        if self._numbers is not None:
            numbers = kept.view(self._numbers)
            native = numbers != 0 if kind.root is TypeRoot.BOOLEAN else numbers.astype(self._numbers.newbyteorder("="))
            return pa.array(native, kind.arrow)
        ends = np.zeros(len(chunk) + 1, np.int32)
        np.cumsum(chunk.stops - chunk.starts, out=ends[1:])
        return pa.Array.from_buffers(kind.arrow, len(chunk), [None, pa.py_buffer(ends), pa.py_buffer(kept)])


class RawEncoder:
    """Writes the only column; NULL is no message, and an empty line.

    Args:
        charset: of text, as Python calls it.
        numbers: how NumPy calls the numbers; None: the column is text or bytes.
    """

    def __init__(self, charset: str, numbers: np.dtype[np.generic] | None) -> None:
        self._charset = charset
        self._numbers = numbers

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
            DataError: a value contains a line end, or a character that the charset does not have.
        """
        values = pc.fill_null(self.encode_messages(columns), b"")
        broken = pc.match_substring(values, "\n")
        if pc.any(broken).as_py():
            row = int(np.argmax(broken.to_numpy(zero_copy_only=False)))
            raise DataError("the raw format writes one line a row, but the value holds a line end", row=row)
        lines = pc.binary_join_element_wise(values, b"\n", b"")
        _, offsets, data = lines.buffers()
        size = int(np.frombuffer(offsets, np.int32)[len(lines)]) if len(lines) else 0
        return data.slice(0, size) if size else pa.py_buffer(b"")

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """The values as bytes; NULL where they are.

        Raises:
            DataError: a value has a character that the charset does not have.
        """
        values = columns.column(0)
        if self._numbers is not None:
            return self._of_numbers(values)
        if self._charset == _UTF_8 or not pa.types.is_string(values.type):
            return values.cast(pa.binary())
        found: list[bytes | None] = []
        for row, text in enumerate(values.to_pylist()):
            try:
                found.append(None if text is None else text.encode(self._charset))
            except UnicodeEncodeError as error:
                wrong = text[error.start]
                raise DataError(f"raw: charset {self._charset.upper()} has no character {wrong!r}", row=row) from error
        return pa.array(found, pa.binary())

    def _of_numbers(self, values: pa.Array) -> pa.Array:
        assert self._numbers is not None
        width = self._numbers.itemsize
        filled = pc.fill_null(values, False if pa.types.is_boolean(values.type) else 0)
        data = filled.to_numpy(zero_copy_only=False).astype(self._numbers)
        written = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(data)])
        return pc.if_else(values.is_valid(), written.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _charset(options: Options) -> str:
    """The charset as Python calls it.

    Raises:
        OptionError: there is none of this name, or it does not say the order of bytes.
    """
    given = options.text("raw.charset")
    try:
        found = codecs.lookup(given).name
        "a".encode(found)
    except LookupError:
        raise OptionError("raw.charset", f"raw: there is no charset '{given}'", hint="for example UTF-8") from None
    if found in ("utf-16", "utf-32"):
        raise OptionError("raw.charset", f"raw: charset '{given}' leaves the order of bytes open", hint=f"{given}BE")
    return found


def _numbers(schema: Schema, options: Options) -> np.dtype[np.generic] | None:
    width = _WIDTHS.get(schema.types[0].root) if schema.fields else None
    order = ">" if options.text("raw.endianness") == _BIG_ENDIAN else "<"
    return None if width is None else np.dtype(order + width)


def _check(schema: Schema, options: Options) -> None:
    if len(schema) > 1 or not all(_is_text(t) or t.root in _WIDTHS for t in schema.types):
        raise OptionError(
            "format",
            f"raw: the table needs exactly one column, got ({schema})",
            hint="it may be STRING, BYTES, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT or DOUBLE",
        )
    _charset(options)


def _check_lines(schema: Schema, options: Options) -> None:
    if not all(_is_text(t) for t in schema.types):
        hint = "for example csv, which writes numbers as text"
        raise OptionError("format", f"raw: lines hold STRING or BYTES only, got ({schema})", hint=hint)
    charset = _charset(options)
    if "\r\n".encode(charset) != b"\r\n":
        raise OptionError("raw.charset", f"raw: lines cannot be found in charset '{options.text('raw.charset')}'")


def _is_text(kind: DataType) -> bool:
    return kind.is_character or kind.is_binary


def _decoder(request: ReadRequest) -> RawDecoder:
    _check(request.declared, request.options)
    return RawDecoder(request.schema, _charset(request.options), _numbers(request.schema, request.options))


def _encoder(schema: Schema, options: Options) -> RawEncoder:
    return RawEncoder(_charset(options), _numbers(schema, options))


FORMAT = RecordFormat(
    name="raw",
    summary="One column: a line of a file as STRING or BYTES, or a whole message, which may be a number, too.",
    extension="txt",
    options=_OPTIONS,
    check=_check,
    check_lines=_check_lines,
    create_decoder=_decoder,
    create_encoder=_encoder,
    create_framer=framer_for_lines,
    splittable=at_any_line,
    null_is_no_message=True,
)
