"""The dispatcher of a session cluster: takes jobs, has each run by a process of its own, and passes on what users ask of them.

Jobs do not share a process, neither their job managers nor their workers, so a function of one can neither slow nor end another, and two
folders of functions may have modules of the same name. A job manager process that dies is replaced, and its job goes on from its last
checkpoint.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Protocol

from flowrun.api.source import JsonValue
from flowrun.core.recent_logs import LogLines
from flowrun.errors import ClusterError, FencingError, JobFailedError, StateError
from flowrun.runners.control import Order
from flowrun.runners.job_document import JobDocument
from flowrun.runners.session.dispatched_job import DispatchedJob
from flowrun.runners.session.job_store import JobStore, StoredJob
from flowrun.runners.session.messages import (
    JOB_MANAGER,
    NOTHING_REMAINS,
    JobManagerGateway,
    JobProcess,
    JobRemains,
    JobRunOrder,
    JobSubmission,
    JobSummary,
    RestPlace,
)
from flowrun.runtime.cluster.job_files import FetchFile, JobFiles, fetch_files
from flowrun.runtime.cluster.session_messages import TASK_MANAGER, TaskManagerGateway, TaskManagerRegistration
from flowrun.runtime.cluster.session_slots import SessionSlots, TaskManagerSlots
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.error_values import error_to_value
from flowrun.runtime.timers import TimerThread

_BY_HAND = "go on from its last checkpoint: flowrun resume --from-savepoint PATH --secret-var …"
MOST_ENDED_JOBS = 100
"""That are remembered; the oldest makes room."""
MOST_LOSSES = 5
"""Job manager processes of one job that may die one after the other, without a checkpoint between them."""
ANSWER_MS = 10_000
"""How long a job manager process may take to answer: what it is asked for it only begins."""
LIST_ANSWER_MS = 2_000
"""The same where all jobs are listed: one that hangs does not hide the others."""
PROCESS_START_MS = 30_000
"""How long an order waits for a job manager process that is being started."""

_log = logging.getLogger(__name__)


class JobProcesses(Protocol):
    """What starts and ends job manager processes, by their names; see `JobProcess`."""

    def spawn(self, name: str) -> None:
        """Start one. Raises ClusterError: no process can be started any more, as the cluster is about to end."""
        ...

    def kill(self, name: str) -> None:
        """Kill one, whose end is told as any other. Harmless if it has ended."""
        ...


class Dispatcher:
    """Thread-safe.

    Args:
        slots: of the task managers.
        processes: starts and kills job manager processes.
        timers: of the process.
        store: keeps jobs for another dispatcher; None: they end with this one.
    """

    def __init__(
        self, slots: SessionSlots, processes: JobProcesses, timers: TimerThread, store: JobStore | None = None
    ) -> None:
        self.slots = slots
        self.rest: RestPlace | None = None
        """Where the REST API of the cluster is, as soon as it is served."""
        self._processes = processes
        self._timers = timers
        self._clock = timers.clock
        self._store = store
        self._lock = threading.Lock()
        self._jobs: dict[str, DispatchedJob] = {}
        self._closing = False

    def recover(self) -> None:
        """Go on with the jobs that an earlier dispatcher has kept, and remember those that had ended.

        Raises:
            StateError: they cannot be read.
        """
        for stored in () if self._store is None else self._store.load():
            files = JobFiles(stored.submission.text.files, stored.contents)
            last = stored.last or self._progress(stored.job_id, stored.submission)
            job = DispatchedJob(stored.job_id, stored.submission, files, stored.started_ms, last, threading.Event())
            job.description = stored.description
            with self._lock:
                self._jobs[job.job_id] = job
            if job.is_over:
                job.reachable.set()
                continue
            job.since_ms = job.started_ms
            _log.warning("job '%s' (%s) goes on after its dispatcher was lost", job.submission.name, job.job_id)
            withheld = stored.submission.text.pipeline.withheld
            if withheld:
                names = ", ".join(withheld)
                self._fail(
                    job,
                    ClusterError(
                        f"values of secret variables are not kept, so it cannot go on: {names}", hint=_BY_HAND
                    ),
                )
                continue
            self._spawn_again(job)

    # ---- for clients

    def submit(self, submission: JobSubmission, fetch: FetchFile) -> str:
        """Run a job; gives its id.

        Args:
            submission: the job.
            fetch: gives the files that its text lists.

        Raises:
            ClusterError: the cluster is being ended, or can start no process; or a file is refused or cannot be fetched.
        """
        files = fetch_files(submission.text.files, fetch)
        job_id = uuid.uuid4().hex
        last = self._progress(job_id, submission)
        job = DispatchedJob(job_id, submission, files, self._clock.now_ms(), last, threading.Event())
        if self._closing:
            raise ClusterError("the cluster is being ended: it takes no job any more")
        self._keep(job)
        with self._lock:
            self._jobs[job_id] = job
        self._forget_oldest()
        _log.info("job '%s' was submitted as %s", submission.name, job_id)
        try:
            self._spawn(job)
        except ClusterError as error:
            self._fail(job, error)
            raise
        return job_id

    def list_jobs(self) -> tuple[JobSummary, ...]:
        """All jobs that run, and the last ones that ended, in the order in which they came."""
        with self._lock:
            jobs = list(self._jobs.values())
        return tuple(
            JobSummary(j.job_id, j.submission.name, j.submission.text.pipeline.file_name, j.pid, j.started_ms, self._state(j))
            for j in jobs
        )  # fmt: skip

    def job_ids(self) -> tuple[str, ...]:
        """Ids of the jobs that `list_jobs` lists; no process is asked for it."""
        with self._lock:
            return tuple(self._jobs)

    def describe_job(self, job_id: str) -> JsonValue:
        """A job as JSON, as it was if its process hangs; see `JobControl.describe`. Raises ClusterError: it is unknown."""
        job = self._job(job_id)
        if not job.is_over and (manager := self._manager(job, LIST_ANSWER_MS)) is not None:
            try:
                job.told = manager.describe()
            except StateError:  # it has not begun
                job.told = None
            except ClusterError:  # its process has just ended, or hangs
                pass
            if isinstance(described := job.told, dict):
                told = described.get("waits_for")
                waits_for = self._waits_for(job_id, None if told is None else str(told))
                return {**described, "started_ms": job.started_ms, "waits_for": waits_for}
        last = job.description
        return {**last, "pid": job.pid} if isinstance(last, dict) else job.outline()  # its process may be gone since

    def job_details(self, job_id: str, within_ms: int | None = None) -> JobDetails:
        """A job in full, now or at its end. Raises ClusterError: it is unknown, or its process cannot be reached, or not `within_ms`."""
        job = self._job(job_id)
        try:
            details = (
                job.last_details(self._clock.now_ms()) if job.is_over else self._running(job_id, within_ms).details()
            )
        except ClusterError:
            if not job.is_over:  # else its process has told how it ended, and is gone
                raise
            details = job.last_details(self._clock.now_ms())
        waits_for = None if job.is_over else self._waits_for(job_id, details.status.waits_for)
        # Its process has an id of its own.
        return replace(details, status=replace(details.status, job_id=job_id, waits_for=waits_for))

    def job_document(self, job_id: str) -> JobDocument | None:
        """The text of a job, without its secrets, which only its own process knows; None: that process has not told it.

        Raises:
            ClusterError: the job is unknown, or its process cannot be reached.
        """
        job = self._job(job_id)
        return job.remains.document if job.is_over else self._running(job_id).document()

    def job_logs(self, job_id: str, after: int = 0) -> LogLines:
        """The last lines of the log of a job's process; of a job that is over none. Raises as `job_document`."""
        job = self._job(job_id)
        return LogLines((), 0) if job.is_over else self._running(job_id).logs(after)

    def has_job(self, job_id: str) -> bool:
        """Whether a job is known."""
        with self._lock:
            return job_id in self._jobs

    def is_over(self, job_id: str) -> bool:
        """Whether a job has ended. Raises ClusterError: it is unknown."""
        return self._job(job_id).is_over

    def watch_job(self, job_id: str) -> JobProgress:
        """How a job stands, or ended. Raises ClusterError: it is unknown."""
        job = self._job(job_id)
        manager = None if job.is_over else self._manager(job)
        if manager is not None:
            try:
                progress = manager.watch()
            except ClusterError:  # its process has just ended
                return job.last
            waits_for = self._waits_for(job_id, progress.status.waits_for)
            status = replace(progress.status, job_id=job_id, waits_for=waits_for)
            with self._lock:
                if not job.is_over:
                    job.last = replace(progress, status=status)
        return job.last

    def place_order(self, job_id: str, order: Order) -> str:
        """Have an order carried out; gives its id. Raises StateError: it cannot be; ClusterError: there is no such job any more."""
        order_id = self._running(job_id).place(order)
        with self._lock:
            self._jobs[job_id].orders[order_id] = order.kind
        return order_id

    def answer_order(self, job_id: str, order_id: str) -> JsonValue:
        """What became of an order; see `JobControl.answer`; None for an unknown one."""
        job = self._job(job_id)
        if not job.is_over:
            return self._running(job_id).answer(order_id)
        manager = self._manager(job)
        if manager is not None:
            try:
                return manager.answer(order_id)
            except (ClusterError, StateError):  # its process has just ended
                pass
        return job.last_answer(order_id)

    # ---- for job manager processes

    def attach(self, process: JobProcess, connection: RpcConnection) -> None:
        """The process of a job has connected. When the connection is over, so is the process, or it hangs: then it is killed.

        Raises:
            ClusterError: there is no such job.
            FencingError: another process has taken its place.
        """
        with self._present(process) as job:
            job.connection, job.told = connection, None
        job.reachable.set()
        connection.on_close(lambda reason: self._lose(process, reason))

    def fetch_job(self, process: JobProcess) -> JobRunOrder:
        """See `JobsGateway`. Raises as `attach`."""
        with self._present(process) as job:
            return JobRunOrder(job.job_id, job.submission, job.since_ms)

    def read_file(self, process: JobProcess, digest: str) -> bytes:
        """See `JobsGateway`."""
        return self._job(process.job_id).files.read_file(digest)

    def require_slots(self, process: JobProcess, job_manager: str, slots: int, checkpoint_id: int) -> None:
        """See `JobsGateway`. A job that is over needs none. Raises as `attach`."""
        with self._present(process) as job:
            if job.is_over:
                return
            if checkpoint_id > job.checkpoint_id:
                job.checkpoint_id, job.losses = checkpoint_id, 0
            self.slots.require(job.job_id, job_manager, slots)

    def rescale_job(self, process: JobProcess, text: JobText, fingerprint: str) -> None:
        """See `JobsGateway`. Raises as `attach`."""
        with self._present(process) as job:
            job.submission = replace(job.submission, text=text, fingerprint=fingerprint)
        self._keep_if_possible(job)

    def end_job(
        self, process: JobProcess, last: JobProgress, description: JsonValue, remains: JobRemains = NOTHING_REMAINS
    ) -> bool:
        """See `JobsGateway`. Raises as `attach`."""
        with self._present(process) as job:
            job.remains = remains
            self._set_last(job, last, description)
        self._tell_end(job)
        return True

    # ---- what becomes of processes

    def process_started(self, process: JobProcess, pid: int) -> None:
        """The process of a job was forked. If it does not come it is killed."""
        try:
            with self._present(process) as job:
                job.pid = pid
        except ClusterError:
            return
        self._timers.after(PROCESS_START_MS, lambda: self._check_attached(process))

    def process_ended(self, process: JobProcess, how: str) -> None:
        """The process of a job is over. If the job is not, another process goes on from its last checkpoint."""
        try:
            with self._present(process) as job:
                job.pid = 0
                job.connection = None
                self.slots.forget(job.job_id)
                if job.is_over or self._closing:
                    return
                job.orders.clear()
                job.reachable.clear()
                job.since_ms = job.started_ms
                job.losses += 1
                gives_up = job.losses > MOST_LOSSES
        except ClusterError:  # it was not the present one, or its job is forgotten
            return
        if gives_up:
            self._fail(job, ClusterError(f"its job manager process {how}, as those before it did"))
            return
        _log.warning(
            "the job manager process of '%s' (%s) %s: another one goes on", job.submission.name, job.job_id, how
        )
        self._spawn_again(job)

    def probe(self) -> None:
        """Do nothing, as soon as nobody holds the dispatcher up: who waits for that in vain knows that it hangs."""
        with self._lock:
            return

    def close(self) -> None:
        """Take no job any more, and let no process be replaced."""
        with self._lock:
            self._closing = True

    # ---- for task managers

    def add_task_manager(self, registration: TaskManagerRegistration, connection: RpcConnection) -> TaskManagerSlots:
        """A task manager has come."""
        manager = self.slots.add(registration, connection.gateway(TaskManagerGateway, TASK_MANAGER))
        connection.on_close(lambda reason: self.slots.remove(manager, reason))
        return manager

    # ---- inside

    def _job(self, job_id: str) -> DispatchedJob:
        with self._lock:
            found = self._jobs.get(job_id)
        if found is None:
            raise ClusterError(
                f"this cluster has no job {job_id}", hint="`flowrun jobs --cluster` lists those that it has"
            )
        return found

    @contextmanager
    def _present(self, process: JobProcess) -> Iterator[DispatchedJob]:
        """The job of a process, while nobody else changes it.

        Raises:
            ClusterError: there is no such job.
            FencingError: another process has taken the place of this one.
        """
        job = self._job(process.job_id)
        with self._lock:
            if process != job.process:
                raise FencingError(
                    f"process {process} of job '{job.submission.name}' is refused: {job.process} has taken its place"
                )
            yield job

    def _spawn(self, job: DispatchedJob) -> None:
        """Start the next process of a job. Raises ClusterError: no process can be started any more."""
        with self._lock:
            job.attempt += 1
        self._processes.spawn(str(job.process))

    def _spawn_again(self, job: DispatchedJob) -> None:
        """As `_spawn`, for a job that was accepted before. If that fails, the cluster ends, and what is kept goes on in the next one."""
        try:
            self._spawn(job)
        except ClusterError as error:
            if self._store is None:
                self._fail(job, error)
            else:
                _log.error(
                    "job '%s' (%s) goes on in another cluster: %s", job.submission.name, job.job_id, error.message
                )

    def _lose(self, process: JobProcess, reason: str) -> None:
        """The connection to a process is over: it has ended, or is about to, or does nothing any more."""
        if not self._closing:
            _log.debug("the connection to process %s is over: %s", process, reason)
            self._processes.kill(str(process))

    def _check_attached(self, process: JobProcess) -> None:
        job = self._jobs.get(process.job_id)
        if job is not None and job.process == process and job.connection is None and job.pid:
            _log.warning("process %d of '%s' has not come: it is killed", job.pid, job.submission.name)
            self._processes.kill(str(process))

    def _manager(self, job: DispatchedJob, answer_ms: int = ANSWER_MS) -> JobManagerGateway | None:
        connection = job.connection
        return None if connection is None else connection.gateway(JobManagerGateway, JOB_MANAGER, timeout_ms=answer_ms)

    def _running(self, job_id: str, within_ms: int | None = None) -> JobManagerGateway:
        """The job manager of a job, which may be on its way unless it has to answer within some time.

        Raises:
            ClusterError: the job is over, or its process does not come.
        """
        job = self._job(job_id)
        if within_ms is None:
            job.reachable.wait(PROCESS_START_MS / 1000)
        manager = self._manager(job, ANSWER_MS if within_ms is None else within_ms)
        if job.is_over or manager is None:
            state = "is over" if job.is_over else "cannot be reached now"
            raise ClusterError(f"job {job_id} ('{job.submission.name}') {state}")
        return manager

    def _waits_for(self, job_id: str, told: str | None) -> str | None:
        """What a job waits for. Its process tells that it waits, but knows only the slots that it has been given."""
        return told and (self.slots.waits_for(job_id) or told)

    def _state(self, job: DispatchedJob) -> str:
        with suppress(ClusterError):
            if not job.is_over and job.connection is not None:
                return self.watch_job(job.job_id).status.state.value
        return job.last.status.state.value

    def _fail(self, job: DispatchedJob, error: ClusterError) -> None:
        _log.error("job '%s' (%s) failed: %s", job.submission.name, job.job_id, error.message)
        failure = JobFailedError(f"job '{job.submission.name}' failed: {error.message}", hint=error.hint)
        status = replace(job.last.status, state=JobState.FAILED)
        self._end(job, JobProgress(status, None, error_to_value(failure)), None)

    def _end(self, job: DispatchedJob, last: JobProgress, description: JsonValue) -> None:
        with self._lock:
            self._set_last(job, last, description)
        self._tell_end(job)

    def _set_last(self, job: DispatchedJob, last: JobProgress, description: JsonValue) -> None:
        """A job is over, and needs no slots any more. The lock is held."""
        job.last = replace(last, status=replace(last.status, job_id=job.job_id))
        job.description = description
        self.slots.forget(job.job_id)

    def _tell_end(self, job: DispatchedJob) -> None:
        self._keep_if_possible(job)
        job.reachable.set()
        _log.info("job '%s' (%s) is %s", job.submission.name, job.job_id, job.last.status.state.value)

    def _progress(self, job_id: str, submission: JobSubmission) -> JobProgress:
        """Of a job that has not begun."""
        return JobProgress(JobStatus(job_id, submission.name, JobState.CREATED, self._clock.monotonic_ns(), 0, ()))

    def _keep(self, job: DispatchedJob) -> None:
        """Keep a job as it is now. Raises StateError: it cannot be written."""
        if self._store is not None:
            last = job.last if job.is_over else None
            contents = job.files.contents
            self._store.save(StoredJob(job.job_id, job.submission, contents, job.started_ms, last, job.description))

    def _keep_if_possible(self, job: DispatchedJob) -> None:
        try:
            self._keep(job)
        except StateError as error:
            _log.error("job '%s' (%s) is kept as it was before: %s", job.submission.name, job.job_id, error.message)

    def _forget_oldest(self) -> None:
        with self._lock:
            ended = [job_id for job_id, job in self._jobs.items() if job.is_over]
            forgotten = ended[: max(len(ended) - MOST_ENDED_JOBS, 0)]
            for job_id in forgotten:
                del self._jobs[job_id]
        if self._store is not None:
            for job_id in forgotten:
                self._store.remove(job_id)
