"""Whether two engines gave the same rows: multisets, folded changes, and numbers that may differ in their last digits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BYTES,
    DOUBLE,
    FLOAT,
    INTERVAL_DAY_TIME,
    INTERVAL_YEAR_MONTH,
    NULL,
    STRING,
    DataType,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.runners.comparison import SinkComparison, comparable, comparable_schema, compare

Rows = Sequence[Sequence[Any]]


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    def compare_rows(
        types: Sequence[DataType], stream: Rows, spark: Rows, weights: Sequence[int] = ()
    ) -> SinkComparison:
        schema = Schema.from_pairs([(f"column {i}", t) for i, t in enumerate(types)])
        one = written(tmp_path / "one", schema, stream, weights)
        return compare("out", schema, one, written(tmp_path / "other", schema, spark), tmp_path, most=3)

    return compare_rows


def written(file: Path, schema: Schema, rows: Rows, weights: Sequence[int] = ()) -> Path:
    columns = [pa.array([r[i] for r in rows], t.arrow) for i, t in enumerate(schema.types)]
    counts = pa.array(weights or [1] * len(rows), pa.int8())
    batch = comparable(columns, schema, counts)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, comparable_schema(schema)) as writer:
        writer.write_batch(batch)
    return file


def numbers(found: SinkComparison) -> tuple[int, int, int, int]:
    return found.stream_rows, found.spark_rows, found.only_stream, found.only_spark


def test_rows_count_as_often_as_they_are_there(compared: Any) -> None:
    found = compared([BIGINT, STRING], [(1, "a"), (1, "a"), (2, None)], [(2, None), (1, "a"), (3, "c")])
    assert numbers(found) == (3, 3, 1, 1)
    assert found.sample == ((True, ("1", "a")), (False, ("3", "c")))
    assert compared([BIGINT], [(1,), (2,), (1,)], [(2,), (1,), (1,)]).equal


def test_changes_come_to_the_rows_that_are_left(compared: Any) -> None:
    assert compared([BIGINT], [(1,), (1,), (2,), (2,), (5,)], [(5,), (2,)], weights=[1, -1, 1, 0, 1]).equal
    taken_back = compared([BIGINT], [(7,)], [], weights=[-1])
    assert (taken_back.stream_rows, taken_back.only_spark) == (-1, 1)


def test_floating_numbers_may_differ_in_their_last_digits(compared: Any) -> None:
    third = 1 / 3
    near = third * (1 + 4e-10)
    assert compared([STRING, DOUBLE], [("a", third), ("b", 1e300)], [("a", near), ("b", 1e300)]).equal
    assert compared([DOUBLE, DOUBLE], [(third, 5.0), (near, 2.0)], [(near, 5.0), (third, 2.0)]).equal
    odd: Rows = [(0.1,), (float("nan"),), (None,), (float("inf"),)]
    assert compared([DOUBLE], odd, odd[::-1]).equal
    assert numbers(compared([DOUBLE], [(1.0,), (5.0,), (9.0,)], [(5.0 + 1e-12,), (9.0,)])) == (3, 2, 1, 0)
    assert numbers(compared([DOUBLE], [(third,)], [(third * (1 + 1e-8),)])) == (1, 1, 1, 1)
    assert numbers(compared([STRING, DOUBLE], [("a", third)], [("b", third)])) == (1, 1, 1, 1)
    assert compared([FLOAT], [(0.1,)], [(0.10000001,)]).equal


def test_what_is_no_number_is_near_to_none(compared: Any) -> None:
    for odd in (float("nan"), float("inf"), None):
        assert numbers(compared([DOUBLE], [(odd,)], [(5.0,)])) == (1, 1, 1, 1)


def test_numbers_inside_of_values_may_differ_in_their_last_digits_too(compared: Any) -> None:
    kind = row(("a", DOUBLE), ("b", array(map_of(STRING, row(("c", DOUBLE))))))

    def value(a: float | None, c: float) -> tuple[dict[str, Any]]:
        return ({"a": a, "b": [{"x": {"c": c}, "y": None}, None, {}]},)

    border, above = 1.2345678949999999, 1.2345678950000001
    assert compared([kind], [value(border, 1 / 3), value(None, 2)], [value(None, 2), value(above, 1 / 3 + 1e-12)]).equal
    assert compared([kind], [value(border, 1), value(above, 2)], [value(above, 1), value(border, 2)]).equal
    assert numbers(compared([kind], [value(1.0, 1)], [value(1.0, 1 + 1e-8)])) == (1, 1, 1, 1)
    assert numbers(compared([kind], [value(1.0, 1)], [value(None, 1)])) == (1, 1, 1, 1)
    assert numbers(compared([array(DOUBLE)], [([1.0],), ([],), (None,)], [([1.0, 1.0],), ([],), ([],)])) == (3, 3, 2, 2)
    assert compared([array(FLOAT), DOUBLE], [([0.1], 1e300)], [([0.10000001], 1e300)]).equal


def test_every_type_compares(compared: Any) -> None:
    types = [
        timestamp(3), timestamp_ltz(6), timestamp(9), time(3), INTERVAL_DAY_TIME, INTERVAL_YEAR_MONTH, decimal(38, 4), BYTES, NULL,
        array(DOUBLE), map_of(STRING, DOUBLE), row(("a", DOUBLE), ("b", array(BIGINT))),
    ]  # fmt: skip
    at = dt.datetime(2024, 5, 1, 12, 30)
    base: list[Any] = [
        at, at.replace(tzinfo=dt.UTC), at, dt.time(1, 2, 3), 5, 7, Decimal("1.5"), b"\x00", None,
        [1 / 3, None], {"x": 1 / 3, "y": 2.0}, {"a": 1 / 3, "b": [1, None]},
    ]  # fmt: skip
    same = [*base[:9], [1 / 3 + 1e-16, None], {"y": 2.0, "x": 1 / 3}, {"a": 1 / 3, "b": [1, None]}]
    assert compared(types, [base, [None] * 12], [[None] * 12, same]).equal
    for i, other in ((0, at.replace(year=2000)), (3, dt.time(1, 2, 4)), (4, 6), (9, [0.5, None]), (11, None)):
        changed = [*base]
        changed[i] = other
        found = compared(types, [base], [changed])
        assert numbers(found) == (1, 1, 1, 1)
    assert found.sample[0][1][3:5] == ("01:02:03.000", "0:00:00.005000")


def test_a_sink_without_rows_is_equal_to_one_without(compared: Any) -> None:
    assert compared([STRING, DOUBLE], [], []).equal
    assert numbers(compared([STRING, DOUBLE], [], [("a", None)])) == (0, 1, 0, 1)
