"""Reads the chunks of a table by several connections at the same time, each in a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from flowrun.connectors.postgres_cdc.chunks import Chunk, joined
from flowrun.core.elements import RecordBatch

ReadChunks = Callable[
    [Callable[[], "Chunk | None"], Callable[[], bool]], Iterator["tuple[Chunk, pa.RecordBatch | None]"]
]
"""(gives the next chunk, whether nobody wants the rows any more) → rows of the chunks, and None behind the last ones of each."""
_MOST_CONNECTIONS = 16


class ParallelChunks:
    """Hands out chunks to readers, and knows which of them are left.

    Args:
        chunks: all that is to be read.
        read: reads chunks by one connection; is called in several threads.
        give: takes rows, and what is left behind them. Calls come one after the other, from several threads; each may wait.
        is_stopped: whether nobody wants the rows any more.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        read: ReadChunks,
        give: Callable[[RecordBatch | None, tuple[Chunk, ...]], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._waiting = deque(chunks)
        self._unread = list(chunks)
        self._left = joined(chunks)
        self._read = read
        self._give = give
        self._is_stopped = is_stopped
        self._lock = threading.Lock()
        self._errors: list[Exception] = []

    def read(self, connections: int) -> None:
        """Read them all, by so many connections at most. Raises what the first reader that failed has raised."""
        number = max(1, min(connections, len(self._waiting), _MOST_CONNECTIONS))
        threads = [threading.Thread(target=self._run, name=f"flowrun-cdc-rows-{n}", daemon=True) for n in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        try:
            for chunk, rows in self._read(self._next, lambda: self._is_stopped() or bool(self._errors)):
                with self._lock:  # what is left is told in the order in which rows are given
                    if rows is None:
                        self._unread.remove(chunk)
                        self._left = joined(self._unread)
                    self._give(None if rows is None else RecordBatch(rows), self._left)
        except Exception as error:
            self._errors.append(error)

    def _next(self) -> Chunk | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None
