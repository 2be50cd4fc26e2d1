"""Aligned windows, one behaviour at a time."""

from __future__ import annotations

import pickle

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys, TimeDomain
from flowrun.core.types import BIGINT, DOUBLE, STRING, array, map_of, row, timestamp
from flowrun.errors import DataError, StateError
from flowrun.operators.implementations import create_operator
from flowrun.operators.timed.assigners import CumulativeSlices, SlidingSlices, TumblingSlices
from flowrun.operators.windows.slices.factories import SliceWindowFactory
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored, taken, whole
from tests.operators.windows.kernels import bound
from tests.operators.windows.slices.test_slice_window import factory
from tests.operators.windows.streams import INPUT, LATE, columns, output_schema, plain

COUNT = (bound("n", "COUNT(*)"),)
SUMS = (*COUNT, bound("total", "SUM", 2))


def push(harness: OperatorHarness, *rows: tuple[str | None, int, int]) -> None:
    """Rows of (name, v, event time)."""
    harness.push(columns([(k, 1, v, "x", True) for k, v, _ in rows]), timestamps=[t for _, _, t in rows])


def test_a_late_row_still_counts_in_the_windows_that_have_not_fired() -> None:
    # the case of Apache Flink's own tests: HOP(5, 10) keeps in [0, 10) the row that is late for [-5, 5)
    hop = OperatorHarness(factory(SlidingSlices(10, 5), (0,), SUMS), schema=INPUT)
    push(hop, ("a", 1, 1), ("a", 2, 2), ("a", 2, 3))
    hop.watermark(5)
    assert plain(hop.rows()) == [("a", -5, 5, 3, 5)]
    push(hop, ("a", 13, 4))
    hop.watermark(8)
    assert len(hop.rows()) == 1, "[0, 10) is not due, [-5, 5) does not fire again"
    hop.watermark(9)
    assert plain(hop.rows())[1:] == [("a", 0, 10, 4, 18)]
    assert hop.metrics.count("numLateRecordsDropped") == 0
    push(hop, ("a", 99, 4))
    assert hop.metrics.count("numLateRecordsDropped") == 1, "[0, 10) was its last window"


def test_each_late_row_within_the_allowed_lateness_updates_the_result() -> None:
    recipe = factory(TumblingSlices(10), (0,), SUMS, allowed_lateness_ms=5, late_tag=LATE)
    harness = OperatorHarness(recipe, schema=INPUT)
    push(harness, ("a", 1, 1), ("b", 1, 2))
    harness.watermark(9)
    harness.clear()
    push(harness, ("a", 10, 3), ("b", 5, 15), ("a", 100, 4))
    assert plain(harness.rows()) == [("a", 0, 10, 2, 11), ("a", 0, 10, 3, 111)]
    assert harness.timestamps() == [9, 9]
    harness.watermark(14)
    push(harness, ("a", 1000, 5))
    assert harness.side_rows(LATE) == [("a", 1, 1000, "x", True)]
    assert harness.metrics.count("numLateRecordsSideOutput") == 1


def test_more_late_rows_than_a_block_still_come_one_by_one() -> None:
    harness = OperatorHarness(factory(TumblingSlices(10), (0,), SUMS, allowed_lateness_ms=50), schema=INPUT)
    harness.watermark(20)
    push(harness, *[("a", 1, i % 10) for i in range(700)])
    assert [r[3] for r in harness.rows()] == list(range(1, 701))


def test_windows_are_aligned_to_the_epoch_and_floored_before_it() -> None:
    harness = OperatorHarness(factory(TumblingSlices(10, offset_ms=3), (0,), SUMS), schema=INPUT)
    push(harness, ("a", 1, -8), ("a", 1, -7), ("a", 1, 2), ("a", 1, 3))
    harness.end_input()
    assert [r[1:4] for r in plain(harness.rows())] == [(-17, -7, 1), (-7, 3, 2), (3, 13, 1)]
    assert harness.timestamps() == [-8, 2, 12]


def test_the_next_window_fires_although_no_row_arrives() -> None:
    harness = OperatorHarness(factory(CumulativeSlices(30, 10), (0,), SUMS), schema=INPUT)
    push(harness, ("a", 7, 1))
    for watermark in (9, 19, 29, 39):
        harness.watermark(watermark)
    assert plain(harness.rows()) == [("a", 0, 10, 1, 7), ("a", 0, 20, 1, 7), ("a", 0, 30, 1, 7)]


