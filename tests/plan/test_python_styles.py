"""Scalar functions by values and by columns of each library: the same results, NULLs, and errors that name the row."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flowrun.api.annotations import type_of_annotation
from flowrun.core.types import (
    BIGINT,
    DOUBLE,
    INTERVAL_DAY_TIME,
    STRING,
    DataType,
    array,
    decimal,
    map_of,
    row,
    timestamp,
)
from flowrun.errors import DataError, PipelineError
from flowrun.plan.compiler import compile_columns
from flowrun.plan.expressions import ColumnRef, PythonCall

HERE = str(Path(__file__).parent)


@dataclass
class Point:
    x: int
    y: int | None


def by_values(a: int | None) -> int | None:
    return None if a is None else 12 // (a - 3)


def by_arrow(a: pa.Array) -> pa.Array:
    return pc.divide(12, pc.subtract(a, 3))


def by_chunks(a: pa.ChunkedArray) -> pa.ChunkedArray:
    assert isinstance(a, pa.ChunkedArray)
    return pc.divide(12, pc.subtract(a, 3))


def by_numpy(a: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    assert a.dtype == np.int64
    if (a == 3).any():
        raise ZeroDivisionError("divide by zero")
    return 12 // (a - 3)


def by_pandas(a: pd.Series) -> pd.Series:
    return 12 // (a - 3)


def by_polars(a: pl.Series) -> pl.Series:
    if (a == 3).any():
        raise ZeroDivisionError("divide by zero")
    return 12 // (a - 3)


STYLES = ("by_values", "by_arrow", "by_chunks", "by_numpy", "by_pandas", "by_polars")


def call(name: str, *types: DataType, result: DataType = BIGINT, vectorised: bool = True) -> PythonCall:
    arguments = tuple(ColumnRef(t, i, f"c{i}") for i, t in enumerate(types))
    return PythonCall(result, name, f"tests.plan.test_python_styles:{name}", arguments, vectorised, True, (HERE,))


def values(expression: PythonCall, *columns: list[Any]) -> list[Any]:
    arrays = [pa.array(c, a.type.arrow) for c, a in zip(columns, expression.arguments, strict=True)]
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(len(arrays))])
    found: list[Any] = compile_columns((expression,))(batch)[0].to_pylist()
    return found


@pytest.mark.parametrize("style", STYLES)
def test_all_styles_give_the_same_and_keep_nulls(style: str) -> None:
    expression = call(style, BIGINT, vectorised=style != "by_values")
    assert values(expression, [1, None, 5, 9]) == [-6, None, 6, 2]
    assert values(expression, [None, None]) == [None, None]
    assert values(expression, []) == []


@pytest.mark.parametrize("style", STYLES)
def test_all_styles_name_the_row_that_fails(style: str) -> None:
    expression = call(style, BIGINT, vectorised=style != "by_values")
    with pytest.raises(DataError, match=rf"function {style} failed: [\w.]+: .*by zero") as raised:
        values(expression, [None, 1, 2, None, 5, 6, 3, 8])
    assert raised.value.row == 6
    assert "test_python_styles.py:" in raised.value.message
    assert raised.value.message.endswith("it was given {a: 3}, the row is {c0: 3}")


@pytest.mark.parametrize("style", ["by_arrow", "by_numpy", "by_pandas", "by_polars"])
@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (STRING, ["a", None, "ß"]),
        (DOUBLE, [0.5, None, -1.0]),
        (decimal(10, 2), [Decimal("1.50"), None, Decimal("-2.00")]),
        (timestamp(3), [datetime(2024, 3, 1), None, datetime(1969, 1, 1, 0, 0, 0, 1000)]),
        (type_of_annotation(date), [date(2024, 3, 1), None]),
        (INTERVAL_DAY_TIME, [timedelta(seconds=1), None]),
        (array(BIGINT), [[1, 2], None, []]),
        (map_of(STRING, BIGINT), [[("a", 1)], None]),
        (row(("x", BIGINT)), [{"x": 1}, None]),
    ],
    ids=str,
)
def test_values_of_each_type_come_and_go_unchanged(style: str, kind: DataType, column: list[Any]) -> None:
    same = call(f"same_{style}", kind, result=kind)
    assert values(same, column) == column


def same_by_arrow(a: pa.Array) -> pa.Array:
    return a


def same_by_numpy(a: np.ndarray) -> np.ndarray:
    return a


def same_by_pandas(a: pd.Series) -> pd.Series:
    return a


def same_by_polars(a: pl.Series) -> pl.Series:
    return a


def of_two(a: np.ndarray, b: pd.Series) -> list[int]:
    assert len(a) == len(b)
    return [int(x) for x in a]


def test_rows_with_null_in_a_numpy_argument_are_left_out_of_all_arguments() -> None:
    assert values(call("of_two", BIGINT, BIGINT), [1, None, 3], [None, 2, 3]) == [1, None, 3]


def with_holes(a: np.ndarray) -> Any:
    return np.ma.masked_array(a, mask=a > 1)


def with_nan(a: pd.Series) -> pd.Series:
    return pd.Series([float("nan")] * len(a))


def with_nan_of_numpy(a: np.ndarray) -> np.ndarray:
    return np.full(len(a), np.nan)


def test_null_is_given_back_as_each_library_says_it() -> None:
    assert values(call("with_holes", BIGINT), [1, 2]) == [1, None]
    assert values(call("with_nan", BIGINT, result=DOUBLE), [1]) == [None]
    (nan,) = values(call("with_nan_of_numpy", BIGINT, result=DOUBLE), [1])
    assert math.isnan(nan)


def moved(p: Point, by: dict[str, int] | None) -> Point | None:
    return Point(p.x + (by or {}).get("x", 0), p.y) if p.x else None


def test_records_and_dicts_come_as_they_are_annotated() -> None:
    kind = type_of_annotation(Point)
    assert kind is not None
    expression = call("moved", kind, map_of(STRING, BIGINT), result=kind, vectorised=False)
    given = [{"x": 1, "y": 2}, {"x": 3, "y": None}, {"x": 0, "y": 1}]
    assert values(expression, given, [[("x", 5)], None, None]) == [{"x": 6, "y": 2}, {"x": 3, "y": None}, None]


def test_fields_of_a_row_go_by_their_names() -> None:
    turned = row(("y", BIGINT), ("x", BIGINT))
    expression = call("moved", turned, map_of(STRING, BIGINT), result=turned, vectorised=False)
    assert values(expression, [{"y": 2, "x": 1}, {"y": 3, "x": 4}], [None, None]) == [
        {"y": 2, "x": 1},
        {"y": 3, "x": 4},
    ]


def shorter(a: np.ndarray) -> np.ndarray:
    return a[1:]


def square(a: np.ndarray) -> np.ndarray:
    return np.zeros((len(a), 2))


def one_value(a: pa.Array) -> str:
    return "x"


def texts(a: pa.Array) -> list[str]:
    return ["x"] * len(a)


def never_alone(a: pa.Array) -> pa.Array:
    if len(a) > 2:
        raise ValueError("too many")
    return a


def exits(a: int) -> int:
    return a if a < 2 else sys.exit("no more")


def column_exits(a: pa.Array) -> pa.Array:
    return a if 2 not in a.to_pylist() else sys.exit("no more")


@pytest.mark.parametrize("name", ["exits", "column_exits"])
def test_a_function_that_ends_the_process_fails_at_its_row(name: str) -> None:
    with pytest.raises(DataError, match=f"function {name} failed: SystemExit: no more at .*; it was given") as raised:
        values(call(name, BIGINT, vectorised=name == "column_exits"), [1, 2, 3])
    assert raised.value.row == 1


def with_null(card: str) -> str:
    return card[-4:]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shorter", "function shorter gave 0 values for 1 rows"),
        ("square", "function square gave a ndarray, expected an array of BIGINT"),
        ("one_value", "function one_value gave a str, expected an array of BIGINT"),
        ("texts", "function texts gave a list, expected an array of BIGINT"),
        ("never_alone", "too many at .*called with rows 0 to 2 of the batch, none of which fails alone"),
    ],
)
def test_what_is_wrong_with_columns_is_said(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        values(call(name, BIGINT), [1, 2, 3])


def given(a: int) -> Any:
    return GIVEN[a]


GIVEN: list[Any] = [
    2.5, Decimal("2.5"), np.float64(2.5), float("inf"), Decimal("Infinity"), [1, 2.5], {"x": 2.5}, [("k", 2.5)], 2.0, Decimal(2), [1, 2.0],
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "kind", "stored"),
    [
        (0, BIGINT, None),
        (1, BIGINT, None),
        (2, type_of_annotation(Annotated[int, "TINYINT"]), None),
        (3, BIGINT, None),
        (4, BIGINT, None),
        (5, array(BIGINT), None),
        (6, row(("x", BIGINT)), None),
        (7, map_of(STRING, BIGINT), None),
        (0, DOUBLE, 2.5),
        (5, array(DOUBLE), [1.0, 2.5]),
        (8, BIGINT, 2),
        (9, BIGINT, 2),
        (10, array(BIGINT), [1, 2]),
    ],
)
def test_a_number_that_is_not_whole_is_not_cut(place: int, kind: DataType, stored: Any) -> None:
    expression = call("given", BIGINT, result=kind, vectorised=False)
    if stored is not None:
        assert values(expression, [place]) == [stored]
        return
    with pytest.raises(DataError, match="function given gave ") as raised:
        values(expression, [8 if kind == BIGINT else place, place])
    assert raised.value.row == (1 if kind == BIGINT else 0)


def test_null_where_an_annotation_does_not_allow_it_is_said() -> None:
    with pytest.raises(DataError, match="function with_null failed: TypeError") as raised:
        values(call("with_null", STRING, result=STRING, vectorised=False), ["1234", None])
    assert raised.value.row == 1
    assert "'card' is NULL, which its annotation does not allow" in (raised.value.hint or "")


def test_a_library_that_is_not_installed_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    from flowrun.operators.user_values import _library

    with pytest.raises(PipelineError, match="takes a Series of polars, which is not installed") as raised:
        _library("polars")
    assert "pip install polars" in str(raised.value)


def test_the_line_is_the_users_own_not_that_of_a_library() -> None:
    with pytest.raises(DataError, match=r"at .*test_python_styles\.py:\d+; it was given"):
        values(call("fails_inside", BIGINT), [1])


def fails_inside(a: Annotated[pd.Series, "BIGINT"]) -> pd.Series:
    return a.to_frame("a").loc[:, "missing"]
