"""Pushed filters as conditions for the server.

The filter is evaluated again on what comes back, by the declared types. So a condition may be true for more rows, never for fewer:
text is compared by bytes and not as a language sorts it, and a timestamp that is declared with fewer digits than the column has stands
for a range of the column's values. What cannot be said so is not said.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.connectors.jdbc.moments import day_text, millisecond_range, of_millisecond
from flowrun.connectors.jdbc.postgres.columns import INTEGERS, keeps_digits
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.jdbc.relation import ServerColumn
from flowrun.core.types import DataType, TypeRoot

_COLLATED = ("text", "varchar")


def condition(column: ServerColumn, declared: DataType, pushed: PushedFilter) -> str | None:
    r"""A condition that holds wherever the filter does; None: there is none.

    >>> from flowrun.core.types import STRING
    >>> name = ServerColumn("name", "text", "text")
    >>> condition(name, STRING, PushedFilter("name", Comparison.GE, "x"))
    '"name" COLLATE "C" >= \'x\''
    """
    name, comparison, value = identifier(column.name), pushed.comparison, pushed.value
    if comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL):
        return f"{name} {comparison.value}"
    if value is None or isinstance(value, float):
        return None
    kind = column.kind
    if isinstance(value, bool):
        return f"{name} {comparison.value} {value}" if kind == "bool" else None
    if declared.is_timestamp and isinstance(value, int) and kind in ("timestamp", "timestamptz"):
        return _of_time(name, kind, comparison, value)
    if declared.root is TypeRoot.DATE and isinstance(value, int) and kind == "date":
        day = day_text(value)
        return None if day is None else f"{name} {comparison.value} date '{day}'"
    if declared.is_integer and isinstance(value, int) and (kind in INTEGERS or kind == "numeric"):
        return f"{name} {comparison.value} {value}"
    if declared.root is TypeRoot.DECIMAL and kind in (*INTEGERS, "numeric"):
        exact = kind in INTEGERS or keeps_digits(column, declared)
        return f"{name} {comparison.value} {literal(str(value))}::numeric" if exact else None
    if isinstance(value, bytes):
        return f"{name} {comparison.value} '\\x{value.hex()}'::bytea" if kind == "bytea" else None
    if declared.is_character and isinstance(value, str) and "\0" not in value:
        return _of_text(name, kind, comparison, value)
    return None


def _of_text(name: str, kind: str, comparison: Comparison, value: str) -> str | None:
    if kind in _COLLATED:
        if comparison is Comparison.EQ:  # any collation holds equal texts equal, and an index may serve
            return f"{name} = {literal(value)}"
        return f'{name} COLLATE "C" {comparison.value} {literal(value)}'
    if comparison is not Comparison.EQ:
        return None
    if kind == "bpchar":
        return f"{name} = {literal(value)}"
    if kind == "uuid":
        with suppress(ValueError):
            return f"{name} = {literal(value)}::uuid" if str(uuid.UUID(value)) == value else "false"
        return "false"
    return None


def _of_time(name: str, kind: str, comparison: Comparison, milliseconds: int) -> str | None:
    found = millisecond_range(milliseconds)
    if found is None:
        return None
    zone = "+00" if kind == "timestamptz" else ""
    begin, stop = (f"{kind} '{t}{zone}'" for t in found)
    return of_millisecond(name, comparison, begin, stop)
