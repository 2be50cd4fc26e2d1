"""Process functions on rows: `process_element` and `on_timer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from flowrun.api.operator import OperatorContext, Output
from flowrun.core.elements import MAX_TIMESTAMP, PassingWatermarks, RecordBatch
from flowrun.core.row_errors import RowFault
from flowrun.core.schema import Field
from flowrun.errors import DataError, is_from_outside
from flowrun.operators.process.operator import ProcessInput, ProcessOperator, ProcessSettings
from flowrun.operators.process.row_output import RowOutputs
from flowrun.operators.process.row_state import ObjectBackend
from flowrun.operators.row_failures import RowFailures
from flowrun.operators.timers import Timer
from flowrun.state.key_groups import hash_columns

_NO_ROW = 1 << 62
_NONE_PASSING: list[tuple[int, int]] = []


class RowProcessOperator(ProcessOperator):
    """Calls the user's function once a row and once a timer."""

    def __init__(self, settings: ProcessSettings) -> None:
        super().__init__(settings)
        self._objects: ObjectBackend | None = None
        self._keyless: _KeyedBroadcastRowContext | None = None
        self._failures: RowFailures | None = None
        self._is_between = False
        """Timers fire between two rows: what they raise is no row's fault."""

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Make the outputs and the context."""
        super().setup(context, output)
        settings = self._settings
        self._failures = RowFailures(settings.errors, context, output)
        self._outputs = RowOutputs(
            self.output, settings.output_schema, settings.side_schemas, self._place, settings.added, self._forward
        )
        if self._failures.isolates:
            self._outputs.hold()
        self._context = _RowContext(self._outputs, lambda: self.current_watermark, context.processing_time.now_ms)

    def _keyed_backend(self, fields: tuple[Field, ...]) -> ObjectBackend:
        self._objects = ObjectBackend(self.context, fields, self._place, self._on_timer)
        self._context = _KeyedRowContext(
            self._outputs,
            lambda: self.current_watermark,
            self.context.processing_time.now_ms,
            self._objects,
            self._place if not self._settings.loaded.timers else "",
        )
        return self._objects

    def _context_of(self, given: ProcessInput) -> _RowContext:
        """The context for rows of an input."""
        if self._objects is None or given.keys is not None:
            return self._context
        if self._keyless is None:
            watermark, now = (lambda: self.current_watermark), self.context.processing_time.now_ms
            self._keyless = _KeyedBroadcastRowContext(self._outputs, watermark, now, self._objects)
        return self._keyless

    def _process(self, batch: RecordBatch, input_index: int) -> None:
        passing = self._ends_of_keys(batch, input_index) if self.context.sorted_inputs else _NONE_PASSING
        self._call_for_rows(batch, passing, input_index)

    def _ends_of_keys(self, batch: RecordBatch, input_index: int) -> list[tuple[int, int]]:
        """Where a key ends between two of these sorted rows, as `passing` of `_call_for_rows`: event time ends there for the key.

        Nowhere if another input may still have rows of it.
        """
        keys = self._settings.inputs[input_index].keys
        if not keys or sum(given.keys is not None for given in self._settings.inputs) > 1:
            return _NONE_PASSING
        hashes = hash_columns([batch.columns.column(k) for k in keys])
        return [(int(row), MAX_TIMESTAMP) for row in np.flatnonzero(hashes[1:] != hashes[:-1])[::-1] + 1]

    def _process_between(self, batch: RecordBatch, watermarks: PassingWatermarks, input_index: int) -> None:
        passing = list(zip(watermarks.rows.tolist(), watermarks.timestamps.tolist(), strict=True))
        passing.reverse()
        self._call_for_rows(batch, passing, input_index)
        self._pass_up_to(batch.num_rows, passing)

    def _pass_up_to(self, row: int, passing: list[tuple[int, int]]) -> int:
        """Let the watermarks come that stand before a row; gives the row before which the next one stands."""
        writable, self._access.writable = self._access.writable, False
        self._is_between = True
        while passing and passing[-1][0] <= row:
            self._pass_watermark(passing.pop()[1])
        self._is_between = False
        self._access.writable = writable
        return passing[-1][0] if passing else _NO_ROW

    def _call_for_rows(self, batch: RecordBatch, passing: list[tuple[int, int]], input_index: int) -> None:
        """Call the function for each row. `passing`: (row, watermark that stands before it), the last one first; goes with the rows."""
        call = self._settings.loaded.calls[input_index]
        given = self._settings.inputs[input_index]
        context, outputs = self._context_of(given), self._outputs
        cursor = None if self._objects is None else self._objects.cursor
        has_keys = given.keys is not None
        if self._settings.added is not None:
            self._settings.added.begin([batch.columns.column(i) for i in self._settings.leading])
        self._access.writable = given.broadcast
        position, stop = 0, passing[-1][0] if passing else _NO_ROW
        numbered = self._numbered_rows(batch, given)
        while True:  # once, and again from the row behind one that is left out
            try:
                for position, (row, key, time, kind) in numbered:
                    if position >= stop:
                        stop = self._pass_up_to(position, passing)
                        if cursor is not None and not has_keys:
                            cursor.leave()
                    if has_keys and cursor is not None:
                        cursor.key = key
                    context.timestamp = outputs.time = time
                    outputs.row, outputs.kind = position, kind
                    returned = call(row, context)
                    if returned is not None:
                        outputs.returned(returned)
                outputs.row = outputs.kind = None
                outputs.flush()
            except Exception as error:
                if self._is_between:
                    raise
                self._leave_out(batch, position if outputs.row is not None else None, error, input_index)
                continue
            break
        self._access.writable = False
        if self._failures is not None:
            self._failures.send()

    def _numbered_rows(
        self, batch: RecordBatch, given: ProcessInput
    ) -> Iterator[tuple[int, tuple[Any, Any, Any, Any]]]:
        """(position, (row, key, event time, change kind)) of all rows. Where rows have no key, none is at hand any more."""
        rows = batch.columns.to_pylist()
        times = repeat(None) if batch.timestamps is None else batch.timestamps.to_pylist()
        kinds = repeat(None) if batch.row_kinds is None else batch.row_kinds.to_pylist()
        keys: Any = repeat(())
        if self._objects is not None and given.keys is not None:
            keys = self._objects.keys.tuples([batch.columns.column(k) for k in given.keys])
        elif self._objects is not None:
            self._objects.cursor.leave()
        return enumerate(zip(rows, keys, times, kinds))  # noqa: B905  # endless repeats

    def _leave_out(self, batch: RecordBatch, position: int | None, error: Exception, input_index: int) -> None:
        """Go on without a row that fails, if rows are left out; else this is the end of the job.

        `position` is that of the row at which the function was called, None while rows are sent; an error that names another row is right.
        A row of a broadcast stream fails in all subtasks alike, and is counted once. What fails for a key is no row's fault.
        """
        failures, method = self._failures, self._settings.loaded.methods[input_index]
        assert failures is not None
        row = error.row if isinstance(error, DataError) and error.row is not None else position
        of_key = self._keyless is not None and self._keyless.has_raised(error)
        if row is None or of_key or not failures.isolates or is_from_outside(error):
            self._fail(error, method, position, batch.columns)
        failure = self._failure(error, method, row, batch.columns)
        if not isinstance(failure, DataError):
            self._fail(error, method, position, batch.columns)
        self._outputs.discard(row)
        if not self._settings.inputs[input_index].broadcast or self.context.speaks_for_all:
            failures.add(batch.slice(row, 1), RowFault.FUNCTION, failure)

    def _hold_back(self, timestamp: int) -> None:
        self._outputs.hold_back(timestamp)

    def _advance_to(self, timestamp: int) -> None:
        super()._advance_to(timestamp)
        self._outputs.forget_held_back()

    def _flush(self) -> None:
        self._outputs.row = self._outputs.kind = None
        self._outputs.flush()

    def _on_timer(self, timer: Timer, processing: bool) -> None:
        assert self._objects is not None
        function: Any = self._function
        context, outputs = self._context, self._outputs
        if processing:
            self._tick()
        self._objects.cursor.key = timer.key
        context.timestamp = timer.timestamp
        context.time_domain = "processing" if processing else "event"
        outputs.time = self._time_of_firing(timer.timestamp, processing)
        outputs.of_timer(() if self._settings.added is None else self._objects.keys.values(timer.key))
        try:
            returned = function.on_timer(timer.timestamp, context)
            if returned is not None:
                outputs.returned(returned)
        except Exception as error:
            shown = ", ".join(map(repr, self._objects.keys.values(timer.key)))
            self._fail(error, f"on_timer({timer.timestamp}) of key ({shown})", None, None)
        finally:
            context.time_domain = ""
        if processing:
            self._flush()


class _RowContext:
    """See `ProcessContext`."""

    __slots__ = ("_now", "_outputs", "_watermark", "time_domain", "timestamp")

    def __init__(self, outputs: RowOutputs, watermark: Callable[[], int], now: Callable[[], int]) -> None:
        self._outputs = outputs
        self._watermark = watermark
        self._now = now
        self.timestamp: int | None = None
        self.time_domain = ""

    @property
    def current_watermark(self) -> int:
        return self._watermark()

    @property
    def processing_time(self) -> int:
        return self._now()

    def collect(self, row: Mapping[str, Any], timestamp: int | None = None) -> None:
        self._outputs.collect(row, timestamp)

    def side_output(self, name: str, row: Mapping[str, Any], timestamp: int | None = None) -> None:
        self._outputs.side(name, row, timestamp)


class _KeyedBroadcastRowContext(_RowContext):
    """See `KeyedBroadcastContext`."""

    __slots__ = ("_objects", "_raised")

    def __init__(
        self,
        outputs: RowOutputs,
        watermark: Callable[[], int],
        now: Callable[[], int],
        objects: ObjectBackend,
    ) -> None:
        super().__init__(outputs, watermark, now)
        self._objects = objects
        self._raised: Exception | None = None

    def apply_to_keyed_state(self, state: Any, function: Callable[[tuple[Any, ...], Any], None]) -> None:
        try:
            self._objects.each_key(state, function)
        except Exception as error:
            self._raised = error
            raise

    def has_raised(self, error: BaseException | None) -> bool:
        """Whether the error, or what it was raised because of, came while keyed state was gone through."""
        while error is not None and self._raised is not None:
            if error is self._raised:
                return True
            error = error.__cause__ or error.__context__
        return False


class _KeyedRowContext(_RowContext):
    """See `KeyedProcessContext`. `without_timers`: names the function if it has no `on_timer`."""

    __slots__ = ("_cursor", "_keys", "_timers", "_without_timers")

    def __init__(
        self,
        outputs: RowOutputs,
        watermark: Callable[[], int],
        now: Callable[[], int],
        objects: ObjectBackend,
        without_timers: str,
    ) -> None:
        super().__init__(outputs, watermark, now)
        self._keys = objects.keys
        self._cursor = objects.cursor
        self._timers = objects.timers
        self._without_timers = without_timers

    @property
    def current_key(self) -> tuple[Any, ...]:
        return self._keys.values(self._cursor.key)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register_event_time(self._checked(timestamp), self._cursor.key)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register_processing_time(self._checked(timestamp), self._cursor.key)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event_time(self._checked(timestamp), self._cursor.key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete_processing_time(self._checked(timestamp), self._cursor.key)

    def _checked(self, timestamp: Any) -> int:
        if self._without_timers:
            raise DataError(
                "a timer needs on_timer, which the function does not have",
                hint="add on_timer(self, timestamp, context)",
            )
        if type(timestamp) is int:
            if -(2**63) <= timestamp < 2**63:
                return timestamp
        elif hasattr(timestamp, "__index__") and not isinstance(timestamp, bool):
            return self._checked(timestamp.__index__())
        raise DataError(
            f"a timer needs a time in whole ms since 1970 that fits 64 bits, got {timestamp!r} of type {type(timestamp).__name__}",
            hint="begin with context.timestamp (None on streams without event time) or context.processing_time",
        )
