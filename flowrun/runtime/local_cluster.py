"""The local cluster: everything a job needs in one process. Subtasks are threads, exchanges are queues.

One timer thread and one buffer pool serve all jobs of the cluster; each job has its own job master thread.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
import uuid
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Protocol

from flowrun.api.source import Split
from flowrun.core.clock import Clock, ForwardClock
from flowrun.core.elements import CheckpointBarrier
from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile, ResourceSpec
from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, build_execution_graph
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.jobmaster.create_job_master import create_job_master
from flowrun.runtime.jobmaster.hooks import MasterHook
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.jobmaster.job_state import JobStateOptions, OpenedState, open_job_state
from flowrun.runtime.jobmaster.job_tasks import WorkerPlaces
from flowrun.runtime.jobmaster.main_thread import JobMasterThreads
from flowrun.runtime.messages import (
    LOCAL_WORKER,
    JobMasterGateway,
    ResultPartitionId,
    TaskDeployment,
    TaskExecutorGateway,
)
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.network.buffer_pool import DEFAULT_TOTAL_SLOTS, GlobalBufferPool
from flowrun.runtime.network.environment import NetworkEnvironment
from flowrun.runtime.network.shuffle import ShuffleEnvironment
from flowrun.runtime.slot_messages import SlotProvider
from flowrun.runtime.slot_pool import LocalSlots, SlotPool
from flowrun.runtime.task.create_task import create_task
from flowrun.runtime.task.stream_task import StreamTask
from flowrun.runtime.timers import TimerThread
from flowrun.runtime.watchdog.job_board import JobBoard
from flowrun.state.storage.contract import SnapshotStorage

UPLOAD_THREADS = 4
"""How many snapshots of one job are written at a time: Arrow writes without the interpreter's lock, disks take some in parallel."""

STACK_DEPTH = 6
"""How many frames of a stuck thread its description shows."""

NO_RESOURCES = ResourceSpec()

_log = logging.getLogger(__name__)


class TaskThreads:
    """Runs subtasks, each on a thread of its own."""

    def start(self, task: StreamTask) -> None:
        """Begin."""
        task.thread.start()

    def join(self, task: StreamTask) -> None:
        """Return when it is over."""
        task.thread.join()

    def uploads(self) -> Executor | None:
        """Threads that write snapshots; None: who takes one writes it."""
        return ThreadPoolExecutor(UPLOAD_THREADS, "flowrun-upload")


