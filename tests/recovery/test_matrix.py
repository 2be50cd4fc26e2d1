"""Every kind of state × killed after a checkpoint at random rows × restored at other parallelisms × aligned and not: as if
nothing had happened, row for row, nothing twice."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from tests.recovery.pipelines import CASES, write_pipeline, write_rows
from tests.recovery.runs import run_and_kill, run_to_end, written
from tests.slices import everyday


@pytest.mark.parametrize("alignment", everyday(["unaligned", "aligned"], 2))
@pytest.mark.parametrize("restored_at", everyday([3, 2, 1], 3))
@pytest.mark.parametrize("case", everyday(CASES, 8))
def test_a_killed_job_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, case: str, restored_at: int, alignment: str
) -> None:
    seed = zlib.crc32(f"{case}{restored_at}{alignment}".encode())
    _compare(tmp_path, case, restored_at, seed, unaligned=alignment == "unaligned")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("case", CASES)
def test_a_job_killed_at_other_random_rows(tmp_path: Path, case: str, seed: int) -> None:
    _compare(tmp_path, case, 1 + seed % 3, seed, unaligned=seed % 2 == 0)


def _compare(folder: Path, case: str, restored_at: int, seed: int, *, unaligned: bool) -> None:
    rng = random.Random(seed)
    whole, killed = folder / "whole", folder / "killed"
    for place in (whole, killed):
        write_rows(place, seed, late=case == "lateness")
    run_to_end(write_pipeline(whole, case, 2, unaligned=False), whole / "state")

    state, resume = killed / "state", False
    first = rng.choice((1, 2, 3))
    if case == "broadcast" and unaligned:
        first = restored_at  # keys do not move away from rows that are in flight to their subtask
    for parallelism in (first, restored_at):
        file = write_pipeline(killed, case, parallelism, unaligned)
        if not run_and_kill(file, state, rng, resume=resume):
            break
        resume = True
    else:
        run_to_end(write_pipeline(killed, case, restored_at, unaligned), state, resume=True)

    expected, actual = written(whole), written(killed)
    assert sum(map(sum, (rows.values() for rows in expected.values()))) > 100
    assert actual == expected
