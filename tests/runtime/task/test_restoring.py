"""What a task goes on from: migrated state, nothing for new operators, the end for what had ended."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from recording_operators import Outcome, Remember, ReplayingSource
from runtime_fakes import Collect, Seen, job, rows, until, vertex
from task_bench import MemoryStorage, Signal, TaskBench, resume
from test_checkpoints import BY_KEY, SETTINGS, Noting, calls_of, endless

from flowrun.api.operator import ChainingStrategy
from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.lifecycle import ExecutionState


@dataclass(frozen=True)
class Described:
    """A factory that says which columns its state has."""

    schema: pa.Schema
    outcome: Outcome
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS

    def create(self) -> Remember:
        schema = self.schema

        class Checking(Remember):
            def initialize_state(self, restored: OperatorSnapshot | None) -> None:
                if restored is not None:
                    assert restored.keyed["seen"].schema.equals(schema)
                super().initialize_state(restored)

        return Checking(self.outcome)

    def state_schemas(self) -> dict[str, pa.Schema]:
        return {"seen": self.schema}


def remembering(outcome: Outcome, may_end: Signal, schema: pa.Schema | None = None) -> JobGraph:
    source = vertex("source", endless([1, 2, 3], may_end))
    sink = vertex("sink", lambda: Remember(outcome)).read(source, BY_KEY)
    graph = job(source, sink, settings=SETTINGS)
    if schema is not None:
        (operator,) = graph.vertices[1].operators
        object.__setattr__(operator, "factory", Described(schema, outcome))
    return graph


def test_state_whose_columns_changed_is_migrated_or_refused() -> None:
    storage, progress = MemoryStorage(), Outcome()
    with TaskBench(remembering(progress, Signal()), storage=storage) as bench:
        until(lambda: bench.metrics.group("sink-0", "0").counter("numRecordsIn").count == 3)
        metadata = bench.take(1)
    old = next(t.schema for t in storage.files.values() if KEY_GROUP_COLUMN in t.column_names)
    may_end, outcome = Signal(), Outcome()
    may_end.set()
    added = old.append(pa.field("note", pa.string()))
    with resume(remembering(outcome, may_end, added), metadata, storage) as bench:
        bench.join()
    assert outcome.values() == {1: [1], 2: [2], 3: [3]}
    changed = old.set(2, pa.field("v", pa.string()))
    with resume(remembering(Outcome(), may_end, changed), metadata, storage) as bench:
        until(lambda: ExecutionState.FAILED in bench.states("sink"))
        failure = bench.failure("sink")
        assert (failure.operator, failure.phase) == ("sink", "initialize_state")
        assert "'sink', state 'seen' of checkpoint 1: " in str(failure.error)
        assert "column 'v' was int64, is string now" in str(failure.error)


def test_state_without_a_place_to_read_it_from_is_a_clear_error() -> None:
    storage = MemoryStorage()
    with TaskBench(remembering(Outcome(), Signal()), storage=storage) as bench:
        until(lambda: bench.metrics.group("sink-0", "0").counter("numRecordsIn").count == 3)
        metadata = bench.take(1)
    graph = remembering(Outcome(), Signal())
    with resume(graph, metadata, storage, start=False) as bench:
        for task in bench.tasks.values():
            task._storage = None
            task.thread.start()
        until(lambda: ExecutionState.FAILED in bench.states("sink"))
        assert "'sink' has state to restore" in str(bench.failure("sink").error)


def test_an_operator_that_the_checkpoint_does_not_know_starts_afresh() -> None:
    storage, restored = MemoryStorage(), list[object]()
    with TaskBench(remembering(Outcome(), Signal()), storage=storage) as bench:
        metadata = bench.take(1)

    class Watching(Collect):
        def initialize_state(self, snapshot: OperatorSnapshot | None) -> None:
            restored.append(snapshot)

    source = vertex("source", endless([1, 2, 3]))
    fresh = vertex("fresh", lambda: Watching(Seen())).read(source)
    with resume(job(source, fresh, settings=SETTINGS), metadata, storage) as bench:
        bench.wait_for(ExecutionState.RUNNING)
    assert restored == [None]


def test_what_had_finished_runs_no_operator_and_passes_the_end_on() -> None:
    storage, may_end, calls = MemoryStorage(), Signal(), list[tuple[str, str]]()

    def graph(may_end: Signal, calls: list[tuple[str, str]], opened: list[str]) -> JobGraph:
        class Opening(ReplayingSource):
            def open(self) -> None:
                opened.append(self.context.name)
                super().open()

        one = vertex("one", lambda: Opening(lambda _: [rows([1])], may_end), parallelism=2)
        other = vertex("other", endless([2]))
        middle = vertex("middle", lambda: Noting(calls)).read(one, BY_KEY)
        sink = vertex("sink", lambda: Noting(calls, inputs=2)).read(middle, index=0).read(other, index=1)
        return job(one, other, middle, sink, settings=SETTINGS)

    may_end.set()
    with TaskBench(graph(may_end, calls, []), storage=storage) as bench:
        until(lambda: "end_input" in calls_of(calls, "sink"))
        until(lambda: bench.states("middle")[-1] is ExecutionState.FINISHED)
        metadata = bench.take(1)
        assert metadata.operators["middle-0"].finished
    again: list[tuple[str, str]] = []
    opened: list[str] = []
    with resume(graph(Signal(), again, opened), metadata, storage) as bench:
        until(lambda: "end_input" in calls_of(again, "sink"))
        until(lambda: bench.states("middle")[-1] is bench.states("one", 1)[-1] is ExecutionState.FINISHED)
        assert opened == []
        assert calls_of(again, "middle") == []
        assert not [call for call in calls_of(again, "sink") if call == "rows [1]"]
        bench.take(2)
