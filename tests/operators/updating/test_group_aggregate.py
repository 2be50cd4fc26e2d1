"""The updating group aggregation against a row-at-a-time oracle: results after every batch, number of changes, recovery."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, decimal
from flowrun.errors import DataError
from flowrun.operators.updating.factories import GroupAggregateFactory, LocalGroupAggregateFactory
from flowrun.operators.updating.group_aggregate import UNKNOWN_ROWS_DROPPED
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored, taken
from tests.operators.updating.group_oracle import Change, FoldedChanges, GroupOracle, Row, bound, output_schema

SCHEMA = Schema.of(k=STRING, i=INT, n=BIGINT, d=decimal(10, 2), f=DOUBLE, s=STRING, b=BOOLEAN)

CALLS = [
    bound("COUNT", SCHEMA),
    bound("COUNT", SCHEMA, where="b"),
    bound("COUNT", SCHEMA, "n"),
    bound("COUNT", SCHEMA, "n", distinct=True),
    bound("COUNT", SCHEMA, "s", distinct=True, where="b"),
    bound("SUM", SCHEMA, "i"),
    bound("SUM", SCHEMA, "n", where="b"),
    bound("SUM", SCHEMA, "d"),
    bound("SUM", SCHEMA, "f"),
    bound("SUM", SCHEMA, "n", distinct=True),
    bound("SUM0", SCHEMA, "i"),
    bound("AVG", SCHEMA, "i"),
    bound("AVG", SCHEMA, "d"),
    bound("AVG", SCHEMA, "f", distinct=True),
    bound("MIN", SCHEMA, "n"),
    bound("MAX", SCHEMA, "d", where="b"),
    bound("MIN", SCHEMA, "s"),
    bound("MAX", SCHEMA, "s", distinct=True),
    bound("MAX", SCHEMA, "f"),
    bound("MIN", SCHEMA, "b"),
    bound("VAR_POP", SCHEMA, "f"),
    bound("VAR_SAMP", SCHEMA, "f"),
    bound("STDDEV_POP", SCHEMA, "f"),
    bound("STDDEV_SAMP", SCHEMA, "f"),
    bound("FIRST_VALUE", SCHEMA, "s"),
    bound("LAST_VALUE", SCHEMA, "s"),
    bound("LAST_VALUE", SCHEMA, "n", where="b"),
    bound("FIRST_VALUE", SCHEMA, "d"),
    bound("LISTAGG", SCHEMA, "s"),
    bound("LISTAGG", SCHEMA, "s", distinct=True),
    bound("ARRAY_AGG", SCHEMA, "n"),
    bound("COLLECT", SCHEMA, "s"),
]

ROWS = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([0, 1, -2, None]),
    st.sampled_from([3, 2**40, -5, None]),
    st.sampled_from([Decimal("1.25"), Decimal("-0.50"), None]),
    st.sampled_from([0.5, 2.0, -1.25, None]),
    st.sampled_from(["x", "yy", "", None]),
    st.sampled_from([True, False, None]),
)


@st.composite
def changelogs(draw: st.DrawFn, max_rows: int = 24) -> list[Change]:
    """Changes of which every removal is of a row that is there."""
    held: list[Row] = []
    changes: list[Change] = []
    for _ in range(draw(st.integers(1, max_rows))):
        if held and draw(st.integers(0, 2)) == 0:
            changes.append((False, held.pop(draw(st.integers(0, len(held) - 1)))))
        else:
            row = draw(ROWS)
            held.append(row)
            changes.append((True, row))
    return changes


def cut(draw: st.DrawFn, changes: list[Any]) -> list[list[Any]]:
    """Batches of random sizes."""
    batches = []
    start = 0
    while start < len(changes):
        size = draw(st.integers(1, 9))
        batches.append(changes[start : start + size])
        start += size
    return batches


def batch_of(changes: list[Change]) -> RecordBatch:
    columns = [pa.array([row[i] for _, row in changes], t.arrow) for i, t in enumerate(SCHEMA.types)]
    kinds = pa.array([0 if adds else 3 for adds, _ in changes], pa.int8())
    return RecordBatch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow), row_kinds=kinds)


CALL_LISTS = st.lists(st.sampled_from(CALLS), max_size=6, unique_by=lambda c: c.name)


def factory_of(calls: list[Any], keys: tuple[int, ...] = (0,), **options: Any) -> GroupAggregateFactory:
    return GroupAggregateFactory(keys, tuple(calls), SCHEMA, output_schema(SCHEMA, keys, calls), **options)


@given(st.data(), changelogs(), CALL_LISTS, st.sampled_from([(0,), (0, 1), ()]))
@examples(120)
def test_after_every_batch_the_changes_amount_to_the_result(
    data: st.DataObject, changes: list[Change], calls: list[Any], keys: tuple[int, ...]
) -> None:
    if not calls and not keys:
        return
    harness = OperatorHarness(factory_of(calls, keys, retracting=True), schema=SCHEMA)
    oracle, folded = GroupOracle(keys, calls), FoldedChanges()
    for batch in cut(data.draw, changes):
        harness.push(batch_of(batch))
        for change in batch:
            oracle.apply(change)
        folded.take(harness.elements)
        harness.clear()
        assert folded.rows == oracle.rows()
        assert folded.changes <= oracle.changes


@given(st.data(), st.lists(ROWS, min_size=1, max_size=24), CALL_LISTS)
@examples(80)
def test_rows_that_are_never_retracted_need_less_state_for_the_same(
    data: st.DataObject, rows: list[Row], calls: list[Any]
) -> None:
    harness = OperatorHarness(factory_of(calls), schema=SCHEMA)
    oracle, folded = GroupOracle((0,), calls), FoldedChanges()
    for batch in cut(data.draw, [(True, row) for row in rows]):
        harness.push(RecordBatch(batch_of(batch).columns))
        for change in batch:
            oracle.apply(change)
        folded.take(harness.elements)
        harness.clear()
        assert folded.rows == oracle.rows()
        assert folded.changes <= oracle.changes


@pytest.mark.exhaustive
@given(st.data(), changelogs(), CALL_LISTS, st.booleans(), st.integers(1, 3), st.integers(1, 3))
@examples(80)
def test_state_is_restored_at_any_parallelism(
    data: st.DataObject, changes: list[Change], calls: list[Any], retracting: bool, before: int, after: int
) -> None:
    if not retracting:
        changes = [c for c in changes if c[0]]
    factory = factory_of(calls, retracting=retracting)
    batches = cut(data.draw, changes)
    oracle, folded = GroupOracle((0,), calls), FoldedChanges()
    options: dict[str, Any] = {"schema": SCHEMA, "state_keys": [(0,)]}
    harnesses = [OperatorHarness(factory, subtask=i, parallelism=before, **options) for i in range(before)]
    stop = data.draw(st.integers(0, len(batches)))
    for number, batch in enumerate(batches):
        if number == stop:
            snapshots = [stored(taken(h), seed=number) for h in harnesses]
            harnesses = [
                OperatorHarness.restore(factory, snapshots, subtask=i, parallelism=after, **options)
                for i in range(after)
            ]
        elif data.draw(st.booleans()):
            for harness in harnesses:
                harness.snapshot()
        for harness in harnesses:
            harness.push(batch_of(batch))
            folded.take(harness.elements)
            harness.clear()
        for change in batch:
            oracle.apply(change)
        assert folded.rows == oracle.rows()


MERGEABLE = [c for c in CALLS if not c.kernel.order_sensitive and c.kernel.collect is None]


@pytest.mark.exhaustive
@given(
    st.data(),
    changelogs(),
    st.lists(st.sampled_from(MERGEABLE), max_size=6, unique_by=lambda c: c.name),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(0,), ()]),
)
@examples(120)
def test_a_local_aggregation_changes_no_result(
    data: st.DataObject,
    changes: list[Change],
    calls: list[Any],
    retracting: bool,
    folds: bool,
    keys: tuple[int, ...],
) -> None:
    if not calls and not keys:
        return
    if not retracting:
        changes = [c for c in changes if c[0]]
    local = OperatorHarness(
        LocalGroupAggregateFactory(keys, tuple(calls), SCHEMA, retracting=retracting), schema=SCHEMA
    )
    local.operator._sampler.worthwhile = lambda _: folds
    final = OperatorHarness(factory_of(calls, keys, retracting=retracting, partial_input=True))
    oracle, folded = GroupOracle(keys, calls), FoldedChanges()
    for batch in cut(data.draw, changes):
        local.push(batch_of(batch))
        for sent in local.elements:
            assert isinstance(sent, RecordBatch)
            final.push(sent)
        local.clear()
        for change in batch:
            oracle.apply(change)
        folded.take(final.elements)
        final.clear()
        assert folded.rows == oracle.rows()
        assert folded.changes <= oracle.changes


# ---- stories


SMALL = Schema.of(k=STRING, n=BIGINT)


def small(*calls: Any, keys: tuple[int, ...] = (0,), **options: Any) -> OperatorHarness:
    factory = GroupAggregateFactory(keys, calls, SMALL, output_schema(SMALL, keys, calls), **options)
    return OperatorHarness(pickle.loads(pickle.dumps(factory)), schema=SMALL)


def test_a_batch_is_a_mini_batch_in_order_of_first_touch() -> None:
    harness = small(bound("SUM", SMALL, "n"), retracting=True)
    harness.push({"k": ["b", "a"], "n": [1, 2]})
    assert harness.changes() == [("+I", ("b", 1)), ("+I", ("a", 2))]
    harness.clear()
    harness.push({"k": ["a", "b", "a", "c", "c"], "n": [3, 1, 4, 7, 7]}, row_kinds=[0, 3, 0, 0, 3])
    assert harness.changes() == [("-U", ("a", 2)), ("+U", ("a", 9)), ("-D", ("b", 1))]


def test_what_does_not_change_a_result_sends_nothing() -> None:
    harness = small(bound("MAX", SMALL, "n"))
    harness.push({"k": ["a"], "n": [5]})
    harness.clear()
    harness.push({"k": ["a", "a"], "n": [3, 5]})
    assert harness.changes() == []


def test_distinct_rows_come_once() -> None:
    harness = small(keys=(0, 1), retracting=True)
    harness.push({"k": ["a", "a", None], "n": [1, 1, None]})
    harness.push({"k": ["a", "a"], "n": [1, 1]}, row_kinds=[3, 3])
    assert harness.changes() == [("+I", ("a", 1)), ("+I", (None, None)), ("-D", ("a", 1))]


def test_a_retraction_of_what_was_never_there_is_dropped_and_counted() -> None:
    harness = small(bound("COUNT", SMALL), bound("MAX", SMALL, "n"), retracting=True)
    harness.push({"k": ["a"], "n": [1]}, row_kinds=[3])
    assert harness.changes() == []
    harness.push({"k": ["a", "a"], "n": [1, 2]})
    harness.push({"k": ["a"], "n": [7]}, row_kinds=[1])
    assert harness.changes() == [("+I", ("a", 2, 2)), ("-U", ("a", 2, 2)), ("+U", ("a", 1, 2))]
    assert harness.metrics.count(UNKNOWN_ROWS_DROPPED) == 3  # the row of no group, its value, and 7


def test_a_group_without_keys_appears_with_the_first_row() -> None:
    harness = small(bound("COUNT", SMALL), keys=(), retracting=True)
    assert harness.changes() == []
    harness.push({"k": ["a", "b"], "n": [1, 2]})
    harness.push({"k": ["a", "b"], "n": [1, 2]}, row_kinds=[3, 3])
    assert harness.changes() == [("+I", (2,)), ("-D", (2,))]
    first, second = small(bound("COUNT", SMALL), keys=()), small(bound("COUNT", SMALL), keys=())
    first.push({"k": ["a"], "n": [1]})
    for _ in range(3):
        first.push({"k": ["a"], "n": [1]})
        snapshot = stored(taken(first))
    assert snapshot.keyed["groups"].num_rows == 1
    second = OperatorHarness.restore(
        GroupAggregateFactory((), (bound("COUNT", SMALL),), SMALL, output_schema(SMALL, (), [bound("COUNT", SMALL)])),
        [snapshot],
        schema=SMALL,
    )
    second.push({"k": ["x"], "n": [1]})
    assert second.changes() == [("-U", (4,)), ("+U", (5,))]


def test_tables_without_rows_need_not_be_in_what_is_restored() -> None:
    calls = (bound("COUNT", SMALL), bound("COUNT", SMALL, "n", distinct=True))
    harness = small(*calls)
    harness.push({"k": ["a"], "n": [None]})
    snapshot = stored(taken(harness))
    kept = {name: table for name, table in snapshot.keyed.items() if table.num_rows}
    assert len(kept) < len(snapshot.keyed)
    factory = GroupAggregateFactory((0,), calls, SMALL, output_schema(SMALL, (0,), calls))
    restored = OperatorHarness.restore(factory, [replace(snapshot, keyed=kept)], schema=SMALL)
    restored.push({"k": ["a"], "n": [5]})
    assert restored.changes() == [("-U", ("a", 1, 0)), ("+U", ("a", 2, 1))]


def test_sums_of_bigints_fail_only_if_the_result_does_not_fit() -> None:
    big = 2**62
    harness = small(bound("SUM", SMALL, "n"), retracting=True)
    harness.push({"k": ["a", "a", "a"], "n": [big, big, -big]})
    harness.push({"k": ["a", "a"], "n": [-big, big]}, row_kinds=[3, 3])
    harness.push({"k": ["a"], "n": [1]})
    assert harness.changes()[-1] == ("+U", ("a", big + 1))
    with pytest.raises(DataError, match=r"SUM AS SUM_n_None_False: the sum does not fit BIGINT"):
        harness.push({"k": ["a"], "n": [big]})


@pytest.mark.parametrize("other", ["COUNT", "FIRST_VALUE"])
def test_a_sum_that_does_not_fit_names_the_last_row_of_its_group(other: str) -> None:
    schema = Schema.of(k=STRING, n=INT)
    calls = (bound(other, schema, "n"), bound("SUM", schema, "n"))
    factory = GroupAggregateFactory((0,), calls, schema, output_schema(schema, (0,), calls), retracting=True)
    harness = OperatorHarness(factory, schema=schema)
    harness.push({"k": ["a", "b"], "n": [1, 2**31 - 1]})
    with pytest.raises(DataError, match="does not fit into INT") as raised:
        harness.push({"k": ["c", "a", "b", "b", "a"], "n": [1, 1, 0, 1, 1]})
    assert raised.value.row == 3


def test_sums_of_decimals_fail_beyond_38_digits() -> None:
    schema = Schema.of(k=STRING, n=decimal(38, 0))
    calls = (bound("SUM", schema, "n"),)
    factory = GroupAggregateFactory((0,), calls, schema, output_schema(schema, (0,), calls), retracting=True)
    harness = OperatorHarness(factory, schema=schema)
    most = Decimal(10**38 - 1)
    harness.push({"k": ["a", "b"], "n": [most, Decimal(1 - 10**38)]})
    harness.push({"k": ["a", "a"], "n": [most, Decimal(10**38 - 2)]}, row_kinds=[3, 0])
    assert harness.changes()[-1] == ("+U", ("a", Decimal(10**38 - 2)))
    for key, more in (("a", 5), ("b", -5)):
        with pytest.raises(DataError, match=r"the sum does not fit DECIMAL\(38, 0\)"):
            harness.push({"k": [key], "n": [Decimal(more)]})


def narrow(accumulators: Sequence[pa.Array], result: DataType) -> pa.Array:
    return accumulators[0].cast(pa.int32())


def narrow_length(values: pa.ListArray, result: DataType) -> pa.Array:
    return pc.list_value_length(values)


@pytest.mark.parametrize(
    ("function", "change"), [("COUNT", {"finish": narrow}), ("ARRAY_AGG", {"collect": narrow_length})]
)
def test_a_result_has_its_declared_type_whatever_the_kernel_gives(function: str, change: dict[str, Any]) -> None:
    call = bound(function, SMALL, "n")
    harness = small(replace(call, kernel=replace(call.kernel, result=BIGINT, **change)), retracting=True)
    harness.push({"k": ["a", "a"], "n": [5, 6]})
    assert harness.changes() == [("+I", ("a", 2))]
    (sent,) = (e for e in harness.elements if isinstance(e, RecordBatch))
    assert sent.columns.schema.types == [pa.string(), pa.int64()]


def test_floating_point_sums_lose_what_was_taken_back() -> None:
    schema = Schema.of(k=STRING, n=DOUBLE)
    calls = (bound("SUM", schema, "n"),)
    factory = GroupAggregateFactory((0,), calls, schema, output_schema(schema, (0,), calls), retracting=True)
    harness = OperatorHarness(factory, schema=schema)
    harness.push({"k": ["a"], "n": [0.1]})
    harness.push({"k": ["a"], "n": [1e17]})
    harness.push({"k": ["a"], "n": [1e17]}, row_kinds=[3])
    assert harness.changes()[-1] == ("+U", ("a", 0.1))


def test_the_extreme_of_a_big_group_is_looked_up_when_it_leaves() -> None:
    harness = small(bound("MIN", SMALL, "n"), bound("MAX", SMALL, "n"), retracting=True)
    harness.push({"k": ["a"] * 1000, "n": list(range(1000))})
    for gone in range(3):
        harness.push({"k": ["a", "a"], "n": [gone, 999 - gone]}, row_kinds=[3, 3])
    assert harness.changes()[-1] == ("+U", ("a", 3, 996))


@pytest.mark.exhaustive
def test_values_that_come_and_go_for_ever_take_no_room() -> None:
    harness = small(
        bound("MAX", SMALL, "n"), bound("FIRST_VALUE", SMALL, "n"), bound("MIN", SMALL, "k"), retracting=True
    )
    step = 40_000
    for start in range(0, 12 * step, step):
        rows = {"k": ["a"] * step, "n": list(range(start, start + step))}
        harness.push(rows)
        harness.push(rows, row_kinds=[3] * step)
        harness.snapshot()
    harness.push({"k": [f"k{i}" for i in range(200_000)], "n": [1] * 200_000})
    harness.push({"k": [f"k{i}" for i in range(1, 200_000)], "n": [1] * 199_999}, row_kinds=[3] * 199_999)
    harness.push({"k": ["k0"], "n": [2]})
    harness.clear()
    harness.push({"k": ["k0", "k0"], "n": [2, 1]}, row_kinds=[3, 3])
    assert harness.changes() == [("-D", ("k0", 2, 1, "k0"))]
    snapshot = stored(taken(harness))
    assert {n: t.num_rows for n, t in snapshot.keyed.items()} == dict.fromkeys(snapshot.keyed, 0)
    assert len(harness.operator._state._groups) < 100_000
    assert len(harness.operator._state._sets[0]._table) < 100_000


@pytest.mark.parametrize("retracting", [True, False])
def test_of_two_lists_of_the_same_distinct_values_only_the_one_that_keeps_nulls_has_them(retracting: bool) -> None:
    lists = (bound("ARRAY_AGG", SMALL, "k", distinct=True), bound("LISTAGG", SMALL, "k", distinct=True))
    harness = small(*lists, keys=(1,), retracting=retracting)
    harness.push({"k": ["x", None, "y", "x", None], "n": [1] * 5})
    assert harness.changes() == [("+I", (1, ["x", None, "y"], "x,y"))]
    harness.clear()
    if retracting:
        harness.push({"k": ["z", None, "x", None, "x"], "n": [1] * 5}, row_kinds=[0, 3, 3, 3, 3])
        assert harness.changes()[-1] == ("+U", (1, ["y", "z"], "y,z"))
    else:
        harness.push({"k": [None, "z"], "n": [1] * 2})
        assert harness.changes()[-1] == ("+U", (1, ["x", None, "y", "z"], "x,y,z"))


def test_a_distinct_value_that_leaves_and_comes_again_is_listed_last() -> None:
    harness = small(bound("LISTAGG", SMALL, "k", distinct=True), keys=(), retracting=True)
    harness.push({"k": ["x", "y", "y"], "n": [1, 1, 1]})
    harness.push({"k": ["x", "y", "x"], "n": [1, 1, 1]}, row_kinds=[3, 3, 0])
    assert harness.changes() == [("+I", ("x,y",)), ("-U", ("x,y",)), ("+U", ("y,x",))]


# ---- time to live


def test_a_group_that_gets_no_rows_for_so_long_begins_anew() -> None:
    harness = small(bound("SUM", SMALL, "n"), bound("COUNT", SMALL, "n", distinct=True), ttl_ms=1000)
    harness.push({"k": ["a", "b"], "n": [1, 1]})
    harness.advance_processing_time(600)
    harness.push({"k": ["a"], "n": [1]})
    harness.advance_processing_time(600)
    harness.clear()
    harness.push({"k": ["a", "b"], "n": [1, 1]})
    assert harness.changes() == [("-U", ("a", 2, 1)), ("+U", ("a", 3, 1)), ("+I", ("b", 1, 1))]


def test_a_group_that_ends_with_its_time_to_live_leaves_the_others_as_they_are() -> None:
    harness = small(bound("SUM", SMALL, "n"), ttl_ms=1000)
    harness.push({"k": ["a"], "n": [1]})
    harness.advance_processing_time(99)  # groups are looked through now and then from the first row on, and not at 1099
    harness.push({"k": ["b"], "n": [1]})
    harness.advance_processing_time(301)
    harness.push({"k": ["a"], "n": [1]})
    harness.advance_processing_time(699)
    harness.clear()
    harness.push({"k": ["b", "a"], "n": [1, 1]})
    assert sorted(harness.changes()) == [("+I", ("b", 1)), ("+U", ("a", 3)), ("-U", ("a", 2))]


@pytest.mark.parametrize(("waited_ms", "known"), [(999, True), (1000, False)])
def test_a_group_lives_until_its_time_to_live_has_passed(waited_ms: int, known: bool) -> None:
    calls = (bound("SUM", SMALL, "n"),)
    factory = GroupAggregateFactory((0,), calls, SMALL, output_schema(SMALL, (0,), calls), ttl_ms=1000)
    harness = OperatorHarness(factory, schema=SMALL)
    harness.push({"k": ["a"], "n": [1]})
    harness.advance_processing_time(waited_ms)
    restored = OperatorHarness.restore(factory, [stored(taken(harness))], schema=SMALL, clock=harness.clock)
    for running in (harness, restored):
        running.clear()
        running.push({"k": ["a"], "n": [1]})
        assert running.changes() == ([("-U", ("a", 1)), ("+U", ("a", 2))] if known else [("+I", ("a", 1))])


def test_an_equal_result_is_sent_again_so_that_readers_keep_it() -> None:
    harness = small(bound("MAX", SMALL, "n"), ttl_ms=1000)
    harness.push({"k": ["a"], "n": [1]})
    harness.push({"k": ["a"], "n": [0]})
    assert harness.changes() == [("+I", ("a", 1)), ("-U", ("a", 1)), ("+U", ("a", 1))]
    distinct = small(ttl_ms=1000)
    distinct.push({"k": ["a"], "n": [1]})
    distinct.push({"k": ["a"], "n": [1]})
    assert distinct.changes() == [("+I", ("a",))]


def test_keys_that_never_come_again_are_swept_away_also_after_a_restore() -> None:
    calls = (bound("MAX", SMALL, "n"), bound("LISTAGG", SMALL, "k"))
    factory = GroupAggregateFactory((0,), calls, SMALL, output_schema(SMALL, (0,), calls), ttl_ms=1000, retracting=True)
    harness = OperatorHarness(factory, schema=SMALL)
    harness.push({"k": ["a", "b"], "n": [1, 1]})
    harness.advance_processing_time(900)
    snapshot = stored(taken(harness))
    restored = OperatorHarness.restore(factory, [snapshot], schema=SMALL, clock=harness.clock)
    for running in (harness, restored):
        running.push({"k": ["b"], "n": [2]})
        running.clear()
    harness.advance_processing_time(700)
    restored.advance_processing_time(0)
    for running in (harness, restored):
        assert len(running.operator._state) == 1
        assert running.changes() == []
        assert {n: t.num_rows for n, t in stored(taken(running)).keyed.items()} == {
            "groups": 1, "values_n": 2, "list_k": 2
        }  # fmt: skip


# ---- snapshots


def test_a_snapshot_holds_what_was_true_when_it_was_taken() -> None:
    calls = (bound("SUM", SMALL, "n"), bound("MAX", SMALL, "k"), bound("COUNT", SMALL, "n", distinct=True))
    factory = GroupAggregateFactory((0,), calls, SMALL, output_schema(SMALL, (0,), calls), retracting=True)
    harness = OperatorHarness(factory, schema=SMALL)
    harness.push({"k": ["a", "b"], "n": [1, 1]})
    first = taken(harness, 1)
    for n in range(300):
        harness.push({"k": ["a", f"c{n}"], "n": [n, n]})
    harness.push({"k": ["b"], "n": [1]}, row_kinds=[3])
    second = taken(harness, 2)
    harness.push({"k": ["a"], "n": [9]})
    found = {row["k"]: row["sum_n"] for row in stored(first).keyed["groups"].to_pylist()}
    assert found == {"a": 1, "b": 1}
    later = {row["k"]: row["sum_n"] for row in stored(second).keyed["groups"].to_pylist()}
    assert len(later) == 301
    assert later["a"] == 1 + sum(range(300))
    assert "b" not in later
    assert Counter(r["k"] for r in stored(second).keyed["values_n"].to_pylist())["a"] == 300


def test_what_has_not_changed_is_not_written_again() -> None:
    harness = small(bound("SUM", SMALL, "n"))
    harness.push({"k": [f"k{i}" for i in range(1000)], "n": [1] * 1000})
    before = taken(harness, 1).segmented["groups"].segments
    harness.push({"k": ["k7"], "n": [1]})
    after = taken(harness, 2).segmented["groups"].segments
    assert after[: len(before)] == before
    assert [s.rows().num_rows for s in after[len(before) :]] == [1]
    assert taken(harness, 3).segmented["groups"].segments == after
