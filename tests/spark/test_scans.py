"""Files read by Spark's own readers give what flowrun's give: those decide, and Spark's are left where they would differ."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.errors import ConnectorError, DataError, PipelineError
from flowrun.spark.context import TimeRange
from flowrun.spark.failures import job_failure
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, KIND
from flowrun.spark.input import csv_lines, json_lines
from flowrun.spark.input.scan import read_changes, read_scan
from tests.spark.files import by_flowrun, context_of, on_spark, scan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL_TYPES = (
    "i BIGINT, n INT, s SMALLINT, y TINYINT, f FLOAT, d DOUBLE, b BOOLEAN, t STRING, c CHAR(3), e DECIMAL(10, 2), w DECIMAL(38, 18), "
    "day DATE, at TIMESTAMP(3), fine TIMESTAMP(6), ltz TIMESTAMP_LTZ(3), raw BYTES, a ARRAY<INT>, x ARRAY<TIMESTAMP(3)>, "
    "r ROW<a BIGINT, b STRING, c ROW<d DATE>>, rs ARRAY<ROW<k STRING, v DECIMAL(5, 1)>>"
)
NATIVE, EXACT = True, False


def explained(spark: SparkSession, node: Any, **rest: Any) -> str:
    frame = read_scan(node, None, context_of(spark, node, **rest))  # type: ignore[arg-type]
    return str(frame.data._jdf.queryExecution().toString())


# -- JSON ------------------------------------------------------------------------------------------------------------------------------

CLEAN_JSON = [
    "{}",
    '{"i": 9223372036854775807, "n": -2147483648, "s": 32767, "y": -128, "b": true, "t": "ä\\n\\"\\u00e9", "c": "abc"}',
    '{"f": 1.5, "d": 1e300, "e": 12345678.90, "w": 0.000000000000000001, "i": 1}',
    '{"f": 3, "d": -0.0, "e": 1.005, "w": 12345678901234567890.123456789012345678}',
    '{"day": "2024-02-29", "at": "2024-03-01 10:00:00", "fine": "1969-12-31T23:59:59.999999", "ltz": "2024-03-01 10:00:00.123Z"}',
    '{"at": "2024-03-01T10:00:00.123987", "fine": "2024-03-01 10:00:00.123456789", "ltz": "1969-12-31 23:59:59.9999"}',
    '{"raw": "aGk=", "a": [1, null, 3], "x": ["2024-03-01 10:00:00.5", null], "rs": [{"k": "a", "v": 1.25}, null, {}]}',
    '{"raw": "", "a": [], "x": null, "r": {"a": 1, "b": "x", "c": {"d": "2024-01-01"}}}',
    '{"r": {"c": {}}, "t": "", "unknown": {"deep": [1, {"a": 2}]}}',
    '{"r": null, "t": 12, "c": true, "e": "1.239"}',
    '{"e": 1e2}',
    '{"t": "12.50", "c": "1", "e": 0.1234567890123456789012345678, "d": 0.1, "f": 0.1}',
    '\t{"i": 1, "i": 2}  \r',
    "   ",
    "",
]
ODD_JSON = [
    '{"i": "12"}',
    '{"i": 1.0}',
    '{"i": 1e3, "d": "NaN"}',
    '{"d": "-Infinity", "f": "1.5"}',
    '{"b": "TRUE"}',
    '{"d": NaN}',
    '{"t": 12.50}',
    '{"t": 1e5}',
    '{"rs": [{"k": 1.0}]}',
    '{"t": {"a": 1.10, "b": [true, null]}}',
    '{"t": [1,  2]}',
    '{"at": "2024-03-01 10:00:00+02:00", "fine": "2024-03-01"}',
    '{"ltz": "2024-03-01 10:00:00 +0530"}',
    '{"t": "\\ud83d\\ude00"}',
]
WRONG_JSON = [
    ("not json", "{nonsense"),
    ("array", '[{"i": 1}]'),
    ("two", '{"i": 1}{"i": 2}'),
    ("two with comma", '{"i": 1},{"i": 2}'),
    ("trailing", '{"i": 1} x'),
    ("too big", '{"i": 9223372036854775808}'),
    ("byte", '{"y": 200}'),
    ("int", '{"n": 2147483648}'),
    ("decimal", '{"e": 123456789.00}'),
    ("comma", '{"e": "1,000"}'),
    ("date", '{"day": "2024-02-30"}'),
    ("short date", '{"day": "2024-3-1"}'),
    ("boolean", '{"b": 1}'),
    ("row", '{"r": [1]}'),
    ("base64", '{"raw": "aGk"}'),
    ("quotes", "{'i': 1}"),
    ("surrogate", '{"t": "\\ud800"}'),
    ("time of day", '{"at": "2024-03-01 25:00:00"}'),
]


def test_clean_json_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("\n".join(CLEAN_JSON))
    node = scan_of(ALL_TYPES, tmp_path / "a.json", "'format' = 'json'")
    assert on_spark(spark, node) == (by_flowrun(node), NATIVE)


def test_odd_and_wrong_json_is_left_to_flowrun(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*ODD_JSON, *(line for _, line in WRONG_JSON)]
    (tmp_path / "a.json").write_text("\n".join(lines))
    monkeypatch.setattr(
        json_lines, "must", lambda condition: f"({condition}) IS NOT TRUE"
    )  # keep what would stop the run
    node = scan_of(ALL_TYPES, tmp_path / "a.json", "'format' = 'json'")
    frame = read_scan(node, None, context_of(spark, node))  # type: ignore[arg-type]
    assert frame.data.count() == len(lines)


def test_odd_json_is_read_by_flowrun(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("\n".join([*CLEAN_JSON, *ODD_JSON]))
    node = scan_of(ALL_TYPES, tmp_path / "a.json", "'format' = 'json'")
    assert on_spark(spark, node) == (by_flowrun(node), EXACT)


def test_wrong_json_is_an_error_that_names_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    for number, (what, line) in enumerate(WRONG_JSON):
        path = tmp_path / f"{number}.json"
        path.write_text("{}\n" + line + "\n")
        node = scan_of(ALL_TYPES, path, "'format' = 'json'")
        with pytest.raises(DataError, match=f"{path}:2:") as expected:
            by_flowrun(node)
        if number == 0:
            with pytest.raises(Exception, match=f"{path}:2:") as failed:
                on_spark(spark, node)
            error = job_failure(failed.value, "sink 'out'")
            assert expected.value.message in error.message, what
            assert error.hint == expected.value.hint


def test_wrong_json_is_left_out_where_the_options_say_so(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes("\n".join(["{}", *(line for _, line in WRONG_JSON), '{"i": 7}']).encode() + b'\n{"t": "\xff"}\n')
    for option in ("'format.on-error' = 'skip'", "'json.ignore-parse-errors' = 'true'"):
        node = scan_of(ALL_TYPES, path, f"'format' = 'json', {option}")
        assert on_spark(spark, node) == (by_flowrun(node), EXACT), option


def test_a_missing_value_of_a_not_null_column_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"i": 1, "t": "x"}\n{"i": null, "t": "y"}\n')
    node = scan_of("i BIGINT NOT NULL, t STRING", tmp_path / "a.json", "'format' = 'json'")
    with pytest.raises(Exception, match="column 'i' is NOT NULL, but the value is missing"):
        on_spark(spark, node)


def test_json_with_options_that_spark_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"i": 1, "m": {"k": 1, "k": 2}}\n')
    for columns, options in (
        ("i BIGINT, m MAP<STRING, INT>", ""),
        ("i BIGINT", ", 'json.fail-on-missing-field' = 'true'"),
        ("i BIGINT, at TIME(3)", ""),
        ("i BIGINT, at TIMESTAMP(9)", ""),
    ):
        node = scan_of(columns, tmp_path / "a.json", "'format' = 'json'" + options)
        assert on_spark(spark, node) == (by_flowrun(node), EXACT), columns


def test_compressed_files_and_folders_of_them(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"i": 1}\n') + gzip.compress(b'{"i": 2}\n'))
    (tmp_path / "deep" / "er" / "b[1] {x}.json").write_text('\ufeff{"i": 3}')
    (tmp_path / "deep" / "c%20d.json").write_text('{"i": 4}\n\n{"i": 5}')
    (tmp_path / ".d.json").write_text("nonsense")
    (tmp_path / "_hidden" / "e.json").write_text("nonsense")
    assert on_spark(spark, node := scan_of("i BIGINT", tmp_path, "'format' = 'json'"))[0] == by_flowrun(node)
    (tmp_path / "f.json.zst").write_bytes(pa.compress(b'{"i": 6}\n', "zstd", asbytes=True))
    assert on_spark(spark, node) == (by_flowrun(node), EXACT)


# -- CSV -------------------------------------------------------------------------------------------------------------------------------

CSV_TYPES = "i BIGINT, t STRING, d DOUBLE, b BOOLEAN, e DECIMAL(10, 2), day DATE, at TIMESTAMP(3), raw BYTES"
CLEAN_CSV = [
    "1,a,1.5,true,1.005,2024-02-29,2024-03-01 10:00:00.1239,aGk=",
    "-007,,-1e-3,false,,,,",
    '2,"x, ""y""",,,,,,\r',
    '3," # ",1.0,,-12345678.90,,2024-03-01T10:00:00,',
    '"4","","2.5","true","1.5","2024-01-01","2024-01-01 00:00:00","aGk="',
    "",
    "5,it's  ,0,,,,,",
]
ODD_CSV = [
    '1,"a\nb",,,,,,',
    "  1 ,x,,,,,,",
    "+1,x,,,,,,",
    "1,x,,,,,2024-03-01 10:00:00+01:00,",
    "1,x,,1,,,,",
    "1,x,NaN,,,,,",
]
WRONG_CSV = [
    '1,"a"b,,,,,,',
    "1,x",
    "1,2,3,4,5,6,7,8,9",
    "x,1,,,,,,",
    "1,x,1d,,,,,",
    "1,x,,,123456789.00,,,",
    "1,x,,,,2024-02-30,,",
]