class LocalTaskExecutor:
    """Runs subtasks of one job in this process. Thread-safe.

    Args:
        graph: the job's; deployments name its subtasks.
        network: creates partitions and gates.
        timers: of the process.
        clock: of the process.
        metrics: of the job.
        storage: where snapshots are written and read.
        board: where subtasks note what they are doing; None if no watchdog reads that.
        threads: what subtasks run on; None: threads of their own.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        network: ShuffleEnvironment,
        timers: TimerThread,
        clock: Clock,
        metrics: MetricRegistry,
        storage: SnapshotStorage,
        board: JobBoard | None,
        threads: TaskThreads | None = None,
    ) -> None:
        self._threads = threads or TaskThreads()
        self._graph = graph
        self._network = network
        self._board = board
        self._timers = timers
        self._clock = clock
        self._metrics = metrics
        self._storage = storage
        self._uploads = self._threads.uploads()
        self._connected: JobMasterGateway | None = None
        self._lock = threading.Lock()
        self._tasks: dict[str, StreamTask] = {}

    def connect(self, job_master: JobMasterGateway) -> None:
        """Set whom subtasks report to; before the first deployment."""
        self._connected = job_master

    @property
    def job_master(self) -> JobMasterGateway:
        """Whom subtasks report to."""
        assert self._connected is not None
        return self._connected

    def deploy(self, deployment: TaskDeployment) -> None:
        """Create a subtask and start its thread.

        Raises:
            ClusterError: no buffer slots are left.
        """
        vertex = self._graph.vertex(deployment.vertex)
        self._forget_earlier(vertex.id)
        partitions = [self._network.create_partition(p, deployment.attempt_id) for p in vertex.partitions]
        locations = {location.partition: location for location in deployment.inputs}
        gates = self._network.create_gates(vertex, self._graph.job_graph.settings.batch_rows, locations)
        task = create_task(
            deployment,
            self._graph,
            partitions,
            gates,
            job_master=self.job_master,
            timers=self._timers,
            clock=self._clock,
            metrics=self._metrics,
            storage=self._storage,
            uploads=self._uploads,
            activity=None if self._board is None else self._board.slot_of(vertex.id.vertex_id, vertex.subtask),
            spill_folder=self._network.spill_folder,
        )
        with self._lock:
            self._tasks[deployment.attempt_id] = task
        self._threads.start(task)

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None:
        """Delete blocking partitions."""
        self._network.release_partitions(partitions)

    def cancel(self, attempt_id: str) -> None:
        """Wake a subtask out of every wait and have it end."""
        task = self._task(attempt_id)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        """Have every subtask end."""
        with self._lock:
            tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()

    def stop(self, attempt_id: str, drain: bool) -> None:
        """Have a source subtask end its input early."""
        task = self._task(attempt_id)
        if task is not None:
            task.stop(drain)

    def add_splits(self, attempt_id: str, splits: Sequence[Split]) -> None:
        """Hand splits to a source subtask."""
        task = self._task(attempt_id)
        if task is not None:
            task.add_splits(splits)

    def notify_no_more_splits(self, attempt_id: str) -> None:
        """Tell a source subtask that no split will come."""
        task = self._task(attempt_id)
        if task is not None:
            task.notify_no_more_splits()

    def sample_rows(self, attempt_id: str, vertex: ExecutionVertexId, exchange: str, for_ms: int) -> None:
        """Have a subtask look at the rows that it sends to an exchange."""
        sample = self._metrics.group(vertex.vertex_id, str(vertex.subtask)).row_sample(exchange)
        if sample is not None and self._task(attempt_id) is not None:
            sample.begin(for_ms)

    def trigger_checkpoint(self, attempt_id: str, barrier: CheckpointBarrier) -> None:
        """Have a source subtask take its snapshot and send the barrier."""
        task = self._task(attempt_id)
        if task is not None:
            task.trigger_checkpoint(barrier)

    def complete_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """Tell a subtask that the checkpoint exists."""
        task = self._task(attempt_id)
        if task is not None:
            task.complete_checkpoint(checkpoint_id)

    def abort_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """Tell a subtask that the checkpoint will never exist."""
        task = self._task(attempt_id)
        if task is not None:
            task.abort_checkpoint(checkpoint_id)

    def describe_stuck(self, attempt_ids: Sequence[str]) -> tuple[str, ...]:
        """Which of these subtasks still run, and where their threads are."""
        frames = sys._current_frames()
        described = []
        for attempt_id in attempt_ids:
            task = self._task(attempt_id)
            if task is None or not task.thread.is_alive():
                continue
            frame = frames.get(task.thread.ident or 0)
            stack = traceback.extract_stack(frame)[-STACK_DEPTH:] if frame is not None else []
            where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(stack))
            operator = task.present_operator
            at_work = "" if operator is None else f" in operator '{operator}',"
            described.append(f"{task.vertex.name} is{at_work} at {where}")
            task.give_up()
        return tuple(described)

    def end(self, stuck: Sequence[str], *, keep_files: bool = False) -> None:
        """Join all threads but those of `stuck` attempts, and free the network; see `ShuffleEnvironment.release`."""
        with self._lock:
            tasks = dict(self._tasks)
            self._tasks.clear()
        for attempt_id, task in tasks.items():
            if attempt_id not in stuck:
                self._threads.join(task)
        if self._uploads is not None:
            self._uploads.shutdown(wait=not stuck)
        self._network.release(keep_files=keep_files)

    def _forget_earlier(self, vertex: ExecutionVertexId) -> None:
        """Drop attempts of a subtask before its next one: they have told their end, so their threads are about to."""
        with self._lock:
            earlier = [a for a, task in self._tasks.items() if task.vertex.id == vertex]
            tasks = [self._tasks.pop(a) for a in earlier]
        for task in tasks:
            self._threads.join(task)

    def _task(self, attempt_id: str) -> StreamTask | None:
        with self._lock:
            return self._tasks.get(attempt_id)


class JobExecutor(TaskExecutorGateway, Protocol):
    """What runs the subtasks of one job, here or elsewhere."""

    def connect(self, job_master: JobMaster) -> None:
        """Set whom subtasks report to; before the first deployment."""
        ...

    def describe_stuck(self, attempt_ids: Sequence[str]) -> tuple[str, ...]:
        """Which of these subtasks still run, and where their threads are."""
        ...

    def end(self, stuck: Sequence[str]) -> None:
        """Join all threads but those of `stuck` attempts, and free what the job had."""
        ...


@record(eq=False)
class JobSurroundings:
    """What a job master needs of the cluster that it is in.

    Attributes:
        clock: processing time.
        timers: for periodic work.
        slots: whoever has slots.
        metrics: of the job.
        places: knows where workers are; None: all subtasks run in this process.
        threads: what the job master does on; None: threads of its own.
    """

    clock: ForwardClock
    timers: TimerThread
    slots: SlotProvider
    metrics: MetricRegistry
    places: WorkerPlaces | None = None
    threads: JobMasterThreads | None = None


def start_job(
    opened: OpenedState,
    graph: ExecutionGraph,
    executor: JobExecutor,
    surroundings: JobSurroundings,
    *,
    job_id: str,
    hooks: Sequence[MasterHook] = (),
) -> JobMaster:
    """Start a job whose subtasks run on `executor`. The opened state is closed at the end of the job, or if it does not begin."""
    clock = surroundings.clock
    if opened.restored is not None:
        behind_ms = clock.not_before(opened.restored.metadata.completed_ms)
        if behind_ms:
            _log.warning(
                "this machine's clock is %s ms behind the state that the job goes on from: processing time goes on from there",
                behind_ms,
            )
    try:
        job_master = create_job_master(
            opened,
            graph,
            job_id=job_id,
            clock=clock,
            timers=surroundings.timers,
            metrics=surroundings.metrics,
            slots=surroundings.slots,
            on_end=executor.end,
            describe_stuck=executor.describe_stuck,
            places=surroundings.places,
            hooks=hooks,
            threads=surroundings.threads,
        )
    except BaseException:
        opened.storage.close()
        raise
    executor.connect(job_master)
    job_master.start(executor)
    return job_master


class LocalCluster:
    """Runs jobs in this process; they share its slots. Use as a context manager: leaving it, after its jobs, ends the timer thread.

    Args:
        clock: of everything in the cluster, where its time never goes back.
        total_slots: network buffer slots of 32 KiB.
        task_slots: how many slots there are: each runs at most one subtask of every vertex of a job. None: as many as jobs ask for.
        resources: CPU cores and memory that the slots divide among them; 0: as much as jobs ask for.
        spill_dir: parent folder of spilled blocking partitions; None: the system's temporary folder.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        total_slots: int = DEFAULT_TOTAL_SLOTS,
        task_slots: int | None = None,
        resources: ResourceSpec = NO_RESOURCES,
        spill_dir: Path | None = None,
    ) -> None:
        self.slots = LocalSlots(SlotPool(LOCAL_WORKER, task_slots, ResourceProfile.of(resources)))
        self.clock = ForwardClock(clock)
        self.pool = GlobalBufferPool(total_slots)
        self.timers = TimerThread(self.clock)
        self._spill_dir = spill_dir

    def submit(
        self,
        job_graph: JobGraph,
        *,
        state: JobStateOptions | None = None,
        hooks: Sequence[MasterHook] = (),
        board: JobBoard | None = None,
    ) -> JobMaster:
        """Start a job; gives the job master that runs it. Blocks on I/O: the state to restore from is read here.

        Args:
            job_graph: the job.
            state: where its state goes and what it restores from; see `open_job_state`.
            hooks: take part in its checkpoints.
            board: where its subtasks note what they are doing; None if no watchdog reads that.

        Raises:
            StateError: the state to restore from, or the folder of checkpoints, cannot be used.
        """
        opened = open_job_state(job_graph, state, self.clock)
        return self.run(opened, hooks=hooks, board=board)

    def run(
        self,
        opened: OpenedState,
        *,
        hooks: Sequence[MasterHook] = (),
        board: JobBoard | None = None,
    ) -> JobMaster:
        """Start the job of an opened state, which is closed at its end; see `submit`."""
        metrics, graph = MetricRegistry(), build_execution_graph(opened.job_graph)
        network = NetworkEnvironment(self.pool, self.timers, self.clock, self._spill_dir)
        executor = LocalTaskExecutor(graph, network, self.timers, self.clock, metrics, opened.storage, board)
        surroundings = JobSurroundings(self.clock, self.timers, self.slots, metrics)
        return start_job(opened, graph, executor, surroundings, job_id=uuid.uuid4().hex, hooks=hooks)

    def close(self) -> None:
        """End the timer thread. Idempotent.

        Raises:
            InternalError: a timer callback failed.
        """
        self.timers.close()
        if self.timers.failure is not None:
            raise InternalError("a timer callback failed") from self.timers.failure

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
