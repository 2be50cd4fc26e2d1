"""Users' Python functions as kernels: rows and columns, NULLs, and errors that name the row."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flowrun.core.types import BIGINT, BOOLEAN, STRING, DataType, timestamp, timestamp_ltz
from flowrun.errors import DataError
from flowrun.plan.compiler import compile_columns
from flowrun.plan.expressions import Call, Case, ColumnRef, Expression, Literal, PythonCall, substitute
from flowrun.plan.fallibility import is_deterministic, may_fail

HERE = str(Path(__file__).parent)
A = ColumnRef(BIGINT, 0, "a")
calls: list[int] = []


def half(value: int | None) -> int | None:
    calls.append(1)
    if value is None:
        return None
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value // 2


def length(text: pa.Array) -> pa.Array:
    return pc.utf8_length(text)


def too_short(text: pa.Array) -> list[int]:
    return [1]


def five() -> int:
    return 5


def text_of(value: object) -> str:
    return repr(value)


def call(name: str, *arguments: Expression, type: DataType = BIGINT, **more: bool) -> PythonCall:
    return PythonCall(type, name, f"tests.plan.test_python_calls:{name}", arguments, search_path=(HERE,), **more)


def values(expression: Expression, column: list[object], type: pa.DataType | None = None) -> list[object]:
    batch = pa.record_batch([pa.array(column, type or pa.int64())], names=["a"])
    found: list[object] = compile_columns((expression,))(batch)[0].to_pylist()
    return found


def test_a_function_is_called_for_each_row_and_sees_nulls() -> None:
    assert values(call("half", A), [2, None, 8]) == [1, None, 4]


def test_a_function_without_arguments_gives_a_value_a_row() -> None:
    assert values(call("five"), [1, 2]) == [5, 5]
    assert values(call("five"), []) == []


def test_a_vectorised_function_gets_columns_and_its_result_is_converted() -> None:
    expression = call("length", ColumnRef(STRING, 0, "a"), vectorised=True)
    assert values(expression, ["a", "bc", None], pa.string()) == [1, 2, None]


def test_a_failure_names_function_row_and_line() -> None:
    with pytest.raises(
        DataError, match=r"function half failed: ValueError: 3 is odd at .*test_python_calls.py:\d+"
    ) as caught:
        values(call("half", A), [2, 3, 5])
    assert caught.value.row == 1


def test_a_value_of_another_type_is_an_error() -> None:
    with pytest.raises(DataError, match="function text_of gave '1', expected BIGINT") as caught:
        values(call("text_of", A), [1])
    assert caught.value.row == 0
    with pytest.raises(DataError, match="gave 1 values for 2 rows"):
        values(call("too_short", ColumnRef(STRING, 0, "a"), vectorised=True), ["a", "b"], pa.string())


def test_a_branch_that_a_row_does_not_reach_is_not_called() -> None:
    odd = Call(BOOLEAN, "=", (Call(BIGINT, "%", (A, Literal(BIGINT, 2))), Literal(BIGINT, 1)))
    guarded = Case(BIGINT, ((odd, Literal(BIGINT, -1)),), call("half", A))
    assert values(guarded, [2, 3, 4]) == [1, -1, 2]


def test_a_deterministic_call_that_occurs_twice_is_made_once() -> None:
    calls.clear()
    twice = call("half", A)
    batch = pa.record_batch([pa.array([2, 4])], names=["a"])
    compile_columns((twice, twice))(batch)
    assert len(calls) == 2
    calls.clear()
    different = call("half", A, deterministic=False)
    compile_columns((different, different))(batch)
    assert len(calls) == 4


def test_times_arrive_as_datetimes() -> None:
    instant = datetime(2024, 3, 1, 9, 0, 0, 500_000)
    for type, shown in (
        (timestamp(3), instant),
        (timestamp(9), instant),
        (timestamp_ltz(3), instant.replace(tzinfo=UTC)),
    ):
        expression = call("text_of", ColumnRef(type, 0, "a"), type=STRING)
        (found,) = values(expression, [shown], type.arrow)
        assert str(found).startswith("datetime.datetime(2024, 3, 1, 9, 0, 0, 500000")


def test_rewrites_reach_the_arguments() -> None:
    inlined = substitute(call("half", A), (Literal(BIGINT, 6),))
    assert str(inlined) == "half(6)"
    assert may_fail(inlined)
    assert is_deterministic(inlined)
    assert not is_deterministic(call("half", A, deterministic=False))
