"""The bytes of a connection, encrypted or not: what frames and handshakes are written to and read from."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

_MOST_PIECES = 256
"""So many go out with one call; the kernel's own limit (IOV_MAX) is 1024."""


class NotTrustedError(ConnectionError):
    """One side has no certificate that the other one trusts: trying again does not help."""


class ByteStream(Protocol):
    """A connection as bytes. One thread may read while others write (each write under the writers' own lock)."""

    @property
    def is_unix_socket(self) -> bool:
        """Whether both ends are on one machine for certain, and nothing is encrypted."""
        ...

    def read_into(self, view: memoryview) -> int:
        """Fill the buffer; gives its size, or how many bytes came before the other side closed the connection.

        Raises:
            OSError: the connection failed, or the time limit was reached (`TimeoutError`).
        """
        ...

    def write(self, data: bytes) -> None:
        """Write all of it; blocks. For handshakes, before anything else is written.

        Raises:
            OSError: as for `read_into`.
        """
        ...

    def write_nowait(self, pieces: Sequence[memoryview]) -> Sequence[memoryview]:
        """Write as much as the kernel takes without waiting; gives what is left, nothing if all went out. It is to be written next.

        Raises:
            OSError: the connection failed.
        """
        ...

    def wait_writable(self, timeout_ms: int) -> bool:
        """Wait until the kernel takes bytes again, or has an error to tell; False if neither happens in time."""
        ...

    def set_time_limit(self, timeout_ms: int | None) -> None:
        """Have reading and blocking writes fail when so much time has passed from now on, however many calls it takes; None: never."""
        ...

    def shutdown_writing(self) -> None:
        """Write no more; what the other side has written can still be read. Harmless if it has ended."""
        ...

    def shutdown(self) -> None:
        """End the connection; wakes the reader, which gets nothing more. Idempotent, from any thread."""
        ...

    def close(self) -> None:
        """End the connection and give its number back to the system. Idempotent. Only once nobody reads or writes any more: another
        connection may get the number at once.
        """
        ...


class TimeLimit:
    """When something must be over, by the machine's monotonic clock, as sockets know no other."""

    def __init__(self) -> None:
        self._until_s: float | None = None

    def set(self, timeout_ms: int | None) -> None:
        """From now on, in so many ms; None: never."""
        self._until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    def left_s(self) -> float | None:
        """Seconds, None without a limit.

        Raises:
            TimeoutError: it is reached.
        """
        if self._until_s is None:
            return None
        left = self._until_s - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left


class SocketStream:
    """A connection that is not encrypted."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._limit = TimeLimit()
        self._limited = False

    @property
    def is_unix_socket(self) -> bool:
        """As `ByteStream.is_unix_socket`."""
        return self.socket.family == socket.AF_UNIX

    def read_into(self, view: memoryview) -> int:
        """As `ByteStream.read_into`."""
        filled = 0
        while filled < len(view):
            self._apply_limit()
            came = self.socket.recv_into(view[filled:], 0, 0 if self._limited else socket.MSG_WAITALL)
            if came == 0:
                break
            filled += came
        return filled

    def read_some(self, view: memoryview) -> int:
        """Wait for bytes, and put as many into the buffer as there are; gives their number, 0 at the end. Raises as `read_into`."""
        self._apply_limit()
        return self.socket.recv_into(view)

    def write(self, data: bytes) -> None:
        """As `ByteStream.write`."""
        self._apply_limit()
        self.socket.sendall(data)

    def write_nowait(self, pieces: Sequence[memoryview]) -> Sequence[memoryview]:
        """As `ByteStream.write_nowait`."""
        left = list(pieces)
        while left:
            try:
                sent = self.socket.sendmsg(left[:_MOST_PIECES], (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            left = without_first(left, sent)
        return left

    def wait_writable(self, timeout_ms: int) -> bool:
        """As `ByteStream.wait_writable`."""
        return wait_for(self.socket, select.POLLOUT, timeout_ms)

    def set_time_limit(self, timeout_ms: int | None) -> None:
        """As `ByteStream.set_time_limit`."""
        self._limit.set(timeout_ms)
        self._limited = timeout_ms is not None
        if not self._limited:
            self.socket.settimeout(None)

    def shutdown_writing(self) -> None:
        """As `ByteStream.shutdown_writing`."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def shutdown(self) -> None:
        """As `ByteStream.shutdown`."""
        shut_down(self.socket)

    def close(self) -> None:
        """As `ByteStream.close`."""
        shut_down(self.socket)
        self.socket.close()

    def _apply_limit(self) -> None:
        if self._limited:
            self.socket.settimeout(self._limit.left_s())


def without_first(pieces: Sequence[memoryview], count: int) -> list[memoryview]:
    """The pieces without their first `count` bytes.

    >>> [bytes(piece) for piece in without_first([memoryview(b"abc"), memoryview(b"de")], 4)]
    [b'e']
    """
    for position, piece in enumerate(pieces):
        if count < piece.nbytes:
            return [piece[count:], *pieces[position + 1 :]]
        count -= piece.nbytes
    return []


def wait_for(connected: socket.socket, event: int, timeout_ms: int | None) -> bool:
    """Wait for an event of `select.poll`, or for an error, which the next call on the socket then tells; False on time-out."""
    number = connected.fileno()
    if number < 0:
        raise OSError("the connection is closed")
    poll = select.poll()
    poll.register(number, event)
    return bool(poll.poll(timeout_ms))


def shut_down(connected: socket.socket) -> None:
    """End a connection, also under a thread that waits for its bytes. Harmless if it has ended."""
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
