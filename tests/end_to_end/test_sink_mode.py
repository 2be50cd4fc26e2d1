"""A run from the beginning and what earlier runs left in its folder: it says what it does, and rows are never there twice silently."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flowrun.errors import JobFailedError, SetupError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from tests.end_to_end.running import bag, json_rows, run_file, run_text, written_files

PIPELINE = """
name: twice
settings: {parallelism: 2SETTINGS}
sources:
  rows:
    connector: filesystem
    path: ${FOLDER}/in
    format: json
    schema: {k: STRING, v: BIGINT}
sinks:
  out: {from: rows, connector: filesystem, path: "${FOLDER}/out", format: jsonMORE}
"""


def write_input(folder: Path, **values: int) -> None:
    """The only file of the input: a row a key."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "rows.json").write_text("".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in values.items()))


def run(folder: Path, more: str = "", settings: str = "") -> Counter[str]:
    """Run it from the beginning; gives what is in the folder afterwards."""
    run_text(folder, PIPELINE.replace("MORE", more).replace("SETTINGS", settings), {"FOLDER": folder})
    return bag(json_rows(folder / "out"))


def test_a_second_run_does_not_begin_unless_it_is_said_what_to_do(tmp_path: Path) -> None:
    write_input(tmp_path, a=1, b=2)
    once = run(tmp_path)
    with pytest.raises(SetupError, match=r"out has \d files? already, from an earlier run or somebody else") as raised:
        run(tmp_path)
    assert "sink.mode: overwrite replaces these files, append adds to them" in (raised.value.hint or "")
    assert "flowrun resume" in (raised.value.hint or "")
    assert bag(json_rows(tmp_path / "out")) == once
    assert run(tmp_path, ", sink.mode: append") == once + once


@pytest.mark.parametrize("settings", ["", ", checkpoint: {interval: 10ms}"])
@pytest.mark.parametrize("more", ["", ", partition_by: [k]"])
def test_a_second_run_replaces_the_first(tmp_path: Path, more: str, settings: str) -> None:
    settings = settings.replace("10ms", f'10ms, dir: "{tmp_path}/state"')
    write_input(tmp_path, a=1, b=2)
    run(tmp_path, more + ", sink.mode: overwrite", settings)
    write_input(tmp_path, b=3, c=4)
    second = run(tmp_path, more + ", sink.mode: overwrite", settings)
    assert sorted(json.loads(row)["v"] for row in second) == [3, 4]
    assert not (tmp_path / "out" / "k=a").exists()
    assert not list((tmp_path / "out").glob(".*")), "nothing hidden is left"


def test_a_run_without_rows_replaces_too(tmp_path: Path) -> None:
    write_input(tmp_path, a=1)
    run(tmp_path, ", sink.mode: overwrite")
    write_input(tmp_path)
    assert not run(tmp_path, ", sink.mode: overwrite")


def test_a_run_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_input(tmp_path, a=1, b=2)
    once = run(tmp_path, ", sink.mode: overwrite")
    before = written_files(tmp_path / "out")
    with (tmp_path / "in" / "rows.json").open("a") as file:
        file.write("no row\n")
    with pytest.raises(JobFailedError):
        run(tmp_path, ", sink.mode: overwrite")
    assert written_files(tmp_path / "out") == before
    assert bag(json_rows(tmp_path / "out")) == once
    assert not list((tmp_path / "out").glob(".*")), "nothing hidden is left"


def test_what_goes_on_from_a_savepoint_of_the_run_still_knows(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.json").write_text('{"k": "old", "v": 0}\n')
    write_input(tmp_path, a=1, b=2)
    watching = PIPELINE.replace("format: json\n", "format: json\n    source.monitor-interval: 5ms\n").replace(
        "MORE", ", sink.mode: overwrite"
    )
    file = tmp_path / "watching.yaml"
    file.write_text(watching.replace("SETTINGS", ", checkpoint: {interval: 1h}"))
    graph = compile_pipeline(file, {"FOLDER": str(tmp_path)}).job_graph
    with start_embedded(graph, state=JobStateOptions(str(tmp_path / "state"))) as job:
        savepoint = job.take_snapshot(str(tmp_path / "saved")).wait(20_000)
        job.cancel()
        job.wait(20_000)
    assert (tmp_path / "out" / "old.json").exists(), "nothing was shown yet"
    restored = JobStateOptions(str(tmp_path / "state"), restore_from=savepoint)
    with start_embedded(graph, state=restored) as job:
        job.take_snapshot(savepoint=False, stop=True).wait(20_000)
        job.wait(20_000)
    assert not (tmp_path / "out" / "old.json").exists()


def test_a_table_that_is_kept_up_to_date_by_its_key_is_replaced(tmp_path: Path) -> None:
    script = """
    CREATE TABLE rows (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '${FOLDER}/in', 'format' = 'json');
    CREATE TABLE totals (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
      WITH ('connector' = 'filesystem', 'path' = '${FOLDER}/out', 'format' = 'json', 'sink.mode' = 'overwrite');
    INSERT INTO totals SELECT k, COUNT(*) FROM rows GROUP BY k;
    """
    (tmp_path / "totals.sql").write_text(script)
    write_input(tmp_path, a=1, b=2)
    for _ in range(2):
        run_file(tmp_path / "totals.sql", {"FOLDER": tmp_path})
        assert sorted(row["k"] for row in json_rows(tmp_path / "out")) == ["a", "b"]  # type: ignore[type-var]


def test_partitions_are_marked_anew(tmp_path: Path) -> None:
    more = ", partition_by: [k], sink.partition-commit.policy.kind: success-file, sink.mode: overwrite"
    write_input(tmp_path, a=1, b=2)
    run(tmp_path, more)
    write_input(tmp_path, b=3)
    run(tmp_path, more)
    assert [f.parent.name for f in (tmp_path / "out").rglob("_SUCCESS")] == ["k=b"]


def test_windows_that_fire_again_into_files_are_warned_about(tmp_path: Path) -> None:
    text = """
    name: late
    sources:
      rows:
        {connector: filesystem, path: "${FOLDER}/in", format: json, schema: {k: STRING, ts: TIMESTAMP(3)}, watermark: {column: ts}}
    steps:
      per_minute: {from: rows, key_by: [k], window: {type: tumbling, size: 1m, allowed_lateness: 10s}, aggregate: COUNT(*) AS n}
    sinks:
      out: {from: per_minute, connector: filesystem, path: "${FOLDER}/out", format: json}
    """
    write_input(tmp_path, a=1)
    (tmp_path / "late.yaml").write_text(text)
    [warning] = compile_pipeline(tmp_path / "late.yaml", {"FOLDER": str(tmp_path)}).warnings
    assert warning.message == (
        "sink 'out' keeps superseded rows: 'per_minute' fires a window again for each row that is late by up to 10s (allowed_lateness), "
        "and each result is a row of its own"
    )


@pytest.mark.parametrize("mode", ["", ", sink.mode: append", ", sink.mode: overwrite"])
def test_a_folder_that_cannot_be_written_is_found_before_anything_runs(tmp_path: Path, mode: str) -> None:
    write_input(tmp_path, a=1)
    (tmp_path / "file").write_text("")
    text = PIPELINE.replace("${FOLDER}/out", "${FOLDER}/file/out").replace("MORE", mode)
    with pytest.raises(SetupError, match=r"file/out cannot be written: .*Not a directory"):
        run_text(tmp_path, text.replace("SETTINGS", ", checkpoint: {interval: 1h}"), {"FOLDER": tmp_path})
