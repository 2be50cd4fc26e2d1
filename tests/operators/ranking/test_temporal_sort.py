from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.semantics import SortKey, TimeDomain
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.errors import InternalError
from flowrun.operators.ranking import temporal_sort
from flowrun.operators.ranking.factories import TemporalSortFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.ranking.oracles import Row, columns, sort_key
from tests.operators.stored import stored, taken

EVENTS = Schema.of(id=BIGINT, name=STRING, ts=timestamp(3))


def by_time(*others: SortKey, domain: TimeDomain = TimeDomain.EVENT) -> TemporalSortFactory:
    return TemporalSortFactory(EVENTS, (SortKey(2), *others), domain)


def ids(harness: OperatorHarness) -> list[Any]:
    return [row[0] for row in harness.rows()]


@examples(40)
@given(st.integers(0, 2**32))
def test_rows_come_out_in_order_as_flink_sends_them(seed: int) -> None:
    dice = random.Random(seed)
    others = dice.choice([(), (SortKey(1, descending=True),), (SortKey(1), SortKey(0, descending=True))])
    factory = by_time(*others)
    harness = OperatorHarness(factory, schema=EVENTS)
    waiting: list[Row] = []
    watermark, sent, number, dropped = 0, -(2**63), 0, 0
    for step in range(10):
        rows = []
        for _ in range(dice.choice([1, 4, 30])):
            number += 1
            rows.append((number, dice.choice(["a", "b", None]), watermark + dice.randrange(-6, 15)))
        kept = [r for r in rows if r[2] > sent]
        dropped += len(rows) - len(kept)
        waiting += kept
        harness.push(columns(rows, EVENTS), timestamps=[r[2] for r in rows])
        harness.clear()
        watermark += dice.randrange(1, 12)
        harness.watermark(watermark)
        due = [r for r in waiting if r[2] <= watermark]
        waiting = [r for r in waiting if r[2] > watermark]
        sent = max([sent, *(r[2] for r in due)])
        expected = sorted(due, key=lambda r: sort_key(r, factory.order))
        assert ids(harness) == [r[0] for r in expected]
        assert harness.timestamps() == [r[2] for r in expected]
        if dice.random() < 0.3:
            dropped -= harness.metrics.count("numLateRecordsDropped")
            recipe = pickle.loads(pickle.dumps(factory))
            harness = OperatorHarness.restore(recipe, [stored(taken(harness), step)], schema=EVENTS)
            harness.watermark(watermark)
    assert harness.metrics.count("numLateRecordsDropped") == dropped


def test_many_batches_are_merged_and_ties_stay_in_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal_sort, "_MERGED_RUNS", 4)
    harness = OperatorHarness(by_time(), schema=EVENTS)
    for i in range(40):
        harness.push(columns([(i, "", 100 - i % 4)], EVENTS))
    harness.watermark(MAX_TIMESTAMP)
    assert ids(harness) == sorted(range(40), key=lambda i: (100 - i % 4, i))


def test_a_checkpoint_writes_a_run_once_while_it_waits() -> None:
    harness = OperatorHarness(by_time(), schema=EVENTS)
    harness.push(columns([(i, "", 100 + i) for i in range(10)], EVENTS))
    first = taken(harness, 1).segmented["rows"].segments
    harness.push(columns([(i, "", 50 + i) for i in range(10)], EVENTS))
    harness.watermark(54)
    second = taken(harness, 2).segmented["rows"].segments
    assert second[0] is first[0]
    assert [s.rows().num_rows for s in second] == [10, 5]


def test_in_processing_time_rows_that_come_within_a_millisecond_are_sorted_by_the_other_keys() -> None:
    factory = by_time(SortKey(0), domain=TimeDomain.PROCESSING)
    harness = OperatorHarness(factory, schema=EVENTS)
    harness.push(columns([(3, "", 0), (1, "", 0)], EVENTS))
    harness.push(columns([(2, "", 0)], EVENTS))
    assert ids(harness) == []
    harness.advance_processing_time(1)
    assert ids(harness) == [1, 2, 3]
    harness.push(columns([(9, "", 0), (8, "", 0)], EVENTS))
    restored = OperatorHarness.restore(factory, [harness.snapshot()], schema=EVENTS, clock=harness.clock)
    restored.settle()
    assert ids(restored) == [8, 9]
    harness.end_input()
    assert ids(harness) == [1, 2, 3, 8, 9]


def test_in_processing_time_without_other_keys_rows_go_through() -> None:
    harness = OperatorHarness(by_time(domain=TimeDomain.PROCESSING), schema=EVENTS)
    harness.push(columns([(3, "", 0), (1, "", 0)], EVENTS))
    assert ids(harness) == [3, 1]


def test_rows_that_take_others_back_are_refused() -> None:
    harness = OperatorHarness(by_time(), schema=EVENTS)
    with pytest.raises(InternalError, match="take others back"):
        harness.push(columns([(1, "", 0)], EVENTS), row_kinds=[3])
