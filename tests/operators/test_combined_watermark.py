"""Event time over several inputs."""

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.operators.base import CombinedWatermark


def test_it_is_the_lowest_of_the_active_inputs() -> None:
    combined = CombinedWatermark(2)
    assert not combined.update(0, 10)
    assert combined.timestamp == MIN_TIMESTAMP
    assert combined.update(1, 4)
    assert combined.timestamp == 4
    assert combined.update_status(1, True)
    assert combined.timestamp == 10


def test_an_ended_input_no_longer_holds_the_others_back_nor_pushes_them_to_the_end() -> None:
    combined = CombinedWatermark(2)
    combined.update(0, MAX_TIMESTAMP)
    assert combined.update(1, 5)
    assert combined.timestamp == 5
    assert not combined.update_status(1, True)
    assert combined.timestamp == 5
    combined.update_status(1, False)
    assert combined.update(1, MAX_TIMESTAMP)
    assert combined.timestamp == MAX_TIMESTAMP
