"""The avro format: records of the schema that stands for the table, as messages; in files, object container files."""

from __future__ import annotations

from flowrun.api.format import (
    DecodedRecords,
    FileFormat,
    ReadRequest,
    RecordChunk,
    RecordDecoder,
    RecordEncoder,
    RecordFormat,
)
from flowrun.connectors.formats.avro.container import CODECS, create_reader, create_writer
from flowrun.connectors.formats.avro.encoding import AvroEncoder
from flowrun.connectors.formats.avro.reading import AvroReader
from flowrun.connectors.formats.avro.schema import parse_schema
from flowrun.connectors.formats.avro.types import check_types, schema_text
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.errors import OptionError

LEGACY_TIMESTAMPS = Option(
    "timestamp_mapping.legacy",
    OptionType.BOOLEAN,
    "TIMESTAMP is written as timestamp-millis (-micros, …), as TIMESTAMP_LTZ is; false: as local-timestamp-millis. Reading takes both.",
    default=True,
)

_OPTIONS = (
    Option(
        "encoding",
        OptionType.ENUM,
        "Known to Flink; records are always binary.",
        default="binary",
        choices=("binary", "json"),
    ),
    Option(
        "codec", OptionType.ENUM, "How the blocks of written files are compressed.", default="snappy", choices=CODECS
    ),
    LEGACY_TIMESTAMPS,
)


class AvroDecoder:
    """Decodes records that were written with the schema that stands for the declared columns."""

    has_header = False

    def __init__(self, reader: AvroReader) -> None:
        self._reader = reader

    def read_header(self, record: bytes) -> None:
        """Nothing to do: there is no header."""

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of a chunk; see `RecordDecoder`."""
        return self._reader.read(chunk)


def _check(schema: Schema, options: Options) -> None:
    if options.text("avro.encoding") != "binary":
        raise OptionError(
            "avro.encoding",
            "avro.encoding: Avro's JSON encoding is not supported, only its binary one",
            hint="leave the option out; the format json reads and writes JSON",
        )
    check_types(schema, "avro")


def _decoder(request: ReadRequest) -> RecordDecoder:
    legacy = request.options.flag("avro.timestamp_mapping.legacy")
    writer = parse_schema(schema_text(request.declared, legacy_timestamps=legacy))
    return AvroDecoder(AvroReader(writer, request.schema))


def _encoder(schema: Schema, _options: Options) -> RecordEncoder:
    return AvroEncoder(schema)


FORMAT = RecordFormat(
    name="avro",
    summary="Apache Avro: as a message a record of the schema that stands for the table, in files object container files.",
    extension="avro",
    options=_OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
    container=FileFormat(
        name="avro",
        summary="Apache Avro object container files.",
        extension="avro",
        options=_OPTIONS,
        check=_check,
        create_reader=create_reader,
        create_writer=create_writer,
    ),
)
