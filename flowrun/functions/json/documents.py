"""JSON text to Python values and back, the way Flink's Jackson does it, one document at a time.

Numbers with a fraction or exponent keep their digits (Jackson reads them as BigDecimal): such documents, and only they, are read again
with Python's own parser when a number is shown. Members are sorted by their UTF-16 units, as Java compares strings.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import orjson

from flowrun.functions.json.path import MISSING, JsonPath

INVALID = object()
"""Stands for text that is not JSON."""

_FRACTION = re.compile(r"\d[.eE]|\d{19}")
_HUGE = re.compile(r"[eE]\+?\d{3}|\d{300}")
_ESCAPE = re.compile(r"\\(?:u(00[01][0-9a-f])|.)")
_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")
_AFTER_SURROGATES = re.compile("[\ue000-\uffff]")
_EXPONENT_DIGITS = 17
"""Numbers with longer exponents are shown as they are written."""


def parse(text: str) -> Any:
    """The value of a JSON text (numbers as int or float), or `INVALID`.

    >>> parse('{"a": [1, 2.5]}'), parse("{") is INVALID
    ({'a': [1, 2.5]}, True)
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_huge(text) if _HUGE.search(text) else INVALID


def _parse_huge(text: str) -> Any:
    """The value of a JSON text whose numbers may be beyond those of a float, such as 1e400; or `INVALID`."""
    try:
        value = json.loads(
            text, parse_float=_fraction, parse_int=_integer, parse_constant=_refuse, object_pairs_hook=_members
        )
        dump(value)
    except (ValueError, RecursionError, orjson.JSONEncodeError):
        return INVALID
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last value of each name; all are written once, which half a character cannot be."""
    dump([*map(list, pairs)])
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def parse_exact(text: str) -> Any:
    """The value of a valid JSON text with fractions, and integers of more than 18 digits, as `Decimal`."""
    return json.loads(text, parse_float=_fraction, parse_int=_integer)


def has_fractions(text: str) -> bool:
    """Whether a JSON text may hold numbers that lose digits as int or float."""
    return _FRACTION.search(text) is not None


def _fraction(digits: str) -> Decimal | orjson.Fragment:
    exponent = digits.upper().partition("E")[2].lstrip("+-")
    return Decimal(digits) if len(exponent) <= _EXPONENT_DIGITS else orjson.Fragment(digits)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 19 else Decimal(digits)


def dump(value: Any) -> str:
    """A value as JSON without spaces, members sorted by name.

    >>> dump({"b": Decimal("1.50"), "a": ["ü", None, True]})
    '{"a":["ü",null,true],"b":1.50}'
    """
    try:
        text = _written(value)
    except orjson.JSONEncodeError:  # nested deeper than the 254 levels that orjson writes
        text = _written_from_within(value)
    if _BEYOND_16_BITS.search(text) and _AFTER_SURROGATES.search(text):
        text = _written_from_within(value)
    return _ESCAPE.sub(_in_capitals, text) if "\\u00" in text else text


def _in_capitals(escape: re.Match[str]) -> str:
    """A control character with the hexadecimal digits that Jackson writes."""
    return f"\\u{escape[1].upper()}" if escape[1] else escape[0]


def _written_from_within(value: Any) -> str:
    """The same of any value: inner objects and arrays first, members sorted by UTF-16 units."""
    containers = [value]
    for container in containers:
        inner = container.values() if type(container) is dict else container if type(container) is list else ()
        containers.extend(i for i in inner if type(i) is dict or type(i) is list)
    written: dict[int, orjson.Fragment] = {}
    for container in reversed(containers):
        if type(container) is dict:
            names = sorted(container, key=utf16_order)
            shallow: Any = {name: written.get(id(container[name]), container[name]) for name in names}
        else:
            shallow = [written.get(id(i), i) for i in container] if type(container) is list else container
        text = _written(shallow, 0)
        written[id(container)] = orjson.Fragment(text)
    return text


def utf16_order(name: str) -> bytes:
    """A key by which names are sorted as Java compares them.

    >>> sorted(["\ue000", "😀", "a"], key=utf16_order) == ["a", "😀", "\ue000"]
    True
    """
    return name.encode("utf-16-be")


def _written(value: Any, sort: int = orjson.OPT_SORT_KEYS) -> str:
    return orjson.dumps(value, default=_raw, option=sort | orjson.OPT_PASSTHROUGH_SUBCLASS).decode()


def _raw(value: Decimal) -> orjson.Fragment:
    return orjson.Fragment(str(value))


def scalar_text(text: str, path: JsonPath, value: Any) -> str:
    """A scalar found in a document as text: strings without quotes, numbers with their digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        value = path.find(parse_exact(text))
    return dump(value) if isinstance(value, orjson.Fragment) else str(value)


def container_text(text: str, path: JsonPath, value: Any) -> str:
    """An object, array or list of matches found in a document as JSON."""
    if has_fractions(text):
        exact = path.find(parse_exact(text))
        return dump(value if exact is MISSING else exact)
    return dump(value)
