from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flowrun.operators.windows.general.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, WindowRows


@pytest.mark.parametrize(
    ("evictor", "kept"),
    [
        (CountEvictor(2), [False, False, True, True]),
        (CountEvictor(9), [True, True, True, True]),
        (TimeEvictor(5), [False, True, True, False]),
        (TimeEvictor(6), [True, True, True, True]),
        (DeltaEvictor(0, 2.0), [False, True, True, True]),
    ],
)
def test_evictors_keep_what_flink_keeps(evictor: Evictor, kept: list[bool]) -> None:
    rows = WindowRows(np.array([5, 10, 6, 5]), np.array([7.0, 5.5, np.nan, 5.0]))
    assert evictor.kept(rows).tolist() == kept


def test_a_null_at_the_end_keeps_everything() -> None:
    rows = WindowRows(np.array([1, 2]), np.array([7.0, np.nan]))
    assert DeltaEvictor(0, 1.0).kept(rows).tolist() == [True, True]


@pytest.mark.parametrize("make", [lambda: CountEvictor(0), lambda: TimeEvictor(-1), lambda: DeltaEvictor(0, 0.0)])
def test_numbers_must_be_positive(make: Any) -> None:
    with pytest.raises(ValueError, match="of an evictor must be positive, not"):
        make()
