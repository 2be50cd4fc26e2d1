"""Writes a table of a database: appends rows, or with a PRIMARY KEY replaces and deletes them by key.

At least once, rows are written as they come, a buffer at a time. Exactly once, they wait beside the checkpoint, and the committer writes
them in one transaction that also records which commit it was (ADR 32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.changelog import ChangesTaken
from flowrun.api.operator import TimerHandle
from flowrun.api.sink import Committer, RowCheck, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.relation import Access, Dialect, MisfitError, Relation, WriteSession
from flowrun.connectors.newest_rows import key_numbers
from flowrun.connectors.staged.commit import STAGED_SHAPE, StagedCommit, StagedCommitter
from flowrun.connectors.staged.writer import StagedWriter
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.arrays import Bools
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape
from flowrun.errors import ConnectorError, DataError

_DELETES = "flowrun_delete"
_FIRST_RETRY_MS = 1_000.0


@record
class BufferLimits:
    """When rows that were gathered are written, and how often that is tried.

    Attributes:
        rows: at so many; 0: each batch at once.
        interval_ms: so long after the first of them; 0: never for that reason.
        retries: further attempts after a passing failure.
    """

    rows: int
    interval_ms: int
    retries: int


@record
class JdbcSink:
    """Writes rows to a table.

    Attributes:
        access: the table.
        schema: the columns that are written.
        primary_key: by which rows are replaced and deleted; empty: rows are only added.
        limits: of the buffer.
        delivery: at least once, or exactly once where checkpoints are taken.
    """

    access: Access
    schema: Schema
    primary_key: tuple[str, ...]
    limits: BufferLimits
    delivery: Delivery

    @property
    def in_process(self) -> bool:
        """Whether the database is open in one process at a time."""
        return dialect_of(self.access.address.scheme).in_process(self.access)

    @property
    def changes_taken(self) -> ChangesTaken:
        """By primary key if there is one, else inserts."""
        return ChangesTaken.UPSERT if self.primary_key else ChangesTaken.APPEND

    @property
    def committable_shape(self) -> Shape:
        """Files of rows that wait."""
        return STAGED_SHAPE

    def create_check(self) -> RowCheck | None:
        """Values that the database cannot hold."""
        return dialect_of(self.access.address.scheme).row_check()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """One that writes at once, or one whose rows wait beside the checkpoint."""
        if self.delivery is Delivery.EXACTLY_ONCE and context.staging:
            return _CheckedStagedWriter(self, context)
        return JdbcWriter(self, context)

    def create_committer(self) -> Committer | None:
        """Of rows that wait; None if they are written as they come."""
        return StagedCommitter(lambda: JdbcTarget(self)) if self.delivery is Delivery.EXACTLY_ONCE else None

    def connect(self) -> WriteSession:
        """A connection for a table that was found to be as it must.

        Raises:
            ConnectorError: there is no such table, it lacks a column, or has no unique key like the declared one.
        """
        dialect = dialect_of(self.access.address.scheme)
        session = dialect.open_writer(self.access)
        try:
            _check_table(dialect, session.describe(), self.schema, self.primary_key)
        except BaseException:
            session.close()
            raise
        return session


def _check_table(dialect: Dialect, relation: Relation, schema: Schema, primary_key: Sequence[str]) -> None:
    for field in schema:
        column = relation.column(field.name)
        try:
            dialect.check_column(column, field.type)
        except MisfitError as error:
            raise ConnectorError(
                f"column '{field.name}' of {relation.name} is {column.shown}, into which {field.type} cannot be written",
                hint=str(error) or "declare the type that the column has, and CAST to it",
            ) from None
    key = frozenset(relation.column(n).name for n in primary_key)
    if key and key not in relation.unique_keys:
        listed = ", ".join(primary_key)
        raise ConnectorError(
            f"table {relation.name} has no primary key or unique index on ({listed}), by which rows are to be replaced",
            hint=f"CREATE UNIQUE INDEX ON {relation.name} ({listed}), or declare the PRIMARY KEY that the table has",
        )


class JdbcWriter(ImmediateWriter):
    """Gathers rows and writes them when there are many, after an interval, and at every checkpoint."""

    def __init__(self, sink: JdbcSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._session: WriteSession | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self._timer: TimerHandle | None = None

    def open(self) -> None:
        """Connect, and look at the table. Raises ConnectorError."""
        self._tried(lambda _: None)

    def write(self, batch: RecordBatch) -> None:
        """Take rows. Raises ConnectorError, DataError."""
        if not batch.num_rows:
            return
        limits = self._sink.limits
        rows = changes(batch)
        if rows.num_rows:
            self._gathered.append(rows)
            self._rows += rows.num_rows
        if self._rows >= limits.rows:
            self._write_out()
        elif self._timer is None and limits.interval_ms:
            times = self._context.processing_time
            self._timer = times.register(times.now_ms() + limits.interval_ms, self._on_time)

    def _on_time(self, _timestamp_ms: int) -> None:
        self._timer = None
        self._write_out()

    def flush(self, end_of_input: bool) -> None:
        """Write what was gathered. Raises ConnectorError, DataError."""
        self._write_out()

    def _write_out(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gathered:
            return
        rows = self._gathered[0] if len(self._gathered) == 1 else pa.concat_batches(self._gathered)

        def write(session: WriteSession) -> None:
            apply(session, rows, self._sink.primary_key)
            session.commit()

        self._tried(write)
        self._gathered, self._rows = [], 0

    def _tried(self, act: Callable[[WriteSession], None]) -> None:
        """Do something with the connection, and again after passing failures, each time with a new one."""
        attempt = 0
        while True:
            try:
                if self._session is None:
                    self._session = self._sink.connect()
                act(self._session)
            except ConnectorError as error:
                self.close()
                if not error.retryable or attempt == self._sink.limits.retries:
                    raise
            except DataError:
                self.close()
                raise
            else:
                return
            attempt += 1
            self._context.metrics.counter("sinkRetries").inc()
            self._context.pause(_FIRST_RETRY_MS * attempt)

    def close(self) -> None:
        """Disconnect."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


