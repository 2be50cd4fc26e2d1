"""Rows that cannot be processed on Spark: the same are left out as by the stream, and the same dead letters written."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from flowrun.runners.spark import run_batch
from flowrun.runners.verify import verify
from flowrun.spark.session import SparkOptions
from tests.end_to_end.conftest import Command
from tests.end_to_end.running import bag, json_rows, letters_in, run_text, written_files
from tests.end_to_end.test_row_errors import FAULTS, FUNCTIONS, LINES, PIPELINE
from tests.end_to_end.test_rows_that_aggregates_fail_on import FUNCTIONS as AGGREGATES
from tests.end_to_end.test_rows_that_aggregates_fail_on import ROWS, SOURCE

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("into_sink", [False, True])
def test_dead_letters_are_those_of_the_stream(tmp_path: Path, into_sink: bool) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(LINES) + "\n")
    (tmp_path / "row_error_functions.py").write_text(FUNCTIONS)
    text = PIPELINE.format(mode="dead-letter", folder=tmp_path)
    if into_sink:
        text = text.replace(f"dead_letters: {tmp_path}/dead", "dead_letters: {sink: letters}")
        text += f"  letters: {{connector: filesystem, path: {tmp_path}/dead, format: json}}\n"
    run_text(tmp_path, text)
    rows, letters = json_rows(tmp_path / "out"), letters_in(tmp_path / "dead")
    for folder in ("out", "dead"):
        (tmp_path / folder).rename(tmp_path / f"{folder} of the stream")
    run_batch(compile_pipeline(tmp_path / "pipeline.yaml", {}, {"settings.mode": "batch"}), SparkOptions())
    assert bag(json_rows(tmp_path / "out")) == bag(rows)
    assert bag(letters_in(tmp_path / "dead")) == bag(letters)
    if into_sink:
        compared = verify(compile_pipeline(tmp_path / "pipeline.yaml", {}, {}), SparkOptions())
        assert {c.name: c.equal for c in compared.sinks} == {"out": True, "letters": True}


SKIPPED = """
sources:
  rows:
    connector: filesystem
    path: {folder}/in
    format: json
    format.on-error: skip
    schema: {{u: "ROW<id BIGINT>", k: STRING, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, delay: 1s}}
steps:
  known: {{from: rows, filter: u.id IS NOT NULL}}
  counted: {{from: known, key_by: [k], window: {{type: tumbling, size: 1h}}, aggregate: [COUNT(*) AS n]}}
sinks:
  out: {{from: counted, connector: filesystem, path: {folder}/out, format: json}}
