"""Stream elements: everything that travels on a channel, in order.

An element that is not a `RecordBatch` flushes what is buffered before it and never overtakes data (unaligned barriers aside).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import Enum, IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record

MIN_TIMESTAMP = -(2**63)
"""Event time before any other, in ms: the watermark of a channel that has not sent one."""

MAX_TIMESTAMP = 2**63 - 1
"""Event time after any other, in ms: the watermark at the end of bounded input."""


class RowKind(IntEnum):
    """The change that one row makes to a result; the int8 value is what `RecordBatch.row_kinds` holds."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        """The short form: +I, -U, +U or -D."""
        return ("+I", "-U", "+U", "-D")[self]


def removals(kinds: pa.Int8Array) -> Bools:
    """For each row of these kinds whether it takes something away (−U, −D), or else puts something there (+I, +U).

    >>> removals(pa.array([0, 1, 2, 3], pa.int8())).tolist()
    [False, True, False, True]
    """
    found: Bools = (kinds.to_numpy(zero_copy_only=False) & 1).astype(np.bool_)
    return found


@record(eq=False)
class PassingWatermarks:
    """Watermarks that come between the rows of a batch: what a stream of single rows would have there, without its price.

    Attributes:
        rows: for each how many rows of the batch come before it, int64, ascending.
        timestamps: the watermarks, ms, int64, strictly ascending; never MAX_TIMESTAMP. At least one.
    """

    rows: Integers
    timestamps: Integers

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: Integers, timestamps: Integers) -> PassingWatermarks | None:
        """None if there are none."""
        return cls(rows, timestamps) if len(rows) else None

    def passing_multiples(self, step_ms: int, since: int, times: Integers) -> PassingWatermarks | None:
        """Those that matter to who waits for multiples of `step_ms`.

        These are those that pass one; the last one before each row that is late, and the last of all, as rows behind the batch may be; and,
        as what is due already is done with the next watermark, the first one behind each row for whose time the next multiple has passed.

        Args:
            step_ms: of event time.
            since: the watermark before these, ms.
            times: event times of all rows of the batch, ms.
        """
        reached = np.append(since, self.timestamps)
        counts = reached // step_ms
        matters = counts[1:] > counts[:-1]
        following = np.searchsorted(
            self.rows, np.arange(len(times)), side="right"
        )  # of each row: the first one behind it
        behind = following[(times // step_ms + 1) * step_ms <= reached[following]]
        matters[behind[behind < len(matters)]] = True
        before = following[times <= reached[following]] - 1
        matters[before[before >= 0]] = True
        matters[-1] = True
        return PassingWatermarks.of(self.rows[matters], self.timestamps[matters])


@record
class RecordBatch:
    """Rows with their event times and, on updating streams, their change kinds.

    Attributes:
        columns: the rows, n × columns; immutable.
        timestamps: event time of each row, int64 ms since the epoch, no nulls; None while the stream has no event time.
        row_kinds: `RowKind` of each row, int8, no nulls; None means that every row is an insert.
        watermarks: between the rows, for operators that take rows and watermarks in their exact order; a batch of no rows may have some,
            too. None: all rows come before the next watermark.
    """

    columns: pa.RecordBatch
    timestamps: pa.Int64Array | None = None
    row_kinds: pa.Int8Array | None = None
    watermarks: PassingWatermarks | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        rows: int = self.columns.num_rows
        return rows

    @property
    def nbytes(self) -> int:
        """Bytes that these rows (not their parent buffers) take."""
        size: int = self.columns.nbytes
        if self.timestamps is not None:
            size += 8 * self.num_rows
        if self.row_kinds is not None:
            size += self.num_rows
        if self.watermarks is not None:
            size += 16 * len(self.watermarks)
        return size

    def with_columns(self, columns: pa.RecordBatch) -> RecordBatch:
        """Other columns for the same rows; the row count must be equal."""
        return RecordBatch(columns, self.timestamps, self.row_kinds, self.watermarks)

    def with_watermarks(self, watermarks: PassingWatermarks | None) -> RecordBatch:
        """The same rows with other watermarks between them."""
        return RecordBatch(self.columns, self.timestamps, self.row_kinds, watermarks)

    def slice(self, offset: int, length: int | None = None) -> RecordBatch:
        """A zero-copy range of rows. A watermark goes with the row behind it, those behind the last row with that."""
        return RecordBatch(
            self.columns.slice(offset, length),
            None if self.timestamps is None else self.timestamps.slice(offset, length),
            None if self.row_kinds is None else self.row_kinds.slice(offset, length),
            None if self.watermarks is None else self._watermarks_within(self.watermarks, offset, length),
        )

    def take(self, indices: pa.Array) -> RecordBatch:
        """The rows at the given positions (integer array, no nulls), in that order.

        Watermarks keep their places among rows whose order stays; else they come behind all rows.
        """
        return self.children(self.columns.take(indices), indices)

    def children(self, columns: pa.RecordBatch, parents: pa.Array) -> RecordBatch:
        """Other rows, each of which comes of the row at the position in `parents`: event times, kinds and watermarks as of `take`."""
        watermarks = self.watermarks
        if watermarks is not None:
            positions = parents.to_numpy(zero_copy_only=False).astype(np.int64)
            ordered = bool((positions[1:] >= positions[:-1]).all())
            places = (
                np.searchsorted(positions, watermarks.rows) if ordered else np.full(len(watermarks), len(positions))
            )
            watermarks = PassingWatermarks(places, watermarks.timestamps)
        return RecordBatch(
            columns,
            None if self.timestamps is None else self.timestamps.take(parents),
            None if self.row_kinds is None else self.row_kinds.take(parents),
            watermarks,
        )

    def filter(self, mask: pa.BooleanArray) -> RecordBatch:
        """The rows whose mask is true; NULL counts as false. All watermarks stay."""
        watermarks = self.watermarks
        if watermarks is not None:
            kept = np.concatenate(([0], np.cumsum(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))))
            watermarks = PassingWatermarks(kept[watermarks.rows], watermarks.timestamps)
        return RecordBatch(
            self.columns.filter(mask),
            None if self.timestamps is None else self.timestamps.filter(mask),
            None if self.row_kinds is None else self.row_kinds.filter(mask),
            watermarks,
        )

    def only_watermarks(self, schema: pa.Schema) -> RecordBatch:
        """No rows, of these columns, and the watermarks of this batch."""
        watermarks = self.watermarks
        assert watermarks is not None
        none = PassingWatermarks(np.zeros(len(watermarks), np.int64), watermarks.timestamps)
        times = None if self.timestamps is None else self.timestamps.slice(0, 0)
        kinds = None if self.row_kinds is None else self.row_kinds.slice(0, 0)
        return RecordBatch(pa.RecordBatch.from_pylist([], schema), times, kinds, none)

    def pieces(self) -> Iterator[RecordBatch | Watermark]:
        """The rows between watermarks, and these, in order."""
        start = 0
        if self.watermarks is not None:
            plain = self.with_watermarks(None)
            for row, timestamp in zip(self.watermarks.rows.tolist(), self.watermarks.timestamps.tolist(), strict=True):
                if row > start:
                    yield plain.slice(start, row - start)
                    start = row
                yield Watermark(timestamp)
            if start < self.num_rows:
                yield plain.slice(start)
        elif self.num_rows:
            yield self

    def _watermarks_within(
        self, watermarks: PassingWatermarks, offset: int, length: int | None
    ) -> PassingWatermarks | None:
        stop = self.num_rows if length is None else min(offset + length, self.num_rows)
        first = np.searchsorted(watermarks.rows, offset)
        last = len(watermarks) if stop == self.num_rows else np.searchsorted(watermarks.rows, stop)
        return PassingWatermarks.of(watermarks.rows[first:last] - offset, watermarks.timestamps[first:last])

    def timestamps_numpy(self) -> Integers:
        """Event times as an int64 view, ms; requires `timestamps`."""
        assert self.timestamps is not None
        values: Integers = self.timestamps.to_numpy(zero_copy_only=True)
        return values


def concat_batches(batches: Sequence[RecordBatch]) -> RecordBatch:
    """One batch with the rows of all, in order. All share one schema and agree on having timestamps.

    Row kinds are kept when any batch has them; batches without them count as inserts.
    """
    if len(batches) == 1:
        return batches[0]
    columns = pa.concat_batches([b.columns for b in batches])
    timestamps = None
    if batches[0].timestamps is not None:
        timestamps = pa.concat_arrays([b.timestamps for b in batches])
    kinds = None
    if any(b.row_kinds is not None for b in batches):
        kinds = pa.concat_arrays(
            [b.row_kinds if b.row_kinds is not None else pa.array(np.zeros(b.num_rows, np.int8)) for b in batches]
        )
    return RecordBatch(columns, timestamps, kinds, _concat_watermarks(batches))


def _concat_watermarks(batches: Sequence[RecordBatch]) -> PassingWatermarks | None:
    rows, timestamps, before = [], [], 0
    for batch in batches:
        if batch.watermarks is not None:
            rows.append(batch.watermarks.rows + before)
            timestamps.append(batch.watermarks.timestamps)
        before += batch.num_rows
    return PassingWatermarks(np.concatenate(rows), np.concatenate(timestamps)) if rows else None


def timestamps_from_column(column: pa.Array) -> pa.Int64Array:
    """Event times in ms (int64) from a TIMESTAMP or TIMESTAMP_LTZ column; NULLs stay NULL, finer units are floored.

    Zero-copy for millisecond columns.
    """
    if column.type.unit == "ms":
        return column.view(pa.int64())
    divisor = {"us": 1_000, "ns": 1_000_000}[column.type.unit]
    values = column.view(pa.int64())
    if values.null_count:
        return pc.if_else(
            pc.is_valid(values),
            pa.array(np.floor_divide(pc.fill_null(values, 0).to_numpy(), divisor)),
            pa.scalar(None, pa.int64()),
        )
    return pa.array(np.floor_divide(values.to_numpy(), divisor))


@record
class Watermark:
    """No row with event time ≤ `timestamp` (ms) is expected any more; a later one is late."""

    timestamp: int


MAX_WATERMARK = Watermark(MAX_TIMESTAMP)


@record
class WatermarkStatus:
    """Whether a channel takes part in watermark progress: an idle channel does not hold others back."""

    idle: bool


IDLE = WatermarkStatus(True)
ACTIVE = WatermarkStatus(False)


@record
class LatencyMarker:
    """A probe sent by a source subtask; operators forward it unread, sinks record now − `marked_ms` (clock ms)."""

    marked_ms: int
    source_id: str
    source_subtask: int


class CheckpointKind(Enum):
    """Why a snapshot is taken; savepoints are always aligned and owned by the user."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


