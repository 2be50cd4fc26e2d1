"""Rolling aggregates of a keyed stream: each row in, the aggregate of all rows of its key so far out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.process_function import (
    KeyedBatchContext,
    KeyedProcessContext,
    KeyedProcessFunction,
    OpenContext,
    value_state,
)
from flowrun.api.state import AggregateFunction
from flowrun.core.arrays import Integers
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, from_arrow
from flowrun.datastream.running import running_extremes, running_sums
from flowrun.errors import PipelineError
from flowrun.operators.function_recipe import FunctionRecipe


class RollingOperation(Enum):
    """What is made of the values of a column."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


class Rolling(KeyedProcessFunction):
    """The first row of each key, with the sum, the least or the greatest value of a column so far in place of its own.

    After Apache Flink's `SumAggregator` and `ComparableAggregator`, which change one field of the first row. NULL adds nothing and is
    never the least or greatest. A sum has the type of its column; one that is out of its range is an error.
    """

    def __init__(self, column: str, schema: Schema, operation: RollingOperation) -> None:
        self._schema = schema
        self._column = column
        self._operation = operation
        self.reduced = value_state(row_type(schema))

    def process_batch(self, batch: pa.RecordBatch, context: KeyedBatchContext) -> pa.RecordBatch:
        """As many rows, one for each."""
        before: pa.StructArray = self.reduced.get()
        key_index, first = context.key_index, context.first_rows
        known = before.is_valid().to_numpy(zero_copy_only=False)
        row_of_key = np.where(known, np.arange(len(known)), len(known) + first)
        origins = pa.array(row_of_key[key_index])
        arrays = []
        for position, name in enumerate(self._schema.names):
            both = pa.concat_arrays([before.field(position), batch.column(position)])
            if name == self._column:
                arrays.append(self._rolled(both, key_index, len(known)))
            else:
                arrays.append(both.take(origins))
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow)
        self.reduced.update(rows.take(pa.array(context.last_rows)).to_struct_array())
        return rows

    def _rolled(self, values: pa.Array, key_index: Integers, keys: int) -> pa.Array:
        """For each row what the values of its key amount to; `values` are those before the batch, one a key, then those of the rows."""
        groups = np.concatenate([np.arange(keys), key_index])
        order = np.argsort(groups, kind="stable")
        ordered = values.take(pa.array(order))
        if self._operation is RollingOperation.SUM:
            rolled = running_sums(ordered, groups[order], f"sum of '{self._column}'")
        else:
            rolled = running_extremes(ordered, groups[order], greatest=self._operation is RollingOperation.MAX)
        place_of = np.empty(len(order), np.int64)
        place_of[order] = np.arange(len(order))
        return rolled.take(pa.array(place_of[keys:]))


class Reduce(KeyedProcessFunction):
    """What a user's function makes of all rows of a key so far: it gets what it made last, and the row. The first row is sent as it is."""

    def __init__(self, function: FunctionRecipe, schema: Schema) -> None:
        self._recipe = function
        self.reduced = value_state(row_type(schema))

    def open(self, context: OpenContext) -> None:
        """Load the function."""
        self._function = reducer(self._recipe, "reduce")

    def process_element(self, row: dict[str, Any], context: KeyedProcessContext) -> Any:
        """Reduce a row."""
        before = self.reduced.value()
        reduced = row if before is None else self._function(before, row)
        self.reduced.update(reduced)
        return reduced


class Fold(KeyedProcessFunction):
    """As `Reduce`, of rows of other columns, and beginning with a value."""

    def __init__(self, initial: Mapping[str, Any], function: FunctionRecipe, schema: Schema) -> None:
        self._initial = dict(initial)
        self._recipe = function
        self.folded = value_state(row_type(schema))

    def open(self, context: OpenContext) -> None:
        """Load the function."""
        self._function = reducer(self._recipe, "fold")

    def process_element(self, row: dict[str, Any], context: KeyedProcessContext) -> Any:
        """Fold a row in."""
        before = self.folded.value()
        folded = self._function(dict(self._initial) if before is None else before, row)
        self.folded.update(folded)
        return folded


class Aggregated(KeyedProcessFunction):
    """The result of a user's `AggregateFunction` over all rows of a key so far."""

    def __init__(self, function: FunctionRecipe, accumulator: DataType) -> None:
        self._recipe = function
        self.accumulator = value_state(accumulator)

    def open(self, context: OpenContext) -> None:
        """Load the function."""
        self._function: AggregateFunction[Any, Any, Any] = self._recipe.instance()

    def process_element(self, row: dict[str, Any], context: KeyedProcessContext) -> Any:
        """Add a row."""
        before = self.accumulator.value()
        accumulator = self._function.add(row, self._function.create_accumulator() if before is None else before)
        self.accumulator.update(accumulator)
        return self._function.get_result(accumulator)


class Extreme(KeyedProcessFunction):
    """The whole row with the least or greatest value of a column among those of its key so far; of equal ones the first."""

    def __init__(self, column: str, schema: Schema, greatest: bool, last: bool) -> None:
        self._column = column
        self._better = {
            (False, False): operator.lt, (False, True): operator.le, (True, False): operator.gt, (True, True): operator.ge,
        }[greatest, last]  # fmt: skip
        self.extreme = value_state(row_type(schema))

    def process_element(self, row: dict[str, Any], context: KeyedProcessContext) -> Any:
        """Compare a row with the best so far; NULL is never better."""
        best, value = self.extreme.value(), row[self._column]
        if best is None or (
            value is not None and (best[self._column] is None or self._better(value, best[self._column]))
        ):
            best = row
            self.extreme.update(row)
        return best


def row_type(schema: Schema) -> DataType:
    """The ROW of a schema's columns."""
    return from_arrow(pa.struct(list(schema.arrow)))


def reducer(recipe: FunctionRecipe, place: str) -> Callable[[Any, Any], Any]:
    """A function of two arguments.

    Raises:
        PipelineError: it is none.
    """
    function = recipe.instance()
    call: Callable[[Any, Any], Any] | None = getattr(function, place, function)
    if not callable(call):
        raise PipelineError.of(f"{place}: '{recipe.reference}' is not a function", "give a function of two arguments")
    return call
