"""Variances and standard deviations of integers, against exact arithmetic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import flowrun
from flowrun.core.types import BIGINT, INT, DataType

_LARGEST = 2**31 - 1
SPREADS = "STDDEV_POP(v) AS a, STDDEV_SAMP(v) AS b, VAR_POP(w) AS c, VAR_SAMP(w) AS d"
near = st.integers(-_LARGEST, _LARGEST - 9).flatmap(
    lambda low: st.lists(st.integers(low, low + 9), min_size=1, max_size=9)
)
numbers = near | st.lists(st.integers(-_LARGEST, _LARGEST), min_size=1, max_size=9)


def asked(query: str, values: Sequence[int | None], type: DataType) -> list[tuple[int | None, ...]]:
    """The rows of a query over `t`: `v` in the type, and `w` the same as BIGINT, whose variances have room."""
    table = pa.table({"v": pa.array(values, type.arrow), "w": pa.array(values, pa.int64())})
    found = flowrun.sql(query, t=table)
    assert found is not None
    return found.rows()


def spreads(values: Sequence[int]) -> tuple[int | None, ...]:
    wide = [Fraction(v) for v in values]
    population = statistics.pvariance(wide)
    sample = statistics.variance(wide) if len(values) > 1 else None
    roots = [None if s is None else math.isqrt(int(s)) for s in (population, sample)]
    return (*roots, int(population), None if sample is None else int(sample))


def differ(found: Sequence[int | None], values: Sequence[int]) -> bool:
    """Variances beyond 2 ** 53 are doubles that were rounded; all else is exact."""
    pairs = zip(found, spreads(values), strict=True)
    return any(f != s and (f is None or s is None or abs(f - s) > s >> 50) for f, s in pairs)


@settings(max_examples=25)
@given(numbers, st.sampled_from([INT, BIGINT]))
def test_spreads_of_integers_are_exact_and_truncated(values: list[int], type: DataType) -> None:
    (found,) = asked(f"SELECT {SPREADS} FROM t", [None, *values], type)
    assert not differ(found, values)


def test_values_whose_squares_do_not_fit_their_type() -> None:
    assert asked(f"SELECT {SPREADS} FROM t", [1, 2**31 - 1, 12, None], INT)[0][:2] == (1012333496, 1239850257)
    values = [12345678901, -(10**15), 10**15, 12]
    (found,) = asked("SELECT STDDEV_POP(v), STDDEV_SAMP(v) FROM t", values, BIGINT)
    assert found == spreads(values)[:2]


def test_in_over_windows_every_division_truncates_as_in_flink() -> None:
    """Of 3, 5 and 10: 134 − 324 / 3 is 26, and 26 / 2 is 13; the root is 3. Of 1 and 2: 5 − 9 / 2 is 1."""
    over = "OVER (ORDER BY p ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    query = f"SELECT VAR_SAMP(v) {over}, STDDEV_SAMP(v) {over} FROM (SELECT v, PROCTIME() AS p FROM t)"
    assert asked(query, [3, 5, 10], INT)[-1] == (13, 3)
    assert asked(query, [1, 2], INT)[-1] == (1, 1)
    assert asked("SELECT VAR_SAMP(v), STDDEV_SAMP(v) FROM t", [1, 2], INT) == [(0, 0)]
