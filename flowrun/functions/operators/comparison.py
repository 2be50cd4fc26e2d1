# ruff: noqa: ARG001 - kernels share one signature
"""Kernels of comparisons, truth tests, LIKE and SIMILAR TO. NULL in, NULL out, except where the test is about NULL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType
from flowrun.errors import DataError
from flowrun.functions.contract import Datum
from flowrun.functions.decimals import to_mask

_IN_A_LINE = r"[^\n\r\x{85}\x{2028}\x{2029}]"
"""Any character but those that end a line in Java."""


def equal(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Three-valued =."""
    left, right = arguments
    if not pa.types.is_nested(left.type):
        return pc.equal(left, right)
    a, b = _arrays(left, right, rows)
    same = ~_differs(a, b)
    return pc.if_else(pc.and_(pc.is_valid(a), pc.is_valid(b)), pa.array(same), pa.scalar(None, pa.bool_()))


def not_equal(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Three-valued <>."""
    if not pa.types.is_nested(arguments[0].type):
        return pc.not_equal(*arguments)
    return pc.invert(equal(arguments, rows, result))


def less(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Three-valued <."""
    return pc.less(*arguments)


def less_or_equal(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Three-valued <=."""
    return pc.less_equal(*arguments)


def greater(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Three-valued >."""
    return pc.greater(*arguments)


def greater_or_equal(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Three-valued >=."""
    return pc.greater_equal(*arguments)


def distinct(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS DISTINCT FROM: never NULL, two NULLs are the same."""
    left, right = arguments
    if pa.types.is_nested(left.type):
        return pa.array(_differs(*_arrays(left, right, rows)))
    both = pc.and_(pc.is_valid(left), pc.is_valid(right))
    one = pc.xor(pc.is_valid(left), pc.is_valid(right))
    return pc.or_(pc.and_(both, pc.fill_null(pc.not_equal(left, right), False)), one)


def not_distinct(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS NOT DISTINCT FROM."""
    return pc.invert(distinct(arguments, rows, result))


def _arrays(left: Datum, right: Datum, rows: int) -> tuple[pa.Array, pa.Array]:
    a = pa.repeat(left, rows) if isinstance(left, pa.Scalar) else left
    b = pa.repeat(right, rows) if isinstance(right, pa.Scalar) else right
    return a, b


def _differs(a: pa.Array, b: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Null-safe inequality of nested values: ROWs field by field, ARRAYs element by element."""
    valid_a, valid_b = to_mask(pc.is_valid(a)), to_mask(pc.is_valid(b))
    if pa.types.is_struct(a.type):
        differs = np.zeros(len(a), np.bool_)
        for i in range(a.type.num_fields):
            differs |= _differs(pc.struct_field(a, [i]), pc.struct_field(b, [i]))
    elif pa.types.is_list(a.type):
        differs = _lists_differ(a, b)
    else:
        differs = to_mask(pc.not_equal(a, b))
    return np.where(valid_a & valid_b, differs, valid_a ^ valid_b)


def _lists_differ(a: pa.Array, b: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    lengths = pc.fill_null(pc.list_value_length(a), -1).to_numpy(zero_copy_only=False)
    differs: np.ndarray[tuple[int], np.dtype[np.bool_]] = lengths != pc.fill_null(pc.list_value_length(b), -1).to_numpy(
        zero_copy_only=False
    )
    same = np.flatnonzero(~differs & (lengths > 0))
    if len(same):
        indices = pa.array(same)
        elements = _differs(pc.list_flatten(a.take(indices)), pc.list_flatten(b.take(indices)))
        owners = np.repeat(same, lengths[same])
        differs[owners[elements]] = True
    return differs


def invert(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """NOT."""
    return pc.invert(arguments[0])


def is_null(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS NULL; NaN is not NULL."""
    return pc.is_null(arguments[0])


def is_not_null(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS NOT NULL."""
    return pc.is_valid(arguments[0])


def is_true(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS TRUE."""
    return pc.fill_null(arguments[0], False)


def is_not_true(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS NOT TRUE."""
    return pc.invert(pc.fill_null(arguments[0], False))


def is_false(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS FALSE."""
    return pc.invert(pc.fill_null(arguments[0], True))


def is_not_false(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """IS NOT FALSE."""
    return pc.fill_null(arguments[0], True)


def like(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """LIKE with an optional escape character; without one, every character but % and _ stands for itself. As in Flink, _ is no line end."""
    return _by_pattern(arguments, rows, match_like)


def similar(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """SIMILAR TO: the SQL standard's regular expressions."""
    return _by_pattern(arguments, rows, match_similar)


def _by_pattern(arguments: Sequence[Datum], rows: int, match: Callable[[Datum, str, str | None], Datum]) -> Datum:
    text, pattern = arguments[0], arguments[1]
    escape = arguments[2].as_py() if len(arguments) > 2 and isinstance(arguments[2], pa.Scalar) else None
    if len(arguments) > 2 and not (isinstance(escape, str) and len(escape) == 1):
        raise DataError(f"ESCAPE must be one character, got {escape!r}")
    if isinstance(pattern, pa.Scalar):
        return match(text, pattern.as_py(), escape) if pattern.is_valid else pa.scalar(None, pa.bool_())
    encoded = pattern.dictionary_encode()
    column = pa.repeat(text, rows) if isinstance(text, pa.Scalar) else text
    answer = pa.nulls(rows, pa.bool_())
    for code, one in enumerate(encoded.dictionary.to_pylist()):
        chosen = pc.fill_null(pc.equal(encoded.indices, code), False)
        answer = pc.replace_with_mask(answer, chosen, match(column.filter(chosen), one, escape))
    return answer


def match_like(text: Datum, pattern: str, escape: str | None) -> Datum:
    """Which texts match one LIKE pattern; simple patterns avoid regular expressions.

    >>> match_like(pa.array(["magnet", "tnt", None]), "%t%", None).to_pylist()
    [True, True, None]
    """
    kind, literal = _plan_like(pattern, escape)
    match kind:
        case "equal":
            return pc.equal(text, literal)
        case "prefix":
            return pc.starts_with(text, literal)
        case "suffix":
            return pc.ends_with(text, literal)
        case "inside":
            return pc.match_substring(text, literal)
        case "any":
            return pc.if_else(pc.is_valid(text), True, pa.scalar(None, pa.bool_()))
        case _:
            return pc.match_substring_regex(text, literal)


@lru_cache(maxsize=256)
def _plan_like(pattern: str, escape: str | None) -> tuple[str, str]:
    parts: list[str] = []  # literal runs and the wildcards "%" and "_" as None-marked entries
    wild: list[bool] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if escape is not None and char == escape:
            position += 1
            if position == len(pattern) or pattern[position] not in ("%", "_", escape):
                raise DataError(
                    f"LIKE pattern '{pattern}': the escape character '{escape}' must stand before %, _ or itself"
                )
            char, is_wild = pattern[position], False
        else:
            is_wild = char in "%_"
        if not is_wild and wild and not wild[-1]:
            parts[-1] += char
        elif not (is_wild and char == "%" and wild and wild[-1] and parts[-1] == "%"):
            parts.append(char)
            wild.append(is_wild)
        position += 1
    shape = "".join(p if w else "x" for p, w in zip(parts, wild, strict=True))
    simple = {"": "equal", "x": "equal", "x%": "prefix", "%x": "suffix", "%x%": "inside", "%": "any"}.get(shape)
    if simple is not None:
        return simple, next((p for p, w in zip(parts, wild, strict=True) if not w), "")
    regex = "".join(
        {"%": "(?s:.*)", "_": _IN_A_LINE}[p] if w else re.escape(p) for p, w in zip(parts, wild, strict=True)
    )
    return "regex", f"^{regex}$"


def like_regex(pattern: str) -> str:
    """The regular expression, of RE2 and of Java, with the meaning of a LIKE pattern without an escape character that has a `_`."""
    return _plan_like(pattern, None)[1]


def match_similar(text: Datum, pattern: str, escape: str | None) -> Datum:
    """Which texts match one SIMILAR TO pattern as a whole.

    >>> match_similar(pa.array(["abc", "abd", "x.z"]), "(ab|x)%(c|z)", None).to_pylist()
    [True, False, True]
    """
    try:
        return pc.match_substring_regex(text, similar_regex(pattern, escape))
    except pa.ArrowInvalid as error:
        raise DataError(f"SIMILAR TO pattern '{pattern}' is not well-formed: {error}") from error


@lru_cache(maxsize=256)
def similar_regex(pattern: str, escape: str | None) -> str:
    r"""The RE2 regular expression with the meaning of a SIMILAR TO pattern.

    As in Flink, `.` stands for any character but a line end, as `_` does, and `^` for the start.

    >>> similar_regex("a%[0-9]{2}$", None)
    '^(?:a(?s:.*)[0-9]{2}\\$)$'
    """
    out, position, in_class = [], 0, False
    while position < len(pattern):
        char = pattern[position]
        if escape is not None and char == escape and position + 1 < len(pattern):
            position += 1
            out.append(re.escape(pattern[position]))
        elif in_class:
            in_class = char != "]" or pattern[position - 1] == ":"
            out.append("\\\\" if char == "\\" else char)
        elif char == "[":
            in_class = True
            out.append(char)
        elif char == "%":
            out.append("(?s:.*)")
        elif char in "_.":
            out.append(_IN_A_LINE)
        else:
            out.append(char if char in "|*+?{}(),^" or char.isalnum() else re.escape(char))
        position += 1
    return f"^(?:{_lower_classes(''.join(out))})$"


def _lower_classes(regex: str) -> str:
    return re.sub(r"\[:([A-Za-z]+):\]", lambda m: f"[:{m[1].lower()}:]", regex)
