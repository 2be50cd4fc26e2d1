from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullOrder, RankFunction, SortKey
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import InternalError
from flowrun.operators.keyed import row_store
from flowrun.operators.ranking import top_n as top_n_operator
from flowrun.operators.ranking import top_n_state
from flowrun.operators.ranking.factories import RankFactory
from flowrun.operators.ranking.order import GREATEST_CODE
from flowrun.operators.ranking.top_n_state import TopNState
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.ranking.oracles import SCHEMA, Row, columns, distance, fold, some_order, some_row, top
from tests.operators.stored import stored, taken

BIDS = Schema.of(auction=BIGINT, bidder=STRING, price=BIGINT)
SEEDS = st.integers(0, 2**32)
FEW = examples(40)


def top_n(schema: Schema = BIDS, **options: Any) -> RankFactory:
    numbered = options.setdefault("rank_column", False)
    options.setdefault("partition", (0,))
    options.setdefault("order", (SortKey(2, descending=True, nulls=NullOrder.LAST),))
    options.setdefault("ranking", RankFunction.ROW_NUMBER)
    options.setdefault("retracting", False)
    options.setdefault("first", 1)
    output = Schema((*schema.fields, Field("rn", BIGINT))) if numbered else schema
    return RankFactory(input_schema=schema, output_schema=output, **options)


def bids(*rows: Row) -> dict[str, list[Any]]:
    return columns(rows, BIDS)


class Stream:
    """Rows that come and, if `retracting`, go; and the partitions that they make."""

    def __init__(self, dice: random.Random, *, retracting: bool, partitioned: bool) -> None:
        self.partitions: dict[Any, list[Row]] = {}
        self._dice = dice
        self._retracting = retracting
        self._partitioned = partitioned
        self._live: list[Row] = []
        self._leaving = 0.45
        self._span = dice.choice([3, 30, 1000])

    def batch(self) -> tuple[list[Row], list[int]]:
        rows, kinds = [], []
        self._leaving = self._dice.choice([0.2, 0.45, 0.9])
        for _ in range(self._dice.choice([1, 3, 20, 60])):
            row, kind = self._next()
            rows.append(row)
            kinds.append(kind)
        return rows, kinds

    def _next(self) -> tuple[Row, int]:
        dice = self._dice
        if self._retracting and self._live and dice.random() < self._leaving:
            row = self._live.pop(dice.randrange(len(self._live)))
            self.rows_of(row).remove(row)
            return row, dice.choice([1, 3])
        row = some_row(dice, self._span)
        if self._retracting and dice.random() < 0.05:  # of something that may never have come
            if row in self._live:
                self._live.remove(row)
                self.rows_of(row).remove(row)
            return row, 3
        self._live.append(row)
        self.rows_of(row).append(row)
        return row, dice.choice([0, 2]) if self._retracting else 0

    def rows_of(self, row: Row) -> list[Row]:
        return self.partitions.setdefault(row[0] if self._partitioned else None, [])


def any_top_n(dice: random.Random) -> RankFactory:
    first = dice.choice([1, 1, 2])
    return top_n(
        SCHEMA,
        partition=(0,) if dice.random() < 0.7 else (),
        order=some_order(dice),
        ranking=dice.choice(list(RankFunction)),
        first=first,
        last=first + dice.choice([0, 1, 3, 8]),
        rank_column=dice.random() < 0.5,
        retracting=dice.random() < 0.6,
    )


@FEW
@given(SEEDS)
def test_after_each_batch_a_reader_holds_the_top_rows_and_got_no_change_too_many(seed: int) -> None:
    dice = random.Random(seed)
    factory = any_top_n(dice)
    with pytest.MonkeyPatch.context() as patch:
        if dice.random() < 0.5:
            make_room_at_once(patch)
        check_every_batch(dice, factory, seed)


def make_room_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(row_store, "_SPARE", 1)
    patch.setattr(top_n_state, "_SPARE_SLOTS", 1)


