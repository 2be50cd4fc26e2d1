"""Event time in mid-stream."""

import datetime as dt
import logging
import pickle

import pyarrow as pa
import pytest

from flowrun.core.elements import ACTIVE, IDLE, MAX_TIMESTAMP, RecordBatch, Watermark
from flowrun.core.schema import Schema
from flowrun.core.semantics import OnDisorder
from flowrun.core.types import BIGINT, timestamp
from flowrun.errors import DataError
from flowrun.operators.factories import TimestampsAndWatermarksFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.testing import OperatorHarness
from tests.operators.operator_recipes import Column

SCHEMA = Schema.of(id=BIGINT, ts=timestamp(3))


def at(*ms):
    return [None if m is None else dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=m) for m in ms]


def harness_of(strategy, **options):
    return OperatorHarness(TimestampsAndWatermarksFactory(strategy, "clicks"), schema=SCHEMA, **options)


def push(harness, *ms):
    harness.push({"id": list(range(len(ms))), "ts": at(*ms)})


def brief(harness):
    return [e if not isinstance(e, tuple) else e[0] for e in harness.log()]


def test_bounded_sends_one_watermark_after_a_batch_without_late_rows():
    harness = harness_of(WatermarkStrategy.bounded(100, Column("ts"), column="ts"))
    push(harness, 1000, 950, 1040)
    assert brief(harness) == [0, 1, 2, Watermark(939)]
    assert harness.timestamps() == [1000, 950, 1040]


def test_bounded_cuts_before_a_late_row():
    harness = harness_of(WatermarkStrategy.bounded(0, Column("ts"), column="ts"))
    push(harness, 1000, 2000, 1500, 1400, 3000)
    assert brief(harness) == [0, 1, Watermark(1999), 2, 3, 4, Watermark(2999)]


def test_a_late_row_against_a_watermark_already_sent_needs_no_cut():
    harness = harness_of(WatermarkStrategy.bounded(0, Column("ts"), column="ts"))
    push(harness, 2000)
    harness.clear()
    push(harness, 1000, 1500)
    assert len(harness.elements) == 1


def test_upstream_watermarks_end_here_except_the_last():
    harness = harness_of(WatermarkStrategy.bounded(0, Column("ts"), column="ts"))
    harness.watermark(500)
    assert harness.log() == []
    push(harness, 1000)
    harness.end_input()
    assert harness.watermarks() == [999, MAX_TIMESTAMP]


def test_null_event_time_names_column_row_and_remedy():
    harness = harness_of(WatermarkStrategy.bounded(0, Column("ts"), column="ts"))
    with pytest.raises(DataError) as caught:
        push(harness, 1000, None, None)
    assert caught.value.row == 1
    assert "event time 'ts' must not be NULL" in str(caught.value)
    assert "{id: 1, ts: NULL}" in str(caught.value)
    assert "COALESCE" in str(caught.value)
    assert harness.log() == [], "nothing of the batch was sent"


def test_monotonous_time_may_stand_still_but_not_go_back():
    harness = harness_of(WatermarkStrategy.monotonous(Column("ts"), column="ts"))
    push(harness, 1000, 1000, 2000)
    assert harness.watermarks() == [1999]
    with pytest.raises(DataError) as caught:
        push(harness, 2000, 2500, 1999)
    assert caught.value.row == 2
    assert "1970-01-01T00:00:01.999" in str(caught.value)
    assert "1970-01-01T00:00:02.500" in str(caught.value)
    assert "bounded" in str(caught.value)


def test_disorder_is_found_across_batches_too():
    harness = harness_of(WatermarkStrategy.monotonous(Column("ts"), column="ts"))
    push(harness, 1000)
    with pytest.raises(DataError, match="goes back in row 0") as caught:
        push(harness, 999)
    assert "00:00:01.000 (1000 ms)" in str(caught.value)


def test_disorder_can_be_counted_with_one_warning(caplog):
    harness = harness_of(WatermarkStrategy.monotonous(Column("ts"), column="ts", on_disorder=OnDisorder.WARN))
    with caplog.at_level(logging.WARNING):
        push(harness, 1000, 900, 950)
        push(harness, 800)
    assert harness.metrics.count("numRecordsOutOfOrder") == 3
    assert len(caplog.records) == 1
    assert "goes back in row 1" in caplog.text
    assert brief(harness) == [0, Watermark(999), 1, 2, 0]


def test_disorder_can_be_ignored(caplog):
    harness = harness_of(WatermarkStrategy.monotonous(Column("ts"), column="ts", on_disorder=OnDisorder.IGNORE))
    push(harness, 1000, 900)
    assert not caplog.records
    assert len(harness.rows()) == 2


def test_punctuated_rows_say_themselves():
    schema = Schema.of(id=BIGINT, ts=timestamp(3), mark=timestamp(3))
    strategy = WatermarkStrategy.punctuated(Column("mark"), Column("ts"), column="ts")
    harness = OperatorHarness(TimestampsAndWatermarksFactory(strategy), schema=schema)
    harness.push({"id": [0, 1, 2], "ts": at(1000, 1100, 1200), "mark": at(None, 1050, None)})
    assert harness.watermarks() == [1050]
    harness.push({"id": [3, 4], "ts": at(1500, 1050), "mark": at(1400, None)})
    assert [e for e in harness.log() if isinstance(e, Watermark)] == [Watermark(1050), Watermark(1400)]
    assert brief(harness)[-3:] == [3, Watermark(1400), 4], "row 4 is late against the mark of row 3"


