"""The protobuf format: messages of one type. Its options have Flink's names, and one more: the file that describes the type."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.format import BadRecord, DecodedRecords, ParsedColumn, ReadRequest, RecordChunk, RecordFormat
from flowrun.connectors.formats.avro.lanes import Lanes, Source
from flowrun.connectors.formats.protobuf.descriptors import CLIENT, FILE_OPTION, NAME_OPTION, message_class
from flowrun.connectors.formats.protobuf.encoding import MessageWriter
from flowrun.connectors.formats.protobuf.fields import Get, Put, check_field, getter, putter
from flowrun.connectors.formats.protobuf.wire import MessageReader, NotInStepError
from flowrun.connectors.formats.records import assemble, batch_of, concat_decoded
from flowrun.core.arrays import Integers
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import DataError, OptionError

_PIECE_RECORDS = 1 << 14
"""How many messages are read in step."""
_PIECE_BYTES = 1 << 28

_OPTIONS = (
    Option(
        "message-class-name",
        OptionType.STRING,
        "Full name of the message type, `shop.Order`; `$` before names within others is understood, as in Flink. Needed.",
    ),
    Option(
        "descriptor-file",
        OptionType.STRING,
        "File that describes the type: a descriptor set (`protoc --include_imports --descriptor_set_out`) or an `order_pb2.py`. Needed.",
    ),
    Option("ignore-parse-errors", OptionType.BOOLEAN, "Leave messages out that are none of the type.", default=False),
    Option(
        "read-default-values",
        OptionType.BOOLEAN,
        "Fields that are absent have their default value instead of NULL; in proto3 those without `optional` always have.",
        default=False,
    ),
    Option(
        "write-null-string-literal",
        OptionType.STRING,
        "Text that is written for NULL in lists and maps, which cannot hold it.",
        default="",
    ),
)


class ProtobufDecoder:
    """Decodes messages of one type.

    Args:
        schema: the columns of the rows.
        options: of the format.
    """

    has_header = False

    def __init__(self, schema: Schema, options: Options) -> None:
        self._schema = schema
        self._class = _described(options)
        fields = self._class.DESCRIPTOR.fields_by_name
        defaults = options.flag("protobuf.read-default-values")
        self._gets: list[Get] = []
        for column in schema:
            check_field(fields.get(column.name), column.type, column.name)
            self._gets.append(getter(fields[column.name], column.type, defaults=defaults))
        self._in_step: MessageReader | None = None
        with contextlib.suppress(NotInStepError):
            self._in_step = MessageReader(self._class, schema.names, schema.types, defaults=defaults)

    def read_header(self, record: bytes) -> None:
        """Nothing to do: there is no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        if self._in_step is None:
            return self._by_library(chunk, np.arange(len(chunk)))
        pieces = [
            (first, self._piece(chunk.slice(first, first + _PIECE_RECORDS), self._in_step))
            for first in range(0, max(len(chunk), 1), _PIECE_RECORDS)
        ]
        return concat_decoded(pieces, self._schema)

    def _piece(self, chunk: RecordChunk, reader: MessageReader) -> DecodedRecords:
        """The rows of some messages, read in step; the library reads those that are odd."""
        rows = len(chunk)
        records = np.arange(rows)
        if not rows or chunk.stops[-1] - chunk.starts[0] > _PIECE_BYTES:
            return self._by_library(chunk, records)
        begin = int(chunk.starts[0])
        source = Source(chunk.data.slice(begin, int(chunk.stops[-1]) - begin))
        columns = reader.read(Lanes(source, chunk.starts - begin, chunk.stops - begin, records))
        batch = batch_of(columns, self._schema, rows)
        if not source.failures:
            return DecodedRecords(batch, records)
        good = np.ones(rows, np.bool_)
        good[list(source.failures)] = False
        odd = self._by_library(chunk, records[~good])
        found = np.concatenate([records[good], odd.records])
        order = np.argsort(found)
        if not self._schema.fields:
            return DecodedRecords(batch_of([], self._schema, len(found)), found[order], odd.bad)
        both = pa.concat_batches([batch.filter(pa.array(good)), odd.columns])
        return DecodedRecords(both.take(pa.array(order)), found[order], odd.bad)

    def _by_library(self, chunk: RecordChunk, which: Integers) -> DecodedRecords:
        """The rows of those messages of a chunk, one message after the other."""
        view = memoryview(chunk.data)
        parse: Callable[[bytes], Any] = self._class.FromString
        messages: list[Any] = []
        records: list[int] = []
        bad: list[BadRecord] = []
        for i, start, stop in zip(
            which.tolist(), chunk.starts[which].tolist(), chunk.stops[which].tolist(), strict=True
        ):
            try:
                messages.append(parse(bytes(view[start:stop])))
                records.append(i)
            except Exception as error:
                bad.append(BadRecord(i, f"no {self._class.DESCRIPTOR.full_name}: {error}"))
        columns = [_column(messages, get, f.type) for get, f in zip(self._gets, self._schema, strict=True)]
        return assemble(self._schema, columns, np.array(records, np.int64), bad)


