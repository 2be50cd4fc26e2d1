"""What process operators on rows and on batches share: the life of the user's function, time, errors and snapshots.

At a watermark the timers that are due fire, what they send goes out, then the watermark. At the end of bounded input (the watermark
MAX) event-time timers fire, then the processing-time timers that are still waiting, before that watermark goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from flowrun.api.keyed_state import StateDeclaration
from flowrun.api.operator import OperatorContext, Output, OutputTag
from flowrun.api.process_function import RichFunction
from flowrun.api.state import (
    MapStateDescriptor,
    OperatorSnapshot,
    OperatorState,
    Redistribution,
    SegmentedTable,
    StateDescriptor,
)
from flowrun.core.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    LatencyMarker,
    PassingWatermarks,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, RowErrors
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.errors import DataError, FlowrunError, StateError, did_you_mean
from flowrun.operators.base import AbstractOperator, CombinedWatermark
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where
from flowrun.operators.process.added_columns import AddedColumns
from flowrun.operators.process.broadcast_state import BroadcastAccess, BroadcastColumns, BroadcastMap
from flowrun.operators.process.loading import PROGRESS, TIMERS, LoadedFunction
from flowrun.operators.process.opening import FunctionOpenContext
from flowrun.operators.process.subtask_state import SubtaskList
from flowrun.operators.timed.event_rows import RowIntake

_NO_TIME = -(2**63)


class KeyedBackend(Protocol):
    """Keyed state and timers of one operator."""

    def handle(self, descriptor: StateDescriptor) -> Any:
        """The handle of a state; called once for each, before `restore`."""
        ...

    def restore(self, restored: OperatorSnapshot) -> None:
        """Take back states and timers."""
        ...

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """Table by state name; those without rows may be left out."""
        ...

    def advance(self, now: int) -> None:
        """Processing time is `now`: what has expired is gone."""
        ...

    @property
    def newest_write(self) -> int:
        """Latest write of state with a time to live, ms."""
        ...

    @property
    def first_event_timer(self) -> int | None:
        """When the next event-time timer is due, ms; None: there is none."""
        ...

    @property
    def has_timers(self) -> bool:
        """Whether any timer waits."""
        ...

    def forget_keys(self) -> None:
        """Drop all state and timers, as if there had been no rows yet. Only where there are no snapshots."""
        ...

    def advance_watermark(self, timestamp: int) -> None:
        """Fire event-time timers."""
        ...

    def fire_pending(self) -> None:
        """Fire the processing-time timers that wait."""
        ...

    def close(self) -> None:
        """Wait for nothing any more."""
        ...


@record
class ProcessInput:
    """One input of a process operator.

    Attributes:
        schema: of its rows.
        keys: positions of the key columns; None: it has none.
        broadcast: all subtasks get all its rows.
    """

    schema: Schema
    keys: tuple[int, ...] | None = None
    broadcast: bool = False

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns."""
        return tuple(self.schema.fields[k] for k in self.keys or ())


@record
class ProcessSettings:
    """What a process operator is made from.

    Attributes:
        place: names function and step in messages.
        inputs: one or two. The names of the first one's keys are those of the state's tables.
        event_time: whether rows have event time; None: the first batch shows it.
        leading: positions of the input columns that go before those that the function sends.
        added: puts these, and the event time, around the function's columns; None: rows leave as the function sends them.
        errors: what becomes of rows that the function fails on.
    """

    loaded: LoadedFunction
    place: str
    inputs: tuple[ProcessInput, ...]
    output_schema: Schema
    side_schemas: Mapping[str, Schema]
    null_keys: NullKeys
    event_time: bool | None
    leading: tuple[int, ...] = ()
    added: AddedColumns | None = None
    errors: RowErrors = FAIL


