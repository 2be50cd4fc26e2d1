"""Jobs that fail in every phase of a checkpoint, and go on: in this process, or as if it had died. Every row is seen exactly once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import checkpoint_fakes
from checkpoint_fakes import Crash, MemoryStorage, Numbers, Once, Table, opened, pipeline
from runtime_fakes import Count, ListSource, job, rows, until, vertex

from flowrun.api.state import OperatorSnapshot
from flowrun.core.clock import SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.errors import JobFailedError, StateError
from flowrun.graph.job_graph import JobGraph, JobSettings
from flowrun.operators.base import AbstractOperator
from flowrun.operators.factories import SinkOperatorFactory, SourceOperatorFactory
from flowrun.operators.implementations import create_operator
from flowrun.runtime.checkpoint.assembly import pending_commits
from flowrun.runtime.job_status import JobResult
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.jobmaster.job_state import RestorePoint
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.local_cluster import LocalCluster

TOTAL = 400
BY_HAND = CheckpointSettings(interval_ms=3_600_000, retain=2)
OFTEN = CheckpointSettings(interval_ms=5, retain=2)
AT_ONCE = RestartSettings("fixed_delay", attempts=3, delay_ms=0)
NEVER = RestartSettings("none")


@pytest.fixture(
    autouse=True,
    params=[False, pytest.param(True, marks=pytest.mark.exhaustive)],
    ids=["commits at once", "commits beside the job master"],
)
def commits_long(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_fakes, "COMMITS_LONG", [request.param])


@contextmanager
def running(
    graph: JobGraph, storage: MemoryStorage, restored: RestorePoint | None = None, **more: Any
) -> Iterator[JobMaster]:
    """A job that is cancelled, if it still runs, when the block is left."""
    with LocalCluster(SystemClock()) as cluster:
        job_master = cluster.run(opened(graph, storage, restored=restored, **more))
        try:
            yield job_master
        finally:
            job_master.cancel()
            with suppress(JobFailedError):
                job_master.wait()


def finish(graph: JobGraph, storage: MemoryStorage, restored: RestorePoint | None = None) -> JobResult:
    with running(graph, storage, restored) as job_master:
        result = job_master.wait()
    assert result is not None
    assert result.state is JobState.FINISHED
    return result


def checkpoint(job_master: JobMaster, **more: Any) -> str:
    return job_master.take_snapshot(None, **{"savepoint": False, "stop": False, "drain": False, **more}).wait(20_000)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("chained", [True, False])
def test_a_failure_in_an_operator_is_made_good(parallelism: int, chained: bool) -> None:
    source, table, storage, once = Numbers(TOTAL), Table(), MemoryStorage(), Once(40)
    graph = pipeline(
        source, table, parallelism=parallelism, between=once.create, checkpoint=OFTEN, restart=AT_ONCE, chained=chained
    )
    result = finish(graph, storage)
    assert once.raised == 1
    assert result.restarts == 1
    assert table.rows() == list(range(TOTAL))
    assert table.staged == {}
    assert storage.closed


def test_a_checkpoint_holds_what_is_being_committed_before_what_came_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_fakes, "COMMITS_LONG", [True])
    source, table, storage = Numbers(TOTAL, released=20), Table(), MemoryStorage()
    committing, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        committing.set()
        assert go_on.wait(20)

    table.before_commit = slowly
    with running(pipeline(source, table, parallelism=1, checkpoint=BY_HAND), storage) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 80)
        checkpoint(job_master)
        assert committing.wait(20)
        source.release(40)
        until(lambda: job_master.status().vertices[2].records_in == 160)
        checkpoint(job_master)
        held = [storage.checkpoints[n] for n in sorted(storage.checkpoints)]
        first, second = (next(iter(pending_commits(metadata).values())) for metadata in held)
        go_on.set()
        source.release()
        assert job_master.wait() is not None
    assert (len(first), len(second)) == (1, 2)
    assert second[0] == first[0]
    assert table.rows() == list(range(TOTAL))


def test_a_restart_goes_back_to_the_last_completed_checkpoint() -> None:
    source, table, storage, once = Numbers(TOTAL, released=20), Table(), MemoryStorage(), Once(None)
    with running(
        pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=AT_ONCE), storage
    ) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 80)
        checkpoint(job_master)
        until(lambda: table.rows() == list(range(80)))
        once.at = 1
        source.release(40)
        until(lambda: job_master.status().restarts == 1)
        source.release()
        result = job_master.wait()
    assert result is not None
    assert source.enumerators[-1].restored is not None, "the enumerator went back, too"
    assert len(source.enumerators) == 2
    assert table.rows() == list(range(TOTAL))


def test_without_a_completed_checkpoint_a_restart_begins_afresh() -> None:
    source, table, storage, once = Numbers(TOTAL), Table(), MemoryStorage(), Once(10)
    assert (
        finish(pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=AT_ONCE), storage).restarts == 1
    )
    assert source.enumerators[-1].restored is None
    assert table.rows() == list(range(TOTAL))


def test_restarts_need_no_checkpoints() -> None:
    source, table, once = Numbers(TOTAL), Table(), Once(10)
    graph = pipeline(source, table, between=once.create, restart=AT_ONCE)
    with running(graph, MemoryStorage(), checkpoints=False) as job_master:
        assert job_master.wait() is not None
        assert job_master.status().checkpoints is None
        assert job_master.checkpoint_root is None
    assert table.rows() == list(range(TOTAL))


def test_when_no_restart_is_left_the_error_tells_of_those_before() -> None:
    class Broken(Count):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            raise OSError("broken for good")

    graph = pipeline(Numbers(TOTAL), Table(), between=Broken, checkpoint=BY_HAND, restart=AT_ONCE)
    with (
        running(graph, MemoryStorage()) as job_master,
        pytest.raises(JobFailedError, match="broken for good") as raised,
    ):
        job_master.wait()
    notes = "\n".join(raised.value.__notes__)
    assert "gave up after 3 restarts (fixed_delay, attempts 3)" in notes
    assert notes.count("restarted before, when operator 'middle'") == 3


def test_what_a_completed_checkpoint_holds_survives_the_failure_for_good_and_the_rest_is_aborted() -> None:
    source, table, storage, once = Numbers(TOTAL, released=20), Table(), MemoryStorage(), Once(None)
    graph = pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=NEVER)
    with running(graph, storage) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 80)
        checkpoint(job_master)
        once.at = 1
        source.release()
        with pytest.raises(JobFailedError, match="the disk of the operator broke"):
            job_master.wait()
    assert table.rows() == list(range(80))
    source, crash = Numbers(TOTAL), Crash(storage, table)
    finish(pipeline(source, crash.table, checkpoint=BY_HAND), crash.storage, crash.storage.newest)
    assert crash.table.rows() == list(range(TOTAL))


def test_what_a_completed_checkpoint_holds_is_committed_when_the_job_is_cancelled() -> None:
    """The sinks are told of completion, but cancelled before they hear it."""
    source, table, storage = Numbers(TOTAL, released=20), Table(), MemoryStorage()
    blocked, go_on = threading.Event(), threading.Event()

    class Slow(AbstractOperator):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            self.output.emit(batch)

        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            blocked.set()
            go_on.wait(20)

    graph = pipeline(source, table, between=Slow, checkpoint=BY_HAND, parallelism=1, chained=True)
    with running(graph, storage) as job_master:
        until(lambda: job_master.status().vertices[0].records_in == 80)
        checkpoint(job_master)
        blocked.wait(20)
        job_master.cancel()
        go_on.set()
        result = job_master.wait()
    assert result is not None
    assert result.state is JobState.CANCELED
    assert table.rows() == list(range(80))


def test_only_what_the_failure_concerns_goes_back() -> None:
    left, right, tables, storage, once = Numbers(TOTAL), Numbers(TOTAL), (Table(), Table()), MemoryStorage(), Once(None)
    left.released = right.released = 10
    one, other = (
        pipeline(source, table, between=between, chained=True, parallelism=1).vertices[0]
        for source, table, between in ((left, tables[0], once.create), (right, tables[1], Once(None).create))
    )
    renamed = tuple(replace(o, operator_id=f"right-{i}") for i, o in enumerate(other.operators))
    other = replace(other, vertex_id="right-0", operators=renamed)
    graph = JobGraph("test", (one, other), JobSettings(checkpoint=BY_HAND, restart=AT_ONCE))
    with running(graph, storage) as job_master:
        until(lambda: [v.records_in for v in job_master.status().vertices] == [40, 40])
        checkpoint(job_master)
        right.release(20)
        until(lambda: job_master.status().vertices[1].records_in == 80)
        once.at = 1
        left.release()
        until(lambda: job_master.status().restarts == 1)
        right.release()
        assert job_master.wait() is not None
    assert (len(left.readers), len(right.readers)) == (2, 1)
    assert left.enumerators[-1].restored is not None
    assert len(right.enumerators) == 1
    assert [t.rows() for t in tables] == [list(range(TOTAL))] * 2
    assert tables[0].orphans == [], "the other sink was writing"


# ---- failures in every phase of a checkpoint, in this process


class FailsOnce:
    """A callback that raises the first time it is called."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or StateError("cannot write 'chk': No space left on device", hint="free some space")
        self.left = 1

    def __call__(self, *arguments: object) -> None:
        if self.left:
            self.left -= 1
            raise self.error


