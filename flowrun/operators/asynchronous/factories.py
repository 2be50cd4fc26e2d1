"""The recipe of asynchronous operators."""

from __future__ import annotations

from enum import Enum

from flowrun.api.async_function import AsyncRetryStrategy
from flowrun.api.operator import OperatorSpec, OutputTag
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, RowErrors
from flowrun.core.schema import Schema
from flowrun.operators.function_recipe import FunctionRecipe

DEFAULT_CAPACITY = 100
DEFAULT_CALL_ROWS = 1_000


class WaitMode(Enum):
    """In which order results leave; the value is that of `mode` in pipelines."""

    ORDERED = "ordered"
    """In the order of the rows that they came from."""
    UNORDERED = "unordered"
    """As they come, but not beyond a watermark."""


@record
class AsyncFunctionFactory(OperatorSpec):
    """Operators that call a user's asynchronous function; see `flowrun.api.async_function`.

    Attributes:
        function: how each subtask gets its own.
        input_schema: columns of the rows.
        output_schema: columns of what the function gives.
        mode: in which order results leave.
        timeout_ms: allowed for a row, repetitions included; None: as long as it takes.
        capacity: how many calls a subtask has under way at most; in order, finished ones that wait for others count as well.
        retry: how often and when calls are made again; its predicates are the two recipes. None: none is.
        repeats_result: says of what a call gave whether to make it again; None: never.
        repeats_exception: says it of what a call raised; None: always.
        call_rows: of a function on batches: how many rows a call is given at most.
        side_outputs: where else the function may send rows.
        name: of the step.
        errors: what becomes of rows of which the function raises, gives what it must not, or takes too long.
    """

    function: FunctionRecipe
    input_schema: Schema
    output_schema: Schema
    mode: WaitMode = WaitMode.ORDERED
    timeout_ms: int | None = None
    capacity: int = DEFAULT_CAPACITY
    retry: AsyncRetryStrategy | None = None
    repeats_result: FunctionRecipe | None = None
    repeats_exception: FunctionRecipe | None = None
    call_rows: int = DEFAULT_CALL_ROWS
    side_outputs: tuple[OutputTag, ...] = ()
    name: str = "async"
    errors: RowErrors = FAIL
