# ruff: noqa: ARG001 - kernels share one signature
"""JSON functions that write: JSON_STRING, JSON_OBJECT, JSON_ARRAY, and JSON_OBJECT_OF, which ends JSON_OBJECTAGG.

JSON_OBJECT and JSON_ARRAY begin with two constants that the binder writes: what to do with NULL (`NULL` or `ABSENT`), and one mark for
each value, `j` for a value that is JSON itself (the result of another constructor) and `-` for any other.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import STRING, VARIANT, DataType, TypeRoot, from_arrow
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.casts.to_text import approximate_text
from flowrun.functions.contract import Argument, Datum, ScalarFunction, Signature
from flowrun.functions.json import construct_spark_texts as texts
from flowrun.functions.json.documents import INVALID, dump, has_fractions, parse, parse_exact, utf16_order
from flowrun.functions.rules import ANYTHING, TEXT, Rule, word
from flowrun.functions.vectors import Distinct, as_array, join_valid, map_distinct

_TEXT_IS_JSON = (
    TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT, TypeRoot.BOOLEAN, TypeRoot.VARIANT,
)  # fmt: skip


def jsonable(value: Any, type: DataType) -> Any:
    """A Python value of a SQL type as what JSON shows: times as ISO 8601 text, bytes as Base64, rows as objects.

    >>> from flowrun.core.types import array, timestamp
    >>> jsonable([datetime.datetime(2024, 3, 1, 9, 58)], array(timestamp(3)))
    ['2024-03-01T09:58:00']
    """
    if value is None:
        return None
    match type.root:
        case TypeRoot.ARRAY:
            return [jsonable(v, type.children[0]) for v in value]
        case TypeRoot.MAP:
            return {str(k): jsonable(v, type.children[1]) for k, v in value}
        case TypeRoot.ROW:
            return {n: jsonable(value[n], c) for n, c in zip(type.names, type.children, strict=True)}
        case TypeRoot.VARIANT:
            return orjson.Fragment(value)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return base64.b64encode(value).decode()
        case TypeRoot.DATE:
            return value.isoformat()
        case TypeRoot.TIME | TypeRoot.TIMESTAMP:
            return _iso(value)
        case TypeRoot.TIMESTAMP_LTZ:
            return _iso(value.replace(tzinfo=None)) + "Z"
        case TypeRoot.DECIMAL:
            return orjson.Fragment(str(value))
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return orjson.Fragment(_numbers(pa.array([value], type.arrow))[0].as_py())
    return value


def _iso(value: datetime.datetime | datetime.time) -> str:
    """Java's ISO_LOCAL_DATE_TIME: seconds, and as many digits of their fraction as are needed."""
    return value.isoformat(timespec="microseconds").rstrip("0").rstrip(".")


def json_text(datum: Datum, type: DataType, rows: int) -> Datum:
    """Each value as JSON text; NULL stays NULL."""
    if type.root in _TEXT_IS_JSON:
        return datum.cast(pa.string())
    if type.is_character:
        return map_distinct(dump, [datum], rows, pa.string())
    if type.is_approximate:
        return _numbers(as_array(datum, rows))
    return map_distinct(lambda value: dump(jsonable(value, type)), [datum], rows, pa.string())


def _numbers(values: pa.Array) -> pa.StringArray:
    """FLOAT and DOUBLE as DOUBLE, as Java's BigDecimal spells its digits (`1.0E+10`, 0.0 for -0.0); what is no number in quotes."""
    texts = approximate_text(values.cast(pa.float64()))
    plain = pc.invert(pc.or_(pc.match_substring(texts, "E"), pc.equal(values, 0)))
    if not pc.all(pc.or_(plain, pc.invert(pc.is_finite(values)))).as_py():
        texts = map_distinct(_big_decimal_text, [texts], len(texts), pa.string())
    return pc.if_else(pc.is_finite(values), texts, pc.binary_join_element_wise('"', texts, '"', ""))


def _big_decimal_text(text: str) -> str:
    """Digits as Java's BigDecimal spells them, which knows no -0.0; NaN and infinities unchanged.

    >>> _big_decimal_text("1.23456789125E8"), _big_decimal_text("1.0E10"), _big_decimal_text("-0.0")
    ('123456789.125', '1.0E+10', '0.0')
    """
    number = Decimal(text)
    return text if not number.is_finite() else str(number if number else abs(number))


def _type_of(datum: Datum) -> DataType:
    return from_arrow(datum.type, large_string=VARIANT)


