"""The reading end of a data connection: channels of gates whose producers run in another process.

One thread reads frames and puts what came into the queue of its channel, where the gate's task finds it. A channel gives its sender credit
for the slots that it has: its exclusive ones, and floating ones for the backlog that the sender announces.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointBarrier, Event, Watermark, WatermarkStatus
from flowrun.core.record import record
from flowrun.errors import ClusterError, FlowrunError, InternalError
from flowrun.runtime.network.barriers import as_unaligned, overtaking_time_ms
from flowrun.runtime.network.batches import BatchDecoder
from flowrun.runtime.network.credit import ChannelCredit
from flowrun.runtime.network.events import decode_event
from flowrun.runtime.network.remote.shared_memory import SegmentAnnounced, SegmentReader, SharedPayload
from flowrun.runtime.network.remote.wire import (
    EVENT,
    SHARED,
    URGENT,
    DataFrames,
    FrameKind,
    Head,
    PartitionRequest,
)
from flowrun.runtime.network.subpartition import Control, Data, InFlightElement
from flowrun.runtime.rpc.codec import decode, encode
from flowrun.runtime.rpc.error_values import ErrorValue, error_from_value
from flowrun.runtime.timers import Timer, TimerThread

_log = logging.getLogger(__name__)

GRACE_MS = 500
"""How long the channels of a connection that has ended wait before they fail."""


class DataConnection:
    """The channels that this process reads from one other, from `start` on. Thread-safe.

    Args:
        frames: of the connection.
        on_close: called once when the connection is over.
    """

    def __init__(self, frames: DataFrames, on_close: Callable[[DataConnection], None]) -> None:
        self._frames = frames
        self._requests = frames.requests(self._fail)
        self._on_close = on_close
        self._lock = threading.Lock()
        self._channels: dict[int, RemoteInputChannel] = {}
        self._numbers = itertools.count(1)
        self._failure: ClusterError | None = None
        self._segments = SegmentReader()
        self._thread = threading.Thread(target=self._read_all, name=f"flowrun-receiver-{frames.peer}", daemon=True)

    def start(self) -> DataConnection:
        """Read what comes, on a thread, until the connection is over."""
        self._thread.start()
        return self

    @property
    def peer(self) -> str:
        """The other process, for messages."""
        return self._frames.peer

    def register(self, channel: RemoteInputChannel) -> int:
        """The number of a channel on this connection, from now on.

        Raises:
            ClusterError: the connection is over.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            number = next(self._numbers)
            self._channels[number] = channel
        return number

    def request(self, number: int, request: PartitionRequest) -> None:
        """Ask for the subpartition of a channel that knows its number: the answer may come at once. Raises ClusterError as `register`."""
        if not self._requests.write(FrameKind.PARTITION_REQUEST, number, encode(request, PartitionRequest)):
            raise self._over()

    def add_credit(self, number: int, slots: int) -> None:
        """The sender may send so much more. Raises ClusterError: the connection is over."""
        self._give_back_segments()
        if not self._requests.write(FrameKind.ADD_CREDIT, number, slots=slots):
            raise self._over()

    def _give_back_segments(self) -> None:
        for segment in self._segments.take_freed():
            self._requests.write(FrameKind.SEGMENT_FREE, segment)

    def cancel(self, number: int) -> None:
        """A channel is read no more. Does nothing once the connection is over."""
        with self._lock:
            known = self._channels.pop(number, None) is not None and self._failure is None
        if known:
            self._requests.write(FrameKind.CANCEL_PARTITION_REQUEST, number)

    def close(self) -> None:
        """End the connection; its channels fail. Idempotent."""
        self._fail(ClusterError(f"the connection to {self.peer} was closed"))

    @property
    def is_alive(self) -> bool:
        """Whether its thread is still there."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait until the thread has ended, after `close`."""
        self._thread.join()

    def read_next(self) -> bool:
        """Wait for the next frame and give it to its channel; False: the connection is over, as its channels are told. For one thread."""
        try:
            frame = self._frames.read()
            if frame is not None:
                self._handle(*frame)
                del frame
                self._give_back_segments()
                return True
            failure = ClusterError(f"{self.peer} closed the connection")
        except FlowrunError as error:
            failure = error if isinstance(error, ClusterError) else ClusterError(str(error))
        except Exception as error:  # no channel may wait for a connection that nobody reads
            _log.exception("what %s sent could not be read", self.peer)
            failure = ClusterError(f"what {self.peer} sent could not be read: {error}")
        self._fail(failure)
        self._frames.dispose()
        return False

    def _read_all(self) -> None:
        while self.read_next():
            pass

    def _handle(self, head: Head, payload: pa.Buffer) -> None:
        if head.kind == FrameKind.SEGMENT:
            announced = decode(memoryview(payload), SegmentAnnounced)
            opened = self._segments.map(announced)
            self._requests.write(FrameKind.SEGMENT_ANSWER, announced.number, slots=int(opened))
            return
        if head.flags & SHARED:
            payload = self._segments.payload(decode(memoryview(payload), SharedPayload))
        with self._lock:
            channel = self._channels.get(head.channel)
        if channel is None:
            return  # it was cancelled while this was on its way
        match head.kind:
            case FrameKind.BUFFER_RESPONSE:
                channel.receive(head, payload)
            case FrameKind.SCHEMA:
                channel.receive_schema(payload)
            case FrameKind.ERROR_RESPONSE:
                error = error_from_value(decode(memoryview(payload), ErrorValue))
                with self._lock:
                    self._channels.pop(head.channel, None)
                channel.fail(error)
            case _:
                raise ClusterError(f"{self.peer} sent a frame of kind {head.kind}, which is not for who reads")

    def _over(self) -> ClusterError:
        return self._failure or ClusterError(f"the connection to {self.peer} is over")

    def _fail(self, failure: ClusterError) -> None:
        """The connection is over. Its channels fail a moment later: if the other process died, the job master hears of that first,
        and names it as the cause.
        """
        with self._lock:
            if self._failure is not None:
                return
            self._failure = failure
            channels = list(self._channels.values())
            self._channels.clear()
        self._requests.close()
        for channel in channels:
            channel.fail_later(failure)
        self._on_close(self)