class _CheckedStagedWriter(StagedWriter):
    """A staged writer that looks at the table before it takes rows, so that a wrong table is not found at the first checkpoint only."""

    def __init__(self, sink: JdbcSink, context: WriterContext) -> None:
        super().__init__(context, changes_schema(sink.schema.arrow), changes)
        self._sink = sink

    def open(self) -> None:
        """Look at the table. Raises ConnectorError."""
        self._sink.connect().close()


class JdbcTarget:
    """The transactions of the committer."""

    def __init__(self, sink: JdbcSink) -> None:
        self._sink = sink
        self._session: WriteSession | None = None

    def _connected(self) -> WriteSession:
        if self._session is None:
            self._session = self._sink.connect()
        return self._session

    def committed_number(self, writer: str) -> int:
        """See `TransactionalTarget`."""
        return self._connected().committed_number(writer)

    def write(self, commit: StagedCommit, batches: Iterator[pa.RecordBatch]) -> None:
        """See `TransactionalTarget`. What another process has committed meanwhile is not written again."""
        session = self._connected()
        if session.record_number(commit.writer, commit.number):
            for rows in _joined(batches, self._sink.limits.rows):
                apply(session, rows, self._sink.primary_key)
            session.commit()

    def close(self) -> None:
        """Disconnect."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _joined(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The batches in the same order, several together until they have about `size` rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= size:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def changes_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a sink, and whether a row deletes that of its key."""
    return columns.append(pa.field(_DELETES, pa.bool_()))


def changes(batch: RecordBatch) -> pa.RecordBatch:
    """Rows that set or delete the row of their key: what an update replaces says nothing that the row after it does not say, too."""
    rows, kinds = batch.columns, batch.row_kinds
    if kinds is None:
        deletes: pa.Array = pa.array(np.zeros(rows.num_rows, np.bool_))
    else:
        rows = rows.append_column("kind", kinds).filter(pc.not_equal(kinds, RowKind.UPDATE_BEFORE.value))
        deletes = pc.equal(rows.columns[-1], RowKind.DELETE.value)
        rows = rows.select(range(rows.num_columns - 1))
    return pa.RecordBatch.from_arrays([*rows.columns, deletes], schema=changes_schema(rows.schema))


def apply(session: WriteSession, rows: pa.RecordBatch, primary_key: Sequence[str]) -> None:
    """Write changes in the transaction that is open: of each key the last one counts."""
    columns = rows.select(range(rows.num_columns - 1))
    if not primary_key:
        session.append(columns)
        return
    deletes: Bools = rows.columns[-1].to_numpy(zero_copy_only=False)
    numbers = key_numbers(columns.columns, [columns.schema.get_field_index(k) for k in primary_key])
    last = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.int64)
    last[numbers] = np.arange(len(numbers))  # if a key occurs several times, the last assignment counts
    if len(last) < len(numbers):
        kept = np.sort(last)
        columns, deletes = columns.take(pa.array(kept)), deletes[kept]
    session.upsert(columns, deletes, primary_key)
