"""Users' evictors: which rows windows drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api import windowing
from flowrun.api.window_function import Window
from flowrun.api.windowing import TimestampedValue
from flowrun.core.arrays import Bools
from flowrun.core.record import record
from flowrun.core.types import BOOLEAN
from flowrun.errors import DataError, FlowrunError, PipelineError
from flowrun.operators.function_loading import describe, where
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.current import as_column
from flowrun.operators.user_classes import Wanted, check_call, made_of
from flowrun.operators.windows.general.user_assigners import Clocks

_WANTED = Wanted("an evictor", "name a class that extends flowrun.api.windowing.Evictor")
_ELEMENTS = ("elements", "window", "context")
_BATCH = ("rows", "timestamps", "window", "context")
_CALLS = {
    "evict_before": _ELEMENTS,
    "evict_after": _ELEMENTS,
    "evict_before_batch": _BATCH,
    "evict_after_batch": _BATCH,
}


@record
class CustomEvictor:
    """A user's evictor as it is sent to tasks."""

    recipe: FunctionRecipe

    def check(self) -> None:
        """Raise PipelineError if it cannot be made, or does not keep to the rules."""
        _instance(self.recipe)

    def loaded(self, now: Callable[[], int], watermark: Callable[[], int]) -> LoadedEvictor:
        """One of a subtask's own."""
        return LoadedEvictor(self.recipe, now, watermark)


def _instance(recipe: FunctionRecipe) -> windowing.Evictor:
    evictor = made_of(recipe.load(), recipe, windowing.Evictor, _WANTED)
    methods = [name for name in _CALLS if hasattr(evictor, name)]
    if not methods:
        raise PipelineError.of(
            f"'{recipe.reference}' has none of {', '.join(_CALLS)}", "add evict_before(self, elements, window, context)"
        )
    for name in methods:
        check_call(evictor, name, _CALLS[name], recipe.reference)
        if f"{name}_batch" in methods:
            raise PipelineError.of(f"'{recipe.reference}' has both {name} and {name}_batch", "remove one of them")
    return evictor


class LoadedEvictor:
    """A user's evictor in a subtask."""

    def __init__(self, recipe: FunctionRecipe, now: Callable[[], int], watermark: Callable[[], int]) -> None:
        evictor = _instance(recipe)
        self._place = f"evictor '{recipe.reference}'"
        self._methods = {name: getattr(evictor, name) for name in _CALLS if hasattr(evictor, name)}
        self._context = Clocks(now, watermark)

    def evicts(self, *, after: bool) -> bool:
        """Whether it has something to say then."""
        name = "evict_after" if after else "evict_before"
        return name in self._methods or f"{name}_batch" in self._methods

    def kept(self, rows: pa.RecordBatch, times: pa.Array, window: Window, *, after: bool) -> Bools:
        """Which rows stay.

        Raises:
            DataError: the user's evictor raises, or gives something else.
        """
        name = "evict_after" if after else "evict_before"
        batch = self._methods.get(f"{name}_batch")
        try:
            if batch is not None:
                return self._mask(batch(rows, times, window, self._context), rows.num_rows, name)
            values = zip(rows.to_pylist(), times.to_pylist(), strict=True)
            elements = [TimestampedValue(row, time, i) for i, (row, time) in enumerate(values)]
            keep = np.zeros(rows.num_rows, np.bool_)
            for element in self._methods[name](elements, window, self._context):
                if not isinstance(element, TimestampedValue):
                    raise DataError(
                        f"{self._place}: {name} gave {element!r}", hint="give those of the elements that stay"
                    )
                keep[element.position] = True
        except Exception as error:
            if isinstance(error, FlowrunError):
                raise
            raise DataError(
                f"{self._place}: {name} raised {describe(error)}{where(error, __file__)}; the window is {window.start} to "
                f"{window.end} ms, with {rows.num_rows} rows"
            ) from error
        return keep

    def _mask(self, given: Any, rows: int, name: str) -> Bools:
        column = as_column(given, BOOLEAN, f"{self._place}: {name}_batch", rows)
        if column.null_count:
            raise DataError(f"{self._place}: {name}_batch gave NULL", hint="give true or false for each row")
        mask: Bools = column.to_numpy(zero_copy_only=False)
        return mask
