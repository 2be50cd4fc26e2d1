# ruff: noqa: ARG001 - texts share one signature
"""JSON functions that write, as Spark SQL text of exactly the same value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.json.documents import dump, utf16_order
from flowrun.functions.spark_text import is_counted, let, quote_text, quoted, string_literal

_PLAIN = (TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT, TypeRoot.DECIMAL)
_PLAIN_SCALE = 6
"""Of a DECIMAL with more digits after the point JSON may show an exponent."""
_ESCAPED = quote_text(r'["\\\x00-\x1f]')
_UNNAMED = r"[\x00-\x07\x0b\x0e-\x1f\x{80}-\x{10ffff}]"
"""Control characters without a letter of their own in JSON, and what is beyond ASCII."""
_LETTERS = {"\\": "\\\\", '"': '\\"', "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CLOCK = "HH:mm:ss.SSSSSS"
_MOMENT = f"yyyy-MM-dd'T'{_CLOCK}"
_SURPLUS = quote_text(r"\.?0+$")
"""What is left out of times of day: the zeros at the end of their fraction, and an empty fraction."""
_VARIABLES = count()


class _NoJsonText(Exception):
    """Spark has no text for the JSON of a type."""


def json_text(text: str, type: DataType) -> str:
    """A value as JSON text; NULL stays NULL. Raises _NoJsonText."""
    if is_counted(type):
        raise _NoJsonText
    if type.root is TypeRoot.VARIANT:
        return text
    if type.root in _PLAIN and (type.scale or 0) <= _PLAIN_SCALE:
        return f"CAST({text} AS STRING)"
    if type.is_character:
        return _string(text)
    if type.is_binary:
        return _in_quotes(f"replace(base64({text}), '\\r\\n', '')")
    match type.root:
        case TypeRoot.NULL:
            return "CAST(NULL AS STRING)"
        case TypeRoot.DATE:
            return _in_quotes(f"CAST({text} AS STRING)")
        case TypeRoot.TIME:
            return _in_quotes(_time_of_day(f"make_timestamp_ntz(DATE '1970-01-01', {text})", _CLOCK))
        case TypeRoot.TIMESTAMP:
            return _in_quotes(_time_of_day(text, _MOMENT))
        case TypeRoot.TIMESTAMP_LTZ:
            return _in_quotes(_time_of_day(text, _MOMENT) + ", 'Z'")
        case TypeRoot.ARRAY:
            each = _variable()
            inner = f"transform({text}, {each} -> {_or_null(json_text(each, type.children[0]))})"
            return f"concat('[', array_join({inner}, ','), ']')"
        case TypeRoot.MAP:
            return _map(text, type)
        case TypeRoot.ROW:
            fields = {
                n: _or_null(json_text(f"{text}.{quoted(n)}", c)) for n, c in zip(type.names, type.children, strict=True)
            }
            return f"CASE WHEN {text} IS NOT NULL THEN {_object(fields)} END"
    raise _NoJsonText


def _variable() -> str:
    """A name for the argument of a lambda that no other lambda has."""
    return quoted(f"$value{next(_VARIABLES)}")


def _in_quotes(text: str) -> str:
    return f"concat('\"', {text}, '\"')"


def _or_null(json: str) -> str:
    return f"coalesce({json}, 'null')"


def _string(text: str) -> str:
    written = f"to_json(array({text}))"
    escaped = f"substring({written}, 2, char_length({written}) - 2)"
    return f"CASE WHEN {text} RLIKE {_ESCAPED} THEN {escaped} ELSE {_in_quotes(text)} END"


def _time_of_day(text: str, pattern: str) -> str:
    return f"regexp_replace(date_format({text}, {quote_text(pattern)}), {_SURPLUS}, '')"


def _object(members: dict[str, str]) -> str:
    """Members of constant names, sorted as Java sorts them; their values are JSON and not NULL."""
    names = sorted(members, key=utf16_order)
    parts = (f"{quote_text(',' * (i > 0) + dump(n) + ':')}, {members[n]}" for i, n in enumerate(names))
    return f"concat('{{', {', '.join(parts)}, '}}')" if names else "'{}'"


def _map(text: str, type: DataType) -> str:
    key, value = type.children
    if not (key.is_character or key.is_integer):
        raise _NoJsonText
    each = _variable()
    name = f"CAST({each}.key AS STRING)"
    return _sorted_members(f"map_entries({text})", each, name, _or_null(json_text(f"{each}.value", value)))


def _sorted_members(entries: str, each: str, name: str, json: str) -> str:
    """A JSON object of an array, whose elements are called `each`."""
    pair = f"struct(encode({name}, 'UTF-16BE') AS o, concat({_string(name)}, ':', {json}) AS m)"
    return f"concat('{{', array_join(array_sort(transform({entries}, {each} -> {pair})).m, ','), '}}')"


def string_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_STRING."""
    try:
        return json_text(texts[0], types[0])
    except _NoJsonText:
        return None


