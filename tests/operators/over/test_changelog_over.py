from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.semantics import FrameUnit, NullOrder, SortKey
from flowrun.operators.keyed import row_store
from flowrun.operators.over.calls import OverFrame, Place
from flowrun.operators.over.factories import ChangelogOverFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.over.oracles import (
    BACKWARD,
    COLLECTING,
    FOLDING,
    FORWARD,
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
    output_schema,
    plain,
    results,
    shift,
    some_row,
)
from tests.operators.ranking.oracles import distance, fold, sort_key
from tests.operators.stored import stored, taken

SEEDS = st.integers(0, 2**32)
FEW = examples(30)
BY_TIME = (SortKey(TS),)
FRAMES = (
    OverFrame(FrameUnit.ROWS),
    OverFrame(FrameUnit.RANGE),
    OverFrame(FrameUnit.ROWS, 0),
    OverFrame(FrameUnit.ROWS, 3),
    OverFrame(FrameUnit.RANGE, 0),
    OverFrame(FrameUnit.RANGE, 5),
    OverFrame(FrameUnit.ROWS, None, None),
    OverFrame(FrameUnit.ROWS, 1, 2),
    OverFrame(FrameUnit.ROWS, -1, 2),
    OverFrame(FrameUnit.ROWS, 3, -1),
    OverFrame(FrameUnit.ROWS, None, -1),
    OverFrame(FrameUnit.RANGE, None, None),
    OverFrame(FrameUnit.RANGE, 0, None),
    OverFrame(FrameUnit.RANGE, 5, 3),
    OverFrame(FrameUnit.RANGE, -1, None),
    OverFrame(FrameUnit.RANGE, 5, -2),
    OverFrame(FrameUnit.RANGE, None, 4),
)


def over(frame: OverFrame, *calls: Any, **options: Any) -> ChangelogOverFactory:
    options.setdefault("order", BY_TIME)
    return ChangelogOverFactory(ROWS, output_schema(calls), options.pop("keys", (K,)), frame, calls, **options)


class Table:
    """Rows by partition that come and go, and what OVER makes of them."""

    def __init__(self, dice: random.Random, factory: ChangelogOverFactory) -> None:
        self.partitions: dict[Any, list[Row]] = {}
        self._dice = dice
        self._factory = factory
        self.distinct = True
        self._number = 0
        self._live: list[Row] = []

    def batch(self) -> tuple[list[Row], list[int]]:
        rows, kinds = [], []
        for _ in range(self._dice.choice([1, 4, 20])):
            row, kind = self._next()
            rows.append(row)
            kinds.append(kind)
        return rows, kinds

    def _next(self) -> tuple[Row, int]:
        dice = self._dice
        if self._live and dice.random() < 0.4:
            row = self._live.pop(dice.randrange(len(self._live)))
            self._rows_of(row).remove(row)
            return row, dice.choice([1, 3])
        if self._live and dice.random() < 0.1:
            row = dice.choice(self._live)  # a second, equal row
            self.distinct = False
        else:
            self._number += 1
            row = some_row(dice, self._number, dice.randrange(30))
        self._live.append(row)
        self._rows_of(row).append(row)
        return row, dice.choice([0, 2])

    def _rows_of(self, row: Row) -> list[Row]:
        return self.partitions.setdefault(tuple(row[k] for k in self._factory.keys), [])

    def results(self) -> Counter[Row]:
        factory = self._factory
        found: Counter[Row] = Counter()
        for rows in self.partitions.values():
            ordered = sorted(rows, key=lambda r: sort_key(r, factory.order))
            by_time = factory.frame.counts_units
            order = [r[TS] if by_time else sort_key(r, factory.order) for r in ordered]
            found.update(results(ordered, order, factory.frame, factory.calls))
        return found


def any_over(dice: random.Random, frame: OverFrame) -> ChangelogOverFactory:
    calls: list[Any] = dice.sample(FOLDING, dice.choice([0, 1, 5]))
    if dice.random() < 0.3:
        calls += dice.sample(COLLECTING, 2)
    if dice.random() < 0.4 or not calls:
        calls += dice.sample((*BACKWARD, *FORWARD), dice.choice([1, 4]))
    orders: list[tuple[SortKey, ...]] = [BY_TIME]
    if not frame.counts_units:
        orders += [(SortKey(N, descending=True), SortKey(S)), (SortKey(PRICE, nulls=NullOrder.LAST),), ()]
    return over(frame, *calls, order=dice.choice(orders), keys=dice.choice([(K,), ()]))


@FEW
@given(SEEDS, st.sampled_from(FRAMES))
def test_after_each_batch_a_reader_holds_the_results_and_got_no_change_too_many(seed: int, frame: OverFrame) -> None:
    dice = random.Random(seed)
    factory = any_over(dice, frame)
    harness, table = OperatorHarness(factory, schema=ROWS), Table(dice, factory)
    held: Counter[Row] = Counter()
    for _ in range(6):
        rows, kinds = table.batch()
        harness.clear()
        harness.push(columns(rows), timestamps=[r[TS] for r in rows], row_kinds=kinds)
        changes = [(kind, plain(row)) for kind, row in harness.changes()]
        assert harness.timestamps() == [row[TS] for _, row in changes]
        now = fold(held, changes)
        assert now == table.results()
        if table.distinct:
            assert len(changes) == distance(held, now)
        held = now
        if dice.random() < 0.2:
            recipe = pickle.loads(pickle.dumps(factory))
            harness = OperatorHarness.restore(recipe, [stored(taken(harness), seed)], schema=ROWS)


