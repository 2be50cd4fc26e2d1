"""User functions as values that tasks can load: columns by name, and Python functions by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from flowrun.api.functions import ArrayKernel, ColumnsKernel, MaskKernel, PredicateFunction
from flowrun.api.operator import OperatorRecipe, OutputTag
from flowrun.api.process_function import RichFunction
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.datastream.schemas import SchemaLike, as_schema
from flowrun.errors import DataError, FlowrunError, PipelineError, did_you_mean
from flowrun.operators.data_errors import describe_row
from flowrun.operators.factories import PythonFunctionFactory
from flowrun.operators.function_loading import describe, takes_context, where
from flowrun.operators.function_recipe import FunctionRecipe, class_recipe
from flowrun.operators.process.factories import CoProcessFunctionFactory, ProcessFunctionFactory, declared_tables
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.operators.process.loading import load_process_function

BatchCallable = Callable[..., Any]
"""Called with a `pa.RecordBatch`, and with a context if it has a second parameter of that name and may have one."""
RowCallable = Callable[..., Any]
"""Called with a row, a dict; else the same."""


def column_positions(schema: Schema, names: Iterable[str], place: str) -> tuple[int, ...]:
    """Positions of the named columns.

    Raises:
        PipelineError: there is no such column; `place` begins the message.

    >>> from flowrun.core.types import BIGINT
    >>> column_positions(Schema.of(a=BIGINT, b=BIGINT), ["b"], "key_by")
    (1,)
    """
    positions = []
    for name in names:
        if not isinstance(name, str):
            raise PipelineError.of(
                f"{place}: columns are named, got {name!r}", "compute a column with map, and name that: key_by('word')"
            )
        if name not in schema:
            raise PipelineError.of(
                f"{place}: there is no column '{name}' in ({schema})", did_you_mean(name, schema.names)
            )
        positions.append(schema.index(name))
    return tuple(positions)


def recipe_of(function: object, place: str, methods: tuple[str, ...] = ()) -> FunctionRecipe:
    """How tasks get a function: one that is named `module:name`, or as `FunctionRecipe.of_code` says.

    Args:
        function: something that can be called, or that has one of the methods.
        place: begins messages.
        methods: what may be called in its place.

    Raises:
        PipelineError: it is no function, or cannot be sent to tasks.
    """
    if isinstance(function, str):
        return FunctionRecipe(function)
    if not callable(function) and not any(callable(getattr(function, m, None)) for m in methods):
        also = "".join(f", or an object with {m}()" for m in methods)
        raise PipelineError.of(f"{place}: {function!r} is not a function", f"give a function{also}, or 'module:name'")
    try:
        return FunctionRecipe.of_code(function)
    except PipelineError as error:
        raise PipelineError([replace(d, message=f"{place}: {d.message}") for d in error.diagnostics]) from error


def map_factory(
    function: Callable[..., Any] | str,
    input_schema: Schema,
    schema: SchemaLike | None,
    side_outputs: Sequence[OutputTag],
    name: str,
    *,
    flat: bool,
    row: bool,
) -> PythonFunctionFactory:
    """The recipe of operators that call a function, which may send to side outputs if it has a second parameter `context`.

    Raises:
        PipelineError: the function cannot be sent to tasks, or there are side outputs but it has no context.
    """
    recipe = recipe_of(function, name)
    if side_outputs and not takes_context(recipe.load_function(context=True)):
        raise PipelineError.of(
            f"{name}: '{recipe.reference}' has side outputs, but no second parameter 'context' by which it could send to them",
            "write def function(row, context), and context.side_output(name, row)",
        )
    output = input_schema if schema is None else as_schema(schema, name)
    tags = tuple(side_outputs)
    return PythonFunctionFactory(recipe, input_schema, output, flat=flat, row=row, name=name, side_outputs=tags)


@record
class ColumnValue:
    """The values of one column: e.g. the event time of a watermark strategy."""

    name: str

    def compile(self) -> ArrayKernel:
        """Reads the column."""
        name = self.name
        return lambda batch: batch.column(name)


@record
class SelectColumns:
    """Some columns, in a new order."""

    positions: tuple[int, ...]
    schema: Schema

    @property
    def never_fails(self) -> bool:
        """It only refers to columns."""
        return True

    def compile(self) -> ColumnsKernel:
        """Zero-copy."""
        positions = list(self.positions)
        return lambda batch: batch.select(positions)


@record
class PythonPredicate:
    """A Python function from a batch to a boolean array (Arrow or NumPy, one value a row)."""

    function: FunctionRecipe

    def compile(self) -> MaskKernel:
        """Loads the function; its result is checked on every batch."""
        function = self.function.load_function()
        reference = self.function.reference

        def mask_of(batch: pa.RecordBatch) -> pa.BooleanArray:
            try:
                mask = function(batch)
            except FlowrunError:
                raise
            except Exception as error:
                raised = f"condition '{reference}' raised {describe(error)}{where(error, __file__)}"
                raise DataError(raised) from error
            if isinstance(mask, np.ndarray) and mask.dtype == np.bool_:
                mask = pa.array(mask)
            if isinstance(mask, pa.ChunkedArray):
                mask = mask.combine_chunks()
            if not isinstance(mask, pa.BooleanArray) or len(mask) != batch.num_rows:
                got = f"{len(mask)} values of {mask.type}" if isinstance(mask, pa.Array) else f"a {type(mask).__name__}"
                raise DataError(
                    f"condition '{reference}' got {batch.num_rows} rows and returned {got}",
                    hint="return a boolean array with one value a row, e.g. of pyarrow.compute.greater(...)",
                )
            return mask

        return mask_of


FunctionLike: TypeAlias = RichFunction | type[RichFunction] | str
"""A process function (each subtask gets a copy), its class, or `module:Class`."""


@record
class RowPredicate:
    """A Python function from a row, a dict, to whether it is kept."""

    function: FunctionRecipe
    place: str

    def compile(self) -> MaskKernel:
        """Loads the function; None counts as false."""
        kernel = RowTime(self.function, self.place).compile_python()
        return lambda batch: pa.array([bool(v) for v in kernel(batch)], pa.bool_())


@record
class RowTime:
    """A Python function from a row, a dict, to its event time: ms since 1970 or a datetime."""

    function: FunctionRecipe
    place: str

    def compile(self) -> ArrayKernel:
        """Loads the function."""
        kernel, place = self.compile_python(), self.place
        reference = self.function.reference

        def values(batch: pa.RecordBatch) -> pa.Array:
            given = kernel(batch)
            try:
                times = pa.array(given, pa.int64() if all(v is None or isinstance(v, int) for v in given) else None)
            except (pa.ArrowException, OverflowError) as error:
                raise DataError(f"{place}: '{reference}' gave values of different types: {error}") from error
            if not (pa.types.is_int64(times.type) or pa.types.is_timestamp(times.type)):
                hint = "give ms since 1970, or a datetime"
                raise DataError(f"{place}: '{reference}' gave {given[0]!r}, which is no time", hint=hint)
            return times

        return values

    def compile_python(self) -> Callable[[pa.RecordBatch], list[Any]]:
        """What the function gives for each row of a batch. Raises DataError that names the row on which it fails."""
        function, reference, place = self.function.load_function(), self.function.reference, self.place

        def call(batch: pa.RecordBatch) -> list[Any]:
            given: list[Any] = []
            try:
                for row in batch.to_pylist():
                    given.append(function(row))  # noqa: PERF401 - how many there are says which row failed
            except FlowrunError:
                raise
            except Exception as error:
                raise DataError(
                    f"{place}: '{reference}' raised {describe(error)}{where(error, __file__)}; the row is "
                    f"{describe_row(batch, len(given))}",
                    row=len(given),
                    hint="handle such rows in the function, or drop them with a filter before",
                ) from error
            return given

        return call


def process_factory(
    function: OperatorRecipe | FunctionLike,
    arguments: Mapping[str, object],
    input_schema: Schema,
    output_schema: Schema,
    side_outputs: tuple[OutputTag, ...],
    keys: tuple[int, ...] | None,
    name: str,
) -> OperatorRecipe:
    """An operator factory as it is, or one that runs a process function, which is checked.

    Raises:
        PipelineError: the function does not keep to the rules, or cannot be loaded by tasks.
    """
    if not isinstance(function, str | type | RichFunction):
        return function
    recipe = class_recipe(function, RichFunction, arguments, name)
    loaded = load_process_function(recipe, keyed=keys is not None)
    return ProcessFunctionFactory(
        recipe,
        input_schema,
        output_schema,
        keys,
        side_outputs=side_outputs,
        name=name,
        tables=declared_tables(loaded, input_schema, keys),
    )


def co_process_factory(
    function: FunctionLike,
    arguments: Mapping[str, object],
    inputs: FunctionInputs,
    input_schemas: tuple[Schema, Schema],
    output_schema: Schema,
    side_outputs: tuple[OutputTag, ...],
    keys: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    name: str,
) -> CoProcessFunctionFactory:
    """A factory of operators that run a function of two streams, which is checked.

    Raises:
        PipelineError: the function does not keep to the rules, or cannot be loaded by tasks.
    """
    recipe = class_recipe(function, RichFunction, arguments, name)
    loaded = load_process_function(recipe, keyed=keys[0] is not None, inputs=inputs)
    return CoProcessFunctionFactory(
        recipe,
        inputs,
        input_schemas,
        output_schema,
        keys,
        side_outputs=side_outputs,
        name=name,
        tables=declared_tables(loaded, input_schemas[0], keys[0]),
    )


def row_predicate(condition: PredicateFunction | RowCallable | str, place: str) -> PredicateFunction:
    """A predicate as it is, or a Python function of a row as a predicate."""
    if isinstance(condition, str) or not hasattr(condition, "compile"):
        return RowPredicate(recipe_of(condition, place), place)
    return condition


def batch_predicate(condition: BatchCallable | str, place: str) -> PredicateFunction:
    """A Python function of a batch as a predicate."""
    return PythonPredicate(recipe_of(condition, place))
