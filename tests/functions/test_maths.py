"""Arithmetic and rounding functions: values and Flink's result types."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.core.types import BIGINT, DOUBLE, FLOAT, INT, TINYINT, decimal
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.numbers.rounding import round_doubles
from tests.functions.kernel_calls import Column, Constant, call, check, signature

D = Decimal
D10_2 = decimal(10, 2)


def money(text):
    return Constant(D(text), D10_2)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("ABS", (-3,), 3),
        ("ABS", (money("-1.50"),), D("1.50")),
        ("SIGN", (-7,), -1),
        ("SIGN", (-0.5,), -1.0),
        ("SIGN", (money("12.34"),), D("1.00")),
        ("MOD", (Constant(-1001, BIGINT), 7), 0),
        ("MOD", (-5, 3), -2),
        ("MOD", (5, -3), 2),
        ("MOD", (money("5.25"), Constant(D("2.00"), D10_2)), D("1.25")),
        ("POWER", (2, 10), 1024.0),
        ("SQRT", (16,), 4.0),
        ("EXP", (0,), 1.0),
        ("LN", (Constant(math.e, DOUBLE),), 1.0),
        ("LOG", (2, 8), 3.0),
        ("LOG2", (8,), 3.0),
        ("LOG10", (1000,), 3.0),
        ("SIN", (0,), 0.0),
        ("COS", (0,), 1.0),
        ("COT", (math.pi / 4,), 1 / math.tan(math.pi / 4)),
        ("ATAN2", (1, 1), math.pi / 4),
        ("DEGREES", (math.pi,), 180.0),
        ("RADIANS", (180,), math.pi),
        ("FLOOR", (-1.5,), -2.0),
        ("FLOOR", (money("-1.01"),), D("-2")),
        ("FLOOR", (7,), 7),
        ("CEIL", (money("10.13"),), D("11")),
        ("CEILING", (Constant(D("99.99"), decimal(4, 2)),), D("100")),
        ("ROUND", (money("10.15"), 1), D("10.2")),
        ("ROUND", (money("-10.15"), 1), D("-10.2")),
        ("ROUND", (money("15.00"), -1), D("20")),
        ("ROUND", (money("10.15"), 5), D("10.15")),
        ("ROUND", (2.675, 2), 2.68),
        ("ROUND", (-2.5,), -3.0),
        ("ROUND", (1e300, 2), 1e300),
        ("ROUND", (15, -1), 20),
        ("ROUND", (14, -1), 10),
        ("ROUND", (-15, -1), -20),
        ("TRUNCATE", (42.324, 2), 42.32),
        ("TRUNCATE", (0.29, 2), 0.29),
        ("TRUNCATE", (42.324,), 42.0),
        ("TRUNCATE", (money("-19.99"),), D("-19")),
        ("TRUNCATE", (19, -1), 10),
    ],
)
def test_values(name, arguments, expected):
    check(name, arguments, expected)


@pytest.mark.parametrize("name", ["ABS", "SIGN", "FLOOR", "CEIL", "ROUND", "TRUNCATE", "SQRT", "LN"])
def test_null_gives_null(name):
    for type in (INT, DOUBLE, D10_2):
        check(name, (Constant(None, type),), None)


@pytest.mark.parametrize(
    ("name", "arguments", "type"),
    [
        ("ROUND", (Column([], D10_2), 1), "DECIMAL(10, 1)"),
        ("ROUND", (Column([], D10_2), -1), "DECIMAL(9, 0)"),
        ("ROUND", (Column([], D10_2), 3), "DECIMAL(10, 2)"),
        ("ROUND", (Column([], D10_2),), "DECIMAL(9, 0)"),
        ("ROUND", (Column([], INT), 1), "INT"),
        ("ROUND", (Column([], FLOAT), 1), "FLOAT"),
        ("FLOOR", (Column([], D10_2),), "DECIMAL(10, 0)"),
        ("FLOOR", (Column([], BIGINT),), "BIGINT"),
        ("ABS", (Column([], decimal(13, 2)),), "DECIMAL(13, 2)"),
        ("MOD", (Column([], BIGINT), 7), "INT"),
        ("POWER", (Column([], INT), 2), "DOUBLE"),
    ],
)
def test_result_types_are_flinks(name, arguments, type):
    assert str(signature(name, *arguments).result) == type


def test_domain_errors_of_doubles_give_nan_or_infinity():
    assert math.isnan(call("SQRT", -1))
    assert math.isnan(call("ASIN", 2))
    assert call("LN", 0) == -math.inf


def test_overflow_is_an_error_and_never_a_wrong_number():
    with pytest.raises(DataError, match="ABS"):
        call("ABS", Column([1, -128], TINYINT))
    with pytest.raises(DataError, match="ROUND"):
        call("ROUND", Column([127], TINYINT), -1)
    with pytest.raises(DataError, match="ROUND"):
        call("ROUND", Column([2**63 - 1], BIGINT), -1)
    with pytest.raises(DataError, match="zero"):
        call("MOD", Column([1], INT), Column([0], INT))


def test_rounding_by_a_column_of_digits():
    assert call("ROUND", Column([2.345, 2.345], DOUBLE), Column([1, 2], INT)) == [2.3, 2.35]


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.floats(-1e12, 1e12) | st.integers(-(10**9), 10**9).map(lambda n: n / 1000), min_size=1, max_size=50),
    st.integers(-4, 6),
    st.sampled_from([ROUND_HALF_UP, ROUND_DOWN]),
)
def test_rounding_of_doubles_equals_that_of_their_shortest_decimals(values, digits, rounding):
    got = round_doubles(np.array(values), digits, rounding)
    step = D(1).scaleb(-digits)
    for value, rounded in zip(values, got.tolist(), strict=True):
        exact = D(repr(value))
        expected = float((exact / step).quantize(D(1), rounding) * step)
        assert rounded == expected


def test_random_numbers():
    values = call("RAND")
    assert 0 <= values[0] < 1
    assert call("RAND", Column([42, 42, None], INT)) == [0.7275636800328681, 0.7275636800328681, None]
    assert call("RAND_INTEGER", Column([42, 42], INT), Column([10, 16], INT)) == [0, 11]
    assert call("RAND_INTEGER", Column([1, 1, 1], INT)) == [0, 0, 0]


def test_constant_seed_is_refused():
    with pytest.raises(ExpressionError, match="constant seed"):
        signature("RAND", 42)


def test_constants():
    assert call("PI") == math.pi
    assert call("E") == math.e