@pytest.mark.exhaustive
@FEW
@given(SEEDS)
def test_partitions_that_grow_and_shrink_are_ranked_as_before(seed: int) -> None:
    """Rows get new numbers where others made room; heads are filled up from tails."""
    dice = random.Random(seed)
    last = dice.choice([1, 1, 2, 3])
    ranking = dice.choice(list(RankFunction))
    factory = top_n(SCHEMA, partition=(0,), order=some_order(dice), ranking=ranking, last=last, retracting=True)
    with pytest.MonkeyPatch.context() as patch:
        make_room_at_once(patch)
        patch.setattr(top_n_operator, "_SPARE", 0)  # heads hardly longer than what is shown
        check_every_batch(dice, factory, seed)


def check_every_batch(dice: random.Random, factory: RankFactory, seed: int) -> None:
    stream = Stream(dice, retracting=factory.retracting, partitioned=bool(factory.partition))
    harness = OperatorHarness(factory, schema=SCHEMA)
    held: Counter[Row] = Counter()
    for _ in range(dice.choice([4, 12, 30])):
        rows, kinds = stream.batch()
        harness.clear()
        harness.push(columns(rows), row_kinds=kinds if factory.retracting else None)
        now = fold(held, harness.changes())
        options = {"numbered": factory.rank_column}
        expected = top(stream.partitions, factory.order, factory.ranking, factory.first, factory.last, **options)
        assert now == expected
        assert len(harness.changes()) == distance(held, now)
        held = now
        if dice.random() < 0.2:
            snapshot = stored(taken(harness), seed)
            harness = OperatorHarness.restore(pickle.loads(pickle.dumps(factory)), [snapshot], schema=SCHEMA)


@examples(15)
@given(SEEDS)
def test_partitions_go_on_at_another_parallelism(seed: int) -> None:
    dice = random.Random(seed)
    factory = top_n(SCHEMA, order=some_order(dice), last=3, retracting=True, rank_column=True)
    stream = Stream(dice, retracting=True, partitioned=True)
    options: dict[str, Any] = {"schema": SCHEMA, "state_keys": [(0,)]}
    subtasks = [OperatorHarness(factory, subtask=i, parallelism=2, **options) for i in range(2)]
    held: Counter[Row] = Counter()
    for parallelism in (2, 3, 1):
        if parallelism != len(subtasks):
            snapshots = [stored(taken(h), seed) for h in subtasks]
            subtasks = [
                OperatorHarness.restore(factory, snapshots, subtask=i, parallelism=parallelism, **options)
                for i in range(parallelism)
            ]
        rows, kinds = stream.batch()
        for harness in subtasks:
            harness.clear()
            harness.push(columns(rows), row_kinds=kinds)
            held = fold(held, harness.changes())
        assert held == top(stream.partitions, factory.order, factory.ranking, 1, 3, numbered=True)


def test_with_a_rank_column_each_rank_below_a_new_row_is_updated() -> None:
    harness = OperatorHarness(top_n(last=3, rank_column=True), schema=BIDS)
    harness.push(bids((1, "ann", 10), (1, "bob", 30)))
    assert harness.changes() == [("+I", (1, "bob", 30, 1)), ("+I", (1, "ann", 10, 2))]
    harness.clear()
    harness.push(bids((1, "cyd", 20)))
    assert harness.changes() == [
        ("-U", (1, "ann", 10, 2)),
        ("+U", (1, "cyd", 20, 2)),
        ("+I", (1, "ann", 10, 3)),
    ]


def test_without_a_rank_column_the_row_that_leaves_is_deleted_before_the_one_that_enters_is_inserted() -> None:
    harness = OperatorHarness(top_n(last=2), schema=BIDS)
    harness.push(bids((1, "ann", 10), (1, "eve", 90)))
    harness.clear()
    harness.push(bids((1, "bob", 30), (2, "cyd", 5), (1, "dan", 40)))
    assert harness.changes() == [("-D", (1, "ann", 10)), ("+I", (1, "dan", 40)), ("+I", (2, "cyd", 5))]