class Alignment(Enum):
    """How barriers of one checkpoint meet at a task with several channels."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AT_LEAST_ONCE = "at_least_once"


@record
class CheckpointOptions:
    """What a barrier asks of the tasks that it passes.

    Attributes:
        kind: of snapshot.
        alignment: how barriers meet.
        alignment_timeout_ms: aligned, but overtaking (unaligned) once this much time has passed since the trigger; None: never.
        stop: subtasks process nothing after this barrier; they end when the snapshot is complete.
        drain: with `stop`, event time ends (MAX watermark) before the barrier, so that open windows fire.
        target: folder that snapshots are written to, as the checkpoint storage named it.
    """

    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    alignment: Alignment = Alignment.ALIGNED
    alignment_timeout_ms: int | None = None
    stop: bool = False
    drain: bool = False
    target: str = ""


@record
class CheckpointBarrier:
    """Separates the rows of checkpoint `checkpoint_id` from the rows after it."""

    checkpoint_id: int
    trigger_ms: int
    options: CheckpointOptions = field(default_factory=CheckpointOptions)


@record
class EndOfInput:
    """The last element of a channel."""


END_OF_INPUT = EndOfInput()

Event = Watermark | WatermarkStatus | LatencyMarker | CheckpointBarrier | EndOfInput
Element = RecordBatch | Event
