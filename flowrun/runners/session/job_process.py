"""The job manager process of one job in a session cluster: compiles it, and runs its job master until the job is over."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from flowrun.api.source import JsonValue
from flowrun.core.clock import SystemClock
from flowrun.core.log_context import log_for_job
from flowrun.core.recent_logs import RECENT_LOGS, LogLines, keep_recent_logs
from flowrun.core.record import record
from flowrun.core.typed_values import to_kind
from flowrun.errors import ClusterError, FlowrunError, JobFailedError, StateError
from flowrun.graph.fingerprint import check_fingerprint
from flowrun.graph.job_graph import JobGraph
from flowrun.masking import masked_json
from flowrun.runners.control import JobControl, Order
from flowrun.runners.embedded import JobStateOptions, start_embedded
from flowrun.runners.job_document import JobDocument, document_of
from flowrun.runners.job_text import compile_text
from flowrun.runners.recompiling import at_parallelism
from flowrun.runners.registry import new_entry
from flowrun.runners.rescaling import JobVersion, RescalableJob, Rescaling
from flowrun.runners.session.job_slots import SessionJobSlots
from flowrun.runners.session.messages import (
    JOB_MANAGER,
    JOB_MANAGER_ROLE,
    JOBS,
    NOTHING_REMAINS,
    JobManagerGateway,
    JobRemains,
    JobRunOrder,
    JobsGateway,
)
from flowrun.runners.traces import check_traces, traced
from flowrun.runners.versions.job_part import JobPart, job_part, part_of_itself
from flowrun.runners.workers import check_runs_elsewhere, slots_needed
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.cluster.job_files import JobFiles, fetch_files
from flowrun.runtime.cluster.remote_workers import RemoteWorkers
from flowrun.runtime.cluster.worker_cluster import WorkerCluster
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.jobmaster.job_state import state_directory
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.address import Address, UnixAddress
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.error_values import error_to_value
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.rpc.link import Credentials, open_link
from flowrun.runtime.timers import TimerThread
from flowrun.runtime.watchdog.memory_guard import memory_problem
from flowrun.state.checkpoints import CheckpointMetadata
from flowrun.state.storage.leases import holding_leases
from flowrun.state.storage.locate import locate_in
from flowrun.state.storage.names import job_slug
from flowrun.state.storage.other_checkpoints import complete_numbers
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.stop_note import read_stop_note

if TYPE_CHECKING:
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.program import CompiledProgram

_LOOK_MS = 250
_LAST_CALL_MS = 30_000
_DISPATCHER_SILENT_MS = 600_000
"""A job goes on without its dispatcher for as long as that may come back to it."""

Value = TypeVar("Value")

_log = logging.getLogger(__name__)


@record(eq=False)
class JobProcessPlan:
    """What a job manager process inherits.

    Attributes:
        dispatcher: where the dispatcher listens for processes of its own machine.
        listen: where this process listens for its workers; its port is 0.
        dispatcher_credentials: of that connection.
        credentials: of the cluster.
    """

    dispatcher: Address
    listen: Address
    dispatcher_credentials: Credentials
    credentials: Credentials


def run_job_process(plan: JobProcessPlan, name: str) -> NoReturn:
    """Run a job of the dispatcher to its end; the process ends with it, or with the connection to the dispatcher."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the dispatcher answers it
    own = Introduction(JOB_MANAGER_ROLE, name)
    connection = RpcConnection(open_link(plan.dispatcher, own, Purpose.CONTROL, plan.dispatcher_credentials))
    keep_recent_logs()
    RECENT_LOGS.begin_anew()
    process = _JobProcess(plan, connection)
    connection.on_close(
        lambda _: os._exit(1)
    )  # the dispatcher is gone: whoever takes its place goes on from the last checkpoint
    connection.serve(JOB_MANAGER, JobManagerGateway, process)
    clock = SystemClock()
    heartbeats = Heartbeats(connection, TimerThread(clock), clock, timeout_ms=_DISPATCHER_SILENT_MS)
    connection.start()
    heartbeats.start()
    jobs = connection.gateway(JobsGateway, JOBS, timeout_ms=_LAST_CALL_MS)
    last = process.run(jobs.fetch_job(), jobs)
    jobs.end_job(last, process.last_description(), process.remains())
    process.linger()
    os._exit(0)


