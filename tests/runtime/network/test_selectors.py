"""Every partitioner sends each row exactly as often as it should, to the right channel, in order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_fakes import pairs, random_rows, rows

from flowrun.core.elements import PassingWatermarks, RecordBatch, RowKind, Watermark
from flowrun.errors import DataError, InternalError
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from flowrun.runtime.network.selectors import APART_BYTES, create_selector, split_by_target, target_dtype
from flowrun.state.key_groups import key_groups, subtask_of

DEALING: list[Partitioner] = [
    RebalancePartitioner(),
    RescalePartitioner(),
    ShufflePartitioner(3),
    GlobalPartitioner(),
    KeyGroupPartitioner((0,)),
    CustomPartitioner(lambda batch, n: batch.columns["k"].to_numpy() % n, "by k"),
]


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=30), min_size=1, max_size=5), st.integers(1, 300))
def test_rows_are_dealt_once_and_in_order(batches: list[list[int]], channels: int) -> None:
    for partitioner in DEALING:
        selector = create_selector(partitioner, channels, 1, 512)
        by_channel: dict[int, list[RecordBatch]] = {}
        value = 0
        sent: list[tuple[int, int]] = []
        for keys in batches:
            batch = rows(keys, list(range(value, value + len(keys))))
            value += len(keys)
            sent += pairs([batch])
            for channel, part in selector.deal(batch):
                assert part.num_rows > 0
                assert 0 <= channel < channels
                assert part.timestamps is not None
                assert part.timestamps.to_pylist() == part.columns["v"].to_pylist(), "event times stay with their rows"
                by_channel.setdefault(channel, []).append(part)
        got = [pair for parts in by_channel.values() for pair in pairs(parts)]
        assert Counter(got) == Counter(sent)
        for parts in by_channel.values():
            values = [v for _, v in pairs(parts)]
            assert values == sorted(values)


def test_broadcast_hands_one_reference_to_all() -> None:
    batch = rows([1, 2])
    dealt = create_selector(BroadcastPartitioner(), 3, 0, 128).deal(batch)
    assert [c for c, _ in dealt] == [0, 1, 2]
    assert all(part is batch for _, part in dealt)


@pytest.mark.parametrize("channels", [2, 3, 7, 40])
def test_a_key_goes_to_the_owner_of_its_key_group(channels: int) -> None:
    batch = random_rows(5_000, keys=300)
    owner = subtask_of(key_groups([batch.columns["k"]], 128), channels, 128)
    for channel, part in create_selector(KeyGroupPartitioner((0,)), channels, 0, 128).deal(batch):
        assert sorted(part.columns["v"].to_pylist()) == np.flatnonzero(owner == channel).tolist()


def test_round_robin_takes_turns_from_a_start_of_its_own() -> None:
    selector = create_selector(RebalancePartitioner(), 3, 2, 128)
    assert [selector.deal(rows([1]))[0][0] for _ in range(4)] == [2, 0, 1, 2]


def test_a_shuffle_repeats_with_its_seed() -> None:
    def deal(seed: int) -> list[Any]:
        return [(c, pairs([p])) for c, p in create_selector(ShufflePartitioner(seed), 4, 1, 128).deal(random_rows(99))]

    assert deal(1) == deal(1)
    assert deal(1) != deal(2)


def test_a_shuffle_keeps_update_pairs_together() -> None:
    kinds = [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER] * 200
    plain = rows(list(range(400)))
    batch = RecordBatch(plain.columns, plain.timestamps, pa.array(kinds, pa.int8()))
    for _, part in create_selector(ShufflePartitioner(), 5, 0, 128).deal(batch):
        assert part.row_kinds is not None
        assert part.row_kinds.to_pylist() == kinds[: part.num_rows]


def test_a_batch_for_one_channel_is_not_copied() -> None:
    batch = rows([7, 7, 7])
    dealt = create_selector(KeyGroupPartitioner((0,)), 9, 0, 128).deal(batch)
    assert len(dealt) == 1
    assert dealt[0][1] is batch


@pytest.mark.parametrize("channels", [2, 9])
@pytest.mark.parametrize("rows", [1000, 200_000])
def test_who_keeps_a_part_of_a_large_batch_keeps_no_rows_of_other_channels(rows: int, channels: int) -> None:
    batch = RecordBatch(
        pa.record_batch({"n": pa.array(range(rows)), "t": pa.array([f"text {i}" for i in range(rows)])})
    )
    targets = (np.arange(rows) % channels).astype(target_dtype(channels))
    parts = split_by_target(batch, targets, channels)
    assert [c for c, _ in parts] == list(range(channels))
    for channel, part in parts:
        assert part.columns.equals(batch.columns.take(pa.array(range(channel, rows, channels))))
        if batch.nbytes >= APART_BYTES:
            assert part.columns.get_total_buffer_size() < 1.2 * part.nbytes
    assert (rows == 200_000) == (batch.nbytes >= APART_BYTES)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b, n: np.zeros(1, np.int64), "must give an integer array of 2 channels"),
        (lambda b, n: np.zeros(2), "must give an integer array of 2 channels, one a row; got float64"),
        (lambda b, n: np.array([0, n]), "sent row 1 to channel 3; channels are 0 to 2"),
    ],
)
def test_a_custom_partitioner_is_checked(function: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        create_selector(CustomPartitioner(function, "mine"), 3, 0, 128).deal(rows([1, 2]))


def test_forward_over_several_channels_is_a_bug() -> None:
    with pytest.raises(InternalError, match="one channel a subtask"):
        create_selector(ForwardPartitioner(), 2, 0, 128)


@pytest.mark.parametrize("channels", [255, 256, 257, 70_000])
def test_targets_are_as_narrow_as_they_can_be(channels: int) -> None:
    targets = np.array([channels - 1, 0, channels - 1], target_dtype(channels))
    assert [(c, pairs([p])) for c, p in split_by_target(rows([1, 2, 3]), targets, channels)] == [
        (0, [(2, 1)]),
        (channels - 1, [(1, 0), (3, 2)]),
    ]


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 6), st.data())
def test_watermarks_between_rows_go_to_all_channels(keys: list[int], channels: int, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(keys)), min_size=1, max_size=8)))
    watermarks = PassingWatermarks(np.array(places), np.arange(len(places)) * 3)
    batch = rows(keys, list(range(len(keys)))).with_watermarks(watermarks)
    numbered: list[Any] = [e.timestamp if isinstance(e, Watermark) else e for e in batch.pieces()]
    for partitioner in DEALING:
        if isinstance(partitioner, GlobalPartitioner) and channels > 1:
            continue
        dealt = create_selector(partitioner, channels, 1, 512).deal(batch)
        assert sorted(channel for channel, _ in dealt) == list(range(channels))
        for _, part in dealt:
            mine = set(part.columns["v"].to_pylist())
            found: list[object] = []
            for piece in part.pieces():
                found += [piece] if isinstance(piece, Watermark) else piece.columns["v"].to_pylist()
            wanted: list[object] = []
            for element in numbered:
                if isinstance(element, RecordBatch):
                    wanted += [v for v in element.columns["v"].to_pylist() if v in mine]
                else:
                    wanted.append(Watermark(element))
            assert found == wanted
