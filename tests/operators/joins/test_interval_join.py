"""Interval joins: results against row-at-a-time oracles and DuckDB, event time, recovery at any parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch, Watermark
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.operators.joins import interval, interval_index, interval_queue, interval_side
from flowrun.operators.joins.factories import IntervalJoinFactory, OuterSides
from flowrun.operators.keyed import row_store
from flowrun.operators.state_meanings import state_meanings
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored, taken

LEFT = Schema((Field("k", STRING), Field("t", timestamp(3)), Field("v", BIGINT)))
RIGHT = Schema((Field("k2", STRING), Field("t2", timestamp(3)), Field("w", BIGINT)))
OUTPUT = Schema((*LEFT.fields, *RIGHT.fields))
Row = tuple[Any, ...]


@pytest.fixture(autouse=True, scope="module")
def _little_is_much() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "_SPARE", 2)
        patch.setattr(interval_index, "_LITTLE", 0)
        patch.setattr(interval_index, "MAX_FOUND", 5)
        patch.setattr(interval_queue, "_LITTLE", 0)
        patch.setattr(interval, "MAX_PAIRS", 3)
        yield


@dataclass(frozen=True)
class LeftNotAbove:
    """v ≤ w."""

    def compile(self) -> Any:
        return lambda pairs: pc.less_equal(pairs.column(2), pairs.column(5))


def factory(lower: int, upper: int, outer: OuterSides = OuterSides.NONE, **options: Any) -> IntervalJoinFactory:
    options.setdefault("keys", ((0,), (0,)))
    return IntervalJoinFactory(
        schemas=(LEFT, RIGHT),
        times=(1, 1),
        lower_ms=lower,
        upper_ms=upper,
        output_schema=OUTPUT,
        outer=outer,
        **options,
    )


def harness(recipe: IntervalJoinFactory, **options: Any) -> OperatorHarness:
    return OperatorHarness(recipe, schema=(LEFT, RIGHT), inputs=2, **options)


def rows_batch(schema: Schema, rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 3
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns[0], pa.string()),
            pa.array(columns[1], pa.int64()).cast(pa.timestamp("ms")),
            pa.array(columns[2], pa.int64()),
        ],
        schema=schema.arrow,
    )


def push(join: OperatorHarness, side: int, *rows: Row) -> None:
    batch = rows_batch((LEFT, RIGHT)[side], list(rows))
    times = [0 if r[1] is None else r[1] for r in rows]
    join.push(batch, times, side)


def results(join: OperatorHarness) -> list[Row]:
    found: list[Row] = []
    for batch in (e for e in join.elements if isinstance(e, RecordBatch)):
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns.columns]
        found += list(zip(*(c.to_pylist() for c in columns), strict=True)) if batch.num_rows else []
    return found


class Oracle:
    """Flink's interval join, row by row: remembered while the watermark has not passed the last row that could match."""

    def __init__(self, recipe: IntervalJoinFactory, passes: Any = lambda left, right: True) -> None:
        self.recipe, self.passes = recipe, passes
        self.stays = (recipe.upper_ms, -recipe.lower_ms)
        self.kept: tuple[list[list[Any]], list[list[Any]]] = ([], [])
        self.watermarks = [None, None]
        self.time = -(10**15)
        self.out: Counter[Row] = Counter()

    def pair(self, side: int, row: Row | None, other: Row | None) -> Row:
        none = (None, None, None)
        mine, theirs = row or none, other or none
        return (*mine, *theirs) if side == 0 else (*theirs, *mine)

    def row(self, side: int, row: Row) -> None:
        recipe = self.recipe
        matched = False
        usable = row[1] is not None and (row[0] is not None or not recipe.keys[0])
        for entry in self.kept[1 - side] if usable else []:
            left, right = (row, entry[0]) if side == 0 else (entry[0], row)
            near = left[1] + recipe.lower_ms <= right[1] <= left[1] + recipe.upper_ms
            if near and (not recipe.keys[0] or left[0] == right[0]) and self.passes(left, right):
                self.out[(*left, *right)] += 1
                matched = entry[1] = True
        if usable and row[1] > self.time - self.stays[side] and recipe.lower_ms <= recipe.upper_ms:
            self.kept[side].append([row, matched])
        elif not matched and recipe.outer.value[side]:
            self.out[self.pair(side, row, None)] += 1

    def watermark(self, side: int, time: int) -> None:
        self.watermarks[side] = time
        if None in self.watermarks:
            return
        self.time = max(self.time, min(self.watermarks))
        for index in (0, 1):
            gone = [e for e in self.kept[index] if e[0][1] <= self.time - self.stays[index] - 1]
            self.kept[index][:] = [e for e in self.kept[index] if e not in gone]
            for row, matched in gone:
                if not matched and self.recipe.outer.value[index]:
                    self.out[self.pair(index, row, None)] += 1


