"""Calls functions the way the compiler does: type rule, casts, kernel; and checks that the result has the promised Arrow type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowrun.core.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, char
from flowrun.functions.contract import Argument, Signature
from flowrun.functions.registry import scalar


@dataclass(frozen=True)
class Column:
    values: list[Any]
    type: DataType = STRING


@dataclass(frozen=True)
class Constant:
    value: Any
    type: DataType


def constant(value: Any) -> Constant:
    """A literal with the type that SQL gives it."""
    if isinstance(value, Constant):
        return value
    if isinstance(value, bool):
        return Constant(value, BOOLEAN)
    if isinstance(value, int):
        return Constant(value, INT if -(2**31) <= value < 2**31 else BIGINT)
    if isinstance(value, float):
        return Constant(value, DOUBLE)
    return Constant(value, STRING if not value else char(len(value)))


def signature(name: str, *arguments: Any) -> Signature:
    function = scalar(name)
    assert function is not None, name
    return function.type_rule([_argument(a) for a in arguments])


def _argument(given: Any) -> Argument:
    if isinstance(given, Column):
        return Argument(given.type)
    literal = constant(given)
    return Argument(literal.type, literal.value, True)


def call(name: str, *arguments: Any, sliced: bool = False) -> Any:
    """The result as a list (a single value if all arguments are constants)."""
    function = scalar(name)
    assert function is not None, name
    bound = function.type_rule([_argument(a) for a in arguments])
    data: list[Any] = []
    rows = 1
    for given, type in zip(arguments, bound.arguments, strict=True):
        if isinstance(given, Column):
            values = [given.values[0], *given.values, given.values[-1]] if sliced else given.values
            array = pa.array(values, given.type.arrow).cast(type.arrow)
            data.append(array.slice(1, len(given.values)) if sliced else array)
            rows = len(given.values)
        else:
            literal = constant(given)
            data.append(pa.scalar(literal.value, literal.type.arrow).cast(type.arrow))
    result = function.kernel(data, rows, bound.result)
    assert result.type == bound.result.arrow, f"{name}: {result.type} instead of {bound.result.arrow}"
    if isinstance(result, pa.Array):
        result.validate(full=True)
        assert len(result) == rows, f"{name}: {len(result)} values for {rows} rows"
        if arguments and not any(isinstance(a, Column) for a in arguments):
            return result[0].as_py()  # a kernel may give a column for constants too
        return result.to_pylist()
    if any(isinstance(a, Column) for a in arguments):
        return [result.as_py()] * rows
    return result.as_py()


def check(name: str, arguments: tuple[Any, ...], expected: Any) -> None:
    """One call with every argument constant, and as columns of 3 rows, sliced, of one row, of none; each must give `expected`."""
    assert call(name, *arguments) == expected, "constants"
    for varying in ([0], list(range(len(arguments)))):
        columns = [
            _as_column(a, 3) if i in varying and not _must_be_constant(name, i) else a for i, a in enumerate(arguments)
        ]
        if not any(isinstance(c, Column) for c in columns):
            continue
        assert call(name, *columns) == [expected] * 3, f"columns {varying}"
        assert call(name, *columns, sliced=True) == [expected] * 3, f"slices {varying}"
        single = [Column(c.values[:1], c.type) if isinstance(c, Column) else c for c in columns]
        assert call(name, *single) == [expected], "one row"
        none = [Column([], c.type) if isinstance(c, Column) else c for c in columns]
        assert call(name, *none) == [], "no row"


def _as_column(given: Any, rows: int) -> Column:
    literal = constant(given)
    return Column([literal.value] * rows, literal.type)


def _must_be_constant(name: str, place: int) -> bool:
    units = {"EXTRACT": {0}, "TIMESTAMPADD": {0}, "TIMESTAMPDIFF": {0}, "PARSE_URL": {1}, "TO_TIMESTAMP_LTZ": {1}}
    units |= {
        "FLOOR": {1},
        "CEIL": {1},
        "ROUND": {1},
        "TRUNCATE": {1},
        "ARRAY_SORT": {1, 2},
        "IS_JSON": {1},
        "JSON_QUERY": {2, 3, 4},
    }
    units |= {"JSON_VALUE": {2, 4}, "JSON_EXISTS": {2}, "SHA2": {1}}
    return place in units.get(name, set())
