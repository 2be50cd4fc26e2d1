"""Real jobs that share the slots of one cluster: they wait for each other, and tell what they wait for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from runtime_fakes import Collect, Count, ListSource, RepeatSource, Seen, job, rows, until, vertex

from flowrun.core.clock import ManualClock, SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.core.recovery import RestartSettings
from flowrun.core.resources import ResourceSpec, SlotSettings, SlotSharingGroup
from flowrun.datastream import StreamExecutionEnvironment
from flowrun.datastream.execution import executing
from flowrun.errors import JobFailedError, NoResourceAvailableError, PipelineError
from flowrun.graph.job_graph import JobGraph, JobSettings, ResultType
from flowrun.graph.partitioner import RebalancePartitioner
from flowrun.runners.embedded import EmbeddedExecutor, LocalJob, run_embedded, start_embedded
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.local_cluster import LocalCluster

WAIT_MS = 30_000


def named(name: str, graph: JobGraph) -> JobGraph:
    return replace(graph, name=name)


def endless(name: str, parallelism: int = 2, settings: JobSettings | None = None) -> JobGraph:
    """Runs until it is stopped."""
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True), parallelism=parallelism)
    sink = vertex("sink", Count, parallelism=parallelism).read(source, RebalancePartitioner())
    return named(name, job(source, sink, settings=settings))


@contextmanager
def cluster_of(slots: int | None, **more: object) -> Iterator[LocalCluster]:
    """A cluster whose slots are all free at its end."""
    clock = more.pop("clock", None) or SystemClock()
    with LocalCluster(clock, task_slots=slots, **more) as cluster:  # type: ignore[arg-type]
        yield cluster
        assert cluster.slots.held == {}


def runs(running: LocalJob) -> bool:
    return all(set(v.states) == {ExecutionState.RUNNING} for v in running.status().vertices)


def test_five_jobs_take_turns_on_two_slots() -> None:
    with cluster_of(2) as cluster:
        jobs = [start_embedded(endless(f"job {i}"), cluster=cluster) for i in range(5)]
        for position, running in enumerate(jobs):
            until(lambda running=running: runs(running))
            assert running.status().slots == 2
            for waiting in jobs[position + 1 :]:
                until(
                    lambda waiting=waiting, position=position: f"'job {position}' 2" in str(waiting.status().waits_for)
                )
                status = waiting.status()
                assert (status.state, status.slots) == (JobState.CREATED, 0)
                assert {s for v in status.vertices for s in v.states} == {ExecutionState.SCHEDULED}
            assert len(cluster.slots.held) == 2
            running.stop()
            result = running.wait(WAIT_MS)
            assert result is not None
            assert result.state is JobState.FINISHED


def test_what_a_job_waits_for_is_in_its_status() -> None:
    with cluster_of(2) as cluster, start_embedded(endless("first", 1), cluster=cluster) as first:
        with (
            start_embedded(endless("second"), cluster=cluster) as second,
            start_embedded(endless("third", 1), cluster=cluster) as third,
        ):
            until(lambda: second.status().waits_for)
            until(lambda: third.status().waits_for)
            assert second.status().waits_for == "slots: needs 2 slots, 1 of 2 are free (held by 'first' 1)"
            assert third.status().waits_for == (
                "slots: needs 1 slot, 1 of 2 are free (held by 'first' 1); 1 request is before it"
            )
            second.cancel()
            assert second.wait(WAIT_MS) is not None
            until(lambda: runs(third))
            assert third.status().waits_for is None
            third.cancel()
        first.cancel()


def test_a_job_that_waits_too_long_fails_and_says_for_what() -> None:
    clock = ManualClock()
    patient = JobSettings(slots=SlotSettings(request_timeout_ms=1_000))
    with cluster_of(2, clock=clock) as cluster, start_embedded(endless("first"), cluster=cluster) as first:
        until(lambda: runs(first))
        second = start_embedded(endless("second", 1, patient), cluster=cluster)
        until(lambda: second.status().waits_for)
        clock.advance(1_000)
        with pytest.raises(
            JobFailedError, match=r"job 'second' needs 1 slot, 0 of 2 are free \(held by 'first' 2\); it waited 1 s"
        ) as raised:
            second.wait(WAIT_MS)
        assert isinstance(raised.value.__cause__, NoResourceAvailableError)
        assert raised.value.hint is not None
        assert "slots.request_timeout" in raised.value.hint
        assert runs(first)
        first.cancel()


def test_a_job_that_got_its_slots_in_time_runs_on_after_the_time_out() -> None:
    clock = ManualClock()
    with (
        cluster_of(2, clock=clock) as cluster,
        start_embedded(
            endless("only", 2, JobSettings(slots=SlotSettings(request_timeout_ms=1_000))), cluster=cluster
        ) as only,
    ):
        until(lambda: runs(only))
        clock.advance(10_000)
        assert runs(only)
        only.cancel()


def test_a_job_that_can_never_fit_is_refused_at_once_and_holds_up_nobody() -> None:
    with cluster_of(2) as cluster, start_embedded(endless("first", 1), cluster=cluster) as first:
        with pytest.raises(JobFailedError, match="job 'large' needs 3 slots, there are 2") as raised:
            run_embedded(endless("large", 3), cluster=cluster)
        assert raised.value.hint is not None
        assert "give the cluster 3 slots" in raised.value.hint
        with start_embedded(endless("small", 1), cluster=cluster) as small:
            until(lambda: runs(small))
            small.cancel()
        first.cancel()


def test_slots_and_memory_of_a_cluster_for_one_job_are_those_of_its_settings() -> None:
    few = JobSettings(slots=SlotSettings(number=1))
    with pytest.raises(JobFailedError, match="needs 2 slots, there are 1"):
        run_embedded(endless("large", 2, few))
    little = JobSettings(slots=SlotSettings(number=2, resources=ResourceSpec(memory_bytes=64 << 20)))
    graph = endless("large", 1, little)
    asking = tuple(replace(v, min_resources=ResourceSpec(memory_bytes=40 << 20)) for v in graph.vertices)
    with pytest.raises(JobFailedError, match=r"needs 1 slot of 80 MiB together .* there are 64 MiB in all"):
        run_embedded(replace(graph, vertices=asking))


def test_a_job_that_waits_and_is_broken_or_leaves_its_block_is_gone() -> None:
    with cluster_of(1) as cluster, start_embedded(endless("first", 1), cluster=cluster) as first:
        broken = start_embedded(endless("broken", 1), cluster=cluster)
        until(lambda: broken.status().waits_for)
        broken.fail(OSError("the disk is full"))
        with pytest.raises(JobFailedError, match="the disk is full"):
            broken.wait(WAIT_MS)
        with start_embedded(endless("left", 1), cluster=cluster) as left:
            until(lambda: left.status().waits_for)
        assert left.status().state is JobState.CANCELED
        assert left.status().waits_for is None
        until(lambda: runs(first))
        first.cancel()


def test_a_slot_whose_subtask_does_not_end_is_given_to_nobody() -> None:
    class Stuck(Count):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            reached.set()
            go_on.wait(30)

    reached, go_on, clock = threading.Event(), threading.Event(), ManualClock()
    settings = JobSettings(cancellation_timeout_ms=100)
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True))
    stuck = named("stuck", job(source, vertex("sink", Stuck).read(source), settings=settings))
    with cluster_of(2, clock=clock) as cluster:
        first = start_embedded(stuck, cluster=cluster)
        assert reached.wait(30)
        first.cancel()
        while not first.status().state.is_terminal:
            clock.advance(100)
        with pytest.raises(JobFailedError, match="did not end in the time allowed"):
            first.wait()
        with pytest.raises(JobFailedError, match="needs 2 slots, there are 1, 1 more are held by subtasks"):
            run_embedded(endless("large"), cluster=cluster)
        go_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("sink"):
                thread.join()


def test_a_failing_job_gives_its_slots_to_the_next() -> None:
    class Broken(Count):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            go_on.wait(30)
            raise ValueError("broken")

    go_on = threading.Event()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True))
    failing = named("failing", job(source, vertex("sink", Broken).read(source)))
    with cluster_of(1) as cluster:
        first = start_embedded(failing, cluster=cluster)
        with start_embedded(endless("next", 1), cluster=cluster) as following:
            until(lambda: following.status().waits_for)
            go_on.set()
            with pytest.raises(JobFailedError, match="broken"):
                first.wait(WAIT_MS)
            until(lambda: runs(following))
            following.cancel()


def test_a_job_that_is_restarted_keeps_its_slots_though_others_wait() -> None:
    class FailsThreeTimes(Count):
        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            if len(failed) < 3:
                failed.append(dict(cluster.slots.held))
                raise OSError(f"broken {len(failed)}")

    failed: list[object] = []
    settings = JobSettings(restart=RestartSettings("fixed_delay", attempts=5, delay_ms=0))
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True))
    graph = named("restarted", job(source, vertex("sink", FailsThreeTimes).read(source), settings=settings))
    with cluster_of(1) as cluster:
        blocker = start_embedded(endless("blocker", 1), cluster=cluster)
        restarted = start_embedded(graph, cluster=cluster)
        waiting = start_embedded(endless("waiting", 1), cluster=cluster)
        until(lambda: waiting.status().waits_for)
        blocker.cancel()
        until(lambda: restarted.status().restarts == 3 and runs(restarted))
        assert failed == [dict(cluster.slots.held)] * 3, "one slot, all the time"
        assert waiting.status().waits_for == "slots: needs 1 slot, 0 of 1 are free (held by 'restarted' 1)"
        restarted.stop()
        assert restarted.wait(WAIT_MS) is not None
        until(lambda: runs(waiting))
        waiting.cancel()
        assert waiting.wait(WAIT_MS) is not None
        assert blocker.wait(WAIT_MS) is not None


def test_a_job_of_many_stages_runs_on_one_slot_and_two_of_them_share_it() -> None:
    def stages(name: str, seen: Seen) -> JobGraph:
        source = vertex("source", lambda: RepeatSource(rows([1, 2, 3]), 4), parallelism=3)
        middle = vertex("middle", lambda: Collect(Seen()), parallelism=2).read(source, RebalancePartitioner())
        sink = vertex("sink", lambda: Collect(seen)).read(middle, RebalancePartitioner())
        return named(name, job(source, middle, sink, type=ResultType.BLOCKING))

    both = Seen(), Seen()
    with cluster_of(1) as cluster:
        jobs = [start_embedded(stages(f"job {i}", seen), cluster=cluster) for i, seen in enumerate(both)]
        for running in jobs:
            result = running.wait(WAIT_MS)
            assert result is not None
            assert result.state is JobState.FINISHED
    for seen in both:
        assert sorted(k for k, _ in seen.pairs()) == [1] * 12 + [2] * 12 + [3] * 12


def test_slots_of_a_group_take_what_the_group_says_and_the_next_job_waits_for_it() -> None:
    def heavy(name: str) -> JobGraph:
        return replace(endless(name, 1), slot_sharing_groups=(SlotSharingGroup("default", memory=40 << 20),))

    with (
        cluster_of(2, resources=ResourceSpec(memory_bytes=64 << 20)) as cluster,
        start_embedded(heavy("first"), cluster=cluster) as first,
        start_embedded(heavy("second"), cluster=cluster) as second,
    ):
        until(lambda: second.status().waits_for)
        assert second.status().waits_for == (
            "slots: needs 1 slot, 1 of 2 are free (held by 'first' 1); of 64 MiB it needs 40 MiB, 40 MiB are in use"
        )
        first.cancel()
        until(lambda: runs(second))
        second.cancel()


def test_jobs_of_programs_share_slots_too() -> None:
    def program(name: str) -> StreamExecutionEnvironment:
        environment = StreamExecutionEnvironment(name, parallelism=2)
        environment.from_elements(1, 2, 3).map(double).print()
        return environment

    with cluster_of(2) as cluster, executing(EmbeddedExecutor(cluster)):
        with start_embedded(endless("first"), cluster=cluster) as first:
            started = [program(f"program {i}").execute_async() for i in range(5)]
            for running in started:
                until(lambda running=running: running.status().waits_for)
            first.cancel()
        for running in started:
            result = running.wait(WAIT_MS)
            assert result is not None
            assert result.state is JobState.FINISHED


def double(value: dict[str, int]) -> dict[str, int]:
    return {"value": value["value"] * 2}


def test_a_cluster_brings_its_own_slots_and_clock() -> None:
    with cluster_of(2) as cluster, pytest.raises(PipelineError, match="is given a cluster, and a clock or slots"):
        start_embedded(endless("odd"), cluster=cluster, task_slots=1)
