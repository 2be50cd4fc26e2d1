"""SQL types from Python annotations, and errors for those that have none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Annotated, Any, NamedTuple, NewType, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from flowrun.api.annotated_values import as_annotated, as_storable
from flowrun.api.annotations import (
    AnnotationError,
    Form,
    Unknown,
    columns_of_annotation,
    form_of,
    is_nullable,
    type_of_annotation,
)
from flowrun.api.signatures import signature_of
from flowrun.core.types import INT

UserId = NewType("UserId", int)


@dataclass
class Point:
    x: int
    y: float | None


class Pair(NamedTuple):
    key: str
    at: Point | None = None


class Tags(TypedDict):
    names: list[str]
    counts: NotRequired[dict[str, int]]


@dataclass
class Tree:
    left: Tree | None


@dataclass
class Odd:
    number: complex


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, "BOOLEAN"),
        (int, "BIGINT"),
        (float, "DOUBLE"),
        (str, "STRING"),
        (bytes, "BYTES"),
        (Decimal, "DECIMAL(38, 18)"),
        (date, "DATE"),
        (time, "TIME(6)"),
        (datetime, "TIMESTAMP(6)"),
        (timedelta, "INTERVAL DAY TO SECOND"),
        (int | None, "BIGINT"),
        (UserId, "BIGINT"),
        (list[str], "ARRAY<STRING>"),
        (tuple[int, ...], "ARRAY<BIGINT>"),
        (dict[str, list[float]], "MAP<STRING, ARRAY<DOUBLE>>"),
        (Point, "ROW<x BIGINT, y DOUBLE>"),
        (Pair, "ROW<key STRING, at ROW<x BIGINT, y DOUBLE>>"),
        (Tags, "ROW<names ARRAY<STRING>, counts MAP<STRING, BIGINT>>"),
        (Annotated[Decimal, "DECIMAL(10, 2)"], "DECIMAL(10, 2)"),
        (Annotated[int, INT] | None, "INT"),
        (Annotated[int, pa.int16()], "SMALLINT"),
        (Annotated[complex, "STRING"], "STRING"),
        (Annotated[int, 5, "INT"], "INT"),
        (pa.Int32Array, "INT"),
        (pa.StringArray, "STRING"),
        (npt.NDArray[np.float32], "FLOAT"),
        (npt.NDArray[np.str_], "STRING"),
        (Annotated[np.ndarray, "BIGINT"], "BIGINT"),
        (np.ndarray, "None"),
        (pd.Series, "None"),
        (Any, "None"),
        (None, "None"),
    ],
)
def test_types(annotation: Any, expected: str) -> None:
    assert str(type_of_annotation(annotation)) == expected


def test_fields_that_may_not_be_none_are_not_null() -> None:
    kind = type_of_annotation(Point)
    assert kind is not None
    assert [kind.is_required(i) for i in range(2)] == [True, False]
    assert is_nullable(int | None)
    assert is_nullable(Annotated[int | None, "INT"])
    assert not is_nullable(Annotated[int, "INT"])


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (complex, "complex, which has no SQL type"),
        (int | str, "int | str, which has no SQL type"),
        (set[int], r"set\[int\], which has no SQL type"),
        (list[complex], "complex, which has no SQL type"),
        (Odd, "Odd, whose field 'number' is complex, which has no SQL type"),
        (Tree, "contains itself"),
        (Annotated[int, "BIGNT"], '"BIGNT" is no SQL type: .*BIGINT'),
        (Unknown("pd.Frame", "NameError: name 'pd' is not defined"), "cannot be evaluated: NameError: name 'pd'"),
    ],
)
def test_annotations_without_a_type(annotation: Any, message: str) -> None:
    with pytest.raises(AnnotationError, match=message) as raised:
        type_of_annotation(annotation)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("annotation", "form"),
    [
        (int, Form.VALUE),
        (list[int], Form.VALUE),
        (None, Form.VALUE),
        (pa.Array, Form.ARROW),
        (pa.Int64Array | None, Form.ARROW),
        (pa.ChunkedArray, Form.CHUNKED),
        (npt.NDArray[np.int64], Form.NUMPY),
        (Annotated[pd.Series, "INT"], Form.PANDAS),
        (pl.Series, Form.POLARS),
        (Unknown("np.ndarray", ""), Form.NUMPY),
        (Unknown("pl.Series", ""), Form.POLARS),
    ],
)
def test_forms(annotation: Any, form: Form) -> None:
    assert form_of(annotation) is form


def test_a_library_that_another_thread_is_importing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, ModuleType(library))  # as it is in the middle of an import
    assert form_of(int) is Form.VALUE


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Iterator[Pair], "ROW<key STRING, at ROW<x BIGINT, y DOUBLE>>"),
        (list[Point], "ROW<x BIGINT, y DOUBLE>"),
        (Iterator[tuple[str, int | None]], "ROW<f0 STRING, f1 BIGINT>"),
        (Iterator[dict[str, int]], "ROW<f0 MAP<STRING, BIGINT>>"),
        (Point, "ROW<x BIGINT, y DOUBLE>"),
        (Iterator[Any], "None"),
        (None, "None"),
        (type(None), "None"),
    ],
)
def test_columns_of_what_is_yielded(annotation: Any, expected: str) -> None:
    assert str(columns_of_annotation(annotation)) == expected


def test_a_signature_names_the_parameter_and_the_line() -> None:
    def odd(a: int, b: complex, *rest: int) -> Missing: ...  # type: ignore[name-defined]  # noqa: F821

    signature = signature_of(odd)
    with pytest.raises(AnnotationError, match=r"parameter 'b' is annotated complex, .*test_annotations.py:\d+\)"):
        signature.argument_types()
    with pytest.raises(AnnotationError, match=r"the result is annotated 'Missing', which cannot be evaluated"):
        _ = signature.result.type
    assert signature.open_ended


def test_values_become_what_is_annotated_and_back() -> None:
    record = as_annotated(Pair)
    assert record is not None
    made = record({"key": "a", "at": {"x": 1, "y": None}})
    assert made == Pair("a", Point(1, None))
    kind = type_of_annotation(Pair)
    assert kind is not None
    back = as_storable(kind)
    assert back is not None
    assert back(made) == {"key": "a", "at": {"x": 1, "y": None}}
    assert back(("a", (1, 2.0))) == {"key": "a", "at": {"x": 1, "y": 2.0}}
    dicts = as_annotated(dict[str, list[Point]])
    assert dicts is not None
    assert dicts([("a", [{"x": 1, "y": 0.5}])]) == {"a": [Point(1, 0.5)]}
    assert as_annotated(list[int]) is None
