"""A cluster whose subtasks run in worker processes; the job masters are in this one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from flowrun.core.clock import ForwardClock, SystemClock
from flowrun.errors import InternalError
from flowrun.graph.execution_graph import build_execution_graph
from flowrun.graph.fingerprint import fingerprint
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.cluster.job_files import NO_FILES, JobFiles
from flowrun.runtime.cluster.job_workers import JobWorkers
from flowrun.runtime.cluster.resource_manager import ResourceManager
from flowrun.runtime.cluster_messages import JobOpening, JobText
from flowrun.runtime.jobmaster.hooks import MasterHook
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.jobmaster.job_state import JobStateOptions, OpenedState, open_job_state
from flowrun.runtime.local_cluster import JobSurroundings, start_job
from flowrun.runtime.metric_reports import MetricReports
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.slot_pool import Expect
from flowrun.runtime.timers import TimerThread
from flowrun.runtime.watchdog.job_board import JobBoard
from flowrun.state.storage.descriptor import StorageDescriptor


class Workers(Protocol):
    """The worker processes of one cluster; see `LocalWorkers`."""

    @property
    def bring_slots(self) -> bool:
        """Whether workers say how many slots they have; else this process does."""
        ...

    def start(self, accept: Callable[[RpcConnection], None], expect: Expect, timers: TimerThread) -> None:
        """Start all of them, or let them come."""
        ...

    def provide(self, slots: int) -> int | None:
        """Have so many slots in all, where this process decides that; gives the number of each worker, None: workers decide."""
        ...

    def why_closed(self, name: str, reason: str) -> str:
        """How a worker ended whose connection was closed for this reason."""
        ...

    def stop_accepting(self) -> None:
        """Let no more of them come, and start none in place of those that end. Idempotent."""
        ...

    def close(self) -> None:
        """End all of them. Idempotent."""
        ...


class WorkerCluster:
    """Runs one job in worker processes. Use as a context manager: leaving it closes the connections to them.

    Args:
        workers: the processes, which are started, or may come, from now on.
        text: of the job, for workers that have not inherited its job graph.
        files: that the text lists.

    Raises:
        ClusterError: the workers cannot be started, or cannot connect to this process.
    """

    def __init__(self, workers: Workers, text: JobText | None = None, files: JobFiles = NO_FILES) -> None:
        self._text = text
        self._files = files
        self.clock = ForwardClock(SystemClock())
        self.timers = TimerThread(self.clock)
        self._workers = workers
        self._manager = ResourceManager(0, workers.why_closed)
        try:
            workers.start(self._manager.accept, self._manager.slots.expect, self.timers)
        except BaseException:
            self._manager.close()
            self.timers.close()
            raise

    @property
    def manager(self) -> ResourceManager:
        """Knows the workers."""
        return self._manager

    def prepare(self, slots: int, text: JobText | None) -> None:
        """Get ready for the next job, which needs so many slots; no other one may have any. Workers compile its text, if it has one."""
        self._text = text
        each = self._workers.provide(slots)
        if each is not None:
            self._manager.set_slots(each)

    @property
    def text(self) -> JobText | None:
        """Of the present job, for workers that have not inherited its job graph."""
        return self._text

    @property
    def slots_there(self) -> int | None:
        """Slots of the workers that are there; None: as many as are asked for."""
        if not self._workers.bring_slots:
            return None
        return sum(worker.total or 0 for worker in self._manager.slots.workers)

    def submit(
        self,
        job_graph: JobGraph,
        *,
        state: JobStateOptions | None = None,
        hooks: Sequence[MasterHook] = (),
        board: JobBoard | None = None,
    ) -> JobMaster:
        """Start the job; see `LocalCluster.submit`. The workers have inherited the `board` that they use."""
        return self.run(open_job_state(job_graph, state, self.clock), hooks=hooks)

    def run(self, opened: OpenedState, *, hooks: Sequence[MasterHook] = ()) -> JobMaster:
        """Start the job of an opened state, which is closed at its end."""
        metrics, job_id = MetricRegistry(), uuid.uuid4().hex
        restored = opened.restored
        opening = JobOpening(
            job_id,
            opened.job_graph.name,
            None if self._text is None else fingerprint(opened.job_graph),
            tuple((v.vertex_id, v.max_parallelism) for v in opened.job_graph.vertices),
            0 if restored is None else restored.metadata.completed_ms,
            StorageDescriptor(opened.storage.job_folder, opened.shares_files),
            self._text,
            max((v.parallelism for v in opened.job_graph.vertices), default=1),
        )
        executor = JobWorkers(opening, self._manager, MetricReports(metrics, self.clock), self._files)
        surroundings = JobSurroundings(self.clock, self.timers, self._manager.slots, metrics, self._manager)
        graph = build_execution_graph(opened.job_graph)
        return start_job(opened, graph, executor, surroundings, job_id=job_id, hooks=hooks)

    def close(self) -> None:
        """End the workers and the timer thread. Idempotent.

        Raises:
            InternalError: a timer callback failed.
        """
        self._workers.stop_accepting()  # before connections are closed: whoever lost his would come again
        self._manager.close()
        self._workers.close()
        self.timers.close()
        if self.timers.failure is not None:
            raise InternalError("a timer callback failed") from self.timers.failure

    def __enter__(self) -> WorkerCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