def test_event_time_may_come_from_a_column() -> None:
    schema = Schema.of(name=STRING, at=timestamp(6))
    out = output_schema((0,), COUNT, schema)
    recipe = SliceWindowFactory((0,), COUNT, TumblingSlices(1000), schema, out, time_column=1)
    harness = OperatorHarness(recipe, schema=schema)
    harness.push({"name": ["a", "a"], "at": [999_999, 1_000_000]})
    harness.end_input()
    assert plain(harness.rows()) == [("a", 0, 1000, 1), ("a", 1000, 2000, 1)]


def test_processing_time_windows_follow_the_clock_and_fire_what_is_left_at_the_end() -> None:
    recipe = factory(SlidingSlices(20, 10), (0,), SUMS, domain=TimeDomain.PROCESSING)
    harness = OperatorHarness(recipe, schema=INPUT)
    harness.push(columns([("a", 1, 5, "x", True)]))
    harness.advance_processing_time(9)
    assert harness.rows() == []
    harness.advance_processing_time(1)
    assert plain(harness.rows()) == [("a", -10, 10, 1, 5)]
    harness.push(columns([("a", 1, 6, "x", True)]))
    harness.advance_processing_time(10)
    assert plain(harness.rows())[1:] == [("a", 0, 20, 2, 11)]
    assert harness.metrics.count("numLateRecordsDropped") == 0
    harness.end_input()
    assert plain(harness.rows())[2:] == [("a", 10, 30, 1, 6)]
    harness.close()
    assert harness.processing_time.pending == ()


def test_processing_time_windows_survive_a_restore_and_wait_when_stopped_without_drain() -> None:
    recipe = factory(TumblingSlices(10), (0,), SUMS, domain=TimeDomain.PROCESSING)
    first = OperatorHarness(recipe, schema=INPUT)
    first.push(columns([("a", 1, 5, "x", True)]))
    snapshot = stored(first.snapshot())
    first.end_input(drain=False)
    assert first.rows() == []
    second = OperatorHarness.restore(recipe, [snapshot], schema=INPUT)
    second.advance_processing_time(10)
    assert plain(second.rows()) == [("a", 0, 10, 1, 5)]


def test_processing_time_windows_of_a_zone_stay_open_until_their_hour_has_come_twice() -> None:
    """On 27 October 2024 clocks in Berlin show 02:00 to 03:00 twice."""
    first, half = 1_729_987_200_000, 1_800_000  # 02:00 there, for the first time
    schema = Schema.of(name=STRING)
    out = output_schema((0,), COUNT, schema)
    recipe = SliceWindowFactory(
        (0,), COUNT, TumblingSlices(half), schema, out, domain=TimeDomain.PROCESSING, time_zone="Europe/Berlin"
    )
    harness = OperatorHarness(recipe, schema=schema, clock=ManualClock(first + 10))
    harness.push({"name": ["a"]})
    harness.advance_processing_time(2 * half - 20)  # 02:59 for the first time
    harness.push({"name": ["b"]})
    harness.advance_processing_time(20)  # 02:00 for the second time
    harness.push({"name": ["a"]})
    harness.advance_processing_time(half - 11)
    assert harness.rows() == []
    harness.advance_processing_time(1)
    shown = first + 7_200_000
    assert plain(harness.rows()) == [("a", shown, shown + half, 2)]
    harness.advance_processing_time(half)
    assert plain(harness.rows())[1:] == [("b", shown + half, shown + 2 * half, 1)]


def test_null_keys_fail_form_a_group_or_are_dropped() -> None:
    grouping = OperatorHarness(factory(TumblingSlices(10), (0,), SUMS), schema=INPUT)
    push(grouping, (None, 1, 1), ("a", 2, 1), (None, 3, 2))
    grouping.end_input()
    assert sorted(plain(grouping.rows()), key=repr) == [("a", 0, 10, 1, 2), (None, 0, 10, 2, 4)]

    dropping = OperatorHarness(factory(TumblingSlices(10), (0,), SUMS, null_keys=NullKeys.DROP), schema=INPUT)
    push(dropping, (None, 1, 1), ("a", 2, 1), (None, 3, 2))
    dropping.end_input()
    assert plain(dropping.rows()) == [("a", 0, 10, 1, 2)]
    assert dropping.metrics.count("numNullKeyRecordsDropped") == 2

    failing = OperatorHarness(factory(TumblingSlices(10), (0,), SUMS, null_keys=NullKeys.FAIL), schema=INPUT)
    with pytest.raises(DataError, match="key column 'name' is NULL in row 1") as caught:
        push(failing, ("a", 1, 1), (None, 3, 2))
    assert caught.value.row == 1


