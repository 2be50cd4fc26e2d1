"""Event time of programs: watermark generators of users, and where timestamps come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from flowrun.api.functions import ArrayKernel, ValueFunction
from flowrun.core.elements import timestamps_from_column
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.datastream.functions import ColumnValue, RowCallable, RowTime, column_positions, recipe_of
from flowrun.errors import DataError, FlowrunError, PipelineError
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.watermark_strategy import WatermarkStrategy


class WatermarkGenerator:
    """Which watermarks follow from the rows that a subtask sees; extend it and override one of the two methods, or both.

    After each row `on_event` is asked, then `on_periodic_emit`: the moment of a watermark does not depend on the clock, so that a
    program gives the same result each time. A watermark that does not exceed the last one says nothing.
    """

    def on_event(self, row: dict[str, Any], timestamp: int) -> int | None:
        """A row with its event time, ms; gives a watermark (ms), or None."""

    def on_periodic_emit(self) -> int | None:
        """The watermark that the rows so far allow (ms), or None."""


@record
class GeneratedWatermarks:
    """The watermark that a user's generator gives after each row."""

    generator: FunctionRecipe
    time: ValueFunction
    place: str

    def compile(self) -> ArrayKernel:
        """Makes a generator for one subtask."""
        generator: WatermarkGenerator = self.generator.instance()
        times, place, reference = self.time.compile(), self.place, self.generator.reference

        def watermarks(batch: pa.RecordBatch) -> pa.Array:
            column = times(batch)
            milliseconds = column if column.type == pa.int64() else timestamps_from_column(column)
            given: list[int | None] = []
            try:
                for row, timestamp in zip(batch.to_pylist(), milliseconds.to_pylist(), strict=True):
                    allowed = [
                        w for w in (generator.on_event(row, timestamp), generator.on_periodic_emit()) if w is not None
                    ]
                    given.append(max(allowed, default=None))
                return pa.array(given, pa.int64())
            except FlowrunError:
                raise
            except Exception as error:
                position = min(len(given), batch.num_rows - 1)
                raise DataError(
                    f"{place}: the watermark generator '{reference}' raised {describe(error)}{where(error, __file__)}; the row is "
                    f"{describe_row(batch, position)}",
                    row=position,
                    hint="let on_event and on_periodic_emit give an int, ms since 1970, or None",
                ) from error

        return watermarks


def timed_strategy(
    strategy: WatermarkStrategy | WatermarkGenerator | type[WatermarkGenerator] | Callable[[], WatermarkGenerator],
    timestamps: RowCallable | str | None,
    schema: Schema,
    place: str,
) -> WatermarkStrategy:
    """The strategy with the event time that a program names.

    Args:
        strategy: the strategy, or a generator.
        timestamps: a column, or a function of a row; None: as the strategy says.
        schema: columns of the rows.
        place: begins messages.

    Raises:
        PipelineError: there is no such column, a function cannot be sent to tasks, or a generator has no event time to go by.
    """
    time: ValueFunction | None = None
    if isinstance(timestamps, str):
        column_positions(schema, [timestamps], place)
        time = ColumnValue(timestamps)
    elif timestamps is not None:
        time = RowTime(recipe_of(timestamps, place), place)
    shown = timestamps if isinstance(timestamps, str) else "timestamp"
    if isinstance(strategy, WatermarkStrategy):
        return strategy if time is None else replace(strategy, time=time, column=shown)
    if time is None:
        raise PipelineError.of(
            f"{place}: a watermark generator needs the event time of the rows",
            "say where it comes from: timestamps='ts', or a function of a row",
        )
    return WatermarkStrategy.punctuated(
        GeneratedWatermarks(recipe_of(strategy, place, ("on_event",)), time, place), time, column=shown
    )