KEYS = st.sampled_from(["a", "b", "c", None])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, 1),
            st.lists(
                st.tuples(KEYS, st.one_of(st.integers(0, 60), st.none()), st.integers(0, 3)), min_size=1, max_size=7
            ),
        ),
        st.tuples(st.integers(0, 1), st.integers(0, 60)),
    ),
    max_size=25,
)
OUTER = st.sampled_from(list(OuterSides))


SCALES = st.sampled_from([1, 7, 2**30])


@examples(250)
@given(STEPS, st.integers(-15, 15), st.integers(-15, 15), OUTER, st.booleans(), st.booleans(), SCALES)
def test_rows_join_as_in_the_oracle_whatever_comes_late(steps, lower, upper, outer, keyed, with_condition, scale):
    options: dict[str, Any] = {"condition": LeftNotAbove()} if with_condition else {}
    recipe = factory(lower * scale, upper * scale, outer, keys=((0,), (0,)) if keyed else ((), ()), **options)
    oracle = Oracle(recipe, (lambda left, right: left[2] <= right[2]) if with_condition else (lambda left, right: True))
    with harness(recipe) as join:
        reached = [-1, -1]
        for side, step in steps:
            if isinstance(step, int):
                if step > reached[side]:
                    reached[side] = step
                    join.watermark(step * scale, side)
                    oracle.watermark(side, step * scale)
                continue
            rows = [(k, None if t is None else t * scale + v, v) for k, t, v in step]
            push(join, side, *rows)
            for row in rows:
                oracle.row(side, row)
        join.end_input()
        for side in (0, 1):
            oracle.watermark(side, 10**15)
        assert Counter(results(join)) == oracle.out


def test_keys_of_equal_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(interval_side, "hash_columns", lambda columns: np.zeros(len(columns[0]), np.uint64))
    with harness(factory(0, 10, OuterSides.LEFT)) as join:
        push(join, 0, ("a", 1, 1), ("b", 1, 2), ("c", 2, 3))
        push(join, 1, ("b", 5, 4), ("a", 6, 5))
        join.end_input()
        assert sorted(results(join)) == [
            ("a", 1, 1, "a", 6, 5),
            ("b", 1, 2, "b", 5, 4),
            ("c", 2, 3, None, None, None),
        ]


@examples(60)
@given(STEPS, st.integers(-15, 15), st.integers(0, 15), OUTER)
def test_no_row_is_late_for_the_watermarks_that_come_out_if_none_was_late_before(steps, lower, width, outer):
    with harness(factory(lower, lower + width, outer)) as join:
        reached = [-1, -1]
        for side, step in steps:
            if isinstance(step, int):
                if step > reached[side]:
                    reached[side] = step
                    join.watermark(step, side)
            elif rows := [(k, t, v) for k, t, v in step if t is not None and t > reached[side]]:
                push(join, side, *rows)
        join.end_input()
        time = None
        for value in join.elements:
            if isinstance(value, Watermark):
                assert time is None or value.timestamp > time
                time = value.timestamp
            elif time is not None:
                batch = value
                for column in (1, 4):  # either side's time attribute must stay one
                    times = batch.columns.column(column).cast(pa.int64()).drop_null().to_pylist()
                    assert all(t > time for t in times)
                assert all(t > time for t in batch.timestamps.to_pylist())
        assert time == MAX_TIMESTAMP