@pytest.mark.parametrize("phase", ["begin", "write", "finish"])
def test_a_checkpoint_that_fails_is_tolerated_as_often_as_the_user_says(phase: str) -> None:
    source, table, storage = Numbers(TOTAL, released=20), Table(), MemoryStorage()
    storage.before[phase] = FailsOnce()
    settings = CheckpointSettings(interval_ms=5, tolerable_failures=1)
    with running(pipeline(source, table, checkpoint=settings, restart=NEVER), storage) as job_master:
        until(lambda: job_master.checkpoints_status.completed > 0)
        status = job_master.checkpoints_status
        assert status.failed == 1
        assert "No space left on device" in (status.last_failure or "")
        source.release()
        assert job_master.wait() is not None
    assert table.rows() == list(range(TOTAL))


@pytest.mark.parametrize("phase", ["begin", "finish"])
def test_too_many_failed_checkpoints_fail_the_job_with_the_message_and_the_hint_of_storage(phase: str) -> None:
    storage = MemoryStorage()
    storage.before[phase] = FailsOnce()
    graph = pipeline(Numbers(TOTAL, released=1), Table(), checkpoint=OFTEN, restart=NEVER)
    with (
        running(graph, storage) as job_master,
        pytest.raises(JobFailedError, match="No space left on device") as raised,
    ):
        job_master.wait()
    assert raised.value.hint == "free some space"


