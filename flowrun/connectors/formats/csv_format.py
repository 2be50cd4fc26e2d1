"""The CSV format: delimited text as in RFC 4180. Its options have Flink's names."""

from __future__ import annotations

from flowrun.api.format import Framer, ReadRequest, RecordDecoder, RecordEncoder, RecordFormat
from flowrun.connectors.formats.csv_decoder import CsvDecoder
from flowrun.connectors.formats.csv_encoder import CsvEncoder
from flowrun.connectors.formats.csv_options import OPTIONS, csv_settings
from flowrun.connectors.formats.framing import LineFramer, QuotedFramer
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import OptionError


def _check(schema: Schema, options: Options) -> None:
    csv_settings(options)
    for field in schema:
        if not _is_flat(field.type, nested=False):
            raise OptionError(
                "format",
                f"csv: column '{field.name}' is {field.type}, which has no CSV form",
                hint="use json or parquet",
            )


def _is_flat(kind: DataType, *, nested: bool) -> bool:
    if kind.root is TypeRoot.MAP or (nested and kind.is_nested):
        return False
    return all(_is_flat(child, nested=True) for child in kind.children)


def _decoder(request: ReadRequest) -> RecordDecoder:
    return CsvDecoder(request.schema, request.declared, csv_settings(request.options))


def _encoder(schema: Schema, options: Options) -> RecordEncoder:
    return CsvEncoder(schema, csv_settings(options))


def _framer(options: Options) -> Framer:
    settings = csv_settings(options)
    if not settings.multi_line or settings.quote is None:
        return LineFramer(comments=settings.comments)
    escape = None if settings.escape is None else settings.escape.encode()
    return QuotedFramer(settings.delimiter.encode(), settings.quote.encode(), escape, comments=settings.comments)


def _splittable(options: Options) -> bool:
    return not csv_settings(options).multi_line


FORMAT = RecordFormat(
    name="csv",
    summary="Delimited text, one record a line.",
    extension="csv",
    options=OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
    create_framer=_framer,
    splittable=_splittable,
)
