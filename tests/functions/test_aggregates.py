"""Aggregates: their accumulators, folded over groups as operators do, give Flink's results and types."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.core.types import BIGINT, DOUBLE, FLOAT, INT, STRING, TINYINT, array, char, decimal, map_of, timestamp
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate

D10_2 = decimal(10, 2)


def resolve(name, type, *more):
    function = aggregate(name)
    arguments = [] if type is None else [Argument(type)]
    _, kernel = function.type_rule([*arguments, *(Argument(char(len(m)), m, True) for m in more)])
    return pickle.loads(pickle.dumps(kernel))


def fold(kernel, type, groups):
    """Partials of each group, computed in two halves and merged, then finished: what a window operator does."""
    if kernel.collect is not None:
        lists = pa.array([[v for v in g if v is not None] for g in groups], pa.list_(type.arrow))
        return kernel.collect(lists, kernel.result).to_pylist()
    if kernel.argument == DOUBLE:
        groups = [[None if v is None else float(v) for v in g] for g in groups]
    columns = []
    for accumulator in kernel.accumulators:
        halves = [[_partial(accumulator, type, part) for part in (g[: len(g) // 2], g[len(g) // 2 :])] for g in groups]
        merged = [_merge(accumulator, half) for half in halves]
        columns.append(pa.array(merged, accumulator.type.arrow))
    result = kernel.finish(columns, kernel.result)
    assert result.type == kernel.result.arrow
    return result.to_pylist()


def _partial(accumulator, type, values):
    known = [v for v in values if v is not None]
    match accumulator.partial:
        case "count_all":
            return len(values)
        case "count":
            return len(known)
        case "sum":
            return sum(known) if known else None
        case "sum_of_squares":
            return sum(v * v for v in known) if known else None
        case "min" | "max":
            return {"min": min, "max": max}[accumulator.partial](known, default=None)
        case "first":
            return known[0] if known else None
        case "last":
            return known[-1] if known else None
    raise AssertionError(accumulator.partial)


def _merge(accumulator, halves):
    known = [h for h in halves if h is not None]
    if not known:
        return None
    return {"sum": sum, "min": min, "max": max, "first": lambda v: v[0], "last": lambda v: v[-1]}[accumulator.merge](
        known
    )


D = Decimal
GROUPS = [[1, 2, None, 4], [None, None], [7]]


@pytest.mark.parametrize(
    ("name", "type", "groups", "result", "expected"),
    [
        ("COUNT", None, GROUPS, BIGINT, [4, 2, 1]),
        ("COUNT", INT, GROUPS, BIGINT, [3, 0, 1]),
        ("SUM", INT, GROUPS, INT, [7, None, 7]),
        ("SUM", TINYINT, GROUPS, TINYINT, [7, None, 7]),
        ("SUM", DOUBLE, [[1.5, 2.0], []], DOUBLE, [3.5, None]),
        ("SUM", FLOAT, [[1.5, 2.0], []], FLOAT, [3.5, None]),
        ("SUM", D10_2, [[D("1.10"), D("2.20")], []], decimal(38, 2), [D("3.30"), None]),
        ("SUM0", INT, GROUPS, INT, [7, 0, 7]),
        ("AVG", INT, [[1, 2, 2], [-1, -2], []], INT, [1, -1, None]),
        ("AVG", DOUBLE, [[1.0, 2.0]], DOUBLE, [1.5]),
        (
            "AVG",
            D10_2,
            [[D("252.99")] + [D("0.00")] * 10, [D("0.01"), D("0.02"), D("0.02")], []],
            decimal(38, 6),
            [D("22.999091"), D("0.016667"), None],
        ),
        ("AVG", decimal(20, 8), [[D("1"), D("2")]], decimal(38, 8), [D("1.50000000")]),
        ("MIN", STRING, [["ü", "a", None], []], STRING, ["a", None]),
        ("MAX", STRING, [["ü", "☂", "z"]], STRING, ["☂"]),
        ("MAX", INT, GROUPS, INT, [4, None, 7]),
        ("FIRST_VALUE", STRING, [[None, "b", "a"], [None]], STRING, ["b", None]),
        ("LAST_VALUE", INT, [[1, 2, None]], INT, [2]),
        ("VAR_POP", DOUBLE, [[1.0, 3.0], [5.0], []], DOUBLE, [1.0, 0.0, None]),
        ("VARIANCE", DOUBLE, [[1.0, 3.0], [5.0], []], DOUBLE, [2.0, None, None]),
        ("STDDEV_POP", DOUBLE, [[1.0, 3.0]], DOUBLE, [1.0]),
        ("STDDEV", INT, [[1, 3, 8]], INT, [3]),
        ("VAR_SAMP", D10_2, [[D("1"), D("3")]], decimal(38, 6), [D("2.000000")]),
        ("LISTAGG", STRING, [["a", None, "☂"], []], STRING, ["a,☂", None]),
        ("ARRAY_AGG", INT, [[3, 1, None], []], array(INT), [[3, 1], None]),
        ("COLLECT", STRING, [["a", "b", "a"], []], map_of(STRING, INT), [[("a", 2), ("b", 1)], []]),
        ("SINGLE_VALUE", STRING, [["a"], []], STRING, ["a", None]),
    ],
)
def test_results(name, type, groups, result, expected):
    kernel = resolve(name, type)
    assert kernel.result == result
    assert fold(kernel, type or INT, groups) == expected


def test_a_single_value_is_an_error_where_there_are_several():
    with pytest.raises(DataError, match="stands for one value gave 2 rows"):
        fold(resolve("SINGLE_VALUE", INT), INT, [[1], [2, 3]])


def test_listagg_takes_a_constant_separator():
    assert fold(resolve("LISTAGG", STRING, "; "), STRING, [["a", "b"]]) == ["a; b"]
    with pytest.raises(ExpressionError, match="separator of LISTAGG must be a constant"):
        aggregate("LISTAGG").type_rule([Argument(STRING), Argument(STRING)])


def test_sum_of_integers_beyond_their_type_is_an_error():
    kernel = resolve("SUM", INT)
    with pytest.raises(DataError, match="SUM: 2147483648 does not fit into INT") as caught:
        fold(kernel, BIGINT, [[1], [2**31 - 1, 1]])
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("name", "type"), [("SUM", STRING), ("AVG", timestamp(3)), ("MAX", array(INT)), ("LISTAGG", INT)]
)
def test_wrong_types_are_refused(name, type):
    with pytest.raises(ExpressionError, match=name):
        resolve(name, type)


def test_which_aggregates_retract_and_which_depend_on_order():
    retractable = {n for n in ("COUNT", "SUM", "SUM0", "AVG", "VAR_POP", "STDDEV") if resolve(n, INT).retractable}
    assert retractable == {"COUNT", "SUM", "SUM0", "AVG", "VAR_POP", "STDDEV"}
    assert not resolve("MIN", INT).retractable
    ordered = [n for n in ("FIRST_VALUE", "LAST_VALUE", "LISTAGG", "ARRAY_AGG") if resolve(n, STRING).order_sensitive]
    assert ordered == ["FIRST_VALUE", "LAST_VALUE", "LISTAGG", "ARRAY_AGG"]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(-1000, 1000), min_size=2, max_size=30), min_size=1, max_size=5))
def test_statistics_equal_numpys(groups):
    floats = [[float(v) for v in g] for g in groups]
    for name, function in (("VAR_POP", np.var), ("STDDEV_POP", np.std), ("AVG", np.mean)):
        for got, values in zip(fold(resolve(name, DOUBLE), DOUBLE, floats), floats, strict=True):
            assert math.isclose(got, float(function(values)), rel_tol=1e-6, abs_tol=1e-5)
    got = fold(resolve("AVG", INT), INT, groups)
    assert got == pc.divide(pa.array([sum(g) for g in groups]), pa.array([len(g) for g in groups])).to_pylist()
