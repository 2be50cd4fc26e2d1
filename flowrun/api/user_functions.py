"""Users' Python functions for SQL: the decorators `udf`, `udaf`, `udtf` and `ptf`, and the types that they declare.

```python
import flowrun

@flowrun.udf(result="STRING")                      # one row at a time; types of arguments from the annotations, if any
def mask(card: str) -> str:
    return "*" * 12 + card[-4:]

@flowrun.udf(result="BIGINT", vectorised=True)     # Arrow arrays in, one Arrow array out: thousands of rows a call
def length(text):
    return pc.utf8_length(text)

@flowrun.udtf(result="word STRING, size INT")      # any number of rows for each row
def words(text: str):
    for word in text.split():
        yield word, len(word)

@flowrun.udaf(result="DOUBLE")                     # a class: see `Aggregate`
class WeightedMean: ...
```

A function that takes several types is decorated several times, or has `typing.overload`s; parameters with defaults may be left out:

```python
@flowrun.udf(arguments=["INT"], result="INT")
@flowrun.udf(arguments=["STRING"], result="STRING")
def twice(value):
    return value * 2
```

A script then says `CREATE FUNCTION mask AS 'my_functions.mask' LANGUAGE PYTHON`. A function without a decorator works as well if its
annotations give its types. NULL arrives as None; values are what `pyarrow.Array.to_pylist` gives: datetime objects, `Decimal`, lists,
dicts for ROWs, lists of pairs for MAPs.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Protocol, TypeVar, overload

from flowrun.core.record import record
from flowrun.core.type_parser import parse_type
from flowrun.core.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, STRING, DataType, array, decimal, map_of, timestamp
from flowrun.core.types import time as time_type

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "__flowrun_function__"
"""Attribute of a decorated function or class that holds its `FunctionDeclaration`."""

_ANNOTATIONS: dict[Any, DataType] = {
    str: STRING,
    int: BIGINT,
    float: DOUBLE,
    bool: BOOLEAN,
    bytes: BYTES,
    Decimal: decimal(38, 18),
    date: DATE,
    datetime: timestamp(6),
    time: time_type(6),
}


class Callee(Enum):
    """What is called: a function of one row, an aggregate, a function that gives rows, or one of whole tables with state and timers."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"
    PROCESS = "process table"


@record
class FunctionDeclaration:
    """What a decorator says of a function.

    Attributes:
        result: type of the value, of a table function the ROW of its columns; None: from the annotations.
        arguments: None: from the annotations.
        table: of a process table function: name of the argument that is the table.
        passes_columns: of a process table function: all columns of the table go before its own, not only the keys.
        others: what further decorators of the same function say: it may be called with other types, too.
    """

    kind: Callee
    result: DataType | None
    arguments: tuple[DataType, ...] | None
    vectorised: bool
    deterministic: bool
    table: str = "input"
    passes_columns: bool = False
    others: tuple[FunctionDeclaration, ...] = ()


class Aggregate(Protocol):
    """A user's aggregate. One instance serves all groups of a subtask: what it remembers of a group is in the accumulator alone.

    Accumulators are part of checkpoints, as JSON text, so they are plain values: numbers, texts, times, lists, tuples, sets, dicts,
    NumPy and Arrow values, and dataclasses of these that stand at the top of the aggregate's module. A vectorised
    aggregate gets Arrow arrays, the rows of one group, where others get the values of one row.
    """

    def create_accumulator(self) -> Any:
        """What is remembered of a group without rows."""
        ...

    def accumulate(self, accumulator: Any, *arguments: Any) -> Any:
        """Add a row (vectorised: rows). Gives the new accumulator, or None if it changed the given one in place."""
        ...

    def get_value(self, accumulator: Any) -> Any:
        """The aggregate of the group; None is NULL."""
        ...


@overload
def udf(function: F) -> F: ...
@overload
def udf(
    *,
    result: str | DataType | None = None,
    arguments: Sequence[str | DataType] | None = None,
    vectorised: bool = False,
    deterministic: bool = True,
) -> Callable[[F], F]: ...
def udf(
    function: F | None = None,
    *,
    result: str | DataType | None = None,
    arguments: Sequence[str | DataType] | None = None,
    vectorised: bool = False,
    deterministic: bool = True,
) -> Any:
    """Declares a scalar function: one value for each row.

    Args:
        function: a function, or a class whose instances have `__call__` or `eval`; given by `@udf` without parentheses.
        result: SQL type of the value; None: from the annotations.
        arguments: SQL types of the arguments, which are converted to them; None: from the annotations, or any types if there are none.
        vectorised: it takes and gives Arrow arrays of one length.
        deterministic: same arguments, same result.

    >>> @udf(result="INT", arguments=["STRING"])
    ... def size(text): return len(text)
    >>> str(declaration_of(size).result), size("abc")
    ('INT', 3)
    """
    return _declared(function, Callee.SCALAR, result, arguments, vectorised, deterministic)


@overload
def udaf(function: F) -> F: ...
@overload
def udaf(
    *,
    result: str | DataType | None = None,
    arguments: Sequence[str | DataType] | None = None,
    vectorised: bool = False,
    deterministic: bool = True,
) -> Callable[[F], F]: ...
def udaf(
    function: F | None = None,
    *,
    result: str | DataType | None = None,
    arguments: Sequence[str | DataType] | None = None,
    vectorised: bool = False,
    deterministic: bool = True,
) -> Any:
    """Declares an aggregate: a class as `Aggregate` says; with a method `retract` like `accumulate` it works on updating tables too."""
    return _declared(function, Callee.AGGREGATE, result, arguments, vectorised, deterministic)


