"""Record writers: from the end of a chain into the result partition of one edge."""

from __future__ import annotations

from flowrun.api.metrics import Counter
from flowrun.core.elements import LatencyMarker, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.selected_rows import SelectedRows
from flowrun.runtime.network.key_sample import KeySample
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.selectors import BroadcastSelector, ChannelSelector, KeyGroupSelector
from flowrun.runtime.row_samples import ROWS, RowSample


class RecordWriter:
    """Deals batches to the subpartitions of a result partition, and sends events to all of them. Used by the task's thread.

    Args:
        selector: deals the rows.
        partition: gets them.
        records_out: counts them.
        sample: sees them, if they are dealt by key.
        rows: sees them while somebody looks at the job's rows.
    """

    def __init__(
        self,
        selector: ChannelSelector,
        partition: ResultPartition,
        records_out: Counter,
        sample: KeySample | None = None,
        rows: RowSample | None = None,
    ) -> None:
        self._selector = selector
        self._by_key = selector if isinstance(selector, KeyGroupSelector) else None
        self._broadcasts = isinstance(selector, BroadcastSelector)
        self._records_out = records_out
        self._sample = sample
        self._rows = rows
        self.partition = partition
        self._next_marker = 0

    def emit(self, batch: RecordBatch) -> None:
        """Send rows (at least one unless there are watermarks between them, which go to all channels); waits under back pressure.

        Raises:
            JobCancelledError: the job was cancelled.
        """
        self._records_out.inc(batch.num_rows)
        if self._sample is not None:
            self._sample.look(batch.columns)
        if self._rows is not None and self._rows.is_on:
            self._rows.look(batch)
        if self._broadcasts:
            self.partition.broadcast(batch)
        else:
            self.partition.write(self._selector.deal(batch))

    def emit_selected(self, selected: SelectedRows) -> None:
        """Send rows that are not gathered yet: if they are dealt by key, they are gathered once, for each subtask apart."""
        if self._by_key is None:
            self.emit(selected.rows())
            return
        self._records_out.inc(selected.num_rows)
        if self._sample is not None:
            self._sample.look(selected.batch.columns, selected.positions)
        if self._rows is not None and self._rows.is_on:
            self._rows.look(selected.batch.take(selected.positions[-ROWS:]))  # the last ones are all that it keeps
        self.partition.write(self._by_key.deal_selected(selected))

    def broadcast_event(self, event: Watermark | WatermarkStatus) -> None:
        """Send an event to every channel."""
        self.partition.broadcast_event(event)

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Send a probe to one channel, in turn: its number must not multiply from exchange to exchange."""
        self.partition.send_event(self._next_marker, marker)
        self._next_marker = (self._next_marker + 1) % len(self.partition.subpartitions)