def test_clean_csv_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("\n".join(CLEAN_CSV).encode())
    (tmp_path / "b.csv").write_text("1;a;'x'\n# comment\nNULL;'NULL';x\r\n")
    for node in (
        scan_of(CSV_TYPES, tmp_path / "a.csv", "'format' = 'csv'"),
        scan_of(
            "a STRING, b STRING, c STRING",
            tmp_path / "b.csv",
            "'format' = 'csv', 'csv.field-delimiter' = ';', 'csv.quote-character' = '''', 'csv.null-literal' = 'NULL', "
            "'csv.allow-comments' = 'true', 'csv.disable-quote-character' = 'true'",
        ),
    ):
        assert on_spark(spark, node) == (by_flowrun(node), NATIVE)


def test_odd_csv_is_read_by_flowrun(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("\n".join([*CLEAN_CSV, *ODD_CSV]))
    node = scan_of(CSV_TYPES, tmp_path / "a.csv", "'format' = 'csv'")
    assert on_spark(spark, node) == (by_flowrun(node), EXACT)
    (tmp_path / "a.csv").write_text("\n".join([*ODD_CSV, *WRONG_CSV]))
    monkeypatch.setattr(
        csv_lines, "must", lambda condition: f"({condition}) IS NOT TRUE"
    )  # keep what would stop the run
    frame = read_scan(node, None, context_of(spark, node))  # type: ignore[arg-type]
    assert frame.data.count() == len("\n".join([*ODD_CSV, *WRONG_CSV]).splitlines())


def test_csv_with_a_header_is_read_by_flowrun(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("b,a\n1,x\n")
    node = scan_of("a STRING, b INT, c INT", tmp_path, "'format' = 'csv', 'csv.header' = 'true'")
    assert on_spark(spark, node) == (by_flowrun(node), EXACT)


def test_a_csv_line_with_too_few_fields_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n3\n")
    node = scan_of("a STRING, b STRING", tmp_path / "a.csv", "'format' = 'csv'")
    with pytest.raises(Exception, match=r"a.csv:2: expected 2 fields, got 1"):
        on_spark(spark, node)


# -- Parquet ---------------------------------------------------------------------------------------------------------------------------


def stored_table() -> pa.Table:
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    return pa.table(
        {
            "i": pa.array([1, None, 3], pa.int32()),
            "e": pa.array([Decimal("1.50"), None, Decimal("-99.99")], pa.decimal128(4, 2)),
            "f": pa.array([1.5, None, float("nan")], pa.float32()),
            "t": pa.array(["a", None, "b"]).dictionary_encode(),
            "ms": pa.array([moment, None, moment], pa.timestamp("us")),
            "ltz": pa.array([moment, None, moment], pa.timestamp("ms", "UTC")),
            "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
            "a": pa.array([[1, None], None, []], pa.list_(pa.int64())),
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "r": pa.array([{"a": 1, "b": moment, "z": "z"}, None, {"a": None}], _ROW),
        }
    )


_ROW = pa.struct([("a", pa.int64()), ("b", pa.timestamp("us")), ("z", pa.string())])
STORED = (
    "i BIGINT, e DECIMAL(10, 4), f DOUBLE, t STRING, ms TIMESTAMP(3), ltz TIMESTAMP_LTZ(6), day DATE, a ARRAY<BIGINT>, "
    "m MAP<STRING, INT>, r ROW<b TIMESTAMP(3), a BIGINT, missing STRING>, missing ARRAY<STRING>"
)


def test_parquet_is_read_by_spark_whatever_exact_types_it_has(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(stored_table(), tmp_path / "a.parquet")
    node = scan_of(STORED, tmp_path, "'format' = 'parquet'")
    assert on_spark(spark, node) == (by_flowrun(node), NATIVE)


def test_parquet_of_types_that_spark_lacks_is_read_by_flowrun(spark: SparkSession, tmp_path: Path) -> None:
    odd = {
        "unsigned": ("x BIGINT", pa.array([1, None], pa.uint32())),
        "nanoseconds": ("x TIMESTAMP(3)", pa.array([1, None], pa.timestamp("ns"))),
        "text as bytes": ("x BYTES", pa.array(["a", None])),
        "time": ("x TIME(3)", pa.array([1000, None], pa.time32("ms"))),
        "duration": ("x INTERVAL DAY TO SECOND", pa.array([1, None], pa.duration("ms"))),
        "scale": ("x DECIMAL(10, 1)", pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))),
    }
    for number, (what, (columns, values)) in enumerate(odd.items()):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"x": values}), path)
        node = scan_of(columns, path, "'format' = 'parquet'")
        assert on_spark(spark, node) == (by_flowrun(node), EXACT), what


