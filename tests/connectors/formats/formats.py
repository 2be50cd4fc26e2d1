"""Decoders and encoders of a test, with options as users write them."""

from __future__ import annotations

from typing import Any

from flowrun.api.format import DecodedRecords, ReadRequest, RecordDecoder, RecordEncoder, RecordFormat
from flowrun.connectors.formats.registry import format_named, prefixed_options
from flowrun.core.options import Options, parse_options
from flowrun.core.schema import Schema


def options_of(format: str, **given: Any) -> Options:
    """Options of a format; in names without dots `__` stands for a dot and `_` for a dash: csv__field_delimiter."""
    named = {k if "." in k else k.replace("__", ".").replace("_", "-"): v for k, v in given.items()}
    options, errors = parse_options(prefixed_options(format), named, f"format '{format}'")
    assert not errors, errors
    return options


def record_format(name: str) -> RecordFormat:
    found = format_named(name)
    assert isinstance(found, RecordFormat)
    return found


def decoder(format: str, schema: Schema, declared: Schema | None = None, **given: Any) -> RecordDecoder:
    options = options_of(format, **given)
    return record_format(format).create_decoder(ReadRequest(schema, declared or schema, options))


def encoder(format: str, schema: Schema, **given: Any) -> RecordEncoder:
    return record_format(format).create_encoder(schema, options_of(format, **given))


def rows(decoded: DecodedRecords) -> list[tuple[Any, ...]]:
    decoded.columns.validate(full=True)
    assert len(decoded.records) == decoded.columns.num_rows
    return [tuple(r.values()) for r in decoded.columns.to_pylist()]
