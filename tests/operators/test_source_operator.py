"""Sources: polling, event time, computed columns, splits, the end, and where they go on after a restart."""

import pyarrow.compute as pc
import pytest

from flowrun.api.operator import InputStatus
from flowrun.api.source import Split
from flowrun.api.state import OperatorSnapshot, OperatorState
from flowrun.core.elements import ACTIVE, IDLE, MAX_TIMESTAMP, Watermark
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.errors import ConnectorError, DataError, InternalError
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.source import backfilled_state
from flowrun.operators.split_watermarks import PerSplitWatermarks
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.state.redistribution import redistribute
from flowrun.testing import OperatorHarness, SourceHarness
from tests.operators.fake_connector import ListReader, ListSource
from tests.operators.operator_recipes import Column, Computed

SCHEMA = Schema.of(ts=BIGINT, v=BIGINT)
BOUNDED = WatermarkStrategy.bounded(0, Column("ts"), column="ts")


def rows(*times):
    return [{"ts": t, "v": t * 10} for t in times]


def run(source, strategy=BOUNDED, projection=None, **options):
    return SourceHarness(SourceOperatorFactory(source, strategy, projection, name="orders"), source, **options)


def test_a_bounded_source_ends_with_the_last_watermark():
    harness = run(ListSource(SCHEMA, {"a": [rows(1, 2), rows(3)], "b": [rows(10)]}))
    assert harness.run() is InputStatus.END_OF_INPUT
    assert harness.rows() == [(1, 10), (2, 20), (3, 30), (10, 100)]
    assert harness.watermarks() == [1, 2, 9, MAX_TIMESTAMP]
    assert harness.timestamps() == [1, 2, 3, 10]


def test_late_rows_of_a_source_are_cut_off():
    harness = run(ListSource(SCHEMA, {"a": [rows(5, 9, 3)]}))
    harness.run()
    assert harness.log()[:4] == [(5, 50), (9, 90), Watermark(8), (3, 30)]


def test_computed_columns_come_after_event_time_is_read():
    def double(batch):
        return {"double": pc.multiply(batch.column("v"), 2)}

    harness = run(ListSource(SCHEMA, {"a": [rows(7)]}), projection=Computed(Schema.of(double=BIGINT), double))
    harness.run()
    assert harness.rows() == [(140,)]
    assert harness.timestamps() == [7], "ts itself was projected away"


def test_splits_read_in_turn_advance_together_and_finished_ones_leave():
    source = ListSource(SCHEMA, {"a": [rows(10), rows(20), rows(30)], "b": [rows(15)]}, turns=True)
    harness = run(source)
    harness.poll()
    assert harness.watermarks() == [9], "a alone says 9, then b joins"
    harness.poll()
    assert harness.watermarks() == [9, 19], "b is read to its end and left"
    harness.run()
    assert harness.watermarks() == [9, 19, 29, MAX_TIMESTAMP]


@pytest.mark.parametrize(("together", "watermarks"), [(False, [19]), (True, [4])])
def test_splits_that_are_read_together_wait_for_each_other_from_when_they_are_given(monkeypatch, together, watermarks):
    monkeypatch.setattr(ListReader, "reads_splits_together", together, raising=False)
    harness = run(ListSource(SCHEMA, {"a": [rows(20), rows(30)], "b": [rows(5), rows(25)]}, turns=True))
    harness.poll()
    assert harness.watermarks() == watermarks, "b was given, too, and may have earlier rows than a"
    harness.run()
    assert harness.watermarks()[-1] == MAX_TIMESTAMP


def test_a_split_that_has_sent_nothing_is_waited_for_until_it_is_idle(monkeypatch):
    monkeypatch.setattr(ListReader, "reads_splits_together", True, raising=False)
    source = ListSource(SCHEMA, {"a": [rows(10), rows(20), rows(30)], "b": [(), (), (), rows(5)]}, turns=True)
    harness = run(source, WatermarkStrategy.bounded(0, Column("ts"), column="ts", idle_timeout_ms=1000))
    harness.poll()
    assert harness.watermarks() == []
    harness.advance_processing_time(1001)
    harness.poll()
    assert harness.watermarks() == [19]


