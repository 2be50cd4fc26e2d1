"""The `socket` connector: records from a text server, cut at a delimiter, with retries and a delay between them.

A socket cannot be read twice, so delivery is at most once: rows that were read but not processed before a failure are lost.
One subtask reads; the others end at once.
"""

from __future__ import annotations

import socket
import threading

from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.format import ReadRequest, RecordDecoder, lines_chunk
from flowrun.api.metrics import MetricGroup
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceReader,
    Split,
    SplitEnumerator,
    split_list,
)
from flowrun.api.source_function import SourceContext
from flowrun.connectors.formats.registry import line_format_named
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.connectors.source_function_reader import SourceFunctionReader
from flowrun.core.clock import Clock
from flowrun.core.options import Option, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, members
from flowrun.errors import ConnectorError, DataError, OptionError

_RECEIVE_BYTES = 1 << 16
_RECORD_LIMIT = 64 << 20
_CONNECT_TIMEOUT_S = 10.0

OPTIONS = (
    Option("hostname", OptionType.STRING, "Server to connect to.", default="localhost"),
    Option("port", OptionType.INT, "Port of the server.", required=True, minimum=1),
    Option("byte-delimiter", OptionType.INT, "Byte that ends a record.", default=10, minimum=0),
    Option(
        "delimiter",
        OptionType.STRING,
        "Text that ends a record, instead of `byte-delimiter`; may be several characters.",
    ),
    Option(
        "max-retries",
        OptionType.INT,
        "Attempts to connect again after a failure or an end; -1: without limit.",
        default=0,
        minimum=-1,
    ),
    Option("retry-delay", OptionType.DURATION, "Wait before each further attempt.", default=500, minimum=0),
    Option(
        "format.on-error",
        OptionType.ENUM,
        "What to do with a record that is no row of the schema: stop the job, or leave it out and count it.",
        default="fail",
        choices=("fail", "skip"),
    ),
)


