"""Users' asynchronous functions as an operator, after Apache Flink's `AsyncWaitOperator`.

The function's coroutines run in a thread of their own; everything else, deadlines too, is done by the subtask's thread between other mails.
Rows for which there is no room under way wait behind everything else, and the operator asks for no more input until all have been begun.
So it never blocks: barriers pass, and what is under way or has not been begun is part of the snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.elements import RecordBatch, Watermark, WatermarkStatus
from flowrun.core.row_errors import RowFault
from flowrun.errors import DataError, FlowrunError, is_from_outside
from flowrun.operators.asynchronous import call_loop
from flowrun.operators.asynchronous.call_loop import Call, CallLoop
from flowrun.operators.asynchronous.deadlines import Deadlines
from flowrun.operators.asynchronous.factories import AsyncFunctionFactory, WaitMode
from flowrun.operators.asynchronous.in_flight_rows import InFlightRows
from flowrun.operators.asynchronous.loading import load_async_function
from flowrun.operators.asynchronous.outcomes import BatchCallContext, OpenContext, Results, RowCallContext
from flowrun.operators.asynchronous.queue import Entry, InFlightQueue, OrderedQueue, TimeEvent, UnorderedQueue
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where
from flowrun.operators.row_failures import RowFailures

TIMEOUTS = "numAsyncTimeouts"
RETRIES = "numAsyncRetries"
IN_FLIGHT = "asyncCallsInFlight"
_MAX_WAITING_ROWS = 262_144
"""More that come at once, as of a window that fires, are waited for where they come: the rows of two batches as sources make them."""


class AsyncFunctionOperator(AbstractOperator):
    """Calls the function for many rows at a time; see the module."""

    def __init__(self, factory: AsyncFunctionFactory) -> None:
        self._factory = factory
        self._place = f"function '{factory.function.reference}' of '{factory.name}'"
        self._state = InFlightRows(factory.input_schema, self._place)
        self._queue: InFlightQueue = OrderedQueue() if factory.mode is WaitMode.ORDERED else UnorderedQueue()
        self._waiting: deque[RecordBatch | TimeEvent] = deque()
        """What has come and was not begun: rows for which there is no room, and what is behind them."""
        self._loaded = load_async_function(factory.function)
        self._on_result: Callable[[Any], Any] | None = None
        self._on_exception: Callable[[Any], Any] | None = None
        self._calls: CallLoop | None = None
        self._is_open = False
        self._deadlines: Deadlines | None = None
        self._under_way = 0

    # ---- life

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Make outputs and deadlines."""
        super().setup(context, output)
        factory = self._factory
        self._failures = RowFailures(factory.errors, context, output)
        sides = {tag.name: tag.schema for tag in factory.side_outputs}
        self._results = Results(output, factory.output_schema, sides, self._place)
        self._deadlines = Deadlines(context.processing_time, self._go_on, factory.timeout_ms)
        self._timeouts, self._retries = context.metrics.counter(TIMEOUTS), context.metrics.counter(RETRIES)
        context.metrics.gauge(IN_FLIGHT, lambda: self._under_way)

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take up the rows that were under way."""
        if restored is not None and not restored.is_empty:
            self._waiting.extend(self._state.restored(restored, self.context.subtask, self.context.parallelism))

    def open(self) -> None:
        """Start the event loop and open the function in it."""
        context, factory = self.context, self._factory
        if factory.repeats_result is not None:
            self._on_result = factory.repeats_result.load_function()
        if factory.repeats_exception is not None:
            self._on_exception = factory.repeats_exception.load_function()
        self._calls = calls = CallLoop(
            f"{context.name} ({context.subtask + 1}/{context.parallelism}) event loop",
            lambda: context.execute(self._go_on),
            lambda: context.pause(0),
        )
        surroundings = OpenContext(context.subtask, context.parallelism, context.metrics)
        self._is_open = True
        self._raised_in(lambda: calls.run(lambda: self._loaded.function.open(surroundings)), "open")
        self._go_on()

    def close(self) -> None:
        """Cancel what is under way, close the function, end the thread."""
        if self._deadlines is not None:
            self._deadlines.close()
        calls, self._calls = self._calls, None
        if calls is not None:
            self._raised_in(lambda: calls.close(self._loaded.function.close if self._is_open else None), "close")

    def _raised_in(self, call: Callable[[], None], method: str) -> None:
        try:
            call()
        except FlowrunError:
            raise
        except Exception as error:
            place = where(error, call_loop.__file__)
            raise DataError(f"{self._place}: {method}() raised {describe(error)}{place}") from error

    # ---- input

    @property
    def accepts_rows(self) -> bool:
        """Whether all rows that came have been begun."""
        return not self._waiting

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way."""
        return not self._waiting and not self._queue.entries

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Begin calls for the rows, as far as there is room.

        Raises:
            DataError: rows change others, and their order is not kept.
        """
        if batch.row_kinds is not None and self._factory.mode is WaitMode.UNORDERED:
            raise DataError(
                f"{self._place}: rows that change others cannot leave without order, as the last change would not be the last any more",
                hint="use ordered mode",
            )
        self._waiting.append(batch)
        self._go_on()
        if self._rows_waiting() > _MAX_WAITING_ROWS:
            self._work_in_place(lambda: self._rows_waiting() <= _MAX_WAITING_ROWS)

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        """Forward it behind the rows that came before."""
        self._waiting.append(watermark)
        self._go_on()

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """Forward it behind the rows that came before."""
        self._waiting.append(status)
        self._go_on()

    def end_input(self, input_index: int = 0) -> None:
        """The task waits until nothing is under way, where it can do other things meanwhile."""

    def finish(self) -> None:
        """Wait for what is left, as mails are run no more."""
        self._go_on()
        self._work_in_place(lambda: self.is_at_rest)

    def _rows_waiting(self) -> int:
        return sum(e.num_rows for e in self._waiting if isinstance(e, RecordBatch))

    def _work_in_place(self, enough: Callable[[], bool]) -> None:
        """Wait for calls until there is enough room."""
        calls, deadlines = self._calls, self._deadlines
        assert calls is not None
        assert deadlines is not None
        with deadlines.in_place() as look:
            while not enough():
                calls.wait()
                self.context.pause(0)  # raises if the job is cancelled
                look()
                self._go_on()

    # ---- snapshots

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that are under way or were not begun."""
        return self._state.snapshot(self.context.subtask, self.current_watermark, self._pending())

    def _pending(self) -> Iterator[RecordBatch | TimeEvent]:
        """Rows and time events in order, rows that lie side by side in one piece."""
        batch: RecordBatch | None = None
        start = stop = 0
        for element in self._queue.elements():
            if isinstance(element, Entry):
                if element.batch is batch and element.position == stop:
                    stop += element.length
                    continue
                if batch is not None:
                    yield batch.slice(start, stop - start)
                batch, start, stop = element.batch, element.position, element.position + element.length
            else:
                if batch is not None:
                    yield batch.slice(start, stop - start)
                    batch = None
                yield element
        if batch is not None:
            yield batch.slice(start, stop - start)
        yield from self._waiting

    # ---- work of the subtask's thread

    def _go_on(self) -> None:
        """Take what calls gave, do what is due, send what may leave, and begin what there is room for."""
        if self._calls is None or self._deadlines is None:
            return
        for call in self._calls.take_finished():
            self._ended(call)
        late, again = self._deadlines.take_due()
        for entry in late:
            self._time_is_up(entry)
        self._invoke([entry for entry in again if not entry.is_late])
        self._send_ready()
        while self._waiting and self._begin_next():
            self._send_ready()
        self._failures.send()

    def _begin_next(self) -> bool:
        """Begin calls for the rows that wait first, or queue the time event that does; whether there was room."""
        first = self._waiting[0]
        if not isinstance(first, RecordBatch):
            self._waiting.popleft()
            self._queue.add_event(first)
            return True
        room = self._factory.capacity - self._queue.entries
        if room <= 0:
            return False
        step = self._factory.call_rows if self._loaded.batches else 1
        count = min(room * step, first.num_rows)
        if self._loaded.batches:
            entries = [
                Entry(first, start, min(step, first.num_rows - start))
                for start in range(0, min(count, first.num_rows), step)
            ]
        else:
            entries = self._row_entries(first, count)
        self._waiting.popleft()
        if count < first.num_rows:
            self._waiting.appendleft(first.slice(count))
        assert self._deadlines is not None
        for entry in entries:
            self._queue.add(entry)
            self._deadlines.begin(entry)
        self._invoke(entries)
        return True

    @staticmethod
    def _row_entries(batch: RecordBatch, count: int) -> list[Entry]:
        rows = batch.columns.slice(0, count).to_pylist()
        times = [None] * count if batch.timestamps is None else batch.timestamps.slice(0, count).to_pylist()
        kinds = [None] * count if batch.row_kinds is None else batch.row_kinds.slice(0, count).to_pylist()
        return [
            Entry(batch, position, 1, row, time, kind)
            for position, (row, time, kind) in enumerate(zip(rows, times, kinds, strict=True))
        ]

    def _invoke(self, entries: list[Entry]) -> None:
        """Call the function, (again) for each of these."""
        if not entries:
            return
        for entry in entries:
            entry.attempt += 1
        self._submit(entries, self._loaded.invoke)

    def _submit(self, entries: list[Entry], method: Callable[[Any, Any], Any]) -> None:
        calls = []
        for entry in entries:
            context: RowCallContext | BatchCallContext
            if entry.row is not None:
                given, context = entry.row, RowCallContext(entry)
            else:
                given, context = entry.rows.columns, BatchCallContext(entry)
            entry.call = Call(partial(method, given, context), (entry, context))
            calls.append(entry.call)
        self._under_way += len(calls)
        assert self._calls is not None
        self._calls.submit(calls)

    def _ended(self, call: Call) -> None:
        """A call gave something, raised, or is to be made again."""
        entry, context = call.subject
        entry.call = None
        self._under_way -= 1
        if self._is_to_be_repeated(entry, call):
            assert self._factory.retry is not None
            assert self._deadlines is not None
            self._retries.inc()
            self._deadlines.repeat(entry, self._factory.retry.delay_after(entry.attempt))
            return
        if call.error is not None:
            self._failed(entry, self._raised(call.error, entry))
            return
        try:
            outcome = self._results.checked(entry, call.returned, context)
        except DataError as error:
            self._failed(entry, error)
            return
        self._done(entry, outcome)

    def _is_to_be_repeated(self, entry: Entry, call: Call) -> bool:
        retry = self._factory.retry
        if retry is None or entry.is_late or entry.attempt > retry.max_attempts:
            return False
        error = call.error
        if error is None:
            return self._on_result is not None and self._predicate(self._on_result, call.returned)
        if not isinstance(error, Exception):
            return False
        return self._on_exception is None or self._predicate(self._on_exception, error)

    def _predicate(self, predicate: Callable[[Any], Any], subject: object) -> bool:
        try:
            return bool(predicate(subject))
        except Exception as error:
            raised = f"{self._place}: its retry predicate raised {describe(error)}{where(error, __file__)}"
            raise DataError(raised) from error

    def _time_is_up(self, entry: Entry) -> None:
        self._timeouts.inc()
        entry.is_late = True
        self._abandon(entry)
        if self._loaded.timeout is not None:
            self._submit([entry], self._loaded.timeout)
            return
        within = f"within {self._factory.timeout_ms} ms" + (f" ({entry.attempt} calls)" if entry.attempt > 1 else "")
        self._failed(
            entry,
            DataError(
                f"{self._place} gave nothing {within}{self._shown(entry)}",
                hint="allow more time, or add timeout(self, row, context), which says what counts instead",
            ),
        )

    def _abandon(self, entry: Entry) -> None:
        if entry.call is not None:
            assert self._calls is not None
            self._calls.abandon(entry.call)
            entry.call = None
            self._under_way -= 1

    def _done(self, entry: Entry, outcome: Any) -> None:
        entry.is_done, entry.outcome = True, outcome
        whole = entry
        while whole.whole is not None:
            whole = whole.whole
            if not all(part.is_done for part in whole.parts):
                return
            whole.is_done = True
        self._queue.finished(whole)

    def _failed(self, entry: Entry, error: DataError) -> None:
        """Leave a row out, or look for it among those of a batch, if rows are left out; else this is the end of the job.

        Raises:
            DataError: the error.
        """
        if not self._failures.isolates or is_from_outside(error):
            raise error
        if entry.length == 1:
            self._failures.add(entry.rows, RowFault.FUNCTION, error)
            self._done(entry, None)
            return
        half = entry.length // 2
        entry.parts = (
            Entry(entry.batch, entry.position, half, whole=entry),
            Entry(entry.batch, entry.position + half, entry.length - half, whole=entry),
        )
        assert self._deadlines is not None
        for part in entry.parts:
            self._deadlines.begin(part)
        self._invoke(list(entry.parts))

    def _raised(self, error: BaseException, entry: Entry) -> DataError:
        if isinstance(error, DataError):
            return error
        if isinstance(error, FlowrunError):
            raise error
        made = DataError(
            f"{self._place} raised {describe(error)}{where(error, call_loop.__file__)}{self._shown(entry)}",
            hint="handle such rows in the function, or repeat the call (retry)",
        )
        if not isinstance(
            error, TimeoutError
        ):  # one that the function set itself is the row's, like that of the operator
            made.__cause__ = error
        return made

    @staticmethod
    def _shown(entry: Entry) -> str:
        """The row, for messages."""
        first = describe_row(entry.batch.columns, entry.position)
        if entry.row is not None or entry.length == 1:
            return f"; the row is {first}"
        return f"; the batch has {entry.length} rows and begins with {first}"

    def _send_ready(self) -> None:
        """Send what may leave: results as one batch, as far as no time event is between them."""
        finished: list[Entry] = []
        for element in self._queue.take_ready():
            if isinstance(element, Entry):
                finished += element.leaves()
                continue
            self._send(finished)
            finished = []
            if isinstance(element, Watermark):
                super().process_watermark(element)
            else:
                super().process_status(element)
        self._send(finished)

    def _send(self, finished: list[Entry]) -> None:
        if not finished:
            return
        for entry, error in self._results.send(finished):
            failure = DataError(f"{error.message}{self._shown(entry)}", hint=error.hint)
            if not self._failures.isolates or is_from_outside(error):
                raise failure from error
            self._failures.add(entry.rows, RowFault.FUNCTION, failure)