def test_failures_of_checkpoints_restart_the_job_and_lose_nothing() -> None:
    source, table, storage = Numbers(TOTAL), Table(), MemoryStorage()
    storage.before["finish"] = FailsOnce()
    assert finish(pipeline(source, table, checkpoint=OFTEN, restart=AT_ONCE), storage).restarts == 1
    assert table.rows() == list(range(TOTAL))


def test_a_failure_in_the_synchronous_part_declines_the_checkpoint() -> None:
    fails = FailsOnce(ValueError("nothing to remember"))

    class Declines(AbstractOperator):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            self.output.emit(batch)

        def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
            fails()
            return OperatorSnapshot()

    source, table, storage = Numbers(TOTAL, released=5), Table(), MemoryStorage()
    with running(pipeline(source, table, between=Declines, checkpoint=BY_HAND), storage) as job_master:
        with pytest.raises(StateError, match="nothing to remember"):
            checkpoint(job_master)
        checkpoint(job_master)
        source.release()
        assert job_master.wait() is not None
    assert table.rows() == list(range(TOTAL))


def test_an_enumerator_that_has_no_snapshot_fails_the_checkpoint_and_names_the_source() -> None:
    source, table, storage = Numbers(TOTAL, released=5), Table(), MemoryStorage()
    source.before_snapshot = FailsOnce(OSError("listing failed"))
    with running(pipeline(source, table, checkpoint=BY_HAND), storage) as job_master:
        with pytest.raises(StateError, match="the splits of 'numbers' have no snapshot: listing failed"):
            checkpoint(job_master)
        checkpoint(job_master)
        source.release()
        assert job_master.wait() is not None
    assert storage.discarded == ["chk-1"]


