"""Runs source functions as a `SourceReader`: each in a thread of its own, which hands its rows over through a bounded queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.operator import InputStatus
from flowrun.api.source import JsonValue, ReaderContext, SourceOutput, Split
from flowrun.api.source_function import SourceFunction
from flowrun.core.elements import RecordBatch, concat_batches
from flowrun.core.record import record
from flowrun.errors import InternalError, JobCancelledError

Position = Mapping[str, JsonValue]

Row = Mapping[str, Any]
ColumnsOf = Callable[[Sequence[Row]], pa.RecordBatch]
"""From rows to columns; raises DataError if one of them does not fit."""

DEFAULT_QUEUE_CAPACITY = 4
_JOINED_ROWS = 8192
"""How many rows that were sent one by one may wait together: they count as one entry of the queue."""


@record
class _Rows:
    batch: RecordBatch
    position: Position | None


class _SingleRows:
    """Rows that were sent one by one and wait together; more may be put behind them until they are taken."""

    def __init__(self, *, timed: bool) -> None:
        self.rows: list[Row] = []
        self.timestamps: list[int] | None = [] if timed else None
        self.position: Position | None = None

    def takes(self, timestamp: int | None) -> bool:
        """Whether a row with this event time, or none, may be put behind the others."""
        return len(self.rows) < _JOINED_ROWS and (self.timestamps is None) == (timestamp is None)

    def put(self, row: Row, timestamp: int | None, position: Position | None) -> None:
        """Put a row behind the others."""
        self.rows.append(row)
        if self.timestamps is not None and timestamp is not None:
            self.timestamps.append(timestamp)
        if position is not None:
            self.position = position

    def joined(self, columns_of: ColumnsOf) -> _Rows:
        """The rows as one batch."""
        timestamps = None if self.timestamps is None else pa.array(self.timestamps, pa.int64())
        return _Rows(RecordBatch(columns_of(self.rows), timestamps), self.position)


@record
class _OwnWatermark:
    timestamp: int


@record
class _Idle:
    pass


@record
class _End:
    error: BaseException | None


_Item = _Rows | _SingleRows | _OwnWatermark | _Idle | _End


class _HandOver:
    """A bounded queue between one running function and the reader. `put` waits for room, `take` never waits."""

    def __init__(self, capacity: int, notify: Callable[[], None]) -> None:
        self._items: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._capacity = capacity
        self._notify = notify
        self.cancelled = False

    def put(self, item: _Item) -> None:
        """Hand over an item; waits until there is room.

        Raises:
            JobCancelledError: the queue was cancelled.
        """
        with self._changed:
            self._wait_for_room()
            self._items.append(item)
        self._notify()

    def put_row(self, row: Row, timestamp: int | None, position: Position | None) -> None:
        """Hand over a row, behind those that wait if there are any. Raises `JobCancelledError` once cancelled."""
        with self._changed:
            last = self._items[-1] if self._items else None
            if not isinstance(last, _SingleRows) or not last.takes(timestamp):
                self._wait_for_room()
                last = _SingleRows(timed=timestamp is not None)
                self._items.append(last)
            elif self.cancelled:
                raise JobCancelledError("the source was cancelled")
            last.put(row, timestamp, position)
            is_first = len(last.rows) == 1
        if is_first:
            self._notify()

    def _wait_for_room(self) -> None:
        while len(self._items) >= self._capacity and not self.cancelled:
            self._changed.wait()
        if self.cancelled:
            raise JobCancelledError("the source was cancelled")

    def end(self, error: BaseException | None) -> None:
        """Hand over the end of the function, which needs no room. After a cancel nobody takes it."""
        with self._changed:
            self._items.append(_End(error))
        self._notify()

    def take(self, max_rows: int) -> list[_Item]:
        """The items that are there, with about `max_rows` rows at most."""
        taken: list[_Item] = []
        rows = 0
        with self._changed:
            while self._items and rows < max_rows:
                item = self._items.popleft()
                if isinstance(item, _Rows):
                    rows += item.batch.num_rows
                elif isinstance(item, _SingleRows):
                    rows += len(item.rows)
                taken.append(item)
            self._changed.notify_all()
        return taken

    def cancel(self) -> None:
        """Wake a `put` that waits, and forget the items that are left."""
        with self._changed:
            self.cancelled = True
            self._items.clear()
            self._changed.notify_all()


class _Context:
    """The `SourceContext` of one running function."""

    def __init__(self, hand_over: _HandOver, position: Position) -> None:
        self._hand_over = hand_over
        self._position = position

    @property
    def restored_position(self) -> Position:
        """The position at which the function begins to read the split."""
        return self._position

    @property
    def cancelled(self) -> bool:
        """Whether the function is to return."""
        return self._hand_over.cancelled

    def collect(self, columns: pa.RecordBatch, *, position: Position | None = None) -> None:
        """Send rows."""
        self._hand_over.put(_Rows(RecordBatch(columns), position))

    def collect_with_timestamps(
        self, columns: pa.RecordBatch, timestamps: pa.Int64Array, *, position: Position | None = None
    ) -> None:
        """Send rows with event times."""
        self._hand_over.put(_Rows(RecordBatch(columns, timestamps), position))

    def collect_row(self, row: Row, timestamp: int | None = None, *, position: Position | None = None) -> None:
        """Send one row."""
        self._hand_over.put_row(row, timestamp, position)

    def emit_watermark(self, timestamp_ms: int) -> None:
        """Send a watermark."""
        self._hand_over.put(_OwnWatermark(timestamp_ms))

    def mark_as_temporarily_idle(self) -> None:
        """Say that the split is idle until its next row."""
        self._hand_over.put(_Idle())


class _Run:
    """One function that reads one split in its own thread."""

    def __init__(self, function: SourceFunction, split: Split, capacity: int, notify: Callable[[], None]) -> None:
        self.split = split
        self.hand_over = _HandOver(capacity, notify)
        self._function = function
        self._thread = threading.Thread(target=self._work, name=f"source-{split.split_id}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            self._function.run(_Context(self.hand_over, self.split.position))
        except JobCancelledError:
            return
        except BaseException as raised:  # it is handed to the subtask's thread, which raises it
            error = raised
        self.hand_over.end(error)

    def stop(self) -> None:
        """Cancel the function, and wait until its thread has ended."""
        self.hand_over.cancel()
        try:
            self._function.cancel()
        finally:
            self._thread.join()


class SourceFunctionReader:
    """A `SourceReader` that runs one source function for each split, each in its own thread.

    Each function hands its rows to the subtask through a queue of its own: if it is faster than the job, it waits in `collect`. Small
    batches that are in the queue together are joined. The position of a split is the one that was sent with the last rows that were polled.
    A function that sends no positions starts again at the first position of its split: it decides itself whether it then sends the same
    rows again (at least once) or not (at most once).

    Args:
        context: the context of the subtask.
        create: makes the function for a split.
        capacity: how many items, most of them batches, wait in a queue at most.
        columns_of: makes columns of rows that are sent one by one. None: rows come in batches only.
    """

    def __init__(
        self,
        context: ReaderContext,
        create: Callable[[Split], SourceFunction],
        *,
        capacity: int = DEFAULT_QUEUE_CAPACITY,
        columns_of: ColumnsOf | None = None,
    ) -> None:
        self._context = context
        self._create = create
        self._capacity = capacity
        self._columns_of = columns_of
        self._runs: list[_Run] = []
        self._no_more = False

    def start(self) -> None:
        """Ask for a split unless some were restored."""
        if not self._runs:
            self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Send the items that the functions handed over, about one batch of each at most; an error of a function is raised here."""
        moved = False
        for run in list(self._runs):
            items = run.hand_over.take(self._context.batch_rows)
            moved = moved or bool(items)
            self._send(run, items, output)
        if moved:
            return InputStatus.MORE_AVAILABLE
        return InputStatus.END_OF_INPUT if self._no_more and not self._runs else InputStatus.NOTHING_AVAILABLE

    def _send(self, run: _Run, items: list[_Item], output: SourceOutput) -> None:
        split_id = run.split.split_id
        waiting: list[RecordBatch] = []
        for given in items:
            item = self._joined(given) if isinstance(given, _SingleRows) else given
            if isinstance(item, _Rows):
                if waiting and (waiting[-1].timestamps is None) != (item.batch.timestamps is None):
                    self._flush(waiting, split_id, output)
                waiting.append(item.batch)
                if item.position is not None:
                    run.split = Split(split_id, dict(item.position))
                continue
            self._flush(waiting, split_id, output)
            if isinstance(item, _OwnWatermark):
                output.emit_watermark(item.timestamp, split_id)
            elif isinstance(item, _Idle):
                output.mark_idle(split_id)
            else:
                self._finish(run, item.error)
        self._flush(waiting, split_id, output)

    def _joined(self, rows: _SingleRows) -> _Rows:
        if self._columns_of is None:
            raise InternalError("a source function sent rows, but its reader knows no columns: send batches")
        return rows.joined(self._columns_of)

    @staticmethod
    def _flush(waiting: list[RecordBatch], split_id: str, output: SourceOutput) -> None:
        if waiting:
            output.emit(concat_batches(waiting), split_id)
            waiting.clear()

    def _finish(self, run: _Run, error: BaseException | None) -> None:
        self._runs.remove(run)
        run.stop()
        if error is not None:
            raise error
        if not self._runs and not self._no_more:
            self._context.request_split()

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Start a function for each split."""
        for split in splits:
            self._runs.append(_Run(self._create(split), split, self._capacity, self._context.notify_available))

    def notify_no_more_splits(self) -> None:
        """Take note that no function is to be started any more."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """The splits whose functions have not ended, with the positions of the last rows that were polled."""
        return tuple(run.split for run in self._runs)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing to do: source functions do not acknowledge rows."""

    def close(self) -> None:
        """Cancel all functions and join their threads."""
        runs, self._runs = self._runs, []
        for run in runs:
            run.stop()