def _values(texts: Sequence[str], types: Sequence[DataType], marks: str) -> list[str] | None:
    """JSON of each value; those with the mark `j` are JSON already."""
    try:
        return [t if m == "j" else json_text(t, type) for t, type, m in zip(texts, types, marks, strict=True)]
    except _NoJsonText:
        return None


def object_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_OBJECT."""
    mode, marks = (string_literal(t) or "" for t in texts[:2])
    names = [string_literal(t) or "" for t in texts[2::2]]
    values = _values(texts[3::2], types[3::2], marks)
    if values is None:
        return None
    members = dict(zip(names, values, strict=True))
    if mode.upper() != "ABSENT":
        return _object({name: _or_null(value) for name, value in members.items()})
    given = (f"concat({quote_text(dump(name) + ':')}, {members[name]})" for name in sorted(members, key=utf16_order))
    return _joined("{", "}", list(given))


def array_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_ARRAY."""
    mode, marks = (string_literal(t) or "" for t in texts[:2])
    values = _values(texts[2:], types[2:], marks)
    if values is None:
        return None
    return _joined("[", "]", values if mode.upper() == "ABSENT" else list(map(_or_null, values)))


def _joined(left: str, right: str, parts: Sequence[str]) -> str:
    """The parts that are not NULL, with commas between them."""
    return f"concat('{left}', concat_ws(',', {', '.join(parts)}), '{right}')" if parts else f"'{left}{right}'"


def object_of_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """JSON_OBJECT_OF."""
    key, value = (f"`$member`.{quoted(name)}" for name in types[0].children[0].names)
    made = _sorted_members("`$members`", "`$member`", key, _or_null(f"nullif({value}, '')"))
    keys = f"transform(`$members`, `$member` -> {key})"
    checked = (
        f"CASE WHEN `$members` IS NULL THEN '{{}}' WHEN exists({keys}, `$member` -> `$member` IS NULL) THEN {_failure('a key is NULL')}"
        f" WHEN size(array_distinct({keys})) < size(`$members`) THEN {_failure('a key is there twice')} ELSE {made} END"
    )
    return let("$members", texts[0], checked)


def _failure(problem: str) -> str:
    message = f"JSON_OBJECTAGG: {problem}; keys must be given and unique: filter or group by them before"
    return f"CAST(raise_error({quote_text(message)}) AS STRING)"


def quote_json_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """JSON_QUOTE."""
    escaped = texts[0]
    for character, escape in _LETTERS.items():
        escaped = f"replace({escaped}, {quote_text(character)}, {quote_text(escape)})"
    runs = f"regexp_extract_all({escaped}, {quote_text(f'{_UNNAMED}|[^{_UNNAMED[1:]}++')}, 0)"
    units = "regexp_replace(lower(hex(encode(`$run`, 'UTF-16BE'))), '.{4}', '\\\\\\\\u$0')"
    run = f"CASE WHEN `$run` RLIKE {quote_text(_UNNAMED)} THEN {units} ELSE `$run` END"
    return _in_quotes(
        f"CASE WHEN {texts[0]} RLIKE {quote_text(_UNNAMED)} THEN array_join(transform({runs}, `$run` -> {run}), '')"
        f" ELSE {escaped} END"
    )
