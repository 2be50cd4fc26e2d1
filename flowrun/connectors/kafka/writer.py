"""The writer that sends messages as rows come: at least once with checkpoints."""

from __future__ import annotations

from flowrun.api.operator import TimerHandle
from flowrun.api.sink import WriterContext
from flowrun.connectors.kafka.encoding import MessageEncoder
from flowrun.connectors.kafka.partitioner import PartitionChooser
from flowrun.connectors.kafka.producing import MessageProducer
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.elements import RecordBatch, concat_batches


class KafkaWriter(ImmediateWriter):
    """Writes in one subtask.

    Args:
        producer: sends.
        encoder: makes messages of rows.
        chooser: chooses partitions; None: the client does.
        context: of the subtask.
        waits_for_acknowledgement: before a checkpoint is taken.
        most_rows: how many rows are gathered, so that only the last of each key is sent; 0: none.
        interval_ms: how long they are gathered.
    """

    def __init__(
        self,
        producer: MessageProducer,
        encoder: MessageEncoder,
        chooser: PartitionChooser,
        context: WriterContext,
        *,
        waits_for_acknowledgement: bool = True,
        most_rows: int = 0,
        interval_ms: int = 0,
    ) -> None:
        self._producer = producer
        self._encoder = encoder
        self._chooser = chooser
        self._context = context
        self._waits = waits_for_acknowledgement
        self._most_rows = most_rows
        self._interval_ms = interval_ms
        self._gathered: list[RecordBatch] = []
        self._rows = 0
        self._timer: TimerHandle | None = None

    def open(self) -> None:
        """Check that the topics are there. It blocks on I/O. Raises ConnectorError."""
        self._chooser.open(self._producer)
        if self._most_rows:
            self._arm()

    def _arm(self) -> None:
        due = self._context.processing_time.now_ms() + self._interval_ms
        self._timer = self._context.processing_time.register(due, self._send_in_time)

    def _send_in_time(self, now_ms: int) -> None:
        self._send_gathered()
        self._arm()

    def write(self, batch: RecordBatch) -> None:
        """Send rows, or gather them.

        Raises:
            DataError: a row cannot be written.
            ConnectorError: an earlier one could not be delivered.
        """
        if not batch.num_rows:
            return
        if not self._most_rows:
            self._send(batch)
            return
        self._gathered.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self._most_rows:
            self._send_gathered()

    def _send_gathered(self) -> None:
        gathered, self._gathered, self._rows = self._gathered, [], 0
        if gathered:
            self._send(concat_batches([RecordBatch(b.columns, None, b.row_kinds) for b in gathered]))

    def _send(self, batch: RecordBatch) -> None:
        self._producer.send(self._chooser.chosen(self._encoder.encode(batch)))

    def flush(self, end_of_input: bool) -> None:
        """Wait until everything is acknowledged.

        Raises:
            ConnectorError: a message could not be delivered.
        """
        self._send_gathered()
        if self._waits or end_of_input:
            self._producer.flush()

    def close(self) -> None:
        """Release the client; what was not sent is forgotten."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._producer.close()
