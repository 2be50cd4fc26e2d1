"""The source reader of one subtask: hands on what the fetcher's thread decoded, and knows how far each partition was read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from flowrun.api.operator import InputStatus
from flowrun.api.source import ReaderContext, RejectedRecord, SourceOutput, Split
from flowrun.connectors.kafka.decoding import BadMessage
from flowrun.connectors.kafka.enumerator import partition_of, split_of
from flowrun.connectors.kafka.fetcher import Ended, Fetched, PartitionFetcher
from flowrun.connectors.kafka.partitions import Offsets, Partition
from flowrun.core.row_errors import OnError
from flowrun.errors import DataError

_SHOWN_BYTES = 120
MakeFetcher = Callable[[Callable[[], None], Callable[[Any], None]], PartitionFetcher]
"""(what to call when there is something, what to tell of commits) → a fetcher."""


class KafkaSourceReader:
    """Reads partitions, all at the same time.

    Args:
        make_fetcher: makes what reads them.
        on_error: what becomes of messages that are no rows.
        hint_for: (the bytes, why they are no row) → what the user can do.
        context: of the subtask.
        commits: whether offsets are committed to the group when their checkpoint is complete.
    """

    reads_splits_together = True

    def __init__(
        self,
        make_fetcher: MakeFetcher,
        on_error: OnError,
        hint_for: Callable[[bytes, str], str],
        context: ReaderContext,
        *,
        commits: bool,
    ) -> None:
        self._on_error = on_error
        self._hint_for = hint_for
        self._context = context
        self._commits = commits
        self._fetcher = make_fetcher(context.notify_available, self._note_commit)
        self._splits: dict[str, Split] = {}
        self._snapshots: dict[int, Offsets] = {}
        self._current: Fetched | None = None
        self._row = 0
        self._bad: deque[BadMessage] = deque()
        self._started = self._no_more = False
        metrics = context.metrics
        self._skipped = metrics.counter("numRecordsSkipped")
        self._failed = metrics.counter("numRecordsFailed.decoding")
        self._tombstones = metrics.counter("numTombstonesSkipped")
        self._commits_succeeded = metrics.counter("commitsSucceeded")
        self._commits_failed = metrics.counter("commitsFailed")
        metrics.gauge("pendingRecords", lambda: self._fetcher.lag(self._positions()))

    def start(self) -> None:
        """Open the client, and ask for a partition."""
        self._fetcher.start()
        self._started = True
        self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Emit rows of one partition.

        Raises:
            ConnectorError: a partition cannot be read.
            DataError: a message is no row, and the source does not leave such messages out.
        """
        if self._current is None:
            item = self._fetcher.take()
            if item is None:
                ended = self._no_more and not self._splits
                return InputStatus.END_OF_INPUT if ended else InputStatus.NOTHING_AVAILABLE
            if isinstance(item, Ended):
                self._splits.pop(item.partition.split_id, None)
                return InputStatus.MORE_AVAILABLE
            self._current, self._row = item, 0
            self._bad.extend(item.messages.bad)
            self._tombstones.inc(item.messages.tombstones)
        self._emit(self._current, output)
        return InputStatus.MORE_AVAILABLE

    def _emit(self, fetched: Fetched, output: SourceOutput) -> None:
        messages, partition = fetched.messages, fetched.partition
        rows, offsets = messages.rows, messages.offsets
        begin, end = self._row, min(self._row + self._context.batch_rows, rows.num_rows)
        if begin < end < rows.num_rows:  # the rows of one message stay together
            end = int(np.searchsorted(offsets, offsets[end - 1], side="right"))
        if end == rows.num_rows:
            self._current, self._row, reached = None, 0, messages.next_offset
        else:
            self._row, reached = end, int(offsets[end])
        while self._bad and self._bad[0].offset < reached:
            self._handle(partition, self._bad.popleft())
        if end > begin:
            output.emit(rows.slice(begin, end - begin), partition.split_id)
        stop = cast("int | None", self._splits[partition.split_id].position["stop"])
        self._splits[partition.split_id] = split_of(partition, reached, stop)

    def _handle(self, partition: Partition, bad: BadMessage) -> None:
        place = f"topic '{partition.topic}', partition {partition.number}, offset {bad.offset}"
        match self._on_error:
            case OnError.DEAD_LETTER if self._context.reject is not None:
                self._context.reject(
                    RejectedRecord(
                        f"{partition.topic}/{partition.number}",
                        bad.offset,
                        bad.reason,
                        bad.value,
                        shown=bad.raw,
                        topic=partition.topic,
                        partition=partition.number,
                        timestamp_ms=bad.timestamp_ms,
                        key=bad.key,
                        headers=bad.headers,
                    )
                )
            case OnError.SKIP | OnError.DEAD_LETTER:
                self._skipped.inc()
                self._failed.inc()
                self._context.metrics.note(f"{place}: {bad.reason}")
            case _:
                shown = bad.raw[:_SHOWN_BYTES].decode("utf-8", "replace") + "…" * (len(bad.raw) > _SHOWN_BYTES)
                raise DataError(f"{place}: {bad.reason}\n    {shown}", hint=self._hint_for(bad.raw, bad.reason))

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take partitions to read, and ask for more: a reader reads all of its partitions at the same time."""
        for split in splits:
            self._splits[split.split_id] = split
        self._fetcher.add(splits)
        if self._started:
            self._context.request_split()

    def notify_no_more_splits(self) -> None:
        """Take note that the enumerator has no more partitions."""
        self._no_more = True

    def _positions(self) -> dict[Partition, int]:
        return {partition_of(s): cast(int, s.position["offset"]) for s in list(self._splits.values())}

    def snapshot(self) -> Sequence[Split]:
        """The partitions with the offsets to read next."""
        return tuple(self._splits.values())

    def notify_snapshot(self, checkpoint_id: int) -> None:
        """The last snapshot belongs to this checkpoint."""
        if self._commits:
            self._snapshots[checkpoint_id] = self._positions()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the offsets of the checkpoint to the group. Nothing is read from there; it shows others how far the job has come."""
        offsets = self._snapshots.pop(checkpoint_id, None)
        for older in [c for c in self._snapshots if c < checkpoint_id]:
            del self._snapshots[older]
        if offsets:
            self._fetcher.commit(offsets)

    def _note_commit(self, error: Any) -> None:
        (self._commits_succeeded if error is None else self._commits_failed).inc()

    def close(self) -> None:
        """End the thread and close the client."""
        self._fetcher.stop()