def test_keys_may_be_rows_arrays_and_floats() -> None:
    kind = row(("os", STRING), ("versions", array(BIGINT)))
    schema = Schema.of(device=kind, load=DOUBLE)
    recipe = SliceWindowFactory((0, 1), COUNT, TumblingSlices(10), schema, output_schema((0, 1), COUNT, schema))
    x, y, nan = {"os": "x", "versions": [1, 2]}, {"os": "x", "versions": [1, None]}, float("nan")
    first = OperatorHarness(recipe, schema=schema)
    first.push({"device": [x, y, x, None], "load": [0.0, nan, -0.0, 1.5]}, timestamps=[1, 2, 3, 4])
    second = OperatorHarness.restore(recipe, [stored(first.snapshot())], schema=schema)
    second.push({"device": [x, y], "load": [-0.0, nan]}, timestamps=[5, 6])
    second.end_input()
    got = sorted((repr(r[0]), repr(r[1]), r[4]) for r in second.rows())
    assert got == sorted([(repr(x), "0.0", 3), (repr(y), "nan", 2), ("None", "1.5", 1)])


def test_a_map_cannot_be_a_key() -> None:
    schema = Schema.of(attrs=map_of(STRING, STRING))
    recipe = SliceWindowFactory((0,), (), TumblingSlices(10), schema, schema)
    with pytest.raises(DataError, match="column 'attrs' of type MAP<STRING, STRING> cannot be a key"):
        create_operator(recipe)


def test_a_sum_that_leaves_64_bits_names_its_aggregate_but_a_passing_overflow_is_none() -> None:
    big = 2**63 - 1
    passing = OperatorHarness(factory(SlidingSlices(20, 10), (0,), SUMS), schema=INPUT)
    for v in (big, big, -big, -5):
        push(passing, ("a", v, 1))
    passing.end_input()
    assert plain(passing.rows()) == [("a", -10, 10, 4, big - 5), ("a", 0, 20, 4, big - 5)]

    failing = OperatorHarness(factory(TumblingSlices(10), (0,), SUMS), schema=INPUT)
    push(failing, ("a", big, 1), ("a", 1, 1))
    with pytest.raises(DataError, match="SUM AS total: the sum does not fit BIGINT"):
        failing.watermark(9)


def test_many_results_come_in_batches_of_a_bounded_size() -> None:
    harness = OperatorHarness(factory(TumblingSlices(10), (1,), SUMS), schema=INPUT)
    harness.push(columns([("a", i, 1, "x", True) for i in range(70_000)]), timestamps=[1] * 70_000)
    harness.end_input()
    sizes = [e.num_rows for e in harness.elements if isinstance(e, RecordBatch)]
    assert sizes == [64 * 1024, 70_000 - 64 * 1024]


def test_state_tables_are_readable_and_unchanged_rows_are_not_written_again() -> None:
    harness = OperatorHarness(factory(TumblingSlices(10), (0,), SUMS), schema=INPUT)
    push(harness, ("a", 4, 1), ("b", 5, 11))
    first, second = (taken(harness).segmented["partials"] for _ in range(2))
    table = whole(first)
    assert table.column_names == ["__key_group", "name", "slice_end", "count", "sum_v", "sum_v_carry"]
    rows = zip(*(table[c].to_pylist() for c in ("name", "slice_end", "count", "sum_v")), strict=True)
    assert sorted(rows) == [("a", 10, 1, 4), ("b", 20, 1, 5)]
    assert second.segments == first.segments, "nothing came: the same segments"


def test_state_of_other_aggregates_is_refused() -> None:
    old = OperatorHarness(factory(TumblingSlices(10), (0,), COUNT), schema=INPUT)
    push(old, ("a", 4, 1))
    with pytest.raises(StateError, match=r"state table 'partials' of a window has the columns .* expected"):
        OperatorHarness.restore(factory(TumblingSlices(10), (0,), SUMS), [stored(old.snapshot())], schema=INPUT)


def test_factories_pickle_and_cannot_be_built_wrong() -> None:
    recipe = factory(CumulativeSlices(30, 10), (0,), allowed_lateness_ms=3, late_tag=LATE)
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    with pytest.raises(ValueError, match="must divide its size"):
        CumulativeSlices(30, 7)
    with pytest.raises(ValueError, match="slide of a window must be positive, not 0 ms"):
        SlidingSlices(30, 0)


def test_an_absurd_event_time_is_an_error_that_names_the_row() -> None:
    harness = OperatorHarness(factory(TumblingSlices(10), (0,), SUMS), schema=INPUT)
    with pytest.raises(DataError, match="the event time of row 1 of the batch is 9223372036854775807 ms") as caught:
        push(harness, ("a", 1, 1), ("a", 1, 2**63 - 1))
    assert caught.value.row == 1