def test_the_first_row_alone_is_updated_over_rows_that_only_come() -> None:
    for options, wanted in (
        ({}, ["-U", "+U", "+I"]),
        ({"retracting": True}, ["-D", "+I", "+I"]),
        ({"ranking": RankFunction.RANK}, ["-D", "+I", "+I"]),
    ):
        harness = OperatorHarness(top_n(last=1, **options), schema=BIDS)
        harness.push(bids((1, "ann", 10)))
        harness.clear()
        harness.push(bids((1, "bob", 30), (2, "cyd", 5), (1, "dan", 40)))
        rows = [(1, "ann", 10), (1, "dan", 40), (2, "cyd", 5)]
        assert harness.changes() == list(zip(wanted, rows, strict=True)), options


def test_ties_come_in_order_of_arrival_and_an_equal_row_does_not_displace_the_last() -> None:
    harness = OperatorHarness(top_n(last=2), schema=BIDS)
    harness.push(bids((1, "ann", 10), (1, "bob", 10)))
    harness.clear()
    harness.push(bids((1, "cyd", 10)))
    assert harness.changes() == []


def test_a_limit_without_order_keeps_the_rows_that_came_first() -> None:
    harness = OperatorHarness(top_n(partition=(), order=(), last=2), schema=BIDS)
    harness.push(bids((1, "ann", 10), (2, "bob", 20), (3, "cyd", 30)))
    assert harness.rows() == [(1, "ann", 10), (2, "bob", 20)]


def test_an_offset_leaves_out_the_first_rows() -> None:
    harness = OperatorHarness(top_n(partition=(), first=2, last=2), schema=BIDS)
    harness.push(bids((1, "ann", 10), (2, "bob", 20), (3, "cyd", 30)))
    harness.push(bids((4, "dan", 25)))
    assert harness.changes()[0] == ("+I", (2, "bob", 20))
    assert harness.changes()[1:] == [("-D", (2, "bob", 20)), ("+I", (4, "dan", 25))]


def test_a_row_that_goes_lets_the_next_one_in() -> None:
    harness = OperatorHarness(top_n(last=1, retracting=True), schema=BIDS)
    harness.push(bids(*((1, f"b{i}", i) for i in range(100))))
    harness.clear()
    harness.push(bids((1, "b99", 99), (1, "b98", 98)), row_kinds=[3, 3])
    assert harness.changes() == [("-D", (1, "b99", 99)), ("+I", (1, "b97", 97))]


def test_rows_beyond_the_last_rank_are_not_kept_unless_rows_may_go() -> None:
    rows = bids(*((1, f"b{i}", i) for i in range(50)))
    for retracting, kept in ((False, 2), (True, 50)):
        harness = OperatorHarness(top_n(last=2, retracting=retracting), schema=BIDS)
        harness.push(rows)
        assert harness.snapshot().keyed["rows"].num_rows == kept


def test_rows_and_partitions_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SPARE", 8)
    monkeypatch.setattr(top_n_state, "_SPARE_SLOTS", 4)
    dice = random.Random(7)
    factory = top_n(SCHEMA, order=(SortKey(1),), last=2, retracting=True, rank_column=True)
    harness = OperatorHarness(factory, schema=SCHEMA)
    held: Counter[Row] = Counter()
    alive: list[Row] = []
    for step in range(60):
        came = [(f"p{step}-{i}", dice.randrange(9), "q", 0.0) for i in range(4)]
        gone, alive = alive[:3], [*alive[3:], *came]
        harness.clear()
        harness.push(columns([*gone, *came]), row_kinds=[3] * len(gone) + [0] * len(came))
        held = fold(held, harness.changes())
    assert held == Counter((*row, 1) for row in alive)
    assert harness.snapshot().keyed["rows"].num_rows == len(alive)