class _JobProcess:
    """The job of this process, as the dispatcher reaches it. Thread-safe."""

    def __init__(self, plan: JobProcessPlan, connection: RpcConnection) -> None:
        self._plan = plan
        self._connection = connection
        self._job: RescalableJob | None = None
        self._control: JobControl | None = None
        self._begin: JobStatus | None = None

    def run(self, order: JobRunOrder, jobs: JobsGateway) -> JobProgress:
        """Run the job to its end; gives how it ended."""
        log_for_job(order.job_id, order.submission.name)
        self._begin = JobStatus(order.job_id, order.submission.name, JobState.CREATED, time.monotonic_ns(), 0, ())
        try:
            with ExitStack() as leases:
                leases.enter_context(holding_leases())
                return self._run(order, jobs, leases)
        except Exception as error:
            if not isinstance(error, FlowrunError):
                _log.exception("job '%s' failed", order.submission.name)
            status = self._begin if self._job is None else self._job.status()
            if not status.state.is_terminal:
                status = replace(status, state=JobState.FAILED)
            return JobProgress(status, None, error_to_value(error))

    # ---- for the dispatcher

    def describe(self) -> JsonValue:
        """See `JobManagerGateway`."""
        described: JsonValue = without_secrets(self._started().describe(), dict)
        return described

    def details(self) -> JobDetails:
        """See `JobManagerGateway`."""
        return without_secrets(self._started().details(), JobDetails)

    def document(self) -> JobDocument | None:
        """See `JobManagerGateway`."""
        document = self._started().document()
        return None if document is None else without_secrets(document, JobDocument)

    def logs(self, after: int) -> LogLines:
        """See `JobManagerGateway`."""
        return RECENT_LOGS.after(after)

    def remains(self) -> JobRemains:
        """The job at its end, as it is kept for whoever looks later."""
        return NOTHING_REMAINS if self._control is None else JobRemains(self.details(), self.document())

    def watch(self) -> JobProgress:
        """See `JobManagerGateway`."""
        if self._job is None:
            if self._begin is None:
                raise ClusterError("the job has not begun yet")
            return JobProgress(self._begin)
        return JobProgress(self._job.status())

    def place(self, order: Order) -> str:
        """See `JobManagerGateway`."""
        return self._started().place(order)

    def answer(self, order_id: str) -> JsonValue:
        """See `JobManagerGateway`."""
        control = self._started()
        answer = control.answer(order_id)
        if answer is not None and answer["state"] != "pending":
            control.delivered(order_id)
        return answer

    def last_description(self) -> JsonValue:
        """The job at its end; None if it never began."""
        return None if self._control is None else self.describe()

    def linger(self) -> None:
        """Wait a moment for those who have asked for something, so that they hear what became of it."""
        if self._control is not None:
            self._control.linger(watchers=False)  # the dispatcher tells how it ended

    # ---- inside

    def _started(self) -> JobControl:
        if self._control is None:
            raise StateError("the job is not running yet", hint="try again in a moment")
        return self._control

    def _run(self, order: JobRunOrder, jobs: JobsGateway, leases: ExitStack) -> JobProgress:
        submission = order.submission
        files = fetch_files(submission.text.files, jobs.read_file)
        slots = SessionJobSlots(jobs)
        place = _own_place(self._plan.listen, order.job_id)
        workers = RemoteWorkers(place, self._plan.credentials, slots.listen)
        with WorkerCluster(workers, submission.text, files) as cluster:
            try:
                if order.since_ms is None:
                    slots.begin(submission.slots)  # its workers start while it is compiled
                return self._run_on(cluster, order, slots, files, leases)
            finally:
                slots.end()

    def _run_on(
        self, cluster: WorkerCluster, order: JobRunOrder, slots: SessionJobSlots, files: JobFiles, leases: ExitStack
    ) -> JobProgress:
        submission = order.submission
        compiled = compile_text(submission.text, files.read_file)
        job_graph = compiled.job_graph
        check_fingerprint(job_graph, submission.fingerprint)
        check_runs_elsewhere(job_graph)
        check_traces(job_graph)
        own = None if order.since_ms is None else _own_checkpoint(job_graph, order.since_ms)
        slots.begin(slots_needed(job_graph), 0 if own is None else own[1].checkpoint_id)
        part = _part(order, compiled, files, None if own is None else own[0])
        options = JobStateOptions(
            directory=state_directory(job_graph),
            pipeline=submission.text.pipeline,
            restore_from=submission.restore_from if own is None else own[0],
            allow_non_restored_state=submission.allow_non_restored and own is None,
            committed_after=AfterRestore(submission.committed_after) if own is None else AfterRestore.REFUSE,
            hold=part.hold,
            forget_later=part.forgets_later and own is None,
        )

        def compile_at(parallelism: int) -> JobVersion:
            text = at_parallelism(submission.text, parallelism)
            return JobVersion(parallelism, compile_text(text, files.read_file).job_graph, text.pipeline, text)

        first = JobVersion(
            compiled.stream_graph.settings.parallelism, job_graph, submission.text.pipeline, submission.text
        )
        rescaling = Rescaling(compile_at, partial(slots.check, cluster), partial(slots.start, cluster))
        try:
            started = start_embedded(job_graph, cluster=cluster, state=options)
            with RescalableJob(started, first, options, rescaling) as job, traced(job, job_graph):
                return self._follow(order, job, part, slots, cluster, leases)
        except FlowrunError as error:
            part.end(error.message)
            raise

    def _follow(
        self,
        order: JobRunOrder,
        job: RescalableJob,
        part: JobPart,
        slots: SessionJobSlots,
        cluster: WorkerCluster,
        leases: ExitStack,
    ) -> JobProgress:
        job_graph = job.job_graph
        self._control = _control(order, job, job_graph)
        self._job = job
        while (result := job.wait(_LOOK_MS)) is None:
            part.look(job)
            status = job.status()
            if _is_independent(status, takes_checkpoints=job_graph.settings.checkpoint is not None):
                leases.close()
            if job_graph.settings.memory_watch and (problem := memory_problem()) is not None:
                job.fail(problem)
            if status.state is JobState.RUNNING and status.waits_for is None:
                slots.release_idle(cluster)
        part.look(job)
        part.end("it was cancelled")
        return JobProgress(job.status(), result)