@record
class SocketSource:
    """Reads records from one TCP connection."""

    name: str
    hostname: str
    port: int
    delimiter: bytes
    max_retries: int
    retry_delay_ms: int
    skip_bad: bool
    format: str
    request: ReadRequest

    @property
    def schema(self) -> Schema:
        """Columns of the decoded records."""
        return self.request.schema

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded: a server may send for ever."""
        return Boundedness.UNBOUNDED

    @property
    def delivery(self) -> Delivery:
        """At most once: a socket cannot be read again."""
        return Delivery.AT_MOST_ONCE

    @property
    def position_shape(self) -> Shape:
        """An empty mapping: a connection has no position."""
        return members({})

    @property
    def enumerator_shape(self) -> Shape:
        """The one connection, or nothing if it was handed out."""
        return split_list(self.position_shape)

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator with one split, the connection."""
        return ListedSplitEnumerator([Split(f"{self.hostname}:{self.port}", {})], restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader that reads the connection in a thread of its own."""
        return SourceFunctionReader(context, lambda _: SocketFunction(self, context.clock, context.metrics))


class SocketFunction:
    """Connects, reads and decodes until the server closes the connection for good.

    The text behind the last delimiter of a connection is the beginning of the first record of the next connection, as in Apache Flink's
    `SocketTextStreamFunction`. It is a record of its own only at the end of the last connection.
    """

    def __init__(self, source: SocketSource, clock: Clock, metrics: MetricGroup) -> None:
        self._source = source
        self._clock = clock
        self._skipped = metrics.counter("numRecordsSkipped")
        self._stopping = threading.Condition()  # held to change `_stop` and `_connection`
        self._stop = threading.Event()
        self._connection: socket.socket | None = None
        self._rest = b""

    def run(self, context: SourceContext) -> None:
        """Read until the last connection ends.

        Raises:
            ConnectorError: the server cannot be reached after all attempts, a record is too long, or it is no row of the schema.
        """
        source = self._source
        decoder = line_format_named(source.format, "socket").create_decoder(source.request)
        attempts = 0
        while not self._stop.is_set():
            try:
                self._read_connection(context, decoder)
                problem = None
            except OSError as error:
                problem = error
            if self._stop.is_set():
                return
            attempts += 1
            if 0 <= source.max_retries < attempts:
                if problem is not None:
                    raise self._unreachable(problem, attempts) from problem
                self._send([self._rest] if self._rest else [], context, decoder)
                return
            self._wait_before_retry()

    def _unreachable(self, problem: OSError, attempts: int) -> ConnectorError:
        source = self._source
        times = "once" if attempts == 1 else f"{attempts} times"
        return ConnectorError(
            f"source '{source.name}': cannot read from {source.hostname}:{source.port} (tried {times}): {problem}",
            retryable=True,
            hint="check that the server runs; `max-retries` and `retry-delay` make flowrun try for longer",
        )

    def _wait_before_retry(self) -> None:
        deadline_ns = self._clock.monotonic_ns() + self._source.retry_delay_ms * 1_000_000
        with self._stopping:
            while not self._stop.is_set() and (left_ns := deadline_ns - self._clock.monotonic_ns()) > 0:
                self._clock.wait(self._stopping, left_ns / 1e6)

    def _read_connection(self, context: SourceContext, decoder: RecordDecoder) -> None:
        source = self._source
        with socket.create_connection((source.hostname, source.port), timeout=_CONNECT_TIMEOUT_S) as connection:
            with self._stopping:
                if self._stop.is_set():
                    return
                self._connection = connection
            connection.settimeout(None)
            while received := connection.recv(_RECEIVE_BYTES):
                *records, self._rest = (self._rest + received).split(source.delimiter)
                if len(self._rest) > _RECORD_LIMIT:
                    raise DataError(
                        f"source '{source.name}': {_RECORD_LIMIT >> 20} MB without a delimiter {source.delimiter!r}",
                        hint="check `delimiter` or `byte-delimiter`",
                    )
                self._send(records, context, decoder)

    def _send(self, records: list[bytes], context: SourceContext, decoder: RecordDecoder) -> None:
        if self._source.delimiter == b"\n":
            records = [r.removesuffix(b"\r") for r in records]
        if not records:
            return
        decoded = decoder.decode(lines_chunk(records))
        if decoded.bad:
            if not self._source.skip_bad:
                bad = decoded.bad[0]
                raise DataError(
                    f"source '{self._source.name}': record {records[bad.index][:120]!r} is no row of the schema: {bad.reason}",
                    hint="`format.on-error: skip` leaves such records out and counts them",
                )
            self._skipped.inc(len(decoded.bad))
        if decoded.columns.num_rows:
            context.collect(decoded.columns)

    def cancel(self) -> None:
        """Close the connection, which ends a blocked read."""
        with self._stopping:
            self._stop.set()
            self._stopping.notify_all()
            if self._connection is not None:
                try:
                    self._connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return  # the connection was closed by the other side just before


def _create_source(table: TableDefinition) -> SocketSource:
    if table.format is None:
        raise OptionError(
            "format", f"socket: source '{table.name}' needs a format", hint="for plain lines: format: raw"
        )
    options = table.options
    request = ReadRequest(table.schema, table.declared or table.schema, options, table.filters)
    line_format_named(table.format, "socket").check_delimited(request.declared, options)
    if options.integer("port") > 65_535:
        raise OptionError("port", f"socket: port must be at most 65535, got {options.integer('port')}")
    text = options.get("delimiter")
    if text == "":
        raise OptionError("delimiter", "socket: the delimiter must not be empty")
    delimiter = bytes([options.integer("byte-delimiter")]) if text is None else str(text).encode()
    return SocketSource(
        table.name,
        options.text("hostname"),
        options.integer("port"),
        delimiter,
        options.integer("max-retries"),
        options.integer("retry-delay"),
        options.text("format.on-error") == "skip",
        table.format,
        request,
    )


CONNECTOR = Connector(
    name="socket",
    summary="Records from a text server, cut at a delimiter.",
    source_options=OPTIONS,
    create_source=_create_source,
    source_delivery=Delivery.AT_MOST_ONCE,
    formats=("csv", "json", "raw"),
    notes="At most once: a socket cannot be read again. Try it with `nc -lk 9999`.",
)