def test_ingestion_time_follows_the_clock_and_never_goes_back():
    harness = harness_of(WatermarkStrategy.ingestion())
    harness.advance_processing_time(150)
    push(harness, 1, 2)
    harness.advance_processing_time(10)
    push(harness, 3)
    assert harness.timestamps() == [150, 150, 160]
    assert harness.watermarks() == [149, 159]


def test_ingestion_time_goes_on_without_rows():
    harness = harness_of(WatermarkStrategy.ingestion())
    harness.advance_processing_time(150)
    push(harness, 1)
    harness.advance_processing_time(250)
    harness.advance_processing_time(100)
    assert harness.watermarks() == [149, 199, 399]
    push(harness, 2)
    assert harness.timestamps() == [150, 500]
    assert harness.watermarks() == [149, 199, 399, 499]
    restored = OperatorHarness.restore(
        TimestampsAndWatermarksFactory(WatermarkStrategy.ingestion()), [harness.snapshot()], schema=SCHEMA
    )
    push(restored, 3)
    assert restored.timestamps() == [500], "a clock that begins anew does not turn it back"
    restored.end_input()
    restored.advance_processing_time(10_000)
    assert restored.watermarks()[-1] == MAX_TIMESTAMP


def test_none_gives_times_but_no_watermarks():
    harness = harness_of(WatermarkStrategy.none(Column("ts")))
    push(harness, 5, 3)
    assert harness.timestamps() == [5, 3]
    assert harness.watermarks() == []


def test_finer_times_are_floored_to_milliseconds():
    harness = OperatorHarness(
        TimestampsAndWatermarksFactory(WatermarkStrategy.bounded(0, Column("ts"))), schema=Schema.of(ts=timestamp(6))
    )
    harness.push({"ts": pa.array([1_999, -1], pa.timestamp("us"))})
    assert harness.timestamps() == [1, -1]


def test_rows_without_time_and_a_strategy_that_reads_none_is_an_error():
    harness = harness_of(WatermarkStrategy.bounded(0))
    with pytest.raises(DataError, match="carry no event time"):
        push(harness, 1)


def test_timestamps_that_rows_already_have_can_be_used():
    harness = harness_of(WatermarkStrategy.bounded(10))
    harness.push(RecordBatch(pa.record_batch({"id": [1]}), pa.array([500], pa.int64())))
    assert harness.watermarks() == [489]


def test_idleness_from_upstream_and_from_silence():
    harness = harness_of(WatermarkStrategy.bounded(0, Column("ts"), idle_timeout_ms=50))
    push(harness, 10)
    harness.idle()
    harness.active()
    harness.advance_processing_time(50)
    push(harness, 20)
    assert brief(harness) == [0, Watermark(9), IDLE, ACTIVE, IDLE, ACTIVE, 0, Watermark(19)]
    harness.close()
    assert harness.processing_time.pending == ()


def test_rows_that_were_late_before_a_failure_are_late_after_it():
    factory = TimestampsAndWatermarksFactory(WatermarkStrategy.bounded(0, Column("ts")))
    first = OperatorHarness(factory, schema=SCHEMA)
    push(first, 1000)
    snapshot = first.snapshot()
    second = OperatorHarness.restore(factory, [snapshot], schema=SCHEMA)
    push(first, 500, 2000, 600)
    push(second, 500, 2000, 600)
    # Nobody downstream of the second one has heard of 999 yet, so it is sent again before the late row.
    assert second.log() == [Watermark(999), *first.log()[2:]]


def test_at_another_parallelism_the_lowest_watermark_is_restored():
    factory = TimestampsAndWatermarksFactory(WatermarkStrategy.bounded(0, Column("ts")))
    snapshots = []
    for subtask, time in enumerate((1000, 400)):
        harness = OperatorHarness(factory, schema=SCHEMA, subtask=subtask, parallelism=2)
        push(harness, time)
        snapshots.append(harness.snapshot())
    same = OperatorHarness.restore(factory, snapshots, subtask=0, parallelism=2, schema=SCHEMA)
    other = OperatorHarness.restore(factory, snapshots, subtask=2, parallelism=3, schema=SCHEMA)
    push(same, 500)
    push(other, 450)
    assert same.watermarks() == [999], "sent again at once; still late"
    assert other.watermarks() == [399, 449]


def test_strategies_pickle_and_refuse_nonsense():
    strategy = WatermarkStrategy.bounded(5, Column("ts"), column="ts", idle_timeout_ms=10)
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    with pytest.raises(ValueError, match="must not be negative"):
        WatermarkStrategy.bounded(-1)
    with pytest.raises(ValueError, match="must be positive"):
        WatermarkStrategy.bounded(1, idle_timeout_ms=0)
