"""Channel selectors: how the rows of a batch are dealt to subpartitions, one class a partitioner, all vectorised.

A selector gives (channel, rows) pairs. Rows for one channel keep their order, and an update pair (−U, +U) is never torn apart. Watermarks
between the rows go to all channels, each to its place between the rows of the channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.elements import PassingWatermarks, RecordBatch, RowKind
from flowrun.core.selected_rows import SelectedRows
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
from flowrun.state.key_groups import key_groups, subtask_of

Dealt = Sequence[tuple[int, RecordBatch]]
Targets = npt.NDArray[np.integer]

FEW_CHANNELS = 4
"""Up to here one scan a channel beats a sort (64k rows: 25 µs a scan, 160 µs the sort)."""


APART_BYTES = 2 << 20
"""Rows that take so much memory are gathered for each channel apart. A reader may keep rows as they came (`RowLog` does), and slices of one
gather would keep the rows of all other channels in memory as well: Nexmark q20 at parallelism 2 took 970 MB a worker instead of 860.
"""


class ChannelSelector(Protocol):
    """Deals batches to channels. Called by one thread; may keep a position."""

    def deal(self, batch: RecordBatch) -> Dealt:
        """The parts of a batch that hold rows or watermarks, each with its channel."""
        ...


class SingleChannelSelector:
    """Everything to channel 0: forward, global, and any partitioner with one consumer."""

    def deal(self, batch: RecordBatch) -> Dealt:
        """The batch as it is."""
        return ((0, batch),)


class RoundRobinSelector:
    """Whole batches in turn: rebalance and rescale. Producers start at different channels so that they do not march in step."""

    def __init__(self, channels: int, subtask: int) -> None:
        self._channels = channels
        self._next = subtask % channels

    def deal(self, batch: RecordBatch) -> Dealt:
        """The batch as it is, for the next channel."""
        channel = self._next
        if batch.num_rows:
            self._next = (channel + 1) % self._channels
        if batch.watermarks is None:
            return ((channel, batch),)
        others = batch.only_watermarks(batch.columns.schema)
        return [(c, batch if c == channel else others) for c in range(self._channels)]


class BroadcastSelector:
    """One reference to every channel; nothing is copied."""

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def deal(self, batch: RecordBatch) -> Dealt:
        """The same batch for all."""
        return [(channel, batch) for channel in range(self._channels)]


class ShuffleSelector:
    """Each row to a random channel, from a generator seeded by the partitioner's seed and the subtask."""

    def __init__(self, channels: int, seed: int, subtask: int) -> None:
        self._channels = channels
        self._random = np.random.Generator(np.random.PCG64([seed, subtask]))

    def deal(self, batch: RecordBatch) -> Dealt:
        """Random parts; the second row of an update pair follows its first."""
        targets = self._random.integers(0, self._channels, batch.num_rows, target_dtype(self._channels))
        if batch.row_kinds is not None:
            kinds = batch.row_kinds.to_numpy(zero_copy_only=True)
            seconds = np.flatnonzero((kinds[1:] == RowKind.UPDATE_AFTER) & (kinds[:-1] == RowKind.UPDATE_BEFORE))
            targets[seconds + 1] = targets[seconds]
        return split_by_target(batch, targets, self._channels)


class KeyGroupSelector:
    """By key group of the key columns, so that rows of one key meet in the subtask that owns their state."""

    def __init__(self, keys: tuple[int, ...], channels: int, max_parallelism: int) -> None:
        self._keys = keys
        self._channels = channels
        self._max_parallelism = max_parallelism
        groups = np.arange(max_parallelism, dtype=np.int32)
        self._channel_of_group = subtask_of(groups, channels, max_parallelism).astype(target_dtype(channels))

    def deal(self, batch: RecordBatch) -> Dealt:
        """The rows of each owner."""
        columns = [batch.columns.column(key) for key in self._keys]
        return split_by_target(batch, self._targets(columns), self._channels)

    def deal_selected(self, selected: SelectedRows) -> Dealt:
        """The rows of each owner, which are gathered for it at once; of the other rows nothing is read but where they are."""
        columns = [selected.batch.columns.column(key).take(selected.positions) for key in self._keys]
        return split_selected(selected, self._targets(columns), self._channels)

    def _targets(self, keys: Sequence[pa.Array]) -> Targets:
        return self._channel_of_group[key_groups(keys, self._max_parallelism)]


class CustomSelector:
    """By the user's function, whose answer is checked."""

    def __init__(self, partitioner: CustomPartitioner, channels: int) -> None:
        self._partitioner = partitioner
        self._channels = channels

    def deal(self, batch: RecordBatch) -> Dealt:
        """The rows of each channel.

        Raises:
            DataError: the function did not give one channel in 0..n−1 a row.
        """
        targets = np.asarray(self._partitioner.function(batch, self._channels))
        where = f"partitioner '{self._partitioner.name}'"
        if targets.shape != (batch.num_rows,) or not np.issubdtype(targets.dtype, np.integer):
            raise DataError(
                f"{where} must give an integer array of {batch.num_rows} channels, one a row; "
                f"got {targets.dtype} of shape {targets.shape}"
            )
        wrong = np.flatnonzero((targets < 0) | (targets >= self._channels))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{where} sent row {row} to channel {targets[row]}; channels are 0 to {self._channels - 1}",
                row=row,
                hint="take the value modulo the number of channels, the function's second argument",
            )
        return split_by_target(batch, targets.astype(target_dtype(self._channels)), self._channels)


