"""What subtasks get back of the snapshots of others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowrun.api.state import (
    KeyGroupRange,
    OperatorSnapshot,
    OperatorState,
    Redistribution,
    SegmentedTable,
    StateSegment,
    keyed_schema,
)
from flowrun.errors import StateError
from flowrun.state.redistribution import materialised, redistribute

LOG = keyed_schema([pa.field("k", pa.string())], [pa.field("v", pa.int64()), pa.field("__deleted", pa.bool_())])
BAG = keyed_schema([pa.field("k", pa.string())], [pa.field("v", pa.int64())])


def segment(schema: pa.Schema, *rows: tuple[object, ...]) -> StateSegment:
    table = pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema=schema)
    return StateSegment(lambda: table)


def test_a_log_restores_the_newest_rows_without_deleted_ones() -> None:
    log = SegmentedTable(
        LOG,
        (
            segment(LOG, (0, "a", 1, False), (1, "b", 2, False), (1, "c", 3, False)),
            segment(LOG, (1, "b", None, True), (0, "a", 10, False)),
            segment(LOG, (1, "d", 4, False)),
        ),
        ("k",),
    )
    restored = materialised(OperatorSnapshot(segmented={"log": log}))
    assert restored.segmented == {}
    assert restored.keyed["log"].schema.names == ["__key_group", "k", "v"]
    assert sorted(zip(*restored.keyed["log"].to_pydict().values(), strict=True)) == [
        (0, "a", 10),
        (1, "c", 3),
        (1, "d", 4),
    ]


def test_a_bag_restores_all_rows() -> None:
    bag = SegmentedTable(BAG, (segment(BAG, (0, "a", 1)), segment(BAG), segment(BAG, (0, "a", 1))))
    assert materialised(OperatorSnapshot(segmented={"bag": bag})).keyed["bag"]["v"].to_pylist() == [1, 1]


def test_a_table_without_segments_has_its_columns() -> None:
    restored = materialised(OperatorSnapshot(segmented={"log": SegmentedTable(LOG, (), ("k",))}))
    assert restored.keyed["log"].schema.names == ["__key_group", "k", "v"]
    assert restored.keyed["log"].num_rows == 0


def test_key_groups_of_segments_go_to_their_new_subtasks() -> None:
    bag = SegmentedTable(BAG, (segment(BAG, (0, "a", 1), (100, "b", 2)),))
    snapshot = OperatorSnapshot(segmented={"bag": bag})
    assert redistribute([snapshot], 0, 2, 128).keyed["bag"]["k"].to_pylist() == ["a"]
    assert redistribute([snapshot], 1, 2, 128).keyed["bag"]["k"].to_pylist() == ["b"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Redistribution.SPLIT, [[1, 3], [2]]),
        (Redistribution.UNION, [[1, 2, 3], [1, 2, 3]]),
        (Redistribution.BROADCAST, [[1], [2]]),
    ],
)
def test_operator_state_follows_its_mode(mode: Redistribution, expected: list[list[int]]) -> None:
    old = [OperatorSnapshot(operator={"s": OperatorState(pa.table({"x": x}), mode)}) for x in ([1], [2], [3])]
    assert [redistribute(old, i, 2, 128).operator["s"].rows["x"].to_pylist() for i in range(2)] == expected


def test_broadcast_state_is_that_of_the_old_subtask_in_the_place_as_rows_may_have_been_in_flight_to_it() -> None:
    mode = Redistribution.BROADCAST
    old = [OperatorSnapshot(operator={"s": OperatorState(pa.table({"x": x}), mode)}) for x in ([1], [2])]
    old.append(OperatorSnapshot())
    found = [redistribute(old, i, 5, 128).operator["s"].rows["x"].to_pylist() for i in range(5)]
    assert found == [[1], [2], [1], [1], [2]], "one without state gets what there is"


def test_split_state_stays_where_it_was_at_the_same_parallelism() -> None:
    old = [OperatorSnapshot(operator={"s": OperatorState(pa.table({"x": [i]}))}) for i in range(2)] + [
        OperatorSnapshot()
    ]
    assert [redistribute(old, i, 3, 128).operator["s"].rows["x"].to_pylist() for i in range(3)] == [[0], [1], []]


def test_one_state_with_two_modes_is_refused() -> None:
    old = [
        OperatorSnapshot(operator={"s": OperatorState(pa.table({"x": [1]}), mode)})
        for mode in (Redistribution.SPLIT, Redistribution.UNION)
    ]
    with pytest.raises(StateError, match="state 's' is split and union in different subtasks"):
        redistribute(old, 0, 1, 128)


def test_one_state_with_different_columns_is_refused() -> None:
    group = pa.array([0], pa.int32())
    old = [
        OperatorSnapshot(keyed={"t": pa.table({"__key_group": group, "v": pa.array([1], kind)})})
        for kind in (pa.int64(), pa.int32())
    ]
    with pytest.raises(StateError, match="state 't' has different columns"):
        redistribute(old, 0, 1, 128)


def test_a_range_knows_its_groups() -> None:
    assert 3 in KeyGroupRange(3, 5)
    assert 5 not in KeyGroupRange(3, 5)
