"""Batches of rows with one watermark after them mean the same as rows with a watermark after each."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import (
    ACTIVE,
    IDLE,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    RecordBatch,
    Watermark,
)
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.operators import watermark_rule
from flowrun.operators.event_time_output import EventTimeOutput
from flowrun.operators.watermark_rule import late_rows, progress
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.testing import OperatorHarness
from tests.examples import examples
from tests.operators.operator_recipes import Column

TIMES = st.lists(st.integers(-50, 400), min_size=1, max_size=60)


def row_at_a_time(times, marks, lag, watermark=MIN_TIMESTAMP, sent=MIN_TIMESTAMP, ceiling=MAX_TIMESTAMP):
    """The oracle: the last watermark sent before each row; the generator's own and the sent one after all."""
    before = []
    for _, mark in zip(times, marks, strict=True):
        before.append(sent)
        watermark = max(watermark, mark - lag)
        sent = max(sent, min(watermark, ceiling))
    return before, watermark, sent


def batch_at_a_time(times, marks, lag, watermark=MIN_TIMESTAMP, sent=MIN_TIMESTAMP, ceiling=MAX_TIMESTAMP):
    done = progress(
        np.array(times, np.int64), np.array(marks, np.int64), lag, watermark=watermark, sent=sent, ceiling=ceiling
    )
    cuts = dict(done.cuts)
    before, cut_count = [], 0
    for row in range(len(times)):
        if row in cuts:
            assert cuts[row] > sent, "a cut without a new watermark"
            sent = cuts[row]
            cut_count += 1
        before.append(sent)
    assert cut_count == len(done.cuts)
    return before, done.watermark, max(sent, min(done.watermark, ceiling)), done.cuts


def check(times, marks, lag, **state):
    expected, own, last = row_at_a_time(times, marks, lag, **state)
    got, got_own, got_last, cuts = batch_at_a_time(times, marks, lag, **state)
    assert (got_own, got_last) == (own, last)
    for row, time in enumerate(times):
        assert (time <= got[row]) == (time <= expected[row]), f"row {row}"
        if time <= expected[row]:  # a late row meets exactly the event time that it would have met: windows judge by it
            assert got[row] == expected[row], f"row {row}"
    for row, _ in cuts:
        assert times[row] <= expected[row], f"a cut before row {row}, which is not late"


@examples(400)
@given(TIMES, st.integers(0, 60), st.integers(1, 8))
def test_every_row_gets_the_verdict_of_a_row_at_a_time_generator(times, delay, block):
    original = watermark_rule.BLOCK_ROWS
    watermark_rule.BLOCK_ROWS = block  # many blocks in few rows
    try:
        check(times, times, delay + 1)
    finally:
        watermark_rule.BLOCK_ROWS = original


@examples(300)
@given(TIMES, st.integers(0, 60), st.integers(-60, 300), st.integers(-60, 300), st.integers(-60, 300))
def test_so_do_rows_after_other_batches_and_beside_other_splits(times, delay, watermark, sent, ceiling):
    sent = max(sent, min(watermark, ceiling))  # what was allowed before was sent before
    check(times, times, delay + 1, watermark=watermark, sent=sent, ceiling=ceiling)


@examples(300)
@given(st.lists(st.tuples(st.integers(-50, 400), st.integers(-50, 400)), min_size=1, max_size=40))
def test_so_do_rows_with_punctuations(rows):
    check([t for t, _ in rows], [m for _, m in rows], 0)


def test_large_batches_are_judged_block_by_block():
    rng = np.random.default_rng(7)
    times = np.arange(20_000) * 10 + rng.integers(-300, 300, 20_000)
    times[[4_000, 4_001, 15_000]] -= 5_000
    check(times.tolist(), times.tolist(), 601)
    assert [row for row, _ in progress(times, times, 601).cuts] == [4_000, 15_000], "one cut for neighbours"


def test_extreme_times_do_not_overflow():
    times = np.array([MIN_TIMESTAMP, MAX_TIMESTAMP, MIN_TIMESTAMP + 1], np.int64)
    done = progress(times, times, 5_000)
    assert done.cuts == ((2, MAX_TIMESTAMP - 5_000),)
    assert done.watermark == MAX_TIMESTAMP - 5_000


def test_late_rows_of_an_ordered_batch_are_found_without_looking_twice():
    assert late_rows(np.array([1, 1, 2]), 1, MIN_TIMESTAMP).tolist() == []
    assert late_rows(np.array([1, 1, 2]), 1, 1).tolist() == [0, 1]
    assert late_rows(np.array([3, 1, 4, 2]), 1, MIN_TIMESTAMP).tolist() == [1, 3]


