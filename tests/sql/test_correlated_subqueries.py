"""Random correlated subqueries over inserts and over a table that changes: the stream, also one that is taken down in the middle, ends
with what DuckDB answers over the finished tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slices import everyday
from tests.sql import test_random_queries, test_recovery
from tests.sql.correlated_queries import SHAPES

SEEDS = 24
SOAK_SEEDS = 2000


@pytest.mark.parametrize("seed", everyday(range(SEEDS), 12, ci=2))
def test_the_stream_ends_with_what_a_database_answers(seed: int, tmp_path: Path) -> None:
    test_random_queries.check(seed, tmp_path, SHAPES[seed % len(SHAPES)])


@pytest.mark.parametrize("seed", everyday(range(len(SHAPES)), 8, ci=2))
def test_goes_on_from_a_checkpoint_at_another_parallelism(seed: int, tmp_path: Path) -> None:
    test_recovery.check(seed, tmp_path, unaligned=False, shape=SHAPES[seed])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEEDS, SOAK_SEEDS))
def test_more_of_them(seed: int, tmp_path: Path) -> None:
    test_random_queries.check(seed, tmp_path, SHAPES[seed % len(SHAPES)])
