"""Calls on a connection that may never come back: each is made in a thread of the connection's own, and given up after a while.

Client libraries written in C wait for their server without end when it hangs or its network is gone, and nothing can interrupt them
there. So the subtask waits for the answer instead of the call. A call that is given up takes its connection with it: whoever made it
connects anew, and the thread ends when the library comes back, if it ever does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from flowrun.errors import ConnectorError, JobCancelledError

T = TypeVar("T")


class _Call(Generic[T]):
    """A call that is under way: the first result or error that it is given counts."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.function = function
        self.done = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None
        self._lock = threading.Lock()

    def run(self) -> None:
        try:
            self.end(self.function(), None)
        except BaseException as error:  # it is raised where the call was made
            self.end(None, error)

    def end(self, result: T | None, error: BaseException | None) -> None:
        with self._lock:
            if not self.done.is_set():
                self.result, self.error = result, error
                self.done.set()


class PatientCalls:
    """Makes the calls on one connection, one at a time.

    Args:
        name: of the thread.
        silence_s: how long a call may take, s; None: as long as it takes.
        what: the outside system, for messages.
        release: lets go of the connection; runs in the thread, as the last thing it does.
        interrupt: makes a call that is under way come back sooner, if that is possible; must not block.
    """

    def __init__(
        self,
        name: str,
        silence_s: float | None,
        what: str,
        release: Callable[[], None],
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        self._silence_s = silence_s
        self._what = what
        self._release = release
        self._interrupt = interrupt
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._current: _Call[Any] | None = None
        self._lock = threading.Lock()
        self._over = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
        self._release()

    def call(self, function: Callable[[], T]) -> T:
        """What the function gives, which runs in the thread.

        Raises:
            ConnectorError: it took too long; the connection is lost with it.
            JobCancelledError: `cancel` was called in another thread, or the connection is closed.
        """
        call = _Call(function)
        with self._lock:
            if self._over:
                raise self._closed()
            self._current = call
            self._calls.put(call)
        if not call.done.wait(self._silence_s):
            self.cancel()
            raise ConnectorError(
                f"{self._what} did not answer for {self._silence_s:g} s",
                retryable=True,
                hint="check that it runs and can be reached; 'connection.max-retry-timeout' says how long to wait",
            )
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value]  # T may itself be None

    def cancel(self) -> None:
        """Let go of a call that is under way, and make none any more; any thread may call it."""
        with self._lock:
            if self._over:
                return
            self._over = True
            self._calls.put(None)
            call = self._current
        if call is not None and not call.done.is_set():
            self._interrupt()
            call.end(None, self._closed())

    def close(self) -> None:
        """Let go of the connection, and wait until that is done, if no call was given up; idempotent."""
        is_free = self._current is None or self._current.done.is_set()
        if self._over:
            return
        self.cancel()
        if is_free:
            self._thread.join(self._silence_s)

    def _closed(self) -> JobCancelledError:
        return JobCancelledError(f"the connection to {self._what} was closed")
