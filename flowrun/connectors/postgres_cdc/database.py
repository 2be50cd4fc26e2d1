"""The database that changes are read from: connections, replication slots and publications."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flowrun.connectors.jdbc.address import Address
from flowrun.connectors.jdbc.postgres.connecting import CLIENT, conninfo, conninfo_value, server_name, translated
from flowrun.connectors.jdbc.postgres.texts import identifier, literal
from flowrun.connectors.jdbc.relation import Access
from flowrun.core.record import record
from flowrun.errors import ConnectorError

NEEDED_BY = "connector 'postgres-cdc'"
_SETTINGS = "-c datestyle=ISO -c intervalstyle=iso_8601 -c timezone=UTC -c bytea_output=hex -c extra_float_digits=1"
_FEEDBACK = struct.Struct(">cQQQqB")
_FROM_SERVER = struct.Struct(">cQQq")
_KEEPALIVE = struct.Struct(">cQqB")


@record
class CapturedTable:
    """Which table of which database, and the names of what the server keeps for this reader; can be pickled.

    Attributes:
        access: of the database; its table is the name with the schema.
        schema_name: of the table.
        table_name: without its schema.
        slot: the replication slot.
        publication: names the table to the slot.
    """

    access: Access
    schema_name: str
    table_name: str
    slot: str
    publication: str

    @property
    def name(self) -> str:
        """The table, quoted, with its schema."""
        return f"{identifier(self.schema_name)}.{identifier(self.table_name)}"

    @property
    def server(self) -> str:
        """The server and database, for messages."""
        return server_name(self.access)


def access_to(host: str, port: int, database: str, user: str, password: str | None, table: str) -> Access:
    """How the database is reached."""
    address = Address("postgresql", database, {"host": host, "port": str(port)})
    return Access(address, table, user, password)


@contextmanager
def session(table: CapturedTable) -> Iterator[Any]:
    """A connection of psycopg that commits each statement by itself. What it raises inside becomes a ConnectorError."""
    psycopg = CLIENT.module("psycopg", NEEDED_BY)
    with translated(table.access):
        connection = psycopg.connect(conninfo(table.access), autocommit=True, options=_SETTINGS)
        try:
            yield connection
        finally:
            connection.close()


@record
class SlotState:
    """A replication slot as the server has it.

    Attributes:
        confirmed_lsn: what comes before is not sent any more.
        is_active: whether somebody reads it.
        is_lost: whether the log that it needs was removed.
    """

    confirmed_lsn: int
    is_active: bool
    is_lost: bool


def slot_state(connection: Any, table: CapturedTable) -> SlotState | None:
    """The slot; None: there is none. Raises ConnectorError if it is one of something else."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, active, wal_status = 'lost', plugin, database FROM pg_replication_slots WHERE slot_name = %s",
        [table.slot],
    ).fetchone()
    if row is None:
        return None
    lsn, active, lost, plugin, database = row
    if plugin != "pgoutput" or database != table.access.address.database:
        raise ConnectorError(
            f"the replication slot '{table.slot}' on {table.server} is of database '{database}' and plug-in '{plugin}'",
            hint="choose another 'slot.name'",
        )
    return SlotState(0 if lsn is None else parse_lsn(lsn), bool(active), bool(lost))


def prepare(table: CapturedTable) -> None:
    """Check that the server can be read so, and make the publication if it is missing.

    Raises:
        ConnectorError: the server keeps no logical log, the table is not there, or the user may not make the publication.
    """
    with session(table) as connection:
        (level,) = connection.execute("SHOW wal_level").fetchone()
        if level != "logical":
            raise ConnectorError(
                f"{table.server} has wal_level = {level}: changes cannot be read from its log",
                hint="set wal_level = logical in postgresql.conf, and restart the server",
            )
        found = connection.execute(
            "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
            [table.schema_name, table.table_name],
        ).fetchone()
        if found is None:
            raise ConnectorError(
                f"{table.server} has no table {table.name}",
                hint="check 'schema-name' and 'table-name', as they are spelled",
            )
        there = connection.execute(
            "SELECT bool_or(schemaname = %s AND tablename = %s) FROM pg_publication p "
            "LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname WHERE p.pubname = %s",
            [table.schema_name, table.table_name, table.publication],
        ).fetchone()[0]
        exists = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [table.publication]).fetchone()
        if exists is None:
            connection.execute(
                f"CREATE PUBLICATION {identifier(table.publication)} FOR TABLE {table.name} "
                "WITH (publish_via_partition_root = true)"
            )
        elif not there:
            raise ConnectorError(
                f"the publication '{table.publication}' on {table.server} does not have the table {table.name}",
                hint=f"ALTER PUBLICATION {identifier(table.publication)} ADD TABLE {table.name}",
            )


