"""Jobs on one thread: real job masters, subtasks, exchanges and checkpoints, whose every piece of work the caller has done.

    cluster = OneThreadCluster(CallersClock(start_ms))
    job = cluster.start(job_graph)
    cluster.settle()             # all rows that are there were processed, all timers that are due have run
    cluster.advance(60_000)      # a minute of processing time goes by; each timer sees the time that it asked for

Nothing depends on how threads take turns: the same calls give the same rows in the same order.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Executor
from types import TracebackType

from flowrun.core.clock import ForwardClock
from flowrun.core.resources import ResourceProfile, ResourceSpec
from flowrun.errors import FlowrunError
from flowrun.graph.execution_graph import build_execution_graph
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.pipeline_tests.one_thread.memory_storage import MemoryStorage
from flowrun.runners.pipeline_tests.one_thread.timers import CallersClock, CallersThreads, SteppedTimers
from flowrun.runtime.job_status import JobResult
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.local_cluster import JobSurroundings, LocalTaskExecutor, TaskThreads, start_job
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.network.buffer_pool import GlobalBufferPool, LocalBufferPool
from flowrun.runtime.network.environment import NetworkEnvironment
from flowrun.runtime.slot_pool import LocalSlots, SlotPool
from flowrun.runtime.task.stream_task import Step, StreamTask

_ANY_NUMBER = 1 << 40
_LONGEST_S = 60.0
"""Of real time, until a job is said not to come to rest."""
_POLL_S = 0.001


class OneThreadCluster:
    """Runs jobs on the thread that calls it.

    Args:
        clock: of everything in the cluster; it stands still but for `advance`.

    Raises (all methods that do work):
        FlowrunError: a job does not come to rest within a minute.
    """

    def __init__(self, clock: CallersClock) -> None:
        self._time = clock
        self.clock = ForwardClock(clock)
        self.timers = SteppedTimers(self.clock)
        self._threads = CallersThreads()
        self._tasks = _SteppedTasks()
        self._slots = LocalSlots(SlotPool("local", None, ResourceProfile.of(ResourceSpec())))
        self._buffers = _AllTheRoom(_ANY_NUMBER)
        self._storage = MemoryStorage()

    def start(self, job_graph: JobGraph) -> JobMaster:
        """Start a job and have it come to rest; it goes on from the newest savepoint that another has taken."""
        opened = self._storage.open(job_graph)
        metrics, graph = MetricRegistry(), build_execution_graph(opened.job_graph)
        network = NetworkEnvironment(self._buffers, self.timers, self.clock)
        executor = LocalTaskExecutor(
            graph, network, self.timers, self.clock, metrics, opened.storage, None, self._tasks
        )
        surroundings = JobSurroundings(self.clock, self.timers, self._slots, metrics, threads=self._threads)
        job = start_job(opened, graph, executor, surroundings, job_id=uuid.uuid4().hex)
        self.settle()
        return job

    def settle(self) -> None:
        """Have everything done that can be done now: rows processed, mails read, timers run that are due."""
        end = time.monotonic() + _LONGEST_S
        while True:
            any_done = False
            for main in self._threads.mains:
                any_done |= main.run_mails()
            any_done |= self.timers.run_due()
            any_done |= self._tasks.run_all(end)
            if any_done:
                _check(end)
            elif self._tasks.any_asks_outside:
                time.sleep(_POLL_S)  # a thread of the user's, or of a client, is to answer: it has no other sign
                _check(end)
            else:
                return

    def advance(self, ms: int) -> None:
        """Let processing time go by. On the way it stops at each time that something waits for."""
        target = self._time.now_ms() + ms
        while (due_ms := self.timers.next_ms) is not None and due_ms <= target:
            if due_ms > self._time.now_ms():
                self._time.advance(due_ms - self._time.now_ms())
            self.settle()
        if target > self._time.now_ms():
            self._time.advance(target - self._time.now_ms())
        self.settle()

    def result(self, job: JobMaster) -> JobResult | None:
        """How the job ended; None: it goes on.

        Raises:
            JobFailedError: it failed.
        """
        return job.wait(0)

    def take_savepoint(self, job: JobMaster) -> None:
        """Have the next job go on from here.

        Raises:
            StateError: there is no savepoint, and why.
        """
        ticket = job.take_snapshot(None, savepoint=True, stop=False, drain=False)
        self.settle()
        ticket.wait(0)

    def kill(self, job: JobMaster) -> None:
        """End a job at once, without results."""
        job.cancel()
        self.settle()

    def close(self) -> None:
        """Forget timers. Jobs are ended before."""
        self.timers.close()

    def __enter__(self) -> OneThreadCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check(end: float) -> None:
    if time.monotonic() > end:
        raise FlowrunError(
            f"the pipeline did not come to rest within {_LONGEST_S:g} s",
            hint="something in it goes on by itself: a source that is not replaced, or a function that does not return",
        )


class _SteppedTasks(TaskThreads):
    """The subtasks of all jobs."""

    def __init__(self) -> None:
        self._awake: list[StreamTask] = []
        self._resting: list[StreamTask] = []

    def start(self, task: StreamTask) -> None:
        self._awake.append(task)

    def join(self, task: StreamTask) -> None:
        """Whoever asks has heard that it is over."""

    def uploads(self) -> Executor | None:
        return None

    @property
    def any_asks_outside(self) -> bool:
        """Whether a subtask waits for answers that come from other threads."""
        return any(task.waits_for_answers for task in self._resting)

    def run_all(self, end: float) -> bool:
        """Step each subtask that has something to do until it has nothing; whether one had."""
        woken = [task for task in self._resting if task.is_awake()]
        ready, self._awake = [*self._awake, *woken], []
        self._resting = [task for task in self._resting if task not in woken]
        for task in ready:
            while (following := task.step()) is Step.MORE:
                _check(end)
            if following is not Step.OVER:
                self._resting.append(task)
        return bool(ready)


class _AllTheRoom(GlobalBufferPool):
    """Room for all rows: nobody may wait for a reader that runs on the same thread."""

    def create_local(self, reserved: int, limit: int, overdraft: int = 0) -> LocalBufferPool:
        return super().create_local(reserved, _ANY_NUMBER >> 8)
