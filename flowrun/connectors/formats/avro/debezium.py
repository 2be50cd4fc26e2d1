"""The debezium-avro-confluent format: changes in Debezium's form as Avro records, with their schema in a registry."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa

from flowrun.api.format import DecodedRecords, ReadRequest, RecordChunk, RecordFormat
from flowrun.connectors.formats.avro.confluent import (
    ConfluentDecoder,
    Registration,
    chosen_schema,
    registration,
)
from flowrun.connectors.formats.avro.encoding import AvroEncoder
from flowrun.connectors.formats.avro.registry_options import REGISTRY_OPTIONS, registry_settings
from flowrun.connectors.formats.avro.schema_registry import schema_registry
from flowrun.connectors.formats.avro.types import check_types, table_record
from flowrun.connectors.formats.changes import inserts, row_type
from flowrun.connectors.formats.debezium_json import EVENTS
from flowrun.core.elements import removals
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.core.types import STRING, with_required

_NAME = "debezium-avro-confluent"
_EVENTS = replace(EVENTS, hint="PostgreSQL sends it only for tables with REPLICA IDENTITY FULL")
_RECORD = b"\x02"
"""The branch of the union of null and the event that messages are, as Flink writes them."""


class DebeziumAvroDecoder:
    """Decodes Debezium events: c and r insert, u updates (which gives two rows), d deletes."""

    has_header = False

    def __init__(self, schema: Schema, events: ConfluentDecoder) -> None:
        self._schema = schema
        self._events = events

    def read_header(self, record: bytes) -> None:
        """Nothing to do: there is no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`.

        Raises:
            ConnectorError: the registry cannot be asked.
        """
        decoded = self._events.decode(chunk)
        return _EVENTS.rows(self._schema, decoded, *decoded.columns.columns)


class DebeziumAvroEncoder:
    """Encodes each row as an event: −U and −D become d, +I and +U c, as in Flink."""

    def __init__(self, schema: Schema, registration: Registration) -> None:
        self._image = row_type(schema).arrow
        self._events = AvroEncoder(_event_schema(schema))
        self._schema = _event_schema(schema).arrow
        self._registration = registration

    def header(self) -> bytes:
        """Empty: single records have no header."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All records, one behind the other, which say that they are inserts."""
        return self.encode_changes(columns, inserts(columns.num_rows))

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """A record for each row, which says that it is an insert."""
        return self.encode_change_messages(columns, inserts(columns.num_rows))

    def encode_changes(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Buffer:
        """All records, one behind the other."""
        return pa.py_buffer(b"".join(self.encode_change_messages(columns, kinds).to_pylist()))

    def encode_change_messages(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Array:
        """A record for each change. It raises the errors of `Registration.head`."""
        removed = removals(kinds)
        fields = list(self._image)
        before = pa.StructArray.from_arrays(columns.columns, fields=fields, mask=pa.array(~removed))
        after = pa.StructArray.from_arrays(columns.columns, fields=fields, mask=pa.array(removed))
        op = pa.array(["c", "d"]).take(pa.array(removed.astype(np.int8)))
        events = pa.RecordBatch.from_arrays([before, after, op], schema=self._schema)
        return self._events.encode_messages(events, self._registration.head + _RECORD)


def _event_schema(schema: Schema) -> Schema:
    """The columns of an event."""
    image = with_required(row_type(schema), tuple(not f.nullable for f in schema))
    return Schema.of(before=image, after=image, op=STRING)


def _text(schema: Schema) -> str:
    return json.dumps(["null", table_record(_event_schema(schema), legacy_timestamps=True)])


def _check(schema: Schema, options: Options) -> None:
    check_types(schema, _NAME)
    registry_settings(options, _NAME)
    chosen_schema(options, _NAME, _text(schema))


def _decoder(request: ReadRequest) -> DebeziumAvroDecoder:
    registry = schema_registry(registry_settings(request.options, _NAME))
    return DebeziumAvroDecoder(request.schema, ConfluentDecoder(registry, _event_schema(request.schema)))


def _encoder(schema: Schema, options: Options) -> DebeziumAvroEncoder:
    return DebeziumAvroEncoder(schema, registration(options, _NAME, _text(schema)))


FORMAT = RecordFormat(
    name=_NAME,
    summary="Changes as Debezium publishes them with Confluent's Avro converter and a schema registry. For messages only.",
    extension="avro",
    options=REGISTRY_OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
    changelog=True,
)
