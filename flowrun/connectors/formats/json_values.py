"""Converts parsed JSON values to columns, for records that pyarrow's reader cannot read.

It converts a column at a time: if all values of a column have the Python type that its SQL type expects, one Arrow call converts them.
Only columns with other values (a number for a STRING, a text for a number) are converted value by value. Coercions are those of Flink's
JSON format: numbers and booleans are parsed from text, and every value becomes text for STRING.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from flowrun.api.format import ParsedColumn
from flowrun.connectors.formats.text_values import parse_text
from flowrun.core.types import DataType, TypeRoot

_MAX_INTEGER_DIGITS = 20
MAX_NESTING = 1000
"""How deeply objects and arrays may be nested, counting the record itself. Deeper records are bad, as in Jackson, Flink's parser."""
_SHALLOW = 100
"""How many levels Python's stack has room for in any case."""
_STACK_FRAMES = 4 * MAX_NESTING
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SURROGATE = b"\\ud"


class LostNumberTextError(Exception):
    """A number became a float, but its text is needed: parse the record again with `load_exact`."""


class NumberText(str):
    """A JSON number with fraction or exponent, as it was written."""

    __slots__ = ()


def column_from_json(values: Sequence[Any], target: DataType) -> ParsedColumn:
    """Parsed JSON values (None for null) as a column of type `target`.

    >>> from flowrun.core.types import BIGINT
    >>> column_from_json([1, "2", None], BIGINT).values.to_pylist()
    [1, 2, None]
    """
    match target.root:
        case TypeRoot.ARRAY:
            return _arrays(values, target)
        case TypeRoot.MAP:
            return _maps(values, target)
        case TypeRoot.ROW:
            return _rows(values, target)
        case TypeRoot.BIGINT | TypeRoot.INTEGER | TypeRoot.SMALLINT | TypeRoot.TINYINT:
            return _direct_or(values, target, {int, type(None)}, _integer)
        case TypeRoot.DOUBLE | TypeRoot.FLOAT:
            if NumberText in set(map(type, values)):
                values = [float(v) if type(v) is NumberText else v for v in values]
            return _direct_or(values, target, {int, float, type(None)}, _floating)
        case TypeRoot.BOOLEAN:
            return _direct_or(values, target, {bool, type(None)}, _boolean)
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return _direct_or(values, target, {str, type(None)}, json_text)
        case _:
            return _through_text(values, target)


def _direct_or(
    values: Sequence[Any], target: DataType, expected: set[type], coerce: Callable[[Any], Any]
) -> ParsedColumn:
    if set(map(type, values)) <= expected:
        try:
            return ParsedColumn(pa.array(values, target.arrow))
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass  # some value is out of range, and is found below
    bad: dict[int, str] = {}
    converted: list[Any] = []
    for i, value in enumerate(values):
        try:
            scalar = None if value is None else coerce(value)
            pa.array([scalar], target.arrow)
            converted.append(scalar)
        except (ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowInvalid):
            converted.append(None)
            bad[i] = f"{_shown(value)} is no {target}"
    return ParsedColumn(pa.array(converted, target.arrow), bad)


def _shown(value: Any) -> str:
    text = value if isinstance(value, NumberText) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:60] + "…"


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("boolean")
    number = Decimal(str(value).strip())
    if not number.is_finite() or number.adjusted() > _MAX_INTEGER_DIGITS or number != number.to_integral_value():
        raise ValueError("no integer of 64 bits")
    return int(number)


def _floating(value: Any) -> float:
    if isinstance(value, bool | dict | list):
        raise TypeError("not a number")
    return float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("not a boolean")


def json_text(value: Any) -> str:
    """The text that a STRING column holds for a JSON value: a text itself, a number as it is written, and other values as compact JSON.

    Raises:
        LostNumberTextError: the value contains a float, whose text is not known.
    """
    return str(value) if isinstance(value, str) else _compact(value)


class _Written(str):
    """A piece of finished JSON text."""

    __slots__ = ()


def _compact(value: Any) -> str:
    # The stack is a list, because documents may be nested more deeply than Python functions may call each other.
    pieces: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        match waiting.pop():
            case _Written() | NumberText() as text:
                pieces.append(str(text))
            case float() as number if math.isfinite(number):
                raise LostNumberTextError
            case dict() as members:
                waiting.append(_Written("}"))
                for i, (key, member) in enumerate(reversed(members.items())):
                    waiting += [_COMMA, member] if i else [member]
                    waiting.append(_Written(json.dumps(key, ensure_ascii=False) + ":"))
                pieces.append("{")
            case list() as elements:
                waiting.append(_Written("]"))
                for i, element in enumerate(reversed(elements)):
                    waiting += [_COMMA, element] if i else [element]
                pieces.append("[")
            case scalar:
                pieces.append(json.dumps(scalar, ensure_ascii=False))
    return "".join(pieces)


_COMMA = _Written(",")


def _through_text(values: Sequence[Any], target: DataType) -> ParsedColumn:
    """Decimals, binary, dates, times and intervals, which JSON has as texts, or (decimals and intervals) as numbers."""
    numbers = target.root is TypeRoot.DECIMAL or target.is_interval
    kinds = set(map(type, values))
    bad: dict[int, str] = {}
    texts: list[str | None] = list(values)
    if kinds - {str, type(None)}:
        for i, value in enumerate(values):
            if value is None or type(value) is str:
                continue
            if numbers and isinstance(value, int | float | NumberText) and not isinstance(value, bool):
                texts[i] = str(value)
            else:
                texts[i] = None
                bad[i] = f"{_shown(value)} is no {target}"
    parsed = parse_text(pa.array(texts, pa.string()), target)
    return ParsedColumn(parsed.values, {**parsed.bad, **bad})


