"""Long payloads between two processes of one machine: through memory that both have mapped, with a short frame that says where.

A socket copies each byte twice, and wakes the reader for every piece of what it can hold. Here who writes copies a payload once, into a
segment that was announced before. The reader makes batches that are views of it, and gives the segment back when the last of
them is gone, wherever they went. Who finds no free segment writes to the socket, so nobody ever waits for one.

Segments have no name in a file system (`memfd_create`), and end with the processes that have mapped them, however those end. The
reader opens them through `/proc`, as it may what belongs to its own user.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from collections import deque
from collections.abc import Sequence
from threading import Lock

import pyarrow as pa

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.network.batches import Piece

SHORTEST_BYTES = 256 << 10
"""Shorter payloads cost less through the socket than a segment that is given back."""

_SMALLEST_BYTES, _LARGEST_BYTES = 1 << 20, 32 << 20
"""Of a segment."""

_MOST_SEGMENTS = 64
"""Of one connection; beyond them payloads go through the socket."""

_MOST_PIECES = 1024
"""Of one call of the system."""

_PROCESS_BYTES = 256 << 20
"""Of all segments that a process writes to."""


@record
class SegmentAnnounced:
    """A segment that the writer has made.

    Attributes:
        number: of the segment on this connection, from 1.
        path: where the reader can open it while the writer keeps it open.
        token: a part of its name, so that nothing else is taken for it.
        size: bytes.
    """

    number: int
    path: str
    token: str
    size: int


@record
class SharedPayload:
    """Where the payload of a frame is: at the start of a segment."""

    segment: int
    size: int


class SegmentBudget:
    """The bytes that the segments of one process take. Thread-safe."""

    def __init__(self, limit: int = _PROCESS_BYTES) -> None:
        self._left = limit
        self._lock = Lock()

    def take(self, size: int) -> bool:
        """Take so many bytes, if they are left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        """They are free again."""
        with self._lock:
            self._left += size