def udtf(
    *,
    result: str | DataType | Sequence[str],
    arguments: Sequence[str | DataType] | None = None,
    vectorised: bool = False,
    deterministic: bool = True,
) -> Callable[[F], F]:
    """Declares a table function: it yields (or returns a list of) tuples, one a row; a lone value stands for a row of one column.

    Args:
        result: its columns, like `"word STRING, size INT"`, `["STRING", "INT"]` (columns f0, f1, …) or `ROW<…>`.
        arguments: as `udf`.
        vectorised: it takes an Arrow array an argument and returns (`pa.RecordBatch`, parents): `parents[i]` is the position of the row
            for which it gives row i.
        deterministic: same arguments, same rows.
    """
    columns = _columns(result)
    marked: Callable[[F], F] = _declared(None, Callee.TABLE, columns, arguments, vectorised, deterministic)
    return marked


def ptf(
    *, result: str | DataType | Sequence[str], table: str = "input", pass_columns_through: bool = False
) -> Callable[[F], F]:
    """Declares a process table function: a `ProcessFunction` (each row by itself) or `KeyedProcessFunction` (state and timers a key).

    A query calls it with a table, and with constants for the parameters of the class:
    `SELECT * FROM f(input => TABLE t PARTITION BY k, limit => 3, on_time => DESCRIPTOR(ts), uid => 'f')`.

    Args:
        result: columns of the rows that it sends, as `udtf` has them.
        table: name of the argument that is the table.
        pass_columns_through: all columns of the table go before those that it sends, instead of only the keys; it has no timers then.
    """
    declaration = FunctionDeclaration(Callee.PROCESS, _columns(result), None, False, True, table, pass_columns_through)

    def mark(target: F) -> F:
        setattr(target, ATTRIBUTE, declaration)
        return target

    return mark


def declaration_of(target: object) -> FunctionDeclaration | None:
    """What the decorator of a function, class or instance says; None: it has none."""
    found = getattr(target, ATTRIBUTE, None)
    return found if isinstance(found, FunctionDeclaration) else None


def overloaded(function: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """The signatures that `typing.overload` gives a function, in order; the function itself if there are none."""
    return tuple(typing.get_overloads(function)) or (function,)


def annotated_types(function: Callable[..., Any], skip: int = 0) -> tuple[tuple[DataType, ...] | None, DataType | None]:
    """(types of the arguments without the first `skip`, type of the result) as Python annotations give them; None for what is not
    annotated.

    >>> def f(a: str, b: int | None) -> float: ...
    >>> [str(t) for t in annotated_types(f)[0]], str(annotated_types(f)[1])
    (['STRING', 'BIGINT'], 'DOUBLE')
    """
    try:
        hints = typing.get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (
        TypeError,
        ValueError,
        NameError,
    ):  # built-in functions may have no signature; a name may be known to type checkers only
        return None, None
    result = type_of_annotation(hints.get("return"))
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    found = [type_of_annotation(hints.get(p.name)) for p in positional]
    complete = len(positional) == len(parameters) and None not in found
    return (tuple(t for t in found if t is not None) if complete else None), result


def type_of_annotation(annotation: Any) -> DataType | None:
    """The SQL type of a Python annotation; None if it says nothing.

    >>> str(type_of_annotation(list[str])), str(type_of_annotation(int | None)), type_of_annotation(None)
    ('ARRAY<STRING>', 'BIGINT', None)
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in inner if a is not type(None)]
        return type_of_annotation(rest[0]) if len(rest) == 1 else None
    if origin is list and len(inner) == 1:
        element = type_of_annotation(inner[0])
        return None if element is None else array(element)
    if origin is dict and len(inner) == 2:
        key, value = map(type_of_annotation, inner)
        return None if key is None or value is None else map_of(key, value)
    try:
        return _ANNOTATIONS.get(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return None


def _declared(
    function: F | None,
    kind: Callee,
    result: str | DataType | None,
    arguments: Sequence[str | DataType] | None,
    vectorised: bool,
    deterministic: bool,
) -> Any:
    declaration = FunctionDeclaration(
        kind,
        None if result is None else _type(result),
        None if arguments is None else tuple(map(_type, arguments)),
        vectorised,
        deterministic,
    )

    def mark(target: F) -> F:
        before = vars(target).get(ATTRIBUTE)
        others = () if before is None else (replace(before, others=()), *before.others)
        setattr(target, ATTRIBUTE, replace(declaration, others=others))
        return target

    return mark if function is None else mark(function)


def _type(given: str | DataType) -> DataType:
    return given if isinstance(given, DataType) else parse_type(given)


def _columns(given: str | DataType | Sequence[str]) -> DataType:
    if isinstance(given, DataType):
        return given
    if not isinstance(given, str):
        given = "ROW<" + ", ".join(f"f{i} {t}" for i, t in enumerate(given)) + ">"
    return parse_type(given if given.lstrip().upper().startswith("ROW") else f"ROW<{given}>")
