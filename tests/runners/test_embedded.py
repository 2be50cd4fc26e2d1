"""The embedded runner: from start to end, with a listener, and interrupted."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from runtime_fakes import Count, ListSource, RepeatSource, job, rows, until, vertex

from flowrun.core.clock import ManualClock
from flowrun.errors import JobFailedError
from flowrun.runners.embedded import run_embedded, start_embedded
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.lifecycle import JobState


def endless(make: Callable[[], object] = Count) -> object:
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True))
    return job(source, vertex("sink", make).read(source))


def test_a_run_gives_its_result() -> None:
    source = vertex("source", lambda: RepeatSource(rows([1, 2]), 5))
    result = run_embedded(job(source, vertex("sink", Count).read(source)))
    assert result.state is JobState.FINISHED
    assert result.accumulators["sink"] == {"numRecordsIn": 10, "numRecordsOut": 0, "seen": 10}
    assert [v.records_in for v in result.vertices] == [10, 10]
    assert result.duration_ms > 0
    assert result.problems == ()


def test_the_listener_hears_the_last_status() -> None:
    heard: list[JobStatus] = []
    source = vertex("source", lambda: RepeatSource(rows([1, 2]), 5))
    run_embedded(job(source, vertex("sink", Count).read(source)), listener=heard.append)
    assert heard[-1].state is JobState.FINISHED
    assert heard[-1].vertices[1].records_in == 10


def test_a_listener_that_raises_cancels_the_job() -> None:
    before = threading.active_count()

    def refuse(status: JobStatus) -> None:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        run_embedded(endless(), listener=refuse, listen_every_ms=1)  # type: ignore[arg-type]
    assert threading.active_count() == before


def test_wait_gives_up_in_time() -> None:
    with start_embedded(endless()) as running:  # type: ignore[arg-type]
        assert running.wait(1) is None
        assert running.status().state in (JobState.CREATED, JobState.RUNNING)


def test_a_status_can_be_read_after_the_end() -> None:
    running = start_embedded(endless())  # type: ignore[arg-type]
    running.cancel()
    running.wait()
    running.cancel()
    running.stop()
    assert running.status().state is JobState.CANCELED
    assert running.wait() is not None


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in the background: shells let such processes ignore it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("_interruptible")
def test_interrupting_a_run_leaves_nothing_behind() -> None:
    before = threading.enumerate()
    reached = threading.Event()

    def interrupt() -> None:
        reached.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_embedded(endless(), listener=lambda _: reached.set(), listen_every_ms=1)  # type: ignore[arg-type]
    thread.join()
    assert [t for t in threading.enumerate() if t not in before] == []


def test_stop_from_a_signal_handler_while_the_main_thread_waits() -> None:
    with start_embedded(endless()) as running:  # type: ignore[arg-type]
        previous = signal.signal(signal.SIGUSR1, lambda number, frame: running.stop())
        try:
            until(lambda: running.status().vertices[1].records_in != 0)
            signal.raise_signal(signal.SIGUSR1)
            result = running.wait()
        finally:
            signal.signal(signal.SIGUSR1, previous)
    assert result is not None
    assert result.state is JobState.FINISHED


def test_arrow_has_one_thread_while_jobs_run_and_its_own_number_afterwards() -> None:
    pa.set_cpu_count(2)
    with start_embedded(endless()) as first:  # type: ignore[arg-type]
        with start_embedded(endless()) as second:  # type: ignore[arg-type]
            assert pa.cpu_count() == 1
            second.cancel()
            second.wait()
        assert pa.cpu_count() == 1
        first.cancel()
    assert pa.cpu_count() == 2


def test_a_failure_inside_the_with_block_is_not_hidden_by_the_job() -> None:
    class Broken(Count):
        def process_batch(self, batch: object, input_index: int = 0) -> None:
            raise OSError("sink broke")

    def fail_beside_a_failing_job() -> None:
        with start_embedded(endless(Broken)) as running:  # type: ignore[arg-type]
            until(lambda: running.status().state.is_terminal)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        fail_beside_a_failing_job()
    assert "sink broke" in raised.value.__notes__[0]


def test_a_failed_job_raises_on_every_wait() -> None:
    class Broken(Count):
        def open(self) -> None:
            raise OSError("sink broke")

    running = start_embedded(endless(Broken), clock=ManualClock())  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(JobFailedError, match="sink broke"):
            running.wait()
