"""A barrier that stops the job is the last thing a task processes: it waits there until the checkpoint is complete, or aborted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from recording_operators import ReplayingSource
from runtime_fakes import job, rows, until, vertex
from task_bench import Signal, TaskBench
from test_checkpoints import SETTINGS, Noting, calls_of, fail

from flowrun.api.operator import InputStatus
from flowrun.api.sink import Committable
from flowrun.core.clock import ManualClock
from flowrun.core.elements import (
    Alignment,
    CheckpointBarrier,
    CheckpointKind,
    CheckpointOptions,
    Watermark,
)
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.messages import CommittablesReport

STOP = CheckpointOptions(stop=True)
DRAIN = CheckpointOptions(CheckpointKind.SAVEPOINT, stop=True, drain=True)

Calls = list[tuple[str, str]]


class Polled(ReplayingSource):
    """Has a row whenever it is asked, once `open_tap` was called."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(lambda _: (), Signal())
        self._calls = calls
        self.next = 0

    def emit_next(self) -> InputStatus:
        if self._stopped:
            return InputStatus.END_OF_INPUT
        self.next += 1
        self.output.emit(rows([self.next], [self.next]))
        return InputStatus.MORE_AVAILABLE

    def finish(self) -> None:
        self._calls.append((self.context.name, "finish"))


def graph(calls: Calls, make_sink: Callable[[], Noting] | None = None) -> JobGraph:
    source = vertex("source", lambda: Polled(calls))
    middle = vertex("middle", lambda: Noting(calls), lambda: Noting(calls)).read(source)
    return job(source, middle, vertex("sink", make_sink or (lambda: Noting(calls))).read(middle), settings=SETTINGS)


def after(calls: Calls, name: str, call: str) -> list[str]:
    mine = calls_of(calls, name)
    return mine[mine.index(call) + 1 :]


def test_nothing_is_processed_behind_the_barrier_and_nobody_finishes() -> None:
    calls: Calls = []
    with TaskBench(graph(calls)) as bench:
        until(lambda: len(calls_of(calls, "sink")) > 3)
        bench.take(1, STOP)
        counted = bench.metrics.group("source-0", "0", "source-0").counter("numRecordsOut").count
        bench.complete(0)
        until(lambda: "complete 0" in calls_of(calls, "sink"))
        assert after(calls, "sink", "snapshot 1") == ["complete 0"], "mails run"
        assert bench.metrics.group("source-0", "0", "source-0").counter("numRecordsOut").count == counted
        assert bench.states("source")[-1] is ExecutionState.RUNNING
        bench.complete(1)
        bench.join()
        assert after(calls, "sink", "snapshot 1") == ["complete 0", "complete 1", "close"]
        assert after(calls, "middle.1", "snapshot 1") == ["complete 0", "complete 1", "close"]
        assert "finish" not in calls_of(calls, "source")
        assert [bench.states(n)[-1] for n in ("source", "middle", "sink")] == [ExecutionState.FINISHED] * 3
        rows_seen = [c for c in calls_of(calls, "sink") if c.startswith("rows")]
        assert len(rows_seen) == counted, "what was sent before the barrier arrived"


def test_after_an_abort_everything_goes_on() -> None:
    calls: Calls = []
    with TaskBench(graph(calls)) as bench:
        bench.take(1, STOP)
        before = len([c for c in calls_of(calls, "sink") if c.startswith("rows")])
        bench.abort(1)
        until(lambda: len([c for c in calls_of(calls, "sink") if c.startswith("rows")]) > before)
        bench.take(2)
        bench.take(3, STOP)
        bench.complete(3)
        bench.join()
        assert bench.states("sink")[-1] is ExecutionState.FINISHED


