"""Jobs on one thread: everything is at rest between two calls, time goes by when it is told to, and state goes from job to job."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.connectors.live_rows import listening
from flowrun.core.elements import RecordBatch
from flowrun.errors import InternalError, JobFailedError
from flowrun.frontend.pipeline_tests.declaration import AS_WRITTEN, RESCALED
from flowrun.frontend.source_text import SourceText
from flowrun.runners.pipeline_tests.captured import CapturedRows
from flowrun.runners.pipeline_tests.one_thread.cluster import OneThreadCluster
from flowrun.runners.pipeline_tests.one_thread.timers import CallersClock, SteppedTimers
from flowrun.runners.pipeline_tests.replacements import Replacements
from flowrun.runners.pipeline_tests.subject import Subject
from flowrun.runtime.lifecycle import JobState

PIPELINE = """
sources:
  clicks: {connector: datagen, schema: {user: STRING, n: INT}}
steps:
  sums: {from: clicks, key_by: [user], window: {type: tumbling, size: 1m, time: processing}, aggregate: [SUM(10 / n) AS s]}
sinks:
  out: {from: sums, connector: blackhole}
"""


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    text = SourceText("t", "")
    return Subject(path, {}, {}, Replacements(text, text.locate(0)))


def clicks(*rows: tuple[str, int]) -> RecordBatch:
    users, numbers = zip(*rows, strict=True)
    return RecordBatch(pa.record_batch({"user": pa.array(users), "n": pa.array(numbers, pa.int32())}))


def test_a_job_does_what_it_can_and_no_thread_runs(subject: Subject) -> None:
    (sink,) = subject.sinks
    rows, threads = CapturedRows(sink.schema), threading.active_count()
    with listening(sink.channel, rows), OneThreadCluster(CallersClock(30_000)) as cluster:
        job = cluster.start(subject.jobs(AS_WRITTEN)[0])
        subject.tables["clicks"].give(clicks(("a", 1), ("a", 2)))
        cluster.settle()
        assert threading.active_count() == threads
        cluster.advance(29_000)
        assert rows.changes == []
        cluster.advance(3_600_000)
        assert [(c.row[0], c.row[3]) for c in rows.changes] == [("a", 15)]
        assert cluster.result(job) is None
        cluster.kill(job)
        result = cluster.result(job)
        assert result is not None
        assert result.state is JobState.CANCELED


def test_state_goes_to_the_next_job_at_any_parallelism(subject: Subject) -> None:
    (sink,) = subject.sinks
    rows = CapturedRows(sink.schema)
    wide, narrow = subject.jobs(RESCALED)
    with listening(sink.channel, rows), OneThreadCluster(CallersClock(0)) as cluster:
        for graph in (wide, narrow, wide, narrow):
            job = cluster.start(graph)
            subject.tables["clicks"].give(clicks(*((user, 1) for user in "abcdefg")))
            cluster.settle()
            cluster.take_savepoint(job)
            cluster.kill(job)
        job = cluster.start(wide)
        cluster.advance(60_000)
        assert sorted(c.row[0] + str(c.row[3]) for c in rows.changes) == [f"{user}40" for user in "abcdefg"]
        subject.tables["clicks"].end()
        cluster.settle()
        result = cluster.result(job)
        assert result is not None
        assert result.state is JobState.FINISHED


def test_a_failure_is_raised_with_its_cause(subject: Subject) -> None:
    with OneThreadCluster(CallersClock(0)) as cluster:
        job = cluster.start(subject.jobs(AS_WRITTEN)[0])
        subject.tables["clicks"].give(clicks(("a", 0)))
        cluster.settle()
        with pytest.raises(JobFailedError, match="division by zero"):
            cluster.result(job)


def test_who_waits_on_the_only_thread_lets_time_go_by_and_never_waits_for_others() -> None:
    clock, condition = CallersClock(1_000), threading.Condition()
    assert not clock.wait(condition, 250.5)
    assert clock.now_ms() == 1_251
    with pytest.raises(InternalError):
        clock.wait(condition, None)


def test_timers_run_in_order_of_their_times_also_what_they_make_due() -> None:
    clock, seen = CallersClock(0), list[str]()
    timers = SteppedTimers(clock)
    timers.after(20, lambda: seen.append("second"))
    timers.at(10, lambda: (seen.append("first"), timers.after(0, lambda: seen.append("at once")))[0])
    timers.at(15, lambda: seen.append("never")).cancel()
    assert timers.next_ms == 10
    assert not timers.run_due()
    clock.advance(20)
    assert timers.run_due()
    assert seen == ["first", "second", "at once"]
    assert timers.next_ms is None
