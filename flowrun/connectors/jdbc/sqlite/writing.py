"""Writes to SQLite: statements that are prepared once and run for each row of an Arrow batch by the client library, in transactions."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access, Relation
from flowrun.connectors.jdbc.sqlite.columns import bindable
from flowrun.connectors.jdbc.sqlite.connecting import SqliteConnection
from flowrun.connectors.jdbc.sqlite.describing import describe
from flowrun.core.arrays import Bools

_COMMITS = "main.flowrun_commits"
_MAKE_COMMITS = f"""
CREATE TABLE IF NOT EXISTS {_COMMITS} (
    writer TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL, committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)
"""


class SqliteWriter:
    """A connection that writes. Its transactions begin with the file's one lock for writing, so they never fail in their middle for it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection = SqliteConnection(access, writes=True)
        self._relation: Relation | None = None
        self._in_transaction = False

    def describe(self) -> Relation:
        """The table. Raises ConnectorError if there is none."""
        if self._relation is None:
            self._relation = describe(self._access.table, self._connection.run)
        return self._relation

    def append(self, rows: pa.RecordBatch) -> None:
        """Insert rows."""
        self._begin()
        self._insert(rows, "")

    def upsert(self, rows: pa.RecordBatch, deletes: Bools, keys: Sequence[str]) -> None:
        """Insert or replace rows, or delete those of their keys."""
        self._begin()
        key = self._columns(keys)
        if deletes.any():
            gone = rows.select(list(keys)).filter(pa.array(deletes))
            of_key = " AND ".join(f"{k} = ?" for k in key)
            self._run_for(gone, f"DELETE FROM {self.describe().name} WHERE {of_key}")
        if not deletes.all():
            kept = rows.filter(pa.array(~deletes)) if deletes.any() else rows
            replaced = ", ".join(f"{n} = excluded.{n}" for n in self._columns(rows.schema.names) if n not in key)
            self._insert(
                kept, f" ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {replaced}' if replaced else 'NOTHING'}"
            )

    def _insert(self, rows: pa.RecordBatch, on_conflict: str) -> None:
        names = self._columns(rows.schema.names)
        values = ", ".join("?" * len(names))
        self._run_for(rows, f"INSERT INTO {self.describe().name} ({', '.join(names)}) VALUES ({values}){on_conflict}")

    def _run_for(self, rows: pa.RecordBatch, statement: str) -> None:
        bound = [bindable(c) for c in rows.columns]
        self._connection.run_for(
            pa.RecordBatch.from_arrays(bound, names=[str(i) for i in range(len(bound))]), statement
        )

    def _columns(self, names: Sequence[str]) -> list[str]:
        relation = self.describe()
        return [identifier(relation.column(n).name) for n in names]

    def _begin(self) -> None:
        if not self._in_transaction:
            self._connection.run("BEGIN IMMEDIATE")
            self._in_transaction = True

    def committed_number(self, writer: str) -> int:
        """The number of a writer's last commit; waits for a transaction that is about to change it."""
        self._begin()
        self._connection.run(_MAKE_COMMITS)
        self._connection.run(f"INSERT INTO {_COMMITS} (writer, number) VALUES (?, 0) ON CONFLICT DO NOTHING", [writer])
        ((number,),) = self._connection.run(f"SELECT number FROM {_COMMITS} WHERE writer = ?", [writer])
        self.commit()
        return int(number)

    def record_number(self, writer: str, number: int) -> bool:
        """The first statement of a transaction, which alone may write until it ends."""
        self._begin()
        self._connection.run(
            f"UPDATE {_COMMITS} SET number = ?, committed_at = CURRENT_TIMESTAMP WHERE writer = ? AND number < ?",
            [number, writer, number],
        )
        ((changed,),) = self._connection.run("SELECT changes()")
        if not changed:
            self.commit()
        return bool(changed)

    def commit(self) -> None:
        """Make visible what was written."""
        if self._in_transaction:
            self._connection.run("COMMIT")
            self._in_transaction = False

    def close(self) -> None:
        """Roll back and disconnect."""
        self._connection.close()