def _offsets(lengths: list[int], missing: list[bool]) -> pa.Array:
    """The int32 offsets of a list array; NULL where the list itself is missing."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.array(ends, mask=np.array([*missing, False]))


def _containers(
    values: Sequence[Any], kind: type, target: DataType, bad: dict[int, str]
) -> tuple[list[Any], list[bool]]:
    """(the values, with None for those that are no `kind`, for each whether it is None). What is wrong with them is noted in `bad`."""
    kept = list(values)
    if set(map(type, values)) - {kind, type(None)}:
        for i, value in enumerate(values):
            if value is not None and type(value) is not kind:
                kept[i] = None
                bad[i] = f"{_shown(value)} is no {target}"
    return kept, [v is None for v in kept]


def _inherit(bad: dict[int, str], children: ParsedColumn, lengths: list[int], label: str) -> None:
    """Note the problems of children as problems of their parents."""
    if children.bad:
        ends = np.cumsum(lengths)
        for index, reason in children.bad.items():
            bad.setdefault(int(np.searchsorted(ends, index, side="right")), f"{label}{reason}")


def _arrays(values: Sequence[Any], target: DataType) -> ParsedColumn:
    bad: dict[int, str] = {}
    lists, missing = _containers(values, list, target, bad)
    lengths = [0 if v is None else len(v) for v in lists]
    elements = column_from_json(list(chain.from_iterable(v for v in lists if v)), target.children[0])
    _inherit(bad, elements, lengths, "element ")
    return ParsedColumn(pa.ListArray.from_arrays(_offsets(lengths, missing), elements.values, type=target.arrow), bad)


def _maps(values: Sequence[Any], target: DataType) -> ParsedColumn:
    bad: dict[int, str] = {}
    maps, missing = _containers(values, dict, target, bad)
    lengths = [0 if v is None else len(v) for v in maps]
    keys = column_from_json(list(chain.from_iterable(v for v in maps if v)), target.children[0])
    items = column_from_json(list(chain.from_iterable(v.values() for v in maps if v)), target.children[1])
    _inherit(bad, keys, lengths, "key ")
    _inherit(bad, items, lengths, "value ")
    if keys.bad:  # a key of an Arrow map must not be NULL: the map of a bad row is left out
        good = [None if i in bad else v for i, v in enumerate(maps)]
        return ParsedColumn(_maps(good, target).values, bad)
    offsets = _offsets(lengths, missing)
    return ParsedColumn(pa.MapArray.from_arrays(offsets, keys.values, items.values, type=target.arrow), bad)


def _rows(values: Sequence[Any], target: DataType) -> ParsedColumn:
    bad: dict[int, str] = {}
    rows, missing = _containers(values, dict, target, bad)
    children: list[pa.Array] = []
    for name, child in zip(target.names, target.children, strict=True):
        parsed = column_from_json([None if r is None else r.get(name) for r in rows], child)
        children.append(parsed.values)
        for index, reason in parsed.bad.items():
            bad.setdefault(index, f"field '{name}': {reason}")
    fields = list(target.arrow)
    return ParsedColumn(pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(missing, pa.bool_())), bad)


def nesting(text: bytes) -> int:
    """How deeply objects and arrays of a JSON text are nested; brackets in strings do not count.

    >>> nesting(b'{"a": [[1], "]]]"]}')
    3
    """
    codes = np.frombuffer(_STRING.sub(b"", text), np.uint8) | 0x20  # which makes { of [, and } of ]
    steps = (codes == _OPENING).astype(np.int32) - (codes == _CLOSING)
    return int(np.cumsum(steps).max(initial=0))


_OPENING, _CLOSING = ord("{"), ord("}")


def _check_nesting(record: bytes) -> None:
    """Refuse a record that is nested too deeply, and make room on the stack for others: Python's parser recurses once for each level."""
    if record.count(b"[") + record.count(b"{") <= _SHALLOW or (depth := nesting(record)) <= _SHALLOW:
        return
    if depth > MAX_NESTING:
        raise ValueError(f"nested more than {MAX_NESTING} levels deep")
    if sys.getrecursionlimit() < _STACK_FRAMES:
        sys.setrecursionlimit(_STACK_FRAMES)


def load_fast(record: bytes) -> Any:
    """A JSON text as Python values; numbers with a fraction become floats.

    Raises:
        ValueError: it is no JSON; the message says why.
    """
    _check_nesting(record)
    try:
        return orjson.loads(record)
    except orjson.JSONDecodeError:
        return load_exact(record)


def load_exact(record: bytes) -> Any:
    """A JSON text as Python values; numbers with a fraction or exponent become `NumberText`.

    Texts may hold control characters as they are, such as tabs: many programs write them, and Flink reads them.

    Raises:
        ValueError: it is no JSON; the message says why.
    """
    _check_nesting(record)
    try:
        document = json.loads(record.decode("utf-8"), parse_float=NumberText, strict=False)
        if _SURROGATE in record.lower():
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except UnicodeEncodeError:
        raise ValueError("not JSON text: half of a surrogate pair stands alone") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise ValueError(f"not JSON: {what} at character {error.pos + 1}") from None


def needs_exact_numbers(target: DataType) -> bool:
    """Whether this type contains decimals, for which numbers must be read as they are written."""
    if target.root is TypeRoot.DECIMAL:
        return True
    return any(needs_exact_numbers(child) for child in target.children)
