"""Outputs that fail, or whose driver is killed at any step: what is visible is always one whole run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.errors import ConnectorError
from flowrun.spark.execution import execute, write
from flowrun.spark.frame import SparkFrame
from flowrun.spark.output.folder_commit import CommitFolder
from flowrun.spark.output.job import OutputJob
from flowrun.spark.output.names import output_name
from flowrun.spark.output.staging import commit_all, stage
from tests.plan import plans
from tests.spark.files import context_of, sql_plan, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMIT_AND_DIE = """
import os, sys
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.spark.output.folder_commit import CommitFolder
from flowrun.spark.output.job import OutputJob
from flowrun.spark.output.names import output_name

STEPS = ("create", "write", "finish", "_rename", "discard", "discard_folder", "discard_empty", "make_folders", "_sync_all")

def commit(folder, last_step):
    name = output_name(OutputJob("p", "all", "new"), "out")
    output = CommitFolder(TablePath(folder), name)
    output.prepare()
    for day in ("2", "3"):
        os.makedirs(f"{folder}/{name.scratch}/day={day}")
        with open(f"{folder}/{name.scratch}/day={day}/x", "w") as file:
            file.write("new")
    renames = [(f"{folder}/{name.scratch}/day={d}/x", f"{folder}/day={d}/{name.stem}-0.txt") for d in ("2", "3")]
    marks = [f"{folder}/day={d}/_SUCCESS" for d in ("2", "3")]
    replacement = output.replacement(renames, marks, f"{folder}/{name.scratch}", "_SUCCESS")
    steps = 0

    def dying(method):
        def step(*args, **kwargs):
            nonlocal steps
            steps += 1
            if steps > last_step:
                os._exit(9)
            return method(*args, **kwargs)
        return step

    for method in STEPS:
        setattr(OutputFolder, method, dying(getattr(OutputFolder, method)))
    output.commit(replacement)

for step in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        commit(f"{sys.argv[1]}/{step}", step)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(step)
        break
"""
"""Commits in one folder after the other, killed before the first step, before the second, …; prints the number of the one that ended."""
MOST_STEPS = 60


def committed(folder: Path, run: str, days: tuple[str, ...]) -> None:
    """What a run that was not disturbed leaves."""
    name = output_name(OutputJob("p", "all", run), "out")
    for day in days:
        (folder / f"day={day}").mkdir(parents=True, exist_ok=True)
        (folder / f"day={day}" / f"{name.stem}-0.txt").write_text(run)
        (folder / f"day={day}" / "_SUCCESS").touch()


def seen(folder: Path) -> dict[str, str]:
    """Visible files and marks, with what they hold; names without the run's own part."""
    files = (p for p in folder.rglob("*") if p.is_file() and not any(part.startswith(".") for part in p.parts))
    return {f"{p.parent.name}/{p.name.partition('-')[0]}": p.read_text() for p in sorted(files)}


OLD = {"day=1/_SUCCESS": "", "day=1/part": "old", "day=2/_SUCCESS": "", "day=2/part": "old"}
NEW = {"day=2/_SUCCESS": "", "day=2/part": "new", "day=3/_SUCCESS": "", "day=3/part": "new"}
OTHERS = {"other/part": "stream", "other/_SUCCESS": ""}


def test_a_driver_killed_at_any_step_of_a_commit_leaves_one_run_whole(tmp_path: Path) -> None:
    for step in range(MOST_STEPS):
        folder = tmp_path / str(step)
        committed(folder, "old", ("1", "2"))
        (folder / "other").mkdir()
        (folder / "other" / "part-0123456789ab-0-0.txt").write_text("stream")
        (folder / "other" / "_SUCCESS").touch()
    command = [sys.executable, "-c", COMMIT_AND_DIE, str(tmp_path), str(MOST_STEPS)]
    ended = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found: list[bool] = []
    for step in range(ended + 1):
        folder = tmp_path / str(step)
        next_run = output_name(OutputJob("p", "all", "next"), "out")
        CommitFolder(TablePath(str(folder)), next_run).prepare()
        after = seen(folder)
        assert after in (OLD | OTHERS, NEW | OTHERS), step
        assert not [*folder.glob(".batch-*"), *folder.glob(".commit-*")], step
        found.append(after == NEW | OTHERS)
    assert found == sorted(found)  # once decided, always decided
    assert set(found) == {True, False}


def test_another_period_and_another_sink_are_not_touched(tmp_path: Path) -> None:
    for sink, period in (("out", "a"), ("out", "a-b"), ("out2", "a")):
        name = output_name(OutputJob("p", period, "r1"), sink)
        (tmp_path / f"{name.stem}-0.txt").write_text(f"{sink} {period}")
    folder = CommitFolder(TablePath(str(tmp_path)), output_name(OutputJob("p", "a", "r2"), "out"))
    folder.commit(folder.replacement([]))
    assert sorted(p.read_text() for p in tmp_path.iterdir()) == ["out a-b", "out2 a"]


