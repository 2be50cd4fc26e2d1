"""Writes lines of JSON and CSV in Spark SQL, in the spelling of flowrun's encoders (`formats.json_encoder`, `formats.csv_encoder`).

Java spells floating point numbers, and Spark maps, in another way: flowrun's encoders write tables with such columns.
"""

from __future__ import annotations

import json
import re
from itertools import count

from flowrun.connectors.formats.csv_options import CsvSettings
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import is_counted, quote_text, quoted

_PLAIN = (
    TypeRoot.BOOLEAN,
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INTEGER,
    TypeRoot.BIGINT,
    TypeRoot.DECIMAL,
    TypeRoot.DATE,
)
_ESCAPED = r'["\\\x00-\x1f]'
_IN_VALUES = frozenset("0123456789-+:. TZeE")
"""The characters in values that are no texts: if the delimiter is one of them, such values must be quoted too."""
_numbers = count()
_PLAIN_SCALE = 6
"""Up to how many digits behind the point Java writes decimals without an exponent."""


class NotSpelledError(Exception):
    """Spark would write something in another way than flowrun; the message says what."""


def value_text(text: str, type: DataType, *, iso: bool = False) -> str:
    """Spark SQL of the text of a value in the spelling of `formats.value_text`; NULL stays NULL.

    Raises:
        NotSpelledError: Spark spells the type in another way.
    """
    if is_counted(type):
        raise NotSpelledError(str(type))
    if type.is_character:
        return text
    if type.is_binary:
        return f"base64({text})"
    if type.is_timestamp:
        plain = f"CAST({text} AS STRING)"
        plain = f"replace({plain}, ' ', 'T')" if iso else plain
        return f"concat({plain}, 'Z')" if type.root is TypeRoot.TIMESTAMP_LTZ else plain
    if type.root not in _PLAIN:
        raise NotSpelledError(str(type))
    return f"CAST({text} AS STRING)"


def json_line(schema: Schema, *, iso: bool, ignore_null_fields: bool) -> str:
    """Spark SQL of a row as a JSON object.

    Spark's own generator writes values that both spell in the same way: it reads each character of a text only once.

    Raises:
        NotSpelledError: Spark spells a column in another way.
    """
    if all(_is_spelled_alike(f.type) for f in schema):
        texts = (value_text(quoted(f.name), f.type, iso=iso) if f.type.is_temporal else quoted(f.name) for f in schema)
        fields = ", ".join(f"{text} AS {quoted(f.name)}" for text, f in zip(texts, schema, strict=True))
        return f"to_json(struct({fields}), map('ignoreNullFields', '{str(ignore_null_fields).lower()}'))"
    columns = [(f.name, quoted(f.name), f.type) for f in schema]
    return _json_object(columns, iso=iso, ignore_null_fields=ignore_null_fields)


def _is_spelled_alike(type: DataType) -> bool:
    """Whether Spark's JSON of a value is the same as flowrun's, if times are texts. (Spark writes small DECIMALs as 1E-7.)"""
    if type.root is TypeRoot.DECIMAL:
        return (type.scale or 0) <= _PLAIN_SCALE
    return type.is_character or ((type.root in _PLAIN or type.is_timestamp) and not is_counted(type))


def _json_object(columns: list[tuple[str, str, DataType]], *, iso: bool, ignore_null_fields: bool) -> str:
    parts = []
    for name, text, type in columns:
        key = json.dumps(name, ensure_ascii=False) + ":"
        value = _json_value(text, type, iso=iso, ignore_null_fields=ignore_null_fields)
        if ignore_null_fields:
            parts.append(f"concat({quote_text(key)}, {value})")  # NULL if the value is: concat_ws leaves it out
        else:
            parts.append(f"concat({quote_text(key)}, coalesce({value}, 'null'))")
    return f"concat('{{', concat_ws(',', {', '.join(parts)}), '}}')"


def _json_value(text: str, type: DataType, *, iso: bool, ignore_null_fields: bool) -> str:
    match type.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            escaped = f"to_json(array({text}))"
            inner = f"substring({escaped}, 2, length({escaped}) - 2)"
            return f"CASE WHEN {text} RLIKE {quote_text(_ESCAPED)} THEN {inner} ELSE concat('\"', {text}, '\"') END"
        case TypeRoot.ARRAY:
            each = f"`$e{next(_numbers)}`"
            element = _json_value(each, type.children[0], iso=iso, ignore_null_fields=ignore_null_fields)
            return f"concat('[', array_join(transform({text}, {each} -> coalesce({element}, 'null')), ','), ']')"
        case TypeRoot.ROW:
            fields = [(n, f"{text}.{quoted(n)}", c) for n, c in zip(type.names, type.children, strict=True)]
            made = _json_object(fields, iso=iso, ignore_null_fields=ignore_null_fields)
            return f"CASE WHEN {text} IS NOT NULL THEN {made} END"
        case _ if type.is_binary or type.is_temporal:
            return f"concat('\"', {value_text(text, type, iso=iso)}, '\"')"
        case _:
            return value_text(text, type)


def csv_line(schema: Schema, settings: CsvSettings) -> str:
    """Spark SQL of a row as a delimited line.

    Raises:
        NotSpelledError: Spark spells a column in another way.
    """
    if settings.header:
        raise NotSpelledError("a header")
    if settings.delimiter in _IN_VALUES or (settings.quote or "") in _IN_VALUES or settings.quote is None:
        raise NotSpelledError("delimiters that values hold")
    fields = [_csv_field(quoted(f.name), f.type, settings) for f in schema]
    return f"concat_ws({quote_text(settings.delimiter)}, {', '.join(fields)})"


def _csv_field(text: str, type: DataType, settings: CsvSettings) -> str:
    plain = value_text(text, type)
    if type.is_character:
        quote = settings.quote or ""
        special = "[" + re.escape(settings.delimiter + quote + (settings.escape or "") + "\r\n") + "]"
        special += "|^#" if settings.comments else ""
        inner = text
        for mark in dict.fromkeys((settings.escape, quote)):
            inner = inner if not mark else f"replace({inner}, {quote_text(mark)}, {quote_text(mark * 2)})"
        wrapped = f"concat({quote_text(quote)}, {inner}, {quote_text(quote)})"
        plain = f"CASE WHEN {text} RLIKE {quote_text(special)} THEN {wrapped} ELSE {text} END"
    return f"coalesce({plain}, {quote_text(settings.null_literal or '')})"
