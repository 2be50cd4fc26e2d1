"""The harness itself: what users rely on when they test their own operators."""

import pyarrow as pa
import pytest

from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.elements import ACTIVE, IDLE, LatencyMarker, RecordBatch, Watermark
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import StateError
from flowrun.operators.base import AbstractOperator
from flowrun.state.key_groups import key_group_range, key_groups
from flowrun.state.redistribution import redistribute
from flowrun.testing import ContractViolationError, OperatorHarness

SCHEMA = Schema.of(id=BIGINT, name=STRING)


class Forward(AbstractOperator):
    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self.context.metrics.counter("rows").inc(batch.num_rows)
        self.output.emit(batch)


def test_rows_and_events_come_out_in_order():
    with OperatorHarness(Forward(), schema=SCHEMA) as harness:
        harness.push({"id": [1, 2], "name": ["a", None]}, [10, 20])
        harness.watermark(15)
        harness.push({"id": [3], "name": ["c"]}, [30], row_kinds=[3])
        harness.idle()
        harness.active()
        harness.latency_marker(LatencyMarker(1, "s", 0))
    assert harness.log() == [(1, "a"), (2, None), Watermark(15), (3, "c"), IDLE, ACTIVE, LatencyMarker(1, "s", 0)]
    assert harness.timestamps() == [10, 20, 30]
    assert harness.changes()[-1] == ("-D", (3, "c"))
    assert harness.metrics.count("rows") == 3


def test_an_empty_push_reaches_nobody():
    harness = OperatorHarness(Forward(), schema=SCHEMA)
    harness.push({"id": [], "name": []})
    assert harness.elements == []
    assert harness.metrics.count("rows") == 0


def test_with_state_keys_a_subtask_sees_only_its_own_rows():
    ids = list(range(100))
    seen = []
    for subtask in range(3):
        harness = OperatorHarness(
            Forward(), schema=Schema.of(id=BIGINT), state_keys=[[0]], subtask=subtask, parallelism=3
        )
        harness.push({"id": ids})
        seen.append({row[0] for row in harness.rows()})
    assert set.union(*seen) == set(ids)
    assert sum(map(len, seen)) == 100
    assert all(seen)


def test_processing_time_runs_callbacks_at_their_time_and_then_letters():
    class Ticking(Forward):
        def open(self) -> None:
            self.ticks: list[tuple[int, int]] = []
            self.context.processing_time.register(10, self.tick)

        def tick(self, timestamp: int) -> None:
            self.ticks.append((timestamp, self.context.clock.now_ms()))
            self.context.processing_time.register(timestamp + 10, self.tick)
            self.context.execute(lambda: self.ticks.append((-1, -1)))

    operator = Ticking()
    harness = OperatorHarness(operator)
    harness.advance_processing_time(25)
    assert operator.ticks == [(10, 10), (20, 20), (-1, -1), (-1, -1)]
    assert harness.processing_time.pending == (30,)


def test_a_cancelled_callback_never_runs():
    harness = OperatorHarness(Forward())
    ran = []
    harness.processing_time.register(5, ran.append).cancel()
    harness.advance_processing_time(10)
    assert ran == []


def test_the_contract_is_checked():
    class Wrong(Forward):
        def process_batch(self, batch, input_index=0):
            self.output.emit_watermark(Watermark(5))
            self.output.emit_watermark(Watermark(5))

        def snapshot_state(self, checkpoint_id):
            self.output.emit(RecordBatch(pa.record_batch({"id": [1]})))
            return OperatorSnapshot()

    harness = OperatorHarness(Wrong(), schema=SCHEMA)
    with pytest.raises(ContractViolationError, match="watermark 5 does not advance from 5"):
        harness.push({"id": [1], "name": ["a"]})
    with pytest.raises(ContractViolationError, match="must not emit while it is snapshotted"):
        harness.snapshot()


def test_timestamps_that_do_not_fit_are_refused():
    harness = OperatorHarness(Forward())
    with pytest.raises(ContractViolationError, match="2 rows with 1 timestamps"):
        harness.push(RecordBatch(pa.record_batch({"id": [1, 2]}), pa.array([1], pa.int64())))


def _keyed(ids):
    groups = key_groups([pa.array(ids, pa.int64())], 128)
    return pa.table({KEY_GROUP_COLUMN: pa.array(groups), "id": pa.array(ids, pa.int64())})


def test_keyed_state_is_cut_to_the_new_key_groups():
    snapshots = [OperatorSnapshot({"sums": _keyed(range(50))}), OperatorSnapshot({"sums": _keyed(range(50, 90))})]
    restored = [redistribute(snapshots, subtask, 3, 128) for subtask in range(3)]
    ids = [i for r in restored for i in r.keyed["sums"]["id"].to_pylist()]
    assert sorted(ids) == list(range(90))
    for subtask, snapshot in enumerate(restored):
        owned = key_group_range(subtask, 3, 128)
        assert all(group in owned for group in snapshot.keyed["sums"][KEY_GROUP_COLUMN].to_pylist())


@pytest.mark.parametrize(
    ("mode", "at_two", "at_three"),
    [
        (Redistribution.SPLIT, [[1, 2], [3]], [[1], [2], [3]]),
        (Redistribution.UNION, [[1, 2, 3]] * 2, [[1, 2, 3]] * 3),
        (Redistribution.BROADCAST, [[1, 2], [3]], [[1, 2], [3], [1, 2]]),
    ],
)
def test_operator_state_follows_its_mode(mode, at_two, at_three):
    old = [OperatorSnapshot(operator={"s": OperatorState(pa.table({"v": v}), mode)}) for v in ([1, 2], [3])]

    def dealt(parallelism):
        new = [redistribute(old, subtask, parallelism, 128) for subtask in range(parallelism)]
        return [n.operator["s"].rows["v"].to_pylist() for n in new]

    assert dealt(2) == at_two
    assert dealt(3) == at_three


def test_state_that_differs_between_subtasks_is_an_error():
    old = [
        OperatorSnapshot({"s": _keyed([1])}),
        OperatorSnapshot({"s": _keyed([2]).append_column("extra", pa.array([1]))}),
    ]
    with pytest.raises(StateError, match="state 's' has different columns"):
        redistribute(old, 0, 1, 128)
