"""Pipelines in batch mode from the command line, on the Spark of the test run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from flowrun.cli.main import cli
from flowrun.frontend.pipeline import load_pipeline
from flowrun.plan.nodes import Scan, WindowAggregate, walk_plan
from flowrun.plan.rewrites import optimise
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.spark import BatchStatus, run_batch
from flowrun.spark.execution import kept_nodes
from flowrun.spark.session import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

ORDERS = """
CREATE TABLE orders (id BIGINT, buyer STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
"""
TOTALS = """
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE totals (buyer STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'totals', 'format' = 'json');
CREATE TABLE best (buyer STRING) WITH ('connector' = 'filesystem', 'path' = 'best', 'format' = 'json');
CREATE VIEW counted AS SELECT buyer, COUNT(*) AS n, SUM(100 / id) AS s FROM orders GROUP BY buyer;
EXECUTE STATEMENT SET BEGIN
INSERT INTO totals SELECT buyer, n FROM counted;
INSERT INTO best SELECT buyer FROM counted WHERE s > 10;
END;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write_orders(tmp_path, range(1, 21))
    return tmp_path


def write_orders(folder: Path, ids: range) -> None:
    rows = [{"id": i, "buyer": "ab"[i % 2], "ts": f"2024-03-01 09:00:{i:02}"} for i in ids]
    (folder / "in" / "a.json").write_text("".join(json.dumps(r) + "\n" for r in rows))


def flowrun(*arguments: str) -> Result:
    from flowrun.cli.console import report_failure

    result = CliRunner().invoke(cli, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        result.exit_code = report_failure(result.exception, show_traceback=False)
    return result


def rows_in(folder: Path) -> list[dict[str, object]]:
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and not f.name.startswith(("_", "."))]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.everyday
def test_all_sinks_of_a_script_get_their_final_tables(folder: Path, spark: SparkSession) -> None:
    (folder / "s.sql").write_text(ORDERS + TOTALS)
    before = spark.sparkContext._jsc.getPersistentRDDs().size()  # other tests share the session
    result = flowrun("run", "s.sql", "--report", "report.json")
    assert result.exit_code == 0, result.output
    totals = [{"buyer": "a", "n": 10}, {"buyer": "b", "n": 10}]
    assert sorted(rows_in(folder / "totals"), key=str) == totals
    assert sorted(rows_in(folder / "best"), key=str) == [{"buyer": "a"}, {"buyer": "b"}]
    assert "s: finished on Spark in" in result.stderr
    assert "  totals: 2 rows\n  best: 2 rows\n" in result.stderr
    report = json.loads((folder / "report.json").read_text())
    assert report["sinks"] == [{"name": "totals", "rows": 2}, {"name": "best", "rows": 2}]
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before, "what both sinks read was released"

    again = flowrun("run", "s.sql", "-q")
    assert (again.exit_code, again.output) == (0, "")
    assert sorted(rows_in(folder / "totals"), key=str) == totals, "the second run replaced the first"


def test_a_run_that_fails_changes_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "s.sql").write_text(ORDERS + TOTALS)
    assert flowrun("run", "s.sql", "-q").exit_code == 0
    before = (rows_in(folder / "totals"), rows_in(folder / "best"))
    assert len(before[0]) == 2
    write_orders(folder, range(5))  # 100 / 0
    result = flowrun("run", "s.sql", "-q")
    assert result.exit_code == 1
    said = capfd.readouterr().err
    assert said.startswith("error: sink 'totals': division by zero") or said.startswith("error: sink 'best'")
    assert "\tat " not in said
    assert (rows_in(folder / "totals"), rows_in(folder / "best")) == before


def test_a_select_prints_its_final_rows(folder: Path) -> None:
    (folder / "s.sql").write_text(ORDERS + "SELECT buyer, COUNT(*) AS n FROM orders GROUP BY buyer;")
    batch = ("run", "s.sql", "--mode", "batch", "-q")
    assert flowrun(*batch).stdout == "+I[a, 10]\n+I[b, 10]\n"
    assert flowrun(*batch, "--format", "json").stdout == '{"buyer":"a","n":10}\n{"buyer":"b","n":10}\n'
    assert flowrun(*batch, "--format", "csv").stdout == "buyer,n\na,10\nb,10\n"


