"""Sums that are never silently wrong: 64-bit sums with a carry, and decimals that stop at 38 digits.

A partial sum of integers is `carry · 2^64 + sum`; the carry column is all NULL until a bound check (greatest magnitude × rows
< 2^63) fails, which costs one min/max a batch. So whether a result overflows depends on the final total only, never on how rows
were cut into batches. Decimals are summed as 64-bit words, 128-bit or 256-bit numbers, the narrowest that surely holds the sum.
"""

from __future__ import annotations

import decimal
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.decimal_words import decimal_words, fit_low_word
from flowrun.core.record import record
from flowrun.errors import DataError
from flowrun.operators.aggregation.dense import Reduction

_LIMIT = 1 << 63
_MASK = np.int64(0xFFFFFFFF)
_HALF = np.int64(32)
_MAX_DIGITS = 38
_WORD_DIGITS = 18
_WIDE = decimal.Context(prec=2 * _MAX_DIGITS)


class _Way(Enum):
    PLAIN = "plain"
    SPLIT = "split"
    WIDE_DECIMAL = "wide decimal"


@record
class SumPlan:
    """How one sum is computed: its reductions, whose columns `combine` turns into (sum, carry)."""

    reductions: tuple[Reduction, ...]
    way: _Way = _Way.PLAIN
    carried: bool = False

    def combine(self, columns: list[pa.Array], place: str) -> tuple[pa.Array, pa.Array | None]:
        """(sum, carry) from the columns of `reductions`; decimals and floats have no carry.

        Raises:
            DataError: a decimal sum needs more than 38 digits; `place` names the aggregate.
        """
        match self.way:
            case _Way.PLAIN:
                return columns[0], columns[1] if self.carried else None
            case _Way.SPLIT:
                return self._join(columns)
            case _Way.WIDE_DECIMAL:
                narrow = pa.decimal128(_MAX_DIGITS, columns[0].type.scale)
                try:
                    return columns[0].cast(narrow), None
                except pa.ArrowInvalid:
                    raise overflow(place, f"DECIMAL({_MAX_DIGITS}, {narrow.scale})") from None

    def _join(self, columns: list[pa.Array]) -> tuple[pa.Array, pa.Array]:
        low = pc.fill_null(columns[1], 0).to_numpy()
        high = pc.fill_null(columns[0], 0).to_numpy() + (low >> _HALF)
        word = ((high & _MASK) << _HALF) | (low & _MASK)
        carry = (high >> _HALF) + (word < 0)
        if self.carried:
            carry = carry + pc.fill_null(columns[2], 0).to_numpy()
        mask = columns[0].is_null().to_numpy(zero_copy_only=False)
        return pa.array(word, mask=mask), pa.array(carry, mask=mask)


def plan_sum(values: pa.Array, carry: pa.Array | None = None) -> SumPlan:
    """The sum of numbers, NULLs skipped; `carry` holds the carries of earlier partial sums of integers.

    >>> plan = plan_sum(pa.array([2**62, 2**62]))
    >>> plan.way
    <_Way.SPLIT: 'split'>
    """
    if pa.types.is_floating(values.type):
        return SumPlan((Reduction("sum", values),))
    if pa.types.is_decimal(values.type):
        return _plan_decimal(values)
    carries = () if carry is None or carry.null_count == len(carry) else (Reduction("sum", carry),)
    if _fits_word(values):
        return SumPlan((Reduction("sum", values), *carries), carried=bool(carries))
    numbers = pc.fill_null(values, 0).to_numpy()
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    high = Reduction("sum", pa.array(numbers >> _HALF, mask=mask))
    low = Reduction("sum", pa.array(numbers & _MASK, mask=mask))
    return SumPlan((high, low, *carries), _Way.SPLIT, carried=bool(carries))


def check_carry(carry: pa.Array | None, place: str) -> None:
    """Raise if a finished sum left 64 bits.

    Raises:
        DataError: it did; `place` names the aggregate.
    """
    if carry is not None and carry.null_count < len(carry) and pc.any(pc.not_equal(carry, 0)).as_py():
        raise overflow(place, "BIGINT")


def overflow(place: str, type_name: str) -> DataError:
    """The error of a sum that does not fit its type."""
    return DataError(
        f"{place}: the sum does not fit {type_name}",
        hint="cast the argument to a wider type first, e.g. DECIMAL(38, 0) or DOUBLE",
    )


def _fits_word(values: pa.Array) -> bool:
    if values.type.bit_width < 64:
        return True  # 2^31 × 2^32 rows
    extremes = pc.min_max(values)
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    return low is None or max(abs(low), abs(high)) * len(values) < _LIMIT


def _plan_decimal(values: pa.Array) -> SumPlan:
    kind, rows = values.type, len(values)
    word = _as_words(values)
    if word is not None:
        return SumPlan((Reduction("sum", word),))
    if kind.precision + len(str(rows)) <= _MAX_DIGITS or _greatest(values) * rows < 10**_MAX_DIGITS:
        return SumPlan((Reduction("sum", values.cast(pa.decimal128(_MAX_DIGITS, kind.scale))),))
    return SumPlan((Reduction("sum", values.cast(pa.decimal256(2 * _MAX_DIGITS, kind.scale))),), _Way.WIDE_DECIMAL)


def _as_words(values: pa.Array) -> pa.Array | None:
    """The same decimals as a type of 18 digits, if their sum surely fits 64 bits; the fast reductions take those."""
    valid = values.drop_null() if values.null_count else values
    if len(valid) == 0:
        return None
    words = decimal_words(valid)
    least, most = int(words[:, 0].min()), int(words[:, 0].max())
    if max(abs(least), abs(most)) * len(valid) >= _LIMIT or not fit_low_word(words).all():
        return None
    kind = pa.decimal128(_WORD_DIGITS, min(values.type.scale, _WORD_DIGITS))
    if kind.scale != values.type.scale:
        return None
    return pa.Array.from_buffers(kind, len(values), values.buffers(), values.null_count, values.offset)


def _greatest(values: pa.Array) -> int:
    extremes = pc.min_max(values)
    bounds = [b for b in (extremes["min"].as_py(), extremes["max"].as_py()) if b is not None]
    return max((abs(int(_WIDE.scaleb(b, values.type.scale))) for b in bounds), default=0)