def test_parquet_files_of_different_types_are_read_by_flowrun(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.int32()), "y": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([2], pa.int64())}), tmp_path / "b.parquet")
    node = scan_of("x BIGINT, y STRING", tmp_path, "'format' = 'parquet'")
    assert on_spark(spark, node) == (by_flowrun(node), EXACT)
    assert on_spark(
        spark, only := scan_of("x BIGINT, y STRING", tmp_path, "'format' = 'parquet'", "SELECT y FROM t")
    ) == (
        by_flowrun(only),
        NATIVE,
    )


def test_values_that_do_not_fit_and_broken_files_are_errors(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [2**40]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nonsense")
    pq.write_table(pa.table({"x": pa.array([None], pa.int64())}), tmp_path / "c.parquet")
    for name, columns, message in (
        ("a", "x INT", "1099511627776"),
        ("b", "x INT", "is no Parquet file or is truncated"),
        ("c", "x BIGINT NOT NULL", "column 'x' is NOT NULL"),
        ("a", "x STRING", "expected STRING, got int64"),
    ):
        node = scan_of(columns, tmp_path / f"{name}.parquet", "'format' = 'parquet'")
        with pytest.raises(Exception, match=message):
            on_spark(spark, node)


# -- what is read ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_filters_columns_and_event_time_reach_the_reader(spark: SparkSession, tmp_path: Path, unit: str) -> None:
    moments = [dt.datetime(2024, 1, 1, hour) for hour in range(24)]
    for day in (1, 2, 3):
        (tmp_path / f"day=2024-01-0{day}").mkdir()
        rows = {
            "id": list(range(24)),
            "at": pa.array(moments, pa.timestamp(unit)),
            "r": [{"a": i, "b": "x"} for i in range(24)],
        }
        pq.write_table(pa.table(rows), tmp_path / f"day=2024-01-0{day}" / "a.parquet")
    node = scan_of(
        "id BIGINT, at TIMESTAMP(3), r ROW<a BIGINT, b STRING>, day DATE, WATERMARK FOR at AS at",
        tmp_path,
        "'format' = 'parquet'",
        "SELECT r.a, at FROM t WHERE id > 20 AND day >= DATE '2024-01-02'",
        "PARTITIONED BY (day)",
    )
    hour = 3_600_000
    start = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()) * 1000
    bounds = {id(node): TimeRange(start + 2 * hour, start + 23 * hour)}
    plan = explained(spark, node, bounds=bounds, arrivals=frozenset({id(node)}))
    assert "GreaterThan(id,20)" in plan
    assert "GreaterThanOrEqual(at,2024-01-01T02:00)" in plan
    assert "ReadSchema: struct<id:bigint,at:timestamp_ntz,r:struct<a:bigint>>" in plan
    assert "PartitionFilters: [isnotnull(day" in plan
    assert "day=2024-01-01" not in plan
    frame = read_scan(node, None, context_of(spark, node, bounds=bounds, arrivals=frozenset({id(node)})))  # type: ignore[arg-type]
    found = frame.data.toArrow()
    assert found.column(EVENT_TIME).to_pylist() == [start + h * hour for h in (21, 22)] * 2
    assert found.column(ARRIVAL).to_pylist() == sorted(found.column(ARRIVAL).to_pylist())


