"""Process table functions: how queries call them, what their rows look like, and what is left of their state after a savepoint."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.frontend.sql.script.scripts import problems
from tests.sql.recovery_gates import FUNCTIONS
from tests.sql.recovery_runs import Job
from tests.sql.test_cases import HERE, folded, plain

MODULE = """
import flowrun
from flowrun.api.process_function import KeyedProcessFunction, ProcessFunction, value_state

@flowrun.ptf(result="greeting STRING, seen BIGINT")
class Greet(KeyedProcessFunction):
    seen = value_state("BIGINT")
    def __init__(self, word: str, wait_ms: int = 60_000):
        self.word, self.wait_ms = word, wait_ms
    def process_element(self, row, context):
        self.seen.update((self.seen.value() or 0) + 1)
        context.register_event_time_timer(context.timestamp + self.wait_ms)
        return {"greeting": f"{self.word} {row['name']}", "seen": self.seen.value()}
    def on_timer(self, timestamp, context):
        return {"greeting": "bye", "seen": None}

@flowrun.ptf(result="loud STRING", pass_columns_through=True)
class Loud(ProcessFunction):
    def process_element(self, row, context):
        yield {"loud": row["name"].upper()}
        yield {"loud": row["name"].upper() + "!"}

class Bare(ProcessFunction):
    def process_element(self, row, context):
        return row

@flowrun.ptf(result="a INT", pass_columns_through=True)
class Impossible(KeyedProcessFunction):
    def process_element(self, row, context): ...
    def on_timer(self, timestamp, context): ...
"""
NAMES = """
CREATE TABLE names (name STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'names.json', 'format' = 'json');
CREATE FUNCTION greet AS 'ptfs.Greet' LANGUAGE PYTHON;
CREATE FUNCTION loud AS 'ptfs.Loud' LANGUAGE PYTHON;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ptfs.py").write_text(MODULE)
    rows = [("Bob", 1, "07:38:31.134"), ("Alice", 2, "07:38:32"), ("Bob", 3, "07:38:40")]
    lines = (json.dumps({"name": n, "v": v, "ts": f"2025-03-27 {t}"}) for n, v, t in rows)
    (tmp_path / "names.json").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(
    folder: Path, capsys: pytest.CaptureFixture[str], query: str, parallelism: int = 1, batch_rows: int = 1000
) -> list[str]:
    script = folder / "s.sql"
    script.write_text(NAMES + query)
    settings = {"settings.parallelism": str(parallelism), "settings.batch_rows": str(batch_rows)}
    run_embedded(compile_pipeline(script, {}, settings).job_graph)
    return [line.rpartition("> ")[2] for line in capsys.readouterr().out.splitlines()]


GREETINGS = [
    "+I[Alice, Hi Alice, 1, 2025-03-27 07:38:32.000]",
    "+I[Alice, bye, NULL, 2025-03-27 07:39:32.000]",
    "+I[Bob, Hi Bob, 1, 2025-03-27 07:38:31.134]",
    "+I[Bob, Hi Bob, 2, 2025-03-27 07:38:40.000]",
    "+I[Bob, bye, NULL, 2025-03-27 07:39:31.134]",
    "+I[Bob, bye, NULL, 2025-03-27 07:39:40.000]",
]


@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 1000), (1, 1), (2, 2)])
@pytest.mark.parametrize(
    "call",
    [
        "greet(input => TABLE names PARTITION BY name, word => 'Hi', on_time => DESCRIPTOR(ts), uid => 'greetings')",
        "TABLE(default_catalog.default_database.greet(TABLE names PARTITION BY name, 'Hi', DEFAULT, DESCRIPTOR(ts)))",
    ],
)
def test_the_key_is_in_front_and_event_time_behind(
    folder: Path, capsys: pytest.CaptureFixture[str], call: str, parallelism: int, batch_rows: int
) -> None:
    said = printed(folder, capsys, f"SELECT * FROM {call};", parallelism, batch_rows)
    assert sorted(line.replace("null", "NULL") for line in said) == GREETINGS


def test_all_columns_are_passed_through_if_the_function_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(folder, capsys, "SELECT * FROM loud((SELECT v, name FROM names WHERE v > 2)) AS l;")
    assert said == ["+I[3, Bob, BOB]", "+I[3, Bob, BOB!]"]


