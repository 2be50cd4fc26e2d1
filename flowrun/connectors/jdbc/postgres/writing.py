"""Writes to PostgreSQL by COPY, in transactions: straight into the table, or by key through a temporary one."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from flowrun.connectors.jdbc.patient_calls import PatientCalls
from flowrun.connectors.jdbc.postgres.connecting import CLIENT, NEEDED_BY, conninfo, server_name, settings, translated
from flowrun.connectors.jdbc.postgres.describing import Rows, describe
from flowrun.connectors.jdbc.postgres.texts import copy_lines
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access, Relation
from flowrun.core.arrays import Bools

_CHUNK_ROWS = 16_384
_COMMITS = "flowrun_commits"
_MAKE_COMMITS = f"""
CREATE TABLE IF NOT EXISTS {_COMMITS} (
    writer text PRIMARY KEY, number bigint NOT NULL, committed_at timestamptz NOT NULL DEFAULT now()
)
"""
_STAGE = "flowrun_stage"


class PostgresWriter:
    """A connection that writes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        access.learn_secrets()
        self._library = CLIENT.module("psycopg", NEEDED_BY)
        self._connection: Any = None
        self._relation: Relation | None = None
        self._staged: tuple[str, ...] | None = None
        self._calls = PatientCalls(
            f"writes {access.table}", access.silence_s, server_name(access), self._disconnect, self._interrupt
        )
        try:
            self._calls.call(self._connect)
        except BaseException:
            self._calls.close()
            raise

    def _connect(self) -> None:
        with translated(self._access):
            self._connection = self._library.connect(conninfo(self._access), autocommit=True)
            self._connection.execute(settings(self._access, {"default_transaction_isolation": "read committed"}))
            self._connection.autocommit = False

    def _run(self, statement: str, parameters: Sequence[object] | None = None) -> Rows:
        def run() -> Rows:
            with translated(self._access):
                cursor = self._connection.execute(statement, parameters)
                return list(cursor.fetchall()) if cursor.description is not None else []

        return self._calls.call(run)

    def rows(self, query: str) -> Rows:
        """The rows of a query, in a transaction of its own. Raises ConnectorError."""
        found = self._run(query)
        self.commit()
        return found

    def describe(self) -> Relation:
        """The table. Raises ConnectorError if there is none."""
        if self._relation is None:
            self._relation = describe(self._access.table, self._run)
            self.commit()
        return self._relation

    def append(self, rows: pa.RecordBatch) -> None:
        """Copy rows into the table."""
        names = self._columns(rows.schema.names)
        self._copy(f"{self.describe().name} ({', '.join(names)})", rows, None)

    def upsert(self, rows: pa.RecordBatch, deletes: Bools, keys: Sequence[str]) -> None:
        """Copy rows into a temporary table, and from there into the table by key."""
        relation = self.describe()
        names = self._columns(rows.schema.names)
        stage = self._stage(relation, names)
        self._copy(f"{stage} (flowrun_delete, {', '.join(names)})", rows, deletes)
        key = self._columns(keys)
        listed = ", ".join(key)
        if deletes.any():
            chosen = f"SELECT {listed} FROM {stage} WHERE flowrun_delete"
            self._run(f"DELETE FROM {relation.name} WHERE ({listed}) IN ({chosen})")
        if not deletes.all():
            rest = [n for n in names if n not in key]
            replaced = ", ".join(f"{n} = EXCLUDED.{n}" for n in rest)
            all_names = ", ".join(names)
            self._run(
                f"INSERT INTO {relation.name} ({all_names}) OVERRIDING SYSTEM VALUE "
                f"SELECT {all_names} FROM {stage} WHERE NOT flowrun_delete ORDER BY {listed} "
                f"ON CONFLICT ({listed}) DO {f'UPDATE SET {replaced}' if replaced else 'NOTHING'}"
            )

    def _columns(self, names: Sequence[str]) -> list[str]:
        relation = self.describe()
        return [identifier(relation.column(n).name) for n in names]

    def _stage(self, relation: Relation, names: list[str]) -> str:
        """The temporary table, empty: its columns have the types of the table's, without what they refuse."""
        if self._staged == tuple(names):
            self._run(f"TRUNCATE {_STAGE}")
        else:
            self._run(f"DROP TABLE IF EXISTS {_STAGE}")
            listed = ", ".join(names)
            self._run(
                f"CREATE TEMPORARY TABLE {_STAGE} AS SELECT true AS flowrun_delete, {listed} FROM {relation.name} WITH NO DATA"
            )
        self._staged = tuple(names)
        return f"pg_temp.{_STAGE}"

    def _copy(self, target: str, rows: pa.RecordBatch, deletes: Bools | None) -> None:
        """Lines of one chunk are made while the server reads those of the one before."""
        statement = f"COPY {target} FROM STDIN (FORMAT csv, ENCODING 'UTF8')"

        def copy() -> None:
            with translated(self._access), self._connection.cursor() as cursor, cursor.copy(statement) as sending:
                for start in range(0, rows.num_rows, _CHUNK_ROWS):
                    part = slice(start, start + _CHUNK_ROWS)
                    sending.write(
                        copy_lines(rows.slice(start, _CHUNK_ROWS), None if deletes is None else deletes[part])
                    )

        self._calls.call(copy)

    def committed_number(self, writer: str) -> int:
        """The number of a writer's last commit; waits for a transaction that is about to change it."""
        if not self._run(f"SELECT 1 WHERE to_regclass('{_COMMITS}') IS NOT NULL"):
            self._run(
                f"SELECT pg_advisory_xact_lock(hashtext('{_COMMITS}'))"
            )  # IF NOT EXISTS fails where two make it at once
            self._run(_MAKE_COMMITS)
            self.commit()
        self._run(f"INSERT INTO {_COMMITS} (writer, number) VALUES (%s, 0) ON CONFLICT (writer) DO NOTHING", [writer])
        number = self._run(f"SELECT number FROM {_COMMITS} WHERE writer = %s FOR UPDATE", [writer])[0][0]
        self.commit()
        return int(number)

    def record_number(self, writer: str, number: int) -> bool:
        """The first statement of a transaction: so the row is locked while the others run, and no two of them can be for one number."""
        changed = (
            f"UPDATE {_COMMITS} SET number = %s, committed_at = now() WHERE writer = %s AND number < %s RETURNING 1"
        )
        if self._run(changed, [number, writer, number]):
            return True
        self.commit()
        return False

    def commit(self) -> None:
        """Make visible what was written."""

        def commit() -> None:
            with translated(self._access):
                self._connection.commit()

        self._calls.call(commit)

    def close(self) -> None:
        """Roll back and disconnect."""
        self._calls.close()

    def _interrupt(self) -> None:
        """Close the socket below a call that waits, so that it comes back."""
        with suppress(Exception):  # it may be closed already
            below = socket.socket(fileno=os.dup(self._connection.fileno()))
            below.shutdown(socket.SHUT_RDWR)
            below.close()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # what is wrong with a connection that is not needed any more does not matter
                self._connection.close()
