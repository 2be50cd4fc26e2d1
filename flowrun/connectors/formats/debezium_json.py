"""The debezium-json format: changes in Debezium's form, `{"before": …, "after": …, "op": …}`. Its options have Flink's names."""

from __future__ import annotations

from flowrun.api.format import DecodedRecords, ReadRequest, RecordChunk
from flowrun.connectors.formats.changes import ImageOperations, row_type
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.connectors.formats.json_envelope import (
    Envelope,
    EnvelopeEncoder,
    change_format,
    check_columns,
    json_encoder,
)
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Field, Schema
from flowrun.core.types import STRING, row
from flowrun.errors import OptionError

_NAME = "debezium-json"
EVENTS = ImageOperations(
    event="Debezium event",
    field="op",
    inserts=("c", "r"),
    update="u",
    delete="d",
    hint="PostgreSQL sends it only for tables with REPLICA IDENTITY FULL; "
    "with a primary key, 'debezium-json.changelog-mode' = 'upsert' does without",
)
"""The operations of Debezium's events."""

_OPTIONS = (
    Option(
        "schema-include",
        OptionType.BOOLEAN,
        "Records hold a schema beside the payload: Kafka Connect's `value.converter.schemas.enable`. For reading only.",
        default=False,
    ),
    Option(
        "changelog-mode",
        OptionType.ENUM,
        "`all`: updates and deletes come with the row before, `before`. `upsert`: they need not; updates are read from "
        "`after` alone, and of the row before a delete only the primary key counts, as PostgreSQL sends it without REPLICA IDENTITY FULL. "
        "For reading only.",
        default="all",
        choices=("all", "upsert"),
    ),
)


class DebeziumDecoder:
    """Decodes Debezium events, one in each record: c and r insert, u updates (which gives two rows, or one for upserts), d deletes.

    Args:
        schema: the columns of the rows.
        schema_include: whether events are in the field `payload`, beside their schema.
        ignore_parse_errors: whether a field that cannot be read becomes NULL.
        upserts: whether changes are upserts: the rows before updates are not read.
    """

    has_header = False

    def __init__(
        self,
        schema: Schema,
        *,
        schema_include: bool = False,
        ignore_parse_errors: bool = False,
        upserts: bool = False,
    ) -> None:
        self._schema = schema
        self._upserts = upserts
        self._payload = schema_include
        image = row_type(schema)
        event = [("before", image), ("after", image), ("op", STRING)]
        fields = [("payload", row(*event))] if schema_include else event
        outer = Schema(tuple(Field(name, type) for name, type in fields))
        self._events = JsonDecoder(outer, ignore_parse_errors=ignore_parse_errors)

    def read_header(self, record: bytes) -> None:
        """Nothing to do: JSON has no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        decoded = self._events.decode(chunk)
        columns = decoded.columns.columns
        before, after, op = columns[0].flatten() if self._payload else columns
        return EVENTS.rows(self._schema, decoded, before, after, op, upserts=self._upserts)


def _check(schema: Schema, _options: Options) -> None:
    check_columns(schema)


def _decoder(request: ReadRequest) -> DebeziumDecoder:
    return DebeziumDecoder(
        request.schema,
        schema_include=request.options.flag(f"{_NAME}.schema-include"),
        ignore_parse_errors=request.options.flag(f"{_NAME}.ignore-parse-errors"),
        upserts=_upserts(request.options),
    )


def _upserts(options: Options) -> bool:
    return options.text(f"{_NAME}.changelog-mode") == "upsert"


def _encoder(schema: Schema, options: Options) -> EnvelopeEncoder:
    if options.flag(f"{_NAME}.schema-include"):
        raise OptionError(
            f"{_NAME}.schema-include",
            "debezium-json is written without schemas: debezium-json.schema-include is for reading only",
            hint="leave the option out",
        )
    if _upserts(options):
        raise OptionError(
            f"{_NAME}.changelog-mode",
            "debezium-json.changelog-mode is for reading only: what is written is whole",
            hint="leave the option out",
        )
    if options.flag(f"{_NAME}.encode.ignore-null-fields"):
        envelope = Envelope(('{"after":', ',"op":"c"}'), ('{"before":', ',"op":"d"}'))
    else:
        envelope = Envelope(('{"before":null,"after":', ',"op":"c"}'), ('{"before":', ',"after":null,"op":"d"}'))
    return EnvelopeEncoder(json_encoder(schema, options, _NAME), envelope)


FORMAT = change_format(
    _NAME,
    "Changes as Debezium publishes them, one JSON object a line or message.",
    options=_OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
    upserts=_upserts,
)
