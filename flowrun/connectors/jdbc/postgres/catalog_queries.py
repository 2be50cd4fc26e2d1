"""What PostgreSQL's own catalog says of databases and of tables that nobody declared: names, columns and keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.connectors.jdbc.postgres.describing import Run
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.core import types
from flowrun.core.types import DataType

_DATABASES = """
SELECT datname::text FROM pg_database
WHERE datallowconn AND datname NOT IN ('template0', 'template1') AND has_database_privilege(oid, 'CONNECT')
"""

_NAMES = """
SELECT format('%s.%s', n.nspname, c.relname), c.relkind IN ('v', 'm') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT, INSERT')
"""

_TABLE = """
SELECT c.oid::int8, n.nspname::text, c.relname::text, obj_description(c.oid, 'pg_class')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND ({chosen}) AND has_schema_privilege(n.oid, 'USAGE')
"""

_COLUMNS = """
SELECT a.attname::text, CASE WHEN b.typnamespace = 'pg_catalog'::regnamespace THEN b.typname::text ELSE '' END,
    coalesce(nullif(a.atttypmod, -1), t.typtypmod), a.attndims + t.typndims, format_type(a.atttypid, a.atttypmod),
    NOT (a.attnotnull OR t.typnotnull), col_description(a.attrelid, a.attnum), b.typcategory = 'A'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_PRIMARY_KEY = """
SELECT a.attname::text FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = {oid} AND i.indisprimary AND i.indimmediate AND k.place <= i.indnkeyatts ORDER BY k.place
"""

_CHANGES = """
SELECT current_setting('wal_level') AS level, (SELECT r.rolreplication OR r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) AS may,
    (SELECT c.relkind IN ('r', 'p') FROM pg_class c WHERE c.oid = to_regclass({name})) AS is_table
"""

_HEADER = 4
"""What the modifier of a type holds beside its length or precision."""

_PLAIN = {
    "bool": types.BOOLEAN,
    "int2": types.SMALLINT,
    "int4": types.INT,
    "int8": types.BIGINT,
    "float4": types.FLOAT,
    "float8": types.DOUBLE,
    "date": types.DATE,
    "bytea": types.BYTES,
}


def database_names(run: Run) -> list[str]:
    """The databases that the user may connect to."""
    return [name for (name,) in run(_DATABASES)]


def relation_names(run: Run, *, only_views: bool = False) -> list[str]:
    """The tables and views that the user may read or write, as `schema.name`; partitions are not among them. One query."""
    return [name for name, is_view in run(_NAMES) if is_view or not only_views]


def stored_table(name: str, default_schema: str, run: Run) -> StoredTable | None:
    """A table or view; None: there is none.

    Args:
        name: `schema.table`, or a table of the default schema. Both parts may have dots themselves: a schema comes first.
        default_schema: of names without one.
        run: asks the database.
    """
    candidates = list(_readings(name, default_schema))
    chosen = " OR ".join(f"n.nspname = {literal(s)} AND c.relname = {literal(t)}" for s, t in candidates)
    found = {(schema, table): (oid, comment) for oid, schema, table, comment in run(_TABLE.format(chosen=chosen))}
    here = next((c for c in candidates if c in found), None)
    if here is None:
        return None
    oid, comment = found[here]
    columns = tuple(_column(*row) for row in run(_COLUMNS.format(oid=oid)))
    key = tuple(column for (column,) in run(_PRIMARY_KEY.format(oid=oid)))
    return StoredTable(columns, key, options={"table-name": ".".join(map(identifier, here))}, comment=comment)


def why_no_changes(name: str, run: Run) -> str | None:
    """Why the changes of a table cannot be read from the log of the server; None: nothing is in the way.

    Args:
        name: of the table, quoted, with its schema.
        run: asks the database.
    """
    ((level, may, is_table),) = run(_CHANGES.format(name=literal(name)))
    if not is_table:
        return "it is no table, and only tables have changes"
    if level != "logical":
        return f"the server has wal_level = {level}: set wal_level = logical in postgresql.conf, and restart it"
    return None if may else "the user may not replicate: ALTER ROLE … REPLICATION lets a user read changes"


def _readings(name: str, default_schema: str) -> Iterator[tuple[str, str]]:
    """What a name may stand for: (schema, table).

    >>> list(_readings("a.b.c", "public"))
    [('a', 'b.c'), ('a.b', 'c'), ('public', 'a.b.c')]
    """
    for place, letter in enumerate(name):
        if letter == ".":
            yield name[:place], name[place + 1 :]
    yield default_schema, name


def _column(
    name: str, kind: str, modifier: int, dimensions: int, shown: str, nullable: bool, comment: str | None, is_array: Any
) -> StoredColumn:
    return StoredColumn(name, _type_of(kind, modifier, dimensions, bool(is_array)), shown, nullable, comment)


def _type_of(kind: str, modifier: int, dimensions: int, is_array: bool) -> DataType:
    if not is_array:
        return column_type(kind, modifier)
    return types.STRING if dimensions > 1 else types.array(column_type(kind.removeprefix("_"), modifier))


def column_type(kind: str, modifier: int) -> DataType:
    """The type of a column that is no array; every type that has no other one is a text.

    Args:
        kind: the name of its type in `pg_catalog`; empty if it is defined elsewhere.
        modifier: length, precision and scale as PostgreSQL keeps them; -1: none.

    >>> [str(column_type(*t)) for t in (("numeric", 655366), ("numeric", -1), ("varchar", 11), ("timestamptz", 3), ("uuid", -1))]
    ['DECIMAL(10, 2)', 'DECIMAL(38, 18)', 'VARCHAR(7)', 'TIMESTAMP_LTZ(3)', 'STRING']
    """
    digits = modifier if modifier >= 0 else 6
    match kind:
        case "numeric":
            return _decimal(modifier)
        case "varchar" if modifier >= _HEADER:
            return types.varchar(modifier - _HEADER)
        case "bpchar" if modifier >= _HEADER:
            return types.char(modifier - _HEADER)
        case "time":
            return types.time(digits)
        case "timestamp":
            return types.timestamp(digits)
        case "timestamptz":
            return types.timestamp_ltz(digits)
        case _:
            return _PLAIN.get(kind, types.STRING)


def _decimal(modifier: int) -> DataType:
    """Digits that DECIMAL has no room for are cut behind the point first; a scale may be negative or more than the precision."""
    if modifier < _HEADER:
        return types.decimal(38, 18)
    packed = modifier - _HEADER
    precision, scale = packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400
    whole = max(precision - scale, 0)
    scale = max(scale, 0)
    kept = max(0, min(scale, types.MAX_DECIMAL_PRECISION - whole))
    return types.decimal(max(1, min(whole + kept, types.MAX_DECIMAL_PRECISION)), kept)
