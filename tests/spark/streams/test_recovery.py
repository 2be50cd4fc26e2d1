"""The recovery matrices in Spark's executors: every kind of state × processes killed at random rows × restored elsewhere or rescaled
× aligned and not: as if nothing had happened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.recovery.pipelines import CASES
from tests.spark.streams.recovery_cases import Case, run_cases

IN_CI = (Case("process", 1, True, restored_at=3), Case("group aggregate", 2, False))
AT_ONCE = 6


def test_two_cases(tmp_path: Path) -> None:
    run_cases(tmp_path, IN_CI)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_random_cases(tmp_path: Path, seed: int) -> None:
    run_cases(tmp_path, random_cases(seed, AT_ONCE))


def random_cases(seed: int, number: int) -> list[Case]:
    """As many that are killed as are rescaled; over all seeds each pipeline, both alignments and all parallelisms come."""
    chance = random.Random(seed)
    pipelines = list(CASES)
    return [
        Case(
            pipelines[(seed * number + place) % len(pipelines)],
            chance.randrange(1 << 31),
            chance.random() < 0.5,
            restored_at=chance.choice((1, 2, 3)) if place % 2 == 0 else None,
        )
        for place in range(number)
    ]
