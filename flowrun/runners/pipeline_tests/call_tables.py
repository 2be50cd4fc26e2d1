"""Tables that stand for Python functions of a pipeline under test: a call gives what the table says, and is an error if it says nothing.

A table is a function of this module, as users' functions are of theirs: `table_7` for the seventh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from math import isnan
from typing import Any

import pyarrow as pa

from flowrun.core.record import record
from flowrun.errors import Diagnostic, Location, PipelineError
from flowrun.runners.pipeline_tests.row_texts import value_text


class Role(Enum):
    """What a function is to the pipeline, and so what its calls are given and give."""

    SCALAR = "columns of arguments, and a column of values"
    AGGREGATE = "an argument's values in all rows of a group, in any order, and a value"
    TABLE = "the values of a row, and rows"
    ROW = "a row, and rows"
    ROWS = "rows in their order, and rows"
    WINDOW = "rows in any order, maybe the bounds of their window, and rows"


@record(eq=False)
class Calls:
    """The calls of a function that a test knows.

    Attributes:
        function: its name, for messages.
        names: of the columns that hold its arguments.
        arguments: a column of each.
        results: of each call.
        location: of the table.
        line: the text there.
        role: of the function.
        sides: of a function on rows: the rows that each call sends to a side output, by its tag.
    """

    function: str
    names: tuple[str, ...]
    arguments: tuple[pa.Array, ...]
    results: pa.Array
    location: Location
    line: str
    role: Role = Role.SCALAR
    sides: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def places(self) -> dict[Any, int]:
        """Arguments → where their result is.

        Raises:
            PipelineError: two calls have the same arguments.
        """
        found: dict[Any, int] = {}
        for place, values in enumerate(rows_of(self.arguments, len(self.results))):
            if found.setdefault(self._checked_key(values), place) != place:
                raise self._problem(f"has two rows for the call {self._call(values)}", "a call has one result")
        return found

    def key(self, values: Sequence[Any]) -> Any:
        """What a call with these arguments is found by."""
        match self.role:
            case Role.AGGREGATE:
                return _group(zip(*values, strict=True))
            case Role.WINDOW:
                rows, *bounds = values
                return _group(rows), *bounds
        return _frozen(values)

    def _checked_key(self, values: tuple[Any, ...]) -> Any:
        if self.role is Role.AGGREGATE and (None in values or len({len(v) for v in values}) != 1):
            problem = f"has a row with lists of different lengths: {self._call(values)}"
            raise self._problem(problem, "a value of each argument belongs to each row of the group")
        return self.key(values)

    def unknown(self, values: Sequence[Any]) -> PipelineError:
        """The error of a call that the table does not have."""
        return self._problem(
            f"has no row for the call {self._call(values)}", "add the row, with the result of the call"
        )

    def _call(self, values: Sequence[Any]) -> str:
        return f"({', '.join(f'{n}: {value_text(v)}' for n, v in zip(self.names, values, strict=True))})"

    def _problem(self, what: str, hint: str) -> PipelineError:
        message = f"the table that stands for function '{self.function}' {what}"
        return PipelineError([Diagnostic(message, self.location, self.line, hint)])


class CallTable:
    """What is called instead of a function of expressions, or a table function."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._places = calls.places

    def call(self, *given: Any) -> Any:
        """What the function's role says, for what it says.

        Raises:
            PipelineError: there is a call that the table does not have.
        """
        calls = self._calls
        if calls.role is Role.TABLE:
            return self._results([given])[0].as_py()
        return self._results(rows_of(given, len(given[0])) if given else [()])

    def _results(self, rows: Iterable[tuple[Any, ...]]) -> pa.Array:
        return self._calls.results.take(found_places(self._calls, self._places, rows))


def found_places(calls: Calls, places: Mapping[Any, int], made: Iterable[Sequence[Any]]) -> pa.Int64Array:
    """Where the table has the results of calls that are made.

    Args:
        calls: the table.
        places: its `places`.
        made: the arguments of each call.

    Raises:
        PipelineError: there is a call that the table does not have.
    """
    found = []
    for values in made:
        place = places.get(calls.key(values))
        if place is None:
            raise calls.unknown(values)
        found.append(place)
    return pa.array(found, pa.int64())


class AggregateTable:
    """What aggregates instead of the function: an accumulator holds the rows of a group, and the table says what these amount to."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._places = calls.places

    def create_accumulator(self) -> list[list[Any]]:
        """No rows."""
        return []

    def accumulate(self, rows: list[list[Any]], *values: Any) -> None:
        """A row comes."""
        rows.append(list(values))

    def retract(self, rows: list[list[Any]], *values: Any) -> None:
        """A row goes."""
        rows.remove(list(values))

    def get_value(self, rows: list[list[Any]]) -> Any:
        """What the table says of the rows; of none, if it does not speak of that, NULL.

        Raises:
            PipelineError: it does not speak of them.
        """
        place = self._places.get(_group(rows))
        if place is None:
            if not rows:
                return None
            raise self._calls.unknown([list(values) for values in zip(*rows, strict=True)])
        return self._calls.results[place].as_py()


def _group(rows: Iterable[Any]) -> Any:
    """The rows of a group as a key of a dictionary, in whatever order they came."""
    return tuple(sorted(map(_frozen, rows), key=repr))


def rows_of(columns: Sequence[pa.Array], count: int) -> Iterable[tuple[Any, ...]]:
    """The values of each of `count` rows."""
    return zip(*(c.to_pylist() for c in columns), strict=True) if columns else [()] * count


def _frozen(value: Any) -> Any:
    """A value as a key of a dictionary; numbers that are equal are one, but true is not 1."""
    match value:
        case tuple() | list():
            return tuple(map(_frozen, value))
        case dict():
            return tuple((k, _frozen(v)) for k, v in value.items())
        case bool():
            return (bool, value)
        case float() if isnan(value):
            return (float, "NaN")  # which is unequal to itself
    return value


_tables: list[object] = []


def reference_to(function: object) -> str:
    """The reference by which the pipeline finds what stands for a function: a function, or a class."""
    _tables.append(function)
    return f"{__name__}:table_{len(_tables) - 1}"


def __getattr__(name: str) -> object:
    prefix, _, number = name.partition("_")
    if prefix != "table" or not number.isdigit() or int(number) >= len(_tables):
        raise AttributeError(name)
    return _tables[int(number)]
