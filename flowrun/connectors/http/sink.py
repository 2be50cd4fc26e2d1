"""The HTTP sink: rows are sent as they come, or wait beside the checkpoint and are sent under keys that never change (ADR 39)."""

from __future__ import annotations

import uuid

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import TableDefinition
from flowrun.api.operator import TimerHandle
from flowrun.api.sink import Committer, RowCheck, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.formats.records import message_check, refusing
from flowrun.connectors.http.commit import HttpCommitter
from flowrun.connectors.http.cutting import RequestCutter
from flowrun.connectors.http.encoding import RowEncoder
from flowrun.connectors.http.endpoint import Endpoint, endpoint_of
from flowrun.connectors.http.lanes import RequestLanes
from flowrun.connectors.http.layout import BodyMode, SinkLayout, layout_of
from flowrun.connectors.staged.commit import STAGED_SHAPE
from flowrun.connectors.staged.writer import StagedWriter
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape


@record(slots=False)
class HttpSink:
    """Sends rows as requests.

    Attributes:
        endpoint: the server.
        layout: which requests rows become.
        delivery: at least once, or exactly once where checkpoints are taken.
        flush_ms: how long rows wait for others to go with.
    """

    endpoint: Endpoint
    layout: SinkLayout
    delivery: Delivery
    flush_ms: int

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        return self.layout.columns

    @property
    def changes_taken(self) -> ChangesTaken:
        """All changes if the format carries them; else upserts by the PRIMARY KEY, or inserts."""
        if self.layout.record_format.changelog:
            return ChangesTaken.ALL
        return ChangesTaken.UPSERT if self.layout.keys else ChangesTaken.APPEND

    @property
    def committable_shape(self) -> Shape:
        """Files of rows that wait."""
        return STAGED_SHAPE

    @property
    def delivery_condition(self) -> str:
        """What exactly once rests on."""
        if self.delivery is not Delivery.EXACTLY_ONCE:
            return ""
        header = self.layout.shape.key_header
        return f"if the server takes requests of the same {header} once"

    def create_check(self) -> RowCheck | None:
        """A check for values that the format cannot write; None: it can write all values."""
        columns = self.layout.columns
        encoder = self.layout.record_format.create_encoder(columns, self.layout.options)
        if self.layout.shape.mode is not BodyMode.LINES:
            return message_check(encoder, columns.names)
        refuser = refusing(encoder)
        return None if refuser is None else refuser.check

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """One that sends at once, or one whose rows wait beside the checkpoint."""
        encoder = RowEncoder(self.layout)
        if self.delivery is Delivery.EXACTLY_ONCE and context.staging:
            return _CheckedStagedWriter(self, context, encoder)
        return HttpWriter(self, context, encoder)

    def create_committer(self) -> Committer | None:
        """Of rows that wait; None if they are sent as they come."""
        if self.delivery is not Delivery.EXACTLY_ONCE:
            return None
        return HttpCommitter(self.endpoint, self.layout.content_type)


class HttpWriter(ImmediateWriter):
    """Sends rows as they come; at a checkpoint it waits until all are taken."""

    def __init__(self, sink: HttpSink, context: WriterContext, encoder: RowEncoder) -> None:
        self._sink = sink
        self._context = context
        self._encoder = encoder
        self._lanes: RequestLanes | None = None
        self._cutter: RequestCutter | None = None
        self._timer: TimerHandle | None = None

    def open(self) -> None:
        """Read PEM files; the server is asked with the first row. Raises ConnectorError, SetupError."""
        sink, metrics = self._sink, self._context.metrics
        requests, further = metrics.counter("numRequests"), metrics.counter("sinkRetries")
        self._lanes = RequestLanes(
            sink.endpoint,
            sink.layout.shape.lanes,
            lambda: self._context.pause(0),
            lambda is_further: (further if is_further else requests).inc(),
        )
        self._cutter = RequestCutter(
            sink.layout.shape,
            sink.endpoint.url,
            sink.layout.content_type,
            f"{uuid.uuid4()}",  # rows that come again after a restart go together with others: nothing of them stays the same
            self._lanes.send,
        )

    def write(self, batch: RecordBatch) -> None:
        """Send rows, or let them wait for others to go with.

        Raises:
            DataError: a row cannot be written.
            ConnectorError: an earlier request failed.
        """
        if batch.num_rows:
            self._parts[1].add(self._encoder.encode(batch))
            self._arm()

    @property
    def _parts(self) -> tuple[RequestLanes, RequestCutter]:
        assert self._lanes is not None
        assert self._cutter is not None
        return self._lanes, self._cutter

    def _arm(self) -> None:
        if self._timer is None:
            times = self._context.processing_time
            self._timer = times.register(times.now_ms() + self._sink.flush_ms, self._on_time)

    def _on_time(self, _timestamp_ms: int) -> None:
        self._timer = None
        lanes, cutter = self._parts
        cutter.flush()
        lanes.raise_failure()
        if lanes.open_requests:  # so that a failure is noticed where no more rows come
            self._arm()

    def flush(self, end_of_input: bool) -> None:
        """Send what waits, and wait until the server has taken everything. Raises ConnectorError."""
        lanes, cutter = self._parts
        cutter.flush()
        lanes.drain()

    def close(self) -> None:
        """Give up what is under way, and disconnect; idempotent."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        lanes, self._lanes = self._lanes, None
        if lanes is not None:
            lanes.close()


class _CheckedStagedWriter(StagedWriter):
    """Lets rows wait beside the checkpoint. What can be wrong without asking the server is found before the first commit."""

    def __init__(self, sink: HttpSink, context: WriterContext, encoder: RowEncoder) -> None:
        super().__init__(context, encoder.schema, encoder.encode)
        self._sink = sink

    def open(self) -> None:
        """Read PEM files. Raises ConnectorError, SetupError."""
        RequestLanes(self._sink.endpoint, 1).close()


def create_sink(table: TableDefinition) -> HttpSink:
    """The sink of a table definition.

    Raises:
        OptionError: an option is wrong, or options do not go together.
    """
    options = table.options
    endpoint = endpoint_of(options, options.integer("sink.max-retries"))
    layout = layout_of(table, endpoint.url)
    exactly_once = options.text("sink.delivery-guarantee") == "exactly-once"
    delivery = Delivery.EXACTLY_ONCE if exactly_once else Delivery.AT_LEAST_ONCE
    return HttpSink(endpoint, layout, delivery, options.integer("sink.flush-buffer.timeout"))
