"""The event times of a batch and what they allow: a watermark strategy compiled for one subtask."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.functions import ArrayKernel
from flowrun.api.operator import OperatorContext
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch, RowKind, timestamps_from_column
from flowrun.core.record import record
from flowrun.core.semantics import OnDisorder
from flowrun.errors import DataError
from flowrun.operators.data_errors import describe_row, evaluate, first_null
from flowrun.operators.watermark_rule import Int64s, lagging, late_rows
from flowrun.operators.watermark_strategy import WatermarkGeneration, WatermarkStrategy

_log = logging.getLogger(__name__)


@record
class BatchTimes:
    """Event times of a batch's rows (ms, no NULL; None without event time), and the marks of `watermark_rule.progress`."""

    timestamps: pa.Int64Array | None
    marks: Int64s | None


NUM_RECORDS_OUT_OF_ORDER = "numRecordsOutOfOrder"
"""Counter: rows that break the order that a monotonous watermark promises."""


class EventTimes:
    """Reads event times and watermark marks from batches, as one strategy says.

    Counts rows that break a monotonous order in `numRecordsOutOfOrder`.

    Args:
        strategy: None keeps what the rows have and makes no watermarks.
        place: begins every message, e.g. `source 'orders'`.
        upserts: deletions may have no event time: theirs is that of the row before them.
    """

    def __init__(
        self, strategy: WatermarkStrategy | None, context: OperatorContext, place: str, *, upserts: bool = False
    ) -> None:
        self._upserts = upserts
        self._strategy = strategy if strategy is not None else WatermarkStrategy.none()
        self._processing_time = context.processing_time
        self._place = place
        self._time: ArrayKernel | None = None if self._strategy.time is None else self._strategy.time.compile()
        watermark = self._strategy.watermark
        self._marks: ArrayKernel | None = None if watermark is None else watermark.compile()
        self._out_of_order = context.metrics.counter(NUM_RECORDS_OUT_OF_ORDER)
        self._warned = False
        self.lag = self._strategy.lag_ms

    def read(self, batch: RecordBatch, watermark: int) -> BatchTimes:
        """The times of a batch with at least one row; `watermark` is what its split allowed before (ingestion time: the subtask).

        Raises:
            DataError: an event time is NULL or missing, or out of a strictly kept order; names the row.
        """
        kind = self._strategy.kind
        if kind is WatermarkGeneration.INGESTION:
            # Processing time may begin anew before what was reached; ingestion time may not.
            now = max(self._processing_time.now_ms(), lagging(watermark, -self.lag))
            return self._marked_by_time(np.full(batch.num_rows, now, np.int64))
        timestamps = self._timestamps(batch, watermark)
        if not self._strategy.generates:
            return BatchTimes(timestamps, None)
        if timestamps is None:
            raise DataError(
                f"{self._place}: the rows carry no event time",
                hint="declare which column holds it (watermark.column)",
            )
        values = timestamps.to_numpy()
        if self._marks is not None:
            return BatchTimes(timestamps, self._punctuations(batch.columns))
        if kind is WatermarkGeneration.MONOTONOUS and self._strategy.on_disorder is not OnDisorder.IGNORE:
            self._check_order(batch.columns, values, watermark)
        return BatchTimes(timestamps, values)

    def check(self, batch: RecordBatch) -> None:
        """Raise DataError if a row has no event time, or one of the expressions fails; about order nothing is asked."""
        if self._strategy.kind is not WatermarkGeneration.INGESTION:
            self._timestamps(batch, MIN_TIMESTAMP)
            if self._marks is not None:
                self._punctuations(batch.columns)

    @staticmethod
    def _marked_by_time(values: Int64s) -> BatchTimes:
        return BatchTimes(pa.array(values), values)

    def _timestamps(self, batch: RecordBatch, watermark: int) -> pa.Int64Array | None:
        if self._time is None:
            return batch.timestamps
        column = evaluate(self._time, batch.columns, f"{self._place}: event time '{self._strategy.column}'")
        timestamps = _as_milliseconds(column)
        if timestamps.null_count and self._upserts and batch.row_kinds is not None:
            timestamps = self._with_those_before(timestamps, batch.row_kinds, watermark)
        if timestamps.null_count:
            row = first_null(timestamps)
            raise DataError(
                f"{self._place}: event time '{self._strategy.column}' must not be NULL, but it is in row {row} "
                f"{describe_row(batch.columns, row)}",
                row=row,
                hint="leave such rows out (on_error: skip) or put them aside (on_error: dead-letter), or compute a column that is "
                f"never NULL (COALESCE({self._strategy.column}, …)) and use it for the watermark",
            )
        return timestamps

    def _with_those_before(self, timestamps: pa.Int64Array, kinds: pa.Int8Array, watermark: int) -> pa.Int64Array:
        """Deletions without an event time have that of the row before them; the first ones of a split one that moves nothing on."""
        filled = pc.fill_null_forward(timestamps)
        filled = pc.fill_null(filled, MIN_TIMESTAMP if watermark == MIN_TIMESTAMP else watermark + self.lag)
        return pc.if_else(pc.equal(kinds, int(RowKind.DELETE)), filled, timestamps)

    def _punctuations(self, columns: pa.RecordBatch) -> Int64s:
        assert self._marks is not None
        marks = _as_milliseconds(evaluate(self._marks, columns, f"{self._place}: watermark expression"))
        if marks.null_count:
            marks = pc.fill_null(marks, MIN_TIMESTAMP)
        # MAX means the end of input, which no row can announce.
        allowed: Int64s = np.minimum(marks.to_numpy(), MAX_TIMESTAMP - 1)
        return allowed

    def _check_order(self, columns: pa.RecordBatch, values: Int64s, watermark: int) -> None:
        late = late_rows(values, self.lag, watermark)
        if len(late) == 0:
            return
        row = int(late[0])
        greatest = max(int(values[:row].max(initial=MIN_TIMESTAMP)), watermark + self.lag)
        problem = (
            f"{self._place}: event time '{self._strategy.column}' goes back in row {row} {describe_row(columns, row)}: "
            f"{_as_text(int(values[row]))} after {_as_text(greatest)}"
        )
        remedy = "use a bounded watermark whose delay covers the disorder"
        if self._strategy.on_disorder is OnDisorder.FAIL:
            raise DataError(problem, row=row, hint=f"{remedy}, or allow it (on_disorder: warn or ignore)")
        self._out_of_order.inc(len(late))
        if not self._warned:
            self._warned = True
            _log.warning("%s; %s. Further rows out of order are only counted.", problem, remedy)


def _as_milliseconds(column: pa.Array) -> pa.Int64Array:
    return column if column.type == pa.int64() else timestamps_from_column(column)


def _as_text(timestamp: int) -> str:
    """An event time for messages: ISO with ms, or the plain number outside of the years 1 to 9999."""
    if abs(timestamp) < 60_000_000_000_000:
        return f"{np.datetime64(timestamp, 'ms')} ({timestamp} ms)"
    return f"{timestamp} ms"
