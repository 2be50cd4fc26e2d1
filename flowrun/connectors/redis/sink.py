"""The Redis sink: at least once as rows come, or exactly once in one transaction a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committer, RowCheck, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.formats.records import message_check
from flowrun.connectors.redis.commands import COMMANDS, command
from flowrun.connectors.redis.encoding import CommandEncoder
from flowrun.connectors.redis.layout import RedisLayout, layout_of
from flowrun.connectors.redis.server import RedisConnection, RedisServer, server_of
from flowrun.connectors.staged.commit import STAGED_SHAPE, StagedCommit, StagedCommitter
from flowrun.connectors.staged.writer import StagedWriter
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape
from flowrun.errors import ConnectorError, OptionError

_MARKER = "flowrun:commit:"
"""What the names of the values begin with that say which commits took place."""


@record(slots=False)
class RedisSink:
    """Writes each row as a value, or as a part of one.

    Attributes:
        server: to write to.
        layout: where rows go.
        schema: their columns.
        delivery: at least once, or exactly once where checkpoints are taken.
        ttl_ms: how long the value of a key stays; None: for ever.
    """

    server: RedisServer
    layout: RedisLayout
    schema: Schema
    delivery: Delivery
    ttl_ms: int | None

    @property
    def changes_taken(self) -> ChangesTaken:
        """Upserts where each key has a value, else inserts."""
        return ChangesTaken.UPSERT if self.layout.type.is_keyed else ChangesTaken.APPEND

    @property
    def committable_shape(self) -> Shape:
        """Files of rows that wait."""
        return STAGED_SHAPE

    def create_check(self) -> RowCheck | None:
        """A check for values that the format cannot write; None: it can write all values."""
        used = self.layout.record_format
        if used is None:
            return None
        return message_check(used.create_encoder(self.layout.values, self.layout.options), self.layout.values.names)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """One that writes at once, or one whose rows wait beside the checkpoint."""
        encoder = CommandEncoder(self.layout, self.schema, self.ttl_ms)
        if self.delivery is Delivery.EXACTLY_ONCE and context.staging:
            return _CheckedStagedWriter(self, context, encoder)
        return RedisWriter(self, encoder)

    def create_committer(self) -> Committer | None:
        """Of rows that wait; None if they are written as they come."""
        return (
            StagedCommitter(lambda: RedisTarget(self.server, self.layout))
            if self.delivery is Delivery.EXACTLY_ONCE
            else None
        )


class RedisWriter(ImmediateWriter):
    """Writes rows as they come, a batch at a time."""

    def __init__(self, sink: RedisSink, encoder: CommandEncoder) -> None:
        self._sink = sink
        self._encoder = encoder
        self._connection: RedisConnection | None = None

    def open(self) -> None:
        """Connect; raises ConnectorError."""
        self._connection = self._sink.server.connect()
        check_type(self._connection, self._sink.layout)

    def write(self, batch: RecordBatch) -> None:
        """Write rows, and wait for the answers.

        Raises:
            DataError: a row cannot be written.
            ConnectorError: the server does not answer, or refuses a command.
        """
        if batch.num_rows:
            assert self._connection is not None
            _send(self._connection, self._encoder.encode(batch))

    def close(self) -> None:
        """Disconnect; idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _send(connection: RedisConnection, rows: pa.RecordBatch) -> None:
    connection.run([_bytes_of(rows.column("command"))], pc.sum(rows.column("answers")).as_py() or 0, "write rows")


def check_type(connection: RedisConnection, layout: RedisLayout) -> None:
    """Rows can be added to the one value of a layout: a transaction would not be undone because some of its commands cannot be carried out.

    Raises:
        ConnectorError: it is there and of another type.
    """
    if layout.type.is_keyed:
        return
    found = connection.ask("TYPE", layout.key).decode()
    if found not in ("none", layout.type.value):
        raise ConnectorError(
            f"the value '{layout.key}' on {connection.server} is a {found}: rows cannot be added to it as to a {layout.type.value}",
            retryable=False,
            hint="choose another 'key', or the 'type' that it has",
        )


