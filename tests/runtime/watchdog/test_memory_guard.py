"""A job ends before memory does, and only if giving back what is free was not enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.recovery import RestartSettings
from flowrun.errors import JobFailedError
from flowrun.runners.embedded import start_embedded
from flowrun.runtime.watchdog.memory import MemoryLimit
from flowrun.runtime.watchdog.memory_guard import memory_problem
from tests.runtime.runtime_fakes import ListSource, job, rows, vertex

MIB = 1 << 20
ENOUGH = MemoryLimit(512 * MIB, 32 * MIB, "the control group's limit")
LOW = MemoryLimit(512 * MIB, 31 * MIB, "the control group's limit")


def problem(*readings: list[MemoryLimit]) -> MemoryError | None:
    return memory_problem(iter(readings).__next__)


def test_what_is_low_after_memory_was_given_back_is_a_problem() -> None:
    assert problem([ENOUGH]) is None
    assert problem([ENOUGH, LOW], [ENOUGH, ENOUGH]) is None
    assert str(problem([ENOUGH, LOW], [ENOUGH, LOW])) == (
        "memory is running out: 32.5 MB of 536.9 MB (the control group's limit) are left, and the system would end the process"
    )


def test_where_nothing_is_known_there_is_no_problem() -> None:
    assert problem([]) is None


def test_a_job_that_runs_out_of_memory_fails_and_is_not_restarted() -> None:
    graph = job(vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True)))
    graph = replace(graph, settings=replace(graph.settings, restart=RestartSettings("fixed_delay", attempts=9)))
    running = start_embedded(graph, clock=ManualClock())
    running.fail(MemoryError("memory is running out"))
    with pytest.raises(JobFailedError, match=r"memory is running out\n.*not restarted"):
        running.wait()
