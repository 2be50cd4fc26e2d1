"""The embedded runner: jobs in this process, from start to end: each in a cluster of its own, or several in one that is given.

While a job runs, Arrow's own CPU pool has one thread: subtasks are the parallelism, and a pool of as many threads as cores
under each of them would only fight over the same cores (ADR 6). The setting is Arrow's and holds for the whole process; the last
running job puts back what was there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from flowrun.core.clock import Clock, SystemClock
from flowrun.errors import InternalError, PipelineError, StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.masking import mask_exception
from flowrun.runners.job_block import JobBlock
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.jobmaster.hooks import MasterHook
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.jobmaster.job_state import JobStateOptions, RestorePoint
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.local_cluster import LocalCluster
from flowrun.runtime.network.buffer_pool import DEFAULT_TOTAL_SLOTS
from flowrun.runtime.watchdog.job_board import JobBoard

if TYPE_CHECKING:
    from flowrun.datastream.environment import StreamExecutionEnvironment
    from flowrun.runtime.job_details import JobDetails

__all__ = [
    "EmbeddedExecutor",
    "JobStateOptions",
    "LocalJob",
    "SnapshotTicket",
    "StatusListener",
    "run_embedded",
    "start_embedded",
]

StatusListener = Callable[[JobStatus], None]


class JobCluster(Protocol):
    """What runs jobs: this process, or worker processes."""

    def submit(
        self,
        job_graph: JobGraph,
        *,
        state: JobStateOptions | None = None,
        hooks: Sequence[MasterHook] = (),
        board: JobBoard | None = None,
    ) -> JobMaster:
        """Start a job; see `LocalCluster.submit`."""
        ...

    def close(self) -> None:
        """End what the cluster has started. Idempotent."""
        ...


class LocalJob(JobBlock):
    """A job that runs in this process.

    All methods are thread-safe; `stop`, `cancel` and `take_snapshot` may be called in a signal handler.
    """

    def __init__(self, job_master: JobMaster, cluster: JobCluster | None) -> None:
        """`cluster`: closed at the end of the job; None: it is not the job's alone."""
        self._job_master = job_master
        self._cluster = cluster
        self._lock = threading.Lock()
        self._closed = False

    @property
    def job_id(self) -> str:
        """Unique to this run."""
        return self._job_master.job_id

    def status(self) -> JobStatus:
        """What the job looks like now, also after its end."""
        return self._job_master.status()

    def details(self) -> JobDetails:
        """The job in full, subtask by subtask, now or at its end."""
        return self._job_master.details()

    def sample_rows(self, exchange: str, for_ms: int) -> None:
        """Keep the last rows of an exchange for so long, so that `details` has them.

        Raises:
            StateError: the job has no such exchange.
        """
        self._job_master.sample_rows(exchange, for_ms)

    @property
    def checkpoint_root(self) -> str | None:
        """The job's folder of checkpoints, from which it can be resumed once there is one; None if it takes none."""
        return self._job_master.checkpoint_root

    @property
    def job_graph(self) -> JobGraph:
        """That runs, with the key groups of the state that it restored from."""
        return self._job_master.job_graph

    @property
    def restore_point(self) -> RestorePoint | None:
        """What a restart goes back to; once the job is over, what another one can go on from; None: the beginning."""
        return self._job_master.restore_point

    def take_snapshot(
        self, directory: str | None = None, *, savepoint: bool = True, stop: bool = False, drain: bool = False
    ) -> SnapshotTicket:
        """Ask for a savepoint, or for a checkpoint now; gives the ticket at once.

        Args:
            directory: folder below which the savepoint gets a folder of its own; None: the root of checkpoints.
            savepoint: False: a checkpoint in the job's folder; needs checkpoint settings.
            stop: the job ends when the snapshot is complete (`JobResult.stopped_at`); goes on if there will be none.
            drain: with `stop`, event time ends before the snapshot, so that open windows fire; resuming would fire them again.
        """
        return self._job_master.take_snapshot(directory, savepoint=savepoint, stop=stop, drain=drain)

    def stop(self, drain: bool = False) -> None:
        """Have the sources end early; what they emitted is processed and committed, and the job finishes.

        With `drain` event time goes to its end, so that open windows fire; without it they do not.
        """
        self._job_master.stop(drain=drain)

    def cancel(self) -> None:
        """End the job as soon as possible, without results."""
        self._job_master.cancel()

    def release_commits(self) -> None:
        """Let what was held back count from now on; see `JobStateOptions.hold`. Done soon; harmless if nothing is held back."""
        self._job_master.release_commits()

    def rescale(self, parallelism: int) -> SnapshotTicket:
        """Refuse: one execution of a job keeps its job graph; `flowrun.runners.rescaling` goes from one to the next.

        Raises:
            StateError: always.
        """
        raise StateError("the job cannot be rescaled while it runs", hint="stop it, and start it again from its state")

    def fail(self, error: Exception) -> None:
        """Something around the job is wrong: end it, or restart it, as after any failure."""
        self._job_master.fail(error)

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        """The result once the job is over and all its threads have ended; None if it still runs after `timeout_ms`.

        Raises:
            JobFailedError: the job failed; `__cause__` is the root cause.
        """
        try:
            result = self._job_master.wait(timeout_ms)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                self._close()
            mask_exception(error)
            raise
        if result is not None:
            self._close()
        return result

    def _close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _ARROW_THREADS.release()
        if self._cluster is not None:
            self._cluster.close()


