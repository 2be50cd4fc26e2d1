# ruff: noqa: ARG001 - kernels share one signature
"""String functions that search, replace, split, classify or format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import BOOLEAN, INT, STRING, DataType, array, map_of
from flowrun.errors import DataError
from flowrun.functions.contract import Argument, Datum, ScalarFunction
from flowrun.functions.regex.syntax import compile_java
from flowrun.functions.regex.timed import guarded
from flowrun.functions.rules import ANYTHING, BYTES_OR_TEXT, INTEGER, LONG, TEXT, Rule
from flowrun.functions.spark_text import Function, Template
from flowrun.functions.strings import spark_texts as texts
from flowrun.functions.strings.java_format import java_format
from flowrun.functions.vectors import (
    Distinct,
    any_null_constant,
    ascii_fast_path,
    is_constant,
    map_distinct,
    null_of,
)

_DOUBLE = re.compile(
    r"[\x00-\x20]*[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)"
    r"[pP][+-]?\d+)[fFdD]?)[\x00-\x20]*",
    re.ASCII,
)
"""What Java's `Double.parseDouble` accepts (language specification, `Double.valueOf`)."""


def locate(needle: str, text: str, start: int = 1) -> int:
    """The 1-based position of the first `needle` at or after `start`; 0 if there is none, 1 for an empty needle.

    >>> locate("b", "abcb"), locate("b", "abcb", 3), locate("x", "abc"), locate("☂", "ü☂")
    (2, 4, 0, 2)
    """
    return 1 if not needle else text.find(needle, max(start - 1, 0)) + 1