def test_a_batch_may_do_what_a_stream_cannot(folder: Path) -> None:
    """As in Flink's batch mode: any order, windows by any time, and one row for an aggregate over nothing."""
    query = "SELECT id FROM orders WHERE id < 4 ORDER BY id DESC;"
    nothing = (
        "SELECT COUNT(*) AS n, SUM(id) AS s FROM orders WHERE id > 100; SELECT COUNT(*) AS n FROM orders WHERE 1 = 2;"
    )
    ahead = """SELECT id, LEAD(id) OVER (ORDER BY ts) AS l, RANK() OVER (ORDER BY id) AS r,
        SUM(id) OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS f FROM orders WHERE id > 18;"""
    batch = ("run", "s.sql", "--mode", "batch", "-q")
    (folder / "s.sql").write_text(ORDERS + query)
    assert flowrun(*batch).stdout == "+I[3]\n+I[2]\n+I[1]\n"
    (folder / "s.sql").write_text(ORDERS + nothing)
    said = flowrun(*batch).stdout
    assert "+I[0, NULL]" in said
    assert "+I[0]" in said
    (folder / "s.sql").write_text(ORDERS + ahead)
    assert sorted(flowrun(*batch).stdout.splitlines()) == ["+I[19, 20, 1, 20]", "+I[20, NULL, 2, NULL]"]
    (folder / "s.sql").write_text(ORDERS + "SELECT id FROM orders ORDER BY id DESC OFFSET 18;")
    assert sorted(flowrun(*batch).stdout.splitlines()) == ["+I[1]", "+I[2]"]


def test_a_batch_cuts_windows_by_any_time(folder: Path) -> None:
    days = "VALUES (1, TIMESTAMP '2024-01-02 10:00:00'), (2, TIMESTAMP '2024-01-01 10:00:00'), (3, TIMESTAMP '2024-01-01 10:30:00')"
    (folder / "s.sql").write_text(f"""
    CREATE VIEW t AS SELECT * FROM ({days}) AS v (id, ts);
    CREATE VIEW w AS SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY));
    SELECT 'tumble', DATE_FORMAT(window_start, 'dd'), COUNT(*), DATE_FORMAT(MAX(window_time), 'HH:mm') FROM w
      GROUP BY window_start, window_end;
    SELECT 'session', DATE_FORMAT(SESSION_END(ts, INTERVAL '1' HOUR), 'HH:mm'), COUNT(*) FROM t GROUP BY SESSION(ts, INTERVAL '1' HOUR);
    SELECT 'hop', id, DATE_FORMAT(window_end, 'dd') FROM TABLE(
      HOP(TABLE (SELECT id, MAX(ts) AS ts FROM t WHERE id < 2 GROUP BY id), DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '2' DAY));
    SELECT 'top', id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY id DESC) AS n FROM w) WHERE n = 1;
    SELECT 'join', a.id, b.id FROM w a JOIN w b ON a.window_start = b.window_start AND a.window_end = b.window_end WHERE a.id < b.id;
    """)
    assert sorted(flowrun("run", "s.sql", "--mode", "batch", "-q").stdout.splitlines()) == [
        "+I[hop, 1, 03]", "+I[hop, 1, 04]", "+I[join, 2, 3]", "+I[session, 11:00, 1]", "+I[session, 11:30, 2]",
        "+I[top, 1]", "+I[top, 3]", "+I[tumble, 01, 2, 23:59]", "+I[tumble, 02, 1, 23:59]",
    ]  # fmt: skip