def test_the_result_carries_the_later_time_and_an_outer_row_its_own():
    with harness(factory(0, 10, OuterSides.BOTH)) as join:
        push(join, 0, ("a", 100, 1), ("b", 101, 2))
        push(join, 1, ("a", 105, 3), ("c", 120, 4))
        assert results(join) == [("a", 100, 1, "a", 105, 3)]
        assert join.timestamps() == [105]
        join.clear()
        join.watermark(111, 0)
        join.watermark(112, 1)
        assert results(join) == []
        join.watermark(112, 0)
        assert results(join) == [("b", 101, 2, None, None, None)]
        assert join.timestamps() == [101]
        join.clear()
        join.end_input()
        assert results(join) == [(None, None, None, "c", 120, 4)]
        assert join.timestamps() == [120]


@pytest.mark.parametrize(
    ("stamps", "watermark", "times"),
    [
        ([7, 8, 100], 5, [7, 8, 50]),
        (None, 5, [5, 5, 50]),
        (None, -5, [0, 0, 50]),
    ],
)
def test_an_outer_row_without_a_time_has_that_of_its_event_or_else_of_the_watermark(stamps, watermark, times):
    with harness(factory(0, 10, OuterSides.LEFT)) as join:
        join.watermark(watermark, 0)
        join.watermark(watermark, 1)
        join.clear()
        rows = [("a", None, 1), (None, None, 2), (None, 50, 3)]
        join.push(rows_batch(LEFT, rows), stamps, 0)
        assert results(join) == [(*row, None, None, None) for row in rows]
        assert join.timestamps() == times


def test_the_watermark_is_held_back_by_the_longest_wait():
    with harness(factory(-30, 10)) as join:
        join.watermark(100, 0)
        join.watermark(90, 1)
        assert join.watermarks() == [60]
        join.end_input()
        assert join.watermarks()[-1] == MAX_TIMESTAMP


@pytest.mark.parametrize(("outer", "held_ms"), [(OuterSides.NONE, 30), (OuterSides.LEFT, 31)])
def test_the_watermark_is_held_back_by_one_ms_more_if_rows_come_out_without_match(outer, held_ms):
    with harness(factory(-30, 10, outer)) as join:
        for side in (0, 1):
            join.watermark(100, side)
        assert join.watermarks() == [100 - held_ms]


@pytest.mark.parametrize(("side", "stays_ms"), [(0, 10), (1, 30)])
def test_a_row_is_remembered_until_no_row_that_is_not_late_can_match_it(side, stays_ms):
    for reached, found in ((100 + stays_ms, 1), (100 + stays_ms + 1, 0)):
        with harness(factory(-30, 10)) as join:
            push(join, side, ("a", 100, 1))
            for each in (0, 1):
                join.watermark(reached - 1, each)  # the row of this time is not late, and the farthest that matches
            push(join, 1 - side, ("a", reached, 2))
            assert len(results(join)) == found, reached


@pytest.mark.parametrize(("side", "stays_ms"), [(0, 10), (1, 30)])
def test_a_row_that_comes_late_is_remembered_if_a_row_that_is_not_late_can_match_it(side, stays_ms):
    for reached, kept in ((100 + stays_ms - 1, 1), (100 + stays_ms, 0)):
        with harness(factory(-30, 10, OuterSides.BOTH)) as join:
            for each in (0, 1):
                join.watermark(reached, each)
            join.clear()
            push(join, side, ("a", 100, 1))
            assert len(results(join)) == 1 - kept, "it came out at once, or waits for a match"


