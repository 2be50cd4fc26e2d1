"""Every kind of state × killed after a checkpoint at random rows × restored at other parallelisms × aligned and not: as if
nothing had happened, row for row, nothing twice."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tests.recovery.pipelines import CASES
from tests.recovery.runs import compare_with_killed
from tests.slices import everyday


@pytest.mark.parametrize("alignment", everyday(["unaligned", "aligned"], 2))
@pytest.mark.parametrize("restored_at", everyday([3, 2, 1], 3, ci=2))
@pytest.mark.parametrize("case", everyday(CASES, 16, ci=4))
def test_a_killed_job_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, case: str, restored_at: int, alignment: str
) -> None:
    seed = zlib.crc32(f"{case}{restored_at}{alignment}".encode())
    compare_with_killed(tmp_path, case, restored_at, seed, unaligned=alignment == "unaligned")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("case", CASES)
def test_a_job_killed_at_other_random_rows(tmp_path: Path, case: str, seed: int) -> None:
    compare_with_killed(tmp_path, case, 1 + seed % 3, seed, unaligned=seed % 2 == 0)
