"""A job that was stopped with a savepoint goes on from there, and only from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import StateError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from flowrun.runtime.lifecycle import JobState
from tests.recovery.gates import RESULTS, SOURCE
from tests.recovery.pipelines import write_pipeline, write_rows
from tests.recovery.runs import TIMEOUT_MS, run_to_end, start, written


def test_after_a_stop_with_a_savepoint_older_checkpoints_are_refused(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for folder in (whole, stopped):
        write_rows(folder, 5, late=False)
    run_to_end(write_pipeline(whole, "tumbling", 2, unaligned=False), whole / "state")

    file, state = write_pipeline(stopped, "tumbling", 2, unaligned=False), stopped / "state"
    SOURCE.close_after(900)
    RESULTS.open()
    with start(file, state, resume=False) as job:
        SOURCE.reached.wait(TIMEOUT_MS / 1000)
        checkpoint = job.take_snapshot(savepoint=False)
        SOURCE.drip()
        older = checkpoint.wait(TIMEOUT_MS)
        savepoint = job.take_snapshot(str(stopped / "savepoints"), stop=True).wait(TIMEOUT_MS)
        result = job.wait(TIMEOUT_MS)
    assert result is not None
    assert (result.state, result.stopped_at) == (JobState.FINISHED, savepoint)

    with pytest.raises(StateError, match="was stopped with a savepoint") as raised:
        start(file, state, resume=True)
    assert raised.value.hint == (
        f"resume from {savepoint}; to go back to the checkpoint before on purpose, name {older}"
    )
    SOURCE.open()
    options = JobStateOptions(directory=str(state), restore_from=savepoint)
    with start_embedded(compile_pipeline(file).job_graph, state=options) as job:
        job.wait(TIMEOUT_MS)
    assert written(stopped) == written(whole)