class _Segment:
    """Of the writer. `is_free` says that the reader has mapped it and no payload is in it.

    The first payload is written as to a file, and later ones through the mapping: the system need not clear pages that are written whole,
    which costs more than copying them, and the interpreter lock is free meanwhile.
    """

    def __init__(self, number: int, size: int) -> None:
        token = secrets.token_hex(8)
        self._file = os.memfd_create(f"flowrun-{token}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self._file, size)
            self._buffer = pa.py_buffer(mmap.mmap(self._file, size, mmap.MAP_SHARED))
        except BaseException:
            self.close()
            raise
        self.is_free = False
        self.announced = SegmentAnnounced(number, f"/proc/{os.getpid()}/fd/{self._file}", token, size)

    def write(self, pieces: Sequence[Piece]) -> None:
        """Copy a payload to the start. The reader has opened the segment, so its descriptor is closed after the first.

        Raises:
            OSError: there is no memory for the first payload.
        """
        if self._file >= 0:
            _write_pages(self._file, pieces)
            self.close()
            return
        with pa.FixedSizeBufferWriter(self._buffer) as target:
            for piece in pieces:
                target.write(piece)

    def close(self) -> None:
        """Nobody opens the segment any more; it stays mapped. Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _write_pages(file: int, pieces: Sequence[Piece]) -> None:
    start = 0
    for first in range(0, len(pieces), _MOST_PIECES):
        together = pieces[first : first + _MOST_PIECES]
        written, size = os.pwritev(file, together, start), sum(len(piece) for piece in together)
        if written < size:
            raise OSError(errno.ENOMEM, f"only {written} of {size} bytes were written to shared memory")
        start += size


class SegmentWriter:
    """The segments of one connection, of who writes rows. Thread-safe; `put` and `announce` are called by one thread.

    Args:
        budget: of the process.
    """

    def __init__(self, budget: SegmentBudget) -> None:
        self._budget = budget
        self._segments: dict[int, _Segment] = {}
        self._lock = Lock()
        self._unopened: _Segment | None = None
        """The one that was announced and not answered."""
        self._closed = False

    def put(self, pieces: Sequence[Piece], size: int) -> SharedPayload | None:
        """Copy a payload into a free segment; None if there is none, or the payload is too long or too short for one."""
        if not SHORTEST_BYTES <= size <= _LARGEST_BYTES:
            return None
        with self._lock:
            segment = self._free_segment(size)
            if segment is None:
                return None
            segment.is_free = False
        try:
            segment.write(pieces)
        except OSError:
            segment.is_free = True
            return None
        return SharedPayload(segment.announced.number, size)

    def _free_segment(self, size: int) -> _Segment | None:
        """The smallest free one that holds so many bytes. The caller holds the lock."""
        fitting = [s for s in self._segments.values() if s.is_free and s.announced.size >= size]
        return min(fitting, key=lambda s: s.announced.size, default=None)

    def announce(self, size: int) -> SegmentAnnounced | None:
        """Make a segment for the payload after this one, if no free one would hold it.

        None if there is such a one, if there are enough, if one is not answered yet, or if the system has no such memory.
        """
        if not SHORTEST_BYTES <= size <= _LARGEST_BYTES:
            return None
        capacity = max(_SMALLEST_BYTES, 1 << (size - 1).bit_length())
        with self._lock:
            if self._closed or self._unopened is not None or len(self._segments) >= _MOST_SEGMENTS:
                return None
            if self._free_segment(size) is not None or not self._budget.take(capacity):
                return None
            try:
                segment = _Segment(len(self._segments) + 1, capacity)
            except (OSError, ValueError, AttributeError):  # no memory is left, or the system has no such call
                self._budget.give_back(capacity)
                self._closed = True
                return None
            self._unopened = self._segments[segment.announced.number] = segment
            return segment.announced

    def answered(self, number: int, *, opened: bool) -> None:
        """The reader has mapped a segment, or cannot: then there will be no other.

        Raises:
            ClusterError: it was not announced.
        """
        with self._lock:
            segment, self._unopened = self._unopened, None
            if segment is None or segment.announced.number != number:
                raise ClusterError(f"segment {number} of shared memory was not announced")
            segment.is_free = opened
            if not opened:
                segment.close()
                self._closed = True

    def free(self, number: int) -> None:
        """The reader needs what is in a segment no more.

        Raises:
            ClusterError: nothing was in it.
        """
        with self._lock:
            segment = self._segments.get(number)
            if segment is None or segment.is_free or segment is self._unopened:
                raise ClusterError(f"segment {number} of shared memory is not in use")
            segment.is_free = True

    def close(self) -> None:
        """The connection is over. What the reader has mapped stays there until it needs it no more. Idempotent."""
        with self._lock:
            self._closed, segments = True, list(self._segments.values())
            self._segments = {}
            self._unopened = None
        for segment in segments:
            segment.close()
            self._budget.give_back(segment.announced.size)


class SegmentReader:
    """The segments of one connection, of who reads rows. `map` and `payload` are called by one thread, `take_freed` by any."""

    def __init__(self) -> None:
        self._segments: dict[int, pa.Buffer] = {}
        self._freed: deque[int] = deque()

    def map(self, announced: SegmentAnnounced) -> bool:
        """Map a segment; False if that cannot be done here: the writer is a process that this one may not look at, or is not there."""
        try:
            file = os.open(announced.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            name = os.readlink(f"/proc/self/fd/{file}")
            if f"flowrun-{announced.token}" not in name or os.fstat(file).st_size != announced.size:
                return False
            memory = mmap.mmap(file, announced.size, mmap.MAP_SHARED, mmap.PROT_READ)
        except (OSError, ValueError):
            return False
        finally:
            os.close(file)
        self._segments[announced.number] = pa.py_buffer(memory)
        return True

    def payload(self, place: SharedPayload) -> pa.Buffer:
        """The payload in a segment, which is given back when the buffer and all views of it are gone.

        Raises:
            ClusterError: there is no such place.
        """
        whole = self._segments.get(place.segment)
        if whole is None or not 0 < place.size <= whole.size:
            raise ClusterError(f"there is no payload of {place.size} bytes in segment {place.segment} of shared memory")
        return pa.foreign_buffer(whole.address, place.size, _Lease(whole, place.segment, self._freed))

    def take_freed(self) -> list[int]:
        """The segments that are needed no more, each once."""
        freed = []
        while self._freed:
            try:
                freed.append(self._freed.popleft())
            except IndexError:  # another thread was faster
                break
        return freed


class _Lease:
    """Keeps a segment mapped, and notes when the last view of its payload is gone, on whichever thread that happens. It takes no lock, as
    it may come amid anything.
    """

    __slots__ = ("_freed", "_memory", "_number")

    def __init__(self, memory: pa.Buffer, number: int, freed: deque[int]) -> None:
        self._memory = memory
        self._number = number
        self._freed = freed

    def __del__(self) -> None:
        self._freed.append(self._number)
