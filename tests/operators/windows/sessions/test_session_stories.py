"""Sessions, one behaviour at a time."""

from __future__ import annotations

import pickle

import pytest

from flowrun.core.semantics import TimeDomain
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored
from tests.operators.windows.kernels import bound
from tests.operators.windows.sessions.test_session_window import factory
from tests.operators.windows.slices.test_slice_stories import SUMS, push
from tests.operators.windows.streams import INPUT, LATE, columns, plain


def test_rows_within_the_gap_are_one_session_and_touching_sessions_merge() -> None:
    harness = OperatorHarness(factory(10, (0,), SUMS), schema=INPUT)
    push(harness, ("a", 1, 0), ("a", 2, 20), ("a", 4, 41), ("b", 8, 5))
    push(harness, ("a", 16, 10))
    harness.end_input()
    assert plain(harness.rows()) == [("b", 5, 15, 1, 8), ("a", 0, 30, 3, 19), ("a", 41, 51, 1, 4)]
    assert harness.timestamps() == [14, 29, 50]


def test_a_row_behind_the_watermark_may_join_or_bridge_open_sessions() -> None:
    harness = OperatorHarness(factory(10, (0,), SUMS, late_tag=LATE), schema=INPUT)
    push(harness, ("a", 1, 0), ("a", 2, 18))
    harness.watermark(8)
    push(harness, ("a", 4, 9))
    assert harness.rows() == []
    harness.watermark(27)
    assert plain(harness.rows()) == [("a", 0, 28, 3, 7)]
    push(harness, ("a", 8, 17))
    assert harness.side_rows(LATE) == [("a", 1, 8, "x", True)]


def test_the_order_of_late_rows_in_one_batch_decides() -> None:
    # alone, a row at 85 is beyond saving at watermark 100; after the row at 92 it belongs to an open session
    for order, late, total in (((85, 92), 1, 1), ((92, 85), 0, 2)):
        harness = OperatorHarness(factory(10, (0,), SUMS), schema=INPUT)
        harness.watermark(100)
        push(harness, *(("a", 1, at) for at in order))
        assert harness.metrics.count("numLateRecordsDropped") == late
        harness.end_input()
        assert [r[3] for r in harness.rows()] == [total]


def test_a_fired_session_is_updated_within_the_allowed_lateness_and_may_be_bridged() -> None:
    harness = OperatorHarness(factory(10, (0,), SUMS, allowed_lateness_ms=20), schema=INPUT)
    push(harness, ("a", 1, 0), ("a", 2, 25))
    harness.watermark(15)
    push(harness, ("a", 4, 3))
    assert plain(harness.rows()) == [("a", 0, 10, 1, 1), ("a", 0, 13, 2, 5)]
    push(harness, ("a", 8, 12), ("a", 16, 20))
    assert plain(harness.rows())[2:] == []
    harness.watermark(34)
    assert plain(harness.rows())[2:] == [("a", 0, 35, 5, 31)]


def test_first_and_last_value_follow_arrival_also_over_merged_sessions() -> None:
    aggregates = (bound("opening", "FIRST_VALUE", 2), bound("closing", "LAST_VALUE", 2))
    harness = OperatorHarness(factory(10, (0,), aggregates), schema=INPUT)
    push(harness, ("a", 1, 30))
    push(harness, ("a", 2, 12))
    push(harness, ("a", 3, 21))
    harness.end_input()
    assert plain(harness.rows()) == [("a", 12, 40, 1, 3)]


def test_processing_time_sessions_close_after_a_quiet_gap_and_at_the_end() -> None:
    harness = OperatorHarness(factory(10, (0,), SUMS, domain=TimeDomain.PROCESSING), schema=INPUT)
    row = columns([("a", 1, 5, "x", True)])
    harness.push(row)
    harness.advance_processing_time(9)
    harness.push(row)
    harness.advance_processing_time(9)
    assert harness.rows() == []
    harness.advance_processing_time(1)
    assert plain(harness.rows()) == [("a", 0, 19, 2, 10)]
    harness.push(row)
    snapshot = stored(harness.snapshot())
    harness.end_input()
    assert plain(harness.rows())[1:] == [("a", 19, 29, 1, 5)]
    restored = OperatorHarness.restore(factory(10, (0,), SUMS, domain=TimeDomain.PROCESSING), [snapshot], schema=INPUT)
    restored.advance_processing_time(29)
    assert plain(restored.rows()) == [("a", 19, 29, 1, 5)]


def test_forgotten_keys_make_room_for_new_ones() -> None:
    harness = OperatorHarness(factory(10, (1,), SUMS), schema=INPUT)
    for generation in range(40):
        at = generation * 100
        rows = [("a", generation * 1000 + i, 1, "x", True) for i in range(1000)]
        harness.push(columns([*rows, *rows]), timestamps=[at] * 2000)
        harness.watermark(at + 50)
    assert sorted({r[3] for r in harness.rows()}) == [2]
    assert len(harness.rows()) == 40_000
    store = harness.operator._windows._store
    assert len(store) == 0
    assert len(store.keys) < 6000


def test_the_recipe_pickles_and_needs_a_gap() -> None:
    recipe = factory(10, (0,), SUMS)
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    with pytest.raises(ValueError, match="gap of a session window must be positive, not 0 ms"):
        factory(0, (0,), SUMS)
