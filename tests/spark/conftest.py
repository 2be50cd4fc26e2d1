"""What all tests of Spark share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.end_to_end.conftest import flowrun, own_registry
from tests.spark.grid_fixture import grid, grid_frames, interpreted

__all__ = ["flowrun", "grid", "grid_frames", "interpreted", "own_registry"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """The tests of this folder are `exhaustive`, but for those that are marked `everyday`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("everyday") is None:
            item.add_marker(pytest.mark.exhaustive)
