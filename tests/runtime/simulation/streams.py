"""Bytes between simulated processes: they come in pieces, after a while, and a connection may be cut in the middle of a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowrun.runtime.rpc.byte_stream import ByteStream
from tests.runtime.simulation.network import Wire
from tests.runtime.simulation.virtual_time import Process

MOST_PIECES = 3
"""In which what is written at a time arrives."""


class NothingThereError(BaseException):
    """A frame is not whole yet. No `Exception`, so that nobody takes it for a failure of the connection."""


class VirtualStream(ByteStream):
    """One end of a connection. Nothing blocks: who reads is called when something has come, and begins anew if it does not suffice.

    Args:
        process: that it is in.
        most_ms: how long bytes take at most.
    """

    def __init__(self, process: Process, most_ms: float) -> None:
        self.other: VirtualStream = self
        self.incoming = Wire(process, most_ms)
        self.process = process
        self._came = bytearray()
        self._position = 0
        self._is_over = False
        self._was_reset = False
        self._read_next: Callable[[], bool] | None = None

    def read_with(self, read_next: Callable[[], bool]) -> None:
        """Have frames read, each by a call of `read_next`, which says whether to go on; those that are there already, too."""
        self._read_next = read_next
        self.process.soon(self._read)

    def reset(self) -> None:
        """The connection breaks, on both sides, wherever it is in a frame: what was on its way is lost."""
        for end in (self, self.other):
            end.incoming.drop()
            end.process.soon(end._break)

    # ---- what flowrun does with it

    def read_into(self, view: memoryview) -> int:
        """As `ByteStream.read_into`."""
        count = min(len(view), len(self._came) - self._position)
        if count < len(view) and not self._is_over:
            raise NothingThereError
        if count < len(view) and self._was_reset:
            raise ConnectionResetError("connection reset by peer")
        view[:count] = self._came[self._position : self._position + count]
        self._position += count
        return count

    def write(self, data: bytes) -> None:
        """As `ByteStream.write`."""
        self.write_nowait([memoryview(data)])

    def write_nowait(self, pieces: Sequence[memoryview]) -> Sequence[memoryview]:
        """As `ByteStream.write_nowait`; the kernel takes everything."""
        if self._is_over:
            raise BrokenPipeError("broken pipe")
        data = b"".join(pieces)
        chance = self.process.time.chance
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(MOST_PIECES)))
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self._send(data[begin:end])
        return ()

    def wait_writable(self, timeout_ms: int) -> bool:
        """As `ByteStream.wait_writable`."""
        return True

    def set_time_limit(self, timeout_ms: int | None) -> None:
        """There is none."""

    def shutdown_writing(self) -> None:
        """As `ByteStream.shutdown_writing`."""
        self.other.incoming.send(self.other._end)

    def shutdown(self) -> None:
        """As `ByteStream.shutdown`."""
        if not self._is_over:
            self._is_over = True
            self.other.incoming.send(self.other._end)
            self.process.soon(self._read)

    def close(self) -> None:
        """As `ByteStream.close`."""
        self.shutdown()

    # ---- what comes

    def _send(self, data: bytes) -> None:
        self.other.incoming.send(lambda: self.other._arrive(data))

    def _arrive(self, data: bytes) -> None:
        if not self._is_over:
            self._came += data
            self._read()

    def _end(self) -> None:
        self._is_over = True
        self._read()

    def _break(self) -> None:
        self._is_over = self._was_reset = True
        self._read()

    def _read(self) -> None:
        while self._read_next is not None:
            read_next, self._read_next = self._read_next, None
            mark = self._position
            try:
                goes_on = read_next()
            except NothingThereError:
                self._position = mark
                self._read_next = read_next
                return
            if goes_on:
                self._read_next = read_next


def stream_pair(one: Process, other: Process, most_ms: float) -> tuple[VirtualStream, VirtualStream]:
    """Both ends of a connection between two processes."""
    ours, theirs = VirtualStream(one, most_ms), VirtualStream(other, most_ms)
    ours.other, theirs.other = theirs, ours
    return ours, theirs
