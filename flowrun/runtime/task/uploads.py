"""Uploads of one subtask: jobs that run one after the other on threads that all subtasks share."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

Job = Callable[[], None]


class TaskUploads:
    """A queue of jobs with at most one under way. `submit` may be called by any thread; jobs must end by themselves.

    Args:
        executor: whose threads run the jobs; None: `submit` runs them itself.
        on_idle: called, by any thread, whenever the last job is done.
        on_failure: told of what a job raised; the jobs after it still run.
    """

    def __init__(
        self, executor: Executor | None, on_idle: Callable[[], None], on_failure: Callable[[Exception], None]
    ) -> None:
        self._executor = executor
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._condition = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._scheduled = False
        """A thread works on the queue, or will."""
        self._active = False
        """A job is under way."""
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or under way."""
        return not self._scheduled

    @property
    def is_closed(self) -> bool:
        """Whether uploads should end early, because their results are not needed any more."""
        return self._closed

    def submit(self, job: Job) -> bool:
        """Run a job after those before it; False if it will never run, because of `close`."""
        with self._condition:
            if self._closed:
                return False
            self._jobs.append(job)
            if self._scheduled:
                return True
            self._scheduled = True
        if self._executor is None:
            self._run()
        else:
            self._executor.submit(self._run)
        return True

    def close(self) -> None:
        """Drop what waits, and return when the job under way has ended. Idempotent."""
        with self._condition:
            self._closed = True
            self._jobs.clear()
            while self._active:
                self._condition.wait()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._active = bool(self._jobs)
                if not self._active:
                    self._scheduled = False
                    self._condition.notify_all()
                    break
                job = self._jobs.popleft()
            try:
                job()
            except Exception as error:
                self._on_failure(error)
        self._on_idle()
