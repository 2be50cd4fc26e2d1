"""What a DuckDB file says of a table that nobody declared."""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.connectors.jdbc.duckdb.columns import expression
from flowrun.connectors.jdbc.duckdb.database import lease, translated
from flowrun.connectors.jdbc.duckdb.describing import TABLES, describe
from flowrun.connectors.jdbc.quoting import name_parts
from flowrun.connectors.jdbc.relation import Access, MisfitError, ServerColumn
from flowrun.core import types
from flowrun.core.types import DataType, from_arrow

_KEY = """
SELECT constraint_column_names FROM duckdb_constraints()
WHERE database_name = current_database() AND schema_name = ? AND table_name = ? AND constraint_type = 'PRIMARY KEY'
"""


def table_names(access: Access) -> list[str]:
    """The tables and views of the file; those of other schemas than `main` with these before a dot. Raises ConnectorError."""
    connection = lease(access, writes=False)
    try:
        with translated(access):
            found = connection.run(TABLES)
    finally:
        connection.end()
    return sorted(name if schema == "main" else f"{schema}.{name}" for schema, name, _ in found)


def stored_table(access: Access) -> StoredTable:
    """A table with the types as which its columns can be read.

    Raises:
        ConnectorError: there is none of this name, or the file cannot be read.
    """
    connection = lease(access, writes=False)
    try:
        with translated(access):
            relation = describe(access.table, connection.run)
            key = connection.run(_KEY, name_parts(relation.name))
            reader = connection.connection.sql(f"SELECT * FROM {relation.name} LIMIT 0").to_arrow_reader(1)
            given: pa.Schema = reader.schema
            reader.close()
    finally:
        connection.end()
    columns = tuple(
        StoredColumn(name, _type(column, given.field(name).type), column.shown)
        for name, column in relation.columns.items()
    )
    return StoredTable(columns, tuple(key[0][0]) if key else (), options={"table-name": _shown(relation.name)})


def _type(column: ServerColumn, given: pa.DataType) -> DataType:
    """The type as which a column is read; every type that has no other one is a text."""
    try:
        found = from_arrow(given)
        expression(column, found)
    except (ValueError, MisfitError):
        return types.STRING
    return found


def _shown(name: str) -> str:
    """A name as it is written if it has nothing odd in it."""
    schema, table = name_parts(name)
    if not (schema.isidentifier() and table.isidentifier()):
        return name
    return table if schema == "main" else f"{schema}.{table}"