@pytest.mark.parametrize("last", [False, True], ids=["in mid-job", "at the end"])
def test_a_commit_that_fails_is_made_again_after_a_restart(last: bool) -> None:
    source, table, storage = Numbers(TOTAL, released=None if last else 20), Table(), MemoryStorage()
    table.before_commit = FailsOnce(OSError("the target is away"))
    with running(pipeline(source, table, checkpoint=BY_HAND, restart=AT_ONCE), storage) as job_master:
        if not last:
            until(lambda: job_master.status().vertices[2].records_in == 80)
            checkpoint(job_master)
            until(lambda: job_master.status().restarts == 1)
            until(lambda: len(table.rows()) == 80)
            source.release()
        result = job_master.wait()
    assert result is not None
    assert result.restarts == 1
    assert table.rows() == list(range(TOTAL))
    assert table.aborted == set()


def test_an_enumerator_that_cannot_go_back_fails_the_restart_and_another_one_follows() -> None:
    source, table, storage, once = Numbers(TOTAL), Table(), MemoryStorage(), Once(50)

    def fail_the_second_start() -> None:
        if len(source.enumerators) == 2:
            raise OSError("listing failed")

    source.before_start = fail_the_second_start
    graph = pipeline(source, table, between=once.create, checkpoint=OFTEN, restart=AT_ONCE)
    assert finish(graph, storage).restarts == 2
    assert table.rows() == list(range(TOTAL))


# ---- the process dies in every phase


Image = Callable[[MemoryStorage, Table, Callable[[], None]], None]

PHASES: dict[str, Image] = {
    "before the folder is made": lambda storage, table, die: storage.before.update(begin=lambda _: die()),
    "during the upload": lambda storage, table, die: storage.before.update(write=lambda _: die()),
    "before the metadata": lambda storage, table, die: storage.before.update(finish=lambda _: die()),
    "between completion and commit": lambda storage, table, die: storage.before.update(retain=lambda _: die()),
    "during the commit": lambda storage, table, die: setattr(table, "before_commit", die),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_process_that_dies_in_a_phase_goes_on_from_what_is_on_disk(phase: str, parallelism: int) -> None:
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    images: list[Crash] = []
    with running(pipeline(source, table, checkpoint=BY_HAND), storage) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 40)
        checkpoint(job_master)
        PHASES[phase](storage, table, lambda: images.append(Crash(storage, table)))
        source.release(25)
        until(lambda: job_master.status().vertices[2].records_in == 100)
        checkpoint(job_master)
        until(lambda: len(table.rows()) == 100)
    assert images
    for image in images:
        again = pipeline(Numbers(TOTAL), image.table, checkpoint=OFTEN, parallelism=parallelism)
        finish(again, image.storage, image.storage.newest)
        assert image.table.rows() == list(range(TOTAL))
        assert image.table.staged == {}, "orphans are gone"


@pytest.mark.parametrize("phase", PHASES)
def test_a_process_that_dies_at_the_end_of_a_bounded_job_goes_on_from_what_is_on_disk(phase: str) -> None:
    table, storage = Table(), MemoryStorage()
    images: list[Crash] = []
    PHASES[phase](storage, table, lambda: images.append(Crash(storage, table)))
    finish(pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND), storage)
    assert images or phase == "during the upload", "nobody is asked for the last checkpoint"
    for image in images:
        point = image.storage.newest if image.storage.checkpoints else None
        if point is None:
            image.table.staged.clear()  # a fresh run, without orphans to find
        finish(pipeline(Numbers(TOTAL), image.table, checkpoint=BY_HAND), image.storage, point)
        assert image.table.rows() == list(range(TOTAL))


