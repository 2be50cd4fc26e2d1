"""Event time after a restore: every row meets the watermark that it would have met without the restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.operator import InputStatus
from flowrun.core.elements import ACTIVE, IDLE, MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from flowrun.core.schema import Schema
from flowrun.core.semantics import WatermarkEmit
from flowrun.core.types import BIGINT
from flowrun.operators.factories import SourceOperatorFactory, TimestampsAndWatermarksFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.state.redistribution import redistribute
from flowrun.testing import OperatorHarness, SourceHarness
from tests.examples import examples
from tests.operators.fake_connector import ListSource
from tests.operators.operator_recipes import Column

SCHEMA = Schema.of(ts=BIGINT, v=BIGINT)
TIME = Column("ts")
STRATEGIES = (
    WatermarkStrategy.bounded(0, TIME),
    WatermarkStrategy.bounded(7, TIME),
    WatermarkStrategy.punctuated(Column("v"), TIME),
    WatermarkStrategy.none(TIME),
    WatermarkStrategy.from_source(TIME),
    replace(WatermarkStrategy.bounded(7, TIME), emit=WatermarkEmit.PERIODIC),
    replace(WatermarkStrategy.bounded(0, TIME), emit=WatermarkEmit.EVENT),
)
MANY = examples(150)

_rows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=4)
_batches = _rows.map(lambda found: [{"ts": t, "v": v} for t, v in found])
_steps = st.lists(st.one_of(_batches, _batches, st.integers(0, 50), st.just("idle")), min_size=1, max_size=6)


def met(log: list[Any]) -> list[tuple[Any, int]]:
    """(row, event time that whoever gets it has seen by then) of every row."""
    seen, rows = MIN_TIMESTAMP, []
    for element in log:
        if isinstance(element, Watermark):
            seen = max(seen, element.timestamp)
        elif isinstance(element, tuple):
            rows.append((element, seen))
    return rows


@MANY
@given(st.lists(_steps, min_size=1, max_size=3), st.booleans(), st.sampled_from(STRATEGIES), st.integers(0, 12))
def test_a_source_restored_mid_way_sends_the_watermarks_of_an_uninterrupted_one(
    splits: list[Any], turns: bool, strategy: WatermarkStrategy, polls: int
) -> None:
    source = ListSource(SCHEMA, {f"s{i}": steps for i, steps in enumerate(splits)}, turns)
    factory = SourceOperatorFactory(source, strategy)
    whole = SourceHarness(factory, source)
    whole.run()
    first = SourceHarness(factory, source)
    for _ in range(polls):
        if first.poll() is InputStatus.END_OF_INPUT:
            return
    restored = redistribute([first.snapshot()], 0, 1, 128)
    before = met(first.log())
    reached = max((w for w in first.watermarks()), default=None)
    second = SourceHarness(factory, source, enumerator=first.enumerator, restored=restored)
    if reached is not None:
        assert second.log()[0] == Watermark(reached), "said again at once"
    second.run()
    assert before + met(second.log()) == met(whole.log())
    assert second.watermarks()[-1] == MAX_TIMESTAMP


@MANY
@given(st.lists(_batches, min_size=1, max_size=8), st.sampled_from(STRATEGIES[:3]), st.integers(0, 8))
def test_so_does_a_watermark_operator(batches: list[Any], strategy: WatermarkStrategy, cut: int) -> None:
    factory = TimestampsAndWatermarksFactory(strategy)

    def drive(harness: OperatorHarness, part: list[Any]) -> list[Any]:
        for batch in part:
            harness.push({n: [row[n] for row in batch] for n in ("ts", "v")})
        return met(harness.log())

    whole = drive(OperatorHarness(factory, schema=SCHEMA), batches)
    first = OperatorHarness(factory, schema=SCHEMA)
    before = drive(first, batches[:cut])
    second = OperatorHarness.restore(factory, [first.snapshot()], schema=SCHEMA)
    assert before + drive(second, batches[cut:]) == whole


def rows(*times: int) -> list[dict[str, int]]:
    return [{"ts": t, "v": t} for t in times]


def test_the_end_of_a_split_does_not_hold_the_next_ones_first_rows_back() -> None:
    source = ListSource(SCHEMA, {"a": [rows(10)], "b": [rows(30, 20)]})
    harness = SourceHarness(SourceOperatorFactory(source, STRATEGIES[0]), source)
    harness.run()
    assert harness.log() == [(10, 10), Watermark(9), (30, 30), Watermark(29), (20, 20), Watermark(MAX_TIMESTAMP)]


def test_a_split_that_had_sent_rows_holds_event_time_back_from_the_start_after_a_restore() -> None:
    source = ListSource(SCHEMA, {"a": [rows(1), rows(50), rows(60)], "b": [rows(5), rows(6)]}, turns=True)
    factory = SourceOperatorFactory(source, STRATEGIES[0])
    first = SourceHarness(factory, source)
    first.poll()
    assert first.watermarks() == [0]
    restored = redistribute([first.snapshot()], 0, 1, 128)
    second = SourceHarness(factory, source, enumerator=first.enumerator, restored=restored)
    second.poll()
    assert [w for w in second.watermarks() if w > 5] == [49], "only when b is read to its end"


def test_an_idle_split_is_idle_after_a_restore_too() -> None:
    source = ListSource(SCHEMA, {"a": [rows(9), rows(10), rows(20)], "b": [rows(5), "idle", "wait"]}, turns=True)
    factory = SourceOperatorFactory(source, STRATEGIES[0])
    first = SourceHarness(factory, source)
    first.poll()
    first.poll()
    restored = redistribute([first.snapshot()], 0, 1, 128)
    second = SourceHarness(factory, source, enumerator=first.enumerator, restored=restored)
    second.poll()
    assert second.log()[:3] == [Watermark(9), (20, 20), Watermark(19)]


def test_a_source_whose_splits_were_all_idle_says_so_again() -> None:
    source = ListSource(SCHEMA, {"a": [rows(9), "idle", "wait", rows(20)]})
    factory = SourceOperatorFactory(source, STRATEGIES[0])
    first = SourceHarness(factory, source)
    first.run()
    assert first.log() == [(9, 9), Watermark(8), IDLE]
    restored = redistribute([first.snapshot()], 0, 1, 128)
    second = SourceHarness(factory, source, enumerator=first.enumerator, restored=restored)
    assert second.log() == [Watermark(8), IDLE]
    second.run()
    assert second.log()[2:5] == [ACTIVE, (20, 20), Watermark(19)]


def test_a_subtask_between_two_splits_goes_on_with_its_event_time() -> None:
    source = ListSource(SCHEMA, {"a": [rows(40)], "b": [rows(30)]})
    factory = SourceOperatorFactory(source, STRATEGIES[0])
    first = SourceHarness(factory, source)
    first.poll()
    snapshot = first.snapshot()
    second = SourceHarness(factory, source, restored=redistribute([snapshot], 0, 1, 128))
    assert second.watermarks() == [39]


def test_a_drained_source_does_not_begin_at_the_end_of_time() -> None:
    source = ListSource(SCHEMA, {"a": [rows(9), rows(20)]})
    factory = SourceOperatorFactory(source, STRATEGIES[0])
    first = SourceHarness(factory, source)
    first.poll()
    first.operator.stop(True)
    first.poll()
    assert first.watermarks() == [8, MAX_TIMESTAMP]
    second = SourceHarness(
        factory, source, enumerator=first.enumerator, restored=redistribute([first.snapshot()], 0, 1, 128)
    )
    second.run()
    assert second.watermarks() == [19, MAX_TIMESTAMP]
