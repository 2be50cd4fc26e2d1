"""The job master: one thread that runs one job. It feeds the scheduler and the checkpoint coordinator with events and carries out
their commands.

It also holds what exists once a job: the split enumerators of the sources and the committers of the sinks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import FlowrunError, InternalError, StateError
from flowrun.graph.execution_graph import ExecutionGraph
from flowrun.runtime.checkpoint.events import CheckpointsStatus, JobIsInterrupted, JobIsRunning, SubtaskFinished
from flowrun.runtime.checkpoint.events import SubtaskAcknowledged as Acknowledged
from flowrun.runtime.checkpoint.events import SubtaskDeclined as Declined
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.jobmaster import scheduler_events as events
from flowrun.runtime.jobmaster.checkpoint_outcomes import CheckpointOutcomes
from flowrun.runtime.jobmaster.checkpoint_runner import CheckpointRunner
from flowrun.runtime.jobmaster.commits import CommitCoordinator, CommitError
from flowrun.runtime.jobmaster.failure import job_failure, secondary_notes
from flowrun.runtime.jobmaster.final_commit import FinalCommit
from flowrun.runtime.jobmaster.job_state import OpenedState, RestorePoint
from flowrun.runtime.jobmaster.job_tasks import JobTasks
from flowrun.runtime.jobmaster.main_thread import MainThread
from flowrun.runtime.jobmaster.memory_failures import is_out_of_memory
from flowrun.runtime.jobmaster.recovery import Recovery
from flowrun.runtime.jobmaster.scheduler_driver import SchedulerDriver
from flowrun.runtime.jobmaster.slot_requests import SlotRequests
from flowrun.runtime.jobmaster.snapshot_requests import SnapshotRequests
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.jobmaster.sources import JobSources, SourceError
from flowrun.runtime.jobmaster.status import StatusReader
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.mailbox import Mail, Priority
from flowrun.runtime.messages import (
    CheckpointAcknowledgement,
    CommittablesReport,
    SplitRequest,
    TaskExecutorGateway,
    TaskFailure,
    TaskUpdate,
)
from flowrun.runtime.slot_messages import SlotAnswer, SlotsGranted
from flowrun.runtime.timers import TimerThread

if TYPE_CHECKING:
    from flowrun.runtime.job_details import JobDetails
    from flowrun.runtime.jobmaster.details import DetailsReader

HOST_RETURNS_WITHIN_MS = 4_000
"""How long a host without workers is waited for, if it has partitions: its next worker takes a second or two."""

_log = logging.getLogger(__name__)


@record
class JobMasterParts:
    """What a job master is made of; see `flowrun.runtime.jobmaster.create_job_master`.

    Attributes:
        graph: the parallel job.
        main: everything that the job master does comes through its mailbox.
        driver: of the scheduler.
        slots: asks for slots.
        status: reads how the job stands.
        details: makes what reads it in full, when somebody asks.
        tasks: the subtasks as the job master reaches them.
        sources: the split enumerators.
        commits: the committers of the sinks.
        recovery: takes subtasks to a checkpoint.
        checkpoints: carries out what the checkpoint coordinator decides.
        outcomes: what follows from checkpoints.
        requests: for savepoints and checkpoints.
        final_commit: the end of a job that ends well.
    """

    graph: ExecutionGraph
    main: MainThread
    driver: SchedulerDriver
    slots: SlotRequests
    status: StatusReader
    details: Callable[[], DetailsReader]
    tasks: JobTasks
    sources: JobSources
    commits: CommitCoordinator
    recovery: Recovery
    checkpoints: CheckpointRunner
    outcomes: CheckpointOutcomes
    requests: SnapshotRequests
    final_commit: FinalCommit


class JobMaster:
    """Runs one job. The public methods are thread-safe; `cancel`, `stop` and `take_snapshot` may be called in a signal handler.

    Args:
        state: the job, where its state goes and what it restores from; closed at the end of the job.
        parts: what it is made of.
        job_id: unique to this run.
        clock: processing time.
        timers: for periodic work.
        on_end: called on the job master's thread with all subtasks ended: frees what they shared.
        describe_stuck: attempt ids → what those subtasks are doing, for the error.
    """

    def __init__(
        self,
        state: OpenedState,
        parts: JobMasterParts,
        *,
        job_id: str,
        clock: Clock,
        timers: TimerThread,
        on_end: Callable[[Sequence[str]], None],
        describe_stuck: Callable[[Sequence[str]], tuple[str, ...]],
    ) -> None:
        self.job_graph = state.job_graph
        self.job_id = job_id
        self.execution_graph = parts.graph
        self._state = state
        self._clock = clock
        self._timers = timers
        self._started_ms = clock.now_ms()
        self._started_ns = clock.monotonic_ns()
        self._on_end = on_end
        self._describe_stuck = describe_stuck
        self._out_of_memory = False
        self._main = parts.main
        self._mailbox = parts.main.mailbox
        self._driver = parts.driver
        self._scheduler = parts.driver.scheduler
        self._slots = parts.slots
        self._status = parts.status
        self._details = cache(parts.details)
        self._tasks = parts.tasks
        self._sources = parts.sources
        self._commits = parts.commits
        self._recovery = parts.recovery
        self._checkpoints = parts.checkpoints
        self._outcomes = parts.outcomes
        self._requests = parts.requests
        self._final_commit = parts.final_commit
        self._driver.connect(self._carry_out)
        self._slots.connect(self._hear_of_slots)
        self._done = threading.Condition()
        self._result: JobResult | FlowrunError | None = None

    def start(self, executor: TaskExecutorGateway) -> None:
        """Begin; subtasks run on `executor`. Slots are asked for before this returns, so jobs get them in the order of their starts."""
        self._tasks.connect(executor)
        self._driver.handle(events.StartJob())
        self._main.start(self._step)

    def cancel(self) -> None:
        """Take the job down without results."""
        self._mailbox.put(lambda: self._driver.handle(events.CancelJob()), Priority.URGENT)

    def stop(self, *, drain: bool) -> None:
        """Have the sources end; everything that they emitted is processed and committed.

        With `drain` event time ends, too, and always in batch mode: there is no state from which another run could go on.
        """
        drain = drain or self.job_graph.settings.batch_mode
        self._mailbox.put(lambda: self._driver.handle(events.StopJob(drain)), Priority.URGENT)

    def fail(self, error: Exception) -> None:
        """Something around the job is wrong: end it, or restart it, as after any failure."""
        self._mailbox.put(lambda: self._driver.fail(error), Priority.URGENT)

    def lose_worker(self, lost: events.WorkerLost) -> None:
        """A worker process is gone, with all that ran in it."""
        self._mailbox.put(lambda: self._driver.handle(lost))

    def find_host_folder(self, host_folder: str) -> None:
        """A worker has come that reads what others have written to a folder."""
        self._mailbox.put(lambda: self._driver.handle(events.HostFolderFound(host_folder)))

    def take_snapshot(self, directory: str | None, *, savepoint: bool, stop: bool, drain: bool) -> SnapshotTicket:
        """Ask for a savepoint or a checkpoint; see `LocalJob.take_snapshot`."""
        ticket = self._requests.ask(directory, savepoint=savepoint, stop=stop, drain=drain)
        if stop:
            self._mailbox.put(lambda: self._driver.handle(events.StopAwaited()), Priority.URGENT)
        return ticket

    def sample_rows(self, exchange: str, for_ms: int) -> None:
        """Have the last rows of an exchange kept for so long; `details` has them. Done soon.

        Raises:
            StateError: the job has no such exchange.
        """
        known = {result.data_set_id for vertex in self.job_graph.vertices for result in vertex.results}
        if exchange not in known:
            raise StateError(f"the job has no exchange {exchange}", hint="its graph lists those that it has")
        self._mailbox.put(lambda: self._tasks.sample_rows(exchange, for_ms))

    def release_commits(self) -> None:
        """What was held back counts from now on; see `JobStateOptions.hold`. Done soon; harmless if nothing is held back."""
        self._mailbox.put(self._checkpoints.release)

    @property
    def checkpoint_root(self) -> str | None:
        """The job's folder of checkpoints; None if it takes none."""
        return self._state.storage.job_folder if self._state.takes_checkpoints else None

    @property
    def restore_point(self) -> RestorePoint | None:
        """What a restart goes back to at this moment; after the end of the job, what another run can go on from; None: the beginning."""
        return self._checkpoints.restore_point

    @property
    def checkpoints_status(self) -> CheckpointsStatus:
        """Checkpoints and savepoints at this moment."""
        return self._checkpoints.status

    def status(self) -> JobStatus:
        """The present status."""
        status = self._status.read(self.job_id, self._scheduler.state, self._clock.now_ms() - self._started_ms)
        checkpoints, pending = self.checkpoints_status, self._scheduler.slots.pending
        taken = self._state.takes_checkpoints or checkpoints.completed or checkpoints.failed or checkpoints.in_progress
        return replace(
            status,
            checkpoints=checkpoints if taken else None,
            restarts=self._scheduler.restarts,
            last_failure=self._scheduler.last_failure,
            slots=self._scheduler.slots.held,
            waits_for=None if pending is None else f"slots: {pending.reason}",
        )

    def details(self) -> JobDetails:
        """The job in full, subtask by subtask."""
        return self._details().read(self.status(), self._checkpoints.records(), self._scheduler.failure_log.records)

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        """The result once the job is over; None if it still runs after `timeout_ms`.

        Raises:
            JobFailedError: the job failed; `__cause__` is the root cause.
        """
        end_ns = None if timeout_ms is None else self._clock.monotonic_ns() + int(timeout_ms * 1e6)
        with self._done:
            while self._result is None:
                left_ms = None if end_ns is None else (end_ns - self._clock.monotonic_ns()) / 1e6
                if left_ms is not None and left_ms <= 0:
                    return None
                self._clock.wait(self._done, left_ms)
        self._main.join()
        if isinstance(self._result, FlowrunError):
            raise self._result
        return self._result

    # What subtasks call, on their threads.

    def update_task(self, update: TaskUpdate) -> None:
        """A subtask reached a state."""
        self._mailbox.put(lambda: self._update(update))

    def request_split(self, request: SplitRequest) -> None:
        """A source subtask asks for a split."""
        self._mailbox.put(lambda: self._request_split(request))

    def report_committables(self, report: CommittablesReport) -> None:
        """A sink subtask wrote something that is not visible yet."""
        self._mailbox.put(lambda: self._take(report))

    def acknowledge_checkpoint(self, acknowledgement: CheckpointAcknowledgement) -> None:
        """A subtask has written its snapshot, or declines."""
        self._mailbox.put(lambda: self._acknowledge(acknowledgement))

    # Everything below is called on the job master's thread.

    def _step(self) -> bool:
        """Run the next mail, if there is one; False: the job is over."""
        mail = self._mailbox.take_nowait() if self._result is None else None
        if mail is not None:
            self._guard(mail)
        if self._result is None:
            return True
        self._mailbox.close()
        self._requests.close(f"the job has ended ({self._scheduler.state.value})")
        return False

    def _guard(self, mail: Mail) -> None:
        """Run a mail; what it raises fails the job, and if even that fails, ends it."""
        try:
            mail()
        except Exception as error:
            try:
                self._driver.recover(error)
            except Exception as worse:
                worse.add_note(f"while the job was being failed because of: {error!r}")
                self._finish(JobState.FAILED, InternalError(f"the job master broke: {worse}"), worse)

    def _hear_of_slots(self, event: SlotAnswer | events.SlotRequestTimedOut) -> None:
        """Pass on what becomes of a request for slots. With its first slots the job begins: until then nothing is restored or committed."""
        if isinstance(event, SlotsGranted) and self._scheduler.state is JobState.CREATED:
            try:
                self._recovery.start()
            except Exception as error:
                self._driver.fail(error)
                return
        self._driver.handle(event)

    def _carry_out(self, command: events.Command) -> None:
        executor = self._tasks.executor
        match command:
            case events.RequestSlots():
                self._slots.request(command)
            case events.AwaitSlotsFurther(number=number):
                self._slots.wait(number)
            case events.WithdrawSlotRequest(number=number):
                self._slots.withdraw(number)
            case events.ReleaseSlots(allocation_ids=allocations):
                self._slots.release(allocations)
            case events.DeployTask():
                self._deploy(command)
            case events.AnnounceRunning():
                self._announce()
            case events.ReleasePartitions(partitions=partitions):
                executor.release_partitions(partitions)
            case events.AwaitHostFolder(host_folder=folder):
                self._timers.after(HOST_RETURNS_WITHIN_MS, lambda: self._put(lambda: self._look_for(folder)))
            case events.CancelTask(attempt_id=attempt):
                executor.cancel(attempt)
            case events.StopSource(attempt_id=attempt, drain=drain):
                executor.stop(attempt, drain)
            case events.WatchCancellation(attempts=attempts):
                timeout_ms = self.job_graph.settings.cancellation_timeout_ms
                if timeout_ms:
                    self._timers.after(timeout_ms, lambda: self._put(lambda: self._cancel_timed_out(attempts)))
            case events.InterruptJob(reason=reason):
                self._interrupt(reason)
            case events.RestartAt(time_ms=time_ms, round=number):
                _log.info("job '%s': restart %d follows", self.job_graph.name, self._scheduler.restarts)
                delay_ms = max(time_ms - self._clock.now_ms(), 0)
                self._timers.after(delay_ms, lambda: self._put(lambda: self._driver.handle(events.RestartDue(number))))
            case events.RestoreState():
                # What is being stored or discarded comes first: it decides what there is to go back to.
                self._checkpoints.after_io(lambda: self._restore(command))
            case events.CommitResults():
                self._final_commit.begin()
            case events.EndJob(state=state):
                self._end(state)

    def _put(self, mail: Mail) -> None:
        self._mailbox.put(mail)

    def _deploy(self, command: events.DeployTask) -> None:
        if self._out_of_memory or not self._scheduler.begin_deployment(command.vertex, self._clock.now_ms()):
            return
        try:
            restored, first = self._recovery.restored(command.vertex), self._checkpoints.next_id
            self._tasks.deploy(command.vertex, command.attempt_id, restored, first)
        except Exception as error:
            failure = TaskFailure(error, phase="deployment")
            self._out_of_memory = is_out_of_memory(error)  # which ends the job: nothing else is to be deployed
            self._driver.handle(TaskUpdate(command.vertex, command.attempt_id, ExecutionState.FAILED, failure))

    def _look_for(self, host_folder: str) -> None:
        found = self._tasks.reaches(host_folder)
        self._driver.handle(events.HostFolderFound(host_folder) if found else events.HostFolderLost(host_folder))

    def _update(self, update: TaskUpdate) -> None:
        execution = self._scheduler.executions.by_attempt(update.attempt_id)
        running = execution is not None and execution.state is ExecutionState.RUNNING
        if running and update.state is ExecutionState.FINISHED:
            self._checkpoints.handle(SubtaskFinished(update.vertex))
        self._driver.handle(update)
        if running and update.state is ExecutionState.FINISHED:
            self._ask_sources(lambda: self._sources.ended(update.vertex))

    def _announce(self) -> None:
        executions = list(self._scheduler.executions)
        finished = frozenset(e.vertex for e in executions if e.state is ExecutionState.FINISHED)
        self._checkpoints.handle(JobIsRunning(finished, {e.vertex: e.attempt_id for e in executions}))
        self._requests.resume()

    def _interrupt(self, reason: str) -> None:
        _log.info("job '%s' is interrupted: %s", self.job_graph.name, reason)
        self._final_commit.interrupt()
        self._requests.pause()
        self._checkpoints.handle(JobIsInterrupted(reason))

    def _restore(self, command: events.RestoreState) -> None:
        point = self._checkpoints.restore_point
        where = "the beginning" if point is None else f"checkpoint {point.metadata.checkpoint_id}"
        _log.info("job '%s': %d subtasks go back to %s", self.job_graph.name, len(command.vertices), where)
        try:
            finished = self._recovery.go_back(point, command.vertices)
        except Exception as error:
            self._driver.fail(error)
            return
        self._driver.handle(events.StateRestored(command.round, finished))

    def _acknowledge(self, message: CheckpointAcknowledgement) -> None:
        number, vertex, attempt = message.checkpoint_id, message.vertex, message.attempt_id
        if message.snapshot is None:
            self._checkpoints.handle(Declined(number, vertex, attempt, message.declined or "no reason given"))
        else:
            self._checkpoints.handle(Acknowledged(number, vertex, attempt, message.snapshot))

    def _take(self, report: CommittablesReport) -> None:
        try:
            self._commits.report(report, running=self._scheduler.state is JobState.RUNNING)
        except CommitError as error:
            self._driver.fail(error)

    def _request_split(self, request: SplitRequest) -> None:
        if self._scheduler.executions.by_attempt(request.attempt_id) is None:
            return  # of an attempt that is over: its enumerator is, too
        self._ask_sources(lambda: self._sources.request(request))

    def _ask_sources(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except SourceError as error:
            self._driver.fail(error)

    def _cancel_timed_out(self, attempts: tuple[str, ...]) -> None:
        alive = [e.attempt_id for e in self._scheduler.alive if e.attempt_id in attempts]
        self._driver.handle(events.CancelTimedOut(self._describe_stuck(alive), attempts))

    def _end(self, state: JobState) -> None:
        """Clean up after the last subtask and publish the result."""
        self._checkpoints.handle(JobIsInterrupted(f"the job has ended ({state.value})"))
        stuck = [e.attempt_id for e in self._scheduler.alive]
        self._on_end(stuck)
        problems = self._commits.settle()
        self._commits.close()
        problems += self._sources.close()
        self._checkpoints.close()
        if state is JobState.FAILED:
            failures = self._scheduler.failures
            if self._outcomes.stop_path is not None:
                problems.append(f"the snapshot with which the job was stopped is complete: {self._outcomes.stop_path}")
            failed = job_failure(
                self.execution_graph,
                failures,
                problems,
                past=self._scheduler.failure_log.past,
                restart_note=self._scheduler.restart_note,
            )
            self._finish(state, failed, failures[0].failure.error)
            return
        notes = secondary_notes(self.execution_graph, self._scheduler.failures, problems)
        status = self.status()
        self._publish(
            JobResult(
                self.job_id,
                self.job_graph.name,
                state,
                (self._clock.monotonic_ns() - self._started_ns) / 1e6,
                status.vertices,
                self._status.accumulators(),
                tuple(notes),
                status.checkpoints,
                status.restarts,
                self._outcomes.stop_path,
                self._status.notes(),
            )
        )

    def _finish(self, state: JobState, error: FlowrunError, cause: BaseException) -> None:
        self._scheduler.state = state
        error.__cause__ = cause
        self._publish(error)

    def _publish(self, result: JobResult | FlowrunError) -> None:
        living = (self._scheduler.slots.slot_of(e.vertex) for e in self._scheduler.alive)
        self._slots.leave([slot.allocation_id for slot in living if slot is not None])
        with self._done:
            self._result = result
            self._done.notify_all()