def test_partitions_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_n_state, "_SPARE_SLOTS", 4)
    every_ms = 1001  # each time a little later than a sweep is due
    state = TopNState(BIDS, (0,), (SortKey(2),), 128, retracting=True, ttl_ms=1000)
    for step in range(50):
        rows = pa.record_batch(bids(*((10 * step + i, "ann", i) for i in range(10))), schema=BIDS.arrow)
        located = state.locate(rows, now=every_ms * step)
        numbers = state.add(rows, state.order.codes(rows.columns[2:], 10), every_ms * step)
        state.heads.put(located.slots, np.ones(10, np.int64), numbers)
        state.written(located.slots, every_ms * step)
        state.compact()
    assert len(state.tail_sizes) < 100, "of 500 partitions the last ten live"
    assert len(state.store) <= 20


def test_rows_beyond_the_last_of_a_head_are_of_no_interest_where_something_is_behind_it() -> None:
    state = TopNState(BIDS, (0,), (SortKey(2), SortKey(0)), 128, retracting=True, ttl_ms=0)
    rows = pa.record_batch(bids((1, "ann", 10), (1, "bob", 20), (2, "cyd", 5)), schema=BIDS.arrow)
    slots = state.locate(rows, now=0).slots
    codes = state.order.codes([rows.column(2), rows.column(0)], 3)
    numbers = state.add(rows, codes, 0)
    state.heads.put(slots, np.array([2, 1]), numbers)
    assert state.first_codes(numbers).tolist() == codes[0].tolist()
    for bounded, thresholds in (
        ([False, False], [GREATEST_CODE, GREATEST_CODE]),
        ([True, False], [codes[0][1], GREATEST_CODE]),
        ([True, True], [codes[0][1], codes[0][2]]),
    ):
        state.set_thresholds(slots, np.array(bounded))
        assert state.thresholds[slots].tolist() == thresholds


def test_a_partition_that_got_no_rows_for_its_time_to_live_is_as_if_it_were_new() -> None:
    factory = top_n(last=1, retracting=True, ttl_ms=1000)
    harness = OperatorHarness(factory, schema=BIDS)
    harness.push(bids((1, "ann", 10), (2, "bob", 20)))
    harness.advance_processing_time(600)
    harness.push(bids((2, "cyd", 30)))
    harness.advance_processing_time(600)
    restored = OperatorHarness.restore(factory, [harness.snapshot()], schema=BIDS, clock=harness.clock)
    for running in (harness, restored):
        running.clear()
        running.push(bids((1, "dan", 5), (2, "eve", 40)))
        assert running.changes() == [("+I", (1, "dan", 5)), ("-D", (2, "cyd", 30)), ("+I", (2, "eve", 40))]


@pytest.mark.parametrize(("waited_ms", "gone"), [(999, [("-U", (1, "ann", 10))]), (1000, [])])
def test_a_partition_lives_until_its_time_to_live_has_passed(waited_ms: int, gone: list[Any]) -> None:
    harness = OperatorHarness(top_n(last=1, ttl_ms=1000), schema=BIDS)
    harness.push(bids((1, "ann", 10)))
    harness.advance_processing_time(waited_ms)
    harness.clear()
    harness.push(bids((1, "bob", 20)))
    assert harness.changes() == [*gone, ("+U" if gone else "+I", (1, "bob", 20))]


def test_a_checkpoint_adds_only_what_changed() -> None:
    harness = OperatorHarness(top_n(last=3), schema=BIDS)
    harness.push(bids(*((i, "ann", i) for i in range(100))))
    first = taken(harness, 1).segmented["rows"]
    harness.push(bids((7, "bob", 70)))
    second = taken(harness, 2).segmented["rows"]
    assert [s.rows().num_rows for s in first.segments] == [100]
    assert second.segments[0] is first.segments[0]
    assert [s.rows().num_rows for s in second.segments[1:]] == [1]


def test_rows_that_take_others_back_are_refused_where_none_were_planned() -> None:
    harness = OperatorHarness(top_n(last=1), schema=BIDS)
    with pytest.raises(InternalError, match="append-only top-N"):
        harness.push(bids((1, "ann", 10)), row_kinds=[3])
