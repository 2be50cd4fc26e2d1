"""What Spark writes is what the stream writes: the same rows, spelled alike, in folders of the same names, and only once."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.connectors import memory
from flowrun.errors import SetupError
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.plan.nodes import Plan
from flowrun.runners.compile import graph_settings
from flowrun.runners.embedded import run_embedded
from flowrun.spark.execution import BatchResult, execute
from flowrun.spark.output.job import OutputJob
from flowrun.spark.output.staging import check_outputs
from tests.spark.files import by_flowrun, scan_of, sql_plan, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "i BIGINT, y TINYINT, f FLOAT, d DOUBLE, b BOOLEAN, t STRING, e DECIMAL(20, 10), day DATE, at TIMESTAMP(3), fine TIMESTAMP(6), "
    "ltz TIMESTAMP_LTZ(3), raw BYTES, a ARRAY<INT>, r ROW<a BIGINT, b STRING>"
)
FLAT = COLUMNS.replace(", r ROW<a BIGINT, b STRING>", "")
MOMENT = dt.datetime(2024, 3, 1, 10, 0, 0, 120_000)


def rows() -> pa.RecordBatch:
    full = {
        "i": 2**62,
        "y": -128,
        "f": 0.1,
        "d": 1e-10,
        "b": True,
        "t": 'ä "x", \\ \n\t;',
        "e": Decimal("-0.0000000001"),
        "day": dt.date(2024, 2, 29),
        "at": MOMENT,
        "fine": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        "ltz": MOMENT.replace(tzinfo=dt.UTC),
        "raw": b"\x00\xff",
        "a": [1, None, 3],
        "r": {"a": 1, "b": None},
    }
    odd = full | {
        "i": 0,
        "f": float("nan"),
        "d": float("-inf"),
        "t": "",
        "e": Decimal(0),
        "a": [],
        "r": {"a": None, "b": "x"},
    }
    plain = dict.fromkeys(full) | {"i": 7}
    types = {
        "y": pa.int8(),
        "f": pa.float32(),
        "e": pa.decimal128(20, 10),
        "at": pa.timestamp("ms"),
        "fine": pa.timestamp("us"),
    }
    types |= {"ltz": pa.timestamp("ms", "UTC"), "a": pa.list_(pa.int32())}
    found = [full, odd, plain, plain]
    return pa.record_batch({n: pa.array([r[n] for r in found], types.get(n)) for n in full})


def script(folder: Path, tables: dict[str, tuple[str, str, str]]) -> str:
    """One source, written to several tables: name → (columns, options, what stands beside the columns)."""
    text = f"CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'memory', 'table' = 'outputs');"
    inserts = ""
    for name, (columns, options, beside) in tables.items():
        text += table_of(columns, folder / name, options, name, beside)
        names = ", ".join(
            c.split()[0] for c in columns.replace("ROW<a BIGINT, b STRING>", "ROW").replace("(20, 10)", "").split(", ")
        )
        inserts += f"INSERT INTO {name} SELECT {names} FROM t;"
    return text + f"EXECUTE STATEMENT SET BEGIN {inserts} END;"


def run_stream(plan: Plan) -> None:
    graph = build_stream_graph(plan.name, lower(plan), graph_settings(plan.settings))
    run_embedded(build_job_graph(graph))


def run_batch(spark: SparkSession, plan: Plan, run: str, period: str = "all") -> BatchResult:
    return execute(plan, spark, OutputJob("p", period, run), 0)


def lines(folder: Path) -> Counter[tuple[str, str]]:
    """Lines of all visible files, with their folder."""
    files = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
    return Counter(
        (p.parent.relative_to(folder).as_posix(), line) for p in files for line in p.read_text().split("\n") if line
    )


EXACT = ", ".join(c for c in FLAT.split(", ") if c.split()[0] not in ("f", "d", "a"))
NO_FLOATS = COLUMNS.replace("f FLOAT, d DOUBLE, ", "")
TEXTS = {
    "json_by_spark": (NO_FLOATS, "'format' = 'json'", ""),
    "iso_by_spark": (
        NO_FLOATS,
        "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601', 'json.encode.ignore-null-fields' = 'true'",
        "",
    ),
    "csv_by_spark": (EXACT, "'format' = 'csv', 'csv.field-delimiter' = ';', 'csv.null-literal' = 'NULL'", ""),
    "csv_escaped_by_spark": (EXACT, "'format' = 'csv', 'csv.escape-character' = '\\'", ""),
    "json": (COLUMNS, "'format' = 'json'", ""),
    "iso": (
        COLUMNS,
        "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601', 'json.encode.ignore-null-fields' = 'true'",
        "",
    ),
    "csv": (FLAT, "'format' = 'csv', 'csv.null-literal' = 'NULL'", ""),
    "dbz": (COLUMNS, "'format' = 'debezium-json'", ""),
    "canal": (COLUMNS, "'format' = 'canal-json'", ""),
    "maxwell": (COLUMNS, "'format' = 'maxwell-json'", ""),
    "ogg": (COLUMNS, "'format' = 'ogg-json'", ""),
    "parts": ("i BIGINT, at TIMESTAMP(3), t STRING, day DATE", "'format' = 'json'", "PARTITIONED BY (day, t)"),
}


def test_text_files_hold_what_the_stream_writes(spark: SparkSession, tmp_path: Path) -> None:
    memory.put("outputs", [rows()])
    options = {n: (c, o.replace("ISO-8601", "iso-8601"), b) for n, (c, o, b) in TEXTS.items()}
    run_stream(sql_plan(script(tmp_path / "stream", options), tmp_path))
    result = run_batch(spark, sql_plan(script(tmp_path / "spark", options), tmp_path), "r1")
    assert result.rows == dict.fromkeys(options, 4)
    for name in options:
        assert lines(tmp_path / "spark" / name) == lines(tmp_path / "stream" / name), name
        by_workers = any("_" in p.name.rpartition("-r1")[2] for p in (tmp_path / "spark" / name).rglob("part-*"))
        assert by_workers is not (name.endswith("by_spark") or name == "parts"), name


def test_parquet_holds_what_the_stream_writes(spark: SparkSession, tmp_path: Path) -> None:
    memory.put("outputs", [rows()])
    tables = {
        "whole": (COLUMNS, "'format' = 'parquet', 'parquet.compression' = 'zstd'", ""),
        "parts": (
            "i BIGINT, at TIMESTAMP(3), t STRING, day DATE",
            "'format' = 'parquet', 'sink.partition-commit.policy.kind' = 'success-file'",
            "PARTITIONED BY (day, t)",
        ),
        "brotli": ("i BIGINT, t STRING", "'format' = 'parquet', 'parquet.compression' = 'brotli'", ""),
    }
    run_stream(sql_plan(script(tmp_path / "stream", tables), tmp_path))
    result = run_batch(spark, sql_plan(script(tmp_path / "spark", tables), tmp_path), "r1")
    assert result.rows == dict.fromkeys(tables, 4)
    for name, (columns, _, beside) in tables.items():
        written, expected = (
            by_flowrun(scan_of(columns, tmp_path / engine / name, "'format' = 'parquet'", beside=beside))
            for engine in ("spark", "stream")
        )
        assert written == expected, name
        folders = [
            sorted(
                p.parent.relative_to(tmp_path / e / name).as_posix() for p in (tmp_path / e / name).rglob("*_SUCCESS")
            )
            for e in ("spark", "stream")
        ]
        assert folders[0] == folders[1]
    written_types = pq.read_schema(next((tmp_path / "spark" / "whole").glob("*.parquet")))
    assert written_types.field("ltz").type == pa.timestamp("us", "UTC")


def test_whole_files_of_other_formats_are_written_and_read_by_flowrun_in_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    memory.put("outputs", [rows()])
    columns = "i BIGINT, at TIMESTAMP(3), t STRING, a ARRAY<INT>, day DATE"
    tables = {f: (columns, f"'format' = '{f}'", "PARTITIONED BY (day)") for f in ("avro", "orc", "arrow")}
    run_stream(sql_plan(script(tmp_path / "stream", tables), tmp_path))
    result = run_batch(spark, sql_plan(script(tmp_path / "spark", tables), tmp_path), "r1")
    assert result.rows == dict.fromkeys(tables, 4)
    for name, (_, options, beside) in tables.items():
        written, expected = (
            by_flowrun(scan_of(columns, tmp_path / engine / name, options, beside=beside))
            for engine in ("spark", "stream")
        )
        assert written == expected, name
        text = f"""
            CREATE TABLE files ({columns}) {beside} WITH ('connector' = 'filesystem', 'path' = '{tmp_path / "stream" / name}', {options});
            CREATE TABLE m ({columns}) WITH ('connector' = 'memory', 'table' = 'read-{name}');
            INSERT INTO m SELECT * FROM files;
        """
        assert run_batch(spark, sql_plan(text, tmp_path), "r1").rows == {"m": 4}
        assert sum(b.columns.num_rows for b in memory.take(f"read-{name}")) == 4


def test_a_repeated_run_replaces_its_own_files_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    tables = {
        "json": ("i BIGINT, t STRING", "'format' = 'json'", ""),
        "parquet": ("i BIGINT, y TINYINT", "'format' = 'parquet'", "PARTITIONED BY (y)"),
    }
    memory.put("outputs", [rows()])
    plan = sql_plan(script(tmp_path, tables), tmp_path)
    run_stream(plan)
    streamed = lines(tmp_path / "json")
    run_batch(spark, plan, "r1")
    run_batch(spark, plan, "r2", "20240101_20240102")
    both = sorted(p.name for p in tmp_path.rglob("part-*"))
    memory.put("outputs", [rows().slice(2, 1)])
    assert run_batch(spark, sql_plan(script(tmp_path, tables), tmp_path), "r3").rows == {"json": 1, "parquet": 1}
    after = sorted(p.name for p in tmp_path.rglob("part-*"))
    assert [n for n in after if "-r2" in n] == [n for n in both if "-r2" in n]
    assert not [n for n in after if "-r1" in n]
    assert lines(tmp_path / "json") == streamed + streamed + lines_of_run(tmp_path / "json", "-r3")


def test_a_run_does_with_files_that_are_there_what_the_mode_says(spark: SparkSession, tmp_path: Path) -> None:
    memory.put("outputs", [rows().slice(0, 1)])
    modes = {
        mode: ("i BIGINT, t STRING", f"'format' = 'json', 'sink.mode' = '{mode}'", "")
        for mode in ("append", "overwrite")
    }
    for mode in modes:
        (tmp_path / mode).mkdir()
        (tmp_path / mode / "older.json").write_text("{}\n")
    plan = sql_plan(script(tmp_path, modes), tmp_path)
    check_outputs(plan)
    for run in ("r1", "r2"):
        run_batch(spark, plan, run)
    assert lines(tmp_path / "append").total() == 3
    assert lines(tmp_path / "overwrite").total() == 1
    refused = {"append": ("i BIGINT", "'format' = 'json', 'sink.mode' = 'error'", "")}
    with pytest.raises(SetupError, match=r"append.* has 3 files already"):
        check_outputs(sql_plan(script(tmp_path, refused), tmp_path))


def lines_of_run(folder: Path, run: str) -> Counter[tuple[str, str]]:
    return Counter((".", line) for p in folder.glob(f"part-*{run}*") for line in p.read_text().split("\n") if line)


def test_rows_of_a_run_without_rows_write_no_file(spark: SparkSession, tmp_path: Path) -> None:
    memory.put("outputs", [rows().slice(0, 0)])
    tables = {"json": (COLUMNS, "'format' = 'json'", ""), "parquet": (COLUMNS, "'format' = 'parquet'", "")}
    assert run_batch(spark, sql_plan(script(tmp_path, tables), tmp_path), "r1").rows == {"json": 0, "parquet": 0}
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_sinks_of_this_process_and_of_workers(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.put("outputs", [rows()])
    text = f"""
        CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'memory', 'table' = 'outputs');
        CREATE TABLE p (i BIGINT, at TIMESTAMP(3)) WITH ('connector' = 'print', 'print-identifier' = 'x');
        CREATE TABLE m (i BIGINT, a ARRAY<INT>) WITH ('connector' = 'memory', 'table' = 'outputs-m');
        CREATE TABLE h (i BIGINT) WITH ('connector' = 'blackhole');
        EXECUTE STATEMENT SET BEGIN
            INSERT INTO p SELECT i, at FROM t; INSERT INTO m SELECT i, a FROM t; INSERT INTO h SELECT i FROM t;
        END;
    """
    result = run_batch(spark, sql_plan(text, tmp_path), "r1")
    assert result.rows == {"p": 4, "m": 4, "h": 4}
    at = "2024-03-01 10:00:00.120"
    assert capsys.readouterr().out.splitlines() == [
        f"x> +I[0, {at}]",
        "x> +I[7, NULL]",
        "x> +I[7, NULL]",
        f"x> +I[{2**62}, {at}]",
    ]
    (batch,) = memory.take("outputs-m")
    assert batch.columns.to_pylist()[0] == {"i": 0, "a": []}


def test_null_in_a_not_null_column_is_an_error_as_in_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    memory.put("outputs", [rows()])
    for form in ("parquet", "json"):
        tables = {"out": ("t STRING NOT NULL", f"'format' = '{form}'", "")}
        with pytest.raises(Exception, match="sink 'out': column 't' is NOT NULL"):
            run_batch(spark, sql_plan(script(tmp_path, tables), tmp_path), "r1")
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_a_table_with_a_key_holds_one_row_of_each(spark: SparkSession, tmp_path: Path) -> None:
    memory.put("outputs", [rows()])
    text = f"""
        CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'memory', 'table' = 'outputs');
        CREATE TABLE by_key (y TINYINT, n BIGINT, PRIMARY KEY (y) NOT ENFORCED)
            WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/by_key', 'format' = 'json');
        CREATE TABLE other_key (y TINYINT, i BIGINT, n BIGINT, PRIMARY KEY (y) NOT ENFORCED)
            WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/other_key', 'format' = 'json');
        EXECUTE STATEMENT SET BEGIN
            INSERT INTO by_key SELECT y, COUNT(*) FROM t WHERE y IS NOT NULL GROUP BY y;
            INSERT INTO other_key SELECT y, i, COUNT(*) FROM t WHERE y IS NOT NULL GROUP BY y, i;
        END;
    """
    result = run_batch(spark, sql_plan(text, tmp_path), "r1")
    assert result.rows == {"by_key": 1, "other_key": 1}
    assert lines(tmp_path / "by_key") == {(".", '{"y":-128,"n":2}'): 1}
    assert lines(tmp_path / "other_key") == {(".", f'{{"y":-128,"i":{2**62},"n":1}}'): 1}
