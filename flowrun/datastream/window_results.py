"""What windows of programs compute without, or before, a window function: reduced rows, users' aggregates, named aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.keyed_state import declared_states
from flowrun.api.process_function import AggregateFunction, OpenContext
from flowrun.api.window_function import ProcessWindowFunction, WindowContext
from flowrun.core.schema import Schema
from flowrun.datastream.functions import column_positions
from flowrun.datastream.rolling import reducer
from flowrun.errors import PipelineError
from flowrun.operators.function_recipe import FunctionRecipe


class CombinedRows(ProcessWindowFunction):
    """The one result of all rows of a window, as it is or as a window function shows it, which sees a list of one row.

    Args:
        inner: that function, which has `process`; None: the result is sent.
    """

    def __init__(self, inner: ProcessWindowFunction | None) -> None:
        self._inner: Any = inner
        self._states = tuple(declared_states(inner)) if inner is not None else ()
        for attribute in self._states:
            setattr(self, attribute, declared_states(inner)[attribute])
        if hasattr(inner, "clear"):
            self.clear: Any = getattr(inner, "clear")  # noqa: B009 - few functions have it

    def open(self, context: OpenContext) -> None:
        """Open the window function, whose state it has by now."""
        for attribute in self._states:
            setattr(self._inner, attribute, getattr(self, attribute))
        if self._inner is not None:
            self._inner.open(context)

    def close(self) -> None:
        """Close the window function."""
        if self._inner is not None:
            self._inner.close()

    def combined(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The result of rows."""
        raise NotImplementedError

    def process(self, key: tuple[Any, ...], context: WindowContext, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Send the result, or what the window function makes of it."""
        result = self.combined(rows)
        return result if self._inner is None else self._inner.process(key, context, [result])


class ReducedRows(CombinedRows):
    """What `function(reduced, row)` makes of the rows, one after the other."""

    def __init__(self, function: FunctionRecipe, inner: ProcessWindowFunction | None) -> None:
        super().__init__(inner)
        self._recipe = function

    def open(self, context: OpenContext) -> None:
        """Load the function."""
        super().open(context)
        self._reduce = reducer(self._recipe, "reduce")

    def combined(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The reduced row."""
        return reduce(self._reduce, rows)


class AggregatedRows(CombinedRows):
    """The result of an `AggregateFunction` over the rows."""

    def __init__(self, function: FunctionRecipe, inner: ProcessWindowFunction | None) -> None:
        super().__init__(inner)
        self._recipe = function

    def open(self, context: OpenContext) -> None:
        """Load the function."""
        super().open(context)
        self._function: AggregateFunction[Any, Any, Any] = self._recipe.instance()

    def combined(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The result of all rows."""
        function = self._function
        accumulator = function.create_accumulator()
        for row in rows:
            accumulator = function.add(row, accumulator)
        return function.get_result(accumulator)


def inner_function(given: ProcessWindowFunction | type[ProcessWindowFunction] | None, place: str) -> Any:
    """The window function behind an aggregate.

    Raises:
        PipelineError: it works on batches; `place` begins the message.
    """
    function = given() if isinstance(given, type) else given
    if function is not None and not hasattr(function, "process"):
        raise PipelineError.of(
            f"{place}: a window function behind an aggregate sees one row a window, by 'process'",
            "give it a method process(self, key, context, rows)",
        )
    return function


def named_aggregate(function: str, schema: Schema, column: str | None, place: str) -> BoundAggregate:
    """SUM, MIN, MAX or COUNT of a column under its name, COUNT of rows as `count`.

    Raises:
        PipelineError: there is no such column, or the function cannot take its type; `place` begins the message.
    """
    from flowrun.functions.contract import Argument  # these know all functions of SQL, which few programs need
    from flowrun.functions.registry import aggregate

    found = aggregate(function)
    assert found is not None
    positions = () if column is None else column_positions(schema, (column,), place)
    types = [schema.types[p] for p in positions]
    try:
        wanted, kernel = found.type_rule([Argument(t) for t in types])
    except Exception as error:
        raise PipelineError.of(f"{place}: {function} cannot take '{column}': {error}") from error
    if list(wanted) != types:
        raise PipelineError.of(
            f"{place}: {function} takes {', '.join(map(str, wanted))}, but '{column}' is {types[0]}",
            "convert it in a map before",
        )
    return BoundAggregate(column or "count", kernel, positions[0] if positions else None)
