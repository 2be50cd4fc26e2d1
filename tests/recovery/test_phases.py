"""A process dies in each phase of a checkpoint; whatever it left behind, the next one goes on exactly."""

from __future__ import annotations

import random
import signal
import zlib
from pathlib import Path

import pytest

from tests.recovery.chaos import check, live_to_phase, run_to_end, write_pipeline
from tests.recovery.die_at import PHASES
from tests.slices import everyday

ROWS = 30_000


@pytest.mark.parametrize("phase", everyday(PHASES, 10, ci=2))
def test_a_process_that_dies(tmp_path: Path, phase: str) -> None:
    file = write_pipeline(tmp_path, rows=ROWS, rate=25_000, unaligned=False, interval="100ms")
    rng = random.Random(zlib.crc32(phase.encode()))
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
    check(tmp_path, ROWS)
