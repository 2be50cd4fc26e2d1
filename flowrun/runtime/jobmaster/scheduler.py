"""The scheduler: a pure state machine over the executions of a job. An event goes in, commands come out; nothing else happens.

Scheduling is eager within a stage: all its subtasks at once, in topological order, as soon as all its slots are there, so that the
partitions of a producer exist before anyone reads them and nothing that is written can be lost. A job in streaming mode is one stage;
in batch mode each one starts when the blocking partitions that it reads are complete (`stages.py`), and gives its slots back when it
has finished (`slot_allocation.py`).

A failure asks the restart strategy. If it allows one, the pipelined regions that the failure concerns are cancelled, and once their
subtasks have ended:

    RUNNING ──failure──▶ RESTARTING: cancelling ─all ended▶ waiting ─RestartDue▶ restoring ─StateRestored▶ starting ─all run▶ RUNNING
                                                `RestartAt`         `RestoreState`         `DeployTask`s           `AnnounceRunning`

A failure while cancelling, waiting or restoring joins that round (its regions are cancelled too); one while starting begins another.
Otherwise the first failure is the root cause; every other subtask is cancelled, and the job ends when all executions have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from flowrun.errors import ClusterError, InternalError, PartitionLostError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, PartitionId
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.jobmaster import scheduler_events as events
from flowrun.runtime.jobmaster.execution import Execution, Executions
from flowrun.runtime.jobmaster.failure_log import FAILED, JOINED, RESTARTED, FailureLog
from flowrun.runtime.jobmaster.host_folders import HostFolders
from flowrun.runtime.jobmaster.memory_failures import REFUSAL, is_out_of_memory
from flowrun.runtime.jobmaster.regions import FailoverTopology
from flowrun.runtime.jobmaster.repeated_failures import SAME_FAILURES, RepeatedFailures, is_same
from flowrun.runtime.jobmaster.restart import NoRestart, RestartStrategy, is_loss, is_retryable
from flowrun.runtime.jobmaster.slot_allocation import SlotAllocation
from flowrun.runtime.jobmaster.stages import Stages
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.messages import ResultPartitionId, TaskFailure, TaskUpdate
from flowrun.runtime.slot_messages import SlotsGranted, SlotsPending, SlotsRefused


class _Phase(Enum):
    """Where a restart is; see the head of this module."""

    NONE = "none"
    CANCELLING = "cancelling"
    WAITING = "waiting"
    RESTORING = "restoring"
    STARTING = "starting"


_JOINED = (_Phase.CANCELLING, _Phase.WAITING)
_UP = (ExecutionState.RUNNING, ExecutionState.FINISHED)
_NOT_DEPLOYED = (ExecutionState.CREATED, ExecutionState.SCHEDULED)


class Scheduler:
    """Decides what happens next in one job. Owned by the job master's thread.

    Args:
        graph: what to run.
        job_id: the run.
        now_ms: processing time.
        restart: what to do about failures; None: the first one ends the job.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        job_id: str,
        now_ms: int,
        restart: RestartStrategy | None = None,
    ) -> None:
        self._graph = graph
        self._strategy: RestartStrategy = restart or NoRestart()
        self._repeated = RepeatedFailures()
        self.executions = Executions(graph, job_id, now_ms)
        self.state = JobState.CREATED
        self.failures: list[events.LocatedFailure] = []
        """Of now, not of what a restart has put right: root cause first, then what failed while subtasks were taken down."""
        self.failure_log = FailureLog(graph, self.executions)
        self.restart_note: str | None = None
        """Why the last failure was not followed by a restart, for the final error; None if there is nothing to say."""
        self.restarts = 0
        """How many restarts the strategy has granted."""
        self.last_failure: str | None = None
        """What the last of them is due to."""
        self._stop: events.StopJob | None = None
        self._stopped = False
        self._announced = False
        self._phase = _Phase.NONE
        self._round = 0
        self._delay_ms = 0
        self._affected: set[ExecutionVertexId] = set()
        self._stages = Stages(graph)
        self._host_folders = HostFolders()
        self._failover = FailoverTopology(graph, self._stages.regions)
        self.slots = SlotAllocation(graph, self._stages.regions)

    def handle(self, event: events.Event, now_ms: int) -> list[events.Command]:
        """What to do about an event.

        Raises:
            InternalError: a subtask made a transition that is not legal.
        """
        if self.state.is_terminal:
            return []
        match event:
            case events.StartJob():
                return self._schedule(now_ms) or [*self._announce(), *self._settle(now_ms)]
            case SlotsGranted():
                return self._deploy(event)
            case SlotsPending():
                self.slots.report(event)
                return []
            case SlotsRefused() | events.SlotRequestTimedOut():
                return self._lack_slots(event, now_ms)
            case TaskUpdate():
                return self._update(event, now_ms)
            case events.StopJob():
                return self._stop_sources(event, now_ms)
            case events.StopAwaited():
                return self._hurry(now_ms)
            case events.StopSnapshotCompleted():
                self._stopped = self._stopped or self.state is JobState.RUNNING
                return []
            case events.CheckpointCompleted():
                self._repeated.checkpoint_completed()
                self._strategy.progressed()
                return []
            case events.CancelJob():
                if self.state not in (JobState.CREATED, JobState.RUNNING, JobState.RESTARTING):
                    return []
                return self._take_down(JobState.CANCELLING, "the job was cancelled", now_ms)
            case events.JobBroke(error=error, operator=operator):
                return self._fail(events.LocatedFailure(TaskFailure(error, operator), None), now_ms)
            case events.RestartDue():
                return self._restore(event)
            case events.StateRestored():
                return self._redeploy(event, now_ms)
            case events.ResultsCommitted():
                return self._end(JobState.FINISHED) if self._is_committing else []
            case events.CancelTimedOut():
                return self._give_up(event, now_ms)
            case events.WorkerLost():
                return self._lose_worker(event, now_ms)
            case events.HostFolderFound(host_folder=folder):
                return self._schedule(now_ms) if self._host_folders.find(folder) and self._is_starting else []
            case events.HostFolderLost(host_folder=folder):
                return self._lose_host_folder(folder, now_ms)

    def begin_deployment(self, vertex: ExecutionVertexId, now_ms: int) -> bool:
        """Whether a subtask is still to be deployed; if so it is DEPLOYING from now on, to the worker that its slot is in."""
        execution = self.executions.current(vertex)
        if execution.state is not ExecutionState.SCHEDULED:
            return False
        slot = self.slots.slot_of(vertex)
        if slot is None:
            raise InternalError(f"{self._graph.vertex(vertex).name} is to be deployed without a slot")
        execution.transition(ExecutionState.DEPLOYING, now_ms)
        execution.worker = slot.worker
        return True

    @property
    def alive(self) -> list[Execution]:
        """Executions that have not ended."""
        return [e for e in self.executions if not e.is_terminal]

    # Start and normal life.

    def _schedule(self, now_ms: int, among: Iterable[int] | None = None) -> list[events.Command]:
        """Begin whatever can begin now, or what of these units can: those with new executions and complete inputs.

        Units without slots ask for them first. A unit whose inputs are being produced again has no use for slots until they are there.
        """
        commands: list[events.Command] = []
        for number in range(len(self.slots.units)) if among is None else among:
            unit = self.slots.units[number]
            new = [e for v in unit.vertices if (e := self.executions.current(v)).state is ExecutionState.CREATED]
            if not new:
                continue
            if not all(map(self._is_readable, unit.reads)):
                commands += self.slots.release(number)
                continue
            for execution in new:
                execution.transition(ExecutionState.SCHEDULED, now_ms)
            if self.slots.holds(number):
                commands += [events.DeployTask(e.vertex, e.attempt_id) for e in new]
            elif not self.slots.waits(number):
                commands.append(self.slots.request(number))
        return commands

    def _is_readable(self, partition: PartitionId) -> bool:
        producer = self._stages.producer(partition)
        return self._stages.is_available(partition) and not self._host_folders.is_out_of_reach(
            self.executions.current(producer).worker
        )

    def _deploy(self, granted: SlotsGranted) -> list[events.Command]:
        number = self.slots.grant(granted)
        if number is None:
            return []  # it was withdrawn: whoever gave the slots knows
        if self.state is JobState.CREATED:
            self.state = JobState.RUNNING
        waiting = [self.executions.current(vertex) for vertex in self.slots.units[number].vertices]
        return [events.DeployTask(e.vertex, e.attempt_id) for e in waiting if e.state is ExecutionState.SCHEDULED]

    def _lack_slots(self, answer: SlotsRefused | events.SlotRequestTimedOut, now_ms: int) -> list[events.Command]:
        """Fail for want of slots, unless they came or are not wanted any more."""
        if isinstance(answer, events.SlotRequestTimedOut) and self.slots.outlasts(answer.number):
            return [events.AwaitSlotsFurther(answer.number)]
        error = self.slots.lack(answer)
        if not self.slots.refuse(answer):
            return []
        failed = self._fail(events.LocatedFailure(TaskFailure(error), None), now_ms)
        return failed if isinstance(answer, SlotsRefused) else [events.WithdrawSlotRequest(answer.number), *failed]

    def _update(self, update: TaskUpdate, now_ms: int) -> list[events.Command]:
        execution = self.executions.by_attempt(update.attempt_id)
        if execution is None or execution.is_lost:
            return []
        if execution.state is ExecutionState.CANCELING and update.state in (
            ExecutionState.INITIALIZING,
            ExecutionState.RUNNING,
            ExecutionState.CANCELING,
        ):
            # It was cancelled while this was on its way; a failure with it is still worth a note, as its FAILED will say.
            return []
        target = update.state
        if execution.state is ExecutionState.CANCELING and target is ExecutionState.FINISHED:
            target = ExecutionState.CANCELED  # it came to its end before the cancel reached it
        failure = update.failure
        if failure is not None and self._is_needed_no_more(failure):
            target, failure = ExecutionState.FINISHED, None
        execution.transition(target, now_ms, failure.error if failure else None)
        if failure is not None:
            return self._fail(events.LocatedFailure(failure, update.vertex), now_ms)
        commands: list[events.Command] = []
        if target is ExecutionState.RUNNING and self._stop is not None:
            commands = self._stop_commands([execution], self._stop.drain)
        if target is ExecutionState.FINISHED and (self._stages.are_several or self.slots.is_staged):
            commands += self._end_of_stage(execution.vertex, now_ms)
        return [*commands, *self._announce(), *self._settle(now_ms)]

    def _end_of_stage(self, vertex: ExecutionVertexId, now_ms: int) -> list[events.Command]:
        """A subtask finished: perhaps that lets others start, or makes what it has read superfluous."""
        self._stages.finished(vertex)
        released = self._stages.release(vertex, self._is_finished)
        commands = self._release_partitions(released)
        unit = self.slots.unit_of[vertex]
        if all(map(self._is_finished, self.slots.units[unit].vertices)):
            commands += self.slots.release(unit)
        if self._is_starting:
            commands += self._schedule(now_ms, self.slots.readers(self._graph.vertex(vertex)))
        return commands

    def _is_finished(self, vertex: ExecutionVertexId) -> bool:
        return self.executions.current(vertex).state is ExecutionState.FINISHED

    @property
    def _is_starting(self) -> bool:
        """Whether what can begin now may."""
        return self.state is JobState.RUNNING or self._phase is _Phase.STARTING

    def _release_partitions(self, partitions: Iterable[PartitionId]) -> list[events.Command]:
        """Have what the present attempts wrote there deleted."""
        producers = ((p, self.executions.current(self._stages.producer(p))) for p in partitions)
        written = tuple(ResultPartitionId(p, e.attempt_id) for p, e in producers if e.worker is not None)
        return [events.ReleasePartitions(written)] if written else []

    def _announce(self) -> list[events.Command]:
        """Say once a start that everything runs that can; a restart is over then."""
        up = (*_UP, ExecutionState.CREATED) if self._stages.are_several else _UP
        if self._announced or not self._is_starting or not self.executions.all_in(up):
            return []
        self._announced = True
        self.state, self._phase = JobState.RUNNING, _Phase.NONE
        return [events.AnnounceRunning()]

    @property
    def _is_committing(self) -> bool:
        return self.state is JobState.RUNNING and self.executions.all_finished

    def _settle(self, now_ms: int) -> list[events.Command]:
        """What follows once executions have ended: all of the job, or those that are restarted."""
        if self.state is JobState.RESTARTING:
            ended = all(self.executions.current(v).is_terminal for v in self._affected)
            if self._phase is not _Phase.CANCELLING or not ended:
                return []
            self._phase = _Phase.WAITING
            return [events.RestartAt(now_ms + self._delay_ms, self._round)]
        if not self.executions.all_terminal:
            return []
        if self._is_committing:
            return [events.CommitResults()]
        if self.state is JobState.FAILING:
            return self._end(JobState.FAILED)
        if self.state is JobState.CANCELLING:
            return self._end(JobState.CANCELED)
        if self.state is JobState.RUNNING:
            raise InternalError("every subtask ended, some did not finish, and nobody cancelled or failed")
        return []

    def _hurry(self, now_ms: int) -> list[events.Command]:
        """Whoever stops the job does not wait until a restart is due."""
        self._delay_ms = 0
        return [events.RestartAt(now_ms, self._round)] if self._phase is _Phase.WAITING else []

    def _stop_sources(self, event: events.StopJob, now_ms: int) -> list[events.Command]:
        if self.state not in (JobState.CREATED, JobState.RUNNING, JobState.RESTARTING) or self._stop is not None:
            return []
        self._stop = event
        return [*self._stop_commands(list(self.executions), event.drain), *self._hurry(now_ms)]

    def _stop_commands(self, executions: Sequence[Execution], drain: bool) -> list[events.Command]:
        return [
            events.StopSource(e.attempt_id, drain)
            for e in executions
            if e.state is ExecutionState.RUNNING and not self._graph.vertex(e.vertex).gates
        ]

    # Failures.

    def _is_needed_no_more(self, failure: TaskFailure) -> bool:
        """Whether a subtask may end like this: the snapshot of a stop holds all that there was to do, and the job master commits it."""
        return self._stopped and self.state is JobState.RUNNING and is_loss(failure)

    def _fail(self, located: events.LocatedFailure, now_ms: int) -> list[events.Command]:
        same = next((i for i, f in enumerate(self.failures) if is_same(f, located)), None)
        if same is not None:
            self.failures[same] = located  # told again at its end, now with what closing brought to light
            return self._settle(now_ms)
        self.failures.append(located)
        if self.state is JobState.CREATED:
            self.failure_log.add(located, now_ms, FAILED)
            return self._take_down(JobState.FAILING, self._reason(located), now_ms)
        if self.state in (JobState.RUNNING, JobState.RESTARTING):
            return self._recover(located, now_ms)
        return self._settle(now_ms)

    def _recover(self, located: events.LocatedFailure, now_ms: int) -> list[events.Command]:
        """Restart what the failure concerns, or take the job down."""
        if self._phase is _Phase.CANCELLING and located.vertex in self._affected:
            if isinstance(located.failure.error, PartitionLostError):
                return self._begin_round(located, now_ms)  # what was lost is made again in the same round
            return self._settle(now_ms)  # a consequence of the failure that is being put right
        restoring = self._phase is _Phase.RESTORING and located.vertex is None
        joins = self._phase in _JOINED or (self._phase is _Phase.RESTORING and not restoring)
        note = self._refusal(located, restoring=restoring)
        if note is None and not joins and self._repeated.add(located.failure) >= SAME_FAILURES:
            times = f"{SAME_FAILURES} times at the same place without progress"
            note = f"not restarted: this happened {times}" if self._strategy.description else ""
        if note is None and not joins:
            delay_ms = self._strategy.on_failure(now_ms)
            if delay_ms is None:
                times = "1 restart" if self.restarts == 1 else f"{self.restarts} restarts"
                note = f"gave up after {times} ({self._strategy.description})" if self._strategy.description else ""
            else:
                self._delay_ms = delay_ms
                self.last_failure = describe_error(located.failure.error)
                self.restarts += 1
                if restoring:
                    self._file(keep=located)
        if note is None:
            outcome = JOINED if joins else RESTARTED
            concerned = self._failover.subtasks_to_restart(located.vertex, self._stages.is_available)
            self.failure_log.add(located, now_ms, outcome, restarted=concerned, delay_ms=self._delay_ms)
            return self._begin_round(located, now_ms)
        self.restart_note = note or None
        self.failures.remove(located)
        self.failures.insert(0, located)
        self.failure_log.add(located, now_ms, FAILED, why_failed=self.restart_note)
        return self._take_down(JobState.FAILING, self._reason(located), now_ms)

    def _refusal(self, located: events.LocatedFailure, *, restoring: bool) -> str | None:
        """Why no strategy is asked; None if it is."""
        if self._stopped:
            return "not restarted: the snapshot with which the job was stopped is complete, resume from it"
        if is_out_of_memory(located.failure.error):
            return REFUSAL
        if not is_retryable(located.failure, restoring=restoring):
            return "not restarted: the same error would come again" if self._strategy.description else ""
        return None

    def _reason(self, located: events.LocatedFailure) -> str:
        return f"the job failed: {describe_error(located.failure.error)}"

    def _begin_round(self, located: events.LocatedFailure, now_ms: int) -> list[events.Command]:
        """Cancel what is to be restarted; what an unfinished round had cancelled stays part of it."""
        self._stages.failed(located.failure.error)
        self._affected |= self._failover.subtasks_to_restart(located.vertex, self._stages.is_available)
        self.state, self._phase = JobState.RESTARTING, _Phase.CANCELLING
        self._announced = False
        self._round += 1
        return [
            events.InterruptJob(self._reason(located)),
            *self.slots.withdraw(self._affected),
            *self._cancel((self.executions.current(v) for v in self.executions.in_order(self._affected)), now_ms),
            *self._settle(now_ms),
        ]

    def _lose_worker(self, event: events.WorkerLost, now_ms: int) -> list[events.Command]:
        """What ran on a worker has failed, and who still has to read what is gone with it needs it written again."""
        self.slots.lose_worker(event.worker)
        there = [execution for execution in self.executions if execution.worker == event.worker]
        commands: list[events.Command] = []
        if event.host_folder:
            commands += self._host_folders.lose_worker(event)
        gone = [] if event.host_folder else self._stages.lost(execution.vertex for execution in there)
        for execution in there:
            if execution.is_terminal:
                continue
            failure, execution.is_lost = TaskFailure(ClusterError(event.reason)), True
            if execution.state is ExecutionState.CANCELING:
                execution.transition(ExecutionState.CANCELED, now_ms)
            elif self._is_needed_no_more(failure):
                execution.transition(ExecutionState.FINISHED, now_ms)
            else:
                execution.transition(ExecutionState.FAILED, now_ms, failure.error)
                commands += self._fail(events.LocatedFailure(failure, execution.vertex), now_ms)
        commands += self._fail_readers(gone, event.reason, now_ms)
        return [*commands, *(self._settle(now_ms) if any(e.is_lost for e in there) or gone else [])]

    def _lose_host_folder(self, folder: str, now_ms: int) -> list[events.Command]:
        workers, reason = self._host_folders.give_up(folder)
        gone = self._stages.lost(e.vertex for e in self.executions if e.worker in workers)
        return [*self._fail_readers(gone, reason, now_ms), *self._settle(now_ms)] if gone else []

    def _fail_readers(self, gone: Iterable[PartitionId], reason: str, now_ms: int) -> list[events.Command]:
        commands: list[events.Command] = []
        for reader in (vertex for partition in gone for vertex in self._stages.readers(partition)):
            if not self._is_finished(reader):
                commands += self._fail(events.LocatedFailure(TaskFailure(ClusterError(reason)), reader), now_ms)
        return commands

    def _restore(self, event: events.RestartDue) -> list[events.Command]:
        if self._phase is not _Phase.WAITING or event.round != self._round:
            return []
        self._phase = _Phase.RESTORING
        return [events.RestoreState(self._round, tuple(self.executions.in_order(self._affected)))]

    def _redeploy(self, event: events.StateRestored, now_ms: int) -> list[events.Command]:
        if self._phase is not _Phase.RESTORING or event.round != self._round:
            return []
        self._phase = _Phase.STARTING
        self._file()
        again = self._affected - self._stages.left_alone(event.finished, self._is_finished)
        written = (p for vertex in self.executions.in_order(again) for p in self._stages.written(vertex))
        released = self._release_partitions(written)
        self._stages.restarted(again)
        for vertex in again:
            self.executions.restart(vertex, now_ms)
        self._affected.clear()
        return [*released, *(self._schedule(now_ms) or [*self._announce(), *self._settle(now_ms)])]

    def _file(self, keep: events.LocatedFailure | None = None) -> None:
        """Count the failures of a round as past."""
        self.failure_log.file(f for f in self.failures if f is not keep)
        self.failures = [] if keep is None else [keep]

    # The end.

    def _cancel(self, executions: Iterable[Execution], now_ms: int) -> list[events.Command]:
        """Have executions end, and watch that they do."""
        commands: list[events.Command] = []
        watched = []
        for execution in executions:
            if execution.is_terminal:
                continue
            if execution.state in _NOT_DEPLOYED:
                execution.transition(ExecutionState.CANCELED, now_ms)
                continue
            watched.append(execution.attempt_id)
            if execution.state is not ExecutionState.CANCELING:
                execution.transition(ExecutionState.CANCELING, now_ms)
                commands.append(events.CancelTask(execution.attempt_id))
        return [*commands, events.WatchCancellation(tuple(watched))] if watched else commands

    def _take_down(self, state: JobState, reason: str, now_ms: int) -> list[events.Command]:
        interrupted: list[events.Command] = [] if self.state is JobState.CREATED else [events.InterruptJob(reason)]
        self.state, self._phase = state, _Phase.NONE
        withdrawn = self.slots.withdraw([e.vertex for e in self.executions])
        return [*interrupted, *withdrawn, *self._cancel(self.executions, now_ms), *self._settle(now_ms)]

    def _give_up(self, event: events.CancelTimedOut, now_ms: int) -> list[events.Command]:
        stuck = {a for a in event.attempts if (e := self.executions.by_attempt(a)) is not None and not e.is_terminal}
        alive = {e.attempt_id for e in self.alive}
        taken_down = self.state in (JobState.FAILING, JobState.CANCELLING)
        if not stuck or (taken_down and stuck != alive):
            return []  # they ended, or those that were cancelled later still have time
        error = ClusterError(
            "subtasks did not end in the time allowed after they were cancelled: " + "; ".join(event.stuck)
        )
        self.failures.append(events.LocatedFailure(TaskFailure(error), None))
        if stuck == alive:
            return self._end(JobState.FAILED)
        return self._take_down(JobState.FAILING, f"the job failed: {error.message}", now_ms)

    def _end(self, state: JobState) -> list[events.Command]:
        self.state = state
        return [events.EndJob(state)]