class ProcessOperator(AbstractOperator):
    """The common part. Subclasses make the backend, and call the function."""

    def __init__(self, settings: ProcessSettings) -> None:
        self.inputs = len(settings.inputs)
        self._settings = settings
        self._function: RichFunction = settings.loaded.function
        self._place = settings.place
        self._handles: dict[str, Any] = {}
        self._operator_states: dict[str, SubtaskList | BroadcastMap] = {}
        self._access = BroadcastAccess(settings.loaded.methods[-1])
        self._backend: KeyedBackend | None = None
        self._intakes: list[RowIntake | None] = [None] * self.inputs
        self._opened = False
        self._now = _NO_TIME
        self._forwarded = MIN_TIMESTAMP
        self._newest_time: int | None = None
        self._timed: bool | None = settings.event_time

    # ---- life

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output if self.inputs == 1 else EvenlyTimedOutput(output, self._place))

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Make the states that the function declares, and take back what they held."""
        settings = self._settings
        if settings.inputs[0].keys is not None:
            self._backend = self._keyed_backend(settings.inputs[0].key_fields)
            self._intakes = [
                None
                if given.keys is None
                else RowIntake(self.context, given.schema, given.keys, settings.null_keys, None)
                for given in settings.inputs
            ]
        for attribute, declaration in settings.loaded.states.items():
            handle = self._handle(declaration, attribute)
            self._handles[declaration.descriptor(attribute).name] = handle
            setattr(self._function, attribute, handle)
        if restored is not None:
            self._restore(restored)

    def _handle(self, declaration: StateDeclaration, attribute: str) -> Any:
        descriptor = declaration.descriptor(attribute)
        if isinstance(descriptor, MapStateDescriptor) and declaration.is_broadcast:
            shared = self._operator_states[descriptor.name] = BroadcastMap(self._place, descriptor, self._access)
            return BroadcastColumns(shared) if self._settings.loaded.batches else shared
        if declaration.redistribution is not None:
            place = f"state '{descriptor.name}' of {self._place}"
            kept = self._operator_states[descriptor.name] = SubtaskList(place, descriptor, declaration.redistribution)
            return kept
        assert self._backend is not None
        return self._backend.handle(descriptor)

    def _keyed_backend(self, fields: tuple[Field, ...]) -> KeyedBackend:
        raise NotImplementedError

    def _restore(self, restored: OperatorSnapshot) -> None:
        progress = restored.operator.get(PROGRESS)
        for row in progress.rows.to_pylist() if progress is not None else ():
            self._now = max(self._now, row["clock"])
            if row["newest_event_time"] is not None:
                self._newest_time = max(self._newest_time or row["newest_event_time"], row["newest_event_time"])
            if self._timed is None:
                self._timed = row["has_event_time"]
        for name, kept in self._operator_states.items():
            state = restored.operator.get(name)
            if state is not None:
                kept.restore(state.rows)
        known = {*self._handles, PROGRESS, *((TIMERS,) if self._settings.loaded.timers else ())}
        for name in (*restored.keyed, *restored.operator):
            if name not in known:
                raise StateError(
                    f"the snapshot of {self._place} has the state '{name}', which the function does not declare",
                    hint=did_you_mean(name, self._handles)
                    or "declare it, or give the step another uid to start it without its old state",
                )
        if self._backend is not None:
            self._tick()
            self._backend.restore(restored)
            self._now = max(self._now, self._backend.newest_write)
            self._tick()

    def open(self) -> None:
        """Open the function."""
        self._opened = True
        try:
            self._function.open(FunctionOpenContext(self.context, self._handles, self._place))
        except Exception as error:
            raise DataError(f"{self._place}: open() raised {describe(error)}{where(error, __file__)}") from error

    def close(self) -> None:
        """Forget callbacks, and close the function if it was opened."""
        if self._backend is not None:
            self._backend.close()
        if self._opened:
            self._opened = False
            try:
                self._function.close()
            except Exception as error:
                raise DataError(f"{self._place}: close() raised {describe(error)}{where(error, __file__)}") from error

    # ---- rows and time

    @property
    def passes_watermarks(self) -> bool:
        """Only those count between rows at which a timer is due, unless somebody behind wants to know all."""
        return not self.context.exact_behind

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Call the function for the rows that the NULL key policy lets through."""
        intake = self._intakes[input_index]
        if intake is not None:
            batch = intake.grouped_rows(batch)
            if batch.num_rows == 0 and batch.watermarks is None:
                return
        if self._backend is not None:
            self._tick()
        self._note_times(batch)
        watermarks = batch.watermarks
        if watermarks is None:
            self._process(batch, input_index)
            return
        passing = self._event_time.passing(input_index, watermarks)
        batch = batch.with_watermarks(None)
        if passing is not None:
            self._process_between(batch, passing, input_index)
            # The watermark that follows the batch may be no greater than the last one here, or wait for another input or channel.
            if self._forwarded < self.current_watermark:
                self._advance_to(self.current_watermark)
        elif batch.num_rows:
            self._process(batch, input_index)

    def _note_times(self, batch: RecordBatch) -> None:
        if batch.timestamps is None:
            self._timed = bool(self._timed) and self.inputs > 1
            return
        self._timed = True
        if batch.num_rows:
            newest = int(batch.timestamps_numpy().max())
            if self._newest_time is None or newest > self._newest_time:
                self._newest_time = newest

    def _process(self, batch: RecordBatch, input_index: int) -> None:
        """Call the function for rows of an input."""
        raise NotImplementedError

    def _process_between(self, batch: RecordBatch, watermarks: PassingWatermarks, input_index: int) -> None:
        """Call the function for rows of an input, and for the timers that are due between them.

        `watermarks`: of the operator, what those of the input come to.
        """
        raise NotImplementedError

    def _pass_watermark(self, timestamp: int) -> None:
        """A watermark of the operator between rows: what has not fired by it is not due. Of sorted rows it is the end of a key."""
        if self.context.sorted_inputs:
            self.end_keys()
            return
        first = None if self._backend is None else self._backend.first_event_timer
        if first is not None and first <= timestamp:
            self._flush()
            self._event_time.reach(timestamp)
            self._advance_to(timestamp)
        else:
            self._event_time.reach(timestamp)
            self._hold_back(timestamp)

    def _hold_back(self, timestamp: int) -> None:
        """A watermark is not sent yet: no row that was sent since is late by it."""

    def _advance_to(self, timestamp: int) -> None:
        super()._advance_to(timestamp)
        self._forwarded = timestamp

    def _forward(self, timestamp: int) -> None:
        """Send a watermark that was held back."""
        self._forwarded = timestamp
        self.output.emit_watermark(Watermark(timestamp))

    def _tick(self) -> int:
        """Processing time, which never goes back; state that has expired by then is gone."""
        now = self.context.processing_time.now_ms()
        if now > self._now or self._now == _NO_TIME:
            self._now = now
        if self._backend is not None:
            self._backend.advance(self._now)
        return self._now

    def on_watermark(self, timestamp: int) -> None:
        """Fire the timers that are due; at the end of bounded input, all."""
        if self._backend is None:
            return
        self._tick()
        self._backend.advance_watermark(timestamp)
        if timestamp == MAX_TIMESTAMP:
            self._backend.fire_pending()
        self._flush()

    def end_keys(self) -> None:
        """Batch mode: the keys that were get no more rows. Their timers fire, event-time ones first; then nothing is known of them."""
        backend = self._backend
        if backend is None:
            return
        if backend.has_timers:
            self._flush()
            self._tick()
            self._event_time.reach(MAX_TIMESTAMP)
            backend.advance_watermark(MAX_TIMESTAMP)
            backend.fire_pending()
            self._flush()
            self._event_time = CombinedWatermark(self.inputs)
        backend.forget_keys()

    def _flush(self) -> None:
        """Send what the function produced."""
        raise NotImplementedError

    def _time_of_firing(self, timestamp: int, processing: bool) -> int | None:
        """Event time of rows that a timer sends: the timer's, or in processing time the newest that was seen; None without event time."""
        if not self._timed:
            return None
        if not processing:
            return timestamp
        return self._newest_time if self._newest_time is not None else self._now

    # ---- state

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """References to what changed since the last snapshot; the tables are made later, on another thread."""
        operator = {name: kept.snapshot() for name, kept in self._operator_states.items()}
        if self._backend is None:
            return OperatorSnapshot(operator=operator)
        rows = {
            "clock": pa.array([self._now], pa.int64()),
            "newest_event_time": pa.array([self._newest_time], pa.int64()),
            "has_event_time": pa.array([self._timed], pa.bool_()),
        }
        operator[PROGRESS] = OperatorState(pa.table(rows), Redistribution.UNION)
        tables = {n: t for n, t in self._backend.snapshot().items() if t.segments}
        return OperatorSnapshot(operator=operator, segmented=tables)

    # ---- errors

    def _fail(self, error: Exception, method: str, row: int | None, columns: pa.RecordBatch | None) -> NoReturn:
        """Raises what stands for an error in the function: names it, the row, and the line of the user's code."""
        failure = self._failure(error, method, row, columns)
        if failure is error:  # nothing is its own cause
            raise error
        raise failure from error

    def _failure(self, error: Exception, method: str, row: int | None, columns: pa.RecordBatch | None) -> FlowrunError:
        if isinstance(error, DataError) and self._place in error.message:
            return error
        shown = ""
        if columns is not None and row is not None:
            shown = f"; the row is {describe_row(columns, row)}"
        elif columns is not None and columns.num_rows:
            shown = f"; the batch has {columns.num_rows} rows and begins with {describe_row(columns, 0)}"
        if isinstance(error, FlowrunError):
            if not isinstance(error, DataError):
                return error
            return DataError(f"{self._place}: {method}: {error.message}{shown}", row=row, hint=error.hint)
        return DataError(
            f"{self._place}: {method} raised {describe(error)}{where(error, __file__)}{shown}",
            row=row,
            hint="handle such input in the function, or drop it with a filter before",
        )


