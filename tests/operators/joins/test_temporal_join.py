"""Temporal joins: versions as of each row's time against a row-at-a-time oracle and DuckDB's ASOF join, and recovery."""

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

from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch, RowKind, Watermark
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.operators.joins import interval_queue, temporal
from flowrun.operators.joins.factories import TemporalJoinFactory
from flowrun.operators.keyed import key_rows, row_store
from flowrun.operators.state_meanings import state_meanings
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored, taken

LEFT = Schema((Field("k", STRING), Field("t", timestamp(3)), Field("v", BIGINT)))
RIGHT = Schema((Field("k2", STRING), Field("t2", timestamp(3)), Field("w", BIGINT)))
OUTPUT = Schema((*LEFT.fields, *RIGHT.fields))
Row = tuple[Any, ...]
KINDS = {"+I": RowKind.INSERT, "-U": RowKind.UPDATE_BEFORE, "+U": RowKind.UPDATE_AFTER, "-D": RowKind.DELETE}


@pytest.fixture(autouse=True, scope="module")
def _little_is_much() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "_SPARE", 2)
        patch.setattr(key_rows, "_SPARE_SLOTS", 2)
        patch.setattr(interval_queue, "_LITTLE", 0)
        patch.setattr(temporal, "MAX_PAIRS", 3)
        yield


@dataclass(frozen=True)
class LeftNotAbove:
    """v ≤ w."""

    def compile(self) -> Any:
        return lambda pairs: pc.less_equal(pairs.column(2), pairs.column(5))


def factory(outer: bool = False, **options: Any) -> TemporalJoinFactory:
    options.setdefault("right_time", 1)
    return TemporalJoinFactory(
        schemas=(LEFT, RIGHT), keys=((0,), (0,)), left_time=1, output_schema=OUTPUT, outer=outer, **options
    )


def harness(recipe: TemporalJoinFactory, **options: Any) -> OperatorHarness:
    return OperatorHarness(recipe, schema=(LEFT, RIGHT), inputs=2, **options)


def rows_batch(schema: Schema, rows: list[Row]) -> pa.RecordBatch:
    keys, times, values = zip(*rows, strict=True)
    columns = [pa.array(keys, pa.string()), pa.array(times, pa.int64()).cast(pa.timestamp("ms"))]
    return pa.RecordBatch.from_arrays([*columns, pa.array(values, pa.int64())], schema=schema.arrow)


def push(join: OperatorHarness, side: int, rows: list[Row], kinds: list[str] | None = None) -> None:
    times = [0 if r[1] is None else r[1] for r in rows]
    changes = None if kinds is None else [int(KINDS[k]) for k in kinds]
    join.push(rows_batch((LEFT, RIGHT)[side], rows), times, side, row_kinds=changes)


def results(join: OperatorHarness) -> list[Row]:
    found: list[Row] = []
    for batch in (e for e in join.elements if isinstance(e, RecordBatch)):
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns.columns]
        found += zip(*(c.to_pylist() for c in columns), strict=True)
    return found


class Oracle:
    """Row by row: versions of each key sorted by time; of those that the watermark has passed the newest stays."""

    def __init__(self, outer: bool, passes: Any = lambda left, right: True) -> None:
        self.outer, self.passes = outer, passes
        self.left: list[Row] = []
        self.versions: dict[str, dict[int, tuple[str, Row]]] = {}
        self.watermarks: list[int | None] = [None, None]
        self.time = -1
        self.out: list[Row] = []

    def emit(self, row: Row, version: tuple[str, Row] | None) -> None:
        if version is not None and version[0] != "-D" and self.passes(row, version[1]):
            self.out.append((*row, *version[1]))
        elif self.outer:
            self.out.append((*row, None, None, None))

    def row(self, side: int, row: Row, kind: str) -> None:
        if side == 0 and row[1] is None:
            self.emit(row, None)
        elif side == 0:
            self.left.append(row)
        elif row[0] is not None and row[1] is not None and kind != "-U":
            self.versions.setdefault(row[0], {})[row[1]] = (kind, row)

    def watermark(self, side: int, time: int) -> None:
        self.watermarks[side] = time
        if None in self.watermarks or min(self.watermarks) <= self.time:  # type: ignore[type-var]
            return
        self.time = min(self.watermarks)  # type: ignore[type-var]
        due = sorted((r for r in self.left if r[1] <= self.time), key=lambda r: r[1])
        self.left = [r for r in self.left if r[1] > self.time]
        for row in due:
            known = [t for t in self.versions.get(row[0], {}) if t <= row[1]]
            self.emit(row, self.versions[row[0]][max(known)] if known else None)
        for versions in self.versions.values():
            passed = [t for t in versions if t <= self.time]
            for t in passed:
                if t != max(passed) or versions[t][0] == "-D":
                    del versions[t]


