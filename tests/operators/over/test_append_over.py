from __future__ import annotations

import decimal
import pickle
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit
from flowrun.core.types import BIGINT
from flowrun.core.types import decimal as decimal_type
from flowrun.errors import DataError, InternalError
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate
from flowrun.operators.keyed import row_store
from flowrun.operators.over.calls import OverFrame, Place
from flowrun.operators.over.factories import AppendOverFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.over.oracles import (
    BACKWARD,
    CHOSEN,
    COLLECTING,
    FOLDING,
    PRICE,
    ROWS,
    TS,
    K,
    N,
    Row,
    S,
    X,
    call,
    columns,
    number,
    output_schema,
    plain,
    results,
    shift,
    some_row,
)
from tests.operators.stored import stored, taken

SEEDS = st.integers(0, 2**32)
FEW = examples(30)
FRAMES = (
    OverFrame(FrameUnit.ROWS),
    OverFrame(FrameUnit.RANGE),
    OverFrame(FrameUnit.ROWS, 0),
    OverFrame(FrameUnit.ROWS, 2),
    OverFrame(FrameUnit.ROWS, 7),
    OverFrame(FrameUnit.RANGE, 0),
    OverFrame(FrameUnit.RANGE, 5),
    OverFrame(FrameUnit.RANGE, 20),
)


def over(frame: OverFrame, *calls: Any, keys: tuple[int, ...] = (K,), time: int | None = TS) -> AppendOverFactory:
    return AppendOverFactory(ROWS, output_schema(calls), keys, frame, calls, time=time)


class Flink:
    """Which rows are late, and when others come out."""

    def __init__(self, factory: AppendOverFactory) -> None:
        self._factory = factory
        self._waiting: list[Row] = []
        self._partitions: dict[Any, list[Row]] = defaultdict(list)
        self.watermark = 0
        self.late = 0

    def push(self, rows: list[Row]) -> None:
        bounded = self._factory.frame.preceding is not None
        for row in rows:
            sent = self._partitions[self._key(row)]
            past = (sent[-1][TS] if sent else -(2**62)) if bounded else self.watermark
            if row[TS] <= past:
                self.late += 1
            else:
                self._waiting.append(row)

    def advance(self, watermark: int) -> list[Row]:
        self.watermark = watermark
        due = sorted((r for r in self._waiting if r[TS] <= watermark), key=lambda r: r[TS])
        self._waiting = [r for r in self._waiting if r[TS] > watermark]
        for row in due:
            self._partitions[self._key(row)].append(row)
        found = {}
        for partition in self._partitions.values():
            order = [r[TS] for r in partition]
            for result in results(partition, order, self._factory.frame, self._factory.calls):
                found[result[0]] = result
        return [found[row[0]] for row in due]

    def _key(self, row: Row) -> Any:
        return tuple(row[k] for k in self._factory.keys)


def some_calls(dice: random.Random, frame: OverFrame) -> list[Any]:
    calls: list[Any] = dice.sample(FOLDING, dice.choice([1, 4, len(FOLDING)]))
    if dice.random() < 0.3:
        calls += dice.sample(COLLECTING, 2)
    if dice.random() < 0.4:
        calls += dice.sample(BACKWARD, 3)
    dice.shuffle(calls)
    return calls


