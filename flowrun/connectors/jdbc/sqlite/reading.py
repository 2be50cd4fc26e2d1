"""Reads from SQLite: a table page after page, so that nothing is locked while rows wait for the job to take them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from flowrun.connectors.jdbc.patient_calls import PatientCalls
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access, Relation, Scan, Selection, ServerColumn
from flowrun.connectors.jdbc.sqlite.columns import bindable, first_row, stored
from flowrun.connectors.jdbc.sqlite.connecting import SqliteConnection, file_name
from flowrun.connectors.jdbc.sqlite.describing import describe
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError

PAGE_ROWS = 32_768
_KEYS = "flowrun_keys"


class SqliteReader:
    """A connection that reads. Calls are made in a thread of its own, so that one that takes long can be left to itself."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._calls = PatientCalls(f"reads {access.table}", None, file_name(access), self._disconnect)
        self._connection: SqliteConnection | None = None
        self._batches: Generator[pa.RecordBatch, None, None] | None = None
        self._keys: tuple[str, ...] = ()
        try:
            self._connection = self._calls.call(lambda: SqliteConnection(access, writes=False))
        except BaseException:
            self._calls.close()
            raise

    @property
    def _connected(self) -> SqliteConnection:
        assert self._connection is not None
        return self._connection

    def describe(self) -> Relation:
        """The table. Raises ConnectorError if there is none."""
        return self._calls.call(lambda: describe(self._access.table, self._connected.run))

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The rows of a piece. One without places is read by one query, which keeps the file locked for those who write without WAL."""
        if not scan.place:
            yield from self._rows(scan_query(scan), scan.selection, places=False)
            return
        asked, rows = scan, PAGE_ROWS
        while rows == PAGE_ROWS:
            rows = 0
            for batch in self._page(asked):
                rows += batch.num_rows
                asked = replace(asked, after=batch.column(0)[-1].as_py())
                yield batch

    def _page(self, scan: Scan) -> list[pa.RecordBatch]:
        return list(self._rows(scan_query(scan), scan.selection, places=True))

    def _rows(self, query: str, selection: Selection, *, places: bool) -> Iterator[pa.RecordBatch]:
        """The rows of a query, behind a first one that only tells the types."""
        types = [
            *(["0"] if places else []),
            *(first_row(selection.fields) or ["0"]),
            *(["0"] if selection.guarded else []),
        ]
        self._batches = batches = self._connected.query(f"SELECT {', '.join(types)} UNION ALL SELECT * FROM ({query})")
        is_first = True
        while (batch := self._calls.call(lambda: next(batches, None))) is not None:
            rows = batch.slice(1) if is_first else batch
            is_first = False
            if rows.num_rows:
                _check_texts(rows.columns[1:] if places else rows.columns, selection)
                yield rows

    def find(
        self,
        relation: Relation,
        selection: Selection,
        keys: Sequence[tuple[ServerColumn, DataType]],
        asked: pa.RecordBatch,
    ) -> Iterator[pa.RecordBatch]:
        """The rows with one of the keys, which are a temporary table for as long as the connection lives."""
        self._calls.call(lambda: self._keep(keys, asked))
        names = ", ".join(identifier(column.name) for column, _ in keys)
        query = f"SELECT {selection.text} FROM {relation.name} WHERE ({names}) IN (SELECT * FROM temp.{_KEYS})"
        yield from self._rows(query, selection, places=False)

    def _keep(self, keys: Sequence[tuple[ServerColumn, DataType]], asked: pa.RecordBatch) -> None:
        names = tuple(f"flowrun_key{i} {_key_type(declared)}" for i, (_, declared) in enumerate(keys))
        if self._keys != names:
            self._connected.run(f"DROP TABLE IF EXISTS temp.{_KEYS}")
            self._connected.run(f"CREATE TEMPORARY TABLE {_KEYS} ({', '.join(names)})")
            self._keys = names
        rows = pa.RecordBatch.from_arrays(
            [bindable(c) for c in asked.columns], names=[str(i) for i in range(len(keys))]
        )
        self._connected.run("BEGIN")
        self._connected.run(f"DELETE FROM temp.{_KEYS}")
        self._connected.run_for(rows, f"INSERT INTO temp.{_KEYS} VALUES ({', '.join('?' * len(keys))})")
        self._connected.run("COMMIT")

    def cancel(self) -> None:
        """Let go of a query that another thread waits for: it runs to the end of its batch, and nobody takes that."""
        self._calls.cancel()

    def close(self) -> None:
        """Disconnect."""
        self._calls.close()

    def _disconnect(self) -> None:
        if self._batches is not None:
            with suppress(Exception):  # nobody takes the rest of the rows
                self._batches.close()
        if self._connection is not None:
            self._connection.close()


def scan_query(scan: Scan) -> str:
    """The query of a scan; of a table, for its first rows.

    >>> scan_query(Scan('"t"', Selection('"a"', ()), "rowid", upper=100, after=7))
    'SELECT rowid, "a" FROM "t" WHERE rowid < 100 AND rowid > 7 ORDER BY rowid LIMIT 32768'
    """
    wanted = f"{scan.place}, {scan.selection.text}" if scan.place else scan.selection.text
    chosen = " AND ".join((*scan.by_row_id, *scan.conditions))
    ordered = f" ORDER BY {scan.place} LIMIT {PAGE_ROWS}" if scan.place else ""
    return f"SELECT {wanted} FROM {scan.source}" + (f" WHERE {chosen}" if chosen else "") + ordered


def _key_type(declared: DataType) -> str:
    return "NUMERIC" if declared.root is TypeRoot.DECIMAL else stored(declared)


def _check_texts(columns: Sequence[pa.Array], selection: Selection) -> None:
    """SQLite takes any bytes for a text."""
    for values, field in zip(columns, selection.fields, strict=False):
        if pa.types.is_string(values.type):
            try:
                values.validate(full=True)
            except pa.ArrowInvalid:
                raise DataError(
                    f"column '{field.name}' holds a text that is not UTF-8",
                    hint="declare it BYTES after storing it as a blob",
                ) from None
