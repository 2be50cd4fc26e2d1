"""The types of columns from the values of a sample.

Each type is one as which flowrun reads all values of the sample; of several the narrowest that people would choose. A value that fits no
type together with the others makes the column STRING, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa

from flowrun.connectors.formats.text_values import parse_text
from flowrun.core import types
from flowrun.core.record import record

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.(\d{1,9}))?)?(Z|[+-](?:0\d|1[0-8]):?[0-5]\d)?", re.ASCII
)
_MONEY = re.compile(r"amount|price|total|cost|revenue|fee|tax|balance|salary|discount", re.IGNORECASE)
_LONGEST_FRACTION = 4
_LEAST_KEYS_OF_A_MAP = 20
_BIGINT_RANGE = range(-(2**63), 2**63)


@record
class Column:
    """A column as it looks in a sample.

    Attributes:
        name: as in the data.
        type: as which all values can be read.
        nulls: how many rows have no value.
        rows: how many were looked at.
        is_unique: whether no value comes twice; never for nested types and columns with NULL.
        note: what the type leaves out, for people; None: nothing.
    """

    name: str
    type: types.DataType
    nulls: int
    rows: int
    is_unique: bool
    note: str | None = None


def columns_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns of records, in the order in which they first occur.

    >>> [str(c.type) for c in columns_of([{"id": 1, "at": "2024-03-01T10:00:00Z"}, {"id": 2, "tags": ["a"]}])]
    ['BIGINT', 'TIMESTAMP_LTZ(3)', 'ARRAY<STRING>']
    """
    names = dict.fromkeys(chain.from_iterable(rows))
    return tuple(column_of(name, [r.get(name) for r in rows]) for name in names)


def column_of(name: str, values: Sequence[Any]) -> Column:
    """One column from its values, None among them."""
    present = [v for v in values if v is not None]
    type, note = type_of(present, name)
    plain = note is None and not type.is_nested and len(present) == len(values) > 1
    is_unique = plain and len(set(present)) == len(present)
    return Column(name, type, len(values) - len(present), len(values), is_unique, note)


def type_of(values: Sequence[Any], name: str = "") -> tuple[types.DataType, str | None]:
    """(the type of values that are not NULL, what it leaves out).

    >>> str(type_of([1, 2.5], "price")[0]), str(type_of([1, 2.5])[0]), str(type_of(["2024-01-01"])[0])
    ('DECIMAL(10, 1)', 'DOUBLE', 'DATE')
    """
    if not values:
        return types.STRING, "the sample has no value"
    kinds = {_kind(value) for value in values}
    if kinds <= {"whole", "number"}:
        return _number(values, name, fractions="number" in kinds), None
    if len(kinds) > 1:
        return types.STRING, f"the sample has values of several kinds: {', '.join(sorted(kinds))}"
    match kinds.pop():
        case "truth value":
            return types.BOOLEAN, None
        case "text":
            return _text(values), None
        case "time":
            zoned = [v.tzinfo is not None for v in values]
            return (types.timestamp_ltz(6) if all(zoned) else types.timestamp(6)), None
        case "day":
            return types.DATE, None
        case "list":
            element, note = type_of([e for v in values for e in v if e is not None])
            return types.array(element), note
        case "object":
            return _object(values)
        case "bytes":
            return types.BYTES, None
        case "time of day":
            return types.time(6), None
        case other:
            return types.STRING, f"the sample has values of kind {other}"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "truth value"
        case int():
            return "whole"
        case float() | Decimal():
            return "number"
        case str():
            return "text"
        case datetime():
            return "time"
        case date():
            return "day"
        case time():
            return "time of day"
        case list() | tuple():
            return "list"
        case dict():
            return "object"
    return type(value).__name__