def test_gauges_show_which_split_holds_the_watermark_back(monkeypatch):
    monkeypatch.setattr(ListReader, "reads_splits_together", True, raising=False)
    source = ListSource(SCHEMA, {"a": [rows(10), rows(20), rows(30)], "b": [(), (), (), rows(5)]}, turns=True)
    harness = run(source, WatermarkStrategy.bounded(0, Column("ts"), column="ts", idle_timeout_ms=1000))
    start = harness.clock.now_ms()
    harness.poll()
    shown = harness.metrics.values("split")
    assert (shown["a.watermark.currentWatermark"], shown["a.watermark.isIdle"]) == (9, 0)
    assert (shown["b.watermark.currentWatermark"], shown["b.watermark.isIdle"]) == (None, 0)
    assert next(iter(shown)).startswith("b."), "the one that holds the others back comes first"
    assert (harness.metrics.value("numSplits"), harness.metrics.value("numIdleSplits")) == (2, 0)
    harness.advance_processing_time(1001)
    harness.poll()
    shown = harness.metrics.values("split")
    assert (shown["b.watermark.isIdle"], shown["b.watermark.lastRecordTime"]) == (1, start)
    assert harness.metrics.value("numIdleSplits") == 1


def test_of_many_splits_those_are_shown_that_hold_back_most():
    splits = PerSplitWatermarks()
    for number in range(100):
        splits.touch(str(number), number)
        splits.advance(str(number), 1000 - number)
    splits.mark_idle("99", 99)
    shown = {name.partition(".")[0] for name in splits.gauges()}
    assert shown == {str(n) for n in range(83, 99)}


def test_sources_may_send_watermarks_of_their_own():
    source = ListSource(SCHEMA, {"a": [rows(5), 4, "idle", "wait", rows(6), 5]})
    harness = run(source, None)
    harness.run()
    assert harness.log() == [(5, 50), Watermark(4), IDLE]
    harness.run()
    assert harness.log()[3:] == [ACTIVE, (6, 60), Watermark(5), Watermark(MAX_TIMESTAMP)]
    generated = run(source)
    generated.run()
    assert generated.watermarks() == [4], "a strategy that makes watermarks rules"


def test_stopping_with_and_without_drain():
    source = ListSource(SCHEMA, {"a": [rows(1), rows(2)]})
    for drain, last in ((True, [0, MAX_TIMESTAMP]), (False, [0])):
        harness = run(source)
        harness.poll()
        harness.operator.stop(drain)
        assert harness.available
        assert harness.poll() is InputStatus.END_OF_INPUT
        assert harness.rows() == [(1, 10)]
        assert harness.watermarks() == last


def test_a_source_goes_on_where_its_snapshot_was_taken():
    source = ListSource(SCHEMA, {"a": [rows(1), rows(5, 3), rows(4)], "b": [rows(9)]})
    whole = run(source)
    whole.run()
    first = run(source)
    first.poll()
    first.poll()
    snapshot = first.snapshot()
    table = snapshot.operator["splits"].rows.to_pylist()
    assert table == [
        {"split_id": "a", "position": '{"step":2}', "watermark": 4, "idle": False, "event_time": 4, "until": None}
    ]
    second = run(source, enumerator=first.enumerator, restored=redistribute([snapshot], 0, 1, 128))
    second.run()
    assert first.rows() + second.rows() == whole.rows()
    assert second.log()[0] == Watermark(4), "the row 4 was late before and is late now"


def handed_out(source):
    """An enumerator that has no splits any more."""
    harness = run(source)
    harness.run()
    return harness.enumerator


def test_rows_that_a_backfill_has_counted_are_dropped_after_it_also_by_those_who_go_on_later():
    source = ListSource(SCHEMA, {"a": [rows(1), rows(12, 7, 10), rows(8, 15)], "b": [rows(3, 4), rows(11)]})
    state = backfilled_state([Split("a", {"step": 1}), Split("b", {"step": 1})], 10)
    first = run(source, enumerator=handed_out(source), restored=OperatorSnapshot(operator=state))
    first.poll()
    assert first.log()[0] == Watermark(9), "nothing from 10 on is late"
    assert first.rows() == [(12, 120), (10, 100)]
    second = run(source, enumerator=first.enumerator, restored=redistribute([first.snapshot()], 0, 1, 128))
    second.run()
    assert second.rows() == [(15, 150), (11, 110)]