def create_selector(partitioner: Partitioner, channels: int, subtask: int, max_parallelism: int) -> ChannelSelector:
    """The selector of a producer subtask for a partitioner over `channels` consumers.

    Args:
        partitioner: what the edge says.
        channels: number of subpartitions.
        subtask: index of the producer.
        max_parallelism: number of key groups of the *consumer*.
    """
    if channels == 1:
        # A custom function still has to run: its answer is checked, and it may count what it sees.
        return CustomSelector(partitioner, 1) if isinstance(partitioner, CustomPartitioner) else SingleChannelSelector()
    match partitioner:
        case ForwardPartitioner():
            raise InternalError(f"a forward edge has one channel a subtask, not {channels}")
        case GlobalPartitioner():
            return SingleChannelSelector()
        case RebalancePartitioner() | RescalePartitioner():
            return RoundRobinSelector(channels, subtask)
        case BroadcastPartitioner():
            return BroadcastSelector(channels)
        case ShufflePartitioner(seed=seed):
            return ShuffleSelector(channels, seed, subtask)
        case KeyGroupPartitioner(keys=keys):
            return KeyGroupSelector(keys, channels, max_parallelism)
        case CustomPartitioner():
            return CustomSelector(partitioner, channels)
        case _:
            raise InternalError(f"no channel selector for partitioner {partitioner.label}")


def target_dtype(channels: int) -> type[np.unsignedinteger]:
    """The smallest type that holds every channel number: narrow targets make the sort a counting sort."""
    if channels <= 1 << 8:
        return np.uint8
    return np.uint16 if channels <= 1 << 16 else np.uint32


def split_by_target(batch: RecordBatch, targets: Targets, channels: int) -> Dealt:
    """The rows of each channel, in order: of small batches by one gather of all columns, then zero-copy slices.

    Args:
        batch: at least one row, or watermarks.
        targets: one channel a row, of `target_dtype`.
        channels: number of channels.
    """
    if batch.watermarks is not None:
        return _split_with_watermarks(batch, batch.watermarks, targets, channels)
    only, order, ranges = _ranges(targets, channels)
    if order is None:
        return ((only, batch),)
    return _gathered(batch, order, ranges, apart=batch.nbytes >= APART_BYTES)


def split_selected(selected: SelectedRows, targets: Targets, channels: int) -> Dealt:
    """As `split_by_target`, of rows that are not gathered yet; each of them is copied once.

    Args:
        selected: the rows.
        targets: one channel for each of them.
        channels: number of channels.
    """
    only, order, ranges = _ranges(targets, channels)
    if order is None:
        return ((only, selected.rows()),)
    return _gathered(selected.batch, selected.positions.take(order), ranges, apart=selected.nbytes >= APART_BYTES)


_Range: TypeAlias = tuple[int, int, int]
"""A channel, where its rows begin in an order of rows, and how many they are."""


def _ranges(targets: Targets, channels: int) -> tuple[int, pa.Array | None, Sequence[_Range]]:
    """The channel that gets most rows; the rows in order of their channels, and the range of each, or no order if it gets all."""
    if channels <= FEW_CHANNELS:
        positions = [np.flatnonzero(targets == channel) for channel in range(channels)]
        counts = np.array([len(p) for p in positions])
    else:
        positions, counts = [], np.bincount(targets, minlength=channels)
    most = int(counts.argmax())
    if counts[most] == len(targets):
        return most, None, ()
    # pyarrow's sort is stable, and a counting sort for narrow integers: a third of numpy's time.
    order = pa.array(np.concatenate(positions)) if positions else pc.array_sort_indices(pa.array(targets))
    starts = np.cumsum(counts) - counts
    return most, order, [(int(c), int(starts[c]), int(counts[c])) for c in np.flatnonzero(counts)]


def _gathered(batch: RecordBatch, order: pa.Array, ranges: Sequence[_Range], *, apart: bool) -> Dealt:
    """The rows of each channel: gathered for each apart, or all at once."""
    if apart:
        return [(channel, batch.take(order.slice(start, count))) for channel, start, count in ranges]
    rows = batch.take(order)
    return [(channel, rows.slice(start, count)) for channel, start, count in ranges]


def _split_with_watermarks(
    batch: RecordBatch, watermarks: PassingWatermarks, targets: Targets, channels: int
) -> list[tuple[int, RecordBatch]]:
    parts = []
    plain = batch.with_watermarks(None)
    for channel in range(channels):
        positions = np.flatnonzero(targets == channel)
        between = PassingWatermarks(np.searchsorted(positions, watermarks.rows), watermarks.timestamps)
        parts.append((channel, plain.take(pa.array(positions)).with_watermarks(between)))
    return parts
