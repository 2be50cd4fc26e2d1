"""Reads from PostgreSQL by ADBC: rows come as COPY sends them, and become Arrow columns in the client library."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from flowrun.connectors.jdbc.patient_calls import PatientCalls
from flowrun.connectors.jdbc.postgres.connecting import CLIENT, NEEDED_BY, conninfo, server_name, settings, translated
from flowrun.connectors.jdbc.postgres.describing import Rows, describe
from flowrun.connectors.jdbc.postgres.queries import lookup_query, scan_query
from flowrun.connectors.jdbc.relation import Access, Relation, Scan, Selection, ServerColumn
from flowrun.core.types import DataType

_BATCH_BYTES = 4 << 20
_SETTINGS = {
    # rows in the order of their places, whatever else reads the table: that is what a reader goes on by
    "synchronize_seqscans": "off",
    "max_parallel_workers_per_gather": "0",
    "default_transaction_read_only": "on",
}
_IN_ORDER = {"enable_indexscan": "off", "enable_indexonlyscan": "off"}


class PostgresReader:
    """A connection that reads.

    Args:
        access: the table and who asks.
        in_order: whether plans are wanted that give rows in the order of their places.
    """

    def __init__(self, access: Access, *, in_order: bool) -> None:
        self._access = access
        access.learn_secrets()
        self._library = CLIENT.module("adbc_driver_postgresql.dbapi", NEEDED_BY)
        self._connection: Any = None
        self._cursor: Any = None
        self._calls = PatientCalls(
            f"reads {access.table}", access.silence_s, server_name(access), self._disconnect, self._interrupt
        )
        chosen = {**_SETTINGS, **(_IN_ORDER if in_order else {})}
        try:
            self._calls.call(lambda: self._connect(settings(access, chosen)))
        except BaseException:
            self._calls.close()
            raise

    def _connect(self, first: str) -> None:
        with translated(self._access):
            self._connection = self._library.connect(conninfo(self._access), autocommit=True)
            self._cursor = self._connection.cursor()
            self._cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            self._cursor.execute(first)
            self._cursor.fetchall()

    def describe(self) -> Relation:
        """The table. Raises ConnectorError if there is none."""
        return describe(self._access.table, self._rows)

    def _rows(self, query: str) -> Rows:
        return [tuple(row.values()) for batch in self.read(query) for row in batch.to_pylist()]

    def read(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows of a query as they come."""
        reader = self._calls.call(lambda: self._begin(query))
        while (batch := self._calls.call(lambda: self._next(reader))) is not None:
            yield batch

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        return self.read(scan_query(scan))

    def find(
        self,
        relation: Relation,
        selection: Selection,
        keys: Sequence[tuple[ServerColumn, DataType]],
        asked: pa.RecordBatch,
    ) -> Iterator[pa.RecordBatch]:
        """The rows with one of the keys."""
        query = lookup_query(relation, selection, keys, asked)
        return iter(()) if query is None else self.read(query)

    def _begin(self, query: str) -> Any:
        with translated(self._access):
            self._cursor.execute(query)
            return self._cursor.fetch_record_batch()

    def _next(self, reader: Any) -> pa.RecordBatch | None:
        with translated(self._access):
            try:
                batch: pa.RecordBatch = reader.read_next_batch()
            except StopIteration:
                return None
            return batch

    def cancel(self) -> None:
        """Let go of a query that another thread waits for."""
        self._calls.cancel()

    def _interrupt(self) -> None:
        """Ask the server to end the query; that takes a connection of its own, which may hang, too."""
        if self._cursor is not None:
            threading.Thread(target=_cancel, args=(self._cursor,), name="cancels a query", daemon=True).start()

    def close(self) -> None:
        """Disconnect."""
        self._calls.close()

    def _disconnect(self) -> None:
        with suppress(Exception):  # what is wrong with a connection that is not needed any more does not matter
            if self._cursor is not None:
                self._cursor.close()
            if self._connection is not None:
                self._connection.close()


def _cancel(cursor: Any) -> None:
    with suppress(Exception):  # the query may be over
        cursor.adbc_cancel()