def _column(messages: list[Any], get: Get, type: DataType) -> ParsedColumn:
    """The values of a column, and what is wrong with those messages that have none."""
    try:
        return ParsedColumn(pa.array([get(message) for message in messages], type.arrow))
    except (ValueError, KeyError, OverflowError, pa.ArrowException):
        pass  # a value is found out below
    pieces: list[pa.Array] = []
    bad: dict[int, str] = {}
    for i, message in enumerate(messages):
        try:
            pieces.append(pa.array([get(message)], type.arrow))
        except KeyError as error:
            bad[i] = f"the enum has no value {error}"
        except (ValueError, OverflowError, pa.ArrowException) as error:
            bad[i] = f"no {type}: {error}"
        if i in bad:
            pieces.append(pa.nulls(1, type.arrow))
    return ParsedColumn(pa.concat_arrays(pieces), bad)


class ProtobufEncoder:
    """Encodes rows as messages of one type; fields of NULLs are absent.

    Args:
        schema: the columns of the rows.
        options: of the format.
    """

    def __init__(self, schema: Schema, options: Options) -> None:
        self._schema = schema
        self._options = options

    @cached_property
    def plan(self) -> tuple[Any, list[tuple[str, Put]]]:
        """(the class of the messages, what makes each of their fields).

        Raises:
            OptionError: the file that describes the type cannot be read, or a column does not fit.
            SetupError: protobuf is not installed.
        """
        made = _described(self._options)
        fields = made.DESCRIPTOR.fields_by_name
        null_text = str(self._options.get("protobuf.write-null-string-literal") or "")
        puts = []
        for column in self._schema:
            check_field(fields.get(column.name), column.type, column.name)
            puts.append((column.name, putter(fields[column.name], column.type, null_text)))
        return made, puts

    @cached_property
    def _in_step(self) -> MessageWriter | None:
        """What writes all messages at once; None: the library must write them."""
        with contextlib.suppress(NotInStepError):
            return MessageWriter(self.plan[0].DESCRIPTOR, self._schema.names, self._schema.types)
        return None

    def header(self) -> bytes:
        """Empty: single messages have no header."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All messages, one behind the other."""
        return pa.py_buffer(b"".join(self.encode_messages(columns).to_pylist()))

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """A message for each row.

        Raises:
            DataError: a value cannot be written.
        """
        made, puts = self.plan
        if self._in_step is not None:
            try:
                return self._in_step.write(columns.columns, columns.num_rows)
            except DataError as error:
                raise DataError(f"the row is no {made.DESCRIPTOR.full_name}: {error.message}", row=error.row) from None
        values = [column.to_pylist() for column in columns.columns]
        found: list[bytes] = []
        for row in range(columns.num_rows):
            given = ((name, put, column[row]) for (name, put), column in zip(puts, values, strict=True))
            try:
                fields = {name: put(value) for name, put, value in given if value is not None}
                found.append(made(**fields).SerializeToString(deterministic=True))
            except (TypeError, ValueError) as error:
                raise DataError(f"the row is no {made.DESCRIPTOR.full_name}: {error}", row=row) from None
        return pa.array(found, pa.binary())


def _described(options: Options) -> Any:
    return message_class(options.text(NAME_OPTION), options.text(FILE_OPTION))


def _check(_schema: Schema, options: Options) -> None:
    for name, hint in (
        (NAME_OPTION, "the full name of the message type, for example shop.Order"),
        (FILE_OPTION, "protoc --include_imports --descriptor_set_out=order.desc order.proto"),
    ):
        if not options.get(name):
            raise OptionError(name, f"option '{name}' is needed", hint=hint)


def _decoder(request: ReadRequest) -> ProtobufDecoder:
    return ProtobufDecoder(request.schema, request.options)


def _encoder(schema: Schema, options: Options) -> ProtobufEncoder:
    encoder = ProtobufEncoder(schema, options)
    if CLIENT.is_installed:
        _ = encoder.plan  # so that a column that does not fit is told now
    return encoder


FORMAT = RecordFormat(
    name="protobuf",
    summary="Protocol Buffers. For messages only.",
    extension="pb",
    options=_OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
    client=CLIENT,
)
