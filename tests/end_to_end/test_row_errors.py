"""Rows that cannot be processed, for every reason there is: the job fails, or they are left out and counted, or kept aside, once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flowrun.errors import JobFailedError
from tests.end_to_end.conftest import Command
from tests.end_to_end.running import json_rows, run_text

FUNCTIONS = """
import os
import pyarrow as pa

def halved(batch):
    if any(n == 7 for n in batch.column("n").to_pylist()):
        raise ValueError("seven is odd")
    return batch

def twice(row):
    if row["n"] == 9:
        raise KeyError("nine")
    yield row
    yield row

def flaky(batch):
    "The world outside fails as often as there are files to use up."
    for name in sorted(os.listdir(os.environ["FAILURES"])):
        if batch.num_rows and batch.column("n")[0].as_py() >= int(name):
            os.remove(os.path.join(os.environ["FAILURES"], name))
            raise ConnectionError("gone for a moment")
    return batch
"""
PIPELINE = """
settings: {{on_error: {mode}, dead_letters: {folder}/dead}}
sources:
  rows:
    connector: filesystem
    path: {folder}/in
    format: json
    schema: {{n: INT, k: STRING, d: INT, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, delay: 1s}}
steps:
  mapped: {{from: rows, map: {{function: "row_error_functions:halved"}}}}
  doubled: {{from: mapped, flat_map: {{function: "row_error_functions:twice", row: true}}}}
  computed: {{from: doubled, select: [n, k, 1000 / d AS q, ts], filter: "CAST(k AS INT) >= 0 OR k IS NULL"}}
  counted:
    from: computed
    key_by: [k]
    window: {{type: tumbling, size: 1h}}
    aggregate: [COUNT(*) AS c, SUM(CAST(q AS TINYINT)) AS total]
sinks:
  out:
    from: counted
    connector: filesystem
    path: {folder}/out
    format: json
    schema: {{k: STRING, c: BIGINT, total: TINYINT NOT NULL}}
"""
TIME = "2024-03-01 10:00:00"


def row(n: int, k: str | None = "1", d: int = 100, ts: str | None = TIME) -> str:
    return json.dumps({"n": n, "k": k, "d": d, "ts": ts})


LINES = [
    row(1),
    "no json",
    row(2, d=0),
    row(3),
    row(4, ts=None),
    row(5, k=None),
    row(6, k="x"),
    row(7),
    row(8, k="2", d=50),
    row(9),
    row(10, d=5),
    row(11),
    row(12, k="2"),
]
"""Good ones: 1, 3, 8, 11, 12. What an aggregate reads does not fit in 10."""
FAULTS = Counter({"decoding": 1, "event time": 1, "function": 2, "expression": 6, "key": 2})
"""What is doubled fails twice."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(LINES) + "\n")
    (tmp_path / "row_error_functions.py").write_text(FUNCTIONS)
    return tmp_path


@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 131_072), (2, 3), (1, 1)])
def test_rows_that_fail_are_kept_aside_with_place_reason_and_row_whatever_the_batches(
    folder: Path, parallelism: int, batch_rows: int
) -> None:
    text = PIPELINE.format(mode="dead-letter", folder=folder)
    result = run_text(folder, text, parallelism=parallelism, batch_rows=batch_rows)
    assert sorted((r["k"], r["c"], r["total"]) for r in json_rows(folder / "out")) == [("1", 6, 60), ("2", 4, 60)]
    letters = json_rows(folder / "dead")
    assert Counter(letter["kind"] for letter in letters) == FAULTS
    assert {(letter["place"], letter["kind"]) for letter in letters} == {
        ("source 'rows'", "decoding"),
        ("source 'rows'", "event time"),
        ("step 'mapped'", "function"),
        ("step 'doubled'", "function"),
        ("step 'computed'", "expression"),
        ("step 'counted'", "key"),
        ("step 'counted'", "expression"),
    }
    (bad,) = (letter for letter in letters if letter["kind"] == "decoding")
    assert (bad["file"], bad["offset"], bad["text"]) == (str(folder / "in" / "a.json"), len(LINES[0]) + 1, "no json")
    by_zero = [letter for letter in letters if "division by zero" in str(letter["reason"])]
    assert [json.loads(str(letter["text"]))["d"] for letter in by_zero] == [0, 0]
    counted = Counter[str]()
    for counters in result.accumulators.values():
        counted.update({k.removeprefix("numRecordsFailed."): v for k, v in counters.items() if "Failed." in k})
    assert counted == FAULTS