def _number(values: Sequence[Any], name: str, *, fractions: bool) -> types.DataType:
    if not fractions:
        if all(value in _BIGINT_RANGE for value in values):
            return types.BIGINT
        digits = max(len(str(abs(value))) for value in values)
        return types.decimal(types.MAX_DECIMAL_PRECISION, 0) if digits <= types.MAX_DECIMAL_PRECISION else types.STRING
    if not _MONEY.search(name):
        return types.DOUBLE
    parts = [Decimal(str(value)).as_tuple() for value in values]
    if not all(isinstance(p.exponent, int) for p in parts):  # NaN and infinity
        return types.DOUBLE
    scale = max(max(-int(p.exponent), 0) for p in parts)
    whole = max(len(p.digits) + int(p.exponent) for p in parts)
    return (
        types.decimal(max(10, whole + scale + 2), scale) if scale <= _LONGEST_FRACTION and whole < 16 else types.DOUBLE
    )


def _text(values: Sequence[str]) -> types.DataType:
    if all(_DATE.fullmatch(v) and _is_date(v) for v in values):
        return types.DATE
    found = [_TIMESTAMP.fullmatch(v) for v in values]
    if not all(found):
        return types.STRING
    matches = [m for m in found if m is not None]
    precision = max(len(m[1] or "") for m in matches)
    wide = 3 if precision <= 3 else 6 if precision <= 6 else 9
    zoned = [m[2] is not None for m in matches]
    if any(zoned) and not all(zoned):
        return types.STRING
    type = types.timestamp_ltz(wide) if all(zoned) else types.timestamp(wide)
    is_read = all(_is_date(v[:10]) for v in values) and not parse_text(pa.array(values, pa.string()), type).bad
    return type if is_read else types.STRING


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _object(values: Sequence[Mapping[str, Any]]) -> tuple[types.DataType, str | None]:
    """A ROW of the keys that occur, or a MAP, where nearly each object has keys of its own."""
    keys = dict.fromkeys(chain.from_iterable(values))
    mean = sum(map(len, values)) / len(values)
    if len(keys) > max(_LEAST_KEYS_OF_A_MAP, 4 * mean):
        value, note = type_of([v for o in values for v in o.values() if v is not None])
        return types.map_of(types.STRING, value), note
    if not any(key.strip() for key in keys):
        return types.map_of(types.STRING, types.STRING), "the objects of the sample have no fields with names"
    fields, notes = [], []
    for key in keys:
        if not key.strip():
            notes.append("a field without a name is left out")
            continue
        type, note = type_of([v for o in values if (v := o.get(key)) is not None], key)
        fields.append((key, type))
        if note is not None:
            notes.append(f"{key}: {note}")
    return types.row(*fields), "; ".join(notes) or None


def without_nameless_fields(type: types.DataType) -> types.DataType | None:
    """A type without the fields that have no name, as no table can name them; None: nothing is left.

    >>> str(without_nameless_fields(types.row(("", types.INT), ("a", types.INT))))
    'ROW<a INT>'
    """
    if not type.children:
        return type
    made = [without_nameless_fields(child) for child in type.children]
    if not type.names:
        return None if None in made else replace(type, children=tuple(c for c in made if c is not None))
    fields = [(n, c) for n, c in zip(type.names, made, strict=True) if c is not None and n.strip()]
    return replace(type, names=tuple(n for n, _ in fields), children=tuple(c for _, c in fields)) if fields else None


def from_texts(columns: Mapping[str, Sequence[str | None]]) -> dict[str, list[Any]]:
    """Columns of texts, as CSV has them, with numbers and truth values where all values of a column are such."""
    return {name: _parsed(texts) for name, texts in columns.items()}


def _parsed(texts: Iterable[str | None]) -> list[Any]:
    listed = list(texts)
    present = [t for t in listed if t is not None]
    for pattern, convert in _CSV_KINDS:
        if present and all(pattern.fullmatch(t) for t in present):
            return [None if t is None else convert(t) for t in listed]
    return list(listed)


_CSV_KINDS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"-?(?:0|[1-9]\d{0,17})"), int),
    (
        re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"),
        lambda t: float(t) if "e" in t.lower() else Decimal(t),
    ),
    (re.compile(r"true|false", re.IGNORECASE), lambda t: t.lower() == "true"),
)
"""A number that begins with 0 is an identifier: 007."""
