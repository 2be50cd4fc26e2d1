"""Reads from DuckDB: its vectors become Arrow batches in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from flowrun.connectors.jdbc.duckdb.database import file_name, lease, translated
from flowrun.connectors.jdbc.duckdb.describing import describe
from flowrun.connectors.jdbc.patient_calls import PatientCalls
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access, Relation, Scan, Selection, ServerColumn
from flowrun.core.types import DataType, TypeRoot

_BATCH_ROWS = 65_536
_KEYS = "flowrun_keys"


class DuckDbReader:
    """A connection that reads. Calls are made in a thread of its own, so that one that takes long can be left to itself."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lease = lease(access, writes=False)
        self._stream: Any = None
        self._calls = PatientCalls(
            f"reads {access.table}", None, file_name(access), self._disconnect, self._lease.interrupt
        )

    def describe(self) -> Relation:
        """The table. Raises ConnectorError if there is none."""

        def look() -> Relation:
            with translated(self._access):
                return describe(self._access.table, self._lease.run)

        return self._calls.call(look)

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        return self._rows(scan_query(scan))

    def find(
        self,
        relation: Relation,
        selection: Selection,
        keys: Sequence[tuple[ServerColumn, DataType]],
        asked: pa.RecordBatch,
    ) -> Iterator[pa.RecordBatch]:
        """The rows with one of the keys, which are a table beside the other for as long as the query runs."""
        with self._registered(asked.rename_columns([f"flowrun_key{i}" for i in range(asked.num_columns)])):
            yield from self._rows(lookup_query(relation, selection, keys))

    @contextmanager
    def _registered(self, rows: pa.RecordBatch) -> Iterator[None]:
        connection = self._lease.connection
        self._calls.call(lambda: connection.register(_KEYS, rows))
        yield  # after an error the connection is closed
        self._calls.call(lambda: connection.unregister(_KEYS))

    def _rows(self, query: str) -> Iterator[pa.RecordBatch]:
        self._calls.call(lambda: self._begin(query))
        while (batch := self._calls.call(self._next)) is not None:
            yield batch

    def _begin(self, query: str) -> None:
        with translated(self._access):
            self._stream = self._lease.connection.sql(query).to_arrow_reader(_BATCH_ROWS)

    def _next(self) -> pa.RecordBatch | None:
        with translated(self._access):
            try:
                batch: pa.RecordBatch = self._stream.read_next_batch()
            except StopIteration:
                self._end_stream()
                return None
            return batch

    def _end_stream(self) -> None:
        """While there is a stream the connection takes no other query, and the file stays open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _disconnect(self) -> None:
        self._end_stream()
        self._lease.end()

    def cancel(self) -> None:
        """Let go of a query that another thread waits for."""
        self._calls.cancel()

    def close(self) -> None:
        """Disconnect."""
        self._calls.close()


def scan_query(scan: Scan) -> str:
    """The query of a scan. A table is scanned in the order of its rows; with conditions an index may serve, which knows no order.

    >>> scan_query(Scan('"t"', Selection('"a"', ()), "rowid", upper=100))
    'SELECT rowid, "a" FROM "t" WHERE rowid < 100'
    """
    wanted = f"{scan.place}, {scan.selection.text}" if scan.place else scan.selection.text
    chosen = " AND ".join((*scan.by_row_id, *scan.conditions))
    ordered = f" ORDER BY {scan.place}" if scan.place and scan.conditions else ""
    return f"SELECT {wanted} FROM {scan.source}" + (f" WHERE {chosen}" if chosen else "") + ordered


def lookup_query(relation: Relation, selection: Selection, keys: Sequence[tuple[ServerColumn, DataType]]) -> str:
    """The query for all rows with one of the keys of the table `flowrun_keys`. It may find more: keys are compared again as declared."""
    equal = " AND ".join(_equality(column, declared, f"flowrun_key{i}") for i, (column, declared) in enumerate(keys))
    return f"SELECT {selection.text} FROM {relation.name} SEMI JOIN {_KEYS} ON {equal}"


def _equality(column: ServerColumn, declared: DataType, key: str) -> str:
    name = identifier(column.name)
    if declared.is_character and column.kind != "VARCHAR":
        return f"CAST({name} AS VARCHAR) = {key}"
    if (
        column.kind == "DECIMAL" or declared.root is TypeRoot.DECIMAL
    ):  # two decimals are compared as one type, which may not hold both
        return f"{name} = TRY_CAST({key} AS {column.shown})"
    return f"{name} = {key}"