def test_sources_without_end_are_refused_with_what_bounds_them(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "p.yaml").write_text(
        "settings: {mode: batch}\n"
        "sources:\n"
        "  numbers: {connector: datagen, schema: {a: BIGINT}}\n"
        "  text: {connector: socket, hostname: localhost, port: 9, format: csv, schema: {a: BIGINT}}\n"
        "steps:\n  both: {union: [numbers, text]}\n"
        "sinks:\n  out: {from: both, connector: blackhole}\n"
    )
    assert flowrun("run", "p.yaml").exit_code == 2
    said = capfd.readouterr().err
    assert "p.yaml:3:3: error: source 'numbers' has no end (connector datagen)" in said
    assert "give it 'number-of-rows'" in said
    assert "p.yaml:4:3: error: source 'text' has no end" in said


def test_a_watched_folder_is_read_as_it_is_now(folder: Path) -> None:
    watched = ORDERS.replace("'path'", "'source.monitor-interval' = '1 s', 'path'")
    (folder / "s.sql").write_text(watched + "SELECT buyer, COUNT(*) AS n FROM orders GROUP BY buyer;")
    assert flowrun("run", "s.sql", "--mode", "batch", "-q").stdout == "+I[a, 10]\n+I[b, 10]\n"
    assert flowrun("verify", "s.sql", "-q").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--spark-master", "local"), "--spark-master, --spark-remote and --conf go with --mode batch"),
        (("--mode", "batch", "--from-savepoint", "x"), "--from-savepoint goes with --mode streaming"),
        (("--mode", "batch", "--conf", "ansi"), "'ansi' is not of the form NAME=VALUE"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], says: str, folder: Path) -> None:
    (folder / "s.sql").write_text(ORDERS + "SELECT buyer FROM orders;")
    result = flowrun("run", "s.sql", *arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_a_listener_hears_what_is_being_done(folder: Path) -> None:
    (folder / "s.sql").write_text(ORDERS + TOTALS)
    heard: list[BatchStatus] = []
    report = run_batch(compile_pipeline(folder / "s.sql"), SparkOptions(), listener=heard.append)
    assert dict(report.rows) == {"totals": 2, "best": 2}
    doing = [s.doing for s in heard]
    assert set(doing) <= {"starting Spark", "planning", "sink 'totals'", "sink 'best'", "committing"}
    assert doing == sorted(doing, key=doing.index), "in order"


def test_the_stages_of_a_batch_are_its_plan_and_spark(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "s.sql").write_text(ORDERS + TOTALS)
    assert flowrun("explain", "s.sql", "--stage", "job").exit_code == 2
    assert "a pipeline in batch mode runs on Spark: it has no stage 'job'" in capfd.readouterr().err
    assert "sink 'totals': exactly once" in flowrun("validate", "s.sql").stdout


def test_kept_are_expensive_rows_that_several_read(folder: Path) -> None:
    (folder / "p.yaml").write_text(
        "sources:\n"
        "  files: {connector: filesystem, path: in, format: json, schema: {id: BIGINT, ts: TIMESTAMP(3)}, watermark: {column: ts}}\n"
        "  made: {connector: datagen, number-of-rows: 9, schema: {id: BIGINT}}\n"
        "steps:\n"
        "  odd: {from: files, filter: id % 2 = 1}\n"
        "  minutes: {from: odd, key_by: [id], window: {type: tumbling, size: 1m}, aggregate: [COUNT(*) AS n]}\n"
        "  many: {from: minutes, filter: n > 1}\n"
        "sinks:\n"
        "  a: {from: odd, connector: blackhole}\n"
        "  b: {from: many, connector: blackhole}\n"
        "  c: {from: minutes, connector: blackhole}\n"
        "  d: {from: made, connector: blackhole}\n"
        "  e: {from: made, connector: blackhole}\n"
    )
    plan = optimise(load_pipeline(folder / "p.yaml").plan)
    kept = kept_nodes(plan, lambda node: False)
    nodes = {id(n): n for n in walk_plan(plan)}
    found = {type(nodes[number]): last for number, last in kept.items()}
    assert found == {WindowAggregate: 2, Scan: 4}, "not the filter of a file, which is read again"
