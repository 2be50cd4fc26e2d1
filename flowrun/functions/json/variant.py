"""VARIANT: any JSON value as a SQL value. PARSE_JSON and TRY_PARSE_JSON make one, `variant[i]` and `variant['key']` look inside.

A column of them holds canonical JSON text in Arrow's large strings: members sorted by name, numbers as Apache Flink's binary variants give
them back (exact ones without zeros at their end, those with an exponent or of more than 38 digits as DOUBLE).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from flowrun.core.types import BIGINT, MAX_DECIMAL_PRECISION, NULL, STRING, VARIANT
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.casts.to_text import approximate_text
from flowrun.functions.contract import Argument, ScalarFunction, Signature
from flowrun.functions.json.documents import dump
from flowrun.functions.rules import TEXT, TRUTH, Rule
from flowrun.functions.vectors import Distinct

_SPACES = " \t\r\n"
_BEHIND_NUMBERS = re.compile(r"[^ \t\r\n]")


class _NotJson(ValueError):
    """Why a text is no JSON value."""


def canonical(text: str, *, allow_duplicates: bool = False) -> str:
    """The first JSON value of a text, as VARIANT holds it; what follows it is not looked at, as in Flink.

    Raises:
        ValueError: there is none, or an object has a key twice; says so.

    >>> canonical('{"b": [1.50, 1e3, -0.0], "a": null}')
    '{"a":null,"b":[1.5,1000.0,0]}'
    """
    decoder = _LENIENT if allow_duplicates else _STRICT
    begun = text.lstrip(_SPACES)
    try:
        value, end = decoder.raw_decode(begun)
        if isinstance(value, orjson.Fragment) and _BEHIND_NUMBERS.match(begun, end):
            raise _NotJson("the text is not JSON")
        return dump(value)
    except _NotJson:
        raise
    except (ValueError, RecursionError, orjson.JSONEncodeError) as error:
        raise _NotJson("the text is not JSON") from error


def _integer(digits: str) -> orjson.Fragment:
    number = Decimal(digits)
    exact = len(digits.lstrip("-")) <= MAX_DECIMAL_PRECISION
    return orjson.Fragment(f"{number or abs(number):f}" if exact else _double(digits))


def _fraction(digits: str) -> orjson.Fragment:
    whole, _, part = digits.lstrip("-").partition(".")
    if "e" in digits.lower() or len(whole.lstrip("0") + part) > MAX_DECIMAL_PRECISION:
        return orjson.Fragment(_double(digits))
    shown = digits.rstrip("0").removesuffix(".")
    return orjson.Fragment("0" if shown == "-0" else shown)


def _double(digits: str) -> str:
    text: str = approximate_text(pa.array([float(digits)]))[0].as_py()
    return text


def _refused(name: str) -> Any:
    raise _NotJson(f"JSON has no {name}")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _NotJson("an object has a key twice")
    return made


_LENIENT = json.JSONDecoder(parse_float=_fraction, parse_int=_integer, parse_constant=_refused)
"""Of two members of one name in an object it takes the last."""
_STRICT = json.JSONDecoder(
    parse_float=_fraction, parse_int=_integer, parse_constant=_refused, object_pairs_hook=_members
)


def _parse_json(text: str, allow_duplicates: bool = False) -> str:
    try:
        return canonical(text, allow_duplicates=allow_duplicates)
    except ValueError as error:
        raise DataError(f"PARSE_JSON: {error}", hint="use TRY_PARSE_JSON to get NULL instead") from None


def _try_parse_json(text: str, allow_duplicates: bool = False) -> str | None:
    try:
        return canonical(text, allow_duplicates=allow_duplicates)
    except ValueError:
        return None


def member(variant: str, place: int | str) -> str | None:
    """The element of an array by its place from 1, or the member of an object by its name; None if there is none.

    Raises:
        DataError: the value is no array, or no object.

    >>> member('{"a":[1.5,"x"]}', "a"), member('[1.5,"x"]', 2), member("[1]", 0)
    ('[1.5,"x"]', '"x"', None)
    """
    value = json.loads(variant, parse_float=orjson.Fragment, parse_int=orjson.Fragment, parse_constant=orjson.Fragment)
    if isinstance(place, str):
        if not isinstance(value, dict):
            raise _wrong_kind(variant, place, "an object")
        return dump(value[place]) if place in value else None
    if not isinstance(value, list):
        raise _wrong_kind(variant, place, "an array")
    return dump(value[place - 1]) if 1 <= place <= len(value) else None


def _wrong_kind(variant: str, place: int | str, needed: str) -> DataError:
    return DataError(
        f"a VARIANT is accessed by {place!r}, but it is not {needed}: {variant[:40]}",
        hint="ask only the rows that have one, e.g. by JSON_EXISTS of their text",
    )


def _member_rule(arguments: Sequence[Argument]) -> Signature:
    variant, place = (a.type for a in arguments)
    if not (place.is_integer or place.is_character or place == NULL):
        raise ExpressionError(f"a VARIANT is accessed by a whole number or a text, {place} given")
    return Signature((variant, BIGINT if place.is_integer else STRING), VARIANT)


MEMBER = "$VARIANT_MEMBER"
"""The function behind `variant[place]`."""

VARIANT_INTERNALS = (
    ScalarFunction(
        MEMBER, _member_rule, Distinct(member), "variant[i] or variant['key']",
        "The element of an array, or the member of an object, of a VARIANT; NULL if there is none.", fallible=True,
    ),
)  # fmt: skip
"""What the binder calls for syntax."""
VARIANTS = (
    ScalarFunction(
        "PARSE_JSON", Rule("PARSE_JSON(string[, allow duplicate keys])", VARIANT, (TEXT,), (TRUTH,)), Distinct(_parse_json),
        "PARSE_JSON(string[, allow duplicate keys])",
        "The JSON text as a VARIANT, which `[i]` (from 1) and `['key']` look into and JSON_STRING shows; an error if it is not JSON.",
        fallible=True,
    ),
    ScalarFunction(
        "TRY_PARSE_JSON", Rule("TRY_PARSE_JSON(string[, allow duplicate keys])", VARIANT, (TEXT,), (TRUTH,)),
        Distinct(_try_parse_json), "TRY_PARSE_JSON(string[, allow duplicate keys])", "The same; NULL if the text is not JSON.",
    ),
)  # fmt: skip
"""Functions that make VARIANTs."""
