"""What operators that let rows wait show of it: the watermark, or the time of the clock, at which they send next."""

from __future__ import annotations

from flowrun.core.semantics import TimeDomain
from flowrun.operators.next_firing import NEXT_EVENT_TIME_FIRING, NEXT_PROCESSING_TIME_FIRING
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.testing.harness import OperatorHarness
from tests.operators.joins import test_temporal_join as temporal
from tests.operators.joins import test_window_join as window
from tests.operators.ranking import test_deduplicate as deduplicate
from tests.operators.windows.slices.test_slice_stories import COUNT, push
from tests.operators.windows.slices.test_slice_window import factory
from tests.operators.windows.streams import INPUT


def test_a_window_waits_for_the_last_time_that_belongs_to_it() -> None:
    harness = OperatorHarness(factory(TumblingSlices(10), (0,), COUNT), schema=INPUT)
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) is None, "no window is open"
    push(harness, ("a", 1, 25), ("a", 1, 13))
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 19
    harness.watermark(18)
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 19
    assert harness.rows() == []
    harness.watermark(19)
    assert len(harness.rows()) == 1
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 29
    assert NEXT_PROCESSING_TIME_FIRING not in harness.metrics.gauges


def test_windows_of_processing_time_wait_for_the_clock() -> None:
    harness = OperatorHarness(factory(TumblingSlices(10), (0,), COUNT, domain=TimeDomain.PROCESSING), schema=INPUT)
    push(harness, ("a", 1, 0))
    now = harness.clock.now_ms()
    assert harness.metrics.value(NEXT_PROCESSING_TIME_FIRING) == now - now % 10 + 10


def test_the_clock_of_a_zone_is_shown_as_an_instant() -> None:
    day = 24 * 3_600_000
    harness = OperatorHarness(factory(TumblingSlices(day), (0,), COUNT, time_zone="Asia/Tokyo"), schema=INPUT)
    push(harness, ("a", 1, 10 * day))  # midnight in UTC is nine o'clock there
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 11 * day - 9 * 3_600_000 - 1


def test_rows_of_a_temporal_join_wait_for_their_own_times() -> None:
    harness = temporal.harness(temporal.factory())
    temporal.push(harness, 0, [("a", 30, 1), ("a", 7, 2)])
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 7
    harness.watermark(10, 0)
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 7, "the versions' side has no watermark yet"
    harness.watermark(10, 1)
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 30


def test_the_windows_of_a_join_wait_like_others() -> None:
    harness = window.harness(window.factory())
    window.push(harness, 0, ("a", 0, 10, 1))
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 9


def test_the_first_row_of_a_key_waits_for_its_time() -> None:
    recipe = deduplicate.factory(last=False, by_time=True)
    harness = OperatorHarness(recipe, schema=deduplicate.VISITS)
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) is None
    deduplicate.push(harness, ("a", 1, 40), ("b", 2, 20), ("a", 3, 30))
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 20
    restored = OperatorHarness.restore(recipe, [harness.snapshot()], schema=deduplicate.VISITS)
    assert restored.metrics.value(NEXT_EVENT_TIME_FIRING) == 20
    harness.watermark(20)
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) == 30
    harness.watermark(30)
    assert harness.metrics.value(NEXT_EVENT_TIME_FIRING) is None
