"""Writes to DuckDB: Arrow batches are tables that statements insert from, in transactions of which there is one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from flowrun.connectors.jdbc.duckdb.database import file_name, lease, translated
from flowrun.connectors.jdbc.duckdb.describing import describe
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access, Relation
from flowrun.core.arrays import Bools
from flowrun.errors import ConnectorError

_COMMITS = "main.flowrun_commits"
_MAKE_COMMITS = f"""
CREATE TABLE IF NOT EXISTS {_COMMITS} (
    writer VARCHAR PRIMARY KEY, number BIGINT NOT NULL, committed_at TIMESTAMPTZ NOT NULL DEFAULT now()
)
"""
_ROWS = "flowrun_rows"


class DuckDbWriter:
    """A connection that writes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lease = lease(access, writes=True)
        self._relation: Relation | None = None
        self._in_transaction = False

    def describe(self) -> Relation:
        """The table. Raises ConnectorError if there is none."""
        if self._relation is None:
            with translated(self._access):
                self._relation = describe(self._access.table, self._lease.run)
        return self._relation

    def append(self, rows: pa.RecordBatch) -> None:
        """Insert rows."""
        self._begin()
        names = ", ".join(self._columns(rows.schema.names))
        self._with(rows, [f"INSERT INTO {self.describe().name} ({names}) SELECT * FROM {_ROWS}"])

    def upsert(self, rows: pa.RecordBatch, deletes: Bools, keys: Sequence[str]) -> None:
        """Insert or replace rows, or delete those of their keys."""
        self._begin()
        names, key = self._columns(rows.schema.names), self._columns(keys)
        table, listed = self.describe().name, ", ".join(key)
        if deletes.any():
            gone = rows.select(list(keys)).filter(pa.array(deletes))
            of_key = " AND ".join(f"t.{k} = r.{identifier(n)}" for k, n in zip(key, keys, strict=True))
            self._with(gone, [f"DELETE FROM {table} AS t USING {_ROWS} AS r WHERE {of_key}"])
        if not deletes.all():
            kept = rows.filter(pa.array(~deletes)) if deletes.any() else rows
            replaced = ", ".join(f"{n} = EXCLUDED.{n}" for n in names if n not in key)
            conflict = f"ON CONFLICT ({listed}) DO {f'UPDATE SET {replaced}' if replaced else 'NOTHING'}"
            self._with(kept, [f"INSERT INTO {table} ({', '.join(names)}) SELECT * FROM {_ROWS} {conflict}"])

    def _columns(self, names: Sequence[str]) -> list[str]:
        relation = self.describe()
        return [identifier(relation.column(n).name) for n in names]

    def _with(self, rows: pa.RecordBatch, statements: Sequence[str]) -> None:
        connection = self._lease.connection
        with translated(self._access):
            connection.register(_ROWS, rows)
            for statement in statements:
                self._lease.run(statement)
            connection.unregister(_ROWS)

    def _begin(self) -> None:
        """Open a transaction, once no other one of this process writes."""
        if self._in_transaction:
            return
        silence_s = self._access.silence_s
        if not self._lease.writing.acquire(timeout=silence_s):
            raise ConnectorError(
                f"{file_name(self._access)} is written to by another subtask for more than {silence_s:g} s",
                retryable=True,
                hint="'connection.max-retry-timeout' says how long to wait",
            )
        self._in_transaction = True
        with translated(self._access):
            self._lease.run("BEGIN TRANSACTION")

    def committed_number(self, writer: str) -> int:
        """The number of a writer's last commit."""
        self._begin()
        with translated(self._access):
            self._lease.run(_MAKE_COMMITS)
            self._lease.run(f"INSERT INTO {_COMMITS} (writer, number) VALUES (?, 0) ON CONFLICT DO NOTHING", [writer])
            ((number,),) = self._lease.run(f"SELECT number FROM {_COMMITS} WHERE writer = ?", [writer])
        self.commit()
        return int(number)

    def record_number(self, writer: str, number: int) -> bool:
        """The first statement of a transaction; no other process can have the file open meanwhile."""
        self._begin()
        with translated(self._access):
            changed = self._lease.run(
                f"UPDATE {_COMMITS} SET number = ?, committed_at = now() WHERE writer = ? AND number < ? RETURNING 1",
                [number, writer, number],
            )
        if not changed:
            self.commit()
        return bool(changed)

    def commit(self) -> None:
        """Make visible what was written."""
        if not self._in_transaction:
            return
        with translated(self._access):
            self._lease.run("COMMIT")
        self._in_transaction = False
        self._lease.writing.release()

    def close(self) -> None:
        """Roll back and disconnect."""
        if self._in_transaction:
            with suppress(Exception):  # the failure that ended the transaction has been said already
                self._lease.run("ROLLBACK")
            self._in_transaction = False
            self._lease.writing.release()
        self._lease.end()
