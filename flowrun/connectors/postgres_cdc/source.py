"""The source: one split, which is the table and then its log. One subtask hands it on, whatever order of rows its connections read."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.api.changelog import ChangelogMode
from flowrun.api.operator import InputStatus
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceOutput,
    SourceReader,
    Split,
    SplitEnumerator,
    split_list,
)
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.connectors.postgres_cdc.fetcher import Capture, CaptureFetcher, CapturePosition
from flowrun.connectors.postgres_cdc.membership import MEMBERSHIP
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, listed, members, optional

_POSITION = members(
    {"lsn": optional(integer()), "skip": integer(), "left": optional(listed(listed(integer(), length=4)))},
    later={"membership": optional(MEMBERSHIP)},
)
_NOTHING: dict[str, JsonValue] = {"lsn": None, "skip": 0, "left": None}


@record(slots=False)
class PostgresCdcSource:
    """Reads a table, and follows its changes.

    Attributes:
        capture: what is read.
    """

    capture: Capture

    @property
    def schema(self) -> Schema:
        """The columns of the rows."""
        return self.capture.schema

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded: a table may change for ever."""
        return Boundedness.UNBOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once: the log is read again from exact places, and the server keeps it until checkpoints are complete."""
        return Delivery.EXACTLY_ONCE

    @property
    def changelog_mode(self) -> ChangelogMode:
        """Upserts by the primary key."""
        return ChangelogMode.UPSERT

    @property
    def position_shape(self) -> Shape:
        """A place in the log, how the table is published, and while the table itself is read, what is left of it."""
        return _POSITION

    @property
    def enumerator_shape(self) -> Shape:
        """The one split, or nothing if it was handed out."""
        return split_list(_POSITION)

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator with one split."""
        return ListedSplitEnumerator([Split(self.capture.table.slot, _NOTHING)], restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader with a thread of its own."""
        return PostgresCdcReader(self.capture, context)


class PostgresCdcReader:
    """Hands on what the fetcher has read."""

    def __init__(self, capture: Capture, context: ReaderContext) -> None:
        self._capture = capture
        self._context = context
        self._split: Split | None = None
        self._fetcher: CaptureFetcher | None = None
        self._started = self._no_more = False
        self._snapshots: dict[int, int] = {}

    def start(self) -> None:
        """Begin to read, or ask for the split."""
        self._started = True
        if self._split is None:
            self._context.request_split()
        else:
            self._open(self._split)

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take the split."""
        for split in splits:
            self._split = split
            if self._started:
                self._open(split)

    def _open(self, split: Split) -> None:
        position = CapturePosition.from_json(split.position)
        context = self._context
        self._fetcher = CaptureFetcher(
            self._capture, position, context.batch_rows, context.parallelism, context.notify_available
        )
        self._fetcher.start()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Emit rows.

        Raises:
            ConnectorError: the database cannot be read.
            DataError: a value is not of the declared type.
        """
        if self._split is None or self._fetcher is None:
            return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE
        item = self._fetcher.take()
        if item is None:
            return InputStatus.NOTHING_AVAILABLE
        if item.rows is not None:
            for start in range(0, item.rows.num_rows, self._context.batch_rows):
                output.emit(item.rows.slice(start, self._context.batch_rows), self._split.split_id)
        self._split = Split(self._split.split_id, item.position.to_json())
        return InputStatus.MORE_AVAILABLE

    def notify_no_more_splits(self) -> None:
        """Another subtask reads the table."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """The split with the place that was reached."""
        return () if self._split is None else (self._split,)

    def notify_snapshot(self, checkpoint_id: int) -> None:
        """The last snapshot belongs to this checkpoint."""
        lsn = None if self._split is None else self._split.position["lsn"]
        if isinstance(lsn, int):
            self._snapshots[checkpoint_id] = lsn

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The server may forget what comes before the checkpoint's place."""
        lsn = self._snapshots.pop(checkpoint_id, None)
        self._snapshots = {c: at for c, at in self._snapshots.items() if c > checkpoint_id}
        if lsn is not None and self._fetcher is not None:
            self._fetcher.keep(lsn)

    def close(self) -> None:
        """End the thread; idempotent."""
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            fetcher.stop()
