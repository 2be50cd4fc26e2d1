"""The workers of one job as its job master reaches them: calls go to the worker that a subtask was deployed to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from flowrun.api.source import Split
from flowrun.core.elements import CheckpointBarrier
from flowrun.core.recent_logs import RECENT_LOGS
from flowrun.errors import ClusterError
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.cluster.job_files import NO_FILES, JobFiles
from flowrun.runtime.cluster.resource_manager import ConnectedWorker, ResourceManager
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
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.jobmaster.scheduler_events import WorkerLost
from flowrun.runtime.messages import JobMasterGateway, ResultPartitionId, TaskDeployment, TaskExecutorGateway
from flowrun.runtime.metric_reports import MetricReports, MetricsReport

Tell = Callable[[ConnectedWorker], None]
"""Says something to a worker, or asks it; raises nothing."""

_log = logging.getLogger(__name__)


def at_the_same_time(tell: Tell, workers: Sequence[ConnectedWorker]) -> None:
    """Tell all workers at once, so that those that hang together cost the time limit of one call."""
    if len(workers) < 2:
        one_by_one(tell, workers)
        return
    with ThreadPoolExecutor(len(workers), "flowrun-ask") as threads:
        list(threads.map(tell, workers))


def one_by_one(tell: Tell, workers: Iterable[ConnectedWorker]) -> None:
    """Tell one worker after the other, on this thread."""
    for worker in workers:
        tell(worker)


class JobWorkers:
    """A `TaskExecutorGateway` over many workers. Each is told of the job before its first subtask. Thread-safe.

    Args:
        opening: what each worker is told of the job.
        manager: knows the workers.
        metrics: where the reports of all workers come together.
        files: that the job's text lists.
        tell_all: how workers are asked what they all have to answer.
    """

    def __init__(
        self,
        opening: JobOpening,
        manager: ResourceManager,
        metrics: MetricReports,
        files: JobFiles = NO_FILES,
        tell_all: Callable[[Tell, Sequence[ConnectedWorker]], None] = at_the_same_time,
    ) -> None:
        self._opening = opening
        self._files = files
        self._tell_all = tell_all
        self._manager = manager
        self._metrics = metrics
        self._job_master: JobMaster | None = None
        self._lock = threading.Lock()
        self._opened: dict[str, ConnectedWorker] = {}
        self._places: dict[str, TaskExecutorGateway] = {}
        """Attempt → its worker's subtasks of this job."""
        self._attempts: dict[object, str] = {}
        """Subtask → its last attempt."""

    def connect(self, job_master: JobMaster) -> None:
        """Set whom subtasks report to; before the first deployment."""
        self._job_master = job_master
        self._manager.listen(self._opening.job_id, self)

    def deploy(self, deployment: TaskDeployment) -> None:
        """Have a worker start a subtask.

        Raises:
            ClusterError: the worker is gone.
        """
        worker = self._manager.worker(deployment.worker)
        self._open(worker)
        tasks = worker.connection.gateway(TaskExecutorGateway, tasks_endpoint(self._opening.job_id))
        with self._lock:
            earlier = self._attempts.get(deployment.vertex)
            if earlier is not None:
                self._places.pop(earlier, None)
            self._attempts[deployment.vertex] = deployment.attempt_id
            self._places[deployment.attempt_id] = tasks
        tasks.deploy(deployment)

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None:
        """Have every worker delete these partitions, wherever they are."""
        for worker in self._all():
            tasks = worker.connection.gateway(TaskExecutorGateway, tasks_endpoint(self._opening.job_id))
            _unless_gone(partial(tasks.release_partitions, partitions))

    def cancel(self, attempt_id: str) -> None:
        """Wake a subtask out of every wait and have it end."""
        self._tell(attempt_id, lambda tasks: tasks.cancel(attempt_id))

    def stop(self, attempt_id: str, drain: bool) -> None:
        """Have a source subtask end its input early."""
        self._tell(attempt_id, lambda tasks: tasks.stop(attempt_id, drain))

    def add_splits(self, attempt_id: str, splits: Sequence[Split]) -> None:
        """Hand splits to a source subtask."""
        self._tell(attempt_id, lambda tasks: tasks.add_splits(attempt_id, splits))

    def notify_no_more_splits(self, attempt_id: str) -> None:
        """Tell a source subtask that no split will come."""
        self._tell(attempt_id, lambda tasks: tasks.notify_no_more_splits(attempt_id))

    def sample_rows(self, attempt_id: str, vertex: ExecutionVertexId, exchange: str, for_ms: int) -> None:
        """Have a subtask look at the rows that it sends to an exchange."""
        self._tell(attempt_id, lambda tasks: tasks.sample_rows(attempt_id, vertex, exchange, for_ms))

    def trigger_checkpoint(self, attempt_id: str, barrier: CheckpointBarrier) -> None:
        """Have a source subtask take its snapshot and send the barrier."""
        self._tell(attempt_id, lambda tasks: tasks.trigger_checkpoint(attempt_id, barrier))

    def complete_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """Tell a subtask that the checkpoint exists."""
        self._tell(attempt_id, lambda tasks: tasks.complete_checkpoint(attempt_id, checkpoint_id))

    def abort_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """Tell a subtask that the checkpoint will never exist."""
        self._tell(attempt_id, lambda tasks: tasks.abort_checkpoint(attempt_id, checkpoint_id))

    def describe_stuck(self, attempt_ids: Sequence[str]) -> tuple[str, ...]:
        """Which of these subtasks still run, and where their threads are."""
        described: dict[str, Sequence[str]] = {}

        def ask(worker: ConnectedWorker) -> None:
            try:
                found = worker.gateway.describe_stuck(self._opening.job_id, tuple(attempt_ids))
            except ClusterError as error:
                found = (f"{worker} does not answer ({error.message})",)
            described[worker.name] = found

        workers = self._all()
        self._tell_all(ask, workers)
        return tuple(text for worker in workers for text in described[worker.name])

    def end(self, stuck: Sequence[str]) -> None:
        """The job is over: have every worker join its threads but those of `stuck` attempts, and free what the job had.

        Files of workers that are gone are deleted by those that are left on their hosts. Workers that do not answer are waited for
        together, for as long as one call may take.
        """
        job_id = self._opening.job_id
        self._manager.forget(job_id)
        closed: dict[str, JobClosed] = {}

        def close(worker: ConnectedWorker) -> None:
            try:
                closed[worker.name] = worker.gateway.close_job(job_id, tuple(stuck))
            except ClusterError as error:
                _log.warning("%s could not close job '%s': %s", worker, self._opening.job_name, error.message)
            worker.connection.withdraw(job_master_endpoint(job_id))
            worker.connection.withdraw(job_observer_endpoint(job_id))
            worker.connection.withdraw(job_files_endpoint(job_id))

        workers = self._manager.workers
        self._tell_all(close, workers)
        for worker in workers:
            if worker.name in closed:
                self._metrics.add(worker.name, closed[worker.name].metrics)
                self._note_buffers(worker, closed[worker.name], stuck)

    def lose_worker(self, lost: WorkerLost) -> None:
        """See `WorkerListener`."""
        with self._lock:
            self._opened.pop(lost.worker, None)
        assert self._job_master is not None
        self._job_master.lose_worker(lost)

    def find_host_folder(self, host_folder: str) -> None:
        """See `WorkerListener`."""
        assert self._job_master is not None
        self._job_master.find_host_folder(host_folder)

    def report_metrics(self, worker: str, report: MetricsReport) -> None:
        """See `JobObserverGateway`; comes from the reader threads of connections."""
        self._metrics.add(worker, report)
        if report.logs:
            RECENT_LOGS.add(report.logs)

    def _open(self, worker: ConnectedWorker) -> None:
        with self._lock:
            if self._opened.get(worker.name) is worker:
                return
            self._opened[worker.name] = worker
        assert self._job_master is not None
        worker.connection.serve(job_master_endpoint(self._opening.job_id), JobMasterGateway, self._job_master)
        worker.connection.serve(job_observer_endpoint(self._opening.job_id), JobObserverGateway, self)
        worker.connection.serve(job_files_endpoint(self._opening.job_id), JobFilesGateway, self._files)
        here = sum(w.registration.host == worker.registration.host for w in self._manager.workers)
        worker.gateway.open_job(replace(self._opening, workers_here=here))

    def _note_buffers(self, worker: ConnectedWorker, closed: JobClosed, stuck: Sequence[str]) -> None:
        """Say whether a worker has got back what the job had of its network buffers."""
        missing, name = closed.buffers - closed.free_buffers, self._opening.job_name
        if missing:
            level = logging.INFO if stuck else logging.WARNING
            _log.log(level, "%s has not got back %d network buffers of job '%s'", worker, missing, name)
        else:
            _log.info("%s has got back all network buffers of job '%s'", worker, name)

    def _tell(self, attempt_id: str, call: Callable[[TaskExecutorGateway], None]) -> None:
        with self._lock:
            tasks = self._places.get(attempt_id)
        if tasks is not None:
            _unless_gone(lambda: call(tasks))

    def _all(self) -> list[ConnectedWorker]:
        with self._lock:
            return list(self._opened.values())


def _unless_gone(call: Callable[[], None]) -> None:
    """Call, and forget it if the worker is gone: the job master is told of that by whoever notices the loss."""
    try:
        call()
    except ClusterError as error:
        _log.debug("a worker that is gone was not told: %s", error)
