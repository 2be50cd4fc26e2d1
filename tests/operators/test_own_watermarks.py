"""Watermarks that a source sends itself: which rows are late, over several splits, idle ones, and behind a restore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.operator import InputStatus
from flowrun.connectors.memory import MemorySource, clear, put
from flowrun.core.elements import IDLE, MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.operators.factories import SourceOperatorFactory, TimestampsAndWatermarksFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.state.redistribution import redistribute
from flowrun.testing import SourceHarness
from tests.examples import examples
from tests.operators.fake_connector import ListSource
from tests.operators.operator_recipes import Column

SCHEMA = Schema.of(ts=BIGINT)
TIMED = WatermarkStrategy.from_source(Column("ts"))

_batches = st.lists(st.integers(0, 60), min_size=1, max_size=6)
_elements = st.lists(
    st.one_of(_batches, _batches, st.integers(0, 60).map(Watermark), st.just(IDLE)), min_size=1, max_size=8
)


@pytest.fixture(autouse=True)
def _no_tables() -> Iterator[None]:
    yield
    clear()


def rows(*times: int) -> list[dict[str, int]]:
    return [{"ts": t} for t in times]


def run(source: Any, strategy: WatermarkStrategy = TIMED, **options: Any) -> SourceHarness:
    harness = SourceHarness(SourceOperatorFactory(source, strategy, **options), source)
    harness.run()
    return harness


def put_elements(partitions: list[list[Any]]) -> None:
    put("t", *([pa.record_batch({"ts": e}) if isinstance(e, list) else e for e in p] for p in partitions))


def met(log: list[Any]) -> list[tuple[int, int]]:
    """(row, event time that whoever gets it has seen by then) of every row."""
    seen, found = MIN_TIMESTAMP, []
    for element in log:
        if isinstance(element, Watermark):
            seen = max(seen, element.timestamp)
        elif isinstance(element, tuple):
            found.append((element[0], seen))
    return found


def one_by_one(partitions: list[list[Any]]) -> list[tuple[int, int]]:
    """What `met` gives of partitions that are read one behind the other, in rows of one."""
    seen, found = MIN_TIMESTAMP, []
    for partition in partitions:
        own, active = MIN_TIMESTAMP, True
        for element in partition:
            if isinstance(element, list):
                found += [(t, seen) for t in element]
                active = True
            elif isinstance(element, Watermark):
                own, active = max(own, element.timestamp), True
            else:
                active = False
            if active:
                seen = max(seen, own)
    return found


@examples(200)
@given(st.lists(_elements, min_size=1, max_size=3), st.sampled_from([1, 2, 7, 100]), st.integers(0, 20))
def test_which_rows_are_late_depends_on_nothing_but_what_was_put_where(
    partitions: list[list[Any]], batch_rows: int, polls: int
) -> None:
    put_elements(partitions)
    source = MemorySource("t", SCHEMA, watermarks=True)
    factory = SourceOperatorFactory(source, TIMED, batch_rows=batch_rows)
    first = SourceHarness(factory, source)
    for _ in range(polls):
        if first.poll() is InputStatus.END_OF_INPUT:
            break
    second = SourceHarness(
        factory, source, enumerator=first.enumerator, restored=redistribute([first.snapshot()], 0, 1, 128)
    )
    second.run()
    assert met(first.log()) + met(second.log()) == one_by_one(partitions)


def test_rows_at_or_below_the_watermark_before_them_are_late() -> None:
    harness = run(ListSource(SCHEMA, {"a": [rows(5, 9), 7, rows(7, 8)]}))
    assert harness.log() == [(5,), (9,), Watermark(7), (7,), (8,), Watermark(MAX_TIMESTAMP)]
    assert harness.timestamps() == [5, 9, 7, 8]


def test_the_lowest_of_the_splits_counts() -> None:
    source = ListSource(SCHEMA, {"a": [rows(9), 8, 20, "wait"], "b": [rows(4), 3, 5, "wait"]}, turns=True)
    assert run(source).watermarks() == [3, 5]


def test_a_split_that_has_said_nothing_yet_holds_event_time_back() -> None:
    source = ListSource(SCHEMA, {"a": [rows(9), 8, 9, 10], "b": [rows(4), rows(6), 5, "wait"]}, turns=True)
    harness = SourceHarness(SourceOperatorFactory(source, TIMED), source)
    harness.poll()
    harness.poll()
    assert harness.watermarks() == []
    harness.run()
    assert harness.watermarks() == [5]


def test_an_idle_split_is_not_waited_for_until_its_next_row() -> None:
    source = ListSource(
        SCHEMA, {"a": [rows(9), 8, 20, 30, 40], "b": [rows(4), 3, "idle", rows(10), "wait"]}, turns=True
    )
    harness = run(source)
    assert harness.watermarks() == [3, 20, 30], "then b is back with its row, and has said 3"
    assert IDLE not in harness.log()


def test_a_split_read_to_its_end_does_not_hold_back_what_another_says_in_the_same_poll() -> None:
    source = ListSource(SCHEMA, {"a": [rows(1), 2], "b": [(20, rows(15, 21))]})
    assert met(run(source).log()) == [(1, MIN_TIMESTAMP), (15, 20), (21, 20)]


def test_a_source_cannot_announce_the_end_of_input() -> None:
    harness = run(ListSource(SCHEMA, {"a": [rows(1), MAX_TIMESTAMP, rows(2)]}))
    assert harness.log() == [(1,), Watermark(MAX_TIMESTAMP - 1), (2,), Watermark(MAX_TIMESTAMP)]


def test_what_stands_between_batches_counts_for_those_who_ask_for_it() -> None:
    put_elements([[[5], Watermark(4), IDLE, [6]]])
    assert run(MemorySource("t", SCHEMA)).log() == [(5,), (6,), Watermark(MAX_TIMESTAMP)]
    assert MemorySource("t", SCHEMA).estimated_rows() == 2
    bounded = run(MemorySource("t", SCHEMA, watermarks=True), WatermarkStrategy.bounded(0, Column("ts")))
    assert bounded.watermarks() == [4, 5, MAX_TIMESTAMP], "a strategy that makes watermarks rules"


def test_a_split_that_sends_nothing_for_long_is_not_waited_for() -> None:
    source = ListSource(SCHEMA, {"a": [rows(9), 8, 20, "wait"], "b": [rows(4), *["wait"] * 4]}, turns=True)
    strategy = WatermarkStrategy.from_source(Column("ts"), idle_timeout_ms=50)
    harness = SourceHarness(SourceOperatorFactory(source, strategy), source)
    harness.poll()
    harness.poll()
    assert harness.watermarks() == []
    harness.advance_processing_time(30)
    harness.poll()
    harness.advance_processing_time(30)
    assert harness.watermarks() == [20], "b has been silent for 60 ms, a for 30"


def test_watermarks_of_a_source_are_nothing_for_mid_stream() -> None:
    with pytest.raises(ValueError, match="give this strategy to the source"):
        TimestampsAndWatermarksFactory(TIMED)