@FEW
@given(SEEDS, st.sampled_from(FRAMES), st.sampled_from([(K,), (), (K, CHOSEN)]))
def test_rows_come_out_when_the_watermark_passes_them_with_what_their_frames_hold(
    seed: int, frame: OverFrame, keys: tuple[int, ...]
) -> None:
    dice = random.Random(seed)
    factory = over(frame, *some_calls(dice, frame), keys=keys)
    harness, flink = OperatorHarness(factory, schema=ROWS), Flink(factory)
    harness.watermark(0)
    number, counted = 0, 0
    for step in range(6):
        rows = []
        for _ in range(dice.choice([1, 5, 25])):
            number += 1
            rows.append(some_row(dice, number, flink.watermark + dice.randrange(-8, 15)))
        flink.push(rows)
        harness.push(columns(rows))
        harness.clear()
        expected = flink.advance(MAX_TIMESTAMP if step == 5 else flink.watermark + dice.randrange(1, 12))
        harness.watermark(flink.watermark)
        assert [plain(r) for r in harness.rows()] == expected
        assert harness.timestamps() == [row[TS] for row in expected]
        if dice.random() < 0.3 and step < 5:
            counted += harness.metrics.count("numLateRecordsDropped")
            recipe = pickle.loads(pickle.dumps(factory))
            harness = OperatorHarness.restore(recipe, [stored(taken(harness), seed)], schema=ROWS)
            harness.watermark(flink.watermark)
    assert harness.metrics.count("numLateRecordsDropped") + counted == flink.late


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_partitions_go_on_at_another_parallelism(frame: OverFrame) -> None:
    dice = random.Random(3)
    factory = over(frame, *FOLDING, *BACKWARD)
    flink = Flink(factory)
    options: dict[str, Any] = {"schema": ROWS, "state_keys": [(K,)]}
    subtasks = [OperatorHarness(factory, subtask=i, parallelism=2, **options) for i in range(2)]
    number = 0
    for parallelism in (2, 3, 1):
        if parallelism != len(subtasks):
            snapshots = [stored(taken(h)) for h in subtasks]
            subtasks = [
                OperatorHarness.restore(factory, snapshots, subtask=i, parallelism=parallelism, **options)
                for i in range(parallelism)
            ]
            for harness in subtasks:
                harness.watermark(flink.watermark)
        rows = []
        for _ in range(40):
            number += 1
            rows.append(some_row(dice, number, flink.watermark + dice.randrange(1, 15)))
        flink.push(rows)
        expected = flink.advance(flink.watermark + 9)
        found = []
        for harness in subtasks:
            harness.clear()
            harness.push(columns(rows))
            harness.watermark(flink.watermark)
            found += [plain(r) for r in harness.rows()]
        assert sorted(found, key=lambda r: r[0]) == sorted(expected, key=lambda r: r[0])


@FEW
@given(SEEDS, st.sampled_from(FRAMES))
def test_in_processing_time_rows_come_out_at_once(seed: int, frame: OverFrame) -> None:
    dice = random.Random(seed)
    if frame == OverFrame(FrameUnit.RANGE):
        frame = OverFrame(FrameUnit.ROWS)
    factory = over(frame, *some_calls(dice, frame), time=None)
    harness = OperatorHarness(factory, schema=ROWS)
    partitions: dict[Any, list[Row]] = defaultdict(list)
    arrived: dict[int, int] = {}
    number = 0
    for _ in range(5):
        harness.advance_processing_time(dice.choice([1, 4, 30]))
        rows = []
        for _ in range(dice.choice([1, 3, 12])):
            number += 1
            rows.append(some_row(dice, number, 0))
            partitions[rows[-1][K]].append(rows[-1])
            arrived[number] = harness.clock.now_ms()
        harness.clear()
        harness.push(columns(rows))
        found: dict[int, Row] = {}
        for partition in partitions.values():
            order = [arrived[r[0]] for r in partition]
            found |= {r[0]: r for r in results(partition, order, frame, factory.calls)}
        assert [plain(r) for r in harness.rows()] == [found[r[0]] for r in rows]
        if dice.random() < 0.3:
            harness = OperatorHarness.restore(factory, [stored(taken(harness))], schema=ROWS, clock=harness.clock)


def test_columns_computed_for_the_calls_are_not_sent() -> None:
    total = call("SUM", N)
    output = Schema((*ROWS.fields[:2], Field("total", total.kernel.result)))
    factory = AppendOverFactory(ROWS, output, (K,), OverFrame(FrameUnit.ROWS), (total,), time=TS)
    harness = OperatorHarness(factory, schema=ROWS)
    harness.push(columns([(1, "a", 5, None, None, None, None, 10), (2, "a", 6, None, None, None, None, 11)]))
    harness.watermark(20)
    assert harness.rows() == [(1, "a", 5), (2, "a", 11)]


def test_only_rows_that_a_later_frame_may_reach_are_kept() -> None:
    kept = {}
    for frame in (OverFrame(FrameUnit.ROWS), OverFrame(FrameUnit.ROWS, 3), OverFrame(FrameUnit.RANGE, 10)):
        harness = OperatorHarness(over(frame, call("SUM", N)), schema=ROWS)
        harness.push(columns([(i, "a", i, None, None, None, None, i) for i in range(100)]))
        harness.watermark(1000)
        kept[frame] = harness.snapshot().keyed["rows"].num_rows
    assert list(kept.values()) == [0, 3, 11]


