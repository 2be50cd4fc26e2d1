"""What operators do with rows before anything else: NULL keys, event time, late rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.api.metrics import Counter
from flowrun.api.operator import OperatorContext, Output, OutputTag
from flowrun.core.elements import RecordBatch, timestamps_from_column
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.errors import DataError
from flowrun.operators.aggregation.keys import apply_null_keys
from flowrun.operators.base import AbstractOperator
from flowrun.operators.timed.assigners import Times
from flowrun.operators.timed.firing_clock import FiringClock

LATE_RECORDS_DROPPED = "numLateRecordsDropped"
LATE_RECORDS_SIDE_OUTPUT = "numLateRecordsSideOutput"
"""Late rows that a late output got: they are not lost, so they do not count as dropped."""
NULL_KEY_RECORDS_DROPPED = "numNullKeyRecordsDropped"
MAX_OUTPUT_ROWS = 64 * 1024

_GREATEST_TIME = 1 << 61
_TIMESTAMP = pa.timestamp("ms")


class RowIntake:
    """Filters and times the rows of one operator's input."""

    def __init__(
        self,
        context: OperatorContext,
        schema: Schema,
        keys: tuple[int, ...],
        null_keys: NullKeys,
        time_column: int | None,
    ) -> None:
        self._name = context.name
        self._schema = schema
        self._keys = keys
        self._null_keys = null_keys
        self._time_column = time_column
        self._wall_clock = context.wall_clock
        self._null_key_records = context.metrics.counter(NULL_KEY_RECORDS_DROPPED)

    def grouped_rows(self, batch: RecordBatch) -> RecordBatch:
        """The rows that the NULL key policy lets through.

        Raises:
            DataError: a key is NULL and must not be.
        """
        kept = apply_null_keys(batch, self._keys, self._null_keys, self._schema)
        if kept.num_rows < batch.num_rows:
            self._null_key_records.inc(batch.num_rows - kept.num_rows)
        return kept

    def event_times(self, batch: RecordBatch) -> Times:
        """Event time of each row, ms; local time where the operator goes by that.

        Raises:
            DataError: an event time is so far from 1970 that windows around it cannot be computed; names the row.
        """
        if self._time_column is not None:
            timestamps = timestamps_from_column(batch.columns.column(self._time_column))
        elif batch.timestamps is not None:
            timestamps = batch.timestamps
        else:
            raise DataError(
                f"operator {self._name}: rows of an event-time window came without event time",
                hint="give the rows event time first (assign_timestamps_and_watermarks), or let the window go by processing time",
            )
        times: Times = timestamps.to_numpy()
        if len(times) and (times.max() > _GREATEST_TIME or times.min() < -_GREATEST_TIME):
            row = int(np.flatnonzero((times > _GREATEST_TIME) | (times < -_GREATEST_TIME))[0])
            raise DataError(
                f"operator {self._name}: the event time of row {row} of the batch is {times[row]} ms since 1970; expected at"
                f" most {_GREATEST_TIME} ms before or after",
                row=row,
                hint="filter such rows before the window",
            )
        return times if self._wall_clock is None else self._wall_clock.times(times)


class RowArrivals:
    """The rows that count of an operator's batches, each with its time on the operator's clock.

    Args:
        intake: filters rows, and knows their event times.
        clock: of the operator; in processing time it fires what is due before rows are taken.
    """

    def __init__(self, intake: RowIntake, clock: FiringClock) -> None:
        self._intake = intake
        self._clock = clock

    def arrive(self, batch: RecordBatch) -> tuple[RecordBatch, Times]:
        """(the rows that the NULL key policy lets through, time of each, ms).

        Raises:
            DataError: a key is NULL and must not be, or an event time is too far from 1970.
        """
        rows = self._intake.grouped_rows(batch)
        if rows.num_rows == 0:
            return rows, np.zeros(0, np.int64)
        if self._clock.is_processing:
            return rows, np.full(rows.num_rows, self._clock.time_of_rows(), np.int64)
        return rows, self._intake.event_times(rows)


def process_at_multiples(
    operator: AbstractOperator, batch: RecordBatch, step_ms: int, process_rows: Callable[[RecordBatch], None]
) -> None:
    """Have an operator that waits for multiples of event time process rows and watermarks of a batch, in order: it need not see all.

    Args:
        operator: gets the watermarks.
        batch: may have watermarks between its rows.
        step_ms: of event time; 1: every watermark matters.
        process_rows: gets the rows between them.
    """
    watermarks = batch.watermarks
    if watermarks is not None and step_ms > 1 and not operator.context.exact_behind and batch.timestamps is not None:
        watermarks = watermarks.passing_multiples(step_ms, operator.current_watermark, batch.timestamps_numpy())
    for piece in batch.with_watermarks(watermarks).pieces():
        if isinstance(piece, RecordBatch):
            process_rows(piece)
        else:
            operator.process_watermark(piece)


class LateRows:
    """Sends late rows to the late output; drops them if there is none. Counts both, as Flink does, apart."""

    def __init__(self, context: OperatorContext, output: Output, tag: OutputTag | None) -> None:
        counted = LATE_RECORDS_DROPPED if tag is None else LATE_RECORDS_SIDE_OUTPUT
        self._counter: Counter = context.metrics.counter(counted)
        self._output = output
        self._tag = tag

    def drop(self, rows: RecordBatch, count: int | None = None) -> None:
        """These rows are too late; `count` if a row stands for several."""
        self._counter.inc(rows.num_rows if count is None else count)
        if self._tag is not None:
            self._output.emit_side(self._tag, rows)


def split_rows(batch: RecordBatch, chosen: npt.NDArray[np.bool_]) -> tuple[RecordBatch, RecordBatch]:
    """(the chosen rows, the others), both in order."""
    return batch.filter(pa.array(chosen)), batch.filter(pa.array(~chosen))
