"""The writing end of a data connection: sends what subpartitions hold, each channel as far as it has credit.

One thread reads requests, another writes rows: it takes the channels in turn that have something to send, so a slow reader of one of them
holds up no other. What overtakes in a subpartition makes its channel the next one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from flowrun.core.elements import CheckpointBarrier
from flowrun.errors import ClusterError, FlowrunError, PartitionLostError
from flowrun.runtime.network.barriers import overtakes
from flowrun.runtime.network.batches import BatchEncoder, Piece
from flowrun.runtime.network.blocking import StoredPartition
from flowrun.runtime.network.events import encode_event
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.remote.registry import PartitionKey, PartitionRegistry
from flowrun.runtime.network.remote.shared_memory import SegmentAnnounced, SegmentBudget, SegmentWriter, SharedPayload
from flowrun.runtime.network.remote.wire import (
    EVENT,
    SHARED,
    URGENT,
    DataFrames,
    FrameKind,
    Head,
    PartitionRequest,
)
from flowrun.runtime.network.subpartition import Control, Data, SubpartitionView
from flowrun.runtime.rpc.codec import decode, encode
from flowrun.runtime.rpc.error_values import ErrorValue, error_to_value

ROWS_AT_ONCE = 131_072
"""Of one frame, as far as credit allows."""

_log = logging.getLogger(__name__)


class _Channel:
    """A subpartition that is read by the other process. `credit` belongs to the lock of the connection, the rest to its writer thread."""

    __slots__ = ("credit", "encoder", "is_closed", "is_ready", "number", "refusal", "view")

    def __init__(self, number: int, credit: int, encoder: BatchEncoder) -> None:
        self.number = number
        self.credit = credit
        self.view: SubpartitionView | None = None
        self.refusal: Exception | None = None
        """Why there is no view; the reader is to be told."""
        self.encoder = encoder
        self.is_ready = False
        self.is_closed = False


class PartitionSender:
    """Serves one connection, from `start` to its end.

    Args:
        frames: of the connection.
        registry: the partitions of this process.
        on_close: called once when the connection is over.
        lz4: compress rows.
        shared: for memory that the other process can map; None: all rows go through the connection.
    """

    def __init__(
        self,
        frames: DataFrames,
        registry: PartitionRegistry,
        on_close: Callable[[PartitionSender], None],
        *,
        lz4: bool = False,
        shared: SegmentBudget | None = None,
    ) -> None:
        self._frames = frames
        self._registry = registry
        self._on_close = on_close
        self._lz4 = lz4
        self._segments = SegmentWriter(shared) if shared is not None and frames.is_local else None
        self._changed = threading.Condition()
        self._channels: dict[int, _Channel] = {}
        self._ready: deque[_Channel] = deque()
        self._closed = False
        self._threads = [
            threading.Thread(target=work, name=f"flowrun-{name}-{frames.peer}", daemon=True)
            for name, work in (("requests", self._read_all), ("sender", self._send_all))
        ]

    def start(self) -> PartitionSender:
        """Take requests and send rows, on threads, until the connection is over."""
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        """End the connection and give up all views. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            self._ready.clear()
            self._changed.notify_all()
        self._frames.close()
        if self._segments is not None:
            self._segments.close()
        for channel in channels:
            self._release(channel)
        self._on_close(self)

    @property
    def is_alive(self) -> bool:
        """Whether a thread of it is still there."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        """Wait until the threads have ended, after `close`."""
        for thread in self._threads:
            thread.join()

    # ---- requests

    def read_next(self) -> bool:
        """Wait for the next request and take it; False: the connection is over. For one thread."""
        try:
            frame = self._frames.read()
            if frame is not None:
                self._handle(*frame)
                return True
        except FlowrunError as error:
            _log.info("%s", error)
        except Exception:
            _log.exception("what %s sent could not be read", self._frames.peer)
        self.close()
        self._frames.dispose()
        return False

    def _read_all(self) -> None:
        while self.read_next():
            pass

    def _handle(self, head: Head, payload: object) -> None:
        match head.kind:
            case FrameKind.PARTITION_REQUEST:
                self._open(head.channel, decode(memoryview(payload), PartitionRequest))  # type: ignore[arg-type]
            case FrameKind.ADD_CREDIT:
                with self._changed:
                    channel = self._channels.get(head.channel)
                    if channel is not None:
                        channel.credit += head.slots
                if channel is not None:
                    self._wake(channel)
            case FrameKind.CANCEL_PARTITION_REQUEST:
                with self._changed:
                    channel = self._channels.pop(head.channel, None)
                if channel is not None:
                    self._release(channel)
            case FrameKind.SEGMENT_ANSWER if self._segments is not None:
                self._segments.answered(head.channel, opened=bool(head.slots))
            case FrameKind.SEGMENT_FREE if self._segments is not None:
                self._segments.free(head.channel)
            case _:
                raise ClusterError(f"{self._frames.peer} sent a frame of kind {head.kind}, which is not for who writes")

    def _open(self, number: int, request: PartitionRequest) -> None:
        channel = _Channel(number, request.credit, BatchEncoder(lz4=self._lz4))
        with self._changed:
            if self._closed or number in self._channels:
                raise ClusterError(f"{self._frames.peer} asked for channel {number} twice")
            self._channels[number] = channel
        key = PartitionKey(request.job_id, request.partition, request.attempt_id)
        if request.only_files:
            self._opened(channel, request.subpartition, self._registry.stored(key))
        else:
            self._registry.open(key, partial(self._opened, channel, request.subpartition))

    def _opened(
        self, channel: _Channel, subpartition: int, found: ResultPartition | StoredPartition | FlowrunError
    ) -> None:
        if not isinstance(found, FlowrunError):
            try:
                view = found.create_view(
                    subpartition, partial(self._wake, channel), partial(self._wake, channel, urgent=True)
                )
            except PartitionLostError as error:
                found = error
            except Exception as error:
                found = ClusterError(f"partition {found.name} cannot be read: {error}")
            else:
                with self._changed:
                    channel.view = view
                    is_closed = channel.is_closed
                if is_closed:
                    view.release()
                else:
                    self._wake(channel)
                return
        with self._changed:
            channel.refusal = found
        self._wake(channel)  # it is written by the thread that may wait for the reader

    def _release(self, channel: _Channel) -> None:
        with self._changed:
            channel.is_closed = True
            view = channel.view
        if view is not None:
            view.release()

    # ---- rows

    def _wake(self, channel: _Channel, *, urgent: bool = False) -> None:
        """There may be something to send on a channel. Any thread."""
        with self._changed:
            if channel.is_closed or self._closed:
                return
            if urgent:
                if channel.is_ready:
                    self._ready.remove(channel)
                self._ready.appendleft(channel)
            elif channel.is_ready:
                return
            else:
                self._ready.append(channel)
            channel.is_ready = True
            self._changed.notify()

    @property
    def has_ready(self) -> bool:
        """Whether a channel may have something to send."""
        return bool(self._ready)

    def send_next(self) -> bool:
        """Wait until a channel may have something to send, and send that; False: the connection is over. For one thread."""
        with self._changed:
            while not self._ready and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            channel = self._ready.popleft()
            channel.is_ready = False
            view, credit, refusal = channel.view, channel.credit, channel.refusal
        try:
            if refusal is not None:
                self._refuse(channel, refusal)
            elif view is not None:
                self._send_element(channel, view, credit)
        except FlowrunError as error:
            _log.info("%s", error)
            self.close()
        return True

    def _send_all(self) -> None:
        while self.send_next():
            pass

    def _send_element(self, channel: _Channel, view: SubpartitionView, credit: int) -> None:
        try:
            element = view.poll(ROWS_AT_ONCE, credit)
        except Exception as error:
            self._refuse(channel, error)
            return
        match element:
            case None:
                return  # nothing is there, of which the view tells; or no credit is left, which comes with a request
            case Data():
                self._send_rows(channel, element)
            case Control(event=event):
                urgent = isinstance(event, CheckpointBarrier) and overtakes(event.options)
                self._frames.write(
                    FrameKind.BUFFER_RESPONSE,
                    channel.number,
                    [encode_event(event)],
                    flags=EVENT | (URGENT if urgent else 0),
                    sequence=element.sequence,
                    backlog=element.backlog,
                )
        if element.more:
            self._wake(channel)

    def _send_rows(self, channel: _Channel, data: Data) -> None:
        schema = channel.encoder.new_schema(data.batches[0])
        if schema is not None:
            self._frames.write(FrameKind.SCHEMA, channel.number, [schema.serialize()])
        with self._changed:
            channel.credit -= data.slots
        pieces = channel.encoder.payload(data.batches, data.once)
        shared = self._shared(pieces)
        self._frames.write(
            FrameKind.BUFFER_RESPONSE,
            channel.number,
            pieces if shared is None else [encode(shared, SharedPayload)],
            flags=0 if shared is None else SHARED,
            count=len(data.batches),
            sequence=data.sequence,
            backlog=data.backlog,
            slots=data.slots,
        )

    def _shared(self, pieces: Sequence[Piece]) -> SharedPayload | None:
        """Where the payload is in memory that the other process has mapped, if it is there."""
        if self._segments is None:
            return None
        size = sum(len(piece) for piece in pieces)
        place = self._segments.put(pieces, size)
        announced = self._segments.announce(size)
        if announced is not None:
            self._frames.write(FrameKind.SEGMENT, 0, [encode(announced, SegmentAnnounced)])
        return place

    def _refuse(self, channel: _Channel, error: Exception) -> None:
        """Tell the reader that its channel is over."""
        with self._changed:
            self._channels.pop(channel.number, None)
        self._release(channel)
        content = encode(error_to_value(error), ErrorValue)
        try:
            self._frames.write(FrameKind.ERROR_RESPONSE, channel.number, [content])
        except ClusterError as failure:
            _log.info("%s", failure)
            self.close()