def test_files_that_come_out_the_same_are_left_as_they_are(tmp_path: Path) -> None:
    def run(run_id: str, contents: list[str], kind: str = "part") -> dict[str, str]:
        name = output_name(OutputJob("p", "all", run_id), "out")
        folder = CommitFolder(TablePath(str(tmp_path)), name)
        folder.prepare()
        hidden = tmp_path / name.scratch
        hidden.mkdir()
        renames = []
        for i, text in enumerate(contents):
            (hidden / str(i)).write_text(text)
            stem = name.stem.replace("part-", f"{kind}-", 1)
            renames.append((f"{hidden}/{i}", f"{tmp_path}/{'day=1/' if text == 'c' else ''}{stem}-{i}.txt"))
        folder.commit(folder.replacement(renames, scratch=str(hidden)))
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
        return {p.relative_to(tmp_path).as_posix(): p.read_text() for p in tmp_path.rglob("*.txt")}

    first = run("r1", ["a", "b", "b", "c"])
    assert run("r2", ["b", "c", "a", "b"]) == first, "nothing has changed, not even a name"
    third = run("r3", ["b", "d"])
    assert sorted(third.values()) == ["b", "d"]
    assert len(third.items() & first.items()) == 1, "one of the two alike, of which there is one now"
    tables = run("r4", ["b"], "table")
    assert [(name.partition("-")[0], "-r4-" in name) for name in tables] == [("table", True)]
    assert "-r5-" in next(iter(run("r5", ["b"], "table"))), "a stream that goes on knows them by name"


def test_a_sink_that_fails_leaves_nothing_of_the_others(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 1, "b": 0}\n')
    columns = "a INT"
    script = (
        table_of("a INT, b INT", tmp_path / "in.json", "'format' = 'json'", "t")
        + table_of(columns, tmp_path / "one", "'format' = 'parquet'", "one")
        + table_of(columns, tmp_path / "two", "'format' = 'csv'", "two")
        + table_of(columns, tmp_path / "three", "'format' = 'csv'", "three")
        + "EXECUTE STATEMENT SET BEGIN INSERT INTO one SELECT a FROM t; INSERT INTO two SELECT a FROM t; "
        "INSERT INTO three SELECT a / b FROM t; END;"
    )
    with pytest.raises(Exception, match="division by zero"):
        execute(sql_plan(script, tmp_path), spark, OutputJob("p", "all", "r1"), 0)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / "in.json"]


def test_a_run_that_was_killed_before_its_commit_is_cleared_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 1}\n{"a": 2}\n')
    for form in ("parquet", "csv"):
        script = (
            table_of("a INT", tmp_path / "in.json", "'format' = 'json'")
            + table_of("a INT", tmp_path / form, f"'format' = '{form}'", "o")
            + "INSERT INTO o SELECT * FROM t;"
        )
        (sink,) = sql_plan(script, tmp_path).sinks
        from flowrun.spark.input.scan import read_scan

        frame = read_scan(sink.input, None, context_of(spark, sink.input))  # type: ignore[arg-type]
        stage(sink, frame, OutputJob("p", "all", "killed"))
        stage(sink, frame, OutputJob("p", "later", "killed"))
        hidden = len([p for p in (tmp_path / form).rglob("*") if p.is_file()])
        commit_all([stage(sink, frame, OutputJob("p", "all", "r2"))])
        visible = [p for p in (tmp_path / form).iterdir() if p.name.startswith("part-")]
        assert len(visible) == 1
        assert (
            0 < len([p for p in (tmp_path / form).rglob("*") if p.is_file()]) < hidden + 1
        )  # that of the other period is kept


class _Output:
    """Rows of a sink that cannot be made visible."""

    name, rows, runs_on_commit = "out", 0, True

    def commit(self) -> None:
        raise ConnectorError("nobody is there")

    def abort(self) -> None:
        """Nothing was written."""


def test_a_savepoint_is_left_only_behind_outputs_that_are_visible() -> None:
    concluded: list[str] = []
    table = plans.sink(plans.scan())
    frame = SparkFrame(cast("DataFrame", None), table.schema)
    with pytest.raises(ConnectorError, match="nobody is there"):
        write(
            [(table, frame)],
            OutputJob("p", "all", "r"),
            staging=lambda *_: _Output(),
            conclude=lambda: concluded.append("savepoint"),
        )
    assert not concluded
