"""A thread beside the job master's for calls that may block, such as writing the files of checkpoints. They run in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from flowrun.runtime.mailbox import Post

T = TypeVar("T")


class IoThread:
    """Runs blocking calls in order; what comes of them is posted back. The thread starts with the first call.

    Args:
        name: of the thread.
        post: puts a mail into the caller's mailbox, which drops answers once it is closed.
    """

    def __init__(self, name: str, post: Post) -> None:
        self._name = name
        self._post = post
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Run `call` on the thread, then `done` with its result, or `failed` with what it raised, as a mail."""

        def run() -> None:
            try:
                result = call()
            except Exception as error:
                caught = error  # the name of the clause is gone when the mail is read
                self._post(lambda: failed(caught))
            else:
                self._post(lambda: done(result))

        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(run)

    def close(self) -> None:
        """Run what was submitted, then end the thread; blocks meanwhile. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(None)
            thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
