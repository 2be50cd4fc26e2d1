# ruff: noqa: ARG001 - kernels share one signature
"""String functions that give a string's length or another form of it: case, trimming, parts, padding, concatenation.

Positions count code points from 1 and lengths are code points, as in Flink's documentation of string functions (Flink's Java counts
UTF-16 units in LPAD, RPAD and OVERLAY, which differs only beyond the basic multilingual plane).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import INT, STRING, DataType
from flowrun.functions.contract import Datum, ScalarFunction
from flowrun.functions.rules import INTEGER, LONG, TEXT, Rule
from flowrun.functions.spark_text import Function, Template
from flowrun.functions.strings import spark_texts as texts
from flowrun.functions.vectors import (
    ArrowKernel,
    Distinct,
    any_null_constant,
    ascii_fast_path,
    is_constant,
    join_valid,
    map_distinct,
    null_of,
)

_ASCII_WORD = re.compile("[0-9A-Za-z]+")


def _upper(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return ascii_fast_path(arguments[0], pc.ascii_upper, str.upper, result)


def _lower(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return ascii_fast_path(arguments[0], pc.ascii_lower, str.lower, result)


def initcap(text: str) -> str:
    """Each run of ASCII letters and digits with a capital first and small other letters; other characters unchanged.

    >>> initcap("bird SEED 3rd"), initcap("über")
    ('Bird Seed 3rd', 'üBer')
    """
    return _ASCII_WORD.sub(lambda match: match[0].capitalize(), text)


def _trim(strip: str, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    characters = arguments[1] if len(arguments) == 2 else pa.scalar(" ")
    if is_constant(characters):
        if characters.as_py() == "":
            return arguments[0]
        kernel = {"strip": pc.utf8_trim, "lstrip": pc.utf8_ltrim, "rstrip": pc.utf8_rtrim}[strip]
        return kernel(arguments[0], characters=characters.as_py())
    return map_distinct(getattr(str, strip), arguments, rows, result.arrow)


def substring(text: str, start: int, length: int | None = None) -> str | None:
    """The part of `text` from the 1-based `start` (from the end if negative); NULL for a negative length.

    >>> substring("flowrun", 5), substring("flowrun", -3, 2), substring("flowrun", -9), substring("flowrun", 0, 2)
    ('run', 'ru', '', 'fl')
    """
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _substring(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, *bounds = arguments
    if is_constant(text) or not all(map(is_constant, bounds)):
        return map_distinct(substring, arguments, rows, result.arrow)
    if any_null_constant(bounds):
        return null_of(result)
    start, length = bounds[0].as_py(), bounds[1].as_py() if len(bounds) == 2 else None
    if length is not None and length < 0:
        return null_of(result)
    if start >= 0:
        begin = max(start - 1, 0)
        return pc.utf8_slice_codeunits(text, begin, None if length is None else begin + length)
    stop = None if length is None or start + length >= 0 else start + length
    tail = pc.utf8_slice_codeunits(text, start, stop)
    return pc.if_else(pc.less(pc.utf8_length(text), -start), "", tail)


def _left(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, count = arguments
    if is_constant(count) and not any_null_constant(arguments):
        return pc.utf8_slice_codeunits(text, 0, max(count.as_py(), 0))
    return map_distinct(lambda s, n: s[: max(n, 0)], arguments, rows, result.arrow)


def _right(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, count = arguments
    if is_constant(count) and not any_null_constant(arguments) and count.as_py() > 0:
        return pc.utf8_slice_codeunits(text, -count.as_py(), None)
    return map_distinct(lambda s, n: s[-n:] if n > 0 else "", arguments, rows, result.arrow)


def pad(text: str, width: int, padding: str, *, left: bool) -> str | None:
    """`text` cut or padded to `width`; NULL for a negative width or empty padding.

    >>> pad("hi", 5, "ab", left=True), pad("hi", 1, "ab", left=False), pad("hi", -1, "a", left=True)
    ('abahi', 'h', None)
    """
    if width < 0 or not padding:
        return None
    missing = width - len(text)
    if missing <= 0:
        return text[:width]
    fill = (padding * (missing // len(padding) + 1))[:missing]
    return fill + text if left else text + fill


def _pad(left: bool, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, width, padding = arguments
    if is_constant(width) and is_constant(padding) and not any_null_constant(arguments) and not is_constant(text):
        size, fill = width.as_py(), padding.as_py()
        if size < 0 or not fill:
            return null_of(result)
        if len(fill) == 1:
            kernel = pc.utf8_lpad if left else pc.utf8_rpad
            return pc.utf8_slice_codeunits(kernel(text, size, fill), 0, size)
    return map_distinct(partial(pad, left=left), arguments, rows, result.arrow)


def _repeat(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, times = arguments
    return pc.binary_repeat(text, pc.max_element_wise(times, pa.scalar(0, times.type), skip_nulls=False))


def _concat(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return pc.binary_join_element_wise(*arguments, "", null_handling="emit_null")


def _concat_ws(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    separator, *values = arguments
    return join_valid(values, separator)


def overlay(text: str, replacement: str, start: int, length: int | None = None) -> str:
    """`text` with `length` characters from the 1-based `start` replaced; unchanged if `start` is outside.

    >>> overlay("xxxxxtest", "xxxx", 6), overlay("xxxxxtest", "xxxx", 6, 2), overlay("abc", "z", 9)
    ('xxxxxxxxx', 'xxxxxxxxxst', 'abc')
    """
    if start <= 0 or start > len(text):
        return text
    count = len(replacement) if length is None else length
    tail = text[start - 1 + count :] if count > 0 and start + count <= len(text) else ""
    return text[: start - 1] + replacement + tail


_LENGTH = Rule("CHAR_LENGTH(string)", INT, (TEXT,))
_PAD = (TEXT, INTEGER, TEXT)

STRINGS = (
    ScalarFunction(
        "UPPER", Rule("UPPER(string)", STRING, (TEXT,)), _upper, "UPPER(string)", "The string in upper case.",
        Function("upper"),
    ),
    ScalarFunction(
        "LOWER", Rule("LOWER(string)", STRING, (TEXT,)), _lower, "LOWER(string)", "The string in lower case.",
        Function("lower"),
    ),
    ScalarFunction(
        "INITCAP", Rule("INITCAP(string)", STRING, (TEXT,)), Distinct(initcap), "INITCAP(string)",
        "Each word (run of ASCII letters and digits) with a capital first letter and small others.", texts.initcap_text,
    ),
    ScalarFunction(
        "TRIM", Rule("TRIM(string[, characters])", STRING, (TEXT,), (TEXT,)), partial(_trim, "strip"),
        "TRIM([BOTH | LEADING | TRAILING] [characters FROM] string)",
        "The string without the given characters (spaces) at both ends.",
        Template("trim(BOTH {1} FROM {0})", ((1, "trim({0})"),)), aliases=("BTRIM",),
    ),
    ScalarFunction(
        "LTRIM", Rule("LTRIM(string[, characters])", STRING, (TEXT,), (TEXT,)), partial(_trim, "lstrip"),
        "LTRIM(string[, characters])", "The string without the given characters (spaces) at its start.",
        Template("trim(LEADING {1} FROM {0})", ((1, "ltrim({0})"),)),
    ),
    ScalarFunction(
        "RTRIM", Rule("RTRIM(string[, characters])", STRING, (TEXT,), (TEXT,)), partial(_trim, "rstrip"),
        "RTRIM(string[, characters])", "The string without the given characters (spaces) at its end.",
        Template("trim(TRAILING {1} FROM {0})", ((1, "rtrim({0})"),)),
    ),
    ScalarFunction(
        "CHAR_LENGTH", _LENGTH, ArrowKernel("utf8_length"), "CHAR_LENGTH(string)", "The number of characters.",
        Function("char_length"), aliases=("CHARACTER_LENGTH", "LENGTH"),
    ),
    ScalarFunction(
        "OCTET_LENGTH", Rule("OCTET_LENGTH(string)", INT, (TEXT,)), ArrowKernel("binary_length"),
        "OCTET_LENGTH(string)", "The number of bytes in UTF-8.", Function("octet_length"),
    ),
    ScalarFunction(
        "SUBSTRING", Rule("SUBSTRING(string, start[, length])", STRING, (TEXT, LONG), (LONG,)), _substring,
        "SUBSTRING(string, start[, length])",
        "The part from the 1-based start, counted from the end if negative; NULL for a negative length.",
        texts.substring_text, aliases=("SUBSTR",),
    ),
    ScalarFunction(
        "LEFT", Rule("LEFT(string, length)", STRING, (TEXT, INTEGER)), _left, "LEFT(string, length)",
        "The first characters; empty for a negative length.", Function("left"),
    ),
    ScalarFunction(
        "RIGHT", Rule("RIGHT(string, length)", STRING, (TEXT, INTEGER)), _right, "RIGHT(string, length)",
        "The last characters; empty for a negative length.", Function("right"),
    ),
    ScalarFunction(
        "LPAD", Rule("LPAD(string, length, padding)", STRING, _PAD), partial(_pad, True),
        "LPAD(string, length, padding)",
        "The string padded at its start, or cut, to a length; NULL for a negative length or empty padding.",
        texts.Pad("lpad"),
    ),
    ScalarFunction(
        "RPAD", Rule("RPAD(string, length, padding)", STRING, _PAD), partial(_pad, False),
        "RPAD(string, length, padding)",
        "The string padded at its end, or cut, to a length; NULL for a negative length or empty padding.",
        texts.Pad("rpad"),
    ),
    ScalarFunction(
        "REPEAT", Rule("REPEAT(string, times)", STRING, (TEXT, INTEGER)), _repeat, "REPEAT(string, times)",
        "The string repeated; empty if times is not positive.", Function("repeat"),
    ),
    ScalarFunction(
        "REVERSE", Rule("REVERSE(string)", STRING, (TEXT,)), ArrowKernel("utf8_reverse"), "REVERSE(string)",
        "The characters in reverse order.", Function("reverse"),
    ),
    ScalarFunction(
        "CONCAT", Rule("CONCAT(string, …)", STRING, variadic=TEXT, minimum=1), _concat, "CONCAT(string, …)",
        "The strings joined; NULL if any is NULL.", Function("concat"),
    ),
    ScalarFunction(
        "CONCAT_WS", Rule("CONCAT_WS(separator, string, …)", STRING, (TEXT,), variadic=TEXT, minimum=1), _concat_ws,
        "CONCAT_WS(separator, string, …)", "The strings joined by a separator, NULLs left out.", Function("concat_ws"),
    ),
    ScalarFunction(
        "OVERLAY", Rule("OVERLAY(string, replacement, start[, length])", STRING, (TEXT, TEXT, LONG), (LONG,)),
        Distinct(overlay), "OVERLAY(string PLACING replacement FROM start [FOR length])",
        "The string with characters from the 1-based start replaced; unchanged if start is outside.", texts.overlay_text,
    ),
)  # fmt: skip
"""Functions that give a string's length or another form of it."""
