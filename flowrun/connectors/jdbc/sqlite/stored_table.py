"""What a SQLite file says of a table that nobody declared. Its values have types of their own, so a sample of them counts as well."""

from __future__ import annotations

import re
from collections.abc import Callable

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.connectors.jdbc.quoting import identifier, literal, name_parts
from flowrun.connectors.jdbc.relation import ServerColumn
from flowrun.connectors.jdbc.sqlite.connecting import Rows
from flowrun.connectors.jdbc.sqlite.describing import affinity_of, describe
from flowrun.core import types
from flowrun.core.types import DataType

_NAMES = (
    "SELECT name FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)
_KEY = "SELECT name FROM pragma_table_xinfo({table}) WHERE pk > 0 ORDER BY pk"
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_TEXT, _WHOLE = {"text"}, {"integer"}
_NUMBERS = {"integer", "real"}
_EXACT_DIGITS = 15


def table_names(run: Callable[[str], Rows]) -> list[str]:
    """The tables and views of the file."""
    return [name for (name,) in run(_NAMES)]


def stored_table(table: str, run: Callable[[str], Rows], sample: int) -> StoredTable:
    """A table with the types as which its values can be read.

    Args:
        table: its name.
        run: asks the file.
        sample: how many of its rows count.

    Raises:
        ConnectorError: there is none of this name.
    """
    relation = describe(table, run)
    (name,) = name_parts(relation.name)
    columns = list(relation.columns.values())
    asked = ", ".join(
        f"group_concat(DISTINCT typeof({identifier(c.name)})), coalesce(sum({identifier(c.name)} NOT IN (0, 1)), 0)"
        for c in columns
    )
    (seen,) = run(f"SELECT {asked} FROM (SELECT * FROM {relation.name} LIMIT {sample})")
    found = zip(columns, seen[::2], seen[1::2], strict=True)
    stored = tuple(
        StoredColumn(c.name, _type(c, {k for k in (kinds or "").split(",") if k} - {"null"}, others), c.shown)
        for c, kinds, others in found
    )
    key = tuple(column for (column,) in run(_KEY.format(table=literal(name))))
    return StoredTable(stored, key, options={"table-name": relation.name if _is_odd(name) else name})


def _is_odd(name: str) -> bool:
    return re.fullmatch(r"\w+", name) is None


def _type(column: ServerColumn, kinds: set[str], others: int) -> DataType:
    """The type for values of these kinds in a column.

    Args:
        column: as the file declares it.
        kinds: of its values, as `typeof` names them, without null.
        others: how many values are neither 0 nor 1.
    """
    shown = column.shown.upper()
    decimal = _DECIMAL.search(shown)
    if not kinds:
        kinds = _expected(column)
    if kinds == _WHOLE and "BOOL" in shown and not others:
        return types.BOOLEAN
    if kinds <= _NUMBERS and decimal is not None and int(decimal[1]) <= _EXACT_DIGITS:
        return types.decimal(int(decimal[1]), int(decimal[2] or 0))
    if kinds == _WHOLE:
        return types.BIGINT
    if kinds <= _NUMBERS:
        return types.DOUBLE
    return types.BYTES if kinds == {"blob"} else types.STRING


def _expected(column: ServerColumn) -> set[str]:
    """The kinds of values that a column without any is made for."""
    shown = column.shown.upper()
    if "DATE" in shown or "TIME" in shown:
        return _TEXT
    if "BOOL" in shown:
        return _WHOLE
    of = {"INTEGER": "integer", "REAL": "real", "NUMERIC": "real", "BLOB": "blob" if "BLOB" in shown else "text"}
    return {of.get(affinity_of(shown if shown != "OF NO TYPE" else ""), "text")}
