"""Processes die at random times, as processes do; nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.recovery.chaos import check, kill_rounds, run_to_end, write_pipeline
from tests.slices import everyday


@pytest.mark.parametrize("unaligned", everyday([True, False], 2))
@pytest.mark.exhaustive
def test_five_kills_at_random_times(tmp_path: Path, unaligned: bool) -> None:
    rows = 120_000
    file = write_pipeline(tmp_path, rows=rows, rate=40_000, unaligned=unaligned)
    kill_rounds(tmp_path, file, random.Random(31 + unaligned), rounds=5, longest_s=2.0)
    run_to_end(tmp_path, file)
    check(tmp_path, rows)


@pytest.mark.soak
@pytest.mark.parametrize("unaligned", [False, True])
def test_fifty_kills_at_random_times(tmp_path: Path, unaligned: bool) -> None:
    rows = 1_200_000
    file = write_pipeline(tmp_path, rows=rows, rate=40_000, unaligned=unaligned)
    kill_rounds(tmp_path, file, random.Random(97 + unaligned), rounds=50, longest_s=2.5)
    run_to_end(tmp_path, file)
    check(tmp_path, rows)
