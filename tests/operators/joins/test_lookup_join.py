"""Lookup joins: results against an oracle, what is asked and cached, retries, and order with several lookups under way."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.lookup import FoundRows, LookupContext
from flowrun.core.elements import ACTIVE, IDLE, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.options import parse_options
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError, OptionError
from flowrun.operators.joins.factories import LookupJoinFactory
from flowrun.operators.joins.lookup_options import LOOKUP_JOIN_OPTIONS, CacheMode, LookupSettings, lookup_settings
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples

INPUT = Schema((Field("k", STRING), Field("v", BIGINT)))
KEYS = Schema((Field("id", STRING),))
TABLE = Schema((Field("id", STRING), Field("w", BIGINT)))
OUTPUT = Schema((*INPUT.fields, Field("w", BIGINT)))
Row = tuple[Any, ...]


@dataclass
class World:
    """The outside system: its rows, what it was asked, and how it misbehaves."""

    rows: dict[str, list[int]] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    failures: list[ConnectorError] = field(default_factory=list)
    gate: threading.Event | None = None
    opened: int = 0
    closed: int = 0


@dataclass
class TableSource:
    """A table in memory that can be asked for rows by id."""

    world: World
    schema: Schema = TABLE
    keys: Schema = KEYS

    def create_lookup(self, context: LookupContext) -> TableLookup:
        return TableLookup(self.world)


class TableLookup:
    def __init__(self, world: World) -> None:
        self.world = world
        self.closed = False

    def open(self) -> None:
        self.world.opened += 1

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        if self.world.gate is not None:
            assert self.world.gate.wait(10)
        names = keys.column(0).to_pylist()
        self.world.asked.append(names)
        if self.world.failures:
            raise self.world.failures.pop(0)
        found = [(i, k, w) for i, k in enumerate(names) for w in self.world.rows.get(k, [])]
        rows = pa.record_batch(
            [pa.array([k for _, k, _ in found], pa.string()), pa.array([w for *_, w in found], pa.int64())],
            schema=TABLE.arrow,
        )
        return FoundRows(rows, np.array([i for i, *_ in found], np.int64))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.world.closed += 1


@dataclass(frozen=True)
class Columns:
    """Some columns of the rows."""

    schema: Schema
    positions: tuple[int, ...]

    def compile(self) -> Any:
        return lambda rows: pa.RecordBatch.from_arrays(
            [rows.column(p) for p in self.positions], schema=self.schema.arrow
        )


@dataclass(frozen=True)
class LeftNotAbove:
    """v ≤ w."""

    def compile(self) -> Any:
        return lambda pairs: pc.less_equal(pairs.column(1), pairs.column(2))


def factory(world: World, **options: Any) -> LookupJoinFactory:
    return LookupJoinFactory(
        source=TableSource(world),
        keys=Columns(KEYS, (0,)),
        projection=Columns(Schema((Field("w", BIGINT),)), (1,)),
        output_schema=OUTPUT,
        table="t",
        **options,
    )


def harness(world: World, **options: Any) -> OperatorHarness:
    return OperatorHarness(factory(world, **options), schema=INPUT)


def push(join: OperatorHarness, *rows: Row, kinds: list[int] | None = None) -> None:
    join.push({"k": [r[0] for r in rows], "v": [r[1] for r in rows]}, [r[1] for r in rows], row_kinds=kinds)


def expected(world: World, rows: list[Row], outer: bool, with_condition: bool) -> list[Row]:
    out: list[Row] = []
    for k, v in rows:
        found = [w for w in world.rows.get(k, []) if not with_condition or v <= w]
        out += [(k, v, w) for w in found] or ([(k, v, None)] if outer else [])
    return out


SETTINGS = st.sampled_from(
    [
        LookupSettings(),
        LookupSettings(CacheMode.FULL),
        LookupSettings(CacheMode.PARTIAL, max_keys=2),
        LookupSettings(CacheMode.PARTIAL, max_keys=3, cache_missing=False),
        LookupSettings(concurrent=True),
        LookupSettings(CacheMode.PARTIAL, max_keys=2, concurrent=True),
    ]
)
ROWS = st.lists(st.tuples(st.one_of(st.none(), st.sampled_from("abcdef")), st.integers(0, 4)), min_size=1, max_size=8)


@examples(150)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.integers(0, 4), max_size=3)),
    st.lists(ROWS, max_size=8),
    st.booleans(),
    st.booleans(),
    SETTINGS,
)
def test_rows_find_what_the_table_has_in_order_whatever_is_cached(table, batches, outer, with_condition, how):
    world = World(table)
    condition = LeftNotAbove() if with_condition else None
    with harness(world, outer=outer, condition=condition, settings=how) as join:
        for i, rows in enumerate(batches):
            push(join, *rows)
            join.watermark(i)
        join.end_input(drain=False)
        every = [row for rows in batches for row in rows]
        assert join.rows() == expected(world, every, outer, with_condition)
        assert join.timestamps() == [v for _, v, _ in join.rows()]
        assert join.watermarks() == list(range(len(batches)))
    assert world.opened == world.closed > 0
    for names in world.asked:
        assert len(names) == len(set(names))
        assert None not in names


def test_a_batch_asks_once_for_each_distinct_key():
    world = World({"a": [1, 2]})
    with harness(world) as join:
        push(join, ("a", 1), ("b", 2), ("a", 3), (None, 4))
        assert world.asked == [["a", "b"]]
        assert join.rows() == [("a", 1, 1), ("a", 1, 2), ("a", 3, 1), ("a", 3, 2)]


def test_a_batch_without_any_key_asks_nothing():
    world = World()
    with harness(world, outer=True) as join:
        push(join, (None, 1))
        assert world.asked == []
        assert join.rows() == [(None, 1, None)]


def test_row_kinds_pass_through_with_each_row_found():
    world = World({"a": [1, 2]})
    with harness(world, outer=True) as join:
        push(join, ("a", 1), ("b", 2), kinds=[1, 2])
        assert [kind for kind, _ in join.changes()] == ["-U", "-U", "+U"]


def test_a_large_result_comes_in_bounded_batches():
    world = World({"a": list(range(50_000))})
    with harness(world, outer=True) as join:
        push(join, ("a", 1), ("b", 2), ("a", 3))
        sizes = [e.num_rows for e in join.elements if isinstance(e, RecordBatch)]
        assert sum(sizes) == 100_001
        assert max(sizes) <= 64 * 1024
        assert join.rows()[50_000] == ("b", 2, None)


# -- caching -------------------------------------------------------------------------------------------------------------------


def test_known_keys_and_known_misses_are_not_asked_for_again():
    world = World({"a": [1]})
    with harness(world, settings=LookupSettings(CacheMode.PARTIAL, max_keys=10)) as join:
        push(join, ("a", 1), ("x", 2))
        push(join, ("x", 3), ("a", 4), ("b", 5))
        assert world.asked == [["a", "x"], ["b"]]
        assert join.metrics.counter("lookupCacheHits").count == 2
        assert join.metrics.counter("lookupCacheMisses").count == 3


def test_misses_are_asked_for_again_if_they_are_not_to_be_cached():
    world = World({"a": [1]})
    how = LookupSettings(CacheMode.PARTIAL, max_keys=10, cache_missing=False)
    with harness(world, settings=how) as join:
        push(join, ("a", 1), ("x", 2))
        push(join, ("a", 1), ("x", 2))
        assert world.asked == [["a", "x"], ["x"]]


def test_entries_expire_after_they_were_written():
    world = World({"a": [1]})
    how = LookupSettings(CacheMode.PARTIAL, expire_after_write_ms=1000)
    with harness(world, settings=how) as join:
        push(join, ("a", 1))
        join.advance_processing_time(999)
        world.rows["a"] = [2]
        push(join, ("a", 2))
        join.advance_processing_time(1)
        push(join, ("a", 3))
        assert join.rows() == [("a", 1, 1), ("a", 2, 1), ("a", 3, 2)]


def test_entries_expire_after_their_last_use():
    world = World({"a": [1]})
    how = LookupSettings(CacheMode.PARTIAL, expire_after_access_ms=1000)
    with harness(world, settings=how) as join:
        for wait in (0, 900, 900, 1000):
            join.advance_processing_time(wait)
            push(join, ("a", 1))
        assert len(world.asked) == 2


def test_the_key_that_was_not_used_for_longest_makes_room():
    world = World({k: [1] for k in "abc"})
    with harness(world, settings=LookupSettings(CacheMode.PARTIAL, max_keys=2)) as join:
        push(join, ("a", 1))
        push(join, ("b", 1))
        push(join, ("a", 1))
        push(join, ("c", 1))  # now one of two is left
        push(join, ("c", 1))
        push(join, ("b", 1))
        assert world.asked == [["a"], ["b"], ["c"], ["b"]]


def test_a_cache_under_churn_stays_small():
    world = World({f"k{i}": [i] for i in range(0, 200_000, 2)})
    with harness(world, outer=True, settings=LookupSettings(CacheMode.PARTIAL, max_keys=1000)) as join:
        for start in range(0, 200_000, 20_000):
            push(join, *((f"k{i}", i) for i in range(start, start + 20_000)))
        assert join.rows() == [(f"k{i}", i, i if i % 2 == 0 else None) for i in range(200_000)]
        assert len(join.operator._cache) <= 1000


# -- failures ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_passing_failure_is_tried_again(concurrent):
    world = World({"a": [1]}, failures=[ConnectorError("busy", retryable=True)] * 2)
    with harness(world, settings=LookupSettings(concurrent=concurrent)) as join:
        push(join, ("a", 1))
        join.end_input()
        assert join.rows() == [("a", 1, 1)]
        assert join.clock.now_ms() >= 1_000


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_lasting_failure_names_the_table(concurrent):
    failures = [ConnectorError("busy", retryable=True)] * 9
    world = World(failures=failures)

    def run() -> None:
        with harness(world, settings=LookupSettings(max_retries=2, concurrent=concurrent)) as join:
            push(join, ("a", 1))
            join.end_input()

    with pytest.raises(ConnectorError, match="lookup in 't': busy"):
        run()
    assert world.closed == world.opened


def test_a_failure_that_will_not_pass_is_not_tried_again():
    world = World(failures=[ConnectorError("no such table")])
    with harness(world) as join, pytest.raises(ConnectorError, match="no such table"):
        push(join, ("a", 1))
    assert len(world.asked) == 1


# -- several lookups under way -------------------------------------------------------------------------------------------------


def test_everything_leaves_in_the_order_in_which_it_came():
    world = World({"a": [1]}, gate=threading.Event())
    with harness(world, settings=LookupSettings(CacheMode.FULL, concurrent=True)) as join:
        push(join, ("a", 1))
        join.watermark(5)
        push(join, (None, 6))  # needs no answer, and waits all the same
        join.idle()
        join.active()
        assert join.elements == []
        world.gate.set()
        join.end_input(drain=False)
        kinds = [type(e) for e in join.elements]
        assert kinds == [RecordBatch, Watermark, WatermarkStatus, WatermarkStatus]
        assert [e for e in join.elements if isinstance(e, WatermarkStatus)] == [IDLE, ACTIVE]


def test_a_snapshot_is_taken_when_nothing_is_under_way():
    world = World({"a": [1]}, gate=threading.Event())
    with harness(world, settings=LookupSettings(concurrent=True)) as join:
        push(join, ("a", 1))
        world.gate.set()
        snapshot = join.snapshot()
        assert join.rows() == [("a", 1, 1)]
        assert snapshot.is_empty


# -- options -------------------------------------------------------------------------------------------------------------------


def settings_of(**given: str) -> LookupSettings:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in given.items()}
    options, problems = parse_options(LOOKUP_JOIN_OPTIONS, named, "table 't'")
    assert not problems
    return lookup_settings(options)


def test_options_are_those_of_flink():
    assert settings_of() == LookupSettings()
    assert settings_of(
        lookup__cache="PARTIAL",
        lookup__partial_cache__max_rows="500",
        lookup__partial_cache__expire_after_write="10 min",
        lookup__partial_cache__cache_missing_key="false",
        lookup__max_retries="5",
        lookup__async="true",
    ) == LookupSettings(CacheMode.PARTIAL, 500, 600_000, None, False, 5, True)
    full = settings_of(lookup__cache="FULL", lookup__full_cache__periodic_reload__interval="1 h")
    assert full == replace(LookupSettings(CacheMode.FULL), expire_after_write_ms=3_600_000)


def test_a_partial_cache_needs_a_limit_and_limits_need_a_partial_cache():
    with pytest.raises(OptionError, match="grow without end"):
        settings_of(lookup__cache="PARTIAL")
    with pytest.raises(OptionError, match="which is 'NONE'"):
        settings_of(lookup__partial_cache__max_rows="5")