def test_a_checkpoint_that_was_stored_while_the_job_failed_does_not_count() -> None:
    """Its sinks were never told, and what it holds is aborted: it must not be resumed."""
    source, table, storage, once = Numbers(TOTAL, released=10), Table(), MemoryStorage(), Once(None)
    storing, go_on = threading.Event(), threading.Event()

    def hold(checkpoint_id: int) -> None:
        if checkpoint_id == 2:
            storing.set()
            go_on.wait(20)

    storage.before["finish"] = hold
    graph = pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=AT_ONCE)
    with running(graph, storage) as job_master:
        checkpoint(job_master)
        ticket = job_master.take_snapshot(None, savepoint=False, stop=False, drain=False)
        storing.wait(20)
        once.at = 1
        source.release()
        with pytest.raises(StateError, match="the disk of the operator broke"):
            ticket.wait(20_000)
        assert job_master.status().restarts == 1
        go_on.set()
        assert job_master.wait() is not None
    assert 2 not in storage.checkpoints
    assert table.rows() == list(range(TOTAL))


def test_what_becomes_of_older_checkpoints_does_not_touch_a_newer_one_that_is_just_stored() -> None:
    """With several under way, the second may be on disk before the first has been told of: cleaning up after the first comes third."""
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    second_waits = threading.Event()

    def hold(checkpoint_id: int) -> None:
        if checkpoint_id == 1:
            assert second_waits.wait(20)

    storage.before["finish"] = hold
    graph = pipeline(source, table, checkpoint=replace(BY_HAND, retain=1, max_concurrent=2), restart=NEVER)
    with running(graph, storage) as job_master:
        calls = job_master._checkpoints._io._calls
        tickets = [job_master.take_snapshot(None, savepoint=False, stop=False, drain=False) for _ in range(2)]
        until(lambda: storage.begun == ["chk-1", "chk-2"] and calls.qsize() > 0)
        second_waits.set()
        for ticket in tickets:
            ticket.wait(20_000)
        until(lambda: sorted(storage.checkpoints) == [2])
        source.release()
        assert job_master.wait() is not None
    assert table.rows() == list(range(TOTAL))


# ---- finished subtasks


def test_two_sources_of_which_one_ends_early() -> None:
    short, long, table, storage = Numbers(20, splits=1), Numbers(TOTAL, splits=1, released=30), Table(), MemoryStorage()
    once = Once(None)

    def graph(source_a: Numbers, source_b: Numbers, target: Table) -> JobGraph:
        a = vertex("a", partial(create_operator, SourceOperatorFactory(source_a)), source=source_a)
        b = vertex("b", partial(create_operator, SourceOperatorFactory(source_b)), source=source_b)
        own = vertex("own", partial(create_operator, SinkOperatorFactory(target)), sink=target).read(a)
        both = vertex("both", once.create, partial(create_operator, SinkOperatorFactory(target)), sink=target).read(a)
        both.read(b)
        return job(a, b, own, both, settings=JobSettings(checkpoint=BY_HAND, restart=AT_ONCE))

    expected = sorted([*range(20), *range(20), *range(TOTAL)])
    with running(graph(short, long, table), storage) as job_master:
        until(lambda: job_master.status().vertices[3].records_in == 50)
        until(lambda: ExecutionState.FINISHED in job_master.status().vertices[2].states)
        assert table.rows() == [], "nothing of a sink that has ended is visible before a checkpoint holds it"
        checkpoint(job_master)
        until(lambda: len(table.rows()) == 20 + 50)
        image = Crash(storage, table)
        operators = storage.newest.metadata.operators
        assert [o.operator_id for o in operators.values() if o.finished] == ["a-0", "own-0"]
        assert operators["own-0"].subtasks[0].operator["committables"].rows.num_rows == 1
        once.at = 1
        long.release(31)
        until(lambda: job_master.status().restarts == 1)
        long.release()
        assert job_master.wait() is not None
    assert table.rows() == expected
    finish(graph(Numbers(20, splits=1), Numbers(TOTAL, splits=1), image.table), image.storage, image.storage.newest)
    assert image.table.rows() == expected