def push(harness: OperatorHarness, *changes: tuple[int, Row]) -> list[tuple[str, Row]]:
    harness.clear()
    harness.push(columns([row for _, row in changes]), row_kinds=[kind for kind, _ in changes])
    return [(kind, (row[0], *row[len(ROWS) :])) for kind, row in harness.changes()]


def row(number: int, time: int, n: int) -> Row:
    return (number, "a", n, None, None, None, None, time)


def test_only_rows_whose_frame_changed_are_corrected() -> None:
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS, 1), call("SUM", N)), schema=ROWS)
    push(harness, *((0, row(i, i, 1)) for i in range(10)))
    assert push(harness, (1, row(4, 4, 1)), (2, row(4, 4, 5))) == [
        ("-U", (4, 2)), ("+U", (4, 6)), ("-U", (5, 2)), ("+U", (5, 6)),
    ]  # fmt: skip


def test_an_updated_row_is_updated_also_where_it_moves_or_its_result_stays() -> None:
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS), call("SUM", N)), schema=ROWS)
    push(harness, *((0, row(i, i, 1)) for i in range(4)))
    assert push(harness, (1, row(0, 0, 1)), (2, row(0, 9, 1))) == [
        ("-U", (0, 1)), ("+U", (0, 4)), ("-U", (1, 2)), ("+U", (1, 1)), ("-U", (2, 3)), ("+U", (2, 2)), ("-U", (3, 4)), ("+U", (3, 3)),
    ]  # fmt: skip
    assert push(harness, (1, row(3, 3, 1)), (2, row(4, 3, 1))) == [("-U", (3, 3)), ("+U", (4, 3))]
    assert push(harness, (3, row(4, 3, 1)), (0, row(5, 3, 1))) == [("-D", (4, 3)), ("+I", (5, 3))], "as they came"


def test_a_row_that_leaves_its_partition_is_gone_there() -> None:
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS), call("SUM", N)), schema=ROWS)
    push(harness, (0, row(1, 1, 5)))
    elsewhere = (1, "b", 5, None, None, None, None, 1)
    assert push(harness, (1, row(1, 1, 5)), (2, elsewhere)) == [("-D", (1, 5)), ("+I", (1, 5))]


def test_partitions_go_on_at_another_parallelism() -> None:
    dice = random.Random(5)
    factory = over(OverFrame(FrameUnit.ROWS, 3), call("AVG", X), shift(Place.LEAD, N, 1))
    table = Table(dice, factory)
    options: dict[str, Any] = {"schema": ROWS, "state_keys": [(K,)]}
    subtasks = [OperatorHarness(factory, subtask=i, parallelism=2, **options) for i in range(2)]
    held: Counter[Row] = Counter()
    for parallelism in (2, 3, 1, 1):
        if parallelism != len(subtasks):
            snapshots = [stored(taken(h)) for h in subtasks]
            subtasks = [
                OperatorHarness.restore(factory, snapshots, subtask=i, parallelism=parallelism, **options)
                for i in range(parallelism)
            ]
        rows, kinds = table.batch()
        for harness in subtasks:
            harness.clear()
            harness.push(columns(rows), row_kinds=kinds)
            held = fold(held, [(kind, plain(r)) for kind, r in harness.changes()])
        assert held == table.results()


def test_rows_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SPARE", 8)
    dice = random.Random(9)
    factory = over(OverFrame(FrameUnit.RANGE, 5), call("COUNT"), call("MAX", PRICE))
    harness, table = OperatorHarness(factory, schema=ROWS), Table(dice, factory)
    held: Counter[Row] = Counter()
    for _ in range(40):
        rows, kinds = table.batch()
        harness.clear()
        harness.push(columns(rows), row_kinds=kinds)
        held = fold(held, [(kind, plain(r)) for kind, r in harness.changes()])
    assert held == table.results()
    assert harness.snapshot().keyed["rows"].num_rows == sum(map(len, table.partitions.values()))


def test_a_partition_lives_until_its_time_to_live_has_passed() -> None:
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS), call("SUM", N), ttl_ms=1000), schema=ROWS)
    push(harness, (0, row(1, 1, 5)))
    harness.advance_processing_time(999)
    assert ("+I", (2, 12)) in push(harness, (0, row(2, 2, 7)))


def test_a_partition_that_expired_begins_anew() -> None:
    harness = OperatorHarness(over(OverFrame(FrameUnit.ROWS), call("SUM", N), ttl_ms=1000), schema=ROWS)
    push(harness, (0, row(1, 1, 5)))
    harness.advance_processing_time(1000)
    assert push(harness, (0, row(2, 2, 7))) == [("+I", (2, 7))]
    assert push(harness, (3, row(1, 1, 5))) == []
