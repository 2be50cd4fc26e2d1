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
from flowrun.connectors.formats import parquet_format
from flowrun.connectors.formats.damage import DamagedInputError
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


def _file(first: int, rows: int = 40, row_group: int = 10) -> bytes:
    file = io.BytesIO()
    table = pa.table({"a": pa.array(range(first, first + rows), pa.int64())})
    pq.write_table(table, file, row_group_size=row_group, compression="none", write_statistics=False)
    return file.getvalue()


def _values(used: FileReader, content: bytes, group: int) -> list[int]:
    found = used.read(io.BytesIO(content), "f", group, 0, group + 1, 1000)
    return [value for rows in found for value in rows.columns.column("a").to_pylist()]


def test_one_reader_reads_parts_of_several_files_in_any_order() -> None:
    used = reader(Schema.of(a=BIGINT))
    files = [_file(0), _file(1000), _file(500, rows=25), _file(0, row_group=20)]
    footers = {content[-int.from_bytes(content[-8:-4], "little") - 8 :] for content in files}
    assert len(footers) == 3, "the first two differ only in their rows"
    for number, group in ((0, 0), (1, 0), (1, 3), (2, 2), (3, 1), (0, 2), (2, 0)):
        first, rows, size = ((0, 40, 10), (1000, 40, 10), (500, 25, 10), (0, 40, 20))[number]
        expected = range(first, first + rows)[group * size : (group + 1) * size]
        assert _values(used, files[number], group) == list(expected)


def test_metadata_is_decoded_once_for_all_parts_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    opened = pq.ParquetFile

    def open_file(source: Any, *, metadata: Any, **options: Any) -> pq.ParquetFile:
        given.append(metadata is not None)
        return opened(source, metadata=metadata, **options)

    monkeypatch.setattr(pq, "ParquetFile", open_file)
    used, content = reader(Schema.of(a=BIGINT)), _file(0)
    for group in range(4):
        assert _values(used, content, group) == list(range(group * 10, group * 10 + 10))
    assert given == [False, True, True, True]


def test_footers_that_are_longer_than_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_format, "_FIRST_READ_BYTES", 100)
    used, content = reader(Schema.of(a=BIGINT)), _file(0)
    assert [_values(used, content, group)[0] for group in (3, 0)] == [30, 0]


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"x" * 100, b"PAR1" + bytes(50) + b"\x20\0\0\0PAR1"]
)
def test_what_is_no_such_file_is_damaged_also_behind_one_that_is(content: bytes) -> None:
    used = reader(Schema.of(a=BIGINT))
    assert _values(used, _file(0), 0)
    with pytest.raises(DamagedInputError, match="no Parquet file"):
        _values(used, content, 0)
    assert _values(used, _file(0), 1)[0] == 10


def test_local_time_is_refused() -> None:
    with pytest.raises(OptionError, match=r"parquet\.utc-timezone"):
        format_named("parquet").check(COLUMNS, options_of("parquet", parquet__utc_timezone="false"))
