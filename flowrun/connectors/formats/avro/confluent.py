"""The avro-confluent format: Avro records behind the number of their schema in a schema registry. Its options have Flink's names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.format import BadRecord, DecodedRecords, ReadRequest, RecordChunk, RecordFormat
from flowrun.connectors.formats.avro.columns import MisfitError
from flowrun.connectors.formats.avro.encoding import AvroEncoder
from flowrun.connectors.formats.avro.reading import AvroReader
from flowrun.connectors.formats.avro.registry_options import REGISTRY_OPTIONS, RegistrySettings, registry_settings
from flowrun.connectors.formats.avro.schema import AvroSchemaError, parse_schema
from flowrun.connectors.formats.avro.schema_registry import SchemaRegistry, UnknownSchemaError, schema_registry
from flowrun.connectors.formats.avro.types import check_types, same_meaning, schema_text
from flowrun.connectors.formats.records import batch_of
from flowrun.core.arrays import Integers
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.errors import OptionError

_NAME = "avro-confluent"
_HEAD_BYTES = 5
"""A zero and the number of the schema, four bytes, the highest first."""


class ConfluentDecoder:
    """Decodes records of any schemas in a registry: each is read with the schema that it was written with, as the table's columns.

    Args:
        registry: where the schemas are.
        schema: the columns of the rows.
    """

    has_header = False

    def __init__(self, registry: SchemaRegistry, schema: Schema) -> None:
        self._registry = registry
        self._schema = schema
        self._readers: dict[int, AvroReader] = {}

    def read_header(self, record: bytes) -> None:
        """Nothing to do: there is no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`.

        Raises:
            ConnectorError: the registry cannot be asked.
        """
        numbers = _schema_numbers(chunk)
        pieces: list[tuple[Integers, DecodedRecords]] = []
        bad: list[BadRecord] = []
        for number in np.unique(numbers).tolist():
            which = np.flatnonzero(numbers == number)
            reader = self._reader(number)
            if isinstance(reader, str):
                bad += (BadRecord(i, reader) for i in which.tolist())
                continue
            part = RecordChunk(chunk.data, chunk.starts[which], chunk.stops[which], separated=False)
            decoded = reader.read(part, _HEAD_BYTES)
            bad += (BadRecord(int(which[b.index]), b.reason) for b in decoded.bad)
            pieces.append((which[decoded.records], decoded))
        bad.sort(key=lambda b: b.index)
        if not pieces:
            return DecodedRecords(batch_of([], self._schema, 0), np.empty(0, np.int64), tuple(bad))
        records, columns = pieces[0][0], pieces[0][1].columns
        if len(pieces) > 1:
            records = np.concatenate([r for r, _ in pieces])
            order = np.argsort(records)
            batches = [d.columns for _, d in pieces]
            records = records[order]
            columns = (
                pa.concat_batches(batches).take(pa.array(order))
                if self._schema.fields
                else batch_of([], self._schema, len(records))
            )
        return DecodedRecords(columns, records, tuple(bad))

    def _reader(self, number: int) -> AvroReader | str:
        """What reads records of a schema, or why they cannot be read."""
        if number < 0:
            return f"the record does not begin with a 0 and the number of a schema ({_HEAD_BYTES} bytes)"
        known = self._readers.get(number)
        if known is not None:
            return known
        try:
            reader = AvroReader(self._registry.schema(number), self._schema)
        except UnknownSchemaError as error:
            return str(error)
        except MisfitError as error:
            return f"schema {number}: {error}"
        self._readers[number] = reader
        return reader


def _schema_numbers(chunk: RecordChunk) -> Integers:
    """The number of the schema of each record; −1: it has none."""
    numbers = np.full(len(chunk), -1, np.int64)
    data = np.frombuffer(chunk.data, np.uint8)
    long = np.flatnonzero(chunk.stops - chunk.starts >= _HEAD_BYTES)
    head = data[chunk.starts[long, None] + np.arange(_HEAD_BYTES)].astype(np.int64)
    value = (head[:, 1] << 24) | (head[:, 2] << 16) | (head[:, 3] << 8) | head[:, 4]
    numbers[long] = np.where(head[:, 0] == 0, value, -1)
    return numbers


class Registration:
    """The schema of what is written, which is registered when the first row is.

    Args:
        settings: of the registry.
        subject: what the schema is registered under.
        text: the schema.
        may_add: whether it is registered if it is not there.
    """

    def __init__(self, settings: RegistrySettings, subject: str, text: str, *, may_add: bool) -> None:
        self._settings = settings
        self._subject = subject
        self._text = text
        self._may_add = may_add
        self._head: bytes | None = None

    @property
    def head(self) -> bytes:
        """What stands before each record.

        Raises:
            ConnectorError: the registry refuses the schema or cannot be asked.
        """
        if self._head is None:
            number = schema_registry(self._settings).register(self._subject, self._text, may_add=self._may_add)
            self._head = b"\x00" + number.to_bytes(4, "big")
        return self._head


class ConfluentEncoder:
    """Encodes rows as records of the schema that stands for the table, behind its number."""

    def __init__(self, schema: Schema, registration: Registration) -> None:
        self._rows = AvroEncoder(schema)
        self._registration = registration

    def header(self) -> bytes:
        """Empty: single records have no header."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All records, one behind the other."""
        return pa.py_buffer(b"".join(self.encode_messages(columns).to_pylist()))

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """A record for each row. It raises the errors of `Registration.head`."""
        return self._rows.encode_messages(columns, self._registration.head)


def registration(options: Options, format: str, text: str) -> Registration:
    """The registration of the schema that stands for a table.

    Raises:
        OptionError: no subject is given, or another schema that does not mean the same.
    """
    subject = options.get(f"{format}.subject")
    if not subject:
        raise OptionError(
            f"{format}.subject", f"option '{format}.subject' is needed for writing", hint="for example TOPIC-value"
        )
    return Registration(
        registry_settings(options, format),
        str(subject),
        chosen_schema(options, format, text),
        may_add=options.flag(f"{format}.auto.register.schemas"),
    )


def chosen_schema(options: Options, format: str, text: str) -> str:
    """The schema that the user gives, or the one that stands for the table.

    Raises:
        OptionError: what is given is no schema, or does not mean the same.
    """
    given = options.get(f"{format}.schema")
    if given is None:
        return text
    name = f"{format}.schema"
    try:
        difference = same_meaning(parse_schema(str(given)), parse_schema(text))
    except AvroSchemaError as error:
        raise OptionError(name, f"option '{name}': {error}") from None
    if difference is not None:
        raise OptionError(
            name,
            f"option '{name}' does not mean the same as the table's columns: {difference}",
            hint=f"the table's: {text}",
        )
    return str(given)


def _text(schema: Schema) -> str:
    return schema_text(schema, legacy_timestamps=True)


def _check(schema: Schema, options: Options) -> None:
    check_types(schema, _NAME)
    registry_settings(options, _NAME)
    chosen_schema(options, _NAME, _text(schema))


def _decoder(request: ReadRequest) -> ConfluentDecoder:
    return ConfluentDecoder(schema_registry(registry_settings(request.options, _NAME)), request.schema)


def _encoder(schema: Schema, options: Options) -> ConfluentEncoder:
    return ConfluentEncoder(schema, registration(options, _NAME, _text(schema)))


FORMAT = RecordFormat(
    name=_NAME,
    summary="Apache Avro behind the number of the schema in a registry, as Confluent's serializers write it. For messages only.",
    extension="avro",
    options=REGISTRY_OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
)
