"""Window joins: each window is the SQL join of its rows, sent once when it closes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import JoinKind, TimeDomain
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.errors import InternalError
from flowrun.operators.joins.factories import WindowJoinFactory
from flowrun.operators.ranking.window_rank import PROCESSING_TIME_GRACE_MS
from flowrun.operators.timed.event_rows import LATE_RECORDS_DROPPED
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored, taken

TIME = timestamp(3)
LEFT = Schema((Field("k", STRING), Field("s", TIME), Field("e", TIME), Field("v", BIGINT)))
RIGHT = Schema((Field("w", BIGINT), Field("k2", STRING), Field("s2", TIME), Field("e2", TIME)))
SCHEMAS = (LEFT, RIGHT)
KEYS = ((0,), (1,))
KINDS = list(JoinKind)
Row = tuple[Any, ...]


@dataclass(frozen=True)
class NotAbove:
    """v ≤ w."""

    def compile(self) -> Any:
        return lambda pairs: pc.less_equal(pairs.column(3), pairs.column(4))


def factory(kind: JoinKind = JoinKind.INNER, **options: Any) -> WindowJoinFactory:
    options.setdefault("keys", KEYS)
    output = LEFT if kind.left_only else Schema((*LEFT.fields, *RIGHT.fields))
    return WindowJoinFactory(schemas=SCHEMAS, windows=((1, 2), (2, 3)), output_schema=output, kind=kind, **options)


def harness(recipe: WindowJoinFactory, **options: Any) -> OperatorHarness:
    return OperatorHarness(recipe, schema=SCHEMAS, inputs=2, **options)


def batch(side: int, rows: Iterable[Row]) -> RecordBatch:
    """Rows with times as integers, ms."""
    schema = SCHEMAS[side]
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(c, pa.int64()).cast(t.arrow) if t == TIME else pa.array(c, t.arrow)
        for c, t in zip(columns, schema.types, strict=True)
    ]
    return RecordBatch(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), pa.array([0] * len(arrays[0])))


def push(join: OperatorHarness, side: int, *rows: Row) -> None:
    if rows:
        join.push(batch(side, rows), input_index=side)


def watermark(join: OperatorHarness, time: int) -> None:
    join.watermark(time, 0)
    join.watermark(time, 1)


def results(join: OperatorHarness) -> list[Row]:
    found: list[Row] = []
    for rows in (e.columns for e in join.elements if isinstance(e, RecordBatch)):
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in rows.columns]
        found += zip(*(c.to_pylist() for c in columns), strict=True)
    return found


def expected(kind: JoinKind, left: list[Row], right: list[Row], condition: bool, keyed: bool = True) -> Counter[Row]:
    """The join of all rows."""

    def matches(a: Row, b: Row) -> bool:
        if a[1:3] != b[2:4] or (keyed and (a[0] is None or a[0] != b[1])):
            return False
        return not condition or (a[3] is not None and b[0] is not None and a[3] <= b[0])

    pairs = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if matches(a, b)]
    met = {i for i, _ in pairs}, {j for _, j in pairs}
    if kind.left_only:
        return Counter(a for i, a in enumerate(left) if (i in met[0]) == (kind is JoinKind.SEMI))
    found = [left[i] + right[j] for i, j in pairs]
    if kind.keeps[0]:
        found += [(*a, None, None, None, None) for i, a in enumerate(left) if i not in met[0]]
    if kind.keeps[1]:
        found += [(None, None, None, None, *b) for j, b in enumerate(right) if j not in met[1]]
    return Counter(found)


# -- single cases --------------------------------------------------------------------------------------------------------------


def test_a_window_comes_out_when_the_watermark_reaches_its_end() -> None:
    join = harness(factory())
    push(join, 0, ("a", 0, 10, 1), ("b", 0, 10, 2), ("a", 10, 20, 3))
    push(join, 1, (7, "a", 0, 10), (8, "a", 10, 20))
    watermark(join, 8)
    assert results(join) == []
    watermark(join, 9)
    assert results(join) == [("a", 0, 10, 1, 7, "a", 0, 10)]
    assert join.timestamps() == [9]

    watermark(join, MAX_TIMESTAMP)
    assert results(join)[1:] == [("a", 10, 20, 3, 8, "a", 10, 20)]
    assert join.watermarks() == [8, 9, MAX_TIMESTAMP]


def test_waits_for_the_slower_input() -> None:
    join = harness(factory(JoinKind.LEFT))
    push(join, 0, ("a", 0, 10, 1))
    join.watermark(100, 0)
    push(join, 1, (7, "a", 0, 10))
    join.watermark(100, 1)
    assert results(join) == [("a", 0, 10, 1, 7, "a", 0, 10)]


def test_late_rows_are_dropped_and_counted() -> None:
    join = harness(factory(JoinKind.LEFT))
    watermark(join, 9)
    push(join, 0, ("a", 0, 10, 1), ("a", 1, 11, 2))
    watermark(join, 50)
    assert [r[3] for r in results(join)] == [2]
    assert join.metrics.count(LATE_RECORDS_DROPPED) == 1


def test_windows_of_one_end_may_have_several_starts() -> None:
    join = harness(factory())
    push(join, 0, ("a", 0, 10, 1), ("a", 5, 10, 2))
    push(join, 1, (7, "a", 5, 10), (8, "a", 4, 10))
    watermark(join, 9)
    assert results(join) == [("a", 5, 10, 2, 7, "a", 5, 10)]


def test_null_matches_nothing() -> None:
    join = harness(factory(JoinKind.FULL))
    push(join, 0, (None, 0, 10, 1))
    push(join, 1, (7, None, 0, 10))
    watermark(join, 9)
    assert results(join) == [(None, 0, 10, 1, *[None] * 4), (*[None] * 4, 7, None, 0, 10)]


def test_rows_that_take_others_back_are_refused() -> None:
    join = harness(factory())
    whole = batch(0, [("a", 0, 10, 1)])
    with pytest.raises(InternalError, match="take others back"):
        join.push(RecordBatch(whole.columns, whole.timestamps, pa.array([3], pa.int8())))


def test_in_processing_time_windows_close_by_the_clock() -> None:
    join = harness(factory(domain=TimeDomain.PROCESSING))
    push(join, 0, ("a", 0, 10, 1))
    join.advance_processing_time(500)
    push(join, 1, (7, "a", 0, 10))
    assert results(join) == []
    join.advance_processing_time(PROCESSING_TIME_GRACE_MS - 490)
    assert results(join) == [("a", 0, 10, 1, 7, "a", 0, 10)]
    assert join.timestamps() == [None]


def test_in_processing_time_bounded_input_closes_what_is_open() -> None:
    join = harness(factory(JoinKind.ANTI, domain=TimeDomain.PROCESSING))
    push(join, 0, ("a", 0, 10, 1))
    join.end_input()
    assert results(join) == [("a", 0, 10, 1)]


def test_restored_windows_of_processing_time_close_by_the_clock() -> None:
    recipe = factory(domain=TimeDomain.PROCESSING)
    join = harness(recipe)
    push(join, 0, ("a", 0, 10, 1))
    push(join, 1, (7, "a", 0, 10))
    join = OperatorHarness.restore(recipe, [stored(taken(join))], schema=SCHEMAS, inputs=2)
    join.advance_processing_time(10 + PROCESSING_TIME_GRACE_MS)
    assert results(join) == [("a", 0, 10, 1, 7, "a", 0, 10)]


def test_what_a_window_holds_may_explode_a_part_at_a_time() -> None:
    join = harness(factory(JoinKind.FULL))
    push(join, 0, *[("a", 0, 10, i) for i in range(400)])
    push(join, 1, *[(i, "a", 0, 10) for i in range(400)])
    watermark(join, 9)
    sizes = [e.num_rows for e in join.elements if isinstance(e, RecordBatch)]
    assert sum(sizes) == 160_000
    assert max(sizes) <= 64 * 1024


# -- against the join of all rows ----------------------------------------------------------------------------------------------


def random_row(randomly: random.Random, side: int, start: int) -> Row:
    begins = start - start % 10
    bounds = begins, begins + 10
    key, value = randomly.choice([None, "a", "a", "b", "c"]), randomly.choice([None, 0, 1, 2])
    return (key, *bounds, value) if side == 0 else (value, key, *bounds)


@examples(80)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS), condition=st.booleans(), keyed=st.booleans())
def test_each_window_is_the_join_of_its_rows(seed: int, kind: JoinKind, condition: bool, keyed: bool) -> None:
    randomly = random.Random(seed)
    recipe = factory(kind, keys=KEYS if keyed else ((), ()), condition=NotAbove() if condition else None)
    join = harness(recipe)
    sides: tuple[list[Row], list[Row]] = ([], [])
    now, found = 0, Counter[Row]()
    for step in range(10):
        side = randomly.randrange(2)
        rows = [random_row(randomly, side, now + randomly.randrange(30)) for _ in range(randomly.choice([1, 2, 9]))]
        on_time = [r for r in rows if r[2 if side == 0 else 3] - 1 > now]
        sides[side].extend(on_time)
        push(join, side, *rows)
        if randomly.random() < 0.5:
            now += randomly.randrange(1, 15)
            watermark(join, now)
        if step == 5:
            found += Counter(results(join))
            join = OperatorHarness.restore(recipe, [stored(taken(join), seed % 5)], schema=SCHEMAS, inputs=2)
            watermark(join, now)
    watermark(join, MAX_TIMESTAMP)
    assert found + Counter(results(join)) == expected(kind, *sides, condition, keyed)
    assert all(t.num_rows == 0 for t in join.snapshot().keyed.values())


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_duckdb(kind: JoinKind) -> None:
    random_ = np.random.default_rng(5)
    sides = []
    for side, rows in ((0, 3000), (1, 2000)):
        starts = random_.integers(0, 20, rows) * 10
        keys = pa.array(random_.choice([f"k{i}" for i in range(40)], rows), mask=random_.random(rows) < 0.05)
        values = pa.array(random_.integers(0, 100, rows), mask=random_.random(rows) < 0.05)
        bounds = [pa.array(t).cast(TIME.arrow) for t in (starts, starts + 10)]
        columns = [keys, *bounds, values] if side == 0 else [values, keys, *bounds]
        sides.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[side].arrow))
    join = harness(factory(kind, condition=NotAbove()))
    for at in range(0, 3000, 211):
        for side in (0, 1):
            if at < sides[side].num_rows:
                join.push(RecordBatch(sides[side].slice(at, 211)), input_index=side)
    watermark(join, MAX_TIMESTAMP)
    on = "l.k = r.k2 AND l.s = r.s2 AND l.e = r.e2 AND l.v <= r.w"
    exists = "" if kind is JoinKind.SEMI else "NOT"
    query = f"SELECT * FROM l {kind.value} JOIN r ON {on}"
    if kind.left_only:
        query = f"SELECT * FROM l WHERE {exists} EXISTS (SELECT 1 FROM r WHERE {on})"
    connection = duckdb.connect()
    connection.register("l", pa.Table.from_batches([sides[0]]))
    connection.register("r", pa.Table.from_batches([sides[1]]))
    assert Counter(join.rows()) == Counter(connection.sql(query).fetchall())


# -- state ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_goes_on_at_another_parallelism(kind: JoinKind, parallelism: int) -> None:
    randomly = random.Random(parallelism)
    recipe = factory(kind)
    subtasks = [harness(recipe, subtask=i, parallelism=2, state_keys=KEYS) for i in range(2)]
    sides: tuple[list[Row], list[Row]] = ([], [])
    found: list[Row] = []
    for step in range(8):
        rows = [random_row(randomly, step % 2, step * 5 + randomly.randrange(10, 30)) for _ in range(12)]
        sides[step % 2].extend(rows)
        for subtask in subtasks:
            push(subtask, step % 2, *rows)
            watermark(subtask, step * 5)
        if step == 2:
            [taken(h) for h in subtasks]
        if step == 4:
            found += [row for h in subtasks for row in results(h)]
            snapshots = [stored(taken(h)) for h in subtasks]
            subtasks = [
                OperatorHarness.restore(
                    recipe, snapshots, subtask=i, parallelism=parallelism, schema=SCHEMAS, inputs=2, state_keys=KEYS
                )
                for i in range(parallelism)
            ]
    for subtask in subtasks:
        watermark(subtask, MAX_TIMESTAMP)
        found += results(subtask)
    assert Counter(found) == expected(kind, *sides, False)


def test_a_checkpoint_adds_only_what_came() -> None:
    join = harness(factory())
    push(join, 0, *[("a", 0, 10, i) for i in range(5000)])
    before = taken(join).segmented["left"].segments
    push(join, 0, ("a", 0, 10, -1))
    after = taken(join).segmented["left"].segments
    assert after[0] is before[0]
    assert [s.rows().num_rows for s in after] == [5000, 1]


def test_state_has_the_declared_columns() -> None:
    recipe = factory()
    join = harness(recipe)
    push(join, 0, ("a", 0, 10, 1))
    assert {n: t.schema for n, t in join.snapshot().keyed.items()} == dict(recipe.state_schemas())