"""


def test_unreadable_records_before_a_keyed_step_and_a_filter_on_a_nested_field_are_skipped(tmp_path: Path) -> None:
    time = '"ts": "2024-03-01 10:00:00"'
    lines = [
        f'{{"u": {{"id": 1}}, "k": "a", {time}}}',
        "no json",
        f'{{"u": null, "k": null, {time}}}',
        f'{{"u": {{"id": "x"}}, "k": "a", {time}}}',
        f'{{"u": {{"id": 2}}, "k": "b", {time}}}',
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    path = tmp_path / "pipeline.yaml"
    path.write_text(SKIPPED.format(folder=tmp_path))
    result = verify(compile_pipeline(path), SparkOptions())
    assert [(s.equal, s.stream_rows, s.spark_rows) for s in result.sinks] == [(True, 2, 2)]


FOLDED = """
SET 'flowrun.on_error' = 'dead-letter'; SET 'flowrun.dead_letters' = 'FOLDER/dead';
CREATE TABLE out (k STRING, total BIGINT, c BIGINT) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/out', 'format' = 'json');
INSERT INTO out SELECT k, inverse(n), COUNT(*) FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY k, window_start, window_end;
INSERT INTO out SELECT k, a, b FROM numbers MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts MEASURES FIRST(A.id) AS a, B.id AS b PATTERN (A+ B)
  DEFINE A AS 1000 / A.n >= 400, B AS 1000 / n < 400
);
"""


def test_rows_that_users_aggregates_and_conditions_of_patterns_fail_on_are_those_of_the_stream(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "failing_aggregates.py").write_text(AGGREGATES)
    path = tmp_path / "script.sql"
    path.write_text((SOURCE + FOLDED).replace("FOLDER", str(tmp_path)))
    run_embedded(compile_pipeline(path).job_graph)
    written, letters = json_rows(tmp_path / "out"), letters_in(tmp_path / "dead")
    for folder in ("out", "dead"):
        (tmp_path / folder).rename(tmp_path / f"{folder} of the stream")
    run_batch(compile_pipeline(path, {}, {"settings.mode": "batch"}), SparkOptions())
    assert bag(json_rows(tmp_path / "out")) == bag(written) != Counter()
    assert bag(letters_in(tmp_path / "dead")) == bag(letters) != Counter()


JOINED = """
SET 'flowrun.on_error' = 'dead-letter'; SET 'flowrun.dead_letters' = '{folder}/dead';
CREATE TABLE a (id INT, k INT, v INT) WITH ('connector' = 'filesystem', 'path' = '{folder}/a', 'format' = 'json');
CREATE TABLE b (id INT, k INT, v INT) WITH ('connector' = 'filesystem', 'path' = '{folder}/b', 'format' = 'json');
CREATE TABLE out (s STRING) WITH ('connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'raw');
INSERT INTO out SELECT CONCAT(CAST(a.id AS STRING), CASE WHEN b.id = 5 THEN '\n' ELSE ':' END, CAST(b.id AS STRING))
FROM a JOIN b ON a.k = b.k AND 100 / (a.v - b.v) > 30;
"""


def test_unjoinable_pairs_and_unwritable_rows_are_those_of_the_stream(tmp_path: Path) -> None:
    for table, modulus in (("a", 5), ("b", 3)):
        (tmp_path / table).mkdir()
        lines = (f'{{"id": {i}, "k": {i % 4}, "v": {i % modulus}}}\n' for i in range(20))
        (tmp_path / table / "rows.json").write_text("".join(lines))
    path = tmp_path / "script.sql"
    path.write_text(JOINED.format(folder=tmp_path))
    run_embedded(compile_pipeline(path).job_graph)
    written, letters = lines_of(tmp_path / "out"), letters_in(tmp_path / "dead")
    for folder in ("out", "dead"):
        (tmp_path / folder).rename(tmp_path / f"{folder} of the stream")
    run_batch(compile_pipeline(path, {}, {"settings.mode": "batch"}), SparkOptions())
    assert lines_of(tmp_path / "out") == written != []
    kinds = Counter((r["place"], r["kind"]) for r in letters)
    assert kinds["sink 'out'", "sink"] > 0
    assert sum(kinds.values()) > kinds["sink 'out'", "sink"]
    assert bag(letters_in(tmp_path / "dead")) == bag(letters)


def lines_of(folder: Path) -> list[str]:
    return sorted(line for f in written_files(folder) for line in f.read_text().splitlines())


@pytest.mark.parametrize("mode", ["skip", "dead-letter"])
def test_what_is_left_out_is_counted_as_by_the_stream(flowrun: Command, tmp_path: Path, mode: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(LINES) + "\n")
    (tmp_path / "row_error_functions.py").write_text(FUNCTIONS)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(mode=mode, folder=tmp_path))
    stream = flowrun("run", tmp_path / "pipeline.yaml")
    for folder in ("out", "dead"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    batch = flowrun("run", tmp_path / "pipeline.yaml", "--mode", "batch", "--report", tmp_path / "report.json")
    assert (stream.code, batch.code) == (0, 0), batch.err
    assert faults_said(batch.err, mode) == faults_said(stream.err, mode) == FAULTS
    assert "the first: " in batch.err
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["left_out"]["mapped"]["numRecordsFailed.function"] == 1


def faults_said(text: str, mode: str) -> Counter[str]:
    """How many rows a summary says were left out, by kind; steps may run as one, so their names are not compared."""
    fate = "skipped" if mode == "skip" else "put aside as dead letters"
    said = [part for why in re.findall(rf"rows? {fate} \((.*)\)", text) for part in why.split(", ")]
    return sum((Counter({kind: int(count)}) for kind, count in (p.rsplit(" ", 1) for p in said)), Counter[str]())