def test_all_of_a_job_that_had_finished_is_restored_as_finished() -> None:
    table, storage = Table(), MemoryStorage()
    finish(pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND), storage)
    again = Numbers(TOTAL)
    finish(pipeline(again, table, checkpoint=BY_HAND, parallelism=3), storage, storage.newest)
    assert [(e.started, e.closed) for e in again.enumerators] == [(False, True)], "it is asked what came since, no more"
    assert again.readers == []
    assert table.rows() == list(range(TOTAL))


# ---- stop, savepoints


@pytest.mark.parametrize("savepoint", [False, True])
def test_a_job_that_is_stopped_with_a_snapshot_ends_there(savepoint: bool) -> None:
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    with running(pipeline(source, table, checkpoint=BY_HAND), storage) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 40)
        path = checkpoint(job_master, stop=True, savepoint=savepoint)
        result = job_master.wait()
    assert result is not None
    assert (result.state, result.stopped_at) == (JobState.FINISHED, path)
    assert table.rows() == list(range(40))
    point = RestorePoint(storage.savepoints[path], path) if savepoint else storage.newest
    finish(pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND, parallelism=3), storage, point)
    assert table.rows() == list(range(TOTAL))


def test_a_stop_whose_snapshot_fails_lets_the_job_go_on() -> None:
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    storage.before["finish"] = FailsOnce()
    with running(pipeline(source, table, checkpoint=BY_HAND), storage) as job_master:
        with pytest.raises(StateError, match="No space left on device") as raised:
            checkpoint(job_master, stop=True)
        assert raised.value.hint == "free some space"
        source.release()
        result = job_master.wait()
    assert result is not None
    assert result.stopped_at is None
    assert table.rows() == list(range(TOTAL))


def test_a_failure_after_the_snapshot_with_which_a_job_is_stopped_tells_where_to_go_on() -> None:
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    table.before_commit = FailsOnce(OSError("the target is away"))
    with running(pipeline(source, table, checkpoint=BY_HAND, restart=AT_ONCE), storage) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 40)
        path = checkpoint(job_master, stop=True)
        with pytest.raises(JobFailedError, match="the target is away") as raised:
            job_master.wait()
    notes = raised.value.__notes__
    assert f"the snapshot with which the job was stopped is complete: {path}" in notes
    assert "not restarted: the snapshot with which the job was stopped is complete, resume from it" in notes
    finish(pipeline(Numbers(TOTAL), table, checkpoint=BY_HAND), storage, storage.newest)
    assert table.rows() == list(range(TOTAL))


def test_a_savepoint_of_a_job_that_takes_no_checkpoints() -> None:
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    with running(pipeline(source, table), storage, checkpoints=False) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 40)
        path = checkpoint(job_master, savepoint=True)
        assert path == "savepoints/savepoint-1"
        assert table.rows() == [], "a bounded job without checkpoints shows nothing before its end"
        with pytest.raises(StateError, match="the job takes no checkpoints"):
            checkpoint(job_master)
        image = Crash(storage, table)
        source.release()
        assert job_master.wait() is not None
    assert table.rows() == list(range(TOTAL))
    point = RestorePoint(storage.savepoints[path], path)
    finish(pipeline(Numbers(TOTAL), image.table, checkpoint=BY_HAND), image.storage, point)
    assert image.table.rows() == list(range(TOTAL))


