"""Queries of every kind, right and damaged, become DataFrames or get diagnostics: Spark refuses nothing of what flowrun makes of them."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import corpus, targets
from tests.fuzz.test_front_end import try_damaged

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("part", range(4))
def test_queries_become_dataframes(part: int) -> None:
    for query in corpus.queries()[part::4]:
        targets.spark(query)


def test_damaged_queries_become_dataframes_or_get_diagnostics() -> None:
    try_damaged("spark", corpus.few("spark"), random.Random("slice of spark"), 200)
