"""CREATE TABLE: columns of every kind, keys, watermarks, LIKE; each problem at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.core.semantics import OnDisorder, WatermarkEmit
from flowrun.errors import PipelineError
from flowrun.plan.nodes import Scan, WatermarkKind, walk_plan
from tests.end_to_end.running import json_rows, run_file
from tests.frontend.sql.script.scripts import GENERATED, lines, load, problems, scan_of

TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "STRING", "VARCHAR(7)", "CHAR(3)", "BYTES",
    "DATE", "TIME(0)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "ARRAY<ROW<a INT, b MAP<STRING, ARRAY<INT>>>>", "MAP<STRING, DOUBLE>",
)  # fmt: skip


def table(columns: str, rest: str = GENERATED, name: str = "t") -> str:
    return f"CREATE TABLE {name} ({columns}) {rest};\n"


def test_columns_of_all_types() -> None:
    columns = ", ".join(f"c{i} {t} COMMENT 'it''s {i}'" for i, t in enumerate(TYPES))
    described = load(table(columns) + "DESCRIBE t").outputs[0]
    assert all(t in described for t in TYPES)


def test_computed_columns_stand_where_they_are_declared() -> None:
    scan = scan_of(
        table("a INT, b AS a * 2 COMMENT 'twice', c STRING NOT NULL, d AS b + CHAR_LENGTH(c)") + "SELECT * FROM t"
    )
    assert scan.schema.names == ("a", "b", "c", "d")
    assert scan.physical.names == ("a", "c")
    assert not scan.schema.field("c").nullable
    assert str(scan.projections[3]) == "((a * 2) + CHAR_LENGTH(c))"


def test_the_primary_key_is_not_null() -> None:
    for text in ("a INT, b INT, PRIMARY KEY (a) NOT ENFORCED", "a INT PRIMARY KEY NOT ENFORCED, b INT",
                 "a INT, b INT, CONSTRAINT pk PRIMARY KEY (a) NOT ENFORCED"):  # fmt: skip
        scan = scan_of(table(text) + "SELECT a, b FROM t")
        assert scan.table.primary_key == ("a",)
        assert [f.nullable for f in scan.schema] == [False, True]


@pytest.mark.parametrize(
    ("expression", "kind", "delay"),
    [
        ("ts", WatermarkKind.MONOTONOUS, 0),
        ("`ts` - INTERVAL '5' SECOND", WatermarkKind.BOUNDED, 5000),
        ("ts - INTERVAL '1:30' MINUTE TO SECOND", WatermarkKind.BOUNDED, 90_000),
        ("ts - INTERVAL '0' SECOND", WatermarkKind.MONOTONOUS, 0),
        ("CASE WHEN a > 0 THEN ts ELSE NULL END", WatermarkKind.PUNCTUATED, 0),
        ("ts + INTERVAL '1' SECOND", WatermarkKind.PUNCTUATED, 0),
    ],
)
def test_watermarks(expression: str, kind: WatermarkKind, delay: int) -> None:
    scan = scan_of(table(f"a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {expression}") + "SELECT a, ts FROM t")
    assert scan.watermark is not None
    assert (scan.watermark.kind, scan.watermark.delay_ms) == (kind, delay)
    assert scan.watermark.column == "ts"
    assert scan.watermark.on_disorder is OnDisorder.IGNORE
    assert (scan.watermark.punctuation is not None) == (kind is WatermarkKind.PUNCTUATED)


def test_event_time_may_be_computed_from_a_nested_column() -> None:
    computed = "`at` AS CASE WHEN kind = 2 THEN bid.at END, WATERMARK FOR `at` AS `at` - INTERVAL '4' SECOND"
    columns = f"bid ROW<at TIMESTAMP(3)>, kind INT, {computed}"
    scan = scan_of(table(columns) + "SELECT `at` FROM t")
    assert scan.watermark is not None
    assert scan.watermark.delay_ms == 4000
    assert str(scan.watermark.time).startswith("CASE WHEN (kind = 2) THEN bid.at")


def test_idle_timeouts_of_the_table_win_over_the_script_s() -> None:
    columns = "ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts"
    setting = "SET 'table.exec.source.idle-timeout' = '2 s';"
    own = f"{GENERATED[:-1]}, 'scan.watermark.idle-timeout' = '1 min')"
    for text, expected in ((table(columns, own), 60_000), (table(columns), 2_000)):
        scan = scan_of(setting + text + "SELECT ts FROM t")
        assert scan.watermark is not None
        assert scan.watermark.idle_timeout_ms == expected


def test_when_the_watermark_is_sent() -> None:
    columns = "ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts"
    setting = "SET 'pipeline.auto-watermark-interval' = '50';"
    for option, expected in (
        ("", WatermarkEmit.PERIODIC),
        ("on-periodic", WatermarkEmit.PERIODIC),
        ("on-event", WatermarkEmit.EVENT),
    ):
        own = f"{GENERATED[:-1]}, 'scan.watermark.emit.strategy' = '{option}')" if option else GENERATED
        mark = scan_of(setting + table(columns, own) + "SELECT ts FROM t").watermark
        assert mark is not None
        assert (mark.emit, mark.emit_interval_ms) == (expected, 50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET 'pipeline.auto-watermark-interval' = '0';" + "{good}", "must be positive"),
        ("SET 'pipeline.auto-watermark-interval' = 'soon';" + "{good}", "expects a duration"),
        ("{bad}", "expects 'on-periodic' or 'on-event', got 'sometimes'"),
    ],
)
def test_what_is_no_way_to_send_watermarks(text: str, message: str) -> None:
    columns = "ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts"
    bad = f"{GENERATED[:-1]}, 'scan.watermark.emit.strategy' = 'sometimes')"
    with pytest.raises(PipelineError, match=message):
        scan_of(text.format(good=table(columns), bad=table(columns, bad)) + "SELECT ts FROM t")


@pytest.mark.parametrize("text", ["SOURCE_WATERMARK()", "source_watermark ( /* its own */ )"])
def test_watermarks_of_the_source(text: str) -> None:
    columns = f"id INT, at TIMESTAMP(3), ts AS at, WATERMARK FOR ts AS {text}"
    own = f"{GENERATED[:-1]}, 'scan.watermark.idle-timeout' = '1 min')"
    loaded = load(table(columns, own) + "DESCRIBE t; EXPLAIN SELECT id, ts FROM t; SELECT id, ts FROM t")
    (scan,) = (n for n in walk_plan(loaded.plan) if isinstance(n, Scan))
    mark = scan.watermark
    assert mark is not None
    assert (mark.kind, mark.column, mark.emit, mark.idle_timeout_ms) == (WatermarkKind.SOURCE, "ts", None, 60_000)
    assert scan.table.source_watermarks
    assert text in loaded.outputs[0]
    assert "watermark: ts, by watermarks of the source, idle after 1m" in loaded.outputs[1]


def test_watermarks_of_sources_that_send_none() -> None:
    options = "WITH ('connector' = 'socket', 'hostname' = 'localhost', 'port' = '9', 'format' = 'json')"
    declared = table("ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()", options)
    (line,) = lines(declared + "SELECT * FROM t; SELECT ts FROM t")
    assert line.startswith("s.sql:1:54: error: table 't': SOURCE_WATERMARK() needs a source that sends watermarks")
    shown = problems(declared + "SELECT * FROM t")
    assert "which those of connector 'socket' do not" in shown
    assert (
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND; connectors that send watermarks: datagen, memory, nexmark"
        in shown
    )


def test_a_table_that_is_written_may_take_over_watermarks_of_a_source() -> None:
    made = table("ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()")
    sink = "CREATE TABLE o WITH ('connector' = 'print') LIKE t (EXCLUDING OPTIONS);"
    assert load(made + sink + "INSERT INTO o SELECT ts FROM t").plan.sinks[0].schema.names == ("ts",)


def test_when_watermarks_of_the_source_are_sent_is_its_own_business() -> None:
    own = f"{GENERATED[:-1]}, 'scan.watermark.emit.strategy' = 'on-event')"
    loaded = load(table("ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()", own) + "SELECT * FROM t")
    assert [w.message for w in loaded.diagnostics] == ["'scan.watermark.emit.strategy' has no effect here"]


@pytest.mark.parametrize(
    ("columns", "place", "message", "hint"),
    [
        ("a STRIN", "1:19", "unknown type 'STRIN'", "STRING"),
        ("a INT, a INT", "1:24", "column 'a' is declared twice", ""),
        ("a INT, b AS aa + 1", "1:29", "column 'aa' does not exist", "did you mean 'a'"),
        ("a INT, b AS NULL", "1:29", "NULL alone has no type", "CAST(NULL AS"),
        ("a INT, PRIMARY KEY (b) NOT ENFORCED", "1:37", "column 'b' in the primary key does not exist", "known: a"),
        ("a INT, b AS a, PRIMARY KEY (b) NOT ENFORCED", "1:45", "is not a physical column", ""),
        ("a INT, PRIMARY KEY (a) NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED", "1:54", "at most one PRIMARY KEY", ""),
        ("a INT, WATERMARK FOR a AS a", "1:38", "the event time must be TIMESTAMP", "TO_TIMESTAMP_LTZ(a, 3)"),
        ("a ROW<ts TIMESTAMP(3)>, WATERMARK FOR a.ts AS a.ts", "1:55", "not a field in one", "event_time AS a.ts"),
        ("ts TIMESTAMP(3), WATERMARK FOR tz AS ts", "1:48", "column 'tz' does not exist", "known: ts"),
        ("ts TIMESTAMP(3), WATERMARK FOR ts AS 5", "1:54", "the watermark must be TIMESTAMP", "INTERVAL '5' SECOND"),
        ("ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK() - INTERVAL '1' SECOND", "1:54", "is no value", "use it alone"),
        ("ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK(ts)", "1:54", "is no value", "WATERMARK FOR ts AS SOURCE_WATERMARK()"),
        ("ts STRING, WATERMARK FOR ts AS SOURCE_WATERMARK()", "1:42", "the event time must be TIMESTAMP", "TO_TIMESTAMP(ts)"),
        ("ts TIMESTAMP(3), WATERMARK FOR ts AS ts, WATERMARK FOR ts AS ts", "1:58", "at most one WATERMARK", ""),
        ("a INT METADATA FROM 'offset'", "1:37", "there is no metadata 'offset'", "no metadata columns"),
        ("a INT DEFAULT 5", "1:23", "DEFAULT is not supported", "AS expression"),
        ("a INT, UNIQUE (a)", "1:24", "UNIQUE is not supported", "PRIMARY KEY"),
        ("a INT b INT", "1:23", "unexpected 'b'", ""),
        ("a INT,, b INT", "1:23", "expected a column's name, got ','", ""),
        ("a AS RAND(), b AS a + 1", "1:35", "value differs each time", "view"),
    ],
)  # fmt: skip
def test_wrong_columns(columns: str, place: str, message: str, hint: str) -> None:
    shown = problems(table(columns))
    assert f"s.sql:{place}: error" in shown
    assert message in shown
    assert hint in shown


def test_a_table_may_have_several_problems() -> None:
    found = lines(table("a STRIN, b INTT, PRIMARY KEY (c) NOT ENFORCED"))
    assert [f.split(": error: ")[0] for f in found] == ["s.sql:1:19", "s.sql:1:28", "s.sql:1:47"]


def test_options_are_checked_when_the_table_is_used() -> None:
    unused = "CREATE TABLE k (a INT) WITH ('connector' = 'somewhere-else', 'x' = 'y');\n"
    assert load(unused + table("a INT") + "SELECT a FROM t").plan.sinks
    assert "there is no connector 'somewhere-else'" in problems(unused + "SELECT a FROM k")
    twice = "WITH ('connector' = 'datagen', 'connector' = 'print')"
    assert "option 'connector' is given twice" in problems(table("a INT", twice))
    assert "the option 'connector' is missing" in problems(
        table("a INT", "WITH ('conector' = 'print')") + "SELECT a FROM t"
    )
    assert "write it in single quotes" in problems(table("a INT", "WITH (connector = 'print')"))


def test_like_takes_over_columns_options_and_watermark() -> None:
    base = table("a INT, ts TIMESTAMP(3), b AS a + 1, WATERMARK FOR ts AS ts", name="base")
    like = "CREATE TABLE t (c STRING) WITH ('number-of-rows' = '9') LIKE base;\n"
    scan = scan_of(base + like + "SELECT * FROM t")
    assert scan.schema.names == ("a", "ts", "b", "c")
    assert scan.watermark is not None
    assert scan.table.options["number-of-rows"] == "9"


def test_like_leaves_out_and_overwrites() -> None:
    base = table("a INT, ts TIMESTAMP(3), b AS a + 1, WATERMARK FOR ts AS ts", name="base")
    like = f"CREATE TABLE t (c STRING) {GENERATED} LIKE base (EXCLUDING ALL);\n"
    assert scan_of(base + like + "SELECT * FROM t").schema.names == ("a", "ts", "c")
    both = f"CREATE TABLE t (b AS a + 2, WATERMARK FOR ts AS ts) {GENERATED} LIKE base"
    shown = problems(base + both)
    assert "OVERWRITING GENERATED" in shown
    assert "OVERWRITING WATERMARKS" in shown
    scan = scan_of(base + both + " (OVERWRITING GENERATED OVERWRITING WATERMARKS); SELECT b FROM t")
    assert [str(p) for p in scan.projections][2] == "(a + 2)"
    assert "table 'bsae' does not exist" in problems(base + "CREATE TABLE t LIKE bsae")


def test_metadata_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    columns = "a INT, name STRING METADATA FROM 'file.name' VIRTUAL, `file.size` INT METADATA VIRTUAL, big AS `file.size` > 100"
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json')"
    scan = scan_of(table(columns, options) + "SELECT * FROM t")
    assert scan.physical.names == ("a", "file.name", "file.size")
    assert scan.table.metadata == {"file.name": "file.name", "file.size": "file.size"}
    assert [str(p) for p in scan.projections] == [
        "a",
        "file.name",
        "CAST(file.size AS INT)",
        "(CAST(file.size AS INT) > 100)",
    ]
    shown = problems(table("a INT, n INT METADATA FROM 'file.nam'", options))
    assert "did you mean 'file.name'" in shown


def test_a_column_of_files_may_be_called_like_metadata(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"file.name": "b", "file.size": 5}\n')
    columns = "`file.name` STRING, n STRING METADATA FROM 'file.name' VIRTUAL, `file.size` INT, p BIGINT METADATA FROM 'file.size' VIRTUAL"
    script = tmp_path / "s.sql"
    script.write_text(
        table(columns, f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 'in'}', 'format' = 'json')")
        + f"CREATE TABLE o WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 'out'}', 'format' = 'json') AS SELECT * FROM t"
    )
    run_file(script)
    assert json_rows(tmp_path / "out") == [{"file.name": "b", "n": "a.json", "file.size": 5, "p": 35}]


def test_a_metadata_column_that_is_not_virtual_cannot_be_written(tmp_path: Path) -> None:
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json')"
    shown = problems(table("a INT, n STRING METADATA FROM 'file.name'", options) + "INSERT INTO t SELECT 1")
    assert "declare it VIRTUAL" in shown
