"""Pushed filters as conditions for DuckDB.

The filter is evaluated again on what comes back, by the declared types. So a condition may be true for more rows, never for fewer:
text is compared by bytes whatever the column's collation is, and a timestamp that is declared with fewer digits than the column has
stands for a range of the column's values. What cannot be said so is not said.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from decimal import Decimal

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.connectors.jdbc.duckdb.columns import HUGE, INTEGERS, ZONED, keeps_digits
from flowrun.connectors.jdbc.moments import day_text, millisecond_range, of_millisecond
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.jdbc.relation import ServerColumn
from flowrun.core.types import DataType, TypeRoot

_OF_TIME = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", ZONED)


def condition(column: ServerColumn, declared: DataType, pushed: PushedFilter) -> str | None:
    r"""A condition that holds wherever the filter does; None: there is none.

    >>> from flowrun.core.types import STRING
    >>> condition(ServerColumn("name", "VARCHAR", "VARCHAR"), STRING, PushedFilter("name", Comparison.GE, "x"))
    '"name" COLLATE "C" >= \'x\''
    """
    name, comparison, value = identifier(column.name), pushed.comparison, pushed.value
    if comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL):
        return f"{name} {comparison.value}"
    if value is None or isinstance(value, float):
        return None
    kind = column.kind
    if isinstance(value, bool):
        return f"{name} {comparison.value} {value}" if kind == "BOOLEAN" else None
    if declared.is_timestamp and isinstance(value, int) and kind in _OF_TIME:
        return _of_time(name, kind, comparison, value)
    if declared.root is TypeRoot.DATE and isinstance(value, int) and kind == "DATE":
        day = day_text(value)
        return None if day is None else f"{name} {comparison.value} DATE '{day}'"
    if declared.is_integer and isinstance(value, int) and kind in (*INTEGERS, *HUGE, "DECIMAL"):
        return f"{name} {comparison.value} {value}" if kind != "DECIMAL" or _fits(column, str(value)) else None
    if declared.root is TypeRoot.DECIMAL and kind == "DECIMAL" and keeps_digits(column, declared):
        text = literal(str(value))
        return f"{name} {comparison.value} CAST({text} AS {column.shown})" if _fits(column, str(value)) else None
    if isinstance(value, bytes):
        return f"{name} {comparison.value} from_hex('{value.hex()}')" if kind == "BLOB" else None
    if declared.is_character and isinstance(value, str) and "\0" not in value:
        return _of_text(name, kind, comparison, value)
    return None


def _fits(column: ServerColumn, text: str) -> bool:
    """Whether a number is one of a decimal column: others are compared as types that may not hold the column's values."""
    precision = int(column.shown.partition("(")[2].partition(",")[0])
    scale = column.scale or 0
    _, digits, exponent = Decimal(text).as_tuple()
    return isinstance(exponent, int) and -exponent <= scale and len(digits) + exponent <= precision - scale


def _of_text(name: str, kind: str, comparison: Comparison, value: str) -> str | None:
    if kind == "VARCHAR":
        if comparison is Comparison.EQ:  # any collation holds equal texts equal, and an index may serve
            return f"{name} = {literal(value)}"
        return f'{name} COLLATE "C" {comparison.value} {literal(value)}'
    if kind == "UUID" and comparison is Comparison.EQ:
        with suppress(ValueError):
            return f"{name} = CAST({literal(value)} AS UUID)" if str(uuid.UUID(value)) == value else "false"
        return "false"
    return None


def _of_time(name: str, kind: str, comparison: Comparison, milliseconds: int) -> str | None:
    found = millisecond_range(milliseconds)
    if found is None:
        return None
    begin, stop = (f"TIMESTAMPTZ '{t}+00'" if kind == ZONED else f"TIMESTAMP '{t}'" for t in found)
    return of_millisecond(name, comparison, begin, stop)
