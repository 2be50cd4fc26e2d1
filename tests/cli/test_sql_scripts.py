"""SQL scripts from the command line: run, validate, explain, resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flowrun.cli.main import cli

TABLES = """
CREATE TABLE orders (id BIGINT, buyer STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = '${IN:-in}', 'format' = 'json');
CREATE TABLE result (id BIGINT, buyer STRING) WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'json');
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"id": i, "buyer": "ab"[i % 2], "ts": f"2024-03-01 09:00:{i:02}"} for i in range(20)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flowrun(*arguments: str) -> Result:
    from flowrun.cli.console import report_failure

    result = CliRunner().invoke(cli, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        result.exit_code = report_failure(result.exception, show_traceback=False)
    return result


def rows_in(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(folder.rglob("*.json")) for line in file.read_text().splitlines()]


def test_a_script_runs_to_its_end(folder: Path) -> None:
    (folder / "s.sql").write_text(TABLES + "INSERT INTO result SELECT id, buyer FROM orders WHERE buyer = 'a';")
    result = flowrun("run", "s.sql", "--var", "OUT=out", "--parallelism", "2")
    assert result.exit_code == 0, result.output
    assert sorted(str(r["id"]) for r in rows_in(folder / "out")) == sorted(str(i) for i in range(0, 20, 2))


def test_a_script_that_only_asks_runs_no_job(folder: Path) -> None:
    (folder / "s.sql").write_text(TABLES + "DESCRIBE orders; SHOW TABLES; EXPLAIN SELECT id FROM orders;")
    result = flowrun("run", "s.sql", "--var", "OUT=out")
    assert result.exit_code == 0, result.output
    assert "TIMESTAMP(3) *ROWTIME*" in result.stdout
    assert "| table name |" in result.stdout
    assert "Scan orders" in result.stdout
    assert "finished" not in result.output
    assert not (folder / "out").exists()


def test_nothing_is_written_if_one_statement_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.sql").write_text(TABLES + "INSERT INTO result SELECT id, buyer FROM orders; SELECT idd FROM orders;")
    result = flowrun("run", "s.sql", "--var", "OUT=out")
    assert result.exit_code == 2
    assert "s.sql:5:57: error: column 'idd' does not exist in orders" in result.output + capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    "engine",
    [("--spark-master", "spark://127.0.0.1:1"), ("--spark-remote", "sc://127.0.0.1:1")],
    ids=["master", "remote"],
)
def test_a_server_that_does_not_answer_is_wrong_input_and_nothing_is_written(
    engine: tuple[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "s.sql").write_text(TABLES + "INSERT INTO result SELECT id, buyer FROM orders;")
    result = flowrun("run", "s.sql", "--var", "OUT=out", "--mode", "batch", *engine)
    assert result.exit_code == 2
    assert engine[1] in result.output + capsys.readouterr().err
    assert not (folder / "out").exists()


def test_validate_and_explain(folder: Path) -> None:
    (folder / "s.sql").write_text(TABLES + "INSERT INTO result SELECT id, buyer FROM orders;")
    valid = flowrun("validate", "s.sql", "--var", "OUT=out")
    assert valid.exit_code == 0
    assert "s.sql: valid" in valid.stdout
    report = json.loads(flowrun("validate", "s.sql", "--format", "json").stdout)
    assert [(p["line"], p["column"], p["message"]) for p in report["problems"]] == [
        (4, 91, "the variable 'OUT' is not set")
    ]
    explained = flowrun("explain", "s.sql", "--var", "OUT=out", "--stage", "all")
    assert explained.exit_code == 0
    assert "Sink: result" in explained.stdout


def test_tables_and_settings_are_overridden(folder: Path) -> None:
    (folder / "s.sql").write_text(TABLES + "INSERT INTO result SELECT id, buyer FROM orders;")
    overrides = ("--set", "tables.result.path=other", "--set", "settings.parallelism=2")
    assert flowrun("run", "s.sql", "--var", "OUT=out", *overrides).exit_code == 0
    assert len(rows_in(folder / "other")) == 20
    assert not (folder / "out").exists()


def test_a_job_goes_on_from_a_checkpoint_without_its_script(folder: Path) -> None:
    script = folder / "s.sql"
    script.write_text(
        "SET 'execution.checkpointing.interval' = '100ms'; SET 'state.checkpoints.dir' = 'state';"
        + TABLES
        + "INSERT INTO result SELECT id, buyer FROM orders;"
    )
    ran = flowrun("run", "s.sql", "--var", "OUT=out")
    assert ran.exit_code == 0, ran.output
    script.unlink()
    resumed = flowrun("resume", "--from-savepoint", "state/s")
    assert resumed.exit_code == 0, resumed.output
    assert sorted(str(r["id"]) for r in rows_in(folder / "out")) == sorted(str(i) for i in range(20))


def test_rows_know_the_file_that_they_come_from(folder: Path) -> None:
    (folder / "s.sql").write_text(
        "CREATE TABLE t (size BIGINT METADATA FROM 'file.size' VIRTUAL, id INT, name STRING METADATA FROM 'file.name' VIRTUAL,"
        " changed TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time', day STRING) PARTITIONED BY (day)"
        " WITH ('connector' = 'filesystem', 'path' = 'days', 'format' = 'json');"
        "CREATE TABLE o WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json')"
        " AS SELECT name, day, size, id, changed > TIMESTAMP_LTZ '2020-01-01 00:00:00' AS young FROM t WHERE size > 5;"
    )
    for day, text in (("mon", '{"id": 1}\n{"id": 2}\n'), ("tue", '{"id": 3}\n')):
        (folder / "days" / f"day={day}").mkdir(parents=True)
        (folder / "days" / f"day={day}" / f"{day}.json").write_text(text)
    result = flowrun("run", "s.sql")
    assert result.exit_code == 0, result.output
    assert sorted(map(str, rows_in(folder / "out"))) == [
        str({"name": f"{day}.json", "day": day, "size": size, "id": id, "young": True})
        for day, size, id in (("mon", 20, 1), ("mon", 20, 2), ("tue", 10, 3))
    ]


def test_python_functions_are_found_beside_the_script(folder: Path) -> None:
    (folder / "beside_the_script.py").write_text("def shout(text: str) -> str:\n    return text.upper() + '!'\n")
    (folder / "s.sql").write_text(
        TABLES + "CREATE FUNCTION shout AS 'beside_the_script.shout' LANGUAGE PYTHON;"
        "INSERT INTO result SELECT id, shout(buyer) FROM orders WHERE id < 2;"
    )
    result = flowrun("run", "s.sql", "--var", "OUT=out")
    assert result.exit_code == 0, result.output
    assert sorted(str(r["buyer"]) for r in rows_in(folder / "out")) == ["A!", "B!"]
