"""Every row several times: once for each of several projections, or for each aligned window that it belongs to.

The first is what GROUPING SETS, CUBE and ROLLUP aggregate, the second TUMBLE, HOP and CUMULATE over a table. Sessions need the rows
to come: they are collected by a session window and unnested again (see `flowrun.lowering.window_functions`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.functions import ColumnsKernel
from flowrun.core.elements import RecordBatch, concat_batches
from flowrun.core.local_time import UTC_ZONE, WallClock
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import evaluate, required_times
from flowrun.operators.rows.children import pieces, with_columns_of
from flowrun.operators.rows.factories import ExpandFactory, WindowFunctionFactory
from flowrun.operators.timed.assigners import Times, assign_aligned

_TOGETHER = 64 * 1024


class ExpandOperator(AbstractOperator):
    """Sends every row once for each projection."""

    def __init__(self, factory: ExpandFactory) -> None:
        self._factory = factory
        self._kernels: tuple[ColumnsKernel, ...] = ()

    def open(self) -> None:
        """Compile the expressions."""
        self._kernels = tuple(p.compile() for p in self._factory.projections)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send each projection of the rows; few rows in one batch, as what follows works by batches."""
        place = f"projection of '{self._factory.name}'"
        made = [batch.with_columns(evaluate(k, batch.columns, place)) for k in self._kernels]
        if batch.num_rows * len(made) <= _TOGETHER:
            made = [concat_batches(made)]
        for expanded in made:
            self.output.emit(expanded)


_MILLISECONDS = pa.timestamp("ms")


class WindowFunctionOperator(AbstractOperator):
    """Puts windows behind the columns of rows."""

    def __init__(self, factory: WindowFunctionFactory) -> None:
        self._factory = factory
        self._time_type = factory.output_schema.types[-1].arrow
        self._clock = None if factory.time_zone == UTC_ZONE else WallClock(factory.time_zone)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows with their windows, a row's latest window first, in slices if they become many."""
        assigner = self._factory.assigner
        windows = max(1, assigner.slices_per_window)
        for part, _ in pieces(batch, np.full(batch.num_rows, windows)):
            pairs = assign_aligned(assigner, self._times(part))
            if not len(pairs.rows):
                continue
            last = pairs.ends - 1 if self._clock is None else self._clock.last_instants(pairs.ends - 1)
            bounds = [pa.array(b).view(_MILLISECONDS) for b in (pairs.starts, pairs.ends, last)]
            bounds[2] = as_time(bounds[2], self._time_type)
            rows = pa.array(pairs.rows)
            self.output.emit(with_columns_of(part, rows, bounds, self._factory.output_schema))

    def _times(self, batch: RecordBatch) -> Times:
        if self._factory.time is None:
            values: Times = np.full(batch.num_rows, self.context.processing_time.now_ms(), np.int64)
        else:
            values = required_times(batch.columns, self._factory.time, self._factory.name).to_numpy()
        return values if self._clock is None else self._clock.times(values)


def as_time(milliseconds: pa.Array, type: pa.DataType) -> pa.Array:
    """A timestamp[ms] column as any other timestamp type; the instant stays.

    >>> str(as_time(pa.array([5], pa.timestamp("ms")), pa.timestamp("us", "UTC")).type)
    'timestamp[us, tz=UTC]'
    """
    return milliseconds.cast(pa.timestamp(type.unit)).view(type)
