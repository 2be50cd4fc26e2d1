"""Ends a run early. The bridge to Java breaks if a signal comes while it waits, so a run has a thread of its own, which gets no signals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_LOOK_EVERY_S = 0.2
_UNTIL_SPARK_IS_THERE_S = 2.0


class _Runs:
    """The runs of this process: which sessions they use, and whether their outputs are becoming visible. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[int, tuple[SparkSession, bool]] = {}
        self._appearing = 0

    @property
    def are_there(self) -> bool:
        """Whether any run has a session."""
        return bool(self._sessions)

    @contextmanager
    def running(self, session: SparkSession, *, is_own: bool) -> Iterator[None]:
        """A context in which a run uses a session; `is_own` says that only this run uses its Spark."""
        with self._lock:
            self._sessions[id(session)] = (session, is_own)
        try:
            yield
        finally:
            with self._lock:
                del self._sessions[id(session)]

    @contextmanager
    def appearing(self) -> Iterator[None]:
        """A context in which outputs become visible: they must not be stopped half-way."""
        with self._lock:
            self._appearing += 1
        try:
            yield
        finally:
            with self._lock:
                self._appearing -= 1

    def interrupt(self) -> None:
        """Let Spark end the jobs of all runs, unless outputs are becoming visible."""
        with self._lock:
            if self._appearing:
                return
            for session, is_own in self._sessions.values():
                with suppress(Exception):  # a Spark that has ended has no jobs any more
                    if is_own and hasattr(session, "_jsparkSession"):
                        session.sparkContext.cancelAllJobs()
                    else:
                        session.interruptAll()


RUNS = _Runs()


class _Call(threading.Thread, Generic[T]):
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(name="flowrun-spark", daemon=True)
        self._call = call
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.ended = (
            threading.Event()
        )  # `join` cannot be used: after a signal Python believes that the thread has ended

    def run(self) -> None:
        try:
            self.results.append(self._call())
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


def run_apart(call: Callable[[], T]) -> T:
    """The result of a call that runs Spark, on a thread that gets no signals. Ctrl-C is raised at once; the call goes on without anybody.

    Raises:
        KeyboardInterrupt: the user did not wait for its end.
        BaseException: any error that the call raises.
    """
    thread = _Call(call)
    thread.start()
    thread.ended.wait()
    if thread.error is not None:
        raise thread.error
    return thread.results[0]


def run_interruptibly(call: Callable[[], T]) -> T:
    """The result of a call that runs Spark. Ctrl-C ends the jobs of Spark, waits until the call has cleaned up, and is raised then.

    A second Ctrl-C is raised at once. If outputs have begun to become visible, the call goes on to its end, and there is a result.

    Raises:
        KeyboardInterrupt: the user ended the call; no output has become visible.
        BaseException: any error that the call raises.
    """
    thread = _Call(call)
    thread.start()
    try:
        thread.ended.wait()
    except KeyboardInterrupt:
        _end(thread)
        if not thread.results:
            raise
    if thread.error is not None:
        raise thread.error
    return thread.results[0]


def _end(thread: _Call[T]) -> None:
    if not RUNS.are_there:  # Spark is being started, which only the end of the process can stop
        thread.ended.wait(_UNTIL_SPARK_IS_THERE_S)
        if not RUNS.are_there:
            return
    while not thread.ended.is_set():
        RUNS.interrupt()
        thread.ended.wait(_LOOK_EVERY_S)
