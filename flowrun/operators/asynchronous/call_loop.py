"""The event loop of one subtask: a thread of its own in which users' coroutines run."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_POLL_S = 0.02
_CLOSE_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Call:
    """One call of a user's method.

    Attributes:
        invoke: makes it; gives a result, a coroutine or an asynchronous generator.
        subject: whom the caller makes it for.
        returned: what came of it; iterables that are no sequences are drawn into lists.
        error: what it raised.
        is_abandoned: nobody waits for it any more.
    """

    invoke: Callable[[], Any]
    subject: Any = None
    returned: Any = None
    error: BaseException | None = None
    is_abandoned: bool = False
    task: asyncio.Task[None] | None = None


class CallLoop:
    """Runs calls and keeps those that are finished until they are taken.

    `run`, `submit`, `abandon`, `take_finished`, `wait` and `close` are for the subtask's thread.

    Args:
        name: of the thread.
        wake: called in the loop's thread when the first call is finished since `take_finished`.
        check_cancelled: raises if the subtask was cancelled; called again and again while `run` waits.
    """

    def __init__(self, name: str, wake: Callable[[], None], check_cancelled: Callable[[], None]) -> None:
        self._wake = wake
        self._check_cancelled = check_cancelled
        self._condition = threading.Condition()
        self._finished: deque[Call] = deque()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_forever, name=name, daemon=True)
        self._thread.start()

    def _run_forever(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, invoke: Callable[[], Any]) -> None:
        """Call something in the loop's thread and wait for its end.

        Raises:
            BaseException: what it raised; what `check_cancelled` raises.
        """
        ended = threading.Event()
        call = Call(invoke)

        def start() -> None:
            call.task = self._loop.create_task(self._make(call))
            call.task.add_done_callback(lambda _: ended.set())

        self._loop.call_soon_threadsafe(start)
        while not ended.wait(_POLL_S):
            self._check_cancelled()
        if call.error is not None:
            raise call.error

    def submit(self, calls: Sequence[Call]) -> None:
        """Begin calls, in order."""
        self._loop.call_soon_threadsafe(self._start, calls)

    def abandon(self, call: Call) -> None:
        """Cancel a call, whose end is of no interest."""
        call.is_abandoned = True
        self._loop.call_soon_threadsafe(self._cancel, call)

    def take_finished(self) -> list[Call]:
        """The calls that ended since the last time, in that order, without those that were abandoned."""
        if not self._finished:
            return []
        with self._condition:
            finished, self._finished = self._finished, deque()
        return [call for call in finished if not call.is_abandoned]

    def wait(self, seconds: float = _POLL_S) -> bool:
        """Wait until a call is finished, but no longer than that; whether there is one."""
        with self._condition:
            return self._condition.wait_for(lambda: bool(self._finished), seconds)

    def close(self, last: Callable[[], Any] | None = None) -> None:
        """Cancel all calls, call `last` and end the thread; a call that blocks it is left behind with it.

        Raises:
            BaseException: what `last` raised.
        """
        final = Call(last or (lambda: None))
        self._loop.call_soon_threadsafe(self._end, final)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            _log.warning("%s: a function blocks its event loop: its thread is left behind", self._thread.name)
        if final.error is not None:
            raise final.error

    def _start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if not call.is_abandoned:
                call.task = self._loop.create_task(self._attempt(call))

    @staticmethod
    def _cancel(call: Call) -> None:
        if call.task is not None:
            call.task.cancel()

    def _end(self, final: Call) -> None:
        final.task = self._loop.create_task(self._end_with(final))

    async def _end_with(self, final: Call) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._make(final)
        await self._loop.shutdown_asyncgens()
        self._loop.stop()

    async def _attempt(self, call: Call) -> None:
        await self._make(call)
        with self._condition:
            first = not self._finished
            self._finished.append(call)
            self._condition.notify_all()
        if first:
            self._wake()

    @staticmethod
    async def _make(call: Call) -> None:
        """What a call raises is kept, whatever it is: it must not end the loop."""
        try:
            made = call.invoke()
            if inspect.isasyncgen(made):
                call.returned = [row async for row in made]
            else:
                call.returned = _drawn(await made if inspect.isawaitable(made) else made)
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
            call.error = error


def _drawn(returned: Any) -> Any:
    """An iterator as a list: what it runs belongs into the loop's thread."""
    if (
        isinstance(returned, Iterable)
        and not isinstance(returned, Mapping | Sequence)
        and hasattr(returned, "__next__")
    ):
        return list(returned)
    return returned
