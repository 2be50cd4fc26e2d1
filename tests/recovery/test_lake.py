"""A process that writes lake tables dies in each phase of a checkpoint and of a table's commit; each row is there once."""

from __future__ import annotations

import random
import signal
import subprocess
import zlib
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from tests.recovery.chaos import FLOWRUN, kill_rounds, live_to_phase, run_to_end
from tests.recovery.die_at import LAKE_PHASES
from tests.recovery.lake import APPENDED, check, read, write_pipeline

ROWS = 10_000
pytestmark = pytest.mark.exhaustive


SELDOM = ("before the table is opened for a commit", "while files of changes are removed")


@pytest.mark.parametrize(
    "phase", [pytest.param(p, marks=[pytest.mark.soak] if p in SELDOM else []) for p in LAKE_PHASES]
)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_process_that_dies(tmp_path: Path, kind: str, phase: str) -> None:
    file = write_pipeline(tmp_path, kind, rows=ROWS, rate=20_000)
    rng = random.Random(zlib.crc32(f"{kind} {phase}".encode()))
    deaths = 0
    for parallelism in (2, 3):
        done = live_to_phase(
            tmp_path, file, "tests.recovery.die_at", phase, rng.randrange(1, 4), parallelism=parallelism, limit_s=120
        )
        deaths += done.returncode == -signal.SIGKILL
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert deaths, "it never came to that phase"
    run_to_end(tmp_path, file)
    check(tmp_path, kind, ROWS)


def test_going_back_takes_out_of_the_table_what_was_committed_later(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path, "delta", rows=ROWS, rate=10_000, pipeline=APPENDED.replace("retain: 2", "retain: 9")
    )
    run_to_end(tmp_path, file)
    oldest = min(tmp_path.glob("state/chaos/chk-*"), key=lambda p: int(p.name.removeprefix("chk-")))
    words = [*FLOWRUN, "resume", "--from-savepoint", str(oldest), str(file), "--no-live"]
    refused = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode != 0
    assert "would write rows again that were committed after it: sink 'raw'" in refused.stderr
    done = subprocess.run(
        [*words, "--committed-after", "remove"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [row[0] for row in read(tmp_path, "delta", "raw")] == list(range(ROWS))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_killed_at_random_times_and_rescaled(tmp_path: Path, kind: str, seed: int) -> None:
    rows = 60_000
    file = write_pipeline(tmp_path, kind, rows=rows, rate=10_000)
    kill_rounds(tmp_path, file, random.Random(seed), rounds=6, longest_s=4)
    run_to_end(tmp_path, file)
    check(tmp_path, kind, rows)
