"""Compiled expressions: shared parts once, the right row in errors, picklable recipes, any batch size, no rows at all."""

import pickle
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, array, decimal
from flowrun.errors import DataError
from flowrun.frontend.sql.expressions.from_text import bind_predicate
from flowrun.functions import registry
from flowrun.plan.compiled import Predicate, Projection, Value
from flowrun.plan.compiler import compile_columns, compile_value
from flowrun.plan.expressions import And, Call, Case, Cast, ColumnRef, InList, Literal, Or
from flowrun.plan.fallibility import is_constant, may_fail
from flowrun.plan.folding import fold_constants

A, B, S = ColumnRef(BIGINT, 0, "a"), ColumnRef(BIGINT, 1, "b"), ColumnRef(STRING, 2, "s")
BATCH = pa.RecordBatch.from_arrays(
    [pa.array([1, 2, None, 4]), pa.array([0, 2, 3, 0]), pa.array(["x", None, "y", "z"])], ["a", "b", "s"]
)


def number(value: int) -> Literal:
    return Literal(BIGINT, value)


def call(name: str, *arguments: object, type=BIGINT) -> Call:
    return Call(type, name, arguments)


QUOTIENT = call("/", A, B)


def test_a_recipe_pickles_and_compiles_where_it_arrives():
    schema = Schema.of(sum=BIGINT, s=STRING)
    projection = pickle.loads(pickle.dumps(Projection((call("+", A, B), S), schema)))
    predicate = pickle.loads(pickle.dumps(Predicate(call(">", A, number(1), type=BOOLEAN))))
    assert projection.compile()(BATCH).to_pydict() == {"sum": [1, 4, None, 4], "s": ["x", None, "y", "z"]}
    assert predicate.compile()(BATCH).to_pylist() == [False, True, None, True]
    assert Value(S).compile()(BATCH) is not None


def test_a_recipe_checks_its_types():
    with pytest.raises(ValueError, match="do not give columns"):
        Projection((A,), Schema.of(a=INT))
    with pytest.raises(ValueError, match="a predicate is BOOLEAN"):
        Predicate(A)


def test_columns_pass_through_without_a_copy():
    (column,) = compile_columns((A,))(BATCH)
    assert column.buffers()[1].address == BATCH.column(0).buffers()[1].address


def test_constants_become_columns_of_the_batch_length():
    assert compile_value(Literal(STRING, "k"))(BATCH).to_pylist() == ["k"] * 4
    assert compile_value(Literal(array(INT), None))(BATCH).to_pylist() == [None] * 4


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_every_batch_size_gives_the_same_rows(rows):
    safe = call("<>", B, number(0), type=BOOLEAN)
    guarded = Case(BIGINT, ((safe, QUOTIENT),), number(-1))
    either = Or((call("=", B, number(0), type=BOOLEAN), call("=", QUOTIENT, number(1), type=BOOLEAN)))
    member = InList(A, (1, None))
    expected = ([-1, 1, None, -1], [True, True, None, True], [True, None, None, None])
    kernel = compile_columns((guarded, either, member))
    for result, wanted in zip(kernel(BATCH.slice(1, rows)), expected, strict=True):
        assert result.to_pylist() == wanted[1 : 1 + rows]