def test_rows_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SPARE", 4)
    for frame in (OverFrame(FrameUnit.ROWS), OverFrame(FrameUnit.ROWS, 2), OverFrame(FrameUnit.RANGE, 3)):
        factory = over(frame, call("SUM", N), shift(Place.LAG, N, 2))
        harness, flink = OperatorHarness(factory, schema=ROWS), Flink(factory)
        harness.watermark(0)
        for step in range(30):
            rows = [(10 * step + i, "ab"[i % 2], i, None, None, None, None, step + i) for i in range(4)]
            flink.push(rows)
            harness.push(columns(rows))
            harness.clear()
            expected = flink.advance(step + 1)
            harness.watermark(step + 1)
            assert [plain(r) for r in harness.rows()] == expected


def test_a_partition_that_got_no_rows_for_long_keeps_one(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = over(OverFrame(FrameUnit.RANGE, 100), call("SUM", N))
    harness = OperatorHarness(factory, schema=ROWS)
    harness.operator._sweep_at = 0
    harness.push(columns([(i, "a", i, None, None, None, None, i) for i in range(50)]))
    harness.watermark(50)
    harness.operator._sweep_at = 0
    harness.push(columns([(99, "b", 1, None, None, None, None, 500)]))
    harness.watermark(500)
    assert harness.snapshot().keyed["rows"].num_rows == 2


@pytest.mark.parametrize("frame", [OverFrame(FrameUnit.ROWS), OverFrame(FrameUnit.ROWS, 1)], ids=str)
@pytest.mark.parametrize(("column", "half"), [(1, decimal.Decimal("3e37")), (2, 2**61 + 1)], ids=["decimal", "bigint"])
def test_sums_are_exact_and_those_that_do_not_fit_an_error(frame: OverFrame, column: int, half: Any) -> None:
    schema = Schema.of(id=BIGINT, v=decimal_type(38, 0), w=BIGINT, ts=ROWS.types[TS])
    known = aggregate("SUM")
    assert known is not None
    _, kernel = known.type_rule([Argument(schema.types[column], None, False)])
    total = BoundAggregate("total", kernel, column)
    output = Schema((*schema.fields, Field("total", kernel.result)))
    factory = AppendOverFactory(schema, output, (), frame, (total,), time=3)

    def push(*values: Any) -> OperatorHarness:
        harness = OperatorHarness(factory, schema=schema)
        rows: dict[str, Any] = {"id": [1, 2], "v": [0, 0], "w": [0, 0], "ts": [1, 2]}
        rows[schema.names[column]] = values
        harness.push({f.name: pa.array(rows[f.name], f.type.arrow) for f in schema})
        return harness

    harness = push(half, half)
    harness.watermark(5)
    assert [r[-1] for r in harness.rows()] == [half, 2 * int(half)]
    with pytest.raises(DataError, match="SUM"):
        push(2 * int(half), 2 * int(half)).watermark(5)


def test_floats_of_a_bounded_frame_forget_what_has_left_it() -> None:
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS, 1), call("SUM", X)), schema=ROWS)
    values = [1e30, 1.0, 2.0, 3.0]
    harness.push(columns([(i, "a", None, None, x, None, None, i) for i, x in enumerate(values)]))
    harness.watermark(9)
    assert [r[-1] for r in harness.rows()] == [1e30, 1e30, 3.0, 5.0]


def test_a_checkpoint_adds_only_what_changed() -> None:
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS), call("SUM", PRICE)), schema=ROWS)
    harness.push(columns([(i, f"k{i}", i, None, None, None, None, 1) for i in range(100)]))
    harness.watermark(5)
    taken(harness, 1)
    harness.push(columns([(7, "k7", 1, None, None, None, None, 7)]))
    harness.watermark(9)
    second = taken(harness, 2).segmented["progress"].segments
    assert [s.rows().num_rows for s in second] == [100, 2]


def test_what_needs_later_rows_or_takes_rows_back_is_refused() -> None:
    with pytest.raises(ValueError, match="LEAD"):
        over(OverFrame(FrameUnit.ROWS), shift(Place.LEAD, S, 1))
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS), number(Place.ROW_NUMBER)), schema=ROWS)
    with pytest.raises(InternalError, match="take others back"):
        harness.push(columns([(1, "a", 1, None, None, None, None, 1)]), row_kinds=[3])