def test_state_of_earlier_versions_says_nothing_of_backfills():
    source = ListSource(SCHEMA, {"a": [rows(1), rows(2)]})
    state = backfilled_state([Split("a", {"step": 0})], None)
    older = {"splits": OperatorState(state["splits"].rows.drop_columns(["until"]))}
    harness = run(source, enumerator=handed_out(source), restored=OperatorSnapshot(operator=older))
    harness.run()
    assert harness.rows() == [(1, 10), (2, 20)]


def test_splits_are_dealt_out_at_another_parallelism():
    source = ListSource(SCHEMA, {n: [rows(1), rows(2)] for n in "abc"}, turns=True)
    first = run(source)
    first.poll()
    snapshot = first.snapshot()
    seen = []
    for subtask in range(2):
        harness = run(
            source,
            enumerator=first.enumerator,
            restored=redistribute([snapshot], subtask, 2, 128),
            subtask=subtask,
            parallelism=2,
        )
        harness.run()
        seen.append(len(harness.rows()))
    assert seen == [2, 1]


def test_errors_carry_the_name_of_the_source():
    for error, kind, text in (
        (ConnectorError("connection refused", retryable=True), ConnectorError, "source 'orders': connection refused"),
        (DataError("a.json:3: not JSON", row=2), DataError, "source 'orders': a.json:3: not JSON"),
        (
            PermissionError(13, "Permission denied", "a.json"),
            ConnectorError,
            "source 'orders': PermissionError.*a.json",
        ),
    ):
        harness = run(ListSource(SCHEMA, {"a": [error]}))
        with pytest.raises(kind, match=text):
            harness.run()


def test_null_event_time_and_not_null_columns():
    harness = run(ListSource(SCHEMA, {"a": [[{"ts": 1, "v": 1}, {"ts": None, "v": 2}]]}))
    with pytest.raises(DataError, match=r"source 'orders': event time 'ts' must not be NULL.*row 1 \{ts: NULL, v: 2\}"):
        harness.run()
    strict = Schema((Field("ts", BIGINT), Field("v", BIGINT, nullable=False)))
    harness = run(ListSource(strict, {"a": [[{"ts": 1, "v": None}]]}))
    with pytest.raises(DataError, match="source 'orders': column 'v' is NOT NULL, but row 0") as caught:
        harness.run()
    assert caught.value.row == 0


def test_closing_closes_the_reader_once():
    harness = run(ListSource(SCHEMA, {"a": [rows(1)]}))
    reader = harness.operator._reader
    harness.close()
    harness.operator.close()
    assert reader.closed == 1


def test_wiring_mistakes_are_internal_errors():
    source = ListSource(SCHEMA, {})
    with pytest.raises(InternalError, match="was not connected"):
        OperatorHarness(SourceOperatorFactory(source))


def test_a_subtask_without_any_split_just_ends():
    source = ListSource(SCHEMA, {})
    harness = run(source)
    harness.operator.add_splits([])
    assert harness.available
    assert harness.run() is InputStatus.END_OF_INPUT
    assert harness.watermarks() == [MAX_TIMESTAMP]


class AcknowledgingReader(ListReader):
    """Says which positions each checkpoint holds, once that is complete."""

    def __init__(self, source, context):
        super().__init__(source, context)
        self.snapshots = {}
        self.acknowledged = []

    def notify_snapshot(self, checkpoint_id):
        self.snapshots[checkpoint_id] = dict(self.splits)

    def notify_checkpoint_complete(self, checkpoint_id):
        self.acknowledged.append(self.snapshots[checkpoint_id])


def test_a_reader_is_told_which_snapshot_is_whose(monkeypatch):
    made = []
    monkeypatch.setattr(
        ListSource, "create_reader", lambda self, context: made.append(AcknowledgingReader(self, context)) or made[-1]
    )
    harness = run(ListSource(SCHEMA, {"a": [rows(1), rows(2), rows(3), rows(4)]}))
    for checkpoint_id in (5, 6):
        harness.poll()
        harness.snapshot(checkpoint_id)
    harness.poll()
    for checkpoint_id in (5, 6):
        harness.operator.notify_checkpoint_complete(checkpoint_id)
    assert made[0].acknowledged == [{"a": 1}, {"a": 2}], "not how far it has come since"
