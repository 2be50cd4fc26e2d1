"""Runs that are killed at a chosen row after a checkpoint, and go on in new runs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runtime.lifecycle import JobState
from tests.end_to_end.running import bag, json_rows
from tests.recovery.gates import RESULTS, SOURCE
from tests.recovery.pipelines import ROWS

TIMEOUT_MS = 60_000
OUTPUTS = ("out", "late", "large", "rest")


def written(folder: Path) -> dict[str, Counter[str]]:
    """What the sinks of a pipeline have made visible; of a sink that writes changes, the rows that are left of them."""
    return {name: left_of(json_rows(folder / name)) for name in OUTPUTS if (folder / name).exists()}


def left_of(rows: list[dict[str, object]]) -> Counter[str]:
    """Rows, or what is left of rows that are changes in the Debezium envelope.

    Raises:
        AssertionError: a row is taken back more often than it was sent.
    """
    if not rows or set(rows[0]) != {"before", "after", "op"}:
        return bag(rows)
    sent, taken = (bag([r[side] for r in rows if r[side] is not None]) for side in ("after", "before"))  # type: ignore[misc]
    sent.subtract(taken)
    assert min(sent.values()) >= 0, f"taken back more often than sent: {[r for r, n in sent.items() if n < 0][:5]}"
    return +sent


def start(file: Path, state: Path, *, resume: bool) -> LocalJob:
    """Start a pipeline, afresh or from its newest checkpoint."""
    options = JobStateOptions(directory=str(state), restore_from=str(state) if resume else None)
    return start_embedded(compile_pipeline(file).job_graph, state=options)


def run_to_end(file: Path, state: Path, *, resume: bool = False) -> None:
    """Run without a stop."""
    SOURCE.open()
    RESULTS.open()
    with start(file, state, resume=resume) as job:
        result = job.wait(TIMEOUT_MS)
    assert result is not None, "the job did not end"
    assert result.state is JobState.FINISHED


def run_and_kill(file: Path, state: Path, rng: random.Random, *, resume: bool) -> bool:
    """Take a checkpoint at a random row, often while results are held up; go on for a while; then take the job down.

    Gives whether that happened; if the input ended before the chosen row, the job ended well instead.
    """
    SOURCE.close_after(rng.randrange(1, ROWS // 2))
    RESULTS.close_after(rng.randrange(1, 40) if rng.random() < 0.7 else None)
    further = rng.choice((None, rng.randrange(1, 400)))
    with start(file, state, resume=resume) as job:
        if not _reached(job):
            RESULTS.open()
            assert job.wait(TIMEOUT_MS) is not None, "the job did not end"
            return False
        ticket = job.take_snapshot(savepoint=False)
        SOURCE.drip()
        RESULTS.drip()
        ticket.wait(TIMEOUT_MS)
        if further is not None:
            SOURCE.close_after(further)
            RESULTS.open()
            _reached(job)
        job.cancel()
        SOURCE.open()
        RESULTS.open()
        job.wait(TIMEOUT_MS)
    return True


def _reached(job: LocalJob) -> bool:
    """Wait until the source is held, or the job ends, or results are what holds it up."""
    held = 0
    while job.wait(0) is None:
        if SOURCE.reached.wait(0.01):
            return True
        held = held + 1 if RESULTS.reached.is_set() else 0
        if held > 20:  # back pressure from the results reached the source before its row
            return True
    return False
