"""What becomes of a job in this process that is rescaled: its figures, what is asked of it meanwhile, and what goes wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from flowrun.errors import JobFailedError, StateError
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.rescaling import JobVersion, RescalableJob
from flowrun.runtime.job_status import JobResult
from flowrun.runtime.lifecycle import JobState
from tests.end_to_end.running import json_rows
from tests.rescalable_jobs import StartNext, start_rescalable, start_version

ROWS = 20_000
PIPELINE = """
name: squares
settings:
  parallelism: 2
  batch_rows: 64
  checkpoint: {{interval: 50ms, dir: '{folder}/state'}}
sources:
  rows:
    connector: datagen
    schema: {{id: BIGINT}}
    number-of-rows: {rows}
    rows-per-second: 10000
    fields.id.kind: sequence
    fields.id.start: 0
    fields.id.end: {last}
steps:
  big: {{from: rows, filter: "id >= 0"}}
sinks:
  out: {{from: big, connector: filesystem, path: '{folder}/out', format: json}}
"""


def start(folder: Path, start_next: StartNext = start_version, rows: int = ROWS) -> RescalableJob:
    file = folder / "squares.yaml"
    file.write_text(textwrap.dedent(PIPELINE).format(folder=folder, rows=rows, last=rows - 1))
    return start_rescalable(file, folder / "state", start_next)


def finish(job: RescalableJob) -> JobResult:
    result = job.wait(60_000)
    assert result is not None
    return result


def ids(folder: Path) -> list[int]:
    return sorted(int(str(row["id"])) for row in json_rows(folder / "out"))


def test_one_job_for_whoever_looks(tmp_path: Path) -> None:
    with start(tmp_path) as job:
        known = job.job_id
        path = job.rescale(3).wait(30_000)
        assert Path(path).name.startswith("chk-")
        assert (job.parallelism, job.job_id, job.status().job_id) == (3, known, known)
        assert max(v.parallelism for v in job.status().vertices) == 3
        result = finish(job)
    assert (result.state, result.job_id, result.restarts) == (JobState.FINISHED, known, 0)
    assert [v.records_in for v in result.vertices if "rows" in v.name] == [ROWS]
    assert result.checkpoints is not None
    numbers = [c.checkpoint_id for c in result.checkpoints.history]
    assert numbers == sorted(set(numbers))
    assert result.checkpoints.completed >= len(numbers)
    assert ids(tmp_path) == list(range(ROWS))


def test_until_the_next_execution_runs_the_job_says_between_which_parallelisms_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str | None] = []

    def start_watched(version: JobVersion, options: JobStateOptions) -> LocalJob:
        started = start_version(version, options)
        wait = started.wait

        def look_and_wait(timeout_ms: float | None = None) -> JobResult | None:
            said.append(job.status().waits_for)
            return wait(timeout_ms)

        monkeypatch.setattr(started, "wait", look_and_wait)
        return started

    with start(tmp_path, start_watched) as job:
        job.rescale(3).wait(30_000)
        assert said[0] == "rescaling from parallelism 2 to 3"
        assert job.status().waits_for is None
        job.cancel()


def test_what_is_asked_meanwhile_is_done_afterwards(tmp_path: Path) -> None:
    with start(tmp_path) as job:
        moved = job.rescale(3)
        with pytest.raises(StateError, match="being rescaled to parallelism 3"):
            job.rescale(4)
        savepoint, stopped = job.take_snapshot(str(tmp_path / "kept")), job.take_snapshot(savepoint=False, stop=True)
        assert moved.wait(30_000)
        assert savepoint.wait(30_000).startswith(str(tmp_path / "kept"))
        path = stopped.wait(30_000)
        result = finish(job)
    assert (result.state, result.stopped_at) == (JobState.FINISHED, path)
    with pytest.raises(StateError, match="ending"):
        job.rescale(1)


def test_a_cancelled_job_is_over_wherever_it_is(tmp_path: Path) -> None:
    with start(tmp_path) as job:
        moved = job.rescale(3)
        job.cancel()
        assert finish(job).state in (JobState.CANCELED, JobState.FINISHED)
        with pytest.raises(StateError, match=r"cancelled|ended"):
            moved.wait(30_000)


def test_an_execution_that_does_not_begin_makes_room_for_the_one_before(tmp_path: Path) -> None:
    def refuse_three(version: JobVersion, options: JobStateOptions) -> LocalJob:
        if version.parallelism == 3:
            raise StateError("three is a bad number", hint="take another")
        return start_embedded(version.job_graph, state=options)

    with start(tmp_path, refuse_three) as job:
        with pytest.raises(StateError, match="not rescaled to parallelism 3: three is a bad number"):
            job.rescale(3).wait(30_000)
        assert job.parallelism == 2
        assert job.rescale(1).wait(30_000)
        assert finish(job).state is JobState.FINISHED
    assert ids(tmp_path) == list(range(ROWS))


def test_where_neither_begins_the_job_has_failed_and_says_from_where_to_resume(tmp_path: Path) -> None:
    def refuse(version: JobVersion, options: JobStateOptions) -> LocalJob:
        raise StateError("the disk is full")

    job = start(tmp_path, refuse)
    with pytest.raises(StateError, match="the disk is full"):
        job.rescale(3).wait(30_000)
    with pytest.raises(JobFailedError, match="nor go on as it was: the disk is full") as failed:
        job.wait(30_000)
    assert "chk-" in str(failed.value.hint)


def test_a_job_that_ends_first_is_not_begun_again(tmp_path: Path) -> None:
    with start(tmp_path, rows=1) as job:
        result = finish(job)
        with pytest.raises(StateError, match="ending"):
            job.rescale(3)
    assert result.state is JobState.FINISHED
    assert ids(tmp_path) == [0]