KEYS = st.sampled_from(["a", "b", "c", None])
TIMES = st.one_of(st.integers(0, 60), st.none())
CHANGES = st.sampled_from(["+I", "+U", "-U", "-D"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, 1), st.lists(st.tuples(KEYS, TIMES, st.integers(0, 3), CHANGES), min_size=1, max_size=7)
        ),
        st.tuples(st.integers(0, 1), st.integers(0, 60)),
    ),
    max_size=30,
)


@examples(200)
@given(STEPS, st.booleans(), st.booleans())
def test_each_row_finds_the_version_of_its_time_as_in_the_oracle(steps, outer, with_condition):
    recipe = factory(outer, condition=LeftNotAbove() if with_condition else None)
    oracle = Oracle(outer, (lambda a, b: a[2] <= b[2]) if with_condition else (lambda a, b: True))
    with harness(recipe) as join:
        reached = [-1, -1]
        for side, step in steps:
            if isinstance(step, int):
                if step > reached[side]:
                    reached[side] = step
                    join.watermark(step, side)
                    oracle.watermark(side, step)
                continue
            rows = [(k, t, v) for k, t, v, _ in step]
            kinds = [kind for *_, kind in step]
            push(join, side, rows, kinds if side == 1 else None)
            for row, kind in zip(rows, kinds, strict=True):
                oracle.row(side, row, kind)
        join.end_input()
        for side in (0, 1):
            oracle.watermark(side, 10**12)
        assert Counter(results(join)) == Counter(oracle.out)
        times = [t for e in join.elements if isinstance(e, RecordBatch) for t in e.timestamps.to_pylist()]
        assert len(times) == len(oracle.out)


def test_rows_come_out_in_order_of_time_when_the_watermark_passes_them():
    with harness(factory()) as join:
        push(join, 1, [("a", 10, 1), ("a", 20, 2), ("b", 5, 7)])
        push(join, 0, [("a", 25, 1), ("b", 19, 2), ("a", 19, 3), ("a", 40, 4)])
        join.watermark(30, 0)
        assert results(join) == []
        join.watermark(35, 1)
        assert results(join) == [
            ("b", 19, 2, "b", 5, 7),
            ("a", 19, 3, "a", 10, 1),
            ("a", 25, 1, "a", 20, 2),
        ]
        assert join.timestamps() == [19, 19, 25]
        assert isinstance(join.elements[-1], Watermark)
        assert join.watermarks() == [30]
        join.end_input()
        assert results(join)[3:] == [("a", 40, 4, "a", 20, 2)]
        assert join.watermarks()[-1] == MAX_TIMESTAMP


@pytest.mark.parametrize("late", [False, True])
def test_a_version_holds_from_its_own_time_on(late):
    with harness(factory(True)) as join:
        push(join, 1, [("a", 10, 1)])
        if late:
            for side in (0, 1):
                join.watermark(10, side)
            join.clear()
        push(join, 0, [("a", 9, 1), ("a", 10, 2), ("a", 11, 3)])
        for side in (0, 1):
            join.watermark(11, side)
        assert sorted((r[2], r[5]) for r in results(join)) == [(1, None), (2, 1), (3, 1)]


def test_an_update_is_one_version_and_a_deletion_ends_it():
    with harness(factory(True)) as join:
        push(join, 1, [("a", 10, 1), ("a", 10, 1), ("a", 20, 2), ("a", 30, 2)], ["+I", "-U", "+U", "-D"])
        push(join, 0, [("a", t, 0) for t in (9, 10, 20, 29, 30)])
        join.end_input()
        assert [r[5] for r in results(join)] == [None, 1, 2, 2, None]


def test_a_bounded_table_on_the_right_does_not_hold_rows_back():
    with harness(factory()) as join:
        push(join, 1, [("a", 10, 1)])
        join.end_input(1)
        push(join, 0, [("a", 15, 1)])
        join.watermark(15, 0)
        assert results(join) == [("a", 15, 1, "a", 10, 1)]


