"""Users' assigners: which windows rows belong to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.window_function import Window
from flowrun.api.windowing import WindowAssigner
from flowrun.core.record import record
from flowrun.core.types import BIGINT
from flowrun.errors import DataError, FlowrunError, PipelineError
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.current import as_column
from flowrun.operators.timed.assigners import Assignment, Times
from flowrun.operators.user_classes import Wanted, check_call, made_of

_WANTED = Wanted("a window assigner", "name a class that extends flowrun.api.windowing.WindowAssigner")
_CALLS = {
    "assign_windows": ("row", "timestamp", "context"),
    "assign_windows_batch": ("rows", "timestamps", "context"),
    "is_event_time": (),
    "default_trigger": (),
}


@record(slots=False)
class CustomAssigner:
    """A user's assigner as it is sent to tasks. Raises PipelineError, when it is first looked at, if it does not keep to the rules."""

    recipe: FunctionRecipe

    @cached_property
    def assigner(self) -> WindowAssigner:
        """One to look at."""
        return _instance(self.recipe)

    def loaded(self, now: Callable[[], int], watermark: Callable[[], int]) -> LoadedAssigner:
        """One of a subtask's own; `now` and `watermark` tell it the time."""
        return LoadedAssigner(self.recipe, now, watermark)


def _instance(recipe: FunctionRecipe) -> WindowAssigner:
    assigner = made_of(recipe.load(), recipe, WindowAssigner, _WANTED)
    rows, batches = hasattr(assigner, "assign_windows"), hasattr(assigner, "assign_windows_batch")
    if rows == batches:
        has = (
            "both assign_windows and assign_windows_batch"
            if rows
            else "neither assign_windows nor assign_windows_batch"
        )
        hint = "remove one of them" if rows else "add assign_windows(self, row, timestamp, context)"
        raise PipelineError.of(f"'{recipe.reference}' has {has}", hint)
    for name, parameters in _CALLS.items():
        if hasattr(assigner, name):
            check_call(assigner, name, parameters, recipe.reference)
    return assigner


class LoadedAssigner:
    """A user's assigner in a subtask."""

    def __init__(self, recipe: FunctionRecipe, now: Callable[[], int], watermark: Callable[[], int]) -> None:
        self._assigner: Any = _instance(recipe)
        self._place = f"window assigner '{recipe.reference}'"
        self._context = Clocks(now, watermark)
        self._batches = hasattr(self._assigner, "assign_windows_batch")

    def assign(self, rows: pa.RecordBatch, times: Times) -> Assignment:
        """The windows of rows, row by row, as the user's assigner gives them.

        Raises:
            DataError: what it gives are no windows.
        """
        found = self._of_batch(rows, times) if self._batches else self._of_rows(rows, times)
        wrong = np.flatnonzero(found.starts >= found.ends)
        if len(wrong):
            first = int(wrong[0])
            raise self._error(
                f"gave the window from {found.starts[first]} to {found.ends[first]} ms, which does not end after its start",
                rows,
                int(found.rows[first]),
            )
        if (found.rows[1:] < found.rows[:-1]).any():
            order = np.argsort(found.rows, kind="stable")
            found = Assignment(found.rows[order], found.starts[order], found.ends[order])
        return found

    def _of_rows(self, rows: pa.RecordBatch, times: Times) -> Assignment:
        positions, starts, ends = [], [], []
        for position, (row, time) in enumerate(zip(rows.to_pylist(), times.tolist(), strict=True)):
            try:
                for window in self._assigner.assign_windows(row, time, self._context):
                    start, end = window
                    positions.append(position)
                    starts.append(start.__index__())
                    ends.append(end.__index__())
            except Exception as error:
                if isinstance(error, FlowrunError) and not isinstance(error, DataError):
                    raise
                text = f"assign_windows raised {describe(error)}{where(error, __file__)}"
                raise self._error(f"{text}; windows are {Window.__name__}(start, end) in ms", rows, position) from error
        try:
            return Assignment(np.array(positions, np.int64), np.array(starts, np.int64), np.array(ends, np.int64))
        except OverflowError as error:
            raise DataError(f"{self._place}: a bound of a window does not fit 64 bits") from error

    def _of_batch(self, rows: pa.RecordBatch, times: Times) -> Assignment:
        try:
            given = self._assigner.assign_windows_batch(rows, pa.array(times), self._context)
            positions, starts, ends = given
            columns = [
                as_column(c, BIGINT, f"{self._place}: {name}", len(positions))
                for c, name in ((positions, "positions"), (starts, "starts"), (ends, "ends"))
            ]
        except Exception as error:
            if isinstance(error, FlowrunError):
                raise
            raise DataError(
                f"{self._place}: assign_windows_batch raised {describe(error)}{where(error, __file__)}",
                hint="give three arrays: position of the row, start and end of the window, for each pair",
            ) from error
        found = Assignment(*(c.to_numpy(zero_copy_only=False) for c in columns))
        outside = len(found.rows) and (found.rows.min() < 0 or found.rows.max() >= rows.num_rows)
        if outside or any(c.null_count for c in columns):
            raise DataError(f"{self._place}: positions must be from 0 to {rows.num_rows - 1}, and no bound may be NULL")
        return found

    def _error(self, text: str, rows: pa.RecordBatch, row: int) -> DataError:
        return DataError(f"{self._place}: {text}; the row is {describe_row(rows, row)}", row=row)


class Clocks:
    """See `windowing.ClockContext`."""

    def __init__(self, now: Callable[[], int], watermark: Callable[[], int]) -> None:
        self._now = now
        self._watermark = watermark

    @property
    def current_watermark(self) -> int:
        return self._watermark()

    @property
    def current_processing_time(self) -> int:
        return self._now()