@examples(200)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 200), min_size=1, max_size=8)), max_size=12),
    st.integers(0, 40),
)
def test_several_splits_together_mean_the_same_as_row_at_a_time(batches, delay):
    """Oracle: after each row the combined watermark is the minimum over all splits that have sent a row."""
    harness = OperatorHarness(_Collector(), schema=Schema.of(ts=BIGINT))
    output = EventTimeOutput(WatermarkStrategy.bounded(delay), harness.context, harness.output, "source 's'")
    own: dict[str, int] = {}
    sent = MIN_TIMESTAMP
    expected = []
    for split, times in batches:
        batch = harness.batch({"ts": times}, times)
        output.emit(batch, batch, split)
        own.setdefault(split, MIN_TIMESTAMP)
        for time in times:
            expected.append((time, sent if time <= sent else None))
            own[split] = max(own[split], time - delay - 1)
            sent = max(sent, min(own.values()))
    got, watermark = [], MIN_TIMESTAMP
    for element in harness.log():
        if isinstance(element, Watermark):
            watermark = element.timestamp
        else:
            got.append((element[0], watermark if element[0] <= watermark else None))
    assert got == expected
    assert watermark == sent


class _Collector:
    def setup(self, context, output):
        pass

    def initialize_state(self, restored):
        pass

    def open(self):
        pass

    def close(self):
        pass


@pytest.fixture
def splits():
    """Event time over splits a and b with an idle timeout of 100 ms."""
    harness = OperatorHarness(_Collector(), schema=Schema.of(ts=BIGINT))
    strategy = WatermarkStrategy.bounded(0, Column("ts"), column="ts", idle_timeout_ms=100)
    output = EventTimeOutput(strategy, harness.context, harness.output, "source 's'")
    output.start()

    def send(split, *times):
        columns = pa.record_batch({"ts": pa.array(times, pa.int64())})
        output.emit(RecordBatch(columns), RecordBatch(columns), split)

    harness.send, harness.out = send, output
    return harness


def test_the_slowest_split_rules(splits):
    splits.send("a", 100)
    assert splits.watermarks() == [99]
    splits.send("b", 50)
    splits.send("a", 200)
    assert splits.watermarks() == [99], "b holds event time back"
    splits.send("b", 150)
    assert splits.watermarks() == [99, 149]


def test_a_finished_split_holds_nothing_back(splits):
    splits.send("a", 100)
    splits.send("b", 50)
    splits.send("a", 200)
    splits.out.finish_split("b")
    assert splits.watermarks() == [99, 199]


def test_an_idle_split_does_not_count_until_its_next_row(splits):
    splits.send("a", 10)
    splits.send("b", 5)
    splits.advance_processing_time(60)
    splits.send("a", 300)
    assert splits.watermarks() == [9]
    splits.advance_processing_time(40)  # b is silent for 100 ms now, a only for 40
    assert splits.watermarks() == [9, 299]
    splits.send("b", 400)
    splits.send("a", 350)
    assert splits.watermarks() == [9, 299, 349]


def test_all_idle_makes_the_output_idle_until_a_row_comes(splits):
    splits.send("a", 10)
    splits.advance_processing_time(100)
    assert splits.log() == [(10,), Watermark(9), IDLE]
    splits.advance_processing_time(1000)
    splits.send("a", 20)
    assert splits.log()[3:] == [ACTIVE, (20,), Watermark(19)]
    splits.advance_processing_time(100)
    assert splits.log()[-1] == IDLE


def test_a_source_that_never_sends_becomes_idle(splits):
    splits.advance_processing_time(99)
    assert splits.log() == []
    splits.advance_processing_time(1)
    assert splits.log() == [IDLE]
    splits.send("a", 7)
    assert splits.log() == [IDLE, ACTIVE, (7,), Watermark(6)]


def test_between_two_splits_the_output_stays_active_within_the_timeout(splits):
    splits.advance_processing_time(50)
    splits.send("a", 10)
    splits.out.finish_split("a")
    splits.advance_processing_time(60)
    assert splits.log() == [(10,), Watermark(9)]
    splits.advance_processing_time(40)
    assert splits.log()[-1] == IDLE


def test_the_end_of_input_wakes_an_idle_output(splits):
    splits.send("a", 10)
    splits.advance_processing_time(100)
    splits.out.finish()
    assert splits.log()[-2:] == [ACTIVE, Watermark(MAX_TIMESTAMP)]
    splits.out.finish()
    assert splits.watermarks().count(MAX_TIMESTAMP) == 1