def test_skipped_rows_are_counted_and_the_first_of_each_step_is_shown(flowrun: Command, folder: Path) -> None:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(mode="skip", folder=folder))
    outcome = flowrun("run", path)
    assert outcome.code == 0, outcome.err
    assert not (folder / "dead").exists()
    assert "Source: rows: 2 rows skipped (decoding 1, event time 1)" in outcome.err
    assert f"the first: {folder}/in/a.json, byte {len(LINES[0]) + 1}: not JSON" in outcome.err
    assert "mapped: 1 row skipped (function 1)" in outcome.err
    assert "raised ValueError: seven is odd" in outcome.err


def test_sources_steps_and_sinks_say_for_themselves_what_becomes_of_their_rows(folder: Path) -> None:
    text = (
        PIPELINE.format(mode="skip", folder=folder)
        .replace("doubled: {from", "doubled: {on_error: dead-letter, from")
        .replace("select: [n", "on_error: fail, select: [n")
    )
    with pytest.raises(JobFailedError, match="division by zero"):
        run_text(folder, text)
    result = run_text(folder, text.replace("1000 / d", "n").replace("CAST(k AS INT) >= 0 OR k IS NULL", "k <> 'x'"))
    assert [letter["place"] for letter in json_rows(folder / "dead")] == ["step 'doubled'"]
    assert result.accumulators["Source: rows"]["numRecordsSkipped"] == 2


SCRIPT = """
SET 'flowrun.on_error' = 'skip';
SET 'flowrun.dead_letters' = '{folder}/dead';
CREATE TABLE numbers (n INT, k STRING, d INT, ts TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '{folder}/in', 'format' = 'json', 'on-error' = 'dead-letter');
CREATE TABLE results (n INT, q INT NOT NULL)
WITH ('connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'json', 'on-error' = 'dead-letter');
INSERT INTO results SELECT n, NULLIF(1000 / d, 10) FROM numbers WHERE n IS NOT NULL;
"""


def test_scripts_set_it_for_all_and_tables_for_themselves(flowrun: Command, folder: Path) -> None:
    path = folder / "script.sql"
    path.write_text(SCRIPT.format(folder=folder))
    outcome = flowrun("run", path)
    assert outcome.code == 0, outcome.err
    assert sorted((r["n"], r["q"]) for r in json_rows(folder / "out")) == [(8, 20), (10, 200)]
    assert Counter((r["place"], r["kind"]) for r in json_rows(folder / "dead")) == {
        ("source 'numbers'", "decoding"): 1,
        ("sink 'results'", "not null"): 9,
    }


def test_dead_letters_need_a_folder_before_anything_runs(flowrun: Command, folder: Path) -> None:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(mode="dead-letter", folder=folder).replace(f", dead_letters: {folder}/dead", ""))
    outcome = flowrun("validate", path)
    assert outcome.code == 2, outcome.err
    assert "settings.dead_letters" in outcome.err


FLAKY = """
settings:
  on_error: dead-letter
  dead_letters: {folder}/dead
  batch_rows: 5
  checkpoint: {{interval: 1ms, dir: {folder}/state}}
  restart: {{strategy: fixed_delay, attempts: 100, delay: 1ms}}
sources:
  rows: {{connector: filesystem, path: {folder}/many, format: json, schema: {{n: INT, d: INT}}}}
steps:
  computed: {{from: rows, select: [n, 100 / d AS q]}}
  flaky: {{from: computed, map: {{function: "row_error_functions:flaky"}}}}
sinks:
  out: {{from: flaky, connector: filesystem, path: {folder}/out, format: json}}
"""


