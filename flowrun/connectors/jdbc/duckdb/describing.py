"""What DuckDB's catalog says of a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flowrun.connectors.jdbc.quoting import identifier, literal, name_parts
from flowrun.connectors.jdbc.relation import Piece, Relation, ServerColumn
from flowrun.errors import ConnectorError, did_you_mean

Rows = list[tuple[Any, ...]]
PLACE = "rowid"
_A_SPLIT, _LEAST = 4 * 122_880, 16_384
"""Rows: DuckDB keeps 122,880 of them together."""

TABLES = """
SELECT schema_name, table_name, true FROM duckdb_tables() WHERE database_name = current_database()
UNION ALL SELECT schema_name, view_name, false FROM duckdb_views() WHERE database_name = current_database() AND NOT internal
"""
_COLUMNS = "SELECT name, type FROM pragma_table_info({table})"
"""`duckdb_columns()` would describe all of DuckDB's own views first."""

_KEYS = """
SELECT constraint_column_names FROM duckdb_constraints()
WHERE database_name = current_database() AND schema_name = ? AND table_name = ? AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')
"""
_INDEXES = """
SELECT expressions FROM duckdb_indexes()
WHERE database_name = current_database() AND schema_name = ? AND table_name = ? AND is_unique AND NOT is_primary
"""


def describe(table: str, run: Callable[..., Rows]) -> Relation:
    """The table of this name, perhaps with a schema before it.

    Args:
        table: the name.
        run: runs a query, perhaps with parameters, and gives its rows.

    Raises:
        ConnectorError: there is none; lists near matches.
        duckdb.Error: the file cannot be read.
    """
    known = run(TABLES)
    schema, name, is_table = _chosen(table, known)
    quoted = f"{identifier(schema)}.{identifier(name)}"
    columns = {
        n: ServerColumn(n, _kind(shown), shown, _scale(shown))
        for n, shown in run(_COLUMNS.format(table=literal(quoted)))
    }
    if not is_table or PLACE in (n.lower() for n in columns):
        return Relation(quoted, columns, (Piece(quoted, by_place=False),), (), ignores_case=True)
    keys = [frozenset(k) for (k,) in run(_KEYS, [schema, name])]
    for (expressions,) in run(_INDEXES, [schema, name]):
        indexed = frozenset(part for e in expressions.strip("[]").split(", ") for part in name_parts(e.strip("'")))
        if indexed <= columns.keys():
            keys.append(indexed)
    ((last,),) = run(f"SELECT coalesce(max({PLACE}), -1) FROM {quoted}")
    piece = Piece(quoted, by_place=True, units=last + 1, units_a_split=_A_SPLIT, least_units=_LEAST)
    return Relation(quoted, columns, (piece,), tuple(keys), PLACE, ignores_case=True)


def _chosen(table: str, known: list[tuple[str, str, bool]]) -> tuple[str, str, bool]:
    """(schema, name, whether it is a table). Names differ by more than case."""
    *schemas, name = name_parts(table) or [""]
    schema = schemas[-1] if schemas else "main"
    for found in known:
        if (found[0].lower(), found[1].lower()) == (schema.lower(), name.lower()):
            return found
    shown = [n if s == "main" else f"{s}.{n}" for s, n, _ in known]
    raise ConnectorError(f"there is no table '{table}' in the file", retryable=False, hint=did_you_mean(table, shown))


def _kind(shown: str) -> str:
    """The name of a type without what it is made of.

    >>> [_kind(t) for t in ("DECIMAL(12,2)", "INTEGER[3]", "STRUCT(a INTEGER[])", "TIMESTAMP WITH TIME ZONE")]
    ['DECIMAL', 'LIST', 'STRUCT', 'TIMESTAMP WITH TIME ZONE']
    """
    if shown.endswith("]"):
        return "LIST"
    return re.split(r"[(]", shown, maxsplit=1)[0].strip()


def _scale(shown: str) -> int | None:
    """The digits behind the point of a decimal type.

    >>> _scale("DECIMAL(12,2)"), _scale("BIGINT")
    (2, None)
    """
    return int(shown.partition(",")[2].rstrip(")")) if shown.startswith("DECIMAL(") and shown.endswith(")") else None