def test_only_the_newest_passed_version_is_kept():
    with harness(factory()) as join:
        push(join, 1, [("a", t, t) for t in range(100)] + [("b", 3, 3)])
        for side in (0, 1):
            join.watermark(50, side)
        assert join.snapshot().keyed["versions"].num_rows == 51  # of `a` those from 50 to 99, and `b`
        push(join, 1, [("b", 51, 3)], ["-D"])
        for side in (0, 1):
            join.watermark(200, side)
        assert join.snapshot().keyed["versions"].num_rows == 1


@pytest.mark.parametrize("outer", [False, True])
def test_complete_streams_join_as_in_duckdbs_asof_join(outer):
    random = np.random.default_rng(3)
    names = [f"k{i}" for i in range(30)]
    right_times = random.permutation(20_000)[:2_000].tolist()
    sides = [
        [
            (names[int(k)], int(t), i)
            for i, (k, t) in enumerate(zip(random.integers(0, 30, 3000), random.integers(0, 20_000, 3000), strict=True))
        ],
        [
            (names[int(k)], int(t), i)
            for i, (k, t) in enumerate(zip(random.integers(0, 25, 2000), right_times, strict=True))
        ],
    ]
    with harness(factory(outer)) as join:
        at = [0, 0]
        while any(at[s] < len(sides[s]) for s in (0, 1)):
            side = int(random.integers(0, 2))
            rows = sides[side][at[side] : at[side] + int(random.integers(1, 300))]
            at[side] += len(rows)
            if rows:
                push(join, side, rows)
        join.end_input()
        got = Counter(results(join))
    with duckdb.connect() as connection:
        connection.register("l", pa.Table.from_batches([rows_batch(LEFT, sides[0])]))
        connection.register("r", pa.Table.from_batches([rows_batch(RIGHT, sides[1])]))
        expected = connection.execute(
            f"SELECT k, epoch_ms(t), v, k2, epoch_ms(t2), w FROM l ASOF {'LEFT' if outer else 'INNER'} JOIN r"
            " ON k = k2 AND t >= t2"
        ).fetchall()
    assert got == Counter(expected)


# -- processing time -----------------------------------------------------------------------------------------------------------


def test_in_processing_time_rows_find_what_holds_when_they_come():
    recipe = factory(True, right_time=None, domain=TimeDomain.PROCESSING)
    with harness(recipe) as join:
        push(join, 0, [("a", 1, 1)])
        push(join, 1, [("a", 1, 1), ("b", 1, 2), ("a", 1, 3), (None, 1, 4)], ["+I", "+I", "+U", "+I"])
        push(join, 0, [("a", 2, 2), ("b", 2, 3), (None, 2, 4)], ["+I", "-U", "+U"])
        push(join, 1, [("b", 1, 2)], ["-D"])
        push(join, 0, [("b", 3, 5)])
        assert [(kind, r[2], r[5]) for kind, r in join.changes()] == [
            ("+I", 1, None),
            ("+I", 2, 3),
            ("-U", 3, 2),
            ("+U", 4, None),
            ("+I", 5, None),
        ]
        snapshot = stored(taken(join))
    with OperatorHarness.restore(recipe, [snapshot], schema=(LEFT, RIGHT), inputs=2) as restored:
        push(restored, 0, [("a", 4, 6), ("b", 4, 7)])
        assert [r[5] for r in results(restored)] == [3, None]


# -- recovery ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_one_run_after_recovery_at_other_parallelisms(seed):
    random = np.random.default_rng(seed)
    recipe = factory(seed % 2 == 0, condition=LeftNotAbove())
    oracle = Oracle(recipe.outer, lambda a, b: a[2] <= b[2])
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
            kinds = random.choice(["+I", "+U", "-U", "-D"], len(rows), p=[0.4, 0.4, 0.1, 0.1]).tolist()
            for join in subtasks:
                push(join, side, rows, kinds if side else None)
            for row, kind in zip(rows, kinds, strict=True):
                oracle.row(side, row, kind)
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
        oracle.watermark(s, 10**12)
    assert got == Counter(oracle.out)


@pytest.mark.parametrize("domain", list(TimeDomain))
def test_a_factory_says_what_its_operators_write(domain):
    recipe = factory(domain=domain)
    with harness(recipe) as join:
        push(join, 0, [("a", 1, 1)])
        push(join, 1, [("a", 1, 1)])
        tables = join.snapshot().keyed
        assert set(tables) == set(recipe.state_schemas())
        assert all(tables[n].schema.equals(s) for n, s in recipe.state_schemas().items())
        for name, texts in state_meanings(recipe).items():
            assert set(texts) <= set(tables[name].schema.names)
