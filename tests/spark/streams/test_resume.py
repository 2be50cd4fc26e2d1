"""`flowrun resume … --on spark`: streams that began elsewhere go on in Spark's executors, from checkpoints and savepoints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, write_pipeline
from tests.end_to_end.processes import newest, started, wait_for
from tests.end_to_end.running import json_rows
from tests.spark.streams.executors import STARTS_WITHIN_S, on_spark, task_executors
from tests.spark.streams.many_runs import run_all

ROWS = 200_000
AT_ONCE = "1000000"
DOUBLED = f"""
SET 'pipeline.name' = 'doubled';
SET 'execution.checkpointing.interval' = '50ms';
SET 'execution.checkpointing.dir' = 'state';
CREATE FUNCTION times AS 'mine.times' LANGUAGE PYTHON;
CREATE TABLE ids (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{ROWS}', 'rows-per-second' = '${{RATE}}',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{ROWS - 1}');
CREATE TABLE found (v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO found SELECT times(id) FROM ids;
"""
TIMES = 'import flowrun\n\n\n@flowrun.udf(result="BIGINT")\ndef times(value: int) -> int:\n    return 2 * value\n'


@pytest.fixture(autouse=True)
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", str(tmp_path / "registry"))


def begin(folder: Path, *arguments: object, name: str, saved: bool) -> str:
    """Run a pipeline in one process to its third checkpoint, and end it there; gives from where it goes on."""
    with started("run", *arguments, "--workers", 0, "--no-live", cwd=folder) as run:
        wait_for(lambda: newest(folder) > 1, run)
        if not saved:
            run.kill()
            run.communicate()
            return str(folder / "state")
        with started("stop", name, "--savepoint", "saved", cwd=folder) as stop:
            out, said = stop.communicate(timeout=60)
        run.communicate(timeout=60)
    found = re.search(r"--from-savepoint (\S+)", said)
    assert found is not None, out + said
    return shlex.split(found[1])[0]


def test_from_a_checkpoint_with_its_file_and_from_a_savepoint_without(tmp_path: Path) -> None:
    counted, doubled, modules = (tmp_path / name for name in ("counted", "doubled", "modules"))
    for folder in (counted, doubled, modules):
        folder.mkdir()
    file = write_pipeline(counted, CHECKPOINTS % "true", rows=ROWS, rate=10_000)
    file.write_text(
        file.read_text().replace("dir: state", f"dir: {counted}/state").replace("path: out", f"path: {counted}/out")
    )
    checkpoint = begin(counted, file, name="counted", saved=False)
    (doubled / "doubled.sql").write_text(DOUBLED)
    (doubled / "mine.py").write_text(TIMES)
    savepoint = begin(doubled, "doubled.sql", "--var", "RATE=10000", name="doubled", saved=True)
    (doubled / "mine.py").rename(modules / "mine.py")
    run_all(
        [
            [
                "resume",
                file,
                "--from-savepoint",
                checkpoint,
                "-p",
                3,
                "--set",
                f"sources.rows.rows-per-second={AT_ONCE}",
            ],
            ["resume", "--from-savepoint", savepoint, "--functions-from", modules, "--var", f"RATE={AT_ONCE}", "-p", 2],
        ]
    )
    check_counts(counted, ROWS)
    assert sorted(row["v"] for row in json_rows(doubled / "out")) == [2 * n for n in range(ROWS)]  # type: ignore[misc]


@pytest.mark.soak
def test_one_that_was_resumed_from_its_kept_text_is_rescaled(tmp_path: Path) -> None:
    doubled, modules = tmp_path / "doubled", tmp_path / "modules"
    for folder in (doubled, modules):
        folder.mkdir()
    (doubled / "doubled.sql").write_text(DOUBLED)
    (doubled / "mine.py").write_text(TIMES)
    checkpoint = begin(doubled, "doubled.sql", "--var", "RATE=10000", name="doubled", saved=False)
    (doubled / "mine.py").rename(modules / "mine.py")
    goes_on = ("--from-savepoint", checkpoint, "--functions-from", modules, "--var", "RATE=5000", "-p", 1)
    with on_spark(*goes_on, cwd=tmp_path, command="resume") as run:
        known = newest(doubled)
        wait_for(lambda: newest(doubled) > known, run, STARTS_WITHIN_S)
        assert len(task_executors(run, 1)) == 1
        with started("rescale", "doubled", "-p", 3, cwd=tmp_path) as rescale:
            _, said = rescale.communicate(timeout=300)
            assert rescale.returncode == 0, said
        assert len(task_executors(run, 2)) == 2
        _, said = run.communicate(timeout=STARTS_WITHIN_S)
        assert run.returncode == 0, said
    assert sorted(row["v"] for row in json_rows(doubled / "out")) == [2 * n for n in range(ROWS)]  # type: ignore[misc]