def _bytes_of(commands: pa.Array) -> pa.Buffer:
    """All commands behind each other, without a copy: they are the values of an array without NULLs."""
    _, offsets, data = commands.buffers()
    places = memoryview(offsets).cast("i")
    return data.slice(places[commands.offset], places[commands.offset + len(commands)] - places[commands.offset])


class _CheckedStagedWriter(StagedWriter):
    """Lets rows wait beside the checkpoint; the server is asked first, as nobody else would before the first commit."""

    def __init__(self, sink: RedisSink, context: WriterContext, encoder: CommandEncoder) -> None:
        super().__init__(context, COMMANDS, encoder.encode)
        self._sink = sink

    def open(self) -> None:
        """Connect once; raises ConnectorError."""
        connection = self._sink.server.connect()
        try:
            connection.ask("PING")
            check_type(connection, self._sink.layout)
        finally:
            connection.close()


class RedisTarget:
    """Writes staged rows between MULTI and EXEC. The record of what was committed is watched meanwhile.

    A transaction of a process that died can be on its way still when the next process asks for the record. Whichever is carried out
    first changes the record, and the other one, which watches it, is not carried out at all.
    """

    def __init__(self, server: RedisServer, layout: RedisLayout) -> None:
        self._server = server
        self._layout = layout
        self._connection: RedisConnection | None = None

    def committed_number(self, writer: str) -> int:
        """The number in the record; raises ConnectorError."""
        found = self._open().ask("GET", _MARKER + writer)
        try:
            return 0 if found is None else int(found)
        except ValueError:
            raise ConnectorError(
                f"the value '{_MARKER}{writer}' on {self._server} is no number: another program has changed it",
                retryable=False,
                hint="delete it if the last checkpoint was not committed, else set it to the number of that checkpoint",
            ) from None

    def write(self, commit: StagedCommit, batches: Iterator[pa.RecordBatch]) -> None:
        """One transaction with all rows and the record.

        Raises:
            ConnectorError: the server does not answer, refuses a command, or the record was changed meanwhile.
        """
        connection, marker = self._open(), _MARKER + commit.writer
        connection.ask("WATCH", marker)
        if self.committed_number(commit.writer) >= commit.number:
            connection.ask("UNWATCH")
            return
        check_type(connection, self._layout)
        rows = list(batches)
        answers = sum(pc.sum(b.column("answers")).as_py() or 0 for b in rows)
        commands: list[bytes | pa.Buffer] = [command(b"MULTI")]
        commands += [_bytes_of(b.column("command")) for b in rows]
        commands.append(command(b"SET", marker.encode(), b"%d" % commit.number))
        try:
            connection.run(commands, answers + 2, "write rows")
        except BaseException:
            with suppress(ConnectorError):
                connection.ask("DISCARD")
            raise
        done = connection.ask("EXEC")
        if done is None:
            raise ConnectorError(
                f"another process has committed rows of the same job to {self._server} at this moment", retryable=True
            )
        wrong = next((answer for answer in done if isinstance(answer, Exception)), None)
        if wrong is not None:
            raise ConnectorError(f"{self._server} has not carried out all commands of a transaction: {wrong}")

    def _open(self) -> RedisConnection:
        if self._connection is None:
            self._connection = self._server.connect()
        return self._connection

    def close(self) -> None:
        """Disconnect; idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def create_sink(table: TableDefinition) -> RedisSink:
    """The sink of a table definition.

    Raises:
        OptionError: an option is wrong, or a column cannot be stored so.
    """
    layout = layout_of(table, table.primary_key, table.schema)
    delivery = (
        Delivery.EXACTLY_ONCE
        if table.options.text("sink.delivery-guarantee") == "exactly-once"
        else Delivery.AT_LEAST_ONCE
    )
    ttl = table.options.get("sink.ttl")
    if ttl is not None and not layout.type.is_keyed:
        raise OptionError("sink.ttl", f"'sink.ttl' is for values by key, not for 'type' = '{layout.type.value}'")
    CommandEncoder(layout, table.schema, None)  # so that wrong options are refused now
    return RedisSink(server_of(table.options), layout, table.schema, delivery, None if ttl is None else int(ttl))
