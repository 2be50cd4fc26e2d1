"""What every window operator promises of its state: declared tables, segments that never change, and going on at any parallelism."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.operator import DescribesState
from flowrun.api.state import DELETED_COLUMN, KEY_COLUMNS_METADATA, OperatorSnapshot
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import BIGINT, DOUBLE
from flowrun.errors import StateError
from flowrun.operators.timed.assigners import CumulativeSlices, SlidingSlices, TumblingSlices
from flowrun.operators.windows.counts.factories import CountWindowFactory, GlobalWindowFactory
from flowrun.operators.windows.general.evictors import CountEvictor
from flowrun.operators.windows.general.factories import GeneralWindowFactory, GlobalAssigner, SessionAssigner
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.operators.windows.slices.factories import SliceWindowFactory
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored, taken, whole
from tests.operators.windows.general_streams import unbounded_schema
from tests.operators.windows.kernels import bound
from tests.operators.windows.streams import EVERYTHING, INPUT, LATE, drive, output_schema, plain, random_events
from tests.slices import everyday

SIMPLE = (bound("n", "COUNT(*)"), bound("total", "SUM", 2))


def recipes(keys: tuple[int, ...], aggregates: Sequence[Any] = EVERYTHING) -> dict[str, Any]:
    """One factory of every kind of window, with all kinds of aggregates."""
    aggs = tuple(aggregates)
    timed, untimed = output_schema(keys, aggs), unbounded_schema(keys, aggs)
    late: dict[str, Any] = {"allowed_lateness_ms": 7, "late_tag": LATE}
    every, counting, buffered = TriggerRule(every_ms=9), TriggerRule(count=3), TriggerRule(delta=2, threshold=3.0)
    return {
        "tumbling": SliceWindowFactory(keys, aggs, TumblingSlices(10), INPUT, timed, **late),
        "sliding": SliceWindowFactory(keys, aggs, SlidingSlices(20, 5), INPUT, timed, **late),
        "cumulative": SliceWindowFactory(keys, aggs, CumulativeSlices(20, 5), INPUT, timed),
        "session": SessionWindowFactory(keys, aggs, 4, INPUT, timed, **late),
        "count": CountWindowFactory(keys, aggs, 3, 3, INPUT, untimed),
        "sliding count": CountWindowFactory(keys, aggs, 6, 4, INPUT, untimed),
        "global": GlobalWindowFactory(keys, aggs, INPUT, untimed),
        "global by count": GlobalWindowFactory(keys, aggs, INPUT, untimed, rule=counting),
        "global by time": GlobalWindowFactory(keys, aggs, INPUT, untimed, rule=every),
        "general": GeneralWindowFactory(keys, aggs, SlidingSlices(12, 6), INPUT, timed, rule=buffered, **late),
        "general session": GeneralWindowFactory(keys, aggs, SessionAssigner(4), INPUT, timed, rule=every, **late),
        "general global": GeneralWindowFactory(
            keys, aggs, GlobalAssigner(), INPUT, untimed, rule=buffered, evictor=CountEvictor(4)
        ),
    }


KINDS = sorted(recipes((0,)))


def harness_of(factory: Any, **options: Any) -> OperatorHarness:
    return OperatorHarness(factory, schema=INPUT, **options)


def declared(snapshot: OperatorSnapshot) -> dict[str, pa.Schema]:
    schemas = {name: table.schema for name, table in snapshot.keyed.items()}
    for name, table in snapshot.segmented.items():
        has_marks = table.key is not None
        assert has_marks == (table.schema.names[-1] == DELETED_COLUMN)
        schemas[name] = table.schema.remove(len(table.schema) - 1) if has_marks else table.schema
    return schemas


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", [(0,), (1, 0), ()], ids=str)
def test_the_tables_are_those_that_the_recipe_declares_also_without_rows(kind: str, keys: tuple[int, ...]) -> None:
    factory = recipes(keys)[kind]
    assert isinstance(factory, DescribesState)
    schemas = dict(pickle.loads(pickle.dumps(factory)).state_schemas())
    harness = harness_of(factory)
    for events in ([], random_events(60, 5)[:-1]):
        drive(harness, events, 7)
        snapshot = taken(harness)
        assert declared(snapshot) == schemas
        assert {n: t.schema for n, t in stored(snapshot).keyed.items()} == schemas
    assert all(s.metadata[KEY_COLUMNS_METADATA] == str(len(keys)).encode() for s in schemas.values())


@pytest.mark.parametrize("kind", everyday(KINDS, 2))
def test_what_a_snapshot_names_does_not_change_whatever_comes_after_it(kind: str) -> None:
    events = random_events(200, 3)[:-1]
    harness = harness_of(recipes((0, 1))[kind])
    seen_before: list[tuple[OperatorSnapshot, dict[str, Any]]] = []
    for start in range(0, len(events), 40):
        drive(harness, events[start : start + 40], 7)
        snapshot = taken(harness)
        seen_before.append((snapshot, contents(stored(snapshot))))
        later = taken(harness)
        assert contents(stored(later)) == seen_before[-1][1], "nothing came in between"
    harness.end_input()
    for snapshot, seen in seen_before:
        assert contents(stored(snapshot)) == seen


def contents(snapshot: OperatorSnapshot) -> dict[str, list[str]]:
    return {name: sorted(map(repr, table.to_pylist())) for name, table in snapshot.keyed.items()}


@pytest.mark.parametrize("kind", everyday(KINDS, 2))
@pytest.mark.parametrize("widths", everyday([[1, 3], [3, 2]], 2), ids=str)
def test_restored_twice_on_the_way_it_gives_what_it_gives_uninterrupted(kind: str, widths: list[int]) -> None:
    events = random_events(200, 17)
    parts = [events[:70], events[70:150], events[150:]]
    assert outcome(recipes((0, 1))[kind], parts, [*widths, 2]) == uninterrupted(kind)


@functools.cache
def uninterrupted(kind: str) -> list[str]:
    return outcome(recipes((0, 1))[kind], [random_events(200, 17)], [1])


def outcome(factory: Any, parts: Sequence[Sequence[Any]], widths: Sequence[int]) -> list[str]:
    """All rows, late ones too, of a job that is restored from its state between the parts at other parallelisms."""
    rows: list[str] = []
    snapshots: list[OperatorSnapshot] = []
    for run, (events, width) in enumerate(zip(parts, widths, strict=True)):
        options: dict[str, Any] = {"schema": INPUT, "state_keys": [[0, 1]], "parallelism": width}
        harnesses = [
            OperatorHarness.restore(factory, snapshots, subtask=i, **options)
            if run
            else OperatorHarness(factory, subtask=i, **options)
            for i in range(width)
        ]
        for harness in harnesses:
            for batch in batches(events):
                if isinstance(batch, int):
                    harness.watermark(batch)
                else:
                    columns = {f.name: [r[i] for r, _ in batch] for i, f in enumerate(INPUT)}
                    harness.push(columns, timestamps=[t for _, t in batch])
        snapshots = [stored(h.snapshot(), seed=run) for h in harnesses]
        for harness in harnesses:
            rows += [f"row {r}" for r in plain(harness.rows())]
            rows += [f"late {r}" for r in harness.side_rows(LATE)]
            harness.close()
    return sorted(rows)


def batches(events: Sequence[Any]) -> list[Any]:
    cut: list[Any] = []
    for event in events:
        if isinstance(event, int):
            cut.append(event)
        elif cut and isinstance(cut[-1], list) and len(cut[-1]) < 7:
            cut[-1].append(event)
        else:
            cut.append([event])
    return cut


@pytest.mark.parametrize("kind", ["tumbling", "session", "count", "global", "global by time"])
def test_another_order_of_the_aggregates_and_an_added_one_go_on_with_the_old_state(kind: str) -> None:
    least, most = bound("least", "MIN", 2), bound("most", "MAX", 2)
    old = harness_of(recipes((0,), (least, most))[kind])
    rows = [(("a", 1, v, "x", True), t) for v, t in ((5, 1), (9, 2))]
    drive(old, rows, 7)
    changed = recipes((0,), (most, bound("n", "COUNT(*)"), least, bound("unlike", "COUNT", 2, distinct=True)))[kind]
    restored = migrated(stored(old.snapshot()), changed.state_schemas())
    new = OperatorHarness.restore(changed, [restored], schema=INPUT)
    log = drive(new, [(("a", 1, 7, "x", True), 3), MAX_TIMESTAMP], 7)
    results = [row[-4:] for _, rows in log for row in rows]
    assert results == [(9, 1, 5, 1)], "greatest and least of all rows, the added aggregates of those that came since"


def migrated(snapshot: OperatorSnapshot, schemas: Any) -> OperatorSnapshot:
    """The old tables with the columns that they lack, all NULL."""
    keyed = {
        name: pa.Table.from_arrays(
            [
                table[f.name] if f.name in table.schema.names else pa.nulls(table.num_rows, f.type)
                for f in schemas[name]
            ],
            schema=schemas[name],
        )
        for name, table in snapshot.keyed.items()
    }
    return OperatorSnapshot(keyed, snapshot.operator)


@pytest.mark.parametrize("kind", KINDS)
def test_state_that_was_made_with_other_keys_is_refused_although_its_columns_fit(kind: str) -> None:
    old = harness_of(recipes((0,), SIMPLE)[kind])
    drive(old, random_events(40, 2)[:-1], 7)
    more = recipes((0, 1), SIMPLE)[kind]
    with pytest.raises(StateError, match="was written with other keys"):
        OperatorHarness.restore(more, [migrated(stored(old.snapshot()), more.state_schemas())], schema=INPUT)


def test_a_nullable_column_added_to_the_input_is_null_in_the_rows_that_a_window_keeps() -> None:
    aggregates = (bound("newest", "LAST_VALUE", 1), bound("n", "COUNT", 2))
    narrow = Schema.of(k=BIGINT, v=BIGINT)
    wide = Schema.of(k=BIGINT, v=BIGINT, added=DOUBLE)
    output = Schema.from_pairs([("k", BIGINT), *((a.name, a.kernel.result) for a in aggregates)])
    old = GeneralWindowFactory(
        (0,), aggregates[:1], GlobalAssigner(), narrow, Schema(output.fields[:2]), rule=TriggerRule(count=3)
    )
    new = replace(old, aggregates=aggregates, input_schema=wide, output_schema=output)
    before = OperatorHarness(old, schema=narrow)
    before.push({"k": [1, 1], "v": [10, 20]}, timestamps=[1, 2])
    state = migrated(stored(before.snapshot()), new.state_schemas())
    after = OperatorHarness.restore(new, [state], schema=wide)
    after.push({"k": [1], "v": [30], "added": [0.5]}, timestamps=[3])
    assert after.rows() == [(1, 30, 1)]


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session", "global"])
def test_processing_time_and_event_time_windows_declare_the_same_state(kind: str) -> None:
    factory = recipes((0,))[kind]
    assert replace(factory, domain=TimeDomain.PROCESSING).state_schemas() == factory.state_schemas()


@pytest.mark.parametrize("kind", ["tumbling", "session", "count", "global"])
def test_where_nothing_came_since_the_last_snapshot_nothing_is_written(kind: str) -> None:
    harness = harness_of(recipes((0,))[kind])
    drive(harness, random_events(60, 5)[:-1], 7)
    first, second = taken(harness), taken(harness)
    for name, table in first.segmented.items():
        assert second.segmented[name].segments == table.segments


def test_rows_that_come_after_a_snapshot_are_all_that_the_next_one_adds() -> None:
    schema = Schema.of(k=BIGINT, v=BIGINT)
    aggregates = (bound("n", "COUNT(*)"), bound("total", "SUM", 1))
    output = output_schema((0,), aggregates, schema)
    factory = SliceWindowFactory((0,), aggregates, TumblingSlices(100), schema, output)
    harness = OperatorHarness(factory, schema=schema)

    def push(start: int, count: int) -> None:
        keys = list(range(start, start + count))
        harness.push({"k": keys, "v": keys}, timestamps=[k % 300 for k in keys])

    for start in range(0, 60_000, 5_000):
        push(start, 5_000)
    before = taken(harness).segmented["partials"]
    assert len(before.segments) == 3, "one for each slice, whatever the number of batches"
    for start in range(60_000, 60_600, 60):
        push(start, 60)
    after = taken(harness).segmented["partials"]
    added = [s for s in after.segments if s not in before.segments]
    assert set(before.segments) < set(after.segments)
    assert sum(s.rows().num_rows for s in added) == 600
    assert sum(s.rows().nbytes for s in added) < 0.05 * whole(after).nbytes
    for _ in range(200):
        push(90_000, 3)
        last = taken(harness).segmented["partials"]
    assert len(last.segments) < 60, "small ones are joined"
    assert whole(last).num_rows == 60_600 + 600
