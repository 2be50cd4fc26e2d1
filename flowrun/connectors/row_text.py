"""Rows as lines of text in the form of a changelog: `+I[7, paid, 2024-03-01 10:00:00.000]`."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.value_text import floating_text, non_finite_text, plain_decimal
from flowrun.core.elements import RecordBatch, RowKind

_SYMBOLS = pa.array([kind.symbol for kind in RowKind])
_NULL_TEXT = "NULL"


def render_rows(batch: RecordBatch) -> pa.Array:
    """A string for each row: the symbol of its row kind, and its values in brackets; NULL is written as `NULL`."""
    if batch.columns.num_columns == 0:
        values = pa.array([""] * batch.num_rows)
    else:
        texts = [column_text(column) for column in batch.columns.columns]
        values = pc.binary_join_element_wise(*texts, ", ", null_handling="replace", null_replacement=_NULL_TEXT)
    symbols = pa.scalar("+I") if batch.row_kinds is None else _SYMBOLS.take(batch.row_kinds)
    return pc.binary_join_element_wise(symbols, "[", values, "]", "")


def column_text(column: pa.Array) -> pa.Array:
    """The values of a column as an array of strings; NULL stays NULL.

    >>> column_text(pa.array([1.0, None])).to_pylist()
    ['1.0', None]
    >>> column_text(pa.array([[], [("a", 1)]], pa.map_(pa.string(), pa.int64()))).to_pylist()
    ['{}', '{a=1}']
    """
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.cast(column, pa.timestamp(kind.unit)), pa.string())
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_duration(kind):
        empty = "{}" if pa.types.is_map(kind) else "[]"
        texts = (
            None if value is None else empty if value == [] else _value_text(value) for value in column.to_pylist()
        )
        return pa.array(list(texts), pa.string())
    if pa.types.is_decimal(kind):
        return plain_decimal(column)
    if pa.types.is_floating(kind):
        return floating_text(column)
    return pc.cast(column, pa.string())


def _value_text(value: object) -> str:
    match value:
        case None:
            return _NULL_TEXT
        case dict() if value and all(
            name == f"EXPR${i}" for i, name in enumerate(value)
        ):  # the fields have no names of their own
            return "(" + ", ".join(map(_value_text, value.values())) + ")"
        case dict():
            return "{" + ", ".join(f"{k}: {_value_text(v)}" for k, v in value.items()) + "}"
        case list() if value and isinstance(value[0], tuple):
            return "{" + ", ".join(f"{_value_text(k)}={_value_text(v)}" for k, v in value) + "}"
        case list():
            return "[" + ", ".join(_value_text(v) for v in value) + "]"
        case bytes():
            return "x'" + value.hex() + "'"
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ", "milliseconds")
        case date() | time():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case float() if not math.isfinite(value):
            return non_finite_text(value)
        case bool():
            return str(value).lower()
        case _:
            return str(value)
