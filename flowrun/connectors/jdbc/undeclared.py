"""Tables of databases that nobody declared: what the database says of them, and their first rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowrun.api.table_catalog import StoredTable
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.fitting import fitted, selection_of
from flowrun.connectors.jdbc.relation import Access, Scan
from flowrun.core.schema import Field, Schema

_SQLITE_START, _DUCKDB_START, _DUCKDB_AT = b"SQLite format 3\0", b"DUCK", 8


def kind_of_file(head: bytes) -> str | None:
    r"""The scheme of the database that a file is, by its first 16 bytes; None: it is none.

    >>> kind_of_file(b"SQLite format 3\0"), kind_of_file(bytes(8) + b"DUCK@\0\0\0"), kind_of_file(b"{}")
    ('sqlite', 'duckdb', None)
    """
    if head == _SQLITE_START:
        return "sqlite"
    return "duckdb" if head[_DUCKDB_AT:].startswith(_DUCKDB_START) else None


def table_names_in_file(access: Access) -> list[str]:
    """The tables and views of a file. Raises ConnectorError, and SetupError if a client library is not installed."""
    if access.address.scheme == "duckdb":
        from flowrun.connectors.jdbc.duckdb import stored_table as duckdb

        return duckdb.table_names(access)
    from flowrun.connectors.jdbc.sqlite import stored_table as sqlite
    from flowrun.connectors.jdbc.sqlite.connecting import SqliteConnection

    connection = SqliteConnection(access, writes=False)
    try:
        return sqlite.table_names(connection.run)
    finally:
        connection.close()


def table_in_file(access: Access, sample: int) -> StoredTable:
    """A table of a file. `sample`: how many rows count where values have types of their own.

    Raises ConnectorError, and SetupError if a client library is not installed.
    """
    if access.address.scheme == "duckdb":
        from flowrun.connectors.jdbc.duckdb import stored_table as duckdb

        return duckdb.stored_table(access)
    from flowrun.connectors.jdbc.sqlite import stored_table as sqlite
    from flowrun.connectors.jdbc.sqlite.connecting import SqliteConnection

    connection = SqliteConnection(access, writes=False)
    try:
        return sqlite.stored_table(access.table, connection.run, sample)
    finally:
        connection.close()


def first_rows(access: Access, fields: Sequence[Field], most: int) -> list[pa.RecordBatch]:
    """The first rows of a table, as columns of declared types.

    Raises:
        ConnectorError: the database cannot be read, or a column not as it is declared.
        DataError: a value is none of its column's type.
    """
    dialect = dialect_of(access.address.scheme)
    session = dialect.open_reader(access)
    try:
        relation = session.describe()
        selection = selection_of(dialect, relation, fields)
        some = f"(SELECT * FROM {relation.name} LIMIT {most}) AS flowrun_sample"
        schema = Schema(tuple(fields)).arrow
        return [
            pa.RecordBatch.from_arrays(fitted(batch.columns, selection, relation), schema=schema)
            for batch in session.scan(Scan(some, selection))
        ]
    finally:
        session.close()
