"""Users' Python functions for SQL: the decorators `udf`, `udaf`, `udtf` and `ptf`, and the types that they declare.

```python
import flowrun

@flowrun.udf                                       # one row at a time; types from the annotations
def mask(card: str) -> str:
    return "*" * 12 + card[-4:]

@flowrun.udf                                       # Arrow arrays in, one Arrow array out: thousands of rows a call
def length(text: pa.StringArray) -> pa.Int32Array:
    return pc.utf8_length(text)

@flowrun.udf(result="DOUBLE", arguments=["DOUBLE"])  # types that annotations do not say
def root(value: pd.Series) -> pd.Series:
    return value ** 0.5

@flowrun.udtf                                      # any number of rows for each row
def words(text: str) -> Iterator[Word]:            # a NamedTuple, dataclass or TypedDict: its fields are the columns
    for word in text.split():
        yield Word(word, len(word))

@flowrun.udaf                                      # a class: see `Aggregate`
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
annotations give its types (`flowrun.api.annotations`). NULL arrives as None; values are what `pyarrow.Array.to_pylist` gives: datetime
objects, `Decimal`, lists, dicts for ROWs, lists of pairs for MAPs, unless annotations say dicts and records. A class may have `open()` and
`close()`, or be a context manager: it is opened once a subtask, and closed at its end, also after a failure.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol, TypeVar, overload

from flowrun.core.record import record
from flowrun.core.type_parser import parse_type
from flowrun.core.types import DataType

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "__flowrun_function__"
"""Attribute of a decorated function or class that holds its `FunctionDeclaration`."""


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
        vectorised: it takes and gives Arrow arrays of one length. Parameters annotated as columns say so by themselves.
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


@overload
def udtf(function: F) -> F: ...
@overload
def udtf(
    *,
    result: str | DataType | Sequence[str] | None = None,
    arguments: Sequence[str | DataType] | None = None,
    vectorised: bool = False,
    deterministic: bool = True,
) -> Callable[[F], F]: ...
def udtf(
    function: F | None = None,
    *,
    result: str | DataType | Sequence[str] | None = None,
    arguments: Sequence[str | DataType] | None = None,
    vectorised: bool = False,
    deterministic: bool = True,
) -> Any:
    """Declares a table function: it yields (or returns a list of) rows: tuples, dicts, dataclasses or `NamedTuple`s; a lone value stands
    for a row of one column.

    Args:
        function: as `udf`.
        result: its columns, like `"word STRING, size INT"`, `["STRING", "INT"]` (columns f0, f1, …) or `ROW<…>`; None: from the annotation
            of what it gives, like `Iterator[Word]`.
        arguments: as `udf`.
        vectorised: it takes an Arrow array an argument and returns (`pa.RecordBatch`, parents): `parents[i]` is the position of the row
            for which it gives row i.
        deterministic: same arguments, same rows.
    """
    columns = None if result is None else _columns(result)
    return _declared(function, Callee.TABLE, columns, arguments, vectorised, deterministic)


@overload
def ptf(function: F) -> F: ...
@overload
def ptf(
    *,
    result: str | DataType | Sequence[str] | None = None,
    table: str = "input",
    pass_columns_through: bool = False,
) -> Callable[[F], F]: ...
def ptf(
    function: F | None = None,
    *,
    result: str | DataType | Sequence[str] | None = None,
    table: str = "input",
    pass_columns_through: bool = False,
) -> Any:
    """Declares a process table function: a `ProcessFunction` (each row by itself) or `KeyedProcessFunction` (state and timers a key).

    A query calls it with a table, and with constants for the parameters of the class:
    `SELECT * FROM f(input => TABLE t PARTITION BY k, limit => 3, on_time => DESCRIPTOR(ts), uid => 'f')`.

    Args:
        function: as `udf`, a class.
        result: columns of the rows that it sends, as `udtf` has them; None: from what `process_element` or `on_timer` is annotated to give.
        table: name of the argument that is the table.
        pass_columns_through: all columns of the table go before those that it sends, instead of only the keys; it has no timers then.
    """
    columns = None if result is None else _columns(result)
    declaration = FunctionDeclaration(Callee.PROCESS, columns, None, False, True, table, pass_columns_through)

    def mark(target: F) -> F:
        setattr(target, ATTRIBUTE, declaration)
        return target

    return mark if function is None else mark(function)


def declaration_of(target: object) -> FunctionDeclaration | None:
    """What the decorator of a function, class or instance says; None: it has none."""
    found = getattr(target, ATTRIBUTE, None)
    return found if isinstance(found, FunctionDeclaration) else None


def overloaded(function: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """The signatures that `typing.overload` gives a function, in order; the function itself if there are none."""
    if not hasattr(function, "__module__") or not hasattr(function, "__qualname__"):
        return (function,)  # a partial, or an object of a compiled library
    return tuple(typing.get_overloads(function)) or (function,)


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
