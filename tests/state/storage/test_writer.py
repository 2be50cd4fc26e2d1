"""Incremental checkpoints: what is written, what is referred to, and that reading gives what operators had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from flowrun.api.state import KeyGroupRange, OperatorSnapshot, SegmentedTable, StateSegment, keyed_schema
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import InternalError, StateError
from flowrun.state.checkpoints import OperatorSubtaskState
from flowrun.state.storage.folder import JobFolder, open_job_folder
from flowrun.state.storage.segment_numbers import numbers_for
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.writer import KeyedWriter
from tests.examples import examples
from tests.state.storage.jobs import (
    BAG,
    COMMITTED_AFTER,
    GROUPS,
    LOG,
    OPERATOR,
    bag,
    bag_segment,
    log,
    log_segment,
    rows_of,
    take,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    opened = open_job_folder(str(tmp_path), "my job", lineage="L", clock=ManualClock())
    yield opened
    opened.close()


def new_writer(folder: JobFolder) -> KeyedWriter:
    return KeyedWriter(OPERATOR, "my op", 0, GROUPS, resolve(folder.job_folder))


def read(
    folder: JobFolder, state: OperatorSubtaskState, name: str, groups: KeyGroupRange = GROUPS
) -> list[tuple[object, ...]]:
    return rows_of(folder.read_keyed([state.keyed[name]], groups, folder.job_folder))


def paths(state: OperatorSubtaskState, name: str) -> list[str]:
    return [r.file.path for r in state.keyed[name].files]


def test_only_new_segments_are_written(folder: JobFolder) -> None:
    writer = new_writer(folder)
    first, second = bag_segment([(1, 10), (2, 20)]), bag_segment([(3, 30)])
    _, one = take(folder, writer, 1, bag(first))
    _, two = take(folder, writer, 2, bag(first, second))
    assert paths(two, "bag")[0] == paths(one, "bag")[0]
    assert paths(two, "bag")[1].startswith("chk-2/my-op-aaaaaaaa-bag-0-")
    assert two.keyed["bag"].files[1].file.rows == 1
    assert read(folder, two, "bag") == [(1, 10), (2, 20), (3, 30)]


def test_an_unchanged_state_writes_nothing(folder: JobFolder) -> None:
    writer = new_writer(folder)
    segment = bag_segment([(1, 10)])
    _, one = take(folder, writer, 1, bag(segment))
    _, two = take(folder, writer, 2, bag(segment))
    assert one.keyed == two.keyed
    assert not [n for n in os.listdir(f"{folder.job_folder}/chk-2") if n.endswith(".parquet")]


def test_files_of_a_checkpoint_that_is_not_known_to_be_complete_are_not_referred_to(folder: JobFolder) -> None:
    writer = new_writer(folder)
    segment = bag_segment([(1, 10)])
    for number in (1, 2):
        target = folder.begin(number, CheckpointKind.CHECKPOINT, None)
        state = writer.write(number, target, CheckpointKind.CHECKPOINT, bag(segment))
        assert [p.split("/")[0] for p in paths(state, "bag")] == [f"chk-{number}"]


def test_a_checkpoint_that_began_before_another_was_complete_can_be_referred_to_as_well(folder: JobFolder) -> None:
    writer = new_writer(folder)
    first, second = bag_segment([(1, 10)]), bag_segment([(2, 20)])
    states = {}
    for number, segments in ((1, [first]), (2, [first, second])):  # both are under way
        target = folder.begin(number, CheckpointKind.CHECKPOINT, None)
        states[number] = writer.write(number, target, CheckpointKind.CHECKPOINT, bag(*segments))
    writer.completed(1)
    writer.completed(2)
    target = folder.begin(3, CheckpointKind.CHECKPOINT, None)
    third = writer.write(3, target, CheckpointKind.CHECKPOINT, bag(first, second))
    assert paths(third, "bag") == paths(states[2], "bag"), "nothing is written again"


def test_completions_out_of_order_count_once(folder: JobFolder) -> None:
    writer = new_writer(folder)
    segment = bag_segment([(1, 10)])
    for number in (1, 2):
        target = folder.begin(number, CheckpointKind.CHECKPOINT, None)
        writer.write(number, target, CheckpointKind.CHECKPOINT, bag(segment))
    writer.completed(2)
    writer.completed(1)  # late
    writer.completed(7)  # never heard of
    target = folder.begin(3, CheckpointKind.CHECKPOINT, None)
    assert paths(writer.write(3, target, CheckpointKind.CHECKPOINT, bag(segment)), "bag")[0].startswith("chk-2/")


def test_dead_segments_are_not_read_and_their_file_is_rewritten_once_most_of_it_is_dead(folder: JobFolder) -> None:
    writer = new_writer(folder)
    segments = [bag_segment([(n, n)]) for n in range(4)]
    _, one = take(folder, writer, 1, bag(*segments))
    _, two = take(folder, writer, 2, bag(*segments[2:]))
    assert paths(two, "bag") == paths(one, "bag")
    assert read(folder, two, "bag") == [(2, 2), (3, 3)]
    _, three = take(folder, writer, 3, bag(*segments[3:]))
    assert [p.split("/")[0] for p in paths(three, "bag")] == ["chk-3"]
    assert three.keyed["bag"].files[0].file.rows == 1
    assert read(folder, three, "bag") == [(3, 3)]


def test_the_number_of_files_is_bounded(folder: JobFolder) -> None:
    writer = new_writer(folder)
    segments: list[StateSegment] = []
    for number in range(1, 60):
        segments.append(bag_segment([(number, n) for n in range(3)]))
        _, state = take(folder, writer, number, bag(*segments))
        folder.retain([number])
        assert len(state.keyed["bag"].files) <= 16
    assert read(folder, state, "bag") == sorted((k, v) for k in range(1, 60) for v in range(3))


def test_a_changed_percent_writes_less_than_five_percent_of_the_bytes(folder: JobFolder) -> None:
    rng = np.random.default_rng(3)

    def segment(rows: int) -> StateSegment:
        keys = rng.integers(0, 1 << 40, rows)
        table = pa.table([pa.array((keys % 16).astype(np.int32)), pa.array(keys), pa.array(keys)], schema=BAG)
        return StateSegment(lambda: table)

    writer = new_writer(folder)
    segments = [segment(200_000)]
    _, base = take(folder, writer, 1, bag(*segments))
    whole = base.keyed["bag"].files[0].file.size
    for number in range(2, 12):
        segments.append(segment(2_000))
        _, state = take(folder, writer, number, bag(*segments))
        new = sum(r.file.size for r in state.keyed["bag"].files if r.file.path.startswith(f"chk-{number}/"))
        assert new < 0.05 * whole


def test_a_segment_that_replaces_older_ones_stays_older_than_the_newer(folder: JobFolder) -> None:
    writer = new_writer(folder)
    a, b, c = log_segment({1: 1, 2: 1}), log_segment({1: 2}), log_segment({1: 3})
    take(folder, writer, 1, log(a, b, c))
    merged = log_segment({1: 2, 2: 1})
    _, state = take(folder, writer, 2, log(merged, c))
    assert read(folder, state, "log") == [(1, 3), (2, 1)]


def test_segments_put_before_all_others_make_the_table_be_written_anew(folder: JobFolder) -> None:
    writer = new_writer(folder)
    newer = log_segment({1: 2})
    take(folder, writer, 1, log(newer))
    _, state = take(folder, writer, 2, log(log_segment({1: 1, 3: 3}), newer))
    assert [p.split("/")[0] for p in paths(state, "log")] == ["chk-2"]
    assert read(folder, state, "log") == [(1, 2), (3, 3)]


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), ordered=st.booleans())
def test_whatever_becomes_of_segments_reading_gives_what_the_operator_had(
    tmp_path: Path, data: st.DataObject, ordered: bool
) -> None:
    name = f"job-{len(os.listdir(tmp_path))}"
    folder = open_job_folder(str(tmp_path), name, lineage="L", clock=ManualClock())
    writer = new_writer(folder)
    keys = st.integers(0, 40)
    segments: list[tuple[StateSegment, list[tuple[int, int | None]]]] = []
    for number in range(1, data.draw(st.integers(2, 8)) + 1):
        for _ in range(data.draw(st.integers(0, 3))):  # what operators do: append, drop, merge neighbours, start over
            values = data.draw(
                st.dictionaries(
                    keys, st.one_of(st.integers(0, 9), st.none()) if ordered else st.integers(0, 9), max_size=6
                )
            )
            segments.append(
                (log_segment(values) if ordered else bag_segment(list(values.items())), list(values.items()))
            )
        if segments and data.draw(st.booleans()):
            start = data.draw(st.integers(0, len(segments) - 1))
            stop = data.draw(st.integers(start + 1, len(segments)))
            if ordered:
                folded = dict(kv for _, values in segments[start:stop] for kv in values)
                segments[start:stop] = [(log_segment(folded), list(folded.items()))]
            else:
                del segments[start:stop]
        snapshot = (log if ordered else bag)(*(s for s, _ in segments))
        if data.draw(st.integers(0, 4)) == 0:  # aborted
            target = folder.begin(number, CheckpointKind.CHECKPOINT, None)
            writer.write(number, target, CheckpointKind.CHECKPOINT, snapshot)
            folder.discard(target, [])
            continue
        _, state = take(folder, writer, number, snapshot)
        folder.retain([number])
        pairs = [kv for _, values in segments for kv in values]
        expected = [(k, v) for k, v in dict(pairs).items() if v is not None] if ordered else pairs
        table = "log" if ordered else "bag"
        assert read(folder, state, table) == sorted(expected)
        part = KeyGroupRange(3, 9)
        assert read(folder, state, table, part) == sorted((k, v) for k, v in expected if k % 16 in part)
        path, saved = take(folder, writer, number, snapshot, kind=CheckpointKind.SAVEPOINT)
        assert rows_of(folder.read_keyed([saved.keyed[table]], GROUPS, path)) == sorted(expected)
    folder.close()


@given(st.data())
def test_numbers_ascend_and_are_kept_unless_all_are_new(data: st.DataObject) -> None:
    given_numbers = sorted(data.draw(st.sets(st.integers(0, 20), max_size=6)))
    known: list[int | None] = list(given_numbers)
    for _ in range(data.draw(st.integers(0, 6))):
        known.insert(data.draw(st.integers(0, len(known))), None)
    following = max([-1, *given_numbers]) + 1 + data.draw(st.integers(0, 3))
    numbers, next_number = numbers_for(known, following, ordered=True)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(known)
    assert next_number > max([-1, *numbers])
    kept = [n for k, n in zip(known, numbers, strict=True) if k is not None]
    assert kept == given_numbers or min(numbers) >= following


def test_a_whole_table_is_referred_to_while_it_is_the_same_memory(folder: JobFolder) -> None:
    writer = new_writer(folder)
    table = pa.Table.from_pylist([{"__key_group": 2, "k": 2, "v": 1}, {"__key_group": 1, "k": 1, "v": 1}], schema=BAG)
    _, one = take(folder, writer, 1, OperatorSnapshot({"t": table}))
    _, two = take(folder, writer, 2, OperatorSnapshot({"t": table.slice(0)}))
    assert one.keyed == two.keyed
    equal = pa.Table.from_pylist(table.to_pylist(), schema=BAG)
    _, three = take(folder, writer, 3, OperatorSnapshot({"t": equal}))
    assert paths(three, "t")[0].startswith("chk-3/")
    _, four = take(folder, writer, 4, OperatorSnapshot({"t": equal.slice(1)}))
    assert paths(four, "t")[0].startswith("chk-4/")
    assert read(folder, four, "t") == [(1, 1)]


def test_a_table_over_the_same_memory_is_written_again_if_other_columns_are_its_keys(folder: JobFolder) -> None:
    writer = new_writer(folder)
    table = pa.Table.from_pylist([{"__key_group": 2, "k": 2, "v": 1}], schema=BAG)
    take(folder, writer, 1, OperatorSnapshot({"t": table}))
    keyed_by_both = table.replace_schema_metadata(keyed_schema([BAG.field("k"), BAG.field("v")], []).metadata)
    _, two = take(folder, writer, 2, OperatorSnapshot({"t": keyed_by_both}))
    assert paths(two, "t")[0].startswith("chk-2/")


def test_tables_without_rows_have_no_file_but_their_columns(folder: JobFolder) -> None:
    writer = new_writer(folder)
    snapshot = OperatorSnapshot(
        {"t": BAG.empty_table()},
        segmented={"log": SegmentedTable(LOG, (), ("k",)), "bag": SegmentedTable(BAG, (bag_segment([]),))},
    )
    for kind in CheckpointKind:
        _, state = take(folder, writer, 1, snapshot, kind=kind)
        assert all(t.files == () for t in state.keyed.values())
    _, again = take(folder, writer, 2, snapshot)
    assert folder.read_keyed([again.keyed["log"]], GROUPS, folder.job_folder).schema.names == ["__key_group", "k", "v"]


def test_savepoints_are_whole_and_have_only_what_counts(folder: JobFolder, tmp_path: Path) -> None:
    writer = new_writer(folder)
    a, b = log_segment({1: 1, 2: 2}), log_segment({1: None, 3: 3})
    take(folder, writer, 1, log(a, b))
    path, state = take(folder, writer, 2, log(a, b), kind=CheckpointKind.SAVEPOINT, directory=str(tmp_path / "sp"))
    (reference,) = state.keyed["log"].files
    assert "/" not in reference.file.path
    assert reference.live is None
    table = pa.parquet.read_table(f"{path}/{reference.file.path}")
    assert table.schema.names == ["__key_group", "k", "v"]
    assert rows_of(table) == [(2, 2), (3, 3)]
    moved = tmp_path / "elsewhere"
    os.rename(path, moved)
    assert rows_of(folder.read_keyed([state.keyed["log"]], GROUPS, str(moved))) == [(2, 2), (3, 3)]


def test_a_savepoint_between_checkpoints_does_not_change_what_they_refer_to(folder: JobFolder) -> None:
    writer = new_writer(folder)
    segment = bag_segment([(1, 1)])
    _, one = take(folder, writer, 1, bag(segment))
    take(folder, writer, 2, bag(segment), kind=CheckpointKind.SAVEPOINT)
    _, three = take(folder, writer, 3, bag(segment))
    assert three.keyed == one.keyed


def test_rows_of_several_old_subtasks_are_put_together(folder: JobFolder) -> None:
    low = KeyedWriter(OPERATOR, "my op", 0, KeyGroupRange(0, 8), resolve(folder.job_folder))
    high = KeyedWriter(OPERATOR, "my op", 1, KeyGroupRange(8, 16), resolve(folder.job_folder))
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    states = [
        low.write(1, target, CheckpointKind.CHECKPOINT, log(log_segment({0: 0, 5: 5}), log_segment({5: 6}))),
        high.write(1, target, CheckpointKind.CHECKPOINT, log(log_segment({9: 9, 15: 15}))),
    ]
    tables = [s.keyed["log"] for s in states]
    assert rows_of(folder.read_keyed(tables, GROUPS, folder.job_folder)) == [(0, 0), (5, 6), (9, 9), (15, 15)]
    assert rows_of(folder.read_keyed(tables, KeyGroupRange(5, 10), folder.job_folder)) == [(5, 6), (9, 9)]


def test_logs_keyed_by_lists_floats_and_nothing_are_folded(folder: JobFolder) -> None:
    fields = [pa.field("l", pa.list_(pa.string())), pa.field("f", pa.float64())]
    schema = keyed_schema(fields, [pa.field("v", pa.int64()), pa.field("__deleted", pa.bool_())])

    def segment(*rows: tuple[list[str] | None, float, int]) -> StateSegment:
        table = pa.Table.from_pylist(
            [{"__key_group": 0, "l": a, "f": f, "v": v, "__deleted": False} for a, f, v in rows], schema=schema
        )
        return StateSegment(lambda: table)

    nan = float("nan")
    segments = (
        segment((["a", "b"], nan, 1), (None, 0.0, 2), (["ab"], nan, 3)),
        segment((["a", "b"], nan, 10), (None, -0.0, 20)),
    )
    snapshot = OperatorSnapshot(
        segmented={
            "log": SegmentedTable(schema, segments, ("l", "f")),
            "one": SegmentedTable(schema, (segment(([], 1.0, 1)), segment(([], 2.0, 2))), ()),
        }
    )
    _, state = take(folder, new_writer(folder), 1, snapshot)
    back = folder.read_keyed([state.keyed["log"]], GROUPS, folder.job_folder)
    assert sorted(back["v"].to_pylist()) == [3, 10, 20]
    one = folder.read_keyed([state.keyed["one"]], GROUPS, folder.job_folder)
    assert one["v"].to_pylist() == [2]


def test_a_failure_in_the_second_table_removes_the_first(folder: JobFolder) -> None:
    def broken() -> pa.Table:
        raise MemoryError

    writer = new_writer(folder)
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    snapshot = OperatorSnapshot(
        segmented={
            "a": SegmentedTable(BAG, (bag_segment([(1, 1)]),)),
            "b": SegmentedTable(BAG, (StateSegment(broken),)),
        }
    )
    with pytest.raises(MemoryError):
        writer.write(1, target, CheckpointKind.CHECKPOINT, snapshot)
    assert os.listdir(target) == []


def test_a_segment_with_other_columns_than_its_table_is_a_bug(folder: JobFolder) -> None:
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    snapshot = OperatorSnapshot(segmented={"bag": SegmentedTable(BAG, (log_segment({1: 1}),))})
    with pytest.raises(InternalError, match="a segment of state 'bag' of 'my op'"):
        new_writer(folder).write(1, target, CheckpointKind.CHECKPOINT, snapshot)


def test_damage_names_the_file_and_offers_the_newest_checkpoint_without_it(folder: JobFolder) -> None:
    writer = new_writer(folder)
    first, second, third = (bag_segment([(n, n)]) for n in range(3))
    for number, segments in enumerate([(first,), (first, second), (first, second, third)], 1):
        _, state = take(folder, writer, number, bag(*segments))
    damaged = Path(folder.job_folder, paths(state, "bag")[1])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(StateError, match=r"my-op-aaaaaaaa-bag-0-\w+\.parquet' is truncated") as error:
        read(folder, state, "bag")
    assert error.value.hint == (
        f"go on from another checkpoint: --from-savepoint {folder.job_folder}/chk-1{COMMITTED_AFTER}"
    )
    Path(folder.job_folder, paths(state, "bag")[0]).unlink()
    with pytest.raises(StateError, match="is missing") as error:
        read(folder, state, "bag")
    assert "no complete checkpoint without it" in (error.value.hint or "")
