"""One snapshot of a table, which several connections read chunks of at the same time."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from flowrun.connectors.jdbc.postgres.connecting import CLIENT
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.postgres_cdc.chunks import Chunk, Piece, pieces_of
from flowrun.connectors.postgres_cdc.copying import read_copy
from flowrun.connectors.postgres_cdc.database import NEEDED_BY, CapturedTable, session, silent
from flowrun.connectors.postgres_cdc.rows import typed_rows
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, JobCancelledError

_BLOCK_BYTES = 1 << 20
_BLOCK_ROWS = 1 << 16
_WAIT_MS = 200
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STAYS_OPEN = "SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0; SET lock_timeout = 0"


class TableSnapshot:
    """The rows of a table at one moment, for as many connections as want them. While it is open the server moves no rows of the table.

    Args:
        table: to read.
        oid: the server's number of it.

    Raises:
        ConnectorError: the server cannot be reached, or the user may not read the table.
    """

    def __init__(self, table: CapturedTable, oid: int) -> None:
        self._open = ExitStack()
        try:
            self._connection = self._open.enter_context(session(table))
            self._connection.execute(_STAYS_OPEN)
            self._connection.execute(_BEGIN)
            # The lock comes first: rows that are written anew behind a snapshot that is older are not there for it.
            self._connection.execute(f"LOCK TABLE {table.name} IN ACCESS SHARE MODE")
            self.pieces: tuple[Piece, ...] = ()
            """What the table consists of."""
            self.server_version: int = self._connection.info.server_version
            """As 150018 for 15.18."""
        except BaseException:
            self._open.close()
            raise
        self._oid = oid

    def take(self, exported: str | None) -> str:
        """Fix the moment, and name it to other connections.

        Args:
            exported: the name of a moment, which somebody else has fixed; None: now.

        Raises:
            ConnectorError: there is no such moment any more.
        """
        if exported is not None:
            self._connection.execute(f"SET TRANSACTION SNAPSHOT {literal(exported)}")
        (name,) = self._connection.execute("SELECT pg_export_snapshot()").fetchone()
        self.pieces = pieces_of(self._connection, self._oid)
        return str(name)

    def close(self) -> None:
        """Let the server go on; idempotent."""
        self._open.close()


def read_chunks(
    table: CapturedTable,
    schema: Schema,
    snapshot: str,
    next_chunk: Callable[[], Chunk | None],
    is_stopped: Callable[[], bool],
) -> Iterator[tuple[Chunk, pa.RecordBatch | None]]:
    """The rows of chunks, by a connection of their own.

    Args:
        table: to read.
        schema: the columns wanted.
        snapshot: the moment, as `TableSnapshot.take` names it.
        next_chunk: gives a chunk that nobody else reads; None: there is none left.
        is_stopped: whether nobody wants the rows any more; asked several times a second.

    Yields:
        Batches of about a MiB with the chunk that they are of; behind the last one of a chunk None.

    Raises:
        ConnectorError: the server fails, or a column is not there.
        DataError: a value is not of the declared type.
        JobCancelledError: it was stopped.
    """
    psycopg = CLIENT.module("psycopg", NEEDED_BY)
    columns = ", ".join(map(identifier, schema.names))
    with session(table) as connection:
        connection.execute(_STAYS_OPEN)
        connection.execute(_BEGIN)
        try:
            connection.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        except psycopg.DataError:
            raise ConnectorError(
                f"the snapshot of table {table.name} is gone: {table.server} has cut the connection that kept it",
                retryable=True,
            ) from None
        names: dict[int, str] = {}
        while (chunk := next_chunk()) is not None:
            if chunk.oid not in names:
                names[chunk.oid] = connection.execute("SELECT %s::oid::regclass::text", [chunk.oid]).fetchone()[0]
            query = (
                f"COPY (SELECT {columns} FROM ONLY {names[chunk.oid]} "
                f"WHERE ctid >= '({chunk.first},0)' AND ctid < '({chunk.stop},0)') TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
            )
            for lines in _copied(connection.pgconn, query, is_stopped, table):
                yield chunk, typed_rows(schema, _texts(lines, len(schema)), table.name)
            yield chunk, None
        connection.execute("COMMIT")


def _copied(connection: Any, query: str, is_stopped: Callable[[], bool], table: CapturedTable) -> Iterator[bytes]:
    """Whole lines of a COPY, about a MiB at a time. Raises ConnectorError if the server falls silent."""
    pq = CLIENT.module("psycopg.pq", NEEDED_BY)
    errors = CLIENT.module("psycopg.errors", NEEDED_BY)
    result = connection.exec_(query.encode())
    if result.status != pq.ExecStatus.COPY_OUT:
        raise errors.error_from_result(result)
    is_over = False
    while not is_over:
        waiting: list[Any] = []
        size = 0
        heard = time.monotonic()
        while not is_over and size < _BLOCK_BYTES and len(waiting) < _BLOCK_ROWS:
            found, is_over = read_copy(connection, _WAIT_MS, _BLOCK_ROWS - len(waiting), _BLOCK_BYTES - size)
            waiting += found
            size += sum(map(len, found))
            if found:
                heard = time.monotonic()
            elif not is_over and time.monotonic() - heard > table.access.silence_s:
                raise silent(table)
            if is_stopped():
                raise JobCancelledError("the source was closed")
        if waiting:
            yield b"".join(waiting)
    while (result := connection.get_result()) is not None:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise errors.error_from_result(result)


def _texts(lines: bytes, columns: int) -> Sequence[pa.Array]:
    names = [str(i) for i in range(columns)]
    texts = pa_csv.read_csv(
        io.BytesIO(lines),
        read_options=pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(lines), 1)),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return [column.combine_chunks() for column in texts.columns]
