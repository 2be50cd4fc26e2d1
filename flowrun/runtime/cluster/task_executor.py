"""The task executor: the role of a worker process. It hosts the subtasks of any number of jobs, each job with what is its own."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from flowrun.api.source import Split
from flowrun.core.clock import ForwardClock
from flowrun.core.elements import CheckpointBarrier
from flowrun.core.log_context import log_for_job
from flowrun.core.recent_logs import RECENT_LOGS
from flowrun.errors import ConnectionOverError, InternalError
from flowrun.graph.execution_graph import ExecutionVertexId, build_execution_graph
from flowrun.graph.fingerprint import check_fingerprint
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.cluster.job_files import FetchFile
from flowrun.runtime.cluster_messages import (
    JobClosed,
    JobFilesGateway,
    JobObserverGateway,
    JobOpening,
    job_files_endpoint,
    job_master_endpoint,
    job_observer_endpoint,
    tasks_endpoint,
)
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.local_cluster import LocalTaskExecutor
from flowrun.runtime.mailbox import Mail, Mailbox
from flowrun.runtime.messages import (
    CheckpointAcknowledgement,
    CommittablesReport,
    JobMasterGateway,
    ResultPartitionId,
    SplitRequest,
    TaskDeployment,
    TaskExecutorGateway,
    TaskFailure,
    TaskUpdate,
)
from flowrun.runtime.metric_reports import MetricsReport, read_report
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.remote.data_server import DataServer
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.timers import Timer, TimerThread
from flowrun.runtime.watchdog.job_board import JobBoard

METRICS_EVERY_MS = 250
"""How often a worker reports the metrics of each job."""

JobGraphs = Callable[[JobOpening, FetchFile], JobGraph]
"""Gives the job graph of a job that is about to be opened: compiled from its text, with files that the job manager gives; or inherited.
Raises FlowrunError."""

_log = logging.getLogger(__name__)


class TaskExecutor:
    """Serves `WorkerGateway` on one connection to a job manager. Thread-safe.

    Args:
        worker: name of this process in the cluster.
        connection: to the job manager.
        graphs: gives job graphs.
        data: exchanges rows with other processes.
        pool: buffers of all jobs in this process.
        timers: of the process.
        clock: of the process.
        board: where subtasks note what they are doing; None if no watchdog reads that.
        spill_dir: parent folder of what does not fit into memory; None: the system's temporary folder.
        settle: is told among how many processes of this machine a job is divided, this one among them, before the job is opened.
    """

    def __init__(
        self,
        worker: str,
        connection: RpcConnection,
        graphs: JobGraphs,
        data: DataServer,
        pool: GlobalBufferPool,
        timers: TimerThread,
        clock: ForwardClock,
        board: JobBoard | None = None,
        spill_dir: Path | None = None,
        settle: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.worker = worker
        self._connection = connection
        self._graphs = graphs
        self._data = data
        self._pool = pool
        self._timers = timers
        self._clock = clock
        self._board = board
        self._spill_dir = spill_dir
        self._settle = settle
        self._lock = threading.Lock()
        self._jobs: dict[str, _HostedJob] = {}
        self._threads: dict[str, _JobThread] = {}

    def open_job(self, opening: JobOpening) -> None:
        """Get ready for subtasks of a job; see `WorkerGateway`. The job is opened on a thread of its own, on which its calls wait."""
        thread, tasks = _JobThread(opening.job_name), _Tasks()
        with self._lock:
            self._threads[opening.job_id] = thread
        self._connection.serve(tasks_endpoint(opening.job_id), TaskExecutorGateway, tasks, post=thread.post)
        thread.post(lambda: self._open(opening, tasks))

    def _open(self, opening: JobOpening, tasks: _Tasks) -> None:
        job_master = self._connection.gateway(JobMasterGateway, job_master_endpoint(opening.job_id))
        try:
            self._settle(min(opening.workers_here, opening.parallelism))
            job = self._host(opening, job_master)
        except Exception as error:
            _log.warning("job '%s' cannot run here: %s", opening.job_name, error)
            tasks.target = _Refusing(error, job_master)
            return
        with self._lock:
            self._jobs[opening.job_id] = job
        tasks.target = job.executor

    def describe_stuck(self, job_id: str, attempt_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Which of these subtasks still run; see `WorkerGateway`."""
        with self._lock:
            job = self._jobs.get(job_id)
        return () if job is None else job.executor.describe_stuck(attempt_ids)

    def close_job(self, job_id: str, stuck: tuple[str, ...]) -> JobClosed:
        """End a job here; see `WorkerGateway`."""
        self._connection.withdraw(tasks_endpoint(job_id))
        with self._lock:
            thread = self._threads.pop(job_id, None)
        if thread is not None:
            thread.end()
        with self._lock:
            job = self._jobs.pop(job_id, None)
        report = MetricsReport() if job is None else job.close(stuck)
        self._data.remove_files(job_id)  # of workers that are gone, too
        return JobClosed(report, self._pool.total_slots, self._pool.free_slots)

    def close(self) -> None:
        """The job manager is gone: cancel all subtasks, and free what their jobs had. Idempotent.

        Files that other processes of this host can read stay: the job may go on without this one.
        """
        with self._lock:
            threads, self._threads = list(self._threads.values()), {}
        for thread in threads:
            thread.end()
        with self._lock:
            jobs, self._jobs = list(self._jobs.values()), {}
        for job in jobs:
            job.executor.cancel_all()
        for job in jobs:
            job.close((), keep_files=True)

    def _host(self, opening: JobOpening, job_master: JobMasterGateway) -> _HostedJob:
        files = self._connection.gateway(JobFilesGateway, job_files_endpoint(opening.job_id))
        job_graph = _with_key_groups(self._graphs(opening, files.read_file), opening)
        if opening.fingerprint is not None:
            check_fingerprint(job_graph, opening.fingerprint)
        self._clock.not_before(opening.not_before_ms)
        log_for_job(opening.job_id, opening.job_name)
        if opening.storage is None:
            raise InternalError(f"job '{opening.job_name}' was opened without a place for its snapshots")
        if job_graph.settings.checkpoint is not None:
            opening.storage.check_is_there()
        metrics = MetricRegistry()
        environment = self._data.environment(opening.job_id, self._pool, self._clock, self._spill_dir)
        executor = _ReportingTaskExecutor(
            build_execution_graph(job_graph),
            environment,
            self._timers,
            self._clock,
            metrics,
            opening.storage.open(),
            self._board,
        )
        observer = self._connection.gateway(JobObserverGateway, job_observer_endpoint(opening.job_id))

        def report(values: MetricsReport) -> None:
            observer.report_metrics(self.worker, values)

        executor.connect(_JobMasterOfSubtasks(job_master, metrics, report))
        return _HostedJob(executor, metrics, report, self._timers)


