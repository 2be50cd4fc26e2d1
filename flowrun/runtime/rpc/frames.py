"""Frames: how what is said over a connection is cut into pieces, each with its length before it.

A frame is four bytes, the length of its content in network order, and the content. Nothing else is between two frames, so a connection
that ends elsewhere was cut. Contents are not copied, neither when they are written (many pieces go out with one call) nor when they are
read (into the one buffer that the reader gets).
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from flowrun.core.clock import Clock, SystemClock
from flowrun.errors import ClusterError
from flowrun.runtime.rpc.byte_stream import ByteStream

CONTROL_FRAME_BYTES = 64 << 20
"""The longest frame between endpoints: deployments carry operator state."""
MOST_WAITING_BYTES = 256 << 20
"""What may wait for a peer that does not read; with more it counts as lost."""

Piece: TypeAlias = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">I")
_FIRST_BYTES = 1 << 20
"""So much is allocated when a long frame begins; then as much again as has come. A length alone costs nothing."""
_POLL_MS = 500


class FrameReader:
    """Reads the frames of one connection. For one thread."""

    def __init__(self, stream: ByteStream, peer: str, limit_bytes: int = CONTROL_FRAME_BYTES) -> None:
        self._stream = stream
        self._peer = peer
        self._limit_bytes = limit_bytes
        self._head = memoryview(bytearray(_LENGTH.size))

    def read(self) -> memoryview | None:
        """The content of the next frame, in a buffer of its own; None if the peer closed the connection after a whole frame.

        Blocks until the frame is there.

        Raises:
            ClusterError: the connection was cut within a frame or failed, or a frame is longer than the limit.
        """
        try:
            came = self._stream.read_into(self._head)
            if came == 0:
                return None
            if came < _LENGTH.size:
                raise self._cut(came, _LENGTH.size)
            (length,) = _LENGTH.unpack(self._head)
            if length > self._limit_bytes:
                raise ClusterError(
                    f"{self._peer} announces a frame of {length} bytes; the limit is {self._limit_bytes}: it does not speak this protocol"
                )
            return self._content(length)
        except OSError as error:
            raise ClusterError(f"the connection to {self._peer} failed: {error.strerror or error}") from error

    def _content(self, length: int) -> memoryview:
        content = bytearray(min(length, _FIRST_BYTES))
        filled = 0
        while True:
            with memoryview(content) as whole:
                came = self._stream.read_into(whole[filled:])
            filled += came
            if filled < len(content):
                raise self._cut(filled, length)
            if filled == length:
                return memoryview(content)
            content.extend(bytes(min(filled, length - filled)))

    def _cut(self, came: int, length: int) -> ClusterError:
        return ClusterError(f"the connection to {self._peer} was cut within a frame: {came} of {length} bytes came")


class FrameWriter:
    """Writes the frames of one connection, from any thread, and never blocks.

    What the kernel takes at once goes out on the caller's thread. What it does not take waits, in order, for a thread that writes it and
    ends when nothing waits any more. So a peer that stopped reading holds up nobody; once too much waits for it, `on_failure` is told.

    `on_failure` gets the reason, once, on whichever thread notices, without any lock; nothing is written afterwards.
    """

    def __init__(
        self,
        stream: ByteStream,
        peer: str,
        on_failure: Callable[[ClusterError], None],
        *,
        limit_bytes: int = CONTROL_FRAME_BYTES,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._stream = stream
        self._peer = peer
        self._on_failure = on_failure
        self._limit_bytes = limit_bytes
        self._most_waiting_bytes = most_waiting_bytes
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._writing = False
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """What was written and the kernel has not taken yet."""
        return self._waiting_bytes

    def write(self, *pieces: Piece) -> bool:
        """Write one frame, whose content is the pieces, which must not change afterwards; False if the connection is closed.

        Raises:
            ClusterError: the frame is longer than the limit; the connection is as it was.
        """
        content = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        length = sum(piece.nbytes for piece in content)
        if length > self._limit_bytes:
            raise ClusterError(
                f"a message of {length} bytes is too long for {self._peer}; the limit is {self._limit_bytes}"
            )
        return self.write_pieces([memoryview(_LENGTH.pack(length)), *content])

    def write_pieces(self, frame: Sequence[memoryview]) -> bool:
        """Write bytes that are a frame of another form; False if the connection is closed."""
        failure: ClusterError | None = None
        with self._changed:
            if self._closed:
                return False
            try:
                left = frame if self._waiting else self._stream.write_nowait(frame)
            except OSError as error:
                failure = self._failed(error)
            else:
                if left:
                    failure = self._queue(left)
        if failure is not None:
            self._on_failure(failure)
        return failure is None

    def flush(self, timeout_ms: int) -> bool:
        """Wait until the kernel has taken everything; False if it has not in time."""
        until = self._clock.monotonic_ns() + timeout_ms * 1_000_000
        with self._changed:
            while self._waiting and not self._closed:
                left_ms = (until - self._clock.monotonic_ns()) / 1e6
                if left_ms <= 0:
                    return False
                self._clock.wait(self._changed, left_ms)
            return not self._waiting

    def close(self) -> None:
        """Write nothing more, forget what waits, and end the connection, whose number is the owner's to give back. Idempotent."""
        with self._changed:
            self._close()
            thread = self._thread
        self._stream.shutdown()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._waiting_bytes = 0
        self._changed.notify_all()

    def _failed(self, error: OSError) -> ClusterError:
        self._close()
        failure = ClusterError(f"the connection to {self._peer} failed: {error.strerror or error}")
        failure.__cause__ = error
        return failure

    def _queue(self, left: Sequence[memoryview]) -> ClusterError | None:
        self._waiting.extend(left)
        self._waiting_bytes += sum(piece.nbytes for piece in left)
        if self._waiting_bytes > self._most_waiting_bytes:
            reason = f"{self._peer} does not read: {self._waiting_bytes} bytes wait for it"
            self._close()
            return ClusterError(reason)
        if not self._writing:
            self._writing = True
            self._thread = threading.Thread(
                target=self._write_waiting, name=f"flowrun-writer-{self._peer}", daemon=True
            )
            self._thread.start()
        return None

    def _write_waiting(self) -> None:
        """Write what waits; the lock is not held while the kernel has no room."""
        while True:
            with suppress(OSError):  # closed meanwhile: the next attempt says so
                self._stream.wait_writable(_POLL_MS)
            with self._changed:
                try:
                    self._write_some()
                except OSError as error:
                    failure: ClusterError | None = self._failed(error)
                else:
                    failure = None
                if not self._waiting:
                    self._writing = False
                    self._changed.notify_all()
                    break
        if failure is not None:
            self._on_failure(failure)

    def _write_some(self) -> None:
        pieces = list(self._waiting)
        if not pieces:
            return
        left = self._stream.write_nowait(pieces)
        self._waiting.clear()
        self._waiting.extend(left)
        self._waiting_bytes = sum(piece.nbytes for piece in left)
