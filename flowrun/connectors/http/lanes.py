"""Requests in the background: several at a time, and those of one lane one after the other, in their order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from flowrun.connectors.http.client import HttpAnswer, HttpClient, HttpRequest
from flowrun.connectors.http.endpoint import Endpoint
from flowrun.errors import ConnectorError

T = TypeVar("T")
ANY_LANE = -1
"""Of requests whose order does not matter."""

_WAITING = 3
"""How many requests may wait for each one that is under way."""
_LOOK_S = 0.1
"""How often a caller that waits looks whether its subtask was cancelled."""


class ClientThread:
    """An event loop in a thread of its own, with a client. For use by one thread.

    Args:
        endpoint: the server.
        connections: the most at a time.
        most_bytes: of an answer; see `HttpClient`.
        on_attempt: see `HttpClient`.

    Raises:
        SetupError: the client library is not installed.
        ConnectorError: a PEM file cannot be used.
    """

    def __init__(
        self, endpoint: Endpoint, connections: int, most_bytes: int | None, on_attempt: Callable[[bool], None]
    ) -> None:
        self.client = HttpClient(endpoint, connections, most_bytes, on_attempt)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=f"http {endpoint}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(self._end())
            self.loop.close()

    async def _end(self) -> None:
        own = asyncio.current_task()
        await asyncio.gather(*(t for t in asyncio.all_tasks() if t is not own), return_exceptions=True)
        await self.client.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives that runs in the loop; blocks."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """Give up what is under way, and disconnect; idempotent."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    async def send_all(self, requests: Sequence[HttpRequest], at_a_time: int) -> list[HttpAnswer]:
        """The answers to requests, in their order. When one fails the others are given up.

        Raises:
            ConnectorError: one failed.
        """
        answers: list[HttpAnswer | None] = [None] * len(requests)
        left = iter(range(len(requests)))

        async def work() -> None:
            for place in left:
                answers[place] = await self.client.send(requests[place])

        tasks = [asyncio.ensure_future(work()) for _ in range(min(at_a_time, len(requests)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [a for a in answers if a is not None]


class RequestLanes:
    """Sends requests while their sender goes on. For use by one thread.

    Args:
        endpoint: the server.
        at_a_time: how many requests may be under way.
        check: raises JobCancelledError when the subtask that waits here was cancelled.
        on_attempt: told of each attempt whether it is a further one, in another thread.

    Raises:
        SetupError: the client library is not installed.
        ConnectorError: a PEM file cannot be used.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        at_a_time: int,
        check: Callable[[], None] = lambda: None,
        on_attempt: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._at_a_time = at_a_time
        self._check = check
        self._changed = threading.Condition()
        self._open = 0  # requests that were handed over and have not succeeded yet
        self._failure: BaseException | None = None
        # of the loop's thread:
        self._waiting: dict[int, deque[HttpRequest]] = {}
        self._working: dict[int, int] = {}
        self._thread = ClientThread(endpoint, at_a_time, None, on_attempt)

    @property
    def open_requests(self) -> int:
        """How many were handed over and have not succeeded yet."""
        return self._open

    def send(self, lane: int, request: HttpRequest) -> None:
        """Hand over a request; waits while too many are waiting.

        Args:
            lane: 0 ≤ lane < `at_a_time`: those of a lane are never under way at the same time; or ANY_LANE.
            request: to send.

        Raises:
            ConnectorError: an earlier one failed: nothing is sent any more.
            JobCancelledError: the subtask was cancelled.
        """
        self._wait(self._at_a_time * (1 + _WAITING) - 1)
        with self._changed:
            self._open += 1
        self._thread.loop.call_soon_threadsafe(self._take, lane, request)

    def drain(self) -> None:
        """Wait until all have succeeded.

        Raises:
            ConnectorError: one failed.
            JobCancelledError: the subtask was cancelled.
        """
        self._wait(0)

    def raise_failure(self) -> None:
        """Raise what a request failed for, if one has."""
        with self._changed:
            failure = self._failure
        if failure is not None:
            raise failure

    def _wait(self, most: int) -> None:
        while True:
            self.raise_failure()
            with self._changed:
                if self._open <= most:
                    return
                self._changed.wait(_LOOK_S)
            self._check()

    def _take(self, lane: int, request: HttpRequest) -> None:
        if self._failure is not None:
            return
        self._waiting.setdefault(lane, deque()).append(request)
        most = self._at_a_time if lane == ANY_LANE else 1
        if self._working.get(lane, 0) < most:
            self._working[lane] = self._working.get(lane, 0) + 1
            task = self._thread.loop.create_task(self._work(lane))
            task.add_done_callback(self._ended)

    async def _work(self, lane: int) -> None:
        waiting = self._waiting[lane]
        try:
            while waiting and self._failure is None:
                await self._thread.client.send(waiting.popleft())
                with self._changed:
                    self._open -= 1
                    self._changed.notify_all()
        finally:
            self._working[lane] -= 1

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        with self._changed:
            if self._failure is None:
                self._failure = error if isinstance(error, Exception) else ConnectorError(repr(error))
            self._changed.notify_all()

    def close(self) -> None:
        """Give up what is under way, and disconnect; idempotent."""
        self._thread.close()
