"""Disjunctions mean the same when what their branches share comes first, and what is implied of a side never says too much."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.types import BIGINT, BOOLEAN
from flowrun.errors import DataError
from flowrun.plan.compiler import compile_value
from flowrun.plan.disjunctions import factored, implied
from flowrun.plan.expressions import And, Call, ColumnRef, Expression, Literal, Or, columns_used

COLUMNS = tuple(ColumnRef(BOOLEAN, i, n) for i, n in enumerate("abcd"))
A, B, C, D = COLUMNS
EVERY_ROW = pa.RecordBatch.from_arrays(
    [pa.array(column, pa.bool_()) for column in zip(*product((True, False, None), repeat=4), strict=True)],
    names=list("abcd"),
)
TREES = st.recursive(
    st.sampled_from(COLUMNS),
    lambda inner: st.builds(
        lambda kind, operands: kind(tuple(operands)),
        st.sampled_from([And, Or]),
        st.lists(inner, min_size=2, max_size=3),
    ),
    max_leaves=10,
)


def values(condition: Expression) -> list[bool | None]:
    """TRUE, FALSE or NULL for every combination of the four columns."""
    return list(compile_value(condition)(EVERY_ROW).to_pylist())


@given(TREES)
def test_factoring_keeps_all_three_truth_values(condition: Expression) -> None:
    assert values(factored(condition)) == values(condition)


@given(TREES)
def test_what_is_implied_is_true_wherever_the_whole_is(condition: Expression) -> None:
    part = implied(condition, lambda columns: columns <= {0, 1})
    if part is not None:
        assert columns_used(part) <= {0, 1}
        assert all(p is True for p, whole in zip(values(part), values(condition), strict=True) if whole is True)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Or((And((A, B)), And((C, A)))), "(a AND (b OR c))"),
        (Or((And((A, B, C)), And((C, A)))), "(a AND c)"),
        (Or((And((A, B)), And((C, D)))), "((a AND b) OR (c AND d))"),
        (And((D, Or((And((A, B)), And((A, C)))))), "(d AND a AND (b OR c))"),
        (Or((And((A, B)), And((A, Or((And((B, C)), And((B, D)))))))), "(a AND b)"),
        (Or((And((A, Or((B, C)))), And((A, D)))), "(a AND (b OR c OR d))"),
    ],
)
def test_what_comes_of_some(condition: Expression, expected: str) -> None:
    assert str(factored(condition)) == expected


def test_an_equality_is_the_same_either_way_round() -> None:
    x, y = ColumnRef(BIGINT, 0, "x"), ColumnRef(BIGINT, 1, "y")
    condition = Or((And((Call(BOOLEAN, "=", (x, y)), C)), And((D, Call(BOOLEAN, "=", (y, x))))))
    assert str(factored(condition)) == "((x = y) AND (c OR d))"


def test_a_part_that_may_fail_stays_behind_what_guards_it() -> None:
    """`x <> 0 AND 10 / x > 1` must not become `10 / x > 1 AND …`; where it is first in the first branch it is tested anyway."""
    x = ColumnRef(BIGINT, 0, "x")
    guard = Call(BOOLEAN, "<>", (x, Literal(BIGINT, 0)))
    quotient = Call(BOOLEAN, ">", (Call(BIGINT, "/", (Literal(BIGINT, 10), x)), Literal(BIGINT, 1)))
    guarded = Or((And((guard, quotient)), And((quotient, B))))
    assert factored(guarded) == guarded
    assert str(factored(Or((And((quotient, B)), And((quotient, C)))))) == f"({quotient} AND (b OR c))"
    rows = pa.RecordBatch.from_arrays(
        [pa.array([0, 5]), pa.array([False, True]), pa.array([True, True])], ["x", "b", "c"]
    )
    alike = Or((And((guard, quotient, B)), And((guard, C, quotient))))
    assert compile_value(factored(alike))(rows).to_pylist() == compile_value(alike)(rows).to_pylist() == [False, True]
    with pytest.raises(DataError):
        compile_value(quotient)(rows)
