"""Runs that are killed at a chosen row after a checkpoint, and go on in new runs."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runtime.lifecycle import JobState
from tests.end_to_end.running import bag, json_rows
from tests.recovery.gates import RESULTS, SOURCE
from tests.recovery.pipelines import ROWS, write_pipeline, write_rows

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


class Place(Protocol):
    """Where jobs run that are taken down."""

    def start(self, file: Path, state: Path, *, resume: bool) -> AbstractContextManager[LocalJob]:
        """Start a pipeline, afresh or from its newest checkpoint."""
        ...

    def take_down(self, job: LocalJob, rng: random.Random) -> None:
        """End a job without results, whatever becomes of it before."""
        ...


class Here:
    """This process."""

    def start(self, file: Path, state: Path, *, resume: bool) -> LocalJob:
        """As `start`."""
        return start(file, state, resume=resume)

    def take_down(self, job: LocalJob, rng: random.Random) -> None:
        """Cancel it."""
        job.cancel()


HERE = Here()


def start(file: Path, state: Path, *, resume: bool) -> LocalJob:
    """Start a pipeline, afresh or from its newest checkpoint."""
    options = JobStateOptions(directory=str(state), restore_from=str(state) if resume else None)
    return start_embedded(compile_pipeline(file).job_graph, state=options)


def run_to_end(file: Path, state: Path, *, resume: bool = False, place: Place = HERE) -> None:
    """Run without a stop."""
    SOURCE.open()
    RESULTS.open()
    with place.start(file, state, resume=resume) as job:
        result = job.wait(TIMEOUT_MS)
    assert result is not None, "the job did not end"
    assert result.state is JobState.FINISHED


def run_and_kill(file: Path, state: Path, rng: random.Random, *, resume: bool, place: Place = HERE) -> bool:
    """Take a checkpoint at a random row, often while results are held up; go on for a while; then take the job down.

    Gives whether that happened; if the input ended before the chosen row, the job ended well instead.
    """
    SOURCE.close_after(rng.randrange(1, ROWS // 2))
    RESULTS.close_after(rng.randrange(1, 40) if rng.random() < 0.7 else None)
    further = rng.choice((None, rng.randrange(1, 400)))
    with place.start(file, state, resume=resume) as job:
        if not reached(job):
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
            reached(job)
        place.take_down(job, rng)
        SOURCE.open()
        RESULTS.open()
        result = job.wait(TIMEOUT_MS)
    assert result is not None, "the job did not end"
    return result.state is not JobState.FINISHED


def compare_with_killed(
    folder: Path, case: str, restored_at: int, seed: int, *, unaligned: bool, place: Place = HERE
) -> None:
    """A pipeline that is killed twice and goes on leaves what it leaves when it runs without a stop."""
    rng = random.Random(seed)
    whole, killed = folder / "whole", folder / "killed"
    for written_to in (whole, killed):
        write_rows(written_to, seed, late=case == "lateness")
    run_to_end(write_pipeline(whole, case, 2, unaligned=False), whole / "state")

    state, resume = killed / "state", False
    first = rng.choice((1, 2, 3))
    if case == "broadcast" and unaligned:
        first = restored_at  # keys do not move away from rows that are in flight to their subtask
    for parallelism in (first, restored_at):
        file = write_pipeline(killed, case, parallelism, unaligned)
        if not run_and_kill(file, state, rng, resume=resume, place=place):
            break
        resume = True
    else:
        run_to_end(write_pipeline(killed, case, restored_at, unaligned), state, resume=True, place=place)
    check_same(whole, killed)


def check_same(whole: Path, other: Path) -> None:
    """Two runs left the same rows, and not few."""
    expected, actual = written(whole), written(other)
    assert sum(map(sum, (rows.values() for rows in expected.values()))) > 100
    assert actual == expected


def reached(job: LocalJob) -> bool:
    """Wait until the source is held, or the job ends, or results are what holds it up."""
    held = 0
    while job.wait(0) is None:
        if SOURCE.reached.wait(0.01):
            return True
        held = held + 1 if RESULTS.reached.is_set() else 0
        if held > 20:  # back pressure from the results reached the source before its row
            return True
    return False
