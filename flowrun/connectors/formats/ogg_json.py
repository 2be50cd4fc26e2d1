"""The ogg-json format: changes in Oracle GoldenGate's form, `{"before": …, "after": …, "op_type": …}`. Its options have Flink's names."""

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
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.core.types import STRING

_NAME = "ogg-json"
_EVENTS = ImageOperations(
    event="GoldenGate message",
    field="op_type",
    inserts=("I",),
    update="U",
    delete="D",
    hint="GoldenGate sends it only for tables with supplemental logging of all columns",
)


class OggDecoder:
    """Decodes GoldenGate messages, one in each record: I inserts, U updates (which gives two rows), D deletes.

    T, which empties a table without naming its rows, is a bad record, as in Flink.

    Args:
        schema: the columns of the rows.
        ignore_parse_errors: whether a field that cannot be read becomes NULL.
    """

    has_header = False

    def __init__(self, schema: Schema, *, ignore_parse_errors: bool = False) -> None:
        self._schema = schema
        image = row_type(schema)
        messages = Schema.of(before=image, after=image, op_type=STRING)
        self._messages = JsonDecoder(messages, ignore_parse_errors=ignore_parse_errors)

    def read_header(self, record: bytes) -> None:
        """Nothing to do: JSON has no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        decoded = self._messages.decode(chunk)
        return _EVENTS.rows(self._schema, decoded, *decoded.columns.columns)


def _check(schema: Schema, _options: Options) -> None:
    check_columns(schema)


def _decoder(request: ReadRequest) -> OggDecoder:
    return OggDecoder(request.schema, ignore_parse_errors=request.options.flag(f"{_NAME}.ignore-parse-errors"))


def _encoder(schema: Schema, options: Options) -> EnvelopeEncoder:
    if options.flag(f"{_NAME}.encode.ignore-null-fields"):
        envelope = Envelope(('{"after":', ',"op_type":"I"}'), ('{"before":', ',"op_type":"D"}'))
    else:
        envelope = Envelope(
            ('{"before":null,"after":', ',"op_type":"I"}'), ('{"before":', ',"after":null,"op_type":"D"}')
        )
    return EnvelopeEncoder(json_encoder(schema, options, _NAME), envelope)


FORMAT = change_format(
    _NAME,
    "Changes as Oracle GoldenGate publishes them, one JSON object a line or message.",
    options=(),
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
)
