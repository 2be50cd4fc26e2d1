"""How a lookup join asks the outside table: with retries, in the subtask's thread or in threads of its own."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from flowrun.api.lookup import FoundRows, Lookup, LookupContext, LookupSource
from flowrun.api.operator import OperatorContext
from flowrun.errors import ConnectorError
from flowrun.operators.connector_errors import named

CONCURRENT_LOOKUPS = 4
_FIRST_RETRY_MS = 1_000


class LookupCalls:
    """The open table of one subtask.

    Args:
        source: the table.
        context: of the operator.
        place: for messages, e.g. `lookup in 'users'`.
        max_retries: further attempts after a retryable failure, 1 s, 2 s, … after the one before.
        concurrent: whether `submit` is used: there are several lookups then, each with a thread that uses it alone.
    """

    def __init__(
        self, source: LookupSource, context: OperatorContext, place: str, max_retries: int, *, concurrent: bool
    ) -> None:
        self._context = context
        self._place = place
        self._max_retries = max_retries
        self._idle: queue.SimpleQueue[Lookup] = queue.SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        about = LookupContext(context.subtask, context.parallelism, context.clock, context.metrics)
        with named(place):
            self._lookups = [source.create_lookup(about) for _ in range(CONCURRENT_LOOKUPS if concurrent else 1)]
        if concurrent:
            self._pool = ThreadPoolExecutor(CONCURRENT_LOOKUPS, thread_name_prefix=f"lookup {context.name}")

    def open(self) -> None:
        """Connect. Raises ConnectorError."""
        for lookup in self._lookups:
            with named(self._place):
                lookup.open()
            self._idle.put(lookup)

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """Ask now, and again after retryable failures.

        Raises:
            ConnectorError: the last attempt failed.
        """
        attempt = 0
        while True:
            try:
                return self._ask(keys)
            except ConnectorError as error:
                if not error.retryable or attempt == self._max_retries:
                    raise
            attempt += 1
            self._context.metrics.counter("lookupRetries").inc()
            self._context.pause(_FIRST_RETRY_MS * attempt)

    def submit(self, keys: pa.RecordBatch, done: Callable[[], None]) -> Future[FoundRows]:
        """Ask once in another thread; `done` is called there afterwards."""
        assert self._pool is not None
        future = self._pool.submit(self._ask, keys)
        future.add_done_callback(lambda _: done())
        return future

    def result(self, future: Future[FoundRows], keys: pa.RecordBatch) -> FoundRows:
        """Wait for what was submitted; after a retryable failure ask again here.

        Raises:
            ConnectorError: the last attempt failed.
        """
        error = future.exception()
        if isinstance(error, ConnectorError) and error.retryable and self._max_retries > 0:
            return self.find(keys)
        return future.result()

    def _ask(self, keys: pa.RecordBatch) -> FoundRows:
        lookup = self._idle.get()
        try:
            with named(self._place):
                return lookup.find(keys)
        finally:
            self._idle.put(lookup)

    def close(self) -> None:
        """Wait for what is under way, then disconnect."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for lookup in self._lookups:
            lookup.close()
