"""SQL over the state of a checkpoint or savepoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import pyarrow as pa

from flowrun.errors import PipelineError, did_you_mean
from flowrun.runners.inspection.tables import StateDatabase, StateTable, quoted
from flowrun.runners.inspection.verification import unreadable
from flowrun.state.storage.locate import SnapshotPath

_UNKNOWN = re.compile(r"Table with name (?P<name>.+?) does not exist")
_READING = re.compile(r"reading the stream|checksum|IOError|IO Error")
"""What errors say that come up while rows are read from files."""
_NO_ADVICE = re.compile(r"\nDid you mean .*")


_TAKEN_SCHEMAS = frozenset({"main", "temp", "system", "pg_catalog", "information_schema", "memory"})


def query_state(snapshot: SnapshotPath, sql: str) -> pa.Table:
    """The result of one SELECT (or DESCRIBE, SUMMARIZE, SHOW TABLES …) over the tables of a snapshot.

    It runs twice: first over tables without rows, so that mistakes show before any file is read.

    Raises:
        PipelineError: the SQL is wrong, or wants to do more than read; has DuckDB's message with its caret.
        StateError: a file of a table that it reads is missing, truncated or altered, or DuckDB is not installed.
    """
    with StateDatabase([snapshot]) as database:
        duckdb = database.duckdb
        positions = _publish(database)
        try:
            for table in _tables_read(database, sql, positions):
                database.load(0, table)
            database.run("SET lock_configuration = true")
            return database.table(sql)
        except duckdb.Error as error:
            if _READING.search(str(error)):
                raise unreadable(snapshot, error) from error
            raise _explained(str(error), database.tables[0]) from error


def _publish(database: StateDatabase) -> Mapping[tuple[str, str], int]:
    """Make views under all aliases, and a schema an operator; gives (schema or "", view), in lower case → position of the table."""
    published: dict[tuple[str, str], int] = {}
    for i, table in enumerate(database.tables[0]):
        source = f"SELECT * FROM {database.relation(0, i)}"
        for alias in table.aliases:
            database.run(f"CREATE VIEW main.{quoted(alias)} AS {source}")
            published["", alias.lower()] = published["main", alias.lower()] = i
        if table.operator_name.lower() not in _TAKEN_SCHEMAS:
            schema = quoted(table.operator_name)
            database.run(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            database.run(f"CREATE VIEW {schema}.{quoted(table.name)} AS {source}")
            published[table.operator_name.lower(), table.name.lower()] = i
    return published


def _tables_read(database: StateDatabase, sql: str, positions: Mapping[tuple[str, str], int]) -> list[int]:
    """Positions of the tables that a statement reads; all, where DuckDB does not tell. Raises DuckDB's errors."""
    statements = database.connection.extract_statements(sql)
    kinds = database.duckdb.StatementType
    if len(statements) != 1 or statements[0].type not in (kinds.SELECT, kinds.EXPLAIN, kinds.MULTI):
        raise PipelineError.of("only one statement that reads can be run here", "write one SELECT")
    if statements[0].type != kinds.SELECT:
        return list(range(len(database.tables[0])))
    database.run(sql)
    tree = json.loads(database.run("SELECT json_serialize_sql(?)", [sql])[0][0])
    return sorted({positions[name] for name in _base_tables(tree) if name in positions})


def _base_tables(tree: object) -> Iterator[tuple[str, str]]:
    """(schema or "", table) of everything in DuckDB's syntax tree that may be a table, in lower case."""
    if isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            yield str(tree.get("schema_name", "")).lower(), str(tree.get("table_name", "")).lower()
        for part in tree.values():
            yield from _base_tables(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _base_tables(part)


def _explained(message: str, tables: tuple[StateTable, ...]) -> PipelineError:
    """DuckDB's message; for an unknown table with the tables that there are."""
    unknown = _UNKNOWN.search(message)
    if unknown is None:
        return PipelineError.of(message, None)
    known = [alias for table in tables for alias in table.aliases]
    short = [min(table.aliases, key=len) for table in tables if table.aliases]
    close = did_you_mean(unknown["name"], known)
    listing = "tables: " + (", ".join(sorted(quoted(s) if _needs_quotes(s) else s for s in short)) or "none")
    hint = f"{close} {listing}" if close is not None and close.startswith("did you mean") else listing
    return PipelineError.of(_NO_ADVICE.sub("", message), hint)


def _needs_quotes(name: str) -> bool:
    return re.fullmatch(r"[a-z_][a-z0-9_]*", name) is None
