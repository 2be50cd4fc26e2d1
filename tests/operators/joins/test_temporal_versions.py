"""Versions by key and time: the search among those that time has passed."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.operators.joins.temporal_versions import PassedVersions, Versions
from flowrun.operators.keyed.key_rows import NOWHERE


@pytest.mark.parametrize("far", [1, 2**40])
@pytest.mark.parametrize("large", [1, 2**30])
def test_the_newest_version_not_after_a_time_is_found_however_far_apart_times_and_keys_are(far, large):
    slots = np.array([0, 0, 0, 2, 2]) * large
    times = np.array([-5, 1, 1, 0, 7]) * far
    passed = PassedVersions(slots, times, np.arange(5), np.zeros(5, np.bool_))
    asked = [(0, -6), (0, -5), (0, 0), (0, 1), (0, 9), (1, 3), (2, -1), (2, 6), (2, 7), (3, 1), (-1, 5)]
    keys = np.array([k * large for k, _ in asked])
    at, touched = passed.find(keys, np.array([t * far for _, t in asked]))
    assert at.tolist() == [NOWHERE, 0, 0, 2, 2, NOWHERE, NOWHERE, 3, 4, NOWHERE, NOWHERE]
    assert touched.tolist() == [k in (0, 2) for k, _ in asked]


@pytest.mark.parametrize("far", [1, 2**59])
@pytest.mark.parametrize("seed", range(20))
def test_versions_of_neighbouring_keys_are_not_taken_for_each_other(far: int, seed: int) -> None:
    dice = random.Random(seed)
    versions = sorted({(dice.randrange(4), dice.randrange(-3, 4)) for _ in range(dice.randrange(1, 14))})
    slots, times = (np.array(column) for column in zip(*versions, strict=True))
    passed = PassedVersions(slots, times * far, np.arange(len(slots)), np.zeros(len(slots), np.bool_))
    asked = [(key, time) for key in range(5) for time in range(-4, 5)]
    at, _ = passed.find(np.array([k for k, _ in asked]), np.array([t * far for _, t in asked]))
    for (key, time), found in zip(asked, at.tolist(), strict=True):
        before = [i for i, (k, t) in enumerate(versions) if k == key and t <= time]
        assert found == (before[-1] if before else NOWHERE), (key, time)


def test_no_keys_have_no_slots() -> None:
    versions = Versions(Schema.of(k=BIGINT, v=BIGINT), (0,), 128)
    assert versions.slots_of([pa.array([], pa.int64())], 0).tolist() == []