def test_functions_are_chained_by_their_event_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = """
    WITH first AS (SELECT name, rowtime FROM greet(TABLE names PARTITION BY name, 'a', on_time => DESCRIPTOR(ts)) WHERE greeting <> 'bye')
    SELECT name, greeting, TIMESTAMPDIFF(SECOND, TIMESTAMP '2025-03-27 07:38:32', rowtime)
    FROM greet(TABLE first PARTITION BY name, 'b', 1000, DESCRIPTOR(rowtime), 'second') WHERE name = 'Alice';
    """
    assert sorted(printed(folder, capsys, query)) == ["+I[Alice, b Alice, 0]", "+I[Alice, bye, 1]"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM greet(TABLE names, 'Hi')", "greet keeps state a key: its table needs PARTITION BY"),
        ("SELECT * FROM loud(TABLE names PARTITION BY name)", "loud takes each row by itself, without keys"),
        ("SELECT * FROM greet(TABLE names PARTITION BY name)", "greet needs word"),
        ("SELECT * FROM greet(TABLE names PARTITION BY name, wrod => 'Hi')", "greet has no parameter 'wrod'"),
        ("SELECT * FROM greet(TABLE names PARTITION BY name, 'Hi', 'soon')", "wait_ms of greet must be BIGINT"),
        ("SELECT * FROM greet(TABLE names PARTITION BY name, name)", "word of greet must be a constant"),
        ("SELECT * FROM greet(TABLE names PARTITION BY name, 'Hi', on_time => DESCRIPTOR(tz))", "has no column 'tz'"),
        ("SELECT * FROM greet((SELECT name, CAST(ts AS TIMESTAMP(3)) + INTERVAL '1' SECOND AS ts FROM names) PARTITION BY name, 'Hi', "
         "on_time => DESCRIPTOR(ts))", "on_time needs a time attribute, but"),
        ("SELECT * FROM greet(TABLE names PARTITION BY name, 'Hi', uid => 7)", "uid must be a constant text"),
        ("SELECT greet(name) FROM names", "greet is a process table function, it stands only in FROM"),
        ("CREATE FUNCTION f AS 'ptfs.Bare' LANGUAGE PYTHON", "the columns of the rows that it sends are not known"),
        ("CREATE FUNCTION f AS 'ptfs.Impossible' LANGUAGE PYTHON", "on_timer is not possible with pass_columns_through"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_runs(folder: Path, query: str, message: str) -> None:
    assert message in problems(f"{NAMES}{query};", folder)


def test_a_table_that_changes_is_refused(folder: Path) -> None:
    script = folder / "s.sql"
    script.write_text(NAMES + "SELECT * FROM loud((SELECT name, COUNT(*) AS n FROM names GROUP BY name));")
    with pytest.raises(
        PipelineError, match="a process table function needs rows that never change, but gets updates from"
    ):
        compile_pipeline(script, {}, {})


@pytest.mark.parametrize("seed", range(3))
def test_state_and_timers_go_on_from_a_savepoint_or_checkpoint(seed: int, tmp_path: Path) -> None:
    case = (HERE / "cases" / "process_table_functions.sql").read_text()
    body = case.replace("${DATA}", str(HERE / "data")).replace("${OUT}", str(tmp_path / "out"))
    body = body.replace("CREATE TABLE orders", "CREATE TABLE a_rows", 1)
    tables, made, rest = body.partition("CREATE TABLE result_sink")
    gate = "CREATE VIEW orders AS SELECT * FROM a_rows WHERE gate_a(order_id);\n"
    script = tmp_path / "query.sql"
    module = f"case_functions_{seed}"  # one process knows one module of a name
    script.write_text((FUNCTIONS + tables + gate + made + rest).replace("'case_functions.", f"'{module}."))
    (tmp_path / f"{module}.py").write_text((HERE / "cases" / "case_functions.py").read_text())
    job = Job(script, tmp_path, {"a": 130})
    chance = random.Random(seed)
    assert job.interrupt(chance)
    job.finish(chance.choice([1, 2, 3]))
    assert job.half_read()
    wanted = json.loads((HERE / "cases" / "process_table_functions.json").read_text())
    assert folded(tmp_path / "out", wanted["columns"]) == {json.dumps(plain(row)): 1 for row in wanted["rows"]}