@pytest.mark.parametrize("parallelism", [1, 2])
def test_dead_letters_are_written_once_over_restarts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, parallelism: int
) -> None:
    failures = folder / "failures"
    failures.mkdir()
    for at in (40, 90, 91, 140):
        (failures / f"{at:03}").touch()
    monkeypatch.setenv("FAILURES", str(failures))
    (folder / "many").mkdir()
    lines = ["broken" if n % 10 == 3 else json.dumps({"n": n, "d": n % 10}) for n in range(200)]
    (folder / "many" / "a.json").write_text("\n".join(lines))
    result = run_text(folder, FLAKY.format(folder=folder), parallelism=parallelism)
    assert result.restarts == 4
    assert sorted(int(str(r["n"])) for r in json_rows(folder / "out")) == [
        n for n in range(200) if n % 10 not in (0, 3)
    ]
    assert Counter(letter["kind"] for letter in json_rows(folder / "dead")) == {"decoding": 20, "expression": 20}


def test_a_row_that_fails_again_and_again_ends_the_job_with_checkpoints_too(flowrun: Command, folder: Path) -> None:
    path = folder / "pipeline.yaml"
    (folder / "in" / "a.json").write_text("\n".join([row(1), row(2, ts=None), row(3)]))
    restart = f"checkpoint: {{interval: 1ms, dir: {folder}/state}}, restart: {{strategy: exponential, initial_delay: 1ms, max_delay: 1ms}}"
    path.write_text(PIPELINE.format(mode="fail", folder=folder).replace("{on_error", f"{{{restart}, on_error"))
    outcome = flowrun("run", path)
    assert outcome.code == 1
    assert "event time 'ts' must not be NULL" in outcome.err
    assert "this happened 3 times at the same place without progress" in outcome.err
    assert "on_error: skip" in outcome.err


RUNNING = """
settings: {{on_error: dead-letter, dead_letters: {folder}/dead}}
sources:
  rows: {{connector: filesystem, path: {folder}/in, format: json, schema: {{n: INT, k: STRING}}}}
steps:
  running:
    from: rows
    key_by: [k]
    process: {{function: "row_error_functions:Running", schema: {{n: INT, total: TINYINT}}}}
sinks:
  out: {{from: running, connector: filesystem, path: {folder}/out, format: json}}
"""
RUNNING_FUNCTION = """
from flowrun.api.process_function import KeyedProcessFunction, value_state

class Running(KeyedProcessFunction):
    total = value_state("BIGINT")

    def process_element(self, row, context):
        context.collect({"n": -row["n"], "total": 0})
        if row["n"] == 3:
            raise ValueError("three")
        total = (self.total.value() or 0) + row["n"]
        self.total.update(total)
        return {"n": row["n"], "total": total}
"""


@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 131_072), (2, 2)])
def test_rows_that_a_process_function_fails_on_leave_nothing_behind(
    folder: Path, parallelism: int, batch_rows: int
) -> None:
    (folder / "row_error_functions.py").write_text(RUNNING_FUNCTION)
    (folder / "in" / "a.json").write_text("\n".join(row(n, k="a") for n in (1, 3, 5, 200, 7)) + "\n" + row(2, k=None))
    run_text(folder, RUNNING.format(folder=folder), parallelism=parallelism, batch_rows=batch_rows)
    assert sorted((r["n"], r["total"]) for r in json_rows(folder / "out")) == [(-5, 0), (-1, 0), (1, 1), (5, 6)]
    assert Counter((r["kind"], json.loads(str(r["text"]))["n"]) for r in json_rows(folder / "dead")) == {
        ("function", 3): 1,
        ("function", 200): 1,
        ("function", 7): 1,
        ("key", 2): 1,
    }