def start_embedded(
    job_graph: JobGraph,
    *,
    clock: Clock | None = None,
    network_slots: int = DEFAULT_TOTAL_SLOTS,
    task_slots: int | None = None,
    cluster: JobCluster | None = None,
    state: JobStateOptions | None = None,
    hooks: Sequence[MasterHook] = (),
    board: JobBoard | None = None,
) -> LocalJob:
    """Start a job and give a handle to it at once.

    Args:
        job_graph: the job.
        clock: processing time; the system's if None.
        network_slots: buffer slots of 32 KiB that all exchanges share.
        task_slots: how many slots the job may use: it fails if it needs more. None: as its settings say, which limit nothing
            unless told so.
        cluster: where the job runs, instead of a cluster of its own: jobs on one cluster share its slots and buffers, and wait for
            each other (`JobStatus.waits_for`). `clock`, `network_slots` and `task_slots` are the cluster's then.
        state: where its state goes and what it restores from; None: checkpoints, if its settings ask for any, go to
            `settings.checkpoint.directory` or `.flowrun/state`, and it starts afresh.
        hooks: take part in checkpoints beside the job's subtasks.
        board: where subtasks note what they are doing; None: nobody looks.

    Raises:
        PipelineError: a cluster is given, and what is the cluster's; or the job has nothing to run.
        StateError: the state to restore from is missing, damaged or does not fit, or the folder of checkpoints cannot be used.
    """
    if not job_graph.vertices:  # it would never end
        raise PipelineError.of(
            f"job '{job_graph.name}' has nothing to run",
            hint="write rows to a sink; a batch runs on Spark, not as a stream",
        )
    own: LocalCluster | None = None
    if cluster is None:
        cluster = own = _cluster_for(job_graph, clock or SystemClock(), network_slots, task_slots)
    elif clock is not None or task_slots is not None or network_slots != DEFAULT_TOTAL_SLOTS:
        raise PipelineError.of(
            f"job '{job_graph.name}' is given a cluster, and a clock or slots of its own",
            hint="give clock, network_slots and task_slots to the cluster",
        )
    _ARROW_THREADS.acquire()
    try:
        job_master = cluster.submit(job_graph, state=state, hooks=hooks, board=board)
        return LocalJob(job_master, own)
    except BaseException as error:
        _ARROW_THREADS.release()
        if own is not None:
            own.close()
        mask_exception(error)
        raise


def _cluster_for(job_graph: JobGraph, clock: Clock, network_slots: int, task_slots: int | None) -> LocalCluster:
    """A cluster for one job, with the slots that its settings ask for."""
    slots = job_graph.settings.slots
    number = slots.number if task_slots is None else task_slots
    return LocalCluster(clock, total_slots=network_slots, task_slots=number, resources=slots.resources)


def run_embedded(
    job_graph: JobGraph,
    *,
    clock: Clock | None = None,
    listener: StatusListener | None = None,
    listen_every_ms: int = 500,
    network_slots: int = DEFAULT_TOTAL_SLOTS,
    task_slots: int | None = None,
    cluster: JobCluster | None = None,
    state: JobStateOptions | None = None,
) -> JobResult:
    """Run a job to its end.

    Args:
        job_graph: the job.
        clock: processing time; the system's if None.
        listener: called on this thread with the status every `listen_every_ms`, and once at the end.
        listen_every_ms: as said.
        network_slots: see `start_embedded`.
        task_slots: see `start_embedded`.
        cluster: see `start_embedded`.
        state: see `start_embedded`.

    Raises:
        JobFailedError: the job failed.
        StateError: see `start_embedded`.
        KeyboardInterrupt: Ctrl-C; the job was cancelled and all its threads have ended.
    """
    with start_embedded(
        job_graph,
        clock=clock,
        network_slots=network_slots,
        task_slots=task_slots,
        cluster=cluster,
        state=state,
    ) as job:
        while True:
            result = job.wait(None if listener is None else listen_every_ms)
            if listener is not None:
                listener(job.status())
            if result is not None:
                return result


class EmbeddedExecutor:
    """Runs the jobs of a program in its own process.

        with executing(EmbeddedExecutor(cluster)):
            first, second = one.execute_async(), other.execute_async()

    Args:
        cluster: on which all of them run, sharing its slots; None: each has one of its own.
    """

    def __init__(self, cluster: LocalCluster | None = None) -> None:
        self._cluster = cluster

    @property
    def variables(self) -> Mapping[str, str]:
        """Those of the process."""
        return dict(os.environ)

    def execute(self, environment: StreamExecutionEnvironment) -> JobResult:
        """Run the job to its end. Raises as `run_embedded`."""
        return run_embedded(environment.job_graph(), cluster=self._cluster)

    def execute_async(self, environment: StreamExecutionEnvironment) -> LocalJob:
        """Start the job. Raises as `start_embedded`."""
        return start_embedded(environment.job_graph(), cluster=self._cluster)


class _ArrowThreads:
    """Keeps Arrow's CPU pool at one thread while jobs run. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs = 0
        self._before = 0

    def acquire(self) -> None:
        with self._lock:
            if self._jobs == 0:
                self._before = pa.cpu_count()
                pa.set_cpu_count(1)
            self._jobs += 1

    def release(self) -> None:
        with self._lock:
            self._jobs -= 1
            if self._jobs < 0:
                raise InternalError("more jobs ended than began")
            if self._jobs == 0:
                pa.set_cpu_count(self._before)


_ARROW_THREADS = _ArrowThreads()
