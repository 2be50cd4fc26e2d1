"""What a SQLite file says of a table."""

from __future__ import annotations

import math
from collections.abc import Callable

from flowrun.connectors.jdbc.quoting import identifier, literal, name_parts
from flowrun.connectors.jdbc.relation import Piece, Relation, ServerColumn
from flowrun.connectors.jdbc.sqlite.connecting import Rows
from flowrun.errors import ConnectorError, did_you_mean

_PLACES = ("rowid", "_rowid_", "oid")
"""Names of the row id, each of which a column of that name hides."""

_SPLIT_BYTES, _SPLIT_PLACES, _LEAST_PLACES = 64 << 20, 131_072, 4_096

_TABLES = "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo({table}) WHERE hidden <> 1"
_INDEXES = """
SELECT l.name, i.name FROM pragma_index_list({table}) AS l JOIN pragma_index_info(l.name) AS i WHERE l."unique" AND NOT l.partial
"""
_SIZE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"


def describe(table: str, run: Callable[[str], Rows]) -> Relation:
    """The table of this name.

    Raises:
        ConnectorError: there is none; lists near matches.
    """
    name, kind, without_rowid, strict = _chosen(table, run(_TABLES))
    quoted = identifier(name)
    utf8 = run("PRAGMA encoding") == [("UTF-8",)]
    columns, key = {}, set()
    for column, shown, in_key in run(_COLUMNS.format(table=literal(name))):
        affinity = affinity_of(shown, strict=bool(strict))
        kind_of_column = affinity if utf8 or affinity != "TEXT" else "TEXT16"
        columns[column] = ServerColumn(column, kind_of_column, shown or "of no type")
        if in_key:
            key.add(column)
    place = next((p for p in _PLACES if p not in {c.lower() for c in columns}), None)
    if kind != "table" or without_rowid or place is None:
        return Relation(quoted, columns, (Piece(quoted, by_place=False),), _unique(name, key, run), ignores_case=True)
    return Relation(quoted, columns, (_piece(quoted, place, run),), _unique(name, key, run), place, ignores_case=True)


def _chosen(table: str, known: Rows) -> tuple[str, str, int, int]:
    *schemas, name = name_parts(table) or [""]
    if not schemas or [s.lower() for s in schemas] == ["main"]:
        for found, kind, without_rowid, strict in known:
            if found.lower() == name.lower():
                return found, kind, without_rowid, strict
    raise ConnectorError(
        f"there is no table '{table}' in the file",
        retryable=False,
        hint=did_you_mean(table, [found for found, *_ in known]),
    )


def _unique(name: str, key: set[str], run: Callable[[str], Rows]) -> tuple[frozenset[str], ...]:
    """Columns of unique indexes, and of the primary key, which has none if it is the row id."""
    found: dict[str, set[str | None]] = {}
    for index, column in run(_INDEXES.format(table=literal(name))):
        found.setdefault(index, set()).add(column)
    plain = [frozenset(c for c in columns if c is not None) for columns in found.values() if None not in columns]
    return tuple(dict.fromkeys([*plain, *([frozenset(key)] if key else [])]))


def _piece(quoted: str, place: str, run: Callable[[str], Rows]) -> Piece:
    """Row ids may be far apart, so the size of the file says how many ranges of them are worth while."""
    (least,), (most,) = (run(f"SELECT {end}({place}) FROM {quoted}")[0] for end in ("min", "max"))
    if least is None:
        return Piece(quoted, by_place=True)
    number = most - least + 1
    ((size,),) = run(_SIZE)
    a_split = max(_SPLIT_PLACES, math.ceil(number / max(1, size / _SPLIT_BYTES)))
    return Piece(
        quoted, by_place=True, units=number, first_unit=least, units_a_split=a_split, least_units=_LEAST_PLACES
    )


def affinity_of(shown: str, *, strict: bool = False) -> str:
    """What SQLite makes of values that are written to a column of this type: INTEGER, TEXT, BLOB (nothing), REAL or NUMERIC.

    After "Determination Of Column Affinity", https://www.sqlite.org/datatype3.html.

    >>> [affinity_of(t) for t in ("BIGINT", "varchar(9)", "", "double precision", "DECIMAL(10,2)", "DATE")]
    ['INTEGER', 'TEXT', 'BLOB', 'REAL', 'NUMERIC', 'NUMERIC']
    """
    upper = shown.upper()
    if strict and upper == "ANY":
        return "BLOB"
    for affinity, signs in (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    ):
        if any(sign in upper for sign in signs):
            return affinity
    return "NUMERIC" if upper else "BLOB"