@record
class ChannelOrigin:
    """What a remote channel reads: `producer` is how messages call who writes it."""

    producer: str
    request: PartitionRequest


class RemoteInputChannel:
    """A channel whose producer runs in another process. `receive…` and `fail` come from the connection's thread, the rest from the task's.

    Args:
        origin: what it reads.
        connect: gives the connection to the producer's process; may block.
        credit: slots for what it receives.
        timers: of the process.
        clock: of the process.
    """

    def __init__(
        self,
        origin: ChannelOrigin,
        connect: Callable[[], DataConnection],
        credit: ChannelCredit,
        timers: TimerThread,
        clock: Clock,
    ) -> None:
        self._origin = origin
        self._connect = connect
        self._credit = credit
        self._timers = timers
        self._clock = clock
        self._decoder = BatchDecoder()
        self._connection: DataConnection | None = None
        self._number = 0
        self._lock = threading.Lock()
        self._queue: deque[Data | Control] = deque()
        self._waiting_slots = 0
        """Of rows in the queue."""
        self._backlog = 0
        self._expected = 0
        self._is_armed = False
        self._failure: BaseException | None = None
        self._is_released = False
        self._timer: Timer | None = None
        self._listener: Callable[[], None] = lambda: None
        self._urgent: Callable[[], None] = lambda: None

    def request(self, listener: Callable[[], None], urgent: Callable[[], None]) -> None:
        """Connect, and ask for the subpartition.

        Raises:
            ClusterError: the other process does not answer.
        """
        self._listener, self._urgent = listener, urgent
        with self._lock:
            promised = self._credit.promise(0)
            self._is_armed = True
        self._connection = self._connect()
        self._number = self._connection.register(self)
        self._connection.request(self._number, replace(self._origin.request, credit=promised))

    @property
    def holds_rows(self) -> bool:
        """Whether rows have come."""
        with self._lock:
            return any(isinstance(element, Data) for element in self._queue)

    def poll(self, max_rows: int) -> Data | Control | None:
        """What comes next. Rows that came before a failure are given first.

        Raises:
            ClusterError: the producer's process is gone, or the connection to it.
        """
        with self._lock:
            if not self._queue:
                if self._failure is not None:
                    raise self._lost(self._failure)
                self._is_armed = True
                return None
            element = self._queue.popleft()
            more = bool(self._queue) or self._failure is not None
            if isinstance(element, Control):
                self._is_armed = not more
                return replace(element, more=more)
            batches, slots, rows = list(element.batches), element.slots, sum(b.num_rows for b in element.batches)
            while self._queue and rows < max_rows:
                following = self._queue[0]
                if not isinstance(following, Data):
                    break
                rows += sum(b.num_rows for b in following.batches)
                if rows > max_rows:
                    break
                self._queue.popleft()
                batches += following.batches
                slots += following.slots
            self._waiting_slots -= slots
            more = bool(self._queue) or self._failure is not None
            self._is_armed = not more
            return Data(batches, element.sequence, self._backlog, more, slots)

    def recycle(self) -> None:
        """All rows that `poll` gave were processed: their slots are free for more."""
        with self._lock:
            self._credit.recycle(self._waiting_slots)
            added = self._credit_to_add()
        self._add(added)

    def release(self) -> None:
        """Read no more. Idempotent."""
        with self._lock:
            if self._is_released:
                return
            self._is_released = True
            self._queue.clear()
            self._waiting_slots = 0
            self._credit.release()
            timer = self._timer
        if timer is not None:
            timer.cancel()
        if self._connection is not None:
            self._connection.cancel(self._number)

    # ---- what the connection calls

    def receive_schema(self, payload: pa.Buffer) -> None:
        """The columns of the rows that follow."""
        self._decoder.set_schema(payload)

    def receive(self, head: Head, payload: pa.Buffer) -> None:
        """Rows, or an event."""
        if head.flags & EVENT:
            self._receive_event(decode_event(memoryview(payload)), head)
            return
        batches = self._decoder.batches(payload)
        with self._lock:
            self._check_sequence(head)
            self._expected = head.sequence + head.count
            if self._is_released:
                return
            self._queue.append(Data(batches, head.sequence, head.backlog, more=False, slots=head.slots))
            self._waiting_slots += head.slots
            self._backlog = head.backlog
            self._credit.receive_promised(head.slots)
            added = self._credit_to_add()
            tells, self._is_armed = self._is_armed, False
        self._add(added)
        if tells:
            self._listener()

    def fail(self, error: BaseException) -> None:
        """Nothing more comes."""
        with self._lock:
            if self._is_released or self._failure is not None:
                return
            self._failure = error
        self._listener()

    def fail_later(self, error: BaseException) -> None:
        """As `fail`, after `GRACE_MS`."""
        self._timers.after(GRACE_MS, lambda: self.fail(error))

    def _receive_event(self, event: Event, head: Head) -> None:
        with self._lock:
            self._check_sequence(head)
            self._expected = head.sequence + 1
            if self._is_released:
                return
            control = Control(event, head.sequence, head.backlog, more=False)
            if head.flags & URGENT:
                self._put_first(control)
                tell = self._urgent
            else:
                if self._queue and isinstance(event, CheckpointBarrier):
                    self._watch(event)
                self._queue.append(control)
                tells, self._is_armed = self._is_armed, False
                tell = self._listener if tells else _nobody
        tell()

    def _watch(self, barrier: CheckpointBarrier) -> None:
        """A barrier waits behind rows: it overtakes them when its time is up."""
        due = overtaking_time_ms(barrier)
        if due is not None:
            wait_ms = max(due - self._clock.now_ms(), 0)
            self._timer = self._timers.after(wait_ms, lambda: self._overtake(barrier.checkpoint_id))

    def _overtake(self, checkpoint_id: int) -> None:
        with self._lock:
            place = next(
                (
                    i
                    for i, e in enumerate(self._queue)
                    if isinstance(e, Control)
                    and isinstance(e.event, CheckpointBarrier)
                    and e.event.checkpoint_id == checkpoint_id
                ),
                None,
            )
            if place is None or self._is_released:
                return
            control = self._queue[place]
            assert isinstance(control, Control)
            assert isinstance(control.event, CheckpointBarrier)
            behind = [self._queue.pop() for _ in range(len(self._queue) - place - 1)]
            self._queue.pop()
            self._put_first(replace(control, event=as_unaligned(control.event)))
            self._queue.extend(reversed(behind))
        self._urgent()

    def _put_first(self, control: Control) -> None:
        """Put a barrier before everything that is queued: that is in flight, and part of its checkpoint."""
        overtaken: list[InFlightElement] = []
        for element in self._queue:
            if isinstance(element, Data):
                for batch in element.batches:
                    overtaken += batch.pieces()
            elif isinstance(element.event, Watermark | WatermarkStatus):
                overtaken.append(element.event)
        self._queue.appendleft(replace(control, overtaken=tuple(overtaken)))

    def _credit_to_add(self) -> int:
        """Slots that the sender may fill beside those that it knows of."""
        return 0 if self._is_released else self._credit.promise(self._backlog)

    def _add(self, slots: int) -> None:
        if slots and self._connection is not None and self._failure is None:
            try:
                self._connection.add_credit(self._number, slots)
            except ClusterError as error:
                self.fail(error)

    def _check_sequence(self, head: Head) -> None:
        if head.sequence != self._expected:
            raise InternalError(
                f"channel {self._origin.producer}: expected element {self._expected}, got {head.sequence}"
            )

    def _lost(self, failure: BaseException) -> ClusterError:
        if isinstance(failure, FlowrunError) and not isinstance(failure, ClusterError):
            raise failure
        lost = ClusterError(f"rows of {self._origin.producer} come no more: {failure}")
        lost.__cause__ = failure
        return lost


def _nobody() -> None:
    pass