def _json_string(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return json_text(arguments[0], _type_of(arguments[0]), rows)


class _ConstructorRule:
    """Mode, marks and values; of JSON_OBJECT each value follows its constant key."""

    def __init__(self, usage: str, *, keyed: bool) -> None:
        self.usage, self._keyed = usage, keyed
        self._rule = Rule(usage, STRING, (word("NULL", "ABSENT"), TEXT), variadic=ANYTHING)

    def __call__(self, arguments: Sequence[Argument]) -> Signature:
        name = self.usage.partition("(")[0]
        signature = self._rule(arguments)
        values = arguments[2:]
        if self._keyed:
            if len(values) % 2:
                raise ExpressionError(f"{name}: the last key has no value", hint=f"usage: {self.usage}")
            for key in values[::2]:
                if not key.is_literal or not key.type.is_character or key.literal is None:
                    raise ExpressionError(
                        f"{name}: keys must be constant character strings", hint=f"usage: {self.usage}"
                    )
            values = values[1::2]
        marks = arguments[1].literal
        if not isinstance(marks, str) or len(marks) != len(values) or set(marks) - {"j", "-"}:
            raise ExpressionError(f"{name}: the marks '{marks}' do not fit {len(values)} values")
        return signature


def _shown(datum: Datum, mark: str, rows: int) -> Datum:
    return datum if mark == "j" else json_text(datum, _type_of(datum), rows)


def _enclosed(
    parts: Sequence[Datum], left: str, right: str, rows: int, prefix: Callable[[int], str], *, absent: bool
) -> Datum:
    """Rows of `left part, part … right`; a NULL part is left out (`absent`) or written as null."""
    if not parts:
        return pa.scalar(left + right)
    columns = [as_array(part, rows) for part in parts]
    if not absent:
        columns = [pc.fill_null(column, "null") for column in columns]
    named = [pc.binary_join_element_wise(prefix(i), c, "") if prefix(i) else c for i, c in enumerate(columns)]
    inner = join_valid(named, pa.scalar(","))
    return pc.binary_join_element_wise(left, inner, right, "")


def _json_object(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    mode, marks, *pairs = arguments
    named = {k.as_py(): (v, m) for k, v, m in zip(pairs[::2], pairs[1::2], marks.as_py(), strict=True)}
    names = sorted(named, key=utf16_order)  # Flink writes members sorted by name, and the last value of equal names
    parts = [_shown(*named[name], rows) for name in names]
    prefixes = [dump(name) + ":" for name in names]
    return _enclosed(parts, "{", "}", rows, prefixes.__getitem__, absent=mode.as_py().upper() == "ABSENT")


def _json_array(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    mode, marks, *values = arguments
    parts = [_shown(v, m, rows) for v, m in zip(values, marks.as_py(), strict=True)]
    return _enclosed(parts, "[", "]", rows, lambda _: "", absent=mode.as_py().upper() == "ABSENT")


def json_object_of(members: Sequence[Mapping[str, str | None]]) -> str:
    """A JSON object of rows (key, JSON text), sorted by key.

    Raises:
        ValueError: a key is NULL, or there twice.

    >>> json_object_of([{"k": "b", "v": "1"}, {"k": "a", "v": "null"}])
    '{"a":null,"b":1}'
    """
    made: dict[str, str] = {}
    for key, text in (tuple(m.values()) for m in members):
        if key is None:
            raise ValueError("a key is NULL")
        if key in made:
            raise ValueError(f"the key '{key}' is there twice")
        made[key] = text or "null"
    return "{" + ",".join(f"{dump(k)}:{made[k]}" for k in sorted(made, key=utf16_order)) + "}"


def _json(text: str) -> str:
    """JSON text without spaces, members sorted by name; null of no text at all, as Jackson reads it."""
    value = parse(text or "null")
    if value is INVALID:
        raise DataError(
            "JSON: the text is not JSON", hint="filter by IS JSON before, or leave JSON(…) out: then it is a string"
        )
    return dump(parse_exact(text) if has_fractions(text) else value)


def _json_object_of(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    made: list[str] = []
    for row, members in enumerate(as_array(arguments[0], rows).to_pylist()):
        try:
            made.append(json_object_of(members or ()))
        except ValueError as error:
            raise DataError(
                f"JSON_OBJECTAGG: {error}",
                row=row,
                hint="keys must be given and unique: filter or group by them before",
            ) from None
    return pa.array(made, pa.string())


def _object_of_rule(arguments: Sequence[Argument]) -> Signature:
    given = [a.type for a in arguments]
    element = given[0].children[0] if len(given) == 1 and given[0].root is TypeRoot.ARRAY else None
    if element is None or [c.is_character for c in element.children] != [True, True]:
        raise ExpressionError(
            f"JSON_OBJECT_OF takes an ARRAY<ROW<key STRING, value STRING>>, {', '.join(map(str, given))} given",
            hint="usage: JSON_OBJECT_OF(array)",
        )
    return Signature((given[0],), STRING)


_OBJECT = "JSON_OBJECT([KEY key VALUE value, …] [NULL | ABSENT ON NULL])"
_ARRAY = "JSON_ARRAY([value, …] [NULL | ABSENT ON NULL])"

JSON_CONSTRUCTORS = (
    ScalarFunction(
        "JSON_STRING", Rule("JSON_STRING(value)", STRING, (ANYTHING,)), _json_string, "JSON_STRING(value)",
        "The value as JSON text; NULL stays NULL.", texts.string_text,
    ),
    ScalarFunction(
        "JSON", Rule("JSON(string)", STRING, (TEXT,)), Distinct(_json), "JSON(string)",
        "In JSON_OBJECT and JSON_ARRAY: the text is JSON, and no string; an error if it is not.", fallible=True,
    ),
    ScalarFunction(
        "JSON_OBJECT", _ConstructorRule(_OBJECT, keyed=True), _json_object, _OBJECT,
        "A JSON object of keys and values, sorted by key.", texts.object_text,
    ),
    ScalarFunction(
        "JSON_ARRAY", _ConstructorRule(_ARRAY, keyed=False), _json_array, _ARRAY, "A JSON array of values.",
        texts.array_text,
    ),
    ScalarFunction(
        "JSON_OBJECT_OF", _object_of_rule, _json_object_of, "JSON_OBJECT_OF(array)",
        "A JSON object of an array of rows (key, JSON text), sorted by key; of NULL an empty one.", texts.object_of_text, fallible=True,
    ),
)  # fmt: skip
"""Functions that write JSON."""
