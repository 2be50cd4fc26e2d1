"""Decimal arithmetic against Python's decimal module, with Java's HALF_UP, for every precision and scale."""

import decimal
from decimal import ROUND_HALF_UP, Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flowrun.core.types import DataType
from flowrun.core.types import decimal as decimal_type
from flowrun.errors import DataError
from flowrun.functions.coercion import decimal_add, decimal_div, decimal_mod, decimal_mul
from flowrun.functions.operators.arithmetic import add, divide, multiply, remainder, subtract
from tests.examples import examples

EXACT = decimal.Context(prec=200, rounding=ROUND_HALF_UP)
OPERATIONS = {
    "+": (add, decimal_add, EXACT.add),
    "-": (subtract, decimal_add, EXACT.subtract),
    "*": (multiply, decimal_mul, EXACT.multiply),
    "/": (divide, decimal_div, EXACT.divide),
    "%": (remainder, decimal_mod, EXACT.remainder),
}


@st.composite
def decimal_columns(draw: st.DrawFn) -> tuple[DataType, list[Decimal | None]]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    unscaled = st.one_of(st.none(), st.integers(-limit, limit), st.sampled_from([0, 1, -1, limit, -limit]))
    values = draw(st.lists(unscaled, min_size=1, max_size=4))
    return decimal_type(precision, scale), [None if v is None else EXACT.scaleb(Decimal(v), -scale) for v in values]


@examples(400)
@given(decimal_columns(), decimal_columns(), st.sampled_from(sorted(OPERATIONS)))
def test_every_operation_is_exact_up_to_the_last_digit(left, right, symbol):
    kernel, rule, oracle = OPERATIONS[symbol]
    (left_type, a), (right_type, b) = left, right
    rows = min(len(a), len(b))
    result = rule(left_type, right_type)
    step = Decimal(1).scaleb(-result.scale)
    limit = Decimal(10) ** (result.precision - result.scale)
    for x, y in zip(a, b, strict=False):
        assume(symbol not in "/%" or y != 0)
        if x is not None and y is not None:
            assume(abs(oracle(x, y).quantize(step, context=EXACT)) < limit)
    expected = [
        None if x is None or y is None else oracle(x, y).quantize(step, context=EXACT)
        for x, y in zip(a, b, strict=False)
    ]
    columns = [pa.array(a[:rows], left_type.arrow), pa.array(b[:rows], right_type.arrow)]
    assert kernel(columns, rows, result).to_pylist() == expected


@settings(deadline=None)
@given(st.integers(10**37, 10**38 - 1), st.integers(11, 10**20))
def test_too_large_a_product_is_an_error_never_a_wrong_number(x, y):
    left, right = decimal_type(38, 0), decimal_type(21, 0)
    columns = [pa.array([Decimal(x)], left.arrow), pa.array([Decimal(y)], right.arrow)]
    with pytest.raises(DataError, match=r"does not fit DECIMAL\(38, 0\)") as caught:
        multiply(columns, 1, decimal_mul(left, right))
    assert caught.value.row == 0


def test_a_product_of_all_38_digits_fits():
    type, most = decimal_type(38, 0), Decimal("9" * 38)
    one, factor = (pa.array([v], pa.decimal128(38, 0)) for v in (Decimal(1), most))
    assert multiply([one, factor], 1, type).to_pylist() == [most]
    with pytest.raises(DataError, match="does not fit"):
        multiply([factor, factor], 1, type)
