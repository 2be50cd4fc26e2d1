# ruff: noqa: ARG001 - kernels share one signature
"""Cast kernels from text: what Flink accepts as a number or truth value.

A regular expression decides what is well-formed, Arrow's parsers do the conversion. Values that are well-formed but impossible
(the 13th month) make Arrow's kernel fail without saying where, so distinct values are then bisected.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools
from flowrun.core.types import STRING, DataType, TypeRoot
from flowrun.functions.casts.numeric import Outcome, integer_range
from flowrun.functions.decimals import fit, null_where, to_mask
from flowrun.functions.times.cast_forms import SPACES
from flowrun.functions.vectors import directly

_INTEGER = r"^[+-]?(\d+(\.\d*)?|\.\d*)$"
_APPROXIMATE = r"^[+-]?((\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[dDfF]?|Infinity|NaN)$"
_EXACT = r"^[+-]?(\d+(\.\d*)?|\.\d+)$"
_TOO_LONG = r"^[+-]?0*[1-9]\d{38}"
_SCIENTIFIC = r"^[+-]?(\d+(\.\d*)?|\.\d+)[eE][+-]?\d{1,3}$"
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")


Parse = Callable[[pa.Array], pa.Array]


def trimmed(text: pa.Array) -> pa.Array:
    """Text without spaces around it."""
    return pc.utf8_trim_whitespace(text)


def stripped(text: pa.Array) -> pa.Array:
    """Text without spaces and control characters around it, as Java's `String.trim` gives it."""
    return pc.utf8_trim(text, SPACES)


def well_formed(text: pa.Array, pattern: str) -> tuple[pa.Array, Bools]:
    """The texts that match, NULL in place of others, and which those are."""
    good = to_mask(pc.match_substring_regex(text, pattern))
    bad = to_mask(pc.is_valid(text)) & ~good
    return (null_where(text, bad) if bad.any() else text), bad


def parse_or_bisect(values: pa.Array, parse: Parse) -> Outcome:
    """`parse(values)`; values that make it raise ArrowInvalid become NULL and are reported."""
    try:
        return parse(values), None
    except pa.ArrowInvalid:
        pass
    encoded = values.dictionary_encode()
    good = _parseable(encoded.dictionary, parse)
    bad = ~good[np.asarray(pc.fill_null(encoded.indices, 0))] & to_mask(pc.is_valid(values))
    return parse(null_where(values, bad)), bad


def _parseable(values: pa.Array, parse: Parse) -> Bools:
    try:
        parse(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return np.zeros(1, np.bool_)
        half = len(values) // 2
        return np.concatenate([_parseable(values.slice(0, half), parse), _parseable(values.slice(half), parse)])
    return np.ones(len(values), np.bool_)


def merged(outcome: Outcome, bad: Bools) -> Outcome:
    """The outcome with more values that could not be converted."""
    result, more = outcome
    total = bad if more is None else bad | more
    return result, total if total.any() else None


def _contains(text: pa.Array, part: str) -> bool:
    return bool(pc.any(pc.match_substring(text, part, ignore_case=True)).as_py())


def text_to_integer(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Optional sign and digits; digits after a decimal point are cut off, spaces around it ignored."""
    if (values := directly(text, target.arrow)) is not None and not _contains(text, "x"):  # Arrow also reads 0x1F
        return values, None
    digits, bad = well_formed(pc.utf8_trim(text, " "), _INTEGER)
    if pc.any(pc.match_substring_regex(digits, r"[+.]")).as_py():
        digits = pc.replace_substring_regex(digits, r"^\+|\..*$", "")
        digits = pc.replace_substring_regex(digits, r"^-?$", "0")  # no digit before the point
    low, high = integer_range(target)
    longest = pc.max(pc.binary_length(digits)).as_py() or 0
    if longest <= 18:
        values = pc.cast(digits, pa.int64())
        if target.root is TypeRoot.BIGINT:
            return values, bad if bad.any() else None
        outside = to_mask(pc.or_(pc.less(values, low), pc.greater(values, high)))
        return merged((pc.cast(null_where(values, outside), target.arrow), outside), bad)
    return merged(parse_or_bisect(digits, lambda v: pc.cast(v, target.arrow)), bad)


def text_to_approximate(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Decimal or scientific notation, also with the letter that Java has behind its literals, NaN, Infinity."""
    if (values := directly(text, target.arrow)) is not None and pc.all(pc.is_finite(values)).as_py() is not False:
        return values, None  # Arrow also reads other spellings of NaN and infinity
    numbers, bad = well_formed(stripped(text), _APPROXIMATE)
    if pc.any(pc.match_substring_regex(numbers, r"[dDfF]$|NaN")).as_py():
        numbers = pc.replace_substring_regex(numbers, r"[dDfF]$", "")
        numbers = pc.replace_substring_regex(numbers, r"^[+-]NaN$", "NaN")
    return merged((pc.cast(numbers, target.arrow), None), bad)


def text_to_decimal(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Decimal or scientific notation, rounded half-up to the target's scale."""
    numbers = stripped(text)
    scientific = to_mask(pc.match_substring_regex(numbers, _SCIENTIFIC))
    if scientific.any():
        plain = [f"{decimal.Decimal(v):f}" for v in numbers.filter(pa.array(scientific)).to_pylist()]
        numbers = pc.replace_with_mask(numbers, pa.array(scientific), pa.array(plain, pa.string()))
    numbers, bad = well_formed(numbers, _EXACT)
    too_long = to_mask(pc.match_substring_regex(numbers, _TOO_LONG))
    if too_long.any():  # Arrow reads 0 from more digits than it can hold
        numbers, bad = null_where(numbers, too_long), bad | too_long
    scale = target.scale or 0
    # half-up needs only the first digit that is dropped
    kept = pc.replace_substring_regex(numbers, rf"(\.\d{{{scale + 1}}})\d*", r"\1")
    parsed, too_big = parse_or_bisect(kept, lambda v: pc.cast(v, pa.decimal256(76, scale + 1)))
    if too_big is not None:
        bad = bad | too_big
    return merged(fit(parsed, target.arrow), bad)


def approximate_to_decimal(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    """FLOAT or DOUBLE as DECIMAL by the shortest decimal text of the number, as Java's BigDecimal.valueOf does."""
    bad = to_mask(pc.is_valid(array)) & ~to_mask(pc.is_finite(array))
    text = pc.cast(null_where(array, bad) if bad.any() else array, pa.string())
    return merged(text_to_decimal(text, STRING, target), bad)


def text_to_boolean(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """t, true, y, yes, 1 and f, false, n, no, 0, in any case, without spaces around them."""
    return _words(text, text)


def written_boolean(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """What CAST reads, and spaces around it."""
    return _words(trimmed(text), text)


def _words(stripped: pa.Array, text: pa.Array) -> Outcome:
    words = pc.utf8_lower(stripped)
    true = pc.is_in(words, pa.array(_TRUE))
    known = to_mask(pc.or_(true, pc.is_in(words, pa.array(_FALSE))))
    valid = to_mask(pc.is_valid(text))
    bad = valid & ~known
    return pc.if_else(pa.array(known), true, pa.scalar(None, pa.bool_())), bad if bad.any() else None


def text_to_binary(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """The UTF-8 bytes."""
    return pc.cast(text, pa.binary()), None