class EvenlyTimedOutput:
    """The output of a function of several streams: all rows of it have event time, or none has.

    Args:
        output: gets everything.
        place: names the function.
    """

    def __init__(self, output: Output, place: str) -> None:
        self._output = output
        self._place = place
        self._timed: dict[str | None, bool] = {}

    def emit(self, batch: RecordBatch) -> None:
        """Send rows to the main output."""
        self._check(None, batch)
        self._output.emit(batch)

    def emit_side(self, tag: OutputTag, batch: RecordBatch) -> None:
        """Send rows to a side output."""
        self._check(tag.name, batch)
        self._output.emit_side(tag, batch)

    def _check(self, tag: str | None, batch: RecordBatch) -> None:
        timed = batch.timestamps is not None
        if self._timed.setdefault(tag, timed) is not timed:
            raise DataError(
                f"{self._place} sends rows with event time and rows without: one of its inputs has event time, the other has none",
                hint="give both inputs timestamps and watermarks, or send the rows of the other input to a side output",
            )

    def emit_watermark(self, watermark: Watermark) -> None:
        """Send a watermark."""
        self._output.emit_watermark(watermark)

    def emit_status(self, status: WatermarkStatus) -> None:
        """Send an idleness change."""
        self._output.emit_status(status)

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Pass on a latency marker."""
        self._output.emit_latency_marker(marker)
