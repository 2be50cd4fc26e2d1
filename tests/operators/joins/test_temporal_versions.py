"""Versions by key and time: the search among those that time has passed."""

from __future__ import annotations

import numpy as np
import pytest

from flowrun.operators.joins.temporal_versions import NONE, PassedVersions


@pytest.mark.parametrize("far", [1, 2**40])
@pytest.mark.parametrize("large", [1, 2**30])
def test_the_newest_version_not_after_a_time_is_found_however_far_apart_times_and_keys_are(far, large):
    slots = np.array([0, 0, 0, 2, 2]) * large
    times = np.array([-5, 1, 1, 0, 7]) * far
    passed = PassedVersions(slots, times, np.arange(5), np.zeros(5, np.bool_))
    asked = [(0, -6), (0, -5), (0, 0), (0, 1), (0, 9), (1, 3), (2, -1), (2, 6), (2, 7), (3, 1), (-1, 5)]
    keys = np.array([k * large for k, _ in asked])
    at, touched = passed.find(keys, np.array([t * far for _, t in asked]))
    assert at.tolist() == [NONE, 0, 0, 2, 2, NONE, NONE, 3, 4, NONE, NONE]
    assert touched.tolist() == [k in (0, 2) for k, _ in asked]
