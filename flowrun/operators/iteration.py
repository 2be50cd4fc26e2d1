"""The two ends of an iteration: rows that reach the tail come out of the head of the same subtask, in the same process.

Head and tail are co-located, so a queue between threads is all the transport they need. The queue is not bounded: a bounded one
could fill up while the head waits for room downstream, and the circle would stand still for ever.

Subtask i of both has one co-location key, so the scheduler gives them one slot, which is in one process. Were they in two for all that,
the tail would hand its rows to nobody: it says so at its end.

An iteration has no natural end: as in Apache Flink, the head ends its stream when nothing came back for `wait_ms`. A row that
comes back later than that is an error, never dropped. Rows in the circle belong to no checkpoint, so checkpointing is refused, and so are
savepoints.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from flowrun.api.operator import InputStatus, OperatorContext, Output, TimerHandle
from flowrun.api.state import OperatorSnapshot
from flowrun.core.elements import IDLE, RecordBatch, Watermark, WatermarkStatus, concat_batches
from flowrun.errors import DataError, InternalError, UnsupportedPlanError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.factories import IterationHeadFactory, IterationTailFactory


class FeedbackQueue:
    """Rows on their way from a tail to its head. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: deque[RecordBatch] = deque()
        self._listener: Callable[[], None] | None = None
        self._ended = False
        self.has_head = False
        """Whether a head was here to take rows."""

    @property
    def waiting_rows(self) -> int:
        """How many rows nobody has taken."""
        with self._lock:
            return sum(batch.num_rows for batch in self._batches)

    def put(self, batch: RecordBatch) -> bool:
        """Add rows and wake the head; False if the head has ended."""
        with self._lock:
            if self._ended:
                return False
            self._batches.append(batch)
            listener = self._listener
        if listener is not None:
            listener()
        return True

    def take_all(self) -> list[RecordBatch]:
        """Everything that came since the last call; never waits."""
        with self._lock:
            taken = list(self._batches)
            self._batches.clear()
        return taken

    def end_if_empty(self) -> bool:
        """Accept no more rows, unless some are waiting; whether it ended."""
        with self._lock:
            self._ended = self._ended or not self._batches
            return self._ended

    def set_listener(self, listener: Callable[[], None]) -> None:
        """`listener` is called, from the tail's thread, after rows came."""
        with self._lock:
            self._listener = listener


QueueKey = tuple[str, str, int]
"""(job id, iteration id, subtask)."""


class _QueueRegistry:
    """The queues of this process; one lives while its head or tail is open. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[QueueKey, tuple[FeedbackQueue, int]] = {}

    def acquire(self, key: QueueKey) -> FeedbackQueue:
        with self._lock:
            queue, users = self._queues.get(key) or (FeedbackQueue(), 0)
            self._queues[key] = (queue, users + 1)
            return queue

    def release(self, key: QueueKey) -> None:
        with self._lock:
            queue, users = self._queues.pop(key)
            if users > 1:
                self._queues[key] = (queue, users - 1)


_QUEUES = _QueueRegistry()


class _IterationEnd(AbstractOperator):
    """What head and tail have in common: the queue that they share."""

    def __init__(self, iteration_id: str) -> None:
        self._iteration_id = iteration_id
        self._key: QueueKey | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Attach to the queue already here, so that no end misses rows because it opens later."""
        super().setup(context, output)
        self._key = (context.job_id, self._iteration_id, context.subtask)
        self._queue = _QUEUES.acquire(self._key)

    def open(self) -> None:
        """Refuse checkpointing."""
        if self.context.checkpointing:
            raise self._refusal()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """Refuse savepoints, too.

        Raises:
            UnsupportedPlanError: always.
        """
        raise self._refusal()

    def _refusal(self) -> UnsupportedPlanError:
        return UnsupportedPlanError(
            f"'{self.context.name}': an iteration cannot be checkpointed, its rows would be lost on recovery",
            hint="turn checkpointing off and take no savepoints, or replace the iteration by keyed state",
        )

    def close(self) -> None:
        """Let go of the queue."""
        if self._key is not None:
            _QUEUES.release(self._key)
            self._key = None


class IterationHead(_IterationEnd):
    """A source of fed-back rows. It counts as idle, so event time inside the iteration follows the other inputs."""

    inputs = 0

    def __init__(self, factory: IterationHeadFactory) -> None:
        super().__init__(factory.iteration_id)
        self._wait_ms = factory.wait_ms
        self._listener: Callable[[], None] = lambda: None
        self._timer: TimerHandle | None = None
        self._waited = False
        self._announced = False
        self._stopped = False

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Be there for the tail's rows."""
        super().setup(context, output)
        self._queue.has_head = True

    def set_availability_listener(self, listener: Callable[[], None]) -> None:
        """`listener` is called when rows came back or the wait is over."""
        self._listener = listener
        self._queue.set_listener(listener)

    def emit_next(self) -> InputStatus:
        """Emit everything that came back, as one batch; end once nothing came for the waiting time."""
        if not self._announced:
            self._announced = True
            self.output.emit_status(IDLE)
        batches = self._queue.take_all()
        if batches:
            self._stop_waiting()
            self.output.emit(concat_batches(batches))
            return InputStatus.MORE_AVAILABLE
        if (self._stopped or self._waited) and self._queue.end_if_empty():
            return InputStatus.END_OF_INPUT
        if self._wait_ms > 0 and self._timer is None:
            service = self.context.processing_time
            self._timer = service.register(service.now_ms() + self._wait_ms, self._wait_over)
        return InputStatus.NOTHING_AVAILABLE

    def _wait_over(self, _timestamp_ms: int) -> None:
        self._timer = None
        self._waited = True
        self._listener()

    def _stop_waiting(self) -> None:
        self._waited = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self, drain: bool) -> None:
        """End once the queue is empty."""
        self._stopped = True
        self._listener()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Never called: a head has no inputs."""
        raise InternalError("an iteration head has no inputs")

    def close(self) -> None:
        """Forget the timer and the queue."""
        self._stop_waiting()
        super().close()


class IterationTail(_IterationEnd):
    """Hands rows back to the head. Watermarks, statuses and markers end here: they would go round for ever."""

    def __init__(self, factory: IterationTailFactory) -> None:
        super().__init__(factory.iteration_id)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Hand the rows to the head.

        Raises:
            DataError: the head has ended.
        """
        if not self._queue.put(batch):
            raise DataError(
                f"'{self.context.name}': {batch.num_rows} rows came back after the iteration had ended",
                hint="the iteration ends when nothing came back for its waiting time: set a longer one",
            )

    def finish(self) -> None:
        """Tell if the rows went to nobody.

        Raises:
            UnsupportedPlanError: the head was never in this process.
        """
        if not self._queue.has_head and (lost := self._queue.waiting_rows):
            raise UnsupportedPlanError(
                f"'{self.context.name}': {lost} rows were fed back, but the head of the iteration runs in another process",
                hint="an iteration stays within a process: run the job in one",
            )

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        """Ends here."""

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """Ends here."""