def test_partition_folders_and_facts_about_files(spark: SparkSession, tmp_path: Path) -> None:
    for folder in ("c=a b/n=1", "c=__HIVE_DEFAULT_PARTITION__/n=-2"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / folder / "x y.parquet")
        (tmp_path / folder / "x y.json").write_text('{"id": 3}\n')
    columns = (
        "id BIGINT, c STRING, n INT, `file.path` STRING METADATA, `file.name` STRING METADATA, `file.size` BIGINT METADATA, "
        "`file.modification-time` TIMESTAMP_LTZ(3) METADATA"
    )
    for form in ("parquet", "json"):
        node = scan_of(columns, tmp_path / f"*/*/*.{form}", f"'format' = '{form}'", beside="PARTITIONED BY (c, n)")
        assert on_spark(spark, node) == (by_flowrun(node), NATIVE)


def test_a_missing_folder_is_an_error_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    path.mkdir()
    node = scan_of("id BIGINT", path, "'format' = 'json'")
    path.rmdir()
    with pytest.raises((PipelineError, ConnectorError), match="does not exist"):
        read_scan(node, None, context_of(spark, node))  # type: ignore[arg-type]
    path.mkdir()
    assert on_spark(spark, node)[0] == {}


def test_a_missing_event_time_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"at": null}\n')
    node = scan_of("at TIMESTAMP(3), WATERMARK FOR at AS at", tmp_path / "a.json", "'format' = 'json'")
    frame = read_scan(node, None, context_of(spark, node))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="event time 'at' must not be NULL"):
        frame.data.collect()


