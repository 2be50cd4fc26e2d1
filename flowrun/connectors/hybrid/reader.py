"""The reader of one subtask: it has a reader of the source whose turn it is, and lets through the rows that are that source's."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from flowrun.api.connector import EventTime
from flowrun.api.operator import InputStatus
from flowrun.api.source import (
    KnowsCheckpoints,
    ReaderContext,
    ReadsSplitsTogether,
    SourceOutput,
    SourceReader,
    Split,
)
from flowrun.connectors.hybrid.parts import SWITCH, End, Part, identifier_of, rows_of_part, unwrap
from flowrun.core.elements import RecordBatch
from flowrun.errors import StateError


class _PartOutput:
    """Takes what the reader of a part emits, and hands on what is the part's."""

    def __init__(self, reading: HybridReader, part: Part) -> None:
        self._reading = reading
        self._part = part
        self._rows = rows_of_part(part, reading.event_time, reading.names, reading.leave_out)
        self.to: SourceOutput | None = None

    @property
    def _to(self) -> SourceOutput:
        assert self.to is not None
        return self.to

    def emit(self, columns: RecordBatch, split_id: str) -> None:
        """Rows of a split."""
        rows = self._rows(columns)
        if rows.num_rows:
            self._to.emit(rows, self._part.split_id(split_id))

    def emit_watermark(self, timestamp_ms: int, split_id: str) -> None:
        """A watermark of the source's own."""
        self._to.emit_watermark(timestamp_ms, self._part.split_id(split_id))

    def advance(self, timestamp_ms: int, split_id: str) -> None:
        """How far the split has come in event time."""
        self._to.advance(timestamp_ms, self._part.split_id(split_id))

    def mark_idle(self, split_id: str) -> None:
        """Nothing is expected from the split."""
        self._to.mark_idle(self._part.split_id(split_id))


class HybridReader:
    """Reads the splits of one source after the other.

    Between two sources it waits for other readers. If the switch has a time, event time is at that time then: none of its rows can be
    older any more. If not, event time stands where it has come to.

    Args:
        parts: the sources in order.
        event_time: by which it is decided whose rows they are; None: nothing is left out.
        names: of the columns of rows.
        context: of the subtask.
    """

    def __init__(
        self, parts: Sequence[Part], event_time: EventTime | None, names: Sequence[str], context: ReaderContext
    ) -> None:
        self.event_time = event_time
        self.names = names
        self._parts = {p.identifier: p for p in parts}
        self._context = context
        self._left_out = context.metrics.counter("numRecordsOfOtherSources")
        self._queue: deque[Split] = deque()
        """Splits that no reader of a source has."""
        self._reader: SourceReader | None = None
        self._part: Part | None = None
        self._output: _PartOutput | None = None
        self._told_end = False
        """Whether the reader was told that there are no more splits."""
        self._ended: Part | None = None
        """The source that has no more splits for this reader, as long as it has not asked for those of the next one."""
        self._started = self._no_more = False

    def leave_out(self, rows: int) -> None:
        """Note that so many rows are those of another source."""
        self._left_out.inc(rows)

    @property
    def reads_splits_together(self) -> bool:
        """Whether the source whose turn it is reads its splits at the same time."""
        reader: object = self._reader
        return isinstance(reader, ReadsSplitsTogether) and reader.reads_splits_together

    def start(self) -> None:
        """Begin with the splits that were restored, or ask for one."""
        self._started = True
        if self._queue:
            self._open(self._part_of(self._queue[0]))
        else:
            self._context.request_split()

    def _part_of(self, split: Split) -> Part:
        part = self._parts.get(identifier_of(split))
        if part is None:
            raise StateError(
                f"the state has a split of source '{identifier_of(split)}', which the table does not have",
                hint="give the source its name back, or give the table's source another uid to start it anew",
            )
        return part

    def _open(self, part: Part) -> None:
        """Begin to read a source, with those of its splits that are there."""
        self._part, self._output = part, _PartOutput(self, part)
        self._told_end = False
        self._reader = part.source.create_reader(self._context)
        self._hand_on()
        self._reader.start()
        self._tell_end()

    def _hand_on(self) -> None:
        """Give the reader its splits."""
        mine: list[Split] = []
        while self._queue and self._part is not None and identifier_of(self._queue[0]) == self._part.identifier:
            mine.append(unwrap(self._queue.popleft()))
        if mine and self._reader is not None:
            self._reader.add_splits(mine)

    def _tell_end(self) -> None:
        """Tell the reader that it gets no more splits, once that is known."""
        is_known = self._ended is not None or self._no_more or self._queue
        if self._reader is not None and is_known and not self._told_end:
            self._told_end = True
            self._reader.notify_no_more_splits()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Let the reader of the source emit a batch, or go on to the next source."""
        if self._reader is None and not self._next(output):
            return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE
        assert self._reader is not None
        assert self._output is not None
        self._output.to = output
        status = self._reader.poll(self._output)
        if status is not InputStatus.END_OF_INPUT:
            return status
        self._close_reader()
        return InputStatus.MORE_AVAILABLE

    def _next(self, output: SourceOutput) -> bool:
        """Whether there is a source to read now."""
        if self._queue:
            self._open(self._part_of(self._queue[0]))
            return True
        ended, self._ended = self._ended, None
        if ended is not None:
            if ended.end_ms is not None:
                output.advance(ended.end_ms - 1, SWITCH)
            self._context.request_split()
        return False

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take splits to read, or the end of a source."""
        for split in splits:
            end = End.of(split)
            if end is None:
                self._queue.append(split)
            else:
                self._ended = self._parts[end.source]
        if self._started and self._reader is None and self._queue:
            self._open(self._part_of(self._queue[0]))
        self._hand_on()
        self._tell_end()

    def notify_no_more_splits(self) -> None:
        """Take note that the last source has no more splits."""
        self._no_more = True
        self._tell_end()

    def snapshot(self) -> Sequence[Split]:
        """The splits that were not read to their end."""
        part, reader = self._part, self._reader
        mine = () if part is None or reader is None else tuple(map(part.wrap, reader.snapshot()))
        return (*mine, *self._queue)

    def notify_snapshot(self, checkpoint_id: int) -> None:
        """The last snapshot belongs to this checkpoint."""
        reader: object = self._reader
        if isinstance(reader, KnowsCheckpoints):
            reader.notify_snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The reader of the source acknowledges what it has read."""
        if self._reader is not None:
            self._reader.notify_checkpoint_complete(checkpoint_id)

    def _close_reader(self) -> None:
        reader, self._reader, self._part, self._output = self._reader, None, None, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """Close the reader of the source."""
        self._close_reader()
