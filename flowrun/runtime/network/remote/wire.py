"""What travels on a data connection: frames with a head of fixed layout. Their names are those of Apache Flink's protocol.

The process that reads has connected, and numbers its channels; the one that writes answers under these numbers.

| kind | way | payload |
|---|---|---|
| `PARTITION_REQUEST` | → writer | a `PartitionRequest` |
| `ADD_CREDIT` | → writer | none: `slots` is the credit that is added |
| `CANCEL_PARTITION_REQUEST` | → writer | none |
| `SCHEMA` | → reader | the columns of the rows that follow, as an Arrow IPC schema |
| `BUFFER_RESPONSE` | → reader | rows, see `network/batches.py`; or an event |
| `ERROR_RESPONSE` | → reader | an error value: the channel is over |
| `SEGMENT` | → reader | a `SegmentAnnounced`: memory that both can map |
| `SEGMENT_ANSWER` | → writer | none: `channel` is the segment, `slots` is 1 if the reader has mapped it |
| `SEGMENT_FREE` | → writer | none: `channel` is a segment whose payload is needed no more |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from threading import Lock

import pyarrow as pa

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.graph.execution_graph import PartitionId
from flowrun.runtime.network.batches import Piece
from flowrun.runtime.rpc.byte_stream import ByteStream
from flowrun.runtime.rpc.frames import FrameWriter

_HEAD = struct.Struct(">BBIIQQII")
"""Kind, flags, count, bytes of the payload, channel, sequence, backlog, slots."""
_MOST_PAYLOAD_BYTES = 1 << 31
"""Of one frame: a single row, or a dictionary, that no cut makes smaller may be large."""
_FIRST_BYTES = 32 << 20
"""So much is allocated when a long frame begins; then as much again as has come."""
_MOST_REQUEST_BYTES = 16 << 20
"""Of requests and credits that may wait for a peer that does not read them."""
_STUCK_MS = 60_000
"""A peer that reads nothing for so long is lost."""


class FrameKind(IntEnum):
    """The first byte of a frame."""

    PARTITION_REQUEST = 1
    ADD_CREDIT = 2
    CANCEL_PARTITION_REQUEST = 3
    SCHEMA = 4
    BUFFER_RESPONSE = 5
    ERROR_RESPONSE = 6
    SEGMENT = 7
    SEGMENT_ANSWER = 8
    SEGMENT_FREE = 9


EVENT = 1
"""Flag of a `BUFFER_RESPONSE`: its payload is an event."""
URGENT = 2
"""Flag: it has overtaken what is queued."""
SHARED = 4
"""Flag of a `BUFFER_RESPONSE`: its payload is a `SharedPayload`, which says where the rows are."""


@record
class PartitionRequest:
    """A channel begins to read.

    Attributes:
        job_id: the run of the job.
        partition: what is read.
        attempt_id: the execution that writes it.
        subpartition: of the partition.
        credit: slots for the first rows.
        only_files: the process that wrote it is gone: its files are to be read.
    """

    job_id: str
    partition: PartitionId
    attempt_id: str
    subpartition: int
    credit: int
    only_files: bool = False


@record
class Head:
    """What stands before the payload of a frame; `count`: how many elements of the channel it is."""

    kind: int
    flags: int
    count: int
    size: int
    channel: int
    sequence: int
    backlog: int
    slots: int


def _head(head: Head) -> memoryview:
    return memoryview(
        _HEAD.pack(head.kind, head.flags, head.count, head.size, head.channel, head.sequence, head.backlog, head.slots)
    )


class RequestWriter:
    """Writes the frames of who reads rows, from any thread, and never waits: they are short, and what the kernel does not take waits.

    Args:
        stream: of the connection.
        peer: the other process, for messages.
        on_failure: is told once why nothing can be written any more, on whichever thread notices.
    """

    def __init__(self, stream: ByteStream, peer: str, on_failure: Callable[[ClusterError], None]) -> None:
        self._writer = FrameWriter(stream, peer, on_failure, most_waiting_bytes=_MOST_REQUEST_BYTES)

    def write(self, kind: FrameKind, channel: int, payload: bytes = b"", slots: int = 0) -> bool:
        """Write a frame; False if the connection is over."""
        head = _head(Head(kind, 0, 1, len(payload), channel, 0, 0, slots))
        return self._writer.write_pieces([head, memoryview(payload)] if payload else [head])

    def close(self) -> None:
        """Write nothing more, and end the connection. Idempotent."""
        self._writer.close()


class DataFrames:
    """Writes and reads the frames of one connection: `write` from one thread, which may wait, `read` from another.

    Args:
        stream: of the connection.
        peer: the other process, for messages.
    """

    def __init__(self, stream: ByteStream, peer: str) -> None:
        self.peer = peer
        self._stream = stream
        self._lock = Lock()
        self._head = memoryview(bytearray(_HEAD.size))

    def write(
        self,
        kind: FrameKind,
        channel: int,
        pieces: Sequence[Piece] = (),
        *,
        flags: int = 0,
        count: int = 1,
        sequence: int = 0,
        backlog: int = 0,
        slots: int = 0,
    ) -> None:
        """Write a frame; waits while the other side does not read.

        Raises:
            ClusterError: the connection failed, or the other side has not read for a minute.
        """
        views = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        size = sum(view.nbytes for view in views)
        if size > _MOST_PAYLOAD_BYTES:
            raise ClusterError(f"rows of {size} bytes that cannot be cut do not fit into a frame to {self.peer}")
        left: Sequence[memoryview] = [_head(Head(kind, flags, count, size, channel, sequence, backlog, slots)), *views]
        try:
            with self._lock:
                while left := self._stream.write_nowait(left):
                    if not self._stream.wait_writable(_STUCK_MS):
                        raise ClusterError(f"{self.peer} has not read what it was sent for {_STUCK_MS // 1000} s")
        except OSError as error:
            raise self._failed(error) from error

    def read(self) -> tuple[Head, pa.Buffer] | None:
        """The next frame, its payload in a buffer of its own; None if the other side closed the connection between two frames.

        Raises:
            ClusterError: the connection was cut within a frame or failed, or what came is no frame.
        """
        try:
            came = self._stream.read_into(self._head)
            if came == 0:
                return None
            if came < _HEAD.size:
                raise self._cut()
            kind, flags, count, size, channel, sequence, backlog, slots = _HEAD.unpack(self._head)
            if size > _MOST_PAYLOAD_BYTES:
                raise ClusterError(f"{self.peer} announces {size} bytes in one frame: it does not speak this protocol")
            payload = self._payload(size)
        except OSError as error:
            raise self._failed(error) from error
        return Head(kind, flags, count, size, channel, sequence, backlog, slots), payload

    @property
    def is_local(self) -> bool:
        """Whether both ends are on one machine for certain, and what is sent is not encrypted: it is a Unix socket."""
        return self._stream.is_unix_socket

    def requests(self, on_failure: Callable[[ClusterError], None]) -> RequestWriter:
        """What writes instead of `write` at the end that reads rows."""
        return RequestWriter(self._stream, self.peer, on_failure)

    def _payload(self, size: int) -> pa.Buffer:
        """The payload of a frame. Memory for a long one is taken as its bytes come: a length alone costs nothing."""
        payload, filled = pa.allocate_buffer(min(size, _FIRST_BYTES), resizable=size > _FIRST_BYTES), 0
        while True:
            with memoryview(payload).cast("B") as view:
                filled += self._stream.read_into(view[filled:])
            if filled < payload.size:
                raise self._cut()
            if filled == size:
                return payload
            payload.resize(min(2 * filled, size))

    def close(self) -> None:
        """End the connection, also under threads that read or write. Idempotent."""
        self._stream.shutdown()

    def dispose(self) -> None:
        """Give the connection's number back, once nobody reads any more: who still writes gets an error."""
        self._stream.close()

    def _cut(self) -> ClusterError:
        return ClusterError(f"the connection to {self.peer} was cut within a frame")

    def _failed(self, error: OSError) -> ClusterError:
        return ClusterError(f"the connection to {self.peer} failed: {error.strerror or error}")