# -- changes ---------------------------------------------------------------------------------------------------------------------------


def test_changes_come_to_the_final_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"op":"c","after":{"id":1,"v":"a"}}\n'
        '{"op":"c","after":{"id":2,"v":"b"}}\n'
        '{"op":"c","after":{"id":2,"v":"b"}}\n'
        '{"op":"u","before":{"id":1,"v":"a"},"after":{"id":1,"v":null}}\n'
        '{"op":"d","before":{"id":2,"v":"b"}}\n'
        '{"op":"c","after":{"id":3,"v":"c"}}\n'
        '{"op":"d","before":{"id":3,"v":"c"}}\n'
    )
    node = scan_of("id BIGINT, v STRING", tmp_path / "a.json", "'format' = 'debezium-json'")
    changes = read_changes(node, context_of(spark, node)).data.toArrow().to_pylist()
    assert [(c[KIND], c["id"]) for c in sorted(changes, key=lambda c: c[ARRIVAL])] == [
        (0, 1),
        (0, 2),
        (0, 2),
        (1, 1),
        (2, 1),
        (3, 2),
        (0, 3),
        (3, 3),
    ]
    for arrivals in (frozenset[int](), frozenset({id(node)})):
        frame = read_scan(node, None, context_of(spark, node, arrivals=arrivals))  # type: ignore[arg-type]
        assert sorted(tuple(r)[:2] for r in frame.data.collect()) == [(1, None), (2, "b")]
        assert frame.arrival is bool(arrivals)