def counting(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Row counts of each evaluation of a function from now on."""
    seen: list[int] = []
    function = registry.scalar(name)

    def kernel(arguments, rows, result):
        seen.append(rows)
        return function.kernel(arguments, rows, result)

    counted = replace(function, kernel=kernel)
    monkeypatch.setattr("flowrun.plan.compiler.scalar", lambda n: counted if n == name else registry.scalar(n))
    return seen


def test_a_part_that_occurs_twice_is_evaluated_once(monkeypatch):
    seen = counting(monkeypatch, "UPPER")
    upper = call("UPPER", S, type=STRING)
    columns = compile_columns((call("||", upper, upper, type=STRING), upper))(BATCH)
    assert [c.to_pylist() for c in columns] == [["XX", None, "YY", "ZZ"], ["X", None, "Y", "Z"]]
    assert seen == [4]


def test_a_part_known_for_all_rows_is_not_evaluated_again_for_some(monkeypatch):
    seen = counting(monkeypatch, "+")
    total = call("+", A, B)
    present = call("IS NOT NULL", total, type=BOOLEAN)
    assert compile_value(Case(BIGINT, ((present, total),), QUOTIENT))(BATCH).to_pylist() == [1, 4, None, 4]
    assert seen == [4]


def test_only_rows_that_reach_a_branch_are_evaluated(monkeypatch):
    seen = counting(monkeypatch, "/")
    compile_value(Case(BIGINT, ((call("=", B, number(3), type=BOOLEAN), QUOTIENT),), number(0)))(BATCH)
    compile_value(And((call("=", B, number(2), type=BOOLEAN), call("=", QUOTIENT, number(1), type=BOOLEAN))))(BATCH)
    assert seen == [1, 1]


def test_non_deterministic_parts_are_never_shared():
    draw = call("RAND", type=DOUBLE)
    first, second = compile_columns((draw, draw))(BATCH)
    assert first.to_pylist() != second.to_pylist()
    assert len(set(first.to_pylist())) == 4


def test_the_first_failing_row_of_the_batch_is_named_even_inside_a_guard():
    guarded = Case(BIGINT, ((call(">", A, number(1), type=BOOLEAN), QUOTIENT),), number(0))
    with pytest.raises(DataError, match=r"division by zero, in \(a / b\)") as caught:
        compile_value(guarded)(BATCH)
    assert caught.value.row == 3


def test_a_kernel_that_does_not_say_the_row_is_bisected():
    big = pa.RecordBatch.from_arrays([pa.array([1] * 5000 + [2**62] + [3] * 3000), pa.array([4] * 8001)], ["a", "b"])
    with pytest.raises(DataError, match="does not fit BIGINT") as caught:
        compile_value(call("*", A, B))(big)
    assert caught.value.row == 5000


def test_constant_parts_fold():
    assert fold_constants(call("+", number(1), call("*", number(2), number(3)))) == number(7)
    assert fold_constants(Cast(STRING, number(7))) == Literal(STRING, "7")
    yes, no = Literal(BOOLEAN, True), Literal(BOOLEAN, False)
    condition = call(">", A, number(1), type=BOOLEAN)
    assert fold_constants(And((yes, condition))) == condition
    assert fold_constants(And((condition, no))) == no
    assert fold_constants(Or((no, Or((condition, yes))))) == yes
    assert fold_constants(Case(BIGINT, ((no, A), (condition, B), (yes, A)), B)) == Case(BIGINT, ((condition, B),), A)
    assert fold_constants(InList(number(3), (1, None))) == Literal(BOOLEAN, None)


def test_what_may_not_fold_stays():
    failing = call("/", number(1), number(0))
    assert fold_constants(failing) == failing
    draw = call("RAND", type=DOUBLE)
    assert fold_constants(draw) == draw
    # FALSE decides, but what stands before it must still be able to fail
    risky = call("=", QUOTIENT, number(1), type=BOOLEAN)
    assert fold_constants(And((risky, Literal(BOOLEAN, False)))) == And((risky, Literal(BOOLEAN, False)))


def test_constants_are_told_from_columns_and_draws():
    assert is_constant(call("+", number(1), number(2)))
    assert not is_constant(A)
    assert not is_constant(call("RAND", type=DOUBLE))


def test_what_may_fail_is_known_by_type():
    price = ColumnRef(decimal(10, 2), 0, "p")
    assert may_fail(call("+", A, B))
    assert not may_fail(call("+", price, price, type=decimal(11, 2)))
    assert may_fail(call("*", price, price, type=decimal(38, 4)))
    assert not may_fail(call("/", A, number(7)))
    assert may_fail(call("/", A, number(0)))
    assert may_fail(QUOTIENT)
    assert may_fail(Cast(INT, S))
    assert not may_fail(Cast(INT, S, True))


def test_a_costly_operand_sees_only_the_rows_that_it_may_decide_if_those_are_few() -> None:
    """What it gives for them is the same as over all rows, NULLs included."""
    schema = Schema.of(a=BIGINT, s=STRING)
    for known in (1, 5, 9):  # of ten rows
        numbers = [None if i == 3 else i for i in range(10)]
        texts = [None if i % 4 == 2 else f"k{i}" for i in range(10)]
        batch = pa.record_batch({"a": pa.array(numbers, pa.int64()), "s": pa.array(texts, pa.string())})
        for operator, other in (("AND", ">="), ("OR", "<")):
            text = f"a {other} {10 - known} {operator} REGEXP(s, '[13579]')"
            parts = [f"a {other} {10 - known}", "REGEXP(s, '[13579]')"]
            masks = [compile_value(bind_predicate(p, schema))(batch) for p in parts]
            combine = pc.and_kleene if operator == "AND" else pc.or_kleene
            expected = combine(*masks).to_pylist()
            assert compile_value(bind_predicate(text, schema))(batch).to_pylist() == expected, text
