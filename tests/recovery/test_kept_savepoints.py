"""Savepoints of former versions, kept beside this file, are restored by this one, at any parallelism."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from flowrun.runtime.lifecycle import JobState
from tests.end_to_end.running import bag, json_rows
from tests.recovery.gates import SOURCE
from tests.recovery.kept import HERE, PIPELINE
from tests.slices import everyday

SINKS = ("tumbling", "sliding", "session", "counted", "triggered", "noted")
VERSIONS = sorted(folder.name for folder in HERE.iterdir() if folder.is_dir())


def run(folder: Path, parallelism: int, savepoint: Path | None) -> dict[str, object]:
    SOURCE.open()
    job_graph = compile_pipeline(
        PIPELINE, {"OUT": str(folder / "out")}, {"settings.parallelism": str(parallelism)}
    ).job_graph
    options = JobStateOptions(str(folder / "state"), restore_from=None if savepoint is None else str(savepoint))
    with start_embedded(job_graph, state=options) as job:
        result = job.wait(60_000)
    assert result is not None
    assert result.state is JobState.FINISHED
    return {sink: bag(json_rows(folder / "out" / sink)) for sink in SINKS}


@pytest.mark.parametrize("parallelism", everyday([3, 2, 1], 3))
@pytest.mark.parametrize("version", VERSIONS)
def test_a_kept_savepoint_is_restored(tmp_path: Path, version: str, parallelism: int) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(HERE / version, copy)
    expected = run(tmp_path / "whole", 2, None)
    assert run(tmp_path / "restored", parallelism, copy) == expected
    assert all(expected[sink] for sink in SINKS if sink != "sliding")


def test_there_is_one_of_each_format() -> None:
    assert VERSIONS == ["format-1"]
