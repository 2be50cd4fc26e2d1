"""Subtasks of a job graph on threads, without a job master: what they tell is kept, and tests say what a job master would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from runtime_fakes import InFlightInMemory, until

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN, KeyGroupRange, OperatorSnapshot
from flowrun.core.clock import Clock, SystemClock
from flowrun.core.elements import CheckpointBarrier, CheckpointKind, CheckpointOptions
from flowrun.graph.execution_graph import ExecutionVertexId, build_execution_graph
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.checkpoint.assembly import JobIdentity, StartedCheckpoint, assemble
from flowrun.runtime.checkpoint.events import StoreCheckpoint
from flowrun.runtime.checkpoint.restore import restored_tasks
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.messages import (
    CheckpointAcknowledgement,
    CommittablesReport,
    RestoredTask,
    SplitRequest,
    TaskDeployment,
    TaskUpdate,
)
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.environment import NetworkEnvironment
from flowrun.runtime.task.create_task import create_task
from flowrun.runtime.task.stream_task import StreamTask
from flowrun.runtime.timers import TimerThread
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    FileReference,
    InFlight,
    KeyedTableState,
    OperatorSubtaskState,
    StateFile,
    SubtaskSnapshot,
    rows_of,
)


class MemoryWriter:
    """Keeps what is written in a dictionary; `events` has every call, and `gate` may hold one up or make it fail."""

    def __init__(self, storage: MemoryStorage, operator_id: str, subtask: int) -> None:
        self._storage = storage
        self._name = f"{operator_id}/{subtask}"
        self._operator_id = operator_id

    def write(
        self, checkpoint_id: int, target: str, kind: CheckpointKind, snapshot: OperatorSnapshot
    ) -> OperatorSubtaskState:
        storage = self._storage
        storage.events.append(("write", self._name, checkpoint_id))
        if storage.gate is not None:
            storage.gate(self._name, checkpoint_id)
        keyed = {}
        for name, table in snapshot.keyed.items():
            path = f"{target}/chk-{checkpoint_id}/{self._name}/{name}"
            storage.files[path] = table
            file = StateFile(path, table.nbytes, table.num_rows, "")
            keyed[name] = KeyedTableState(table.schema, (FileReference(file),))
        storage.events.append(("written", self._name, checkpoint_id))
        return OperatorSubtaskState(self._operator_id, keyed, snapshot.operator)

    def completed(self, checkpoint_id: int) -> None:
        self._storage.events.append(("completed", self._name, checkpoint_id))


class MemoryStorage(InFlightInMemory):
    """A `SnapshotStorage` of tables in memory."""

    staging = ""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, pa.Table] = {}
        self.events: list[tuple[str, str, int]] = []
        self.gate: Callable[[str, int], None] | None = None

    def writer(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange) -> MemoryWriter:
        return MemoryWriter(self, operator_id, subtask)

    def read_keyed(self, state: Sequence[KeyedTableState], groups: KeyGroupRange, root: str) -> pa.Table:
        tables = [self.files[f.file.path] for table in state for f in table.files]
        rows = pa.concat_tables(tables)
        assert DELETED_COLUMN not in rows.column_names
        column = rows[KEY_GROUP_COLUMN]
        return rows.filter(pc.and_(pc.greater_equal(column, groups.start), pc.less(column, groups.stop)))


class TaskBench:
    """Runs all subtasks of a job graph. Leaving it cancels what still runs and checks that nothing is left behind.

    Attributes:
        told: everything that tasks told, in order: updates, acknowledgements, reports.
    """

    def __init__(
        self,
        graph: JobGraph,
        *,
        clock: Clock | None = None,
        storage: MemoryStorage | None = None,
        restored: Mapping[ExecutionVertexId, RestoredTask] | None = None,
        start: bool = True,
    ) -> None:
        self.graph = graph
        self.clock = clock or SystemClock()
        self.storage = storage or MemoryStorage()
        self.execution_graph = build_execution_graph(graph)
        self.told: list[Any] = []
        self.timers = TimerThread(self.clock)
        self.pool = GlobalBufferPool()
        self.network = NetworkEnvironment(self.pool, self.timers, self.clock)
        self.uploads = ThreadPoolExecutor(4)
        self.metrics = MetricRegistry()
        self.tasks: dict[ExecutionVertexId, StreamTask] = {}
        for vertex in self.execution_graph.all_vertices():
            deployment = TaskDeployment(
                "job", str(vertex.id), vertex.id, restored=None if restored is None else restored[vertex.id]
            )
            self.tasks[vertex.id] = create_task(
                deployment,
                self.execution_graph,
                [self.network.create_partition(p, str(vertex.id)) for p in vertex.partitions],
                self.network.create_gates(vertex, graph.settings.batch_rows, {}),
                job_master=self,
                timers=self.timers,
                clock=self.clock,
                metrics=self.metrics,
                storage=self.storage,
                uploads=self.uploads,
            )
        if start:
            for task in self.tasks.values():
                task.thread.start()

    # ---- what tasks tell

    def update_task(self, update: TaskUpdate) -> None:
        self.told.append(update)

    def acknowledge_checkpoint(self, acknowledgement: CheckpointAcknowledgement) -> None:
        self.told.append(acknowledgement)

    def report_committables(self, report: CommittablesReport) -> None:
        self.told.append(report)

    def request_split(self, request: SplitRequest) -> None:
        self.told.append(request)

    # ---- what tests look at

    def states(self, name: str, subtask: int = 0) -> list[ExecutionState]:
        return [u.state for u in self.of(TaskUpdate) if u.vertex == ExecutionVertexId(f"{name}-0", subtask)]

    def failure(self, name: str) -> Any:
        return next(u.failure for u in self.of(TaskUpdate) if u.vertex.vertex_id == f"{name}-0" and u.failure)

    def of(self, kind: type) -> list[Any]:
        return [t for t in list(self.told) if isinstance(t, kind)]

    def answers(self, checkpoint_id: int) -> list[CheckpointAcknowledgement]:
        return [a for a in self.of(CheckpointAcknowledgement) if a.checkpoint_id == checkpoint_id]

    def snapshot(self, checkpoint_id: int, name: str, subtask: int = 0) -> SubtaskSnapshot:
        """What a subtask acknowledged; waits for it."""
        vertex = ExecutionVertexId(f"{name}-0", subtask)
        until(lambda: any(a.vertex == vertex for a in self.answers(checkpoint_id)))
        (answer,) = [a for a in self.answers(checkpoint_id) if a.vertex == vertex]
        assert answer.snapshot is not None, answer.declined
        return answer.snapshot

    # ---- what a job master does

    def wait_for(self, state: ExecutionState) -> None:
        until(lambda: all(any(u.state is state for u in self._updates(v)) for v in self.tasks))

    def trigger(self, barrier: CheckpointBarrier) -> None:
        for task in self.tasks.values():
            if not task.vertex.gates:
                task.trigger_checkpoint(barrier)

    def take(self, checkpoint_id: int, options: CheckpointOptions | None = None) -> CheckpointMetadata:
        """A whole checkpoint: trigger, wait for every subtask, assemble; not completed yet."""
        self.trigger(CheckpointBarrier(checkpoint_id, self.clock.now_ms(), options or CheckpointOptions()))
        return self.assemble(checkpoint_id)

    def assemble(self, checkpoint_id: int) -> CheckpointMetadata:
        """Wait until each subtask has acknowledged or finished; what the checkpoint consists of."""
        until(lambda: all(self._is_done(v, checkpoint_id) for v in self.tasks))
        answers = {a.vertex: a for a in self.answers(checkpoint_id)}
        snapshots = {}
        for vertex, answer in answers.items():
            assert answer.snapshot is not None, answer.declined
            snapshots[vertex] = answer.snapshot
        finished = frozenset(set(self.tasks) - set(answers))
        return assemble(
            self.graph,
            JobIdentity("lineage", "", None, None),
            StartedCheckpoint(0, CheckpointOptions()),
            StoreCheckpoint(checkpoint_id, snapshots, finished),
            {},
            0,
        )

    def complete(self, checkpoint_id: int) -> None:
        for task in self.tasks.values():
            task.complete_checkpoint(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        for task in self.tasks.values():
            task.abort_checkpoint(checkpoint_id)

    def join(self) -> None:
        for task in self.tasks.values():
            task.thread.join(30)
            assert not task.thread.is_alive(), f"{task.vertex.name} does not end"

    def __enter__(self) -> TaskBench:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.tasks.values():
            task.cancel()
        for task in self.tasks.values():
            if task.thread.ident is not None:
                task.thread.join(30)
        events = len(self.storage.events)
        self.uploads.shutdown(wait=True)
        assert len(self.storage.events) == events, "written after the end"
        self.timers.close()
        assert self.timers.failure is None
        self.network.release()
        assert self.pool.free_slots == self.pool.total_slots

    def _updates(self, vertex: ExecutionVertexId) -> list[TaskUpdate]:
        return [u for u in self.of(TaskUpdate) if u.vertex == vertex]

    def _is_done(self, vertex: ExecutionVertexId, checkpoint_id: int) -> bool:
        if any(a.vertex == vertex for a in self.answers(checkpoint_id)):
            return True
        return any(u.state is ExecutionState.FINISHED for u in self._updates(vertex))


def resume(graph: JobGraph, metadata: CheckpointMetadata, storage: MemoryStorage, **options: Any) -> TaskBench:
    """The job, perhaps at another parallelism, from a checkpoint."""
    restored = restored_tasks(metadata, "", build_execution_graph(graph))
    return TaskBench(graph, storage=storage, restored=restored, **options)


def in_flight_rows(in_flight: Iterable[InFlight]) -> int:
    """Number of all rows in flight."""
    return sum(rows.num_rows for i in in_flight for rows in rows_of(i.elements))


class Signal:
    """A flag that tests set and operators look at; `listeners` are told."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.listeners: list[Callable[[], None]] = []

    def set(self) -> None:
        self._event.set()
        for listener in list(self.listeners):
            listener()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self) -> None:
        assert self._event.wait(30)
