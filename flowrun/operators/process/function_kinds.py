"""The kinds of process functions: what a class extends, which inputs it has, and how its methods are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa

from flowrun.api.broadcast_function import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from flowrun.api.co_process_function import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from flowrun.api.process_function import KeyedProcessFunction, ProcessFunction, RichFunction
from flowrun.core.record import record
from flowrun.errors import DataError

Call: TypeAlias = Callable[[Any, Any], Any]
"""A method for rows or batches, and the context; what the function sends."""


class FunctionInputs(Enum):
    """What a function reads; the value says so in messages."""

    ONE = "one stream"
    TWO = "two connected streams"
    BROADCAST = "a stream and a broadcast stream"


@record
class FunctionKind:
    """One kind.

    Attributes:
        base: the class that functions of this kind extend.
        inputs: what they read.
        keyed: whether they need keys; None: they may have some.
        rows: names of the methods for rows, one an input.
        batches: names of those for batches.
        has_context: whether the methods get a context.
        row_for_row: whether they give one row for each.
    """

    base: type[RichFunction]
    inputs: FunctionInputs
    keyed: bool | None
    rows: tuple[str, ...]
    batches: tuple[str, ...]
    has_context: bool = True
    row_for_row: bool = False

    @property
    def has_timers(self) -> bool:
        """Whether functions of this kind may have `on_timer` or `on_timers`."""
        return self.keyed is True

    def calls(self, function: RichFunction, *, batches: bool) -> tuple[Call, ...]:
        """How the function is called for rows, or batches, of each input."""
        methods = [getattr(function, name) for name in (self.batches if batches else self.rows)]
        if self.has_context:
            return tuple(methods)
        adapted = _without_context if not self.row_for_row else _one_batch if batches else _one_row
        return tuple(adapted(method) for method in methods)


_ROWS, _BATCHES = ("process_element",), ("process_batch",)
_BROADCAST_ROWS = ("process_element", "process_broadcast_element")
_BROADCAST_BATCHES = ("process_batch", "process_broadcast_batch")
_TWO_ROWS, _TWO_BATCHES = ("process_element1", "process_element2"), ("process_batch1", "process_batch2")

KINDS: tuple[FunctionKind, ...] = (
    FunctionKind(KeyedProcessFunction, FunctionInputs.ONE, True, _ROWS, _BATCHES),
    FunctionKind(ProcessFunction, FunctionInputs.ONE, False, _ROWS, _BATCHES),
    FunctionKind(KeyedBroadcastProcessFunction, FunctionInputs.BROADCAST, True, _BROADCAST_ROWS, _BROADCAST_BATCHES),
    FunctionKind(BroadcastProcessFunction, FunctionInputs.BROADCAST, False, _BROADCAST_ROWS, _BROADCAST_BATCHES),
    FunctionKind(KeyedCoProcessFunction, FunctionInputs.TWO, True, _TWO_ROWS, _TWO_BATCHES),
    FunctionKind(CoProcessFunction, FunctionInputs.TWO, False, _TWO_ROWS, _TWO_BATCHES),
    FunctionKind(
        CoMapFunction,
        FunctionInputs.TWO,
        None,
        ("map1", "map2"),
        ("map_batch1", "map_batch2"),
        has_context=False,
        row_for_row=True,
    ),
    FunctionKind(
        CoFlatMapFunction,
        FunctionInputs.TWO,
        None,
        ("flat_map1", "flat_map2"),
        ("flat_map_batch1", "flat_map_batch2"),
        has_context=False,
    ),
)
"""All kinds; of two that fit a class the first one counts."""


def kind_of(function: type[RichFunction]) -> FunctionKind | None:
    """The kind of a class; None: it extends none of the bases."""
    return next((kind for kind in KINDS if issubclass(function, kind.base)), None)


def base_names(inputs: FunctionInputs) -> str:
    """What functions with these inputs may extend, for messages.

    >>> base_names(FunctionInputs.ONE)
    'KeyedProcessFunction or ProcessFunction'
    """
    *names, last = (kind.base.__name__ for kind in KINDS if kind.inputs is inputs)
    return f"{', '.join(names)} or {last}"


def _without_context(method: Callable[[Any], Any]) -> Call:
    return lambda given, _context: method(given)


def _one_row(method: Callable[[Any], Any]) -> Call:
    def call(row: Any, _context: Any) -> Any:
        given = method(row)
        if not isinstance(given, Mapping):
            raise DataError(
                f"it must return a row (a dict), got {'nothing' if given is None else type(given).__name__}",
                hint="return one dict for each row; a CoFlatMapFunction may return any number",
            )
        return given

    return call


def _one_batch(method: Callable[[Any], Any]) -> Call:
    def call(batch: pa.RecordBatch, _context: Any) -> Any:
        given = method(batch)
        if not isinstance(given, pa.RecordBatch) or given.num_rows != batch.num_rows:
            rows = f"{given.num_rows} rows" if isinstance(given, pa.RecordBatch) else f"a {type(given).__name__}"
            raise DataError(
                f"it got {batch.num_rows} rows and must return a pa.RecordBatch with as many, got {rows}",
                hint="a CoFlatMapFunction may return any number, with the positions of their parents",
            )
        return given

    return call