def test_a_job_goes_on_beside_a_savepoint_and_a_restart_goes_back_before_it() -> None:
    source, table, storage, once = Numbers(TOTAL, released=10), Table(), MemoryStorage(), Once(None)
    graph = pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=AT_ONCE)
    with running(graph, storage) as job_master:
        until(lambda: job_master.status().vertices[2].records_in == 40)
        checkpoint(job_master, savepoint=True)
        assert table.rows() == []
        once.at = 1
        source.release()
        assert job_master.wait() is not None
    assert source.enumerators[-1].restored is None
    assert table.rows() == list(range(TOTAL))


def test_a_request_that_comes_before_everything_runs_waits_until_it_does() -> None:
    opening, go_on = threading.Event(), threading.Event()

    class Slow(Count):
        def open(self) -> None:
            opening.set()
            go_on.wait(20)

    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True))
    storage = MemoryStorage()
    with running(job(source, vertex("sink", Slow).read(source)), storage, checkpoints=False) as job_master:
        opening.wait(20)
        ticket = job_master.take_snapshot(None, savepoint=True, stop=False, drain=False)
        assert not ticket.is_answered
        go_on.set()
        assert ticket.wait(20_000) == "savepoints/savepoint-1"


def test_requests_are_answered_when_the_job_ends() -> None:
    storage, go_on = MemoryStorage(), threading.Event()
    storage.before["begin"] = lambda _: (go_on.wait(20), None)[1]
    with running(pipeline(Numbers(TOTAL, released=1), Table(), checkpoint=BY_HAND), storage) as job_master:
        ticket = job_master.take_snapshot(None, savepoint=False, stop=False, drain=False)
        until(lambda: job_master.checkpoints_status.in_progress == 1)
        job_master.cancel()
        with pytest.raises(StateError, match="the job was cancelled"):
            ticket.wait(20_000)
        go_on.set()
        job_master.wait()
        with pytest.raises(StateError, match="the job has ended"):
            job_master.take_snapshot(None, savepoint=False, stop=False, drain=False).wait()
    assert storage.discarded == ["chk-1"]


def test_draining_without_stopping_is_refused() -> None:
    graph = pipeline(Numbers(TOTAL, released=1), Table(), checkpoint=BY_HAND)
    with (
        running(graph, MemoryStorage()) as job_master,
        pytest.raises(StateError, match="only a job that is stopped can be drained"),
    ):
        checkpoint(job_master, drain=True)


# ---- hooks


class Hook:
    name = "offsets"

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, object]] = []

    def trigger(self, checkpoint_id: int) -> object:
        self.calls.append(("trigger", checkpoint_id, None))
        return {"offset": checkpoint_id * 10}

    def restore(self, checkpoint_id: int, state: object) -> None:
        self.calls.append(("restore", checkpoint_id, state))

    def complete(self, checkpoint_id: int) -> None:
        self.calls.append(("complete", checkpoint_id, None))

    def abort(self, checkpoint_id: int) -> None:
        self.calls.append(("abort", checkpoint_id, None))


def test_master_hooks_take_part_in_checkpoints_and_recovery() -> None:
    source, table, storage, once, hook = Numbers(TOTAL, released=5), Table(), MemoryStorage(), Once(None), Hook()
    graph = pipeline(source, table, between=once.create, checkpoint=BY_HAND, restart=AT_ONCE)
    with LocalCluster(SystemClock()) as cluster:
        job_master = cluster.run(opened(graph, storage), hooks=[hook])
        checkpoint(job_master)
        storage.before["finish"] = FailsOnce()
        with pytest.raises(StateError):
            checkpoint(job_master)
        once.at = 1
        source.release()
        assert job_master.wait() is not None
    assert hook.calls == [
        ("trigger", 1, None), ("complete", 1, None),
        ("trigger", 2, None), ("abort", 2, None),
        ("restore", 1, {"offset": 10}),
        ("trigger", 3, None), ("complete", 3, None),
    ]  # fmt: skip
    assert storage.checkpoints[3].hooks == {"offsets": {"offset": 30}}
