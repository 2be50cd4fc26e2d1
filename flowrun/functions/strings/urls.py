# ruff: noqa: ARG001 - texts share one signature
"""PARSE_URL as Spark SQL text of exactly the same value; Spark's own function takes other URLs."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.types import DataType
from flowrun.functions.spark_text import quote_text, string_literal

_SPACE = r"[\s\x{1c}-\x{1f}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
_START = rf"(?isu)\A{_SPACE}(https?|ftp|file|jar|mailto):"
_WHOLE = quote_text(_START + r"(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?\z")
_WITH_AUTHORITY = quote_text(_START + "//")
_WITH_QUERY = quote_text("^[^?#]*[?]")
_IN_BRACKETS = quote_text(r"(?s)\A\[.*\]\z")
_PORT = quote_text(r"(?d):\p{Nd}*$")
_USER = quote_text(r"(?s)\A.*@")
_ADDRESS = quote_text(r"(?s)@[^@]*\z")


def parse_url_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """PARSE_URL of constant parts and keys."""
    text, part, *keys = texts
    name, key = (string_literal(part) or "").upper(), string_literal(keys[0]) if keys else None
    if keys:
        found = (
            None if key is None or "\\E" in key else _of_query(text, key) if name == "QUERY" else "CAST(NULL AS STRING)"
        )
    else:
        found = _part(text, name)
    return None if found is None else f"CASE WHEN {text} RLIKE {_WHOLE} THEN {found} END"


def _group(text: str, group: int) -> str:
    return f"regexp_extract({text}, {_WHOLE}, {group})"


def _part(text: str, name: str) -> str | None:
    authority, path, query = (_group(text, group) for group in (2, 3, 4))
    match name:
        case "PROTOCOL":
            return f"lower({_group(text, 1)})"
        case "AUTHORITY":
            return f"CASE WHEN {text} RLIKE {_WITH_AUTHORITY} THEN {authority} END"
        case "USERINFO":
            return f"CASE WHEN contains({authority}, '@') THEN regexp_replace({authority}, {_ADDRESS}, '') END"
        case "HOST":
            address = f"regexp_replace({authority}, {_USER}, '')"
            return f"CASE WHEN {address} RLIKE {_IN_BRACKETS} THEN {address} ELSE regexp_replace({address}, {_PORT}, '') END"
        case "PATH":
            return path
        case "QUERY":
            return f"CASE WHEN {text} RLIKE {_WITH_QUERY} THEN {query} END"
        case "FILE":
            return f"CASE WHEN {text} RLIKE {_WITH_QUERY} THEN concat({path}, '?', {query}) ELSE {path} END"
        case "REF":
            return f"CASE WHEN contains({text}, '#') THEN {_group(text, 5)} END"
    return None


def _of_query(text: str, key: str) -> str:
    value, query = quote_text(f"(?:&|^)\\Q{key}\\E=([^&]*)"), _group(text, 4)
    return f"CASE WHEN {query} RLIKE {value} THEN regexp_extract({query}, {value}, 1) END"