def test_a_row_that_is_too_late_to_be_matched_comes_out_at_once_and_is_not_remembered():
    with harness(factory(0, 10, OuterSides.LEFT)) as join:
        join.watermark(100, 0)
        join.watermark(100, 1)
        join.clear()
        push(join, 0, ("a", 89, 1))
        assert results(join) == [("a", 89, 1, None, None, None)]
        push(join, 1, ("a", 95, 2))
        assert len(join.rows()) == 1


def test_a_late_row_still_joins_with_what_is_remembered():
    with harness(factory(-20, 0)) as join:
        push(join, 1, ("a", 85, 1))
        join.watermark(100, 0)
        join.watermark(100, 1)
        push(join, 0, ("a", 90, 2))
        assert results(join) == [("a", 90, 2, "a", 85, 1)]


def test_bounds_that_exclude_each_other_match_nothing():
    with harness(factory(5, -5, OuterSides.BOTH)) as join:
        push(join, 0, ("a", 1, 1))
        push(join, 1, ("a", 1, 2))
        assert results(join) == [("a", 1, 1, None, None, None), (None, None, None, "a", 1, 2)]
        join.watermark(7, 0)
        join.watermark(7, 1)
        assert join.watermarks() == [7]


@pytest.mark.parametrize("outer", list(OuterSides))
def test_complete_streams_join_as_in_duckdb(outer):
    random = np.random.default_rng(7)
    sides = []
    for n in (3000, 2500):
        keys = [None if k == 0 else f"k{k}" for k in random.integers(0, 40, n)]
        sides.append(list(zip(keys, random.integers(0, 100_000, n).tolist(), range(n), strict=True)))
    with harness(factory(-700, 900, outer, condition=LeftNotAbove())) as join:
        at = [0, 0]
        while any(at[s] < len(sides[s]) for s in (0, 1)):
            side = int(random.integers(0, 2))
            rows = sides[side][at[side] : at[side] + int(random.integers(1, 300))]
            at[side] += len(rows)
            if rows:
                push(join, side, *rows)
        join.end_input()
        got = Counter(results(join))
    left = pa.Table.from_batches([rows_batch(LEFT, sides[0])])
    right = pa.Table.from_batches([rows_batch(RIGHT, sides[1])])
    kind = {OuterSides.NONE: "INNER", OuterSides.LEFT: "LEFT", OuterSides.RIGHT: "RIGHT", OuterSides.BOTH: "FULL"}[
        outer
    ]
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        expected = connection.execute(
            f"SELECT k, epoch_ms(t), v, k2, epoch_ms(t2), w FROM l {kind} JOIN r ON k = k2 AND v <= w"
            " AND t2 BETWEEN t - INTERVAL 700 MILLISECONDS AND t + INTERVAL 900 MILLISECONDS"
        ).fetchall()
    assert got == Counter(expected)


# -- processing time -----------------------------------------------------------------------------------------------------------


def test_in_processing_time_rows_meet_if_they_arrive_within_the_interval():
    recipe = factory(-100, 100, OuterSides.LEFT, domain=TimeDomain.PROCESSING)
    with harness(recipe) as join:
        push(join, 0, ("a", 1, 1), ("b", 1, 2))
        join.advance_processing_time(100)
        push(join, 1, ("a", 1, 3))
        assert results(join) == [("a", 1, 1, "a", 1, 3)]
        join.advance_processing_time(1)
        push(join, 1, ("b", 1, 4))
        assert results(join)[1:] == [("b", 1, 2, None, None, None)]


@pytest.mark.parametrize(("bound", "due"), [(1, 3), (100, 201)])
def test_in_processing_time_a_row_without_match_comes_out_as_soon_as_the_clock_has_left_it_behind(bound, due):
    recipe = factory(-bound, bound, OuterSides.LEFT, domain=TimeDomain.PROCESSING)
    with harness(recipe) as join:
        push(join, 0, ("a", 1, 1))
        join.advance_processing_time(due - 1)
        assert results(join) == []
        join.advance_processing_time(1)
        assert results(join) == [("a", 1, 1, None, None, None)]


