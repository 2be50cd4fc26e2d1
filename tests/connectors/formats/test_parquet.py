"""Parquet: what differs between file and table, and filters against DuckDB."""

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.api.format import FileFormat, FileReader, ReadRequest
from flowrun.connectors.formats.registry import format_named
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    DataType,
    array,
    decimal,
    map_of,
    row,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import OptionError

from .formats import options_of


def reader(schema: Schema, filters: tuple[PushedFilter, ...] = (), declared: Schema | None = None) -> FileReader:
    parquet = format_named("parquet")
    assert isinstance(parquet, FileFormat)
    return parquet.create_reader(ReadRequest(schema, declared or schema, options_of("parquet"), filters))


def read(table: pa.Table, schema: Schema, filters: tuple[PushedFilter, ...] = (), row_group: int = 10**6) -> list[Any]:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=row_group)
    runs = list(reader(schema, filters).read(io.BytesIO(out.getvalue()), "f", 0, 0, None, 7))
    for run in runs:
        run.columns.validate(full=True)
        assert run.columns.schema == schema.arrow
        assert run.columns.num_rows <= 7
    return [tuple(r.values()) for run in runs for r in run.columns.to_pylist()]


@pytest.mark.parametrize(
    ("given", "kind", "values"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), STRING, ["a", None, "a"]),
        (pa.array(["a"], pa.large_string()), STRING, ["a"]),
        (pa.array(["a"], pa.string_view()), STRING, ["a"]),
        (pa.array([b"ab"], pa.binary(2)), BYTES, [b"ab"]),
        (pa.array([1, None], pa.int8()), BIGINT, [1, None]),
        (pa.array([1], pa.uint64()), INT, [1]),
        (pa.array([0.5], pa.float32()), DOUBLE, [0.5]),
        (pa.array([5], pa.int64()), decimal(10, 2), [Decimal("5.00")]),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), decimal(10, 2), [Decimal("1.50")]),
        (pa.array([1999], pa.timestamp("us")), timestamp(3), [dt.datetime(1970, 1, 1, 0, 0, 0, 1000)]),
        (pa.array([-1], pa.timestamp("us")), timestamp(3), [dt.datetime(1969, 12, 31, 23, 59, 59, 999000)]),
        (pa.array([1, None], pa.timestamp("ms", "UTC")), timestamp(6), [dt.datetime(1970, 1, 1, 0, 0, 0, 1000), None]),
        (
            pa.array([1], pa.timestamp("ms")),
            timestamp_ltz(3),
            [dt.datetime(1970, 1, 1, 0, 0, 0, 1000, dt.UTC)],
        ),
        (pa.array([[1, 2], None, []], pa.large_list(pa.int32())), array(BIGINT), [[1, 2], None, []]),
        (
            pa.array([[("k", 1)], None, [("n", None)]], pa.map_(pa.string(), pa.int16())),
            map_of(STRING, BIGINT),
            [[("k", 1)], None, [("n", None)]],
        ),
        (
            pa.array([{"x": 1, "z": 5}, None]),
            row(("y", STRING), ("x", INT)),
            [{"y": None, "x": 1}, None],
        ),
        (pa.nulls(2), BIGINT, [None, None]),
    ],
)
def test_types_that_fit(given: pa.Array, kind: DataType, values: list[Any]) -> None:
    assert read(pa.table({"other": [1] * len(given), "v": given}), Schema.of(v=kind)) == [(v,) for v in values]


def test_columns_that_are_missing_are_null_and_no_columns_still_count() -> None:
    table = pa.table({"a": range(20)})
    assert read(table, Schema.of(b=STRING, a=BIGINT)) == [(None, i) for i in range(20)]
    assert read(table, Schema.of(b=STRING)) == [(None,)] * 20
    out = io.BytesIO()
    pq.write_table(table, out)
    counted = reader(Schema(())).read(io.BytesIO(out.getvalue()), "f", 0, 0, None, 7)
    assert sum(run.columns.num_rows for run in counted) == 20


