"""A connection in replication mode, and places in the log."""

from __future__ import annotations

import struct
import time
from typing import Any

from flowrun.connectors.jdbc.postgres.connecting import CLIENT, conninfo, conninfo_value, may_answer_later
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.postgres_cdc.copying import read_copy
from flowrun.connectors.postgres_cdc.database import NEEDED_BY, SETTINGS, CapturedTable, lost_meanwhile
from flowrun.connectors.postgres_cdc.log_places import format_lsn, parse_lsn
from flowrun.errors import ConnectorError

_FEEDBACK = struct.Struct(">cQQQqB")


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
        info = f"{conninfo(table.access)} replication='database' options={conninfo_value(SETTINGS)}"
        self._connection: Any = self._pq.PGconn.connect(info.encode())
        if self._connection.status != self._pq.ConnStatus.OK:
            raise self._failed("connect")

    def _failed(self, action: str) -> ConnectorError:
        said = " ".join(self._connection.error_message.decode(errors="replace").split())
        gone = ("must be superuser", "has already been removed", "can no longer get changes from replication slot")
        permanent = any(sign in said for sign in gone) or not may_answer_later(said)
        hint = None
        if 'publication "' in said and "does not exist" in said:  # when the change was made, whatever is there now
            hint = lost_meanwhile(self._table, None)
        elif "replication" in said and permanent:
            hint = "ALTER ROLE … REPLICATION lets a user read changes"
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
        publication = literal(identifier(self._table.publication))
        command = (
            f"START_REPLICATION SLOT {identifier(self._table.slot)} LOGICAL {format_lsn(lsn)} "
            f"(proto_version '1', publication_names {publication})"
        )
        result = self._connection.exec_(command.encode())
        if result.status != self._pq.ExecStatus.COPY_BOTH:
            raise self._failed(f"read the replication slot '{self._table.slot}'")

    def read(self, wait_ms: int, most: int, most_bytes: int) -> list[Any]:
        """The messages of the copy stream that have come, as `read_copy` gives them.

        Raises:
            ConnectorError: the connection is lost, or the server has ended the stream.
        """
        try:
            found, is_over = read_copy(self._connection, wait_ms, most, most_bytes)
            if is_over:
                self._connection.get_result()
        except Exception:
            raise self._failed("read changes") from None
        if is_over:
            raise self._failed("read changes")
        return found

    def confirm(self, received_lsn: int, kept_lsn: int, *, asks: bool = False) -> None:
        """Tell the server how far this reader has come, and up to where it never asks again; `asks`: it is to answer at once.

        Raises:
            ConnectorError: the connection is lost.
        """
        now_us = int((time.time() - 946_684_800) * 1_000_000)
        try:
            self._connection.put_copy_data(_FEEDBACK.pack(b"r", received_lsn, kept_lsn, kept_lsn, now_us, asks))
            self._connection.flush()
        except Exception:
            raise self._failed("confirm changes") from None

    def close(self) -> None:
        """Disconnect; idempotent."""
        self._connection.finish()
