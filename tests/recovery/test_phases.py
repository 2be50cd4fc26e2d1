"""A process dies in each phase of a checkpoint; whatever it left behind, the next one goes on exactly."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.recovery.chaos import check, command, run_to_end, write_pipeline
from tests.recovery.die_at import PHASES
from tests.slices import everyday

ROWS = 30_000


@pytest.mark.parametrize("phase", everyday(PHASES, 10))
def test_a_process_that_dies(tmp_path: Path, phase: str) -> None:
    file = write_pipeline(tmp_path, rows=ROWS, rate=25_000, unaligned=False, interval="100ms")
    rng = random.Random(zlib.crc32(phase.encode()))
    deaths = 0
    for parallelism in (2, 3):
        words = list(command(tmp_path, file, parallelism))
        words[:3] = [sys.executable, "-m", "tests.recovery.die_at", phase, str(rng.randrange(1, 4))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        deaths += done.returncode == -signal.SIGKILL
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert deaths, "it never came to that phase"
    run_to_end(tmp_path, file)
    check(tmp_path, ROWS)
