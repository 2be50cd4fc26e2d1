"""The JSON format: each record is an object. Its options have Flink's names."""

from __future__ import annotations

from flowrun.api.format import ReadRequest, RecordDecoder, RecordEncoder, RecordFormat
from flowrun.connectors.formats.framing import at_any_line, framer_for_lines
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.connectors.formats.json_encoder import JsonEncoder
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import OptionError

_OPTIONS = (
    Option(
        "ignore-parse-errors",
        OptionType.BOOLEAN,
        "A field that cannot be read becomes NULL, a record that is no JSON object is left out.",
        default=False,
    ),
    Option("fail-on-missing-field", OptionType.BOOLEAN, "An absent field is an error instead of NULL.", default=False),
    Option(
        "timestamp-format.standard",
        OptionType.ENUM,
        "How timestamps are written: 2024-03-01 10:00:00.123 (sql) or with a T (iso-8601). Reading understands both.",
        default="sql",
        choices=("sql", "iso-8601"),
    ),
    Option("encode.ignore-null-fields", OptionType.BOOLEAN, "Leave out fields that are NULL.", default=False),
    Option(
        "encode.decimal-as-plain-number",
        OptionType.BOOLEAN,
        "Known to Flink; decimals are always written without exponent.",
        default=True,
    ),
    Option(
        "map-null-key.mode",
        OptionType.ENUM,
        "Known to Flink; maps never have NULL keys here.",
        default="fail",
        choices=("fail", "drop", "literal"),
    ),
    Option(
        "map-null-key.literal", OptionType.STRING, "Known to Flink; maps never have NULL keys here.", default="null"
    ),
    Option("decode.json-parser.enabled", OptionType.BOOLEAN, "Known to Flink; has no effect.", default=True),
)


def _check(schema: Schema, options: Options) -> None:
    if options.flag("json.ignore-parse-errors") and options.flag("json.fail-on-missing-field"):
        raise OptionError(
            "json.fail-on-missing-field",
            "json.fail-on-missing-field and json.ignore-parse-errors cannot both be on",
        )
    for field in schema:
        check_map_keys(field.name, field.type)


def check_map_keys(column: str, kind: DataType) -> None:
    """Check that JSON can hold the keys of each MAP in a type.

    Raises:
        OptionError: it cannot.
    """
    if kind.root is TypeRoot.MAP and kind.children[0].is_nested:
        raise OptionError("format", f"json: column '{column}' is {kind}, but a JSON object has text keys only")
    for child in kind.children:
        check_map_keys(column, child)


def _decoder(request: ReadRequest) -> RecordDecoder:
    return JsonDecoder(
        request.schema,
        ignore_parse_errors=request.options.flag("json.ignore-parse-errors"),
        fail_on_missing_field=request.options.flag("json.fail-on-missing-field"),
    )


def _encoder(schema: Schema, options: Options) -> RecordEncoder:
    return JsonEncoder(
        schema,
        iso_timestamps=options.text("json.timestamp-format.standard") == "iso-8601",
        ignore_null_fields=options.flag("json.encode.ignore-null-fields"),
    )


FORMAT = RecordFormat(
    name="json",
    summary="One JSON object a line or message.",
    extension="json",
    options=_OPTIONS,
    check=_check,
    create_decoder=_decoder,
    create_encoder=_encoder,
    create_framer=framer_for_lines,
    splittable=at_any_line,
)
