"""Watermarks of SQL tables: exactly what was declared; when they are sent, and which rows of equal time are late."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.api.operator import InputStatus
from flowrun.api.source import Boundedness
from flowrun.core.elements import IDLE, MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from flowrun.core.schema import Schema
from flowrun.core.semantics import WatermarkEmit
from flowrun.core.types import BIGINT
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.state.redistribution import redistribute
from flowrun.testing import SourceHarness
from tests.operators.fake_connector import ListSource
from tests.operators.operator_recipes import Column

SCHEMA = Schema.of(ts=BIGINT, mark=BIGINT)
TIME = Column("ts")
BOUNDED = WatermarkStrategy.bounded(5, TIME)
BY_EXPRESSION = WatermarkStrategy.punctuated(Column("mark"), TIME)


def rows(*times: int) -> list[dict[str, int]]:
    return [{"ts": t, "mark": t - 5} for t in times]


def periodic(strategy: WatermarkStrategy, interval_ms: int = 200) -> WatermarkStrategy:
    return replace(strategy, emit=WatermarkEmit.PERIODIC, emit_interval_ms=interval_ms)


def on_event(strategy: WatermarkStrategy) -> WatermarkStrategy:
    return replace(strategy, emit=WatermarkEmit.EVENT)


def run(
    strategy: WatermarkStrategy, *steps: Any, ends: bool = False, turns: bool = False, **splits: list[Any]
) -> SourceHarness:
    """A source of one split that waits after its steps, or of the given splits."""
    given_splits = splits or {"a": [*steps, "wait", "wait"]}
    boundedness = Boundedness.BOUNDED if ends else Boundedness.UNBOUNDED
    source = ListSource(SCHEMA, given_splits, turns, boundedness)
    harness = SourceHarness(SourceOperatorFactory(source, strategy), source)
    harness.run()
    return harness


def late(harness: SourceHarness) -> list[int]:
    """Times of the rows that are at or below the watermark that was sent before them."""
    sent, found = MIN_TIMESTAMP, []
    for element in harness.log():
        if isinstance(element, Watermark):
            sent = max(sent, element.timestamp)
        elif isinstance(element, tuple) and element[0] <= sent:
            found.append(element[0])
    return found


@pytest.mark.parametrize("strategy", [BOUNDED, BY_EXPRESSION], ids=["minus an interval", "any expression"])
def test_the_exact_watermark_is_sent_when_no_more_rows_come(strategy: WatermarkStrategy) -> None:
    harness = run(periodic(strategy), rows(100, 110))
    assert harness.watermarks() == [104], "further rows of this time would not be late"
    harness.advance_processing_time(199)
    assert harness.watermarks() == [104]
    harness.advance_processing_time(1)
    assert harness.watermarks() == [104, 105], "110 − 5"
    harness.advance_processing_time(10_000)
    assert harness.watermarks() == [104, 105], "once"


def test_a_row_at_the_watermark_is_kept_behind_others_and_late_after_a_pause() -> None:
    assert late(run(periodic(BOUNDED), rows(110, 105, 104))) == [104]
    paused = run(periodic(BOUNDED), rows(110), "wait", rows(105, 112))
    paused.advance_processing_time(200)
    paused.run()
    assert late(paused) == [105]
    assert paused.watermarks() == [104, 105, 106]


@pytest.mark.parametrize("strategy", [BOUNDED, BY_EXPRESSION], ids=["minus an interval", "any expression"])
def test_on_event_a_row_at_the_watermark_of_the_row_before_it_is_late(strategy: WatermarkStrategy) -> None:
    harness = run(on_event(strategy), rows(110, 106, 105, 120))
    assert late(harness) == [105]
    assert harness.watermarks() == [105, 115]
    harness.advance_processing_time(10_000)
    assert harness.watermarks() == [105, 115]


def test_without_a_delay_equal_times_are_late_on_event_only() -> None:
    alone = WatermarkStrategy.bounded(0, TIME)
    assert late(run(on_event(alone), rows(10, 10, 11, 11))) == [10, 11]
    assert late(run(periodic(alone), rows(10, 10, 11, 11, 10))) == [10]


def test_yaml_keeps_the_rule_of_the_datastream_api() -> None:
    harness = run(BOUNDED, rows(110, 105, 104))
    harness.advance_processing_time(10_000)
    assert harness.watermarks() == [104]
    assert late(harness) == [104]


def test_a_source_that_ends_does_not_depend_on_pauses() -> None:
    harness = run(periodic(BOUNDED), ends=True, a=[rows(110), "wait", rows(105)])
    harness.advance_processing_time(10_000)
    assert harness.watermarks() == [104]
    assert harness.run() is InputStatus.END_OF_INPUT
    assert late(harness) == []
    assert harness.watermarks() == [104, MAX_TIMESTAMP]


def test_a_split_that_pauses_says_its_exact_watermark_while_others_go_on() -> None:
    harness = run(periodic(BOUNDED), turns=True, a=[rows(110), *["wait"] * 9], b=[rows(200), "wait", rows(205), "wait"])
    harness.run()
    harness.advance_processing_time(150)
    harness.run()
    harness.run()
    harness.advance_processing_time(60)
    assert harness.watermarks() == [104, 105], "b, which sent a row 60 ms ago, is at 199"


def test_an_idle_source_says_the_exact_watermark_first() -> None:
    by_itself = run(periodic(BOUNDED), rows(110), "idle")
    assert by_itself.log()[-3:] == [Watermark(104), Watermark(105), IDLE]
    timed = run(replace(periodic(BOUNDED), idle_timeout_ms=50), rows(110))
    timed.advance_processing_time(50)
    assert timed.log()[-2:] == [Watermark(105), IDLE]


def test_another_interval() -> None:
    harness = run(periodic(BOUNDED, 20), rows(110))
    harness.advance_processing_time(20)
    assert harness.watermarks() == [104, 105]
    with pytest.raises(ValueError, match="must be positive"):
        periodic(BOUNDED, 0)


def test_a_source_that_goes_on_from_a_snapshot_keeps_the_exact_watermark() -> None:
    source = ListSource(SCHEMA, {"a": [rows(110), "wait", rows(105, 106), "wait"]}, False, Boundedness.UNBOUNDED)
    factory = SourceOperatorFactory(source, periodic(BOUNDED))
    first = SourceHarness(factory, source)
    first.run()
    first.advance_processing_time(200)
    restored = redistribute([first.snapshot()], 0, 1, 128)
    second = SourceHarness(factory, source, enumerator=first.enumerator, restored=restored)
    second.run()
    assert second.log()[:1] == [Watermark(105)]
    assert late(second) == [105], "it was late before, too"
    second.advance_processing_time(200)
    assert second.watermarks() == [105], "not a millisecond more than declared"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=12), st.sets(st.integers(1, 11)), st.sampled_from(WatermarkEmit)
)
def test_batches_do_not_decide_what_is_late(times: list[int], cuts: set[int], emit: WatermarkEmit) -> None:
    """Against the rules row by row."""
    edges = [0, *sorted(c for c in cuts if c < len(times)), len(times)]
    batches = [rows(*times[a:b]) for a, b in itertools.pairwise(edges)]
    highest, wanted = MIN_TIMESTAMP, []
    for time in times:
        if time < highest - 5 or (emit is WatermarkEmit.EVENT and time == highest - 5):
            wanted.append(time)
        highest = max(highest, time)
    assert late(run(replace(BOUNDED, emit=emit), *batches)) == wanted
