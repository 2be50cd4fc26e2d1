"""Expression trees and constants on Spark: three-valued logic, guards, membership, and values that come back as they went."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL_DAY_TIME,
    INTERVAL_YEAR_MONTH,
    NULL,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    array,
    char,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)  # fmt: skip
from flowrun.errors import DataError
from flowrun.functions.spark_text import spark_type
from flowrun.plan.expressions import And, Case, Cast, Expression, FieldAccess, InList, Literal, Or, PythonCall
from flowrun.spark.arrow import fit, from_spark, spark_data_type, spark_schema, to_spark, unfit
from flowrun.spark.expressions import literal_text, spark_text
from flowrun.spark.frame import NotNative
from tests.spark.differential import call, differences, plain
from tests.spark.grids import GRIDS, SCHEMA, column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.spark.grid_fixture import Grid

A, B = column("int", "a"), column("int", "b")
P, Q = column("truth", "a"), column("truth", "b")
ZERO, ONE = Literal(INT, 0), Literal(INT, 1)


def test_conditions_and_guards(grid: Grid) -> None:
    ratio = call(">", call("/", B, A), ONE)
    guard = call("<>", A, ZERO)
    person = column("person")
    cases: list[tuple[str, Expression]] = [
        ("AND", And((P, Q))),
        ("OR", Or((P, Q))),
        ("AND of three", And((P, Or((Q, call("IS NULL", A))), call("NOT", P)))),
        ("guarded by AND", And((guard, ratio))),
        ("guarded by OR", Or((call("=", A, ZERO), call("IS NULL", A), ratio))),
        ("guarded by CASE", Case(INT, ((guard, call("%", B, A)),), Literal(INT, None))),
        ("first true branch", Case(STRING, ((P, Literal(STRING, "p")), (Q, Literal(STRING, "q"))), Literal(STRING, None))),
        ("COALESCE", Case(INT, ((call("IS NOT NULL", A), A),), B)),
        ("IN", InList(A, (1, -3, 2**31 - 1))),
        ("NOT IN", InList(A, (1, -3), negated=True)),
        ("IN with NULL", InList(A, (1, None))),
        ("NOT IN with NULL", InList(A, (1, None), negated=True)),
        ("IN of NULLs", InList(A, (None,))),
        ("IN of texts", InList(column("text"), ("a", "it's \"q\" \\b $1 %_", "😀a☂", "line\nbreak"))),
        ("IN of times", InList(column("moment"), (dt.datetime(1582, 10, 10, 1, 2, 3), dt.datetime(2026, 1, 1)))),
        ("IN of decimals", InList(column("cents"), (Decimal("1.00"), Decimal("-99999999.99")))),
        ("IN of numbers", InList(column("double"), (1.5, float("nan"), float("inf")))),
        ("IN of nanoseconds", InList(column("nano"), (dt.datetime(2026, 1, 1, 0, 0, 0, 63),))),
        ("field", FieldAccess(STRING, person, "name")),
        ("field of NULL", FieldAccess(INT, person, "age")),
        ("nested field", call("CARDINALITY", FieldAccess(array(STRING), column("house"), "tags"))),
        ("literal of each row", call("+", A, Cast(BIGINT, Literal(STRING, " 7 ")))),
    ]  # fmt: skip
    assert differences(cases, grid.frame, grid.batch, SCHEMA) == []


D = dt.datetime
CONSTANTS: tuple[tuple[Any, DataType], ...] = (
    (True, BOOLEAN), (False, BOOLEAN), (-128, TINYINT), (127, TINYINT), (-32768, SMALLINT), (-(2**31), INT), (2**31 - 1, INT),
    (-(2**63), BIGINT), (2**63 - 1, BIGINT), (0.1, FLOAT), (-0.0, FLOAT), (float("nan"), FLOAT), (3.4028234663852886e38, FLOAT),
    (float("-inf"), DOUBLE), (1e300, DOUBLE), (5e-324, DOUBLE), (-0.0, DOUBLE), (1e16, DOUBLE), (Decimal("1.50"), decimal(10, 2)),
    (Decimal("-99999999999999999999999999999999999.999"), decimal(38, 3)), (Decimal("1E-38"), decimal(38, 38)),
    (Decimal("1E+3"), decimal(10, 0)),
    ("", STRING), ("it's \\ \"q\" \n\t\r\0 % \\% \\_ ${env:HOME} ${x} $ `b` ü ☂ 😀 \u2028 \x85 \x1a {0} -- /* */", STRING), ("a", char(3)),
    (b"", BYTES), (b"\x00\xff'\\", BYTES), (dt.date(1, 1, 1), DATE), (dt.date(9999, 12, 31), DATE), (dt.date(1582, 10, 10), DATE),
    (dt.time(0, 0), time(0)), (dt.time(23, 59, 59, 999000), time(3)), (dt.time(1, 2, 3, 456789), time(6)), (dt.time(1, 2,
    3, 456789), time(9)),
    (D(1, 1, 1), timestamp(3)), (D(9999, 12, 31, 23, 59, 59, 999999), timestamp(6)), (D(1969, 12, 31, 23, 59, 59, 999000), timestamp(3)),
    (D(1582, 10, 10, 1), timestamp(0)), (D(2020, 1, 1, 0, 0, 0, 5), timestamp(9)), (D(1, 1, 1, tzinfo=dt.UTC), timestamp_ltz(3)),
    (D(9999, 12, 31, 23, 59, 59, 999999, dt.UTC), timestamp_ltz(6)), (D(1883, 11, 18, 12, 1, 2, tzinfo=dt.UTC), timestamp_ltz(3)),
    (pa.scalar(253_402_300_800_000, pa.timestamp("ms")), timestamp(3)), (pa.scalar(-62_135_596_800_001,
    pa.timestamp("ms", "UTC")), timestamp_ltz(3)),
    (pa.scalar(3_000_000, pa.int32()).cast(pa.date32()), DATE), (5, INTERVAL_DAY_TIME), (-5, INTERVAL_DAY_TIME), (-14, INTERVAL_YEAR_MONTH),
    ([1, None], array(INT)), ([], array(STRING)), ([[1], []], array(array(BIGINT))), ([5], array(INTERVAL_YEAR_MONTH)),
    ([("a", 1), ("b", None)], map_of(STRING, INT)), ([], map_of(STRING, timestamp(3))),
    ({"a": 1, "b`'c": None}, row(("a", INT), ("b`'c", timestamp(3)))),
)  # fmt: skip


def test_constants_come_back_as_they_are(spark: SparkSession) -> None:
    constants = (*CONSTANTS, *((None, type) for _, type in CONSTANTS))
    schema = Schema.from_pairs([(f"c{i}", type) for i, (_, type) in enumerate(constants)])
    frame = spark.range(1).selectExpr(*(f"{literal_text(v, t)} AS c{i}" for i, (v, t) in enumerate(constants)))
    assert [f.dataType.simpleString() for f in frame.schema] == [
        spark_data_type(t).simpleString() for _, t in constants
    ]
    table = from_spark(frame, schema)
    for i, (value, type) in enumerate(constants):
        assert plain(table.column(i)) == plain(pa.array([value], type.arrow)), f"{value!r} of {type}"
    assert literal_text(None, NULL) == "NULL"


def test_spelled_types_are_those_of_frames(spark: SparkSession) -> None:
    types = [type for type, _ in GRIDS.values()]
    frame = spark.range(1).selectExpr(*(f"CAST(NULL AS {spark_type(t)}) AS c{i}" for i, t in enumerate(types)))
    assert [f.dataType for f in frame.schema] == [spark_data_type(t) for t in types]


def test_tables_pass_through_spark_and_its_python_workers(grid: Grid, spark: SparkSession) -> None:
    assert same_rows(from_spark(grid.values, SCHEMA), grid.first)

    def there_and_back(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield unfit(fit(batch, SCHEMA), SCHEMA)

    mapped = grid.values.mapInArrow(there_and_back, spark_schema(SCHEMA))
    assert same_rows(from_spark(mapped, SCHEMA), grid.first)
    empty = pa.Table.from_batches([], SCHEMA.arrow)
    assert from_spark(to_spark(empty, SCHEMA, spark), SCHEMA) == empty


def same_rows(table: pa.Table, batch: pa.RecordBatch) -> bool:
    assert table.schema == batch.schema
    return all(plain(table.column(i)) == plain(batch.column(i)) for i in range(table.num_columns))


def test_a_time_beyond_sparks_is_an_error():
    schema = Schema.of(ts=timestamp(3))
    batch = pa.RecordBatch.from_arrays([pa.array([2**62]).cast(pa.timestamp("ms"))], schema=schema.arrow)
    with pytest.raises(DataError, match="cannot pass between flowrun and Spark"):
        unfit(batch, schema)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (PythonCall(INT, "f", "m:f", ()), "the Python function f"),
        (call("UPPER", PythonCall(STRING, "f", "m:f", ())), "the Python function f"),
        (
            call("JSON_VALUE", column("text"), Literal(STRING, "$..a")),
            r"JSON_VALUE\(STRING, STRING\) has no equal in Spark",
        ),
        (call("YEAR", column("nano")), "YEAR of times finer than microseconds"),
    ],
)
def test_what_spark_lacks_is_hosted(expression: Expression, reason: str) -> None:
    with pytest.raises(NotNative, match=reason):
        spark_text(expression, SCHEMA.names)
