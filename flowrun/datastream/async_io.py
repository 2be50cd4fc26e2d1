"""Asynchronous functions in programs, under the names of Apache Flink's `AsyncDataStream`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowrun.api.async_function import AsyncFunction, AsyncRetryStrategy, Predicate
from flowrun.api.operator import OutputTag
from flowrun.datastream.schemas import SchemaLike, as_schema
from flowrun.datastream.stream import DataStream
from flowrun.errors import PipelineError
from flowrun.operators.asynchronous.factories import (
    DEFAULT_CALL_ROWS,
    DEFAULT_CAPACITY,
    AsyncFunctionFactory,
    WaitMode,
)
from flowrun.operators.asynchronous.loading import load_async_function
from flowrun.operators.function_recipe import FunctionRecipe, class_recipe

Function = AsyncFunction | type[AsyncFunction] | str
"""An asynchronous function (each subtask gets a copy), its class, or `module:Class`."""


class AsyncDataStream:
    """Adds asynchronous functions to streams; see `flowrun.api.async_function`."""

    @staticmethod
    def ordered_wait(
        stream: DataStream,
        function: Function,
        schema: SchemaLike | None = None,
        timeout_ms: int | None = None,
        capacity: int = DEFAULT_CAPACITY,
        *,
        retry: AsyncRetryStrategy | None = None,
        name: str = "async wait",
        side_outputs: Sequence[OutputTag] = (),
        arguments: Mapping[str, object] | None = None,
        call_rows: int = DEFAULT_CALL_ROWS,
    ) -> DataStream:
        """What the function gives, in the order of the rows that it came from.

        Args:
            stream: its rows.
            function: to call.
            schema: the columns that it gives; None: those of the stream.
            timeout_ms: allowed for a row, with all its repetitions; None (or 0): as long as it takes.
            capacity: how many calls a subtask has under way at most; beyond that it reads no more.
            retry: which calls are made again; None: none is.
            name: of the operator.
            side_outputs: the tags it may send to.
            arguments: of the class, by name.
            call_rows: of a function on batches: how many rows a call is given at most.

        Raises:
            PipelineError: the function does not keep to the rules, or a number cannot be.
        """
        return _wait(
            stream,
            WaitMode.ORDERED,
            function,
            schema,
            timeout_ms,
            capacity,
            retry,
            name,
            side_outputs,
            arguments,
            call_rows,
        )

    @staticmethod
    def unordered_wait(
        stream: DataStream,
        function: Function,
        schema: SchemaLike | None = None,
        timeout_ms: int | None = None,
        capacity: int = DEFAULT_CAPACITY,
        *,
        retry: AsyncRetryStrategy | None = None,
        name: str = "async wait",
        side_outputs: Sequence[OutputTag] = (),
        arguments: Mapping[str, object] | None = None,
        call_rows: int = DEFAULT_CALL_ROWS,
    ) -> DataStream:
        """What the function gives, as it comes, but not beyond a watermark; the arguments are those of `ordered_wait`."""
        return _wait(
            stream,
            WaitMode.UNORDERED,
            function,
            schema,
            timeout_ms,
            capacity,
            retry,
            name,
            side_outputs,
            arguments,
            call_rows,
        )


def _wait(
    stream: DataStream,
    mode: WaitMode,
    function: Function,
    schema: SchemaLike | None,
    timeout_ms: int | None,
    capacity: int,
    retry: AsyncRetryStrategy | None,
    name: str,
    side_outputs: Sequence[OutputTag],
    arguments: Mapping[str, object] | None,
    call_rows: int,
) -> DataStream:
    for what, number in (("capacity", capacity), ("call_rows", call_rows)):
        if number < 1:
            raise PipelineError.of(f"{name}: {what} is {number}", "give a number of at least 1")
    if timeout_ms is not None and timeout_ms < 0:
        raise PipelineError.of(f"{name}: the timeout is {timeout_ms} ms", "give None for no time limit")
    recipe = class_recipe(function, AsyncFunction, arguments or {}, name)
    load_async_function(recipe)
    output = stream.schema if schema is None else as_schema(schema, name)
    factory = AsyncFunctionFactory(
        recipe,
        stream.schema,
        output,
        mode,
        timeout_ms or None,
        capacity,
        None if retry is None else replace(retry, result_predicate=None, exception_predicate=None),
        None if retry is None else _predicate(retry.result_predicate),
        None if retry is None else _predicate(retry.exception_predicate),
        call_rows,
        tuple(side_outputs),
        name,
    )
    return stream.process(factory, output, name=name, side_outputs=side_outputs)


def _predicate(given: Predicate | None) -> FunctionRecipe | None:
    if given is None:
        return None
    recipe = FunctionRecipe(given) if isinstance(given, str) else FunctionRecipe.of_code(given)
    recipe.load_function()
    return recipe
