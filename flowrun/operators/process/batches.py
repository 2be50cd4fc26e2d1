"""Process functions on batches: `process_batch` and `on_timers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.keyed_state import Positions, Values
from flowrun.api.operator import OperatorContext, Output
from flowrun.core.arrays import Integers
from flowrun.core.elements import PassingWatermarks, RecordBatch
from flowrun.core.schema import Field
from flowrun.core.semantics import TimeDomain
from flowrun.errors import DataError
from flowrun.operators.process.batch_output import BatchOutputs
from flowrun.operators.process.column_state import ColumnBackend
from flowrun.operators.process.current import stable_order
from flowrun.operators.process.operator import ProcessOperator, ProcessSettings


class BatchProcessOperator(ProcessOperator):
    """Calls the user's function once a batch, and for many timers at once."""

    def __init__(self, settings: ProcessSettings) -> None:
        super().__init__(settings)
        self._columns: ColumnBackend | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Make the outputs and the context."""
        super().setup(context, output)
        settings = self._settings
        self._outputs = BatchOutputs(
            self.output, settings.output_schema, settings.side_schemas, self._place, settings.added
        )
        self._context = _BatchContext(self, self._outputs)

    def _keyed_backend(self, fields: tuple[Field, ...]) -> ColumnBackend:
        self._columns = ColumnBackend(self.context, fields, self._on_timers)
        names = pa.schema([pa.field(f.name, f.type.arrow) for f in fields])
        self._context = _KeyedBatchContext(self, self._outputs, self._columns, names, self._settings.loaded.timers)
        return self._columns

    def _process(self, batch: RecordBatch, input_index: int) -> None:
        loaded = self._settings.loaded
        given = self._settings.inputs[input_index]
        context = self._context
        if self._columns is not None and given.keys is not None:
            self._columns.locate([batch.columns.column(k) for k in given.keys], batch.num_rows)
        elif self._columns is not None:
            self._columns.current.leave()
            context = _KeyedBroadcastBatchContext(self, self._outputs, self._columns, self._place)
        self._outputs.begin(batch.num_rows, batch.timestamps, batch.row_kinds)
        if self._settings.added is not None:
            self._settings.added.begin([batch.columns.column(i) for i in self._settings.leading])
        context.begin(batch.timestamps)
        self._access.writable = given.broadcast
        try:
            returned = loaded.calls[input_index](batch.columns, context)
            if returned is not None:
                self._outputs.returned(returned)
        except Exception as error:
            self._fail(error, loaded.methods[input_index], None, batch.columns)
        finally:
            self._access.writable = False
            if self._columns is not None:
                self._columns.current.clear()

    def _process_between(self, batch: RecordBatch, watermarks: PassingWatermarks, input_index: int) -> None:
        """The rows up to a watermark by which a timer is due are one batch. Timers of these rows themselves fire behind them."""
        rows, timestamps = watermarks.rows, watermarks.timestamps
        start, passed = 0, 0
        while passed < len(rows):
            due = None if self._columns is None else self._columns.first_event_timer
            if due is None:
                break
            passed += int(np.searchsorted(timestamps[passed:], due))
            if passed == len(rows):
                break
            stop = int(rows[passed])
            if stop > start:
                self._process(batch.slice(start, stop - start), input_index)
                start = stop
            self._pass_watermark(int(timestamps[passed]))
            passed += 1
        if start < batch.num_rows:
            self._process(batch.slice(start), input_index)
        self._pass_watermark(int(timestamps[-1]))

    def _flush(self) -> None:
        """Everything was sent at once."""

    def _on_timers(self, slots: Integers, times: Integers, processing: bool) -> None:
        assert self._columns is not None
        function: Any = self._function
        if processing:
            self._tick()
        timestamps = pa.array(times)
        event_times = None
        if self._timed:
            late = self._time_of_firing(0, processing)
            event_times = pa.array(np.full(len(times), late, np.int64)) if processing else timestamps
        self._outputs.begin(len(times), event_times, None)
        if self._settings.added is not None:
            self._settings.added.begin(self._columns.keys_of(self._columns.current.slots))
        self._context.begin(timestamps)
        self._context.time_domain = "processing" if processing else "event"
        try:
            returned = function.on_timers(timestamps, self._context)
            if returned is not None:
                self._outputs.returned(returned)
        except Exception as error:
            self._fail(error, f"on_timers of {len(times)} keys at {times[0]}…", None, None)
        finally:
            self._context.time_domain = ""
            self._columns.current.clear()


class _BatchContext:
    """See `BatchContext`."""

    def __init__(self, operator: BatchProcessOperator, outputs: BatchOutputs) -> None:
        self._operator = operator
        self._outputs = outputs
        self.timestamps: pa.Array | None = None
        self.time_domain = ""

    def begin(self, timestamps: pa.Array | None) -> None:
        """Another batch is at hand."""
        self.timestamps = timestamps

    @property
    def current_watermark(self) -> int:
        return self._operator.current_watermark

    @property
    def processing_time(self) -> int:
        return self._operator.context.processing_time.now_ms()

    def collect(self, rows: pa.RecordBatch, parents: Values | None = None, timestamps: Values | None = None) -> None:
        self._outputs.collect(rows, parents, timestamps)

    def side_output(
        self, name: str, rows: pa.RecordBatch, parents: Values | None = None, timestamps: Values | None = None
    ) -> None:
        self._outputs.side(name, rows, parents, timestamps)


class _KeyedBroadcastBatchContext(_BatchContext):
    """See `KeyedBroadcastBatchContext`."""

    def __init__(
        self, operator: BatchProcessOperator, outputs: BatchOutputs, backend: ColumnBackend, place: str
    ) -> None:
        super().__init__(operator, outputs)
        self._backend = backend
        self._place = place

    def apply_to_keyed_state(self, state: Any, function: Callable[[pa.RecordBatch, Any], None]) -> None:
        self._backend.all_keys(state, function, self._place)


class _KeyedBatchContext(_BatchContext):
    """See `KeyedBatchContext`."""

    def __init__(
        self,
        operator: BatchProcessOperator,
        outputs: BatchOutputs,
        backend: ColumnBackend,
        names: pa.Schema,
        timers: bool,
    ) -> None:
        super().__init__(operator, outputs)
        self._backend = backend
        self._current = backend.current
        self._names = names
        self._has_timers = timers

    @property
    def keys(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._backend.keys_of(self._current.slots), schema=self._names)

    @property
    def num_keys(self) -> int:
        return len(self._current.slots)

    @property
    def key_index(self) -> Integers:
        return self._current.local

    @property
    def occurrences(self) -> Integers:
        local, total = self._current.local, self.num_keys
        order = stable_order(local)
        counts = np.bincount(local, minlength=total)
        numbers = np.empty(len(local), np.int64)
        numbers[order] = np.arange(len(local)) - np.repeat(np.cumsum(counts) - counts, counts)
        return numbers

    @property
    def first_rows(self) -> Integers:
        local = self._current.local
        rows: Integers = np.zeros(self.num_keys, np.int64)
        rows[local[::-1]] = np.arange(len(local) - 1, -1, -1)
        return rows

    @property
    def last_rows(self) -> Integers:
        local = self._current.local
        rows: Integers = np.zeros(self.num_keys, np.int64)
        rows[local] = np.arange(len(local))
        return rows

    def register_event_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        self._check_timers()
        self._backend.register(TimeDomain.EVENT, timestamps, keys, "timers")

    def register_processing_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        self._check_timers()
        self._backend.register(TimeDomain.PROCESSING, timestamps, keys, "timers")

    def delete_event_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        self._backend.delete(TimeDomain.EVENT, timestamps, keys, "timers")

    def delete_processing_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        self._backend.delete(TimeDomain.PROCESSING, timestamps, keys, "timers")

    def _check_timers(self) -> None:
        if not self._has_timers:
            raise DataError(
                "timers need on_timers, which the function does not have",
                hint="add on_timers(self, timestamps, context)",
            )
