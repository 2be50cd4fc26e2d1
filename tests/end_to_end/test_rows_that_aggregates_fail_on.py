"""Rows that a user's aggregate or the condition of a pattern fails on: left out whole, counted and kept aside, whatever the batches."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flowrun.errors import JobFailedError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from flowrun.runtime.job_status import JobResult
from tests.end_to_end.running import json_rows

FUNCTIONS = """
import flowrun

@flowrun.udaf(result="BIGINT", arguments=["INT"])
class Inverse:
    "The sum of 1000 / n; fails on 0."
    def create_accumulator(self):
        return [0]
    def accumulate(self, accumulator, n):
        accumulator[0] += 1
        accumulator[0] += 1000 // n - 1
    def retract(self, accumulator, n):
        accumulator[0] -= 1000 // n
    def get_value(self, accumulator):
        return accumulator[0]

@flowrun.udaf(result="BIGINT", arguments=["INT"], vectorised=True)
class ArrowInverse:
    "The same of whole columns."
    def create_accumulator(self):
        return 0
    def accumulate(self, accumulator, values):
        return accumulator + sum(1000 // n for n in values.to_pylist())
    def retract(self, accumulator, values):
        return accumulator - sum(1000 // n for n in values.to_pylist())
    def get_value(self, accumulator):
        return accumulator

@flowrun.udaf(result="BIGINT", arguments=["INT"])
class Few:
    "Fails because of the rows before."
    def create_accumulator(self):
        return 0
    def accumulate(self, accumulator, n):
        if accumulator == 3:
            raise ValueError("three are enough")
        return accumulator + 1
    def get_value(self, accumulator):
        return accumulator
"""
ROWS = [{"id": i, "k": "ab"[i % 2], "n": i % 5, "t": str(i), "ts": f"2024-01-01 00:00:{i:02}"} for i in range(40)]
ROWS[11]["t"] = "eleven"
GOOD = [r for r in ROWS if r["n"]]
SOURCE = """
CREATE FUNCTION inverse AS 'failing_aggregates.Inverse' LANGUAGE PYTHON;
CREATE FUNCTION arrow_inverse AS 'failing_aggregates.ArrowInverse' LANGUAGE PYTHON;
CREATE FUNCTION few AS 'failing_aggregates.Few' LANGUAGE PYTHON;
CREATE TABLE numbers (id INT, k STRING, n INT, t STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'FOLDER/in', 'format' = 'json');
"""
OUT = "CREATE TABLE out ({}) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/out', 'format' = 'debezium-json');\n"
LAYOUTS = [(1, 131_072), (2, 7), (1, 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "failing_aggregates.py").write_text(FUNCTIONS)
    return tmp_path


def run(
    folder: Path, script: str, parallelism: int = 1, batch_rows: int = 131_072, mode: str = "dead-letter"
) -> JobResult:
    path = folder / "script.sql"
    head = f"SET 'flowrun.on_error' = '{mode}'; SET 'flowrun.dead_letters' = '{folder}/dead';\n"
    path.write_text(head + (SOURCE + script).replace("FOLDER", str(folder)))
    overrides = {"settings.parallelism": str(parallelism), "settings.batch_rows": str(batch_rows)}
    return run_embedded(compile_pipeline(path, {}, overrides).job_graph)


def result(folder: Path) -> Counter[tuple[object, ...]]:
    """What the changes in the output come to."""
    found: Counter[tuple[object, ...]] = Counter()
    for change in json_rows(folder / "out"):
        for name, sign in (("before", -1), ("after", 1)):
            row = change[name]
            if isinstance(row, dict):
                found[tuple(row.values())] += sign
    return +found


def letters(folder: Path, column: str = "id") -> Counter[tuple[str, object]]:
    """Kinds of dead letters, with a column that is read where they come from."""
    return Counter((str(r["kind"]), json.loads(str(r["text"]))[column]) for r in json_rows(folder / "dead"))


def inverse(rows: list[dict[str, object]]) -> int:
    return sum(1000 // int(str(r["n"])) for r in rows)


@pytest.mark.parametrize(("parallelism", "batch_rows"), LAYOUTS)
@pytest.mark.parametrize("function", ["inverse", "arrow_inverse"])
def test_groups_count_the_rows_that_every_aggregate_can_take(
    folder: Path, parallelism: int, batch_rows: int, function: str
) -> None:
    columns = OUT.format("k STRING, total BIGINT, c BIGINT, texts BIGINT")
    query = f"INSERT INTO out SELECT k, {function}(n), COUNT(*), SUM(CAST(t AS INT)) FROM numbers GROUP BY k;"
    job = run(folder, columns + query, parallelism, batch_rows)
    good = [r for r in GOOD if r["id"] != 11]
    expected = {}
    for key in "ab":
        rows = [r for r in good if r["k"] == key]
        expected[key, inverse(rows), len(rows), sum(int(str(r["t"])) for r in rows)] = 1
    assert result(folder) == expected
    bad = {("function", r["t"]): 1 for r in ROWS if not r["n"]}
    assert letters(folder, "t") == bad | {("expression", "eleven"): 1}
    assert sum(c.get("numRecordsFailed.function", 0) for c in job.accumulators.values()) == len(bad)


@pytest.mark.parametrize(("parallelism", "batch_rows"), LAYOUTS)
def test_windows_do_too_and_rows_that_a_filter_leaves_out_are_no_concern_of_the_aggregate(
    folder: Path, parallelism: int, batch_rows: int
) -> None:
    columns = OUT.format("k STRING, seconds INT, total BIGINT, c BIGINT")
    query = (
        "INSERT INTO out SELECT k, CAST(EXTRACT(SECOND FROM window_start) AS INT), inverse(n) FILTER (WHERE n <> 0 OR id < 20), COUNT(*)\n"
        "FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end;"
    )
    run(folder, columns + query, parallelism, batch_rows)
    expected = {}
    for start in range(0, 40, 10):
        for key in "ab":
            rows = [r for r in ROWS[start : start + 10] if r["k"] == key and (r["n"] or int(str(r["id"])) >= 20)]
            expected[key, start, inverse([r for r in rows if r["n"]]), len(rows)] = 1
    assert result(folder) == expected
    assert letters(folder) == {("function", i): 1 for i in range(0, 20, 5)}


@pytest.mark.parametrize(("parallelism", "batch_rows"), LAYOUTS)
def test_what_is_taken_back_of_a_row_that_was_left_out_is_left_out_as_well(
    folder: Path, parallelism: int, batch_rows: int
) -> None:
    """Each key's newest row alone counts, so that all others are taken back."""
    columns = OUT.format("total BIGINT, c BIGINT")
    query = (
        "INSERT INTO out SELECT inverse(n), COUNT(*) FROM (SELECT MOD(id, 8) AS m, MAX(id) AS id, MOD(MAX(id), 5) AS n FROM numbers "
        "GROUP BY MOD(id, 8)) AS newest;"
    )
    run(folder, columns + query, parallelism, batch_rows)
    kept = [r for r in ROWS[32:] if r["n"]]
    assert result(folder) == {(inverse(kept), len(kept)): 1}
    assert set(letters(folder, "n")) == {("function", 0)}


def test_over_leaves_them_out(folder: Path) -> None:
    columns = OUT.format("id INT, total BIGINT")
    over = "OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    run(folder, columns + f"INSERT INTO out SELECT id, inverse(n) {over} FROM numbers;", batch_rows=7)
    expected = {}
    for key in "ab":
        rows = [r for r in GOOD if r["k"] == key]
        expected |= {(r["id"], inverse(rows[max(i - 1, 0) : i + 1])): 1 for i, r in enumerate(rows)}
    assert result(folder) == expected


def test_a_failure_that_comes_of_the_rows_before_fails_the_job(folder: Path) -> None:
    with pytest.raises(JobFailedError, match="three are enough"):
        run(folder, OUT.format("c BIGINT") + "INSERT INTO out SELECT few(n) FROM numbers;", mode="skip")


def test_by_default_the_job_fails(folder: Path) -> None:
    with pytest.raises(JobFailedError, match="accumulate failed: ZeroDivisionError"):
        run(folder, OUT.format("c BIGINT") + "INSERT INTO out SELECT inverse(n) FROM numbers;", mode="fail")


PATTERN = """
INSERT INTO out SELECT * FROM numbers MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts
  MEASURES FIRST(A.id) AS first_id, B.id AS last_id, SUM(CAST(A.t AS INT)) AS total
  PATTERN (A+ B)
  DEFINE A AS 1000 / A.n >= 400, B AS n IS NOT NULL AND 1000 / n < 400
);
"""


def pairs(rows: list[dict[str, object]]) -> dict[tuple[object, ...], int]:
    found: dict[tuple[object, ...], int] = {}
    for key in "ab":
        run: list[dict[str, object]] = []
        for row in (r for r in rows if r["k"] == key):
            if 1000 // int(str(row["n"])) >= 400:
                run.append(row)
            elif run:
                found[key, run[0]["id"], row["id"], sum(int(str(r["t"])) for r in run)] = 1
                run = []
    return found


@pytest.mark.parametrize(("parallelism", "batch_rows"), LAYOUTS)
def test_rows_that_no_condition_of_a_pattern_can_be_asked_of_are_not_there_for_the_pattern(
    folder: Path, parallelism: int, batch_rows: int
) -> None:
    run(folder, OUT.format("k STRING, a INT, b INT, total INT") + PATTERN, parallelism, batch_rows)
    assert result(folder) == pairs([r for r in GOOD if r["id"] != 11]) != {}
    bad = {("expression", int(str(r["id"]))): 1 for r in ROWS if not r["n"] or r["id"] == 11}
    assert letters(folder) == bad


def test_a_condition_that_another_one_guards_fails_on_no_row(folder: Path) -> None:
    guarded = PATTERN.replace("A AS", "A AS A.n <> 0 AND").replace("n IS NOT NULL", "n <> 0").replace("A.t", "A.id")
    run(folder, OUT.format("k STRING, a INT, b INT, total INT") + guarded)
    assert not json_rows(folder / "dead")
    assert result(folder)