def _position(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    needle, text = arguments[0], arguments[1]
    if len(arguments) > 2 or not is_constant(needle) or not needle.is_valid:
        return map_distinct(locate, arguments, rows, result.arrow)
    pattern = needle.as_py()

    def bytes_before(column: pa.Array) -> Datum:  # byte offsets are character offsets in ASCII text
        return pc.add(pc.find_substring(column, pattern=pattern), pa.scalar(1, pa.int32()))

    return ascii_fast_path(text, bytes_before, lambda value: locate(pattern, value), result)


def instr(text: str, needle: str, start: int = 1, occurrence: int = 1) -> int:
    """The 1-based position of the n-th `needle` at or after `start`; a negative start searches backwards from the end.

    >>> instr("corporate floor", "or", 3, 2), instr("corporate floor", "or", -3, 2), instr("abc", "c", 0)
    (14, 2, 0)
    """
    if occurrence <= 0:
        raise DataError(f"INSTR: the occurrence must be positive, {occurrence} given")
    if start == 0:
        return 0
    if start < 0:
        found = instr(text[::-1], needle[::-1], -start, occurrence)
        return 0 if found == 0 else len(text) + 2 - found - len(needle)
    position = 0
    for _ in range(occurrence):
        position = locate(needle, text, start)
        if position == 0:
            return 0
        start = position + 1
    return position


def _replace(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, old, new = arguments
    if is_constant(old) and is_constant(new) and not any_null_constant(arguments) and old.as_py():
        return pc.replace_substring(text, pattern=old.as_py(), replacement=new.as_py())
    return map_distinct(str.replace, arguments, rows, result.arrow)


def translate(text: str, source: str | None, target: str | None) -> str:
    """`text` with each character of `source` replaced by the one of `target` at the same place, or removed if there is none.

    >>> translate("banana", "abn", "xy"), translate("abc", None, "x")
    ('yxxx', 'abc')
    """
    return text.translate(_translation(source or "", target or ""))


@lru_cache(maxsize=256)
def _translation(source: str, target: str) -> dict[int, str | None]:
    table: dict[int, str | None] = {}
    for place, character in enumerate(source):
        table.setdefault(ord(character), target[place] if place < len(target) else None)
    return table


def _translate(text: str | None, source: str | None, target: str | None) -> str | None:
    return None if text is None else translate(text, source, target)


def split_index(text: str, separator: str | int, index: int) -> str | None:
    """The `index`-th (from 0) part of `text` split by a separator or by the character of that code; NULL if there is none.

    >>> split_index("a/b//c", "/", 2), split_index("a/b", "/", 2), split_index("a,b", 44, 1), split_index("", "/", 0)
    ('', None, 'b', None)
    """
    if index < 0 or not text:
        return None
    if isinstance(separator, int):
        if not 1 <= separator <= 255:
            return None
        separator = chr(separator)
    parts = text.split(separator) if separator else re.split(r"\s", text)
    return parts[index] if index < len(parts) else None


def _split_index(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, separator, index = arguments
    if is_constant(text) or not is_constant(separator) or not is_constant(index) or any_null_constant(arguments):
        return map_distinct(split_index, arguments, rows, result.arrow)
    pattern, place = separator.as_py(), index.as_py()
    if isinstance(pattern, int) and 1 <= pattern <= 255:
        pattern = chr(pattern)
    if not isinstance(pattern, str) or place < 0:
        return null_of(result)
    if not pattern:
        return map_distinct(split_index, arguments, rows, result.arrow)
    parts = pc.split_pattern(text, pattern=pattern, max_splits=place + 1)
    offsets = parts.offsets.to_numpy()
    wanted = offsets[:-1] + place
    missing = wanted >= offsets[1:]
    values = parts.values.take(pa.array(np.where(missing, 0, wanted), mask=missing))
    return values if place else pc.if_else(pc.equal(pc.binary_length(text), 0), pa.scalar(None, values.type), values)


def _split(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    text, delimiter = arguments
    if is_constant(delimiter) and not any_null_constant(arguments) and delimiter.as_py():
        parts = pc.split_pattern(text, pattern=delimiter.as_py()).cast(result.arrow)
        return pc.if_else(pc.equal(text, ""), pa.scalar([], result.arrow), parts)
    return map_distinct(lambda s, d: s.split(d) if s and d else list(s), arguments, rows, result.arrow)


def _starts(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if is_constant(arguments[1]) and not any_null_constant(arguments):
        return pc.starts_with(arguments[0], pattern=arguments[1].as_py())
    return map_distinct(lambda s, prefix: s.startswith(prefix), arguments, rows, result.arrow)


def _ends(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if is_constant(arguments[1]) and not any_null_constant(arguments):
        return pc.ends_with(arguments[0], pattern=arguments[1].as_py())
    return map_distinct(lambda s, suffix: s.endswith(suffix), arguments, rows, result.arrow)


def _same_kind(arguments: Sequence[Argument]) -> str | None:
    kinds = {a.type.is_character for a in arguments}
    return None if len(kinds) == 1 else "both arguments must be character strings, or both binary"


def _elt(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    index, *values = arguments
    null = null_of(result)
    whens = [pc.equal(index, pa.scalar(i + 1, index.type)) for i in range(len(values))]
    if is_constant(index):
        chosen = index.as_py()
        return values[chosen - 1] if chosen is not None and 1 <= chosen <= len(values) else null
    return pc.case_when(pc.make_struct(*whens), *values, null)


def _elt_kinds(arguments: Sequence[Argument]) -> str | None:
    kinds = {a.type for a in arguments[1:]}
    return None if len(kinds) == 1 else "the values must all be character strings, or all binary"


def _elt_result(arguments: Sequence[Argument]) -> DataType:
    return arguments[1].type


def str_to_map(text: str, pairs: str = ",", entry: str = "=") -> list[tuple[str, str | None]]:
    """Key/value pairs of a text; both delimiters are Java regular expressions; a later equal key wins.

    >>> str_to_map("a=1,b=2,c")
    [('a', '1'), ('b', '2'), ('c', None)]
    """
    if not text:
        return []
    pieces = _java_split(text, pairs)
    between = guarded(entry, compile_java(entry))
    found: dict[str, str | None] = {}
    for piece in pieces:
        # Java gives no empty key for a match of no width
        match = next((m for m in between(piece).finditer(piece) if m.end()), None)
        found[piece if match is None else piece[: match.start()]] = None if match is None else piece[match.end() :]
    return list(found.items())


def _java_split(text: str, regex: str) -> list[str]:
    pieces = [text[a:b] for a, b in _gaps(text, regex)]
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    return pieces


def _gaps(text: str, regex: str) -> list[tuple[int, int]]:
    start, gaps = 0, []
    for match in guarded(regex, compile_java(regex))(text).finditer(text):
        if match.end() == 0 or match.start() == match.end() == len(text):
            continue  # Java gives no empty first part for a match of no width, and never splits at the end for one
        gaps.append((start, match.start()))
        start = match.end()
    return [*gaps, (start, len(text))]


def is_decimal(value: object) -> bool:
    """Whether a value is a number or a text that Java parses as one.

    >>> is_decimal("1.5e3"), is_decimal("abc"), is_decimal(None), is_decimal(3)
    (True, False, False, True)
    """
    if isinstance(value, str):
        return _DOUBLE.fullmatch(value) is not None
    return value is not None


def _is_digit(value: object) -> bool:
    return value.isdecimal() if isinstance(value, str) else isinstance(value, int)


def _is_alpha(value: object) -> bool:
    return isinstance(value, str) and value.isalpha()


def _text_or_number(type: DataType) -> bool:
    return type.is_character or type.is_numeric


def _text_or_number_check(arguments: Sequence[Argument]) -> str | None:
    given = arguments[0].type
    return None if _text_or_number(given) else f"the argument must be a character string or a number, {given} given"


def _split_index_check(arguments: Sequence[Argument]) -> str | None:
    given = arguments[1].type
    ok = given.is_character or given.is_integer
    return None if ok else f"the separator must be a character string or a character's code, {given} given"


def _printf(pattern: str | None, *values: Any) -> str | None:
    return None if pattern is None else java_format(pattern, values)


def _boolean_test(name: str, function: Callable[[object], bool], doc: str, spark: texts.Matches) -> ScalarFunction:
    usage = f"{name}(string)"
    rule = Rule(usage, BOOLEAN, (ANYTHING,), check=_text_or_number_check)
    return ScalarFunction(name, rule, Distinct(function, pass_nulls=True), usage, doc, spark)


_LOCATE = "LOCATE(needle, string[, start])"
_MAP = map_of(STRING, STRING)

STRING_SEARCH = (
    ScalarFunction(
        "POSITION", Rule("POSITION(needle, string)", INT, (TEXT, TEXT)), _position, "POSITION(needle IN string)",
        "The 1-based position of the first occurrence; 0 if there is none.", Function("position"),
    ),
    ScalarFunction(
        "LOCATE", Rule(_LOCATE, INT, (TEXT, TEXT), (INTEGER,)), _position, _LOCATE,
        "The 1-based position of the first occurrence at or after a start; 0 if there is none.", texts.locate_text,
    ),
    ScalarFunction(
        "INSTR", Rule("INSTR(string, needle[, start[, occurrence]])", INT, (TEXT, TEXT), (INTEGER, INTEGER)),
        Distinct(instr), "INSTR(string, needle[, start[, occurrence]])",
        "The 1-based position of the n-th occurrence, searched backwards for a negative start; 0 if there is none.",
        texts.instr_text, fallible=True,
    ),
    ScalarFunction(
        "REPLACE", Rule("REPLACE(string, old, new)", STRING, (TEXT, TEXT, TEXT)), _replace, "REPLACE(string, old, new)",
        "The string with every occurrence of a text replaced.", texts.replace_text,
    ),
    ScalarFunction(
        "TRANSLATE", Rule("TRANSLATE(string, from, to)", STRING, (TEXT, TEXT, TEXT)),
        Distinct(_translate, pass_nulls=True), "TRANSLATE(string, from, to)",
        "The string with each character of `from` replaced by that of `to` at its place, or removed.",
        Template("translate({0}, coalesce({1}, ''), coalesce({2}, ''))"),
        aliases=("TRANSLATE3",),
    ),
    ScalarFunction(
        "SPLIT_INDEX",
        Rule("SPLIT_INDEX(string, separator, index)", STRING, (TEXT, ANYTHING, INTEGER), check=_split_index_check),
        _split_index, "SPLIT_INDEX(string, separator, index)",
        "The index-th part (from 0) of the string split by a separator; NULL if there is none.", texts.split_index_text,
    ),
    ScalarFunction(
        "SPLIT", Rule("SPLIT(string, delimiter)", array(STRING), (TEXT, TEXT)), _split, "SPLIT(string, delimiter)",
        "The parts between delimiters as an array; the characters for an empty delimiter.", texts.split_text,
    ),
    ScalarFunction(
        "STARTSWITH",
        Rule("STARTSWITH(string, prefix)", BOOLEAN, (BYTES_OR_TEXT, BYTES_OR_TEXT), check=_same_kind), _starts,
        "STARTSWITH(string, prefix)", "Whether the string begins with a prefix.", Function("startswith"),
    ),
    ScalarFunction(
        "ENDSWITH", Rule("ENDSWITH(string, suffix)", BOOLEAN, (BYTES_OR_TEXT, BYTES_OR_TEXT), check=_same_kind), _ends,
        "ENDSWITH(string, suffix)", "Whether the string ends with a suffix.", Function("endswith"),
    ),
    ScalarFunction(
        "ELT",
        Rule("ELT(index, value, …)", _elt_result, (LONG,), variadic=BYTES_OR_TEXT, minimum=1, check=_elt_kinds), _elt,
        "ELT(index, value, …)", "The index-th (from 1) value; NULL if there is none.", texts.elt_text,
    ),
    ScalarFunction(
        "STR_TO_MAP", Rule("STR_TO_MAP(string[, pairs, entry])", _MAP, (TEXT,), (TEXT, TEXT)), Distinct(str_to_map),
        "STR_TO_MAP(string[, pair delimiter, key-value delimiter])",
        "A map from `k=v,…` text; both delimiters are regular expressions.", texts.str_to_map_text,
    ),
    ScalarFunction(
        "PRINTF", Rule("PRINTF(format, value, …)", STRING, (TEXT,), variadic=ANYTHING), Distinct(_printf, True),
        "PRINTF(format, value, …)", "The values in a printf-style Java format; NULL if the format does not fit them.", texts.printf_text,
    ),
    _boolean_test("IS_ALPHA", _is_alpha, "Whether all characters are letters; false for NULL and the empty string.", texts.ALPHABETIC),
    _boolean_test("IS_DIGIT", _is_digit, "Whether all characters are digits; false for NULL and the empty string.", texts.DIGITS),
    _boolean_test("IS_DECIMAL", is_decimal, "Whether the value is a number or text that reads as one; false for NULL.", texts.DECIMAL),
)  # fmt: skip
"""Functions that search, replace, split, classify or format strings."""
