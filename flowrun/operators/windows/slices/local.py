"""Pre-aggregation by key and slice before the shuffle of a window aggregation.

Rows are folded into partial results per slice. A slice is sent on before the watermark that passes its end, so the window operator
finds every row before the same watermarks as without pre-aggregation and alone decides which rows are late. When keys hardly
repeat, rows are sent on at once, each as a partial result of its own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.core.elements import RecordBatch
from flowrun.core.semantics import TimeDomain
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.reduction import ReductionSampler
from flowrun.operators.base import AbstractOperator
from flowrun.operators.next_firing import show_next_firing
from flowrun.operators.timed.assigners import Times, slices_of
from flowrun.operators.timed.event_rows import RowIntake
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.windows.slices.factories import LocalSliceAggregateFactory
from flowrun.operators.windows.slices.rows import SliceNumbers
from flowrun.operators.windows.slices.store import SliceStore

_TIMESTAMP = pa.timestamp("ms")


class LocalSliceAggregateOperator(AbstractOperator):
    """Sends partial results per key and slice; see the module. Has no state at a barrier: it sends everything before."""

    def __init__(self, factory: LocalSliceAggregateFactory) -> None:
        self._factory = factory
        self._assigner = factory.assigner
        self._engine = AggregationEngine(factory.layout)
        self._schema = factory.output_schema.arrow
        self._store = SliceStore(self._engine)
        self._sampler = ReductionSampler()
        self._first_end: int | None = None
        self._rows = 0
        self._bytes = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, factory.time_column)
        show_next_firing(context, self._next_firing, TimeDomain.EVENT)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Fold rows into their slices, or pass them on as partial results."""
        batch = self._intake.grouped_rows(batch)
        if batch.num_rows == 0:
            return
        slice_ends = slices_of(self._assigner, self._intake.event_times(batch))
        if not self._sampler.worthwhile(batch.num_rows):
            part = self._engine.lift(batch.columns, 0, reduce=False)
            self._emit(part, np.broadcast_to(slice_ends, batch.num_rows))
            return
        numbers = SliceNumbers.of(slice_ends, self._assigner.slice_ms)
        part = self._engine.lift(batch.columns, 0, leading=numbers.leading)
        self._sampler.observe(batch.num_rows, part.main.num_rows)
        for slice_end, own in numbers.split(part):
            self._store.append(slice_end, own)
            self._first_end = slice_end if self._first_end is None else min(self._first_end, slice_end)
        self._rows += part.num_rows
        self._bytes += part.nbytes
        if self._rows > self._factory.max_rows or self._bytes > self._factory.max_bytes:
            self._shrink()

    def on_watermark(self, timestamp: int) -> None:
        """Send the slices that the watermark passes, before it."""
        if self._first_end is not None and self._first_end - 1 <= timestamp:
            self._flush(timestamp)

    def _next_firing(self) -> int | None:
        end = self._first_end
        return None if end is None else end - 1

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Send everything: nothing is left to snapshot."""
        self._flush(None)

    def finish(self) -> None:
        """Send everything."""
        self._flush(None)

    def _shrink(self) -> None:
        """Merge what is buffered; send it if that does not help."""
        for found in self._store.values():
            found.compact(self._engine)
        self._count()
        if self._rows > self._factory.max_rows // 2 or self._bytes > self._factory.max_bytes // 2:
            self._flush(None)

    def _flush(self, timestamp: int | None) -> None:
        """Send the slices up to event time `timestamp`, or all."""
        for slice_end in self._store.ends():
            if timestamp is not None and slice_end - 1 > timestamp:
                break
            found = self._store.remove(slice_end)
            found.compact(self._engine)
            if found.merged is not None:
                self._emit(found.merged, np.full(found.merged.main.num_rows, slice_end, np.int64))
        self._first_end = min(self._store.ends(), default=None)
        self._count()

    def _count(self) -> None:
        self._rows = sum(found.num_rows for found in self._store.values())
        self._bytes = sum(found.nbytes for found in self._store.values())

    def _emit(self, part: Bundle, slice_ends: Times) -> None:
        keys = self._engine.decode_keys(part.keys)
        ends = pa.array(slice_ends)
        partials = part.main.columns[part.groups :]
        columns = pa.RecordBatch.from_arrays([*keys, ends.view(_TIMESTAMP), *partials], schema=self._schema)
        self.output.emit(RecordBatch(columns, pa.array(slice_ends - 1)))


def local_slice_aggregate_operator(factory: LocalSliceAggregateFactory) -> StreamOperator:
    """A `LocalSliceAggregateOperator` that goes by the clocks of the windows' zone."""
    return in_zone(LocalSliceAggregateOperator(factory), factory.time_zone)
