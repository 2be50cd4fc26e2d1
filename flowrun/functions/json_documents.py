"""JSON text to Python values and back, the way Flink's Jackson does it, one document at a time.

Numbers with a fraction or exponent keep their digits (Jackson reads them as BigDecimal): such documents, and only they, are read again
with Python's own parser when a number is shown.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import orjson

from flowrun.functions.json_path import MISSING, JsonPath

INVALID = object()
"""Stands for text that is not JSON."""

_FRACTION = re.compile(r"\d[.eE]|\d{19}")


def parse(text: str) -> Any:
    """The value of a JSON text (numbers as int or float), or `INVALID`.

    >>> parse('{"a": [1, 2.5]}'), parse("{") is INVALID
    ({'a': [1, 2.5]}, True)
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return INVALID


def parse_exact(text: str) -> Any:
    """The value of a valid JSON text with fractions, and integers of more than 18 digits, as `Decimal`."""
    return json.loads(text, parse_float=Decimal, parse_int=_integer)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 19 else Decimal(digits)


def dump(value: Any) -> str:
    """A value as JSON without spaces, members sorted by name.

    >>> dump({"b": Decimal("1.50"), "a": ["ü", None, True]})
    '{"a":["ü",null,true],"b":1.50}'
    """
    return orjson.dumps(value, default=_raw, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS).decode()


def _raw(value: Decimal) -> orjson.Fragment:
    return orjson.Fragment(str(value))


def scalar_text(text: str, path: JsonPath, value: Any) -> str:
    """A scalar found in a document as text: strings without quotes, numbers with their digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(path.find(parse_exact(text)))
    return str(value)


def container_text(text: str, path: JsonPath, value: Any) -> str:
    """An object, array or list of matches found in a document as JSON."""
    if _FRACTION.search(text):
        exact = path.find(parse_exact(text))
        return dump(value if exact is MISSING else exact)
    return dump(value)