def _part(
    order: JobRunOrder,
    compiled: CompiledPipeline | CompiledProgram,
    files: JobFiles,
    restored_from: str | None,
) -> JobPart:
    """What the job is in an upgrade. Raises JobFailedError: it was on trial, and its process was lost; StateError: that is over."""
    job_graph, upgrade = compiled.job_graph, order.submission.upgrade
    if upgrade:
        folder = resolve(state_directory(job_graph)) / job_slug(job_graph.name)
        part = job_part(upgrade, folder, job_graph, SystemClock(), is_first_process=order.since_ms is None)
        if part is not None:
            return part
    return part_of_itself(compiled, files, restored_from or order.submission.restore_from, SystemClock())


def without_secrets(value: Value, kind: type[Value]) -> Value:
    """A value of a record, or of JSON, with `***` for each secret that this process knows: another one does not know them."""
    given = msgspec.to_builtins(value, str_keys=True)
    shown = masked_json(given)
    return value if shown is given else to_kind(shown, kind, str_keys=True)


def _control(order: JobRunOrder, job: RescalableJob, job_graph: JobGraph) -> JobControl:
    settings = job_graph.settings.checkpoint
    submission = order.submission
    return JobControl(
        job,
        new_entry(order.job_id, submission.name, submission.text.pipeline.file_name, 0, SystemClock().now_ms()),
        frozenset(v.vertex_id for v in job_graph.vertices if not v.inputs),
        SystemClock(),
        checkpoints=settings is not None,
        savepoints=None if settings is None else settings.savepoint_directory,
        document=document_of(submission.text.pipeline),
        takes_versions=True,
    )


def _own_place(listen: Address, job_id: str) -> Address:
    """Where workers of this job connect to; a port is any that is free."""
    return UnixAddress(f"{listen.path}-{job_id[:8]}") if isinstance(listen, UnixAddress) else listen


def _own_checkpoint(job_graph: JobGraph, since_ms: int) -> tuple[str, CheckpointMetadata] | None:
    """The folder and the metadata of the newest checkpoint that a lost process of this job has left; None: there is none yet.

    Raises:
        JobFailedError: the job takes none.
        StateError: it is damaged, or the job was stopped with a savepoint at that moment.
    """
    if job_graph.settings.checkpoint is None:
        raise JobFailedError(
            f"the job manager process of '{job_graph.name}' was lost, and the job takes no checkpoints that it could go on from",
            hint="settings.checkpoint has it take them",
        )
    folder = resolve(state_directory(job_graph)) / job_slug(job_graph.name)
    if not complete_numbers(folder) and read_stop_note(folder) is None:
        return None
    found = locate_in(folder)
    return (found.folder, found.metadata) if found.metadata.triggered_ms >= since_ms else None


def _is_independent(status: JobStatus, *, takes_checkpoints: bool) -> bool:
    """Whether nothing, not even a restart, reads the state any more that the job restored from."""
    if takes_checkpoints:
        return status.checkpoints is not None and status.checkpoints.completed > 0
    return status.state is JobState.RUNNING