class _JobThread:
    """Opens one job, and takes the calls for its subtasks afterwards, in their order, so that the connection's thread waits for none."""

    def __init__(self, job_name: str) -> None:
        self._mailbox = Mailbox()
        self._thread = threading.Thread(target=self._run, name=f"flowrun-job-{job_name}", daemon=True)
        self._thread.start()

    def post(self, mail: Mail) -> bool:
        """Run a mail after those that were posted before; False if the thread has ended."""
        return self._mailbox.put(mail)

    def end(self) -> None:
        """Run what was posted, and end. Blocks."""
        self._mailbox.put(self._stop)
        self._thread.join()

    def _run(self) -> None:
        with suppress(_JobThreadEnded):
            while True:
                self._mailbox.wait_for_mail()
                mail = self._mailbox.take_nowait()
                if mail is not None:
                    mail()
        self._mailbox.close()

    def _stop(self) -> None:
        raise _JobThreadEnded


class _JobThreadEnded(Exception):
    """A thread of a job is to end."""


class _Tasks:
    """The subtasks of a job that is opened: calls reach them, and are made after the opening only."""

    target: TaskExecutorGateway

    def __getattr__(self, name: str) -> object:
        return getattr(self.target, name)


class _HostedJob:
    """One job in this process: its subtasks, and the metrics that are reported of them."""

    def __init__(
        self,
        executor: LocalTaskExecutor,
        metrics: MetricRegistry,
        report: Callable[[MetricsReport], None],
        timers: TimerThread,
    ) -> None:
        self.executor = executor
        self._metrics = metrics
        self._report = report
        self._timers = timers
        self._timer: Timer | None = None
        self._closed = False
        self._report_later()

    def close(self, stuck: Sequence[str], *, keep_files: bool = False) -> MetricsReport:
        """End it; gives the last metrics."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.executor.end(stuck, keep_files=keep_files)
        with suppress(OSError, ValueError):  # nobody reads it any more
            sys.stdout.flush()  # what functions have printed without a line's end: this process may be killed from now on
        return _report_of(self._metrics)

    def _report_later(self) -> None:
        if not self._closed:
            self._timer = self._timers.after(METRICS_EVERY_MS, self._report_now)

    def _report_now(self) -> None:
        if not self._closed:
            with suppress(ConnectionOverError):  # this process is about to end
                self._report(_report_of(self._metrics))
            self._report_later()


def _report_of(metrics: MetricRegistry) -> MetricsReport:
    """The metrics now, and what was logged here."""
    return replace(read_report(metrics), logs=RECENT_LOGS.take_untold())


class _JobMasterOfSubtasks:
    """A job master as the subtasks of this process see it.

    Before it hears that one is over, it has that one's metrics. Once the job manager is gone nothing is told any more: this process is
    about to end, or its subtasks are cancelled.
    """

    def __init__(
        self, job_master: JobMasterGateway, metrics: MetricRegistry, report: Callable[[MetricsReport], None]
    ) -> None:
        self._job_master = job_master
        self._metrics = metrics
        self._report = report

    def acknowledge_checkpoint(self, acknowledgement: CheckpointAcknowledgement) -> None:
        """See `JobMasterGateway`."""
        with suppress(ConnectionOverError):
            self._job_master.acknowledge_checkpoint(acknowledgement)

    def update_task(self, update: TaskUpdate) -> None:
        """See `JobMasterGateway`."""
        with suppress(ConnectionOverError):
            if update.state.is_terminal:
                self._report(_report_of(self._metrics))
            self._job_master.update_task(update)

    def request_split(self, request: SplitRequest) -> None:
        """See `JobMasterGateway`."""
        with suppress(ConnectionOverError):
            self._job_master.request_split(request)

    def report_committables(self, report: CommittablesReport) -> None:
        """See `JobMasterGateway`."""
        with suppress(ConnectionOverError):
            self._job_master.report_committables(report)


class _ReportingTaskExecutor(LocalTaskExecutor):
    """Reports what a deployment raises, as nobody waits for its end."""

    def deploy(self, deployment: TaskDeployment) -> None:
        """Create a subtask and start its thread; if that fails, the job master hears why."""
        try:
            super().deploy(deployment)
        except Exception as error:
            _report_failure(self.job_master, deployment, error)


class _Refusing:
    """Stands for the subtasks of a job that cannot run in this process: every deployment fails with the reason."""

    def __init__(self, error: Exception, job_master: JobMasterGateway) -> None:
        self._error = error
        self._job_master = job_master

    def deploy(self, deployment: TaskDeployment) -> None:
        """Report why it cannot be."""
        _report_failure(self._job_master, deployment, self._error)

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None:
        """There are none."""

    def cancel(self, attempt_id: str) -> None:
        """There is none."""

    def stop(self, attempt_id: str, drain: bool) -> None:
        """There is none."""

    def add_splits(self, attempt_id: str, splits: Sequence[Split]) -> None:
        """There is none."""

    def notify_no_more_splits(self, attempt_id: str) -> None:
        """There is none."""

    def sample_rows(self, attempt_id: str, vertex: ExecutionVertexId, exchange: str, for_ms: int) -> None:
        """There is none."""

    def trigger_checkpoint(self, attempt_id: str, barrier: CheckpointBarrier) -> None:
        """There is none."""

    def complete_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """There is none."""

    def abort_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """There is none."""


def _report_failure(job_master: JobMasterGateway, deployment: TaskDeployment, error: Exception) -> None:
    failure = TaskFailure(error, phase="deployment")
    job_master.update_task(TaskUpdate(deployment.vertex, deployment.attempt_id, ExecutionState.FAILED, failure))


def _with_key_groups(job_graph: JobGraph, opening: JobOpening) -> JobGraph:
    """The graph with the key groups of the state that the job restores from."""
    numbers = dict(opening.max_parallelism)
    vertices = tuple(
        replace(v, max_parallelism=numbers.get(v.vertex_id, v.max_parallelism)) for v in job_graph.vertices
    )
    return replace(job_graph, vertices=vertices)