COLUMNS = Schema.of(i=BIGINT, x=DOUBLE, s=STRING, d=decimal(8, 2), day=DATE, ts=timestamp(3), n=BIGINT)
ROWS = [
    {
        "i": i,
        "x": i / 4,
        "s": f"k{i:03}",
        "d": Decimal(i) / 4,
        "day": dt.date(2024, 1, 1) + dt.timedelta(days=i),
        "ts": dt.datetime(2024, 1, 1) + dt.timedelta(hours=i),
        "n": None if i < 40 or i % 7 == 0 else i,
    }
    for i in range(100)
]
HOUR_MS = 3_600_000
JANUARY_MS = 1_704_067_200_000
JANUARY_DAY = 19_723


@pytest.mark.parametrize("comparison", list(Comparison))
@pytest.mark.parametrize(
    ("column", "value", "literal"),
    [
        ("i", 30, "30"),
        ("i", 29.5, "29.5"),
        ("x", 7.5, "7.5"),
        ("s", "k030", "'k030'"),
        ("d", "7.50", "7.50"),
        ("day", JANUARY_DAY + 30, "DATE '2024-01-31'"),
        ("ts", JANUARY_MS + 30 * HOUR_MS, "TIMESTAMP '2024-01-02 06:00:00'"),
        ("n", 45, "45"),
    ],
)
def test_skipped_row_groups_hold_no_row_that_duckdb_finds(
    tmp_path: Path, comparison: Comparison, column: str, value: Any, literal: str
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, schema=COLUMNS.arrow), path, row_group_size=10)
    null_check = comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL)
    condition = f"{column} {comparison.value}" + ("" if null_check else f" {literal}")
    wanted = [r[0] for r in duckdb.sql(f"SELECT i FROM '{path}' WHERE {condition} ORDER BY i").fetchall()]
    pushed = (PushedFilter(column, comparison, None if null_check else value),)
    with path.open("rb") as file:
        found = [
            i
            for run in reader(COLUMNS, pushed).read(file, "t", 0, 0, None, 100)
            for i in run.columns.column("i").to_pylist()
        ]
        parts = reader(COLUMNS, pushed).parts(file, "t", 1)
    assert set(wanted) <= set(found)
    groups = {i // 10 for i in wanted}
    if comparison is not Comparison.NE:
        assert {i // 10 for i in found} == groups  # sorted data: nothing needless is read
    assert {p.first for p in parts} == {i // 10 for i in found}


def test_filters_on_pruned_columns_still_skip() -> None:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS, schema=COLUMNS.arrow), out, row_group_size=10)
    pruned = reader(COLUMNS.select(["s"]), (PushedFilter("i", Comparison.GE, 95),), COLUMNS)
    assert sum(r.columns.num_rows for r in pruned.read(io.BytesIO(out.getvalue()), "f", 0, 0, None, 100)) == 10


def test_written_files_have_bounded_row_groups() -> None:
    parquet = format_named("parquet")
    assert isinstance(parquet, FileFormat)
    out = io.BytesIO()
    schema = Schema.of(i=BIGINT)
    writer = parquet.create_writer(out, schema, options_of("parquet", parquet__block__size="1kb"))
    for _ in range(10):
        writer.write(pa.RecordBatch.from_pydict({"i": range(100)}, schema=schema.arrow))
    assert writer.written_bytes > 0
    writer.finish()
    metadata = pq.ParquetFile(io.BytesIO(out.getvalue())).metadata
    assert metadata.num_rows == 1000
    assert metadata.num_row_groups == 5


def test_local_time_is_refused() -> None:
    with pytest.raises(OptionError, match=r"parquet\.utc-timezone"):
        format_named("parquet").check(COLUMNS, options_of("parquet", parquet__utc_timezone="false"))