def test_in_processing_time_rows_are_forgotten_without_any_further_row():
    recipe = factory(-100, 100, OuterSides.LEFT, domain=TimeDomain.PROCESSING)
    with harness(recipe) as join:
        push(join, 0, ("a", 1, 1))
        join.advance_processing_time(1_000)
        assert results(join) == [("a", 1, 1, None, None, None)]
        push(join, 0, ("b", 1, 2))
        snapshot = join.snapshot()
    with OperatorHarness.restore(recipe, [snapshot], schema=(LEFT, RIGHT), inputs=2) as restored:
        restored.advance_processing_time(3_000)
        assert results(restored) == [("b", 1, 2, None, None, None)]


def test_in_processing_time_bounded_input_leaves_no_row_behind():
    with harness(factory(-100, 100, OuterSides.BOTH, domain=TimeDomain.PROCESSING)) as join:
        push(join, 0, ("a", 1, 1))
        join.watermark(50, 0)
        join.end_input()
        assert results(join) == [("a", 1, 1, None, None, None)]


# -- recovery ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_one_run_after_recovery_at_other_parallelisms(seed):
    random = np.random.default_rng(seed)
    outer = list(OuterSides)[seed % 4]
    recipe = factory(-40, 60, outer, condition=LeftNotAbove())
    oracle = Oracle(recipe, lambda left, right: left[2] <= right[2])
    subtasks = [harness(recipe, state_keys=((0,), (0,)))]
    got: Counter[Row] = Counter()
    checkpoint = 0
    for stage, parallelism in enumerate((3, 2, 1)):
        for step in range(12):
            side = int(random.integers(0, 2))
            base = stage * 240 + step * 20
            rows = [
                (None if k == 0 else f"k{k}", base + int(random.integers(-30, 30)), int(random.integers(0, 9)))
                for k in random.integers(0, 12, int(random.integers(1, 40)))
            ]
            for join in subtasks:
                push(join, side, *rows)
            for row in rows:
                oracle.row(side, row)
            if random.random() < 0.5:
                for s in (0, 1):
                    for join in subtasks:
                        join.watermark(base - 30 + s, s)
                    oracle.watermark(s, base - 30 + s)
            if random.random() < 0.3:
                checkpoint += 1
                for join in subtasks:
                    taken(join, checkpoint)
        snapshots = [stored(taken(join, 100 + stage), seed) for join in subtasks]
        for join in subtasks:
            got.update(results(join))
            join.close()
        subtasks = [
            OperatorHarness.restore(
                recipe,
                snapshots,
                subtask=i,
                parallelism=parallelism,
                schema=(LEFT, RIGHT),
                inputs=2,
                state_keys=((0,), (0,)),
            )
            for i in range(parallelism)
        ]
        for join in subtasks:
            for s in (0, 1):
                time = oracle.watermarks[s]
                if time is not None:
                    join.watermark(time, s)
    for join in subtasks:
        join.end_input()
        got.update(results(join))
        join.close()
    for s in (0, 1):
        oracle.watermark(s, 10**15)
    assert got == oracle.out


def test_a_snapshot_writes_only_what_changed():
    with harness(factory(-1000, 1000, OuterSides.LEFT)) as join:
        push(join, 0, *(("a", t, t) for t in range(500)))
        first = taken(join, 1).segmented["left"]
        push(join, 0, ("b", 501, 1))
        second = taken(join, 2).segmented["left"]
        assert second.segments[0] is first.segments[0]
        assert [s.rows().num_rows for s in second.segments] == [500, 1]


def test_a_factory_says_what_its_operators_write():
    recipe = factory(-5, 5, OuterSides.BOTH)
    with harness(recipe) as join:
        push(join, 0, ("a", 1, 1))
        tables = join.snapshot().keyed
        schemas = recipe.state_schemas()
        assert {name: t.schema.names for name, t in tables.items()} == {n: s.names for n, s in schemas.items()}
        assert all(tables[n].schema.equals(schemas[n]) for n in tables)
        for name, texts in state_meanings(recipe).items():
            assert set(texts) <= set(schemas[name].names)