def test_a_declined_stop_waits_for_its_abort() -> None:
    calls: Calls = []
    with TaskBench(graph(calls, lambda: Noting(calls, {"snapshot 1": fail(ValueError("not now"))}))) as bench:
        bench.trigger(CheckpointBarrier(1, 0, STOP))
        until(lambda: any(a.declined for a in bench.answers(1)))
        bench.abort(1)
        bench.take(2, STOP)
        bench.complete(2)
        bench.join()


def test_draining_ends_event_time_and_operators_before_the_snapshot() -> None:
    calls: Calls = []
    with TaskBench(graph(calls)) as bench:
        bench.take(1, DRAIN)
        for name in ("middle.0", "middle.1", "sink"):
            assert after(calls, name, "max") == ["end_input", "finish", "snapshot 1"], "nothing is left to be flushed"
        order = [c for c in calls if c[0].startswith("middle")]
        assert order.index(("middle.0", "finish")) < order.index(("middle.1", "end_input"))
        bench.complete(1)
        bench.join()
        for name in ("middle.0", "sink"):
            assert after(calls, name, "snapshot 1") == ["complete 1", "close"], "once is enough"
        assert bench.states("sink")[-1] is ExecutionState.FINISHED


def test_a_drained_task_whose_checkpoint_is_aborted_cannot_go_on() -> None:
    calls: Calls = []
    with TaskBench(graph(calls)) as bench:
        bench.take(1, DRAIN)
        bench.abort(1)
        until(lambda: ExecutionState.FAILED in bench.states("sink"))
        error = bench.failure("sink").error
        assert isinstance(error, StateError)
        assert "aborted after sink (1/1) had ended event time" in str(error)


@pytest.mark.parametrize("options", [STOP, DRAIN])
def test_a_stop_meets_two_inputs_one_of_which_has_ended(options: CheckpointOptions) -> None:
    calls, may_end = Calls(), Signal()
    may_end.set()
    short = vertex("short", lambda: ReplayingSource(lambda _: [rows([0], [0])], may_end))
    endless = vertex("endless", lambda: Polled(calls))
    sink = vertex("sink", lambda: Noting(calls, inputs=2)).read(short, index=0).read(endless, index=1)
    with TaskBench(job(short, endless, sink, settings=SETTINGS)) as bench:
        until(lambda: "end_input" in calls_of(calls, "sink"))
        bench.take(1, options)
        ends = calls_of(calls, "sink").count("end_input")
        assert ends == (2 if options.drain else 1)
        bench.complete(1)
        bench.join()


def test_an_input_that_ends_with_the_alignment_ends_only_if_the_job_goes_on() -> None:
    calls, may_end = Calls(), Signal()
    ends = vertex("ends", lambda: ReplayingSource(lambda _: (), may_end))
    endless = vertex("endless", lambda: ReplayingSource(lambda _: (), Signal()))
    sink = vertex("sink", lambda: Noting(calls, inputs=2)).read(ends, index=0).read(endless, index=1)
    with TaskBench(job(ends, endless, sink, settings=SETTINGS)) as bench:
        bench.wait_for(ExecutionState.RUNNING)
        task = next(t for t in bench.tasks.values() if t.vertex.name.startswith("endless"))
        task.trigger_checkpoint(CheckpointBarrier(1, 0, STOP))
        bench.snapshot(1, "endless")
        may_end.set()
        bench.snapshot(1, "sink")
        assert "end_input" not in calls_of(calls, "sink")
        bench.abort(1)
        until(lambda: "end_input" in calls_of(calls, "sink"))


