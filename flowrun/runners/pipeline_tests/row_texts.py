"""Values of rows as text: as messages show them, and as a file of tests has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any

from flowrun.connectors.formats.value_text import non_finite_text
from flowrun.frontend.trees.writing import yaml_quoted

_PLAIN = re.compile(r"[A-Za-z_][\w./+-]*( [\w./+-]+)*")
_READ_AS_OTHER = re.compile(r"(?i)null|true|false|~|yes|no|on|off|nan|infinity")


def value_text(value: Any) -> str:
    """A value in a message.

    >>> value_text(None), value_text(1.5), value_text(["a", None]), value_text(float("-inf"))
    ('NULL', '1.5', '[a, NULL]', '-Infinity')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float() if not isfinite(value):
            return non_finite_text(value)
        case datetime():
            return _time_text(value, " ")
        case date() | time():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            return f"x'{value.hex()}'"
        case Mapping():
            return "{" + ", ".join(f"{k}: {value_text(v)}" for k, v in value.items()) + "}"
        case list() if value and isinstance(value[0], tuple):
            return "{" + ", ".join(f"{value_text(k)}: {value_text(v)}" for k, v in value) + "}"
        case list():
            return "[" + ", ".join(map(value_text, value)) + "]"
    return str(value)


def yaml_text(value: Any) -> str:
    """A value as a test writes it inside of braces.

    >>> yaml_text("paid"), yaml_text("a: b"), yaml_text(None), yaml_text("7"), yaml_text({"os": "ios"})
    ('paid', "'a: b'", 'null', "'7'", '{os: ios}')
    """
    match value:
        case None:
            return "null"
        case str():
            plain = _PLAIN.fullmatch(value) and not _READ_AS_OTHER.fullmatch(value)
            return value if plain else _quoted(value)
        case datetime():
            return _time_text(value, "T")
        case time():
            return f"'{value.isoformat()}'"
        case bytes():
            return '"' + value_text(value) + '"'
        case Mapping():
            return "{" + ", ".join(f"{yaml_text(k)}: {yaml_text(v)}" for k, v in value.items()) + "}"
        case list() if value and isinstance(value[0], tuple):
            return "{" + ", ".join(f"{yaml_text(k)}: {yaml_text(v)}" for k, v in value) + "}"
        case list():
            return "[" + ", ".join(map(yaml_text, value)) + "]"
    return value_text(value)


def row_text(columns: tuple[str, ...], row: tuple[Any, ...]) -> str:
    """A row as a test writes it.

    >>> row_text(("id", "name"), (1, "a"))
    '{id: 1, name: a}'
    """
    return "{" + ", ".join(f"{yaml_text(c)}: {yaml_text(v)}" for c, v in zip(columns, row, strict=True)) + "}"


def _quoted(text: str) -> str:
    if text.isprintable() and text:
        return "'" + text.replace("'", "''") + "'"
    return yaml_quoted(text)


def _time_text(value: datetime, between: str) -> str:
    text = value.replace(tzinfo=None).isoformat(between)
    return text.rstrip("0") if "." in text else text
