"""One checkpoint in a task: flush, barrier, snapshot, upload, acknowledgement, and what the job master says then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from recording_operators import ReplayingSource
from runtime_fakes import Collect, Seen, job, rows, until, vertex
from task_bench import MemoryStorage, Signal, TaskBench

from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot
from flowrun.core.elements import (
    MAX_WATERMARK,
    CheckpointBarrier,
    RecordBatch,
)
from flowrun.core.recovery import CheckpointSettings
from flowrun.errors import JobCancelledError, StateError
from flowrun.graph.job_graph import JobGraph, JobSettings
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.messages import CheckpointAcknowledgement, TaskUpdate

BY_KEY = KeyGroupPartitioner((0,))
SETTINGS = JobSettings(batch_rows=1, checkpoint=CheckpointSettings(1_000))
BARRIER = CheckpointBarrier(1, 1_000)


class Noting(Collect):
    """Writes every call down; `on` makes a call do more."""

    def __init__(
        self, calls: list[tuple[str, str]], on: Mapping[str, Callable[[Noting], None]] | None = None, inputs: int = 1
    ) -> None:
        super().__init__(Seen(), inputs)
        self._calls = calls
        self._on = on or {}

    def note(self, call: str) -> None:
        self._calls.append((self.context.name, call))
        if call in self._on:
            self._on[call](self)

    def open(self) -> None:
        self.note("open")

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self.note(f"rows {batch.columns['k'].to_pylist()}")
        self.output.emit(batch)

    def on_watermark(self, timestamp: int) -> None:
        self.note("max" if timestamp == MAX_WATERMARK.timestamp else f"watermark {timestamp}")

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self.note(f"prepare {checkpoint_id}")

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        self.note(f"snapshot {checkpoint_id}")
        table = pa.table({KEY_GROUP_COLUMN: pa.array([0], pa.int32()), "n": pa.array([checkpoint_id])})
        return OperatorSnapshot(keyed={"n": table})

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.note(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.note(f"aborted {checkpoint_id}")

    def end_input(self, input_index: int = 0) -> None:
        self.note("end_input")

    def finish(self) -> None:
        self.note("finish")

    def close(self) -> None:
        self.note("close")


def endless(values: list[int] | None = None, may_end: Signal | None = None) -> Callable[[], ReplayingSource]:
    elements = [rows([v], [v]) for v in values or []]
    signal = Signal() if may_end is None else may_end
    return lambda: ReplayingSource(lambda _: elements, signal)


def calls_of(calls: list[tuple[str, str]], name: str) -> list[str]:
    return [call for n, call in calls if n == name]


def two_tasks(
    calls: list[tuple[str, str]], on: Mapping[str, Callable[[Noting], None]] | None = None, **source: object
) -> JobGraph:
    """source → (middle.0 → middle.1) → last; `on` is for middle.1."""
    head = vertex("source", endless(**source))  # type: ignore[arg-type]
    middle = vertex("middle", lambda: Noting(calls), lambda: Noting(calls, on)).read(head)
    return job(head, middle, vertex("last", lambda: Noting(calls)).read(middle), settings=SETTINGS)


def answer(bench: TaskBench, checkpoint_id: int, name: str) -> CheckpointAcknowledgement:
    def found() -> list[CheckpointAcknowledgement]:
        return [a for a in bench.answers(checkpoint_id) if a.vertex.vertex_id == f"{name}-0"]

    until(found)
    return found()[0]


# ---- the synchronous part


def test_operators_flush_then_the_barrier_goes_then_they_say_what_they_remember() -> None:
    calls: list[tuple[str, str]] = []
    graph = two_tasks(calls, {"prepare 1": lambda o: o.output.emit(rows([99]))}, values=[7])
    with TaskBench(graph) as bench:
        until(lambda: calls_of(calls, "last") == ["open", "rows [7]"])
        metadata = bench.take(1)
        middle = [c for c in calls if c[0].startswith("middle") and c[1] not in ("open", "rows [7]")]
        assert middle == [
            ("middle.0", "prepare 1"),
            ("middle.1", "prepare 1"),
            ("middle.0", "snapshot 1"),
            ("middle.1", "snapshot 1"),
        ]
        assert calls_of(calls, "last") == ["open", "rows [7]", "rows [99]", "prepare 1", "snapshot 1"]
        assert {o for o, m in metadata.operators.items() if m.subtasks} == {
            "source-0",
            "middle-0",
            "middle-1",
            "last-0",
        }
        snapshot = bench.snapshot(1, "middle")
        assert [o.operator_id for o in snapshot.operators] == ["middle-0", "middle-1"]
        figures = snapshot.figures
        assert figures.state_bytes == figures.written_bytes == sum(f.size for f in snapshot.files) > 0
        assert figures.synchronous_ms > 0
        assert figures.asynchronous_ms > 0


def test_operators_know_whether_there_will_be_checkpoints() -> None:
    seen: list[bool] = []
    source = vertex("source", endless())
    sink = vertex("sink", lambda: Noting([], {"open": lambda o: seen.append(o.context.checkpointing)})).read(source)
    for settings in (SETTINGS, JobSettings()):
        with TaskBench(job(source, sink, settings=settings)) as bench:
            bench.wait_for(ExecutionState.RUNNING)
    assert seen == [True, False]


def fail(error: Exception) -> Callable[[Noting], None]:
    def raising(operator: Noting) -> None:
        raise error

    return raising


@pytest.mark.parametrize("call", ["prepare 1", "snapshot 1"])
def test_an_operator_that_cannot_take_part_declines_and_the_task_goes_on(call: str) -> None:
    calls: list[tuple[str, str]] = []
    may_end = Signal()
    graph = two_tasks(calls, {call: fail(ValueError("no room"))}, may_end=may_end)
    with TaskBench(graph) as bench:
        bench.trigger(BARRIER)
        declined = answer(bench, 1, "middle")
        assert declined.snapshot is None
        assert declined.declined == "'middle.1' could not take its snapshot: ValueError: no room"
        bench.abort(1)
        bench.take(2)
        may_end.set()
        bench.join()
        assert bench.states("middle")[-1] is bench.states("last")[-1] is ExecutionState.FINISHED


def test_an_operator_that_had_emitted_fails_the_task() -> None:
    def emit_and_fail(operator: Noting) -> None:
        operator.output.emit(rows([1]))
        raise ValueError("half flushed")

    with TaskBench(two_tasks([], {"prepare 1": emit_and_fail})) as bench:
        bench.trigger(BARRIER)
        until(lambda: ExecutionState.FAILED in bench.states("middle"))
        failure = bench.failure("middle")
        assert (failure.operator, failure.phase, str(failure.error)) == ("middle.1", "snapshot", "half flushed")


def test_an_operator_further_down_that_fails_on_what_is_flushed_fails_the_task() -> None:
    calls: list[tuple[str, str]] = []
    source = vertex("source", endless())
    chain = vertex(
        "chain",
        lambda: Noting(calls, {"prepare 1": lambda o: o.output.emit(rows([5]))}),
        lambda: Noting(calls, {"rows [5]": fail(ValueError("bad row"))}),
    ).read(source)
    with TaskBench(job(source, chain, settings=SETTINGS)) as bench:
        bench.trigger(BARRIER)
        until(lambda: ExecutionState.FAILED in bench.states("chain"))
        assert bench.failure("chain").operator == "chain.1"
        assert bench.answers(1) == [a for a in bench.answers(1) if a.vertex.vertex_id == "source-0"]


def test_a_cancel_in_the_synchronous_part_is_no_decline() -> None:
    with TaskBench(two_tasks([], {"prepare 1": fail(JobCancelledError("cancelled"))})) as bench:
        bench.trigger(BARRIER)
        until(lambda: ExecutionState.CANCELED in bench.states("middle"))
        assert all(a.declined is None for a in bench.answers(1))


# ---- what the job master says


def test_completion_and_abort_reach_operators_that_wait_for_input() -> None:
    calls: list[tuple[str, str]] = []
    with TaskBench(two_tasks(calls)) as bench:
        bench.take(1)
        bench.complete(1)
        until(lambda: "complete 1" in calls_of(calls, "last"))
        bench.take(2)
        bench.abort(2)
        until(lambda: "aborted 2" in calls_of(calls, "last"))
        until(lambda: ("completed", "last-0/0", 1) in bench.storage.events)
        mine = [(event, number) for event, name, number in bench.storage.events if name == "last-0/0"]
        assert mine.index(("written", 1)) < mine.index(("completed", 1)) < mine.index(("write", 2))


def test_a_failing_notification_is_the_operators_failure() -> None:
    with TaskBench(two_tasks([], {"complete 1": fail(ValueError("no commit"))})) as bench:
        bench.take(1)
        bench.complete(1)
        until(lambda: ExecutionState.FAILED in bench.states("middle"))
        failure = bench.failure("middle")
        assert (failure.operator, failure.phase) == ("middle.1", "notify_checkpoint_complete")


def test_an_abort_before_the_barrier_is_remembered() -> None:
    calls: list[tuple[str, str]] = []
    with TaskBench(two_tasks(calls)) as bench:
        for task in bench.tasks.values():
            if task.vertex.gates:
                task.abort_checkpoint(1)
        until(lambda: "aborted 1" in calls_of(calls, "middle.0"))
        bench.trigger(BARRIER)
        bench.take(2)
        assert "snapshot 1" not in calls_of(calls, "middle.0")


# ---- uploads


class Held:
    """Holds writes of one subtask up until it is opened."""

    def __init__(self, storage: MemoryStorage, name: str) -> None:
        self._name = name
        self.entered, self._open = threading.Event(), threading.Event()
        storage.gate = self._pass

    def _pass(self, name: str, checkpoint_id: int) -> None:
        if name == self._name:
            self.entered.set()
            assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()


def test_processing_goes_on_while_the_snapshot_is_written() -> None:
    storage, calls, may_end = MemoryStorage(), list[tuple[str, str]](), Signal()
    held = Held(storage, "last-0/0")
    graph = two_tasks(calls, may_end=may_end, values=[1])
    with TaskBench(graph, storage=storage) as bench:
        bench.trigger(BARRIER)
        assert held.entered.wait(30)
        bench.trigger(CheckpointBarrier(2, 0))
        bench.snapshot(2, "middle")
        until(lambda: "snapshot 2" in calls_of(calls, "last"))
        assert not [a for a in bench.answers(2) if a.vertex.vertex_id == "last-0"], "uploads of a task keep their order"
        held.open()
        bench.assemble(2)
        order = [a.checkpoint_id for a in bench.of(CheckpointAcknowledgement) if a.vertex.vertex_id == "last-0"]
        assert order == [1, 2]


def test_a_task_that_finishes_acknowledges_first() -> None:
    storage, may_end = MemoryStorage(), Signal()
    held = Held(storage, "last-0/0")
    calls: list[tuple[str, str]] = []
    with TaskBench(two_tasks(calls, may_end=may_end), storage=storage) as bench:
        bench.trigger(BARRIER)
        assert held.entered.wait(30)
        may_end.set()
        until(lambda: "finish" in calls_of(calls, "last"))
        bench.complete(0)
        until(lambda: "complete 0" in calls_of(calls, "last"))
        assert bench.states("last")[-1] is ExecutionState.RUNNING, "mails run, but it is not over"
        held.open()
        bench.join()
        mine = [t for t in bench.told if getattr(t, "vertex", None) and t.vertex.vertex_id == "last-0"]
        assert isinstance(mine[-2], CheckpointAcknowledgement)
        assert isinstance(mine[-1], TaskUpdate)
        assert mine[-1].state is ExecutionState.FINISHED


def test_a_cancelled_task_abandons_its_upload_and_writes_nothing_after_its_end() -> None:
    storage = MemoryStorage()
    held = Held(storage, "middle-0/0")
    with TaskBench(two_tasks([]), storage=storage) as bench:
        bench.trigger(BARRIER)
        assert held.entered.wait(30)
        for task in bench.tasks.values():
            task.cancel()
        until(lambda: ExecutionState.CANCELED in bench.states("source"))
        (middle,) = (t for t in bench.tasks.values() if t.vertex.id.vertex_id == "middle-0")
        until(lambda: middle._checkpoints._snapshots._uploads.is_closed)
        assert ExecutionState.CANCELED not in bench.states("middle"), "its write is still under way"
        held.open()
        bench.join()
        assert ("write", "middle-1/0", 1) not in storage.events
        assert [a for a in bench.answers(1) if a.vertex.vertex_id == "middle-0"] == []


def test_a_snapshot_that_cannot_be_written_is_declined_and_the_next_one_works() -> None:
    storage = MemoryStorage()

    def full(name: str, checkpoint_id: int) -> None:
        if name == "middle-1/0" and checkpoint_id == 1:
            raise StateError("the disk is full")

    storage.gate = full
    with TaskBench(two_tasks([]), storage=storage) as bench:
        bench.trigger(BARRIER)
        assert answer(bench, 1, "middle").declined == "the disk is full"
        bench.abort(1)
        bench.take(2)


def test_an_aborted_snapshot_is_not_written_on_and_what_was_written_is_made_known() -> None:
    storage, calls = MemoryStorage(), list[tuple[str, str]]()
    held = Held(storage, "middle-0/0")
    with TaskBench(two_tasks(calls), storage=storage) as bench:
        bench.trigger(BARRIER)
        assert held.entered.wait(30)
        bench.abort(1)
        until(lambda: "aborted 1" in calls_of(calls, "middle.1"))
        held.open()
        snapshot = bench.snapshot(1, "middle")
        assert [o.operator_id for o in snapshot.operators] == ["middle-0"]