def test_timers_and_work_of_operators_wait_at_the_barrier() -> None:
    clock, calls = ManualClock(1_000), Calls()

    class WithTimer(Noting):
        def open(self) -> None:
            self.context.processing_time.register(2_000, lambda due: self.note(f"timer {due}"))

        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            self.note(f"complete {checkpoint_id}")
            self.context.execute(lambda: self.note("work"))

    source = vertex("source", lambda: ReplayingSource(lambda _: (), Signal()))
    sink = vertex("sink", lambda: WithTimer(calls)).read(source)
    with TaskBench(job(source, sink, settings=SETTINGS), clock=clock) as bench:
        bench.take(1, STOP)
        clock.advance(1_000)
        bench.complete(0)
        until(lambda: "complete 0" in calls_of(calls, "sink"))
        bench.complete(0)
        until(lambda: calls_of(calls, "sink").count("complete 0") == 2)
        assert "timer 2000" not in calls_of(calls, "sink")
        assert "work" not in calls_of(calls, "sink")
        bench.abort(1)
        until(lambda: {"timer 2000", "work"} <= set(calls_of(calls, "sink")))


def test_stopping_never_overtakes() -> None:
    """However it was asked for: rows in flight would have to be processed after the stop."""
    calls: Calls = []
    options = CheckpointOptions(alignment=Alignment.UNALIGNED, stop=True)
    with TaskBench(graph(calls)) as bench:
        metadata = bench.take(1, options)
        assert not metadata.in_flight
        assert not metadata.progress


def test_what_a_sink_hands_over_while_draining_waits_for_the_end() -> None:
    calls: Calls = []

    class Committing(Noting):
        def connect(self, submit: Callable[[list[Committable]], None]) -> None:
            self._submit = submit

        def finish(self) -> None:
            self._submit([Committable("last", {})])

        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            self._submit([Committable(f"of {checkpoint_id}", {})])

    source = vertex("source", lambda: Polled(calls))
    sink = vertex("sink", lambda: Committing(calls), sink=object()).read(source)
    with TaskBench(job(source, sink, settings=SETTINGS)) as bench:
        bench.take(1)
        bench.complete(1)
        bench.take(2, DRAIN)
        reports = bench.of(CommittablesReport)
        assert [(r.committables[0].commit_id, r.at_end) for r in reports] == [("of 1", False), ("last", True)]
        acknowledged = next(
            i for i, t in enumerate(bench.told) if t in bench.answers(2) and t.vertex.vertex_id == "sink-0"
        )
        assert bench.told.index(reports[1]) < acknowledged, "the coordinator must know before it stores the checkpoint"


def test_what_a_sink_hands_over_after_it_failed_to_finish_is_not_of_the_end() -> None:
    class Failing(Noting):
        def connect(self, submit: Callable[[list[Committable]], None]) -> None:
            self._submit = submit

        def finish(self) -> None:
            raise ValueError("cannot finish")

        def close(self) -> None:
            self._submit([Committable("left", {})])

    calls: Calls = []
    source = vertex("source", lambda: Polled(calls))
    sink = vertex("sink", lambda: Failing(calls), sink=object()).read(source)
    with TaskBench(job(source, sink, settings=SETTINGS)) as bench:
        bench.trigger(CheckpointBarrier(1, 0, DRAIN))
        until(lambda: ExecutionState.FAILED in bench.states("sink"))
        assert [r.at_end for r in bench.of(CommittablesReport)] == [False]


def test_a_source_that_is_stopped_takes_no_other_snapshot() -> None:
    calls: Calls = []
    with TaskBench(graph(calls)) as bench:
        bench.take(1, STOP)
        bench.trigger(CheckpointBarrier(2, 0))
        bench.complete(1)
        bench.join()
        assert bench.answers(2) == []


def test_a_source_that_does_not_end_when_drained_is_a_bug() -> None:
    class Stubborn(ReplayingSource):
        def stop(self, drain: bool) -> None:
            """No."""

    source = vertex("source", lambda: Stubborn(lambda _: [Watermark(1)], Signal()))
    sink = vertex("sink", lambda: Noting([])).read(source)
    with TaskBench(job(source, sink, settings=SETTINGS)) as bench:
        bench.trigger(CheckpointBarrier(1, 0, DRAIN))
        until(lambda: ExecutionState.FAILED in bench.states("source"))
        assert "does not end although it was told to stop" in str(bench.failure("source").error)
