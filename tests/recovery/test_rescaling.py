"""Every kind of state × rescaled while it runs, up and down, at random rows × failures in between: as if nothing had happened."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from flowrun.errors import StateError
from flowrun.runners.rescaling import RescalableJob
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.lifecycle import JobState
from tests.end_to_end.running import json_rows
from tests.recovery.gates import RESULTS, SOURCE
from tests.recovery.pipelines import CASES, ROWS, write_pipeline, write_rows
from tests.recovery.runs import TIMEOUT_MS, check_same, left_of, run_to_end
from tests.rescalable_jobs import start_rescalable
from tests.slices import everyday, in_ci
from tests.sql.recovery_gates import GATES

MOVES = 3
RESTARTS = "  restart: {strategy: fixed_delay, attempts: 50, delay: 0s}\n"


@pytest.mark.parametrize("alignment", in_ci(["unaligned", "aligned"], 2))
@pytest.mark.parametrize("case", in_ci(CASES, 3))
@pytest.mark.exhaustive
def test_a_job_that_is_rescaled_goes_on_as_if_nothing_had_happened(tmp_path: Path, case: str, alignment: str) -> None:
    compare(tmp_path, case, zlib.crc32(f"{case}{alignment}".encode()), unaligned=alignment == "unaligned")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("case", CASES)
def test_a_job_rescaled_at_other_random_rows(tmp_path: Path, case: str, seed: int) -> None:
    compare(tmp_path, case, seed, unaligned=seed % 2 == 0)


def compare(
    folder: Path,
    case: str,
    seed: int,
    *,
    unaligned: bool,
    start: Callable[[Path, Path], AbstractContextManager[RescalableJob]] = start_rescalable,
    disturb: Callable[[random.Random], None] = lambda _: SOURCE.fail_once(),
) -> None:
    """A job that `start` starts, and that is rescaled and disturbed now and then, leaves what one leaves that runs without a stop."""
    chance = random.Random(seed)
    whole, moved = folder / "whole", folder / "moved"
    for place in (whole, moved):
        write_rows(place, seed, late=case == "lateness")
    run_to_end(write_pipeline(whole, case, 2, unaligned=False), whole / "state")

    file = write_pipeline(moved, case, 2, unaligned)
    file.write_text(file.read_text().replace("settings:\n", "settings:\n" + RESTARTS))
    SOURCE.close_after(chance.randrange(1, ROWS // (MOVES + 1)))
    with start(file, moved / "state") as job:
        for _ in range(MOVES):
            if not reached(job):
                break
            move(job, chance, disturb)
        SOURCE.open()
        RESULTS.open()
        result = job.wait(TIMEOUT_MS)
    assert result is not None, "the job did not end"
    assert result.state is JobState.FINISHED
    check_same(whole, moved)


def reached(job: RescalableJob) -> bool:
    """Wait until the source is held; False: the job ends before."""
    while not SOURCE.reached.wait(0.01):
        if job.wait(0) is not None:
            return False
    return True


def refusal_of(asked: SnapshotTicket) -> str | None:
    """Why a job was not rescaled; None: it was."""
    try:
        asked.wait(TIMEOUT_MS)
    except StateError as error:
        return error.message
    return None


def move(job: RescalableJob, chance: random.Random, disturb: Callable[[random.Random], None]) -> None:
    """Take a checkpoint, perhaps; let more rows come; have the job fail, perhaps, just before or while it is rescaled."""
    if chance.random() < 0.5:
        ticket = job.take_snapshot(savepoint=False)
        SOURCE.drip()
        ticket.wait(TIMEOUT_MS)
    if chance.random() < 0.5:
        disturb(chance)
    try:
        asked = job.rescale(chance.choice([p for p in (1, 2, 3, 5) if p != job.parallelism]))
    except StateError:  # the input has come to its end
        SOURCE.open()
        assert job.wait(TIMEOUT_MS) is not None
        return
    SOURCE.drip()
    refusal = refusal_of(asked)
    # rows in flight of a last checkpoint that cannot be dealt out anew, or the end of the input
    assert refusal is None or "in flight" in refusal or "it came to its end" in refusal
    SOURCE.close_after(chance.randrange(1, ROWS // (MOVES + 1)))


SPLITS = """
SET 'flowrun.functions' = 'tests';
SET 'execution.checkpointing.interval' = '1h';
CREATE FUNCTION gate_a AS 'tests.sql.recovery_gates.gate_a' LANGUAGE PYTHON;
CREATE TABLE orders (id BIGINT, k STRING) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/input', 'format' = 'json');
CREATE TABLE counted (k STRING, n BIGINT, s BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'FOLDER/out', 'format' = 'debezium-json');
INSERT INTO counted SELECT k, COUNT(*), SUM(id) FROM orders WHERE gate_a(id) GROUP BY k;
"""


@pytest.mark.parametrize("files", everyday([2, 1, 9], 3))
def test_sources_with_fewer_and_with_more_splits_than_subtasks_read_each_once(tmp_path: Path, files: int) -> None:
    (tmp_path / "input").mkdir()
    for number in range(files):
        rows = [{"id": number * 1_000 + n, "k": f"k{n % 7}"} for n in range(1_000)]
        (tmp_path / "input" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    script = tmp_path / "splits.sql"
    script.write_text(SPLITS.replace("FOLDER", str(tmp_path)))
    gate, total = GATES["a"], files * 1_000
    gate.close_after(total // 8)
    settings = {"settings.parallelism": "2", "settings.batch_rows": "16"}
    with start_rescalable(script, tmp_path / "state", overrides=settings) as job:
        for parallelism in (5, 1, 3):
            assert gate.reached.wait(TIMEOUT_MS / 1000)
            asked = job.rescale(parallelism)
            gate.drip()
            assert refusal_of(asked) is None
            gate.close_after(total // 8)
        gate.open()
        result = job.wait(TIMEOUT_MS)
    assert result is not None
    assert result.state is JobState.FINISHED
    counts = [json.loads(row) for row in left_of(json_rows(tmp_path / "out"))]
    assert (len(counts), sum(row["n"] for row in counts)) == (7, total)
    assert sum(row["s"] for row in counts) == total * (total - 1) // 2
