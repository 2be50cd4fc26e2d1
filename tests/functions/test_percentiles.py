"""PERCENTILE: exact places, interpolation, frequencies, several percentages, and what is refused."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.types import BIGINT, DOUBLE, INT, STRING, DataType, array, decimal, row
from flowrun.errors import ExpressionError
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate

COUNTED = row(("value", DOUBLE), ("frequency", BIGINT))


def percentile(groups, percentage, type: DataType = DOUBLE):
    """The percentiles of groups of values, or of pairs of value and frequency."""
    wanted = array(DOUBLE) if isinstance(percentage, tuple) else DOUBLE
    _, kernel = aggregate("PERCENTILE").type_rule([Argument(type), Argument(wanted, percentage, True)])
    kernel = pickle.loads(pickle.dumps(kernel))
    pairs = [[dict(zip(type.names, v, strict=True)) for v in g] if type.names else g for g in groups]
    result = kernel.collect(pa.array(pairs, pa.list_(type.arrow)), kernel.result)
    assert result.type == kernel.result.arrow == wanted.arrow
    return result.to_pylist()


def test_between_two_values_it_is_interpolated() -> None:
    assert percentile([[40.0, 10.0, 30.0, 20.0], [7.0], []], 0.25) == [17.5, 7.0, None]
    assert percentile([[0.0, 10.0, 10.0]], 0.3) == [pytest.approx(6.0)]
    assert percentile([[3.0, 1.0, 2.0]], 0.0) == [1.0]
    assert percentile([[3.0, 1.0, 2.0]], 1.0) == [3.0]


def test_several_percentages_give_an_array() -> None:
    assert percentile([[0.0, 10.0], [], [5.0]], (0.75, 0.25)) == [[7.5, 2.5], None, [5.0, 5.0]]
    assert percentile([[1.0]], ()) == [None]


def test_values_count_as_often_as_their_frequency_says() -> None:
    groups = [[(0.0, 1), (10.0, 2)], [(1.0, 0), (2.0, -3), (3.0, None), (None, 5)], [(4.0, 3)]]
    assert percentile(groups, 0.3, COUNTED) == [pytest.approx(6.0), None, 4.0]


def test_nan_is_the_greatest_and_infinite_values_stay_infinite() -> None:
    nan, endless = float("nan"), float("inf")
    assert percentile([[nan, 1.0, 2.0], [endless, endless], [-endless, 0.0]], 0.5) == [2.0, endless, -endless]
    assert str(percentile([[-0.0, 0.0]], 0.0)) == str(percentile([[0.0, -0.0]], 0.0)) == "[0.0]"


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), max_size=9), st.floats(0, 1))
def test_frequencies_are_repetitions(pairs: list[tuple[int, int]], part: float) -> None:
    repeated = [float(v) for v, n in pairs for _ in range(n)]
    assert percentile([[], [(float(v), n) for v, n in pairs]], part, COUNTED) == percentile([[], repeated], part)


def test_types_and_casts() -> None:
    casts, kernel = aggregate("PERCENTILE").type_rule(
        [Argument(INT), Argument(decimal(2, 1), 0.5, True), Argument(INT)]
    )
    assert casts == (DOUBLE, decimal(2, 1), BIGINT)
    assert (kernel.argument, kernel.result) == (COUNTED, DOUBLE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([Argument(INT)], "takes 2 to 3 arguments, 1 given"),
        ([Argument(STRING), Argument(DOUBLE, 0.5, True)], "argument 1 of PERCENTILE must be a number, STRING given"),
        ([Argument(INT), Argument(DOUBLE)], "must be a constant number"),
        ([Argument(INT), Argument(STRING, "0.5", True)], "must be a constant number"),
        ([Argument(INT), Argument(DOUBLE, 1.5, True)], "must be between 0 and 1, this is 1.5"),
        ([Argument(INT), Argument(array(DOUBLE), (0.5, None), True)], "must be between 0 and 1, this is None"),
        ([Argument(INT), Argument(DOUBLE, 0.5, True), Argument(DOUBLE)], "argument 3 of PERCENTILE must be an integer"),
    ],
)
def test_wrong_arguments(arguments: list[Argument], message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as raised:
        aggregate("PERCENTILE").type_rule(arguments)
    assert raised.value.hint == "usage: PERCENTILE(number, percentage[, frequency])"
