"""Many tests, on all cores: in processes that are forked when the pipelines are compiled, each of which runs some of them.

Results come in the order of the tests. What users have imported by then may have threads and locks that a fork does not take along, so
tests of pipelines with functions in Python run in this process, one after the other.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NoReturn

from flowrun.core.cores import usable_cores
from flowrun.core.record import record
from flowrun.errors import FlowrunError, InternalError
from flowrun.operators.function_loading import has_imported
from flowrun.runners.pipeline_tests.binding import BoundTest
from flowrun.runners.pipeline_tests.check import Failure, Result, check
from flowrun.runners.pipeline_tests.run import Outcome

if TYPE_CHECKING:
    from flowrun.runners.pipeline_tests.spark_run import SparkTests

WORTH_A_PROCESS = 10
"""So many tests take longer than it takes to fork a process."""


@record(eq=False)
class _Told:
    """What a process tells of a test."""

    failures: tuple[Failure, ...]
    variants: tuple[str, ...]
    outcome: Outcome


@record(eq=False)
class _Process:
    """A forked process, and what it tells."""

    pid: int
    stream: IO[bytes]


def check_all(tests: Sequence[BoundTest], spark: SparkTests | None = None) -> Iterator[Result]:
    """Run tests as `check` does; their results in order."""
    processes = min(usable_cores(), len(tests) // WORTH_A_PROCESS)
    alone = spark is not None or has_imported() or threading.active_count() > 1 or not hasattr(os, "fork")
    if alone or processes < 2:
        for test in tests:
            yield check(test, spark)
    else:
        yield from check_side_by_side(tests, processes)


def check_side_by_side(tests: Sequence[BoundTest], processes: int) -> Generator[Result, None, None]:
    """Run tests in so many processes; their results in order.

    Raises:
        FlowrunError: a process ended in the middle of a test.
    """
    started: list[_Process] = []
    try:
        for number in range(processes):
            started.append(_start(tests[number::processes], started))
        for place, test in enumerate(tests):
            told = _next(started[place % processes], test)
            yield Result(test, told.failures, told.variants, told.outcome)
    finally:
        for process in started:
            _end(process)


def _start(tests: Sequence[BoundTest], earlier: Sequence[_Process]) -> _Process:
    """Fork a process that runs tests."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both would write what waits there
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: Arrow's own are made anew behind a fork
        pid = os.fork()
    if pid:
        os.close(sending)
        return _Process(pid, os.fdopen(receiving, "rb"))
    for process in earlier:
        process.stream.close()
    os.close(receiving)
    return _run(tests, sending)


def _run(tests: Sequence[BoundTest], sending: int) -> NoReturn:
    """Run tests, tell of each, and end the process, whatever happens."""
    try:
        with os.fdopen(sending, "wb") as out:
            for test in tests:
                out.write(_told(test))
                out.flush()
    finally:
        os._exit(0)


def _told(test: BoundTest) -> bytes:
    try:
        result = check(test)
        return pickle.dumps(_Told(result.failures, result.variants, result.outcome))
    except FlowrunError as error:
        return pickle.dumps(error)
    except Exception as error:
        return pickle.dumps(
            InternalError(f"the test '{test.test.name}' could not be run: {type(error).__name__}: {error}")
        )


def _next(process: _Process, test: BoundTest) -> _Told:
    try:
        told = pickle.load(process.stream)
    except EOFError:
        at = test.test.location
        raise FlowrunError(
            f"{at.file}:{at.line}: the process that ran the test '{test.test.name}' has ended",
            hint=f"run it alone: flowrun test {at.file} -k '{test.test.name}'",
        ) from None
    if isinstance(told, FlowrunError):
        raise told
    assert isinstance(told, _Told)
    return told


def _end(process: _Process) -> None:
    process.stream.close()
    with contextlib.suppress(ProcessLookupError):  # it is over
        os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