class ReplicationConnection:
    """A connection in replication mode. Used by one thread.

    Args:
        table: what is read.

    Raises:
        ConnectorError: the server cannot be reached, or the user may not replicate.
    """

    def __init__(self, table: CapturedTable) -> None:
        self._table = table
        self._pq = CLIENT.module("psycopg.pq", NEEDED_BY)
        info = f"{conninfo(table.access)} replication='database' options={conninfo_value(_SETTINGS)}"
        self._connection: Any = self._pq.PGconn.connect(info.encode())
        if self._connection.status != self._pq.ConnStatus.OK:
            raise self._failed("connect")

    def _failed(self, action: str) -> ConnectorError:
        said = " ".join(self._connection.error_message.decode(errors="replace").split())
        permanent = any(
            sign in said
            for sign in ("authentication failed", "permission denied", "must be superuser", "does not exist")
        )
        hint = "ALTER ROLE … REPLICATION lets a user read changes" if "replication" in said and permanent else None
        return ConnectorError(f"cannot {action}: {self._table.server}: {said}", retryable=not permanent, hint=hint)

    def create_slot(self) -> tuple[int, str]:
        """Make the slot: (the LSN that it begins at, the snapshot of the rows there). The snapshot lasts until the next command.

        Raises:
            ConnectorError: it cannot be made.
        """
        command = f"CREATE_REPLICATION_SLOT {identifier(self._table.slot)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        result = self._connection.exec_(command.encode())
        if result.status != self._pq.ExecStatus.TUPLES_OK:
            raise self._failed(f"make the replication slot '{self._table.slot}'")
        return parse_lsn(result.get_value(0, 1).decode()), result.get_value(0, 2).decode()

    def start(self, lsn: int) -> None:
        """Begin to read changes of transactions that were committed from this LSN on.

        Raises:
            ConnectorError: the slot is not there, is read by another, or the log that it needs was removed.
        """
        publication = literal(self._table.publication)
        command = (
            f"START_REPLICATION SLOT {identifier(self._table.slot)} LOGICAL {format_lsn(lsn)} "
            f"(proto_version '1', publication_names {publication})"
        )
        result = self._connection.exec_(command.encode())
        if result.status != self._pq.ExecStatus.COPY_BOTH:
            raise self._failed(f"read the replication slot '{self._table.slot}'")

    def read(self, wait_ms: int) -> bytes | None:
        """The next message of the copy stream; None: nothing came in this time.

        Raises:
            ConnectorError: the connection is lost, or the server has ended the stream.
        """
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            count, data = self._connection.get_copy_data(1)
            if count > 0:
                return bytes(data)
            if count == -1:
                self._connection.get_result()
                raise self._failed("read changes")
            if not self._wait(deadline):
                return None
            try:
                self._connection.consume_input()
            except Exception:
                raise self._failed("read changes") from None

    def _wait(self, deadline: float) -> bool:
        import select

        left = deadline - time.monotonic()
        if left <= 0:
            return False
        poll = select.poll()
        poll.register(self._connection.socket, select.POLLIN)
        return bool(poll.poll(left * 1000))

    def confirm(self, received_lsn: int, kept_lsn: int) -> None:
        """Tell the server how far this reader has come, and up to where it never asks again. Raises ConnectorError."""
        now_us = int((time.time() - 946_684_800) * 1_000_000)
        try:
            self._connection.put_copy_data(_FEEDBACK.pack(b"r", received_lsn, kept_lsn, kept_lsn, now_us, 0))
            self._connection.flush()
        except Exception:
            raise self._failed("confirm changes") from None

    def close(self) -> None:
        """Disconnect; idempotent."""
        self._connection.finish()


@record
class LogData:
    """A message of the plug-in, as the stream carries it."""

    end_lsn: int
    data: bytes


@record
class Keepalive:
    """The server has nothing to send; its log ends at `end_lsn`."""

    end_lsn: int
    wants_reply: bool


def read_frame(data: bytes) -> LogData | Keepalive:
    """What a message of the copy stream is. Raises ConnectorError."""
    if data[:1] == b"w":
        _, _, end, _ = _FROM_SERVER.unpack_from(data)
        return LogData(end, data[_FROM_SERVER.size :])
    if data[:1] == b"k":
        _, end, _, reply = _KEEPALIVE.unpack_from(data)
        return Keepalive(end, bool(reply))
    raise ConnectorError(f"the replication stream has a message of kind {data[:1]!r}")


def parse_lsn(text: str) -> int:
    """The number of a place in the log.

    >>> parse_lsn("1/A")
    4294967306
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def format_lsn(lsn: int) -> str:
    """As PostgreSQL writes it.

    >>> format_lsn(4294967306)
    '1/A'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
