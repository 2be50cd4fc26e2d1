"""The scheduler: a pure state machine over the executions of a job. An event goes in, commands come out; nothing else happens.

Scheduling is eager: all subtasks at once, in topological order, so that the partitions of a producer exist before anyone reads
them and nothing that is written can be lost. The first failure is the root cause; every other subtask is then cancelled, and the job
ends when all executions have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowrun.errors import ClusterError, InternalError
from flowrun.runtime.jobmaster.execution import Execution, Executions, ExecutionState
from flowrun.runtime.jobmaster.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.runtime.jobmaster.slots import share_slots
from flowrun.runtime.messages import JobState, TaskFailure, TaskUpdate


@dataclass(frozen=True, slots=True)
class StartJob:
    """Event: deploy everything."""


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Event: the user cancels."""


@dataclass(frozen=True, slots=True)
class StopJob:
    """Event: the user stops: sources end early, results are committed."""

    drain: bool


@dataclass(frozen=True, slots=True)
class JobBroke:
    """Event: something of the job that is no subtask failed: an enumerator, a committer."""

    error: BaseException
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class ResultsCommitted:
    """Event: what `CommitResults` asked for is done."""


@dataclass(frozen=True, slots=True)
class CancelTimedOut:
    """Event: subtasks were given long enough to end. `stuck` describes those that did not."""

    stuck: tuple[str, ...]


Event = StartJob | CancelJob | StopJob | JobBroke | ResultsCommitted | CancelTimedOut | TaskUpdate


@dataclass(frozen=True, slots=True)
class DeployTask:
    """Command: start a subtask. Ask `Scheduler.begin_deployment` first: the job may have failed meanwhile."""

    vertex: ExecutionVertexId
    attempt_id: str


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Command: make a subtask end."""

    attempt_id: str


@dataclass(frozen=True, slots=True)
class StopSource:
    """Command: make a source subtask end its input."""

    attempt_id: str
    drain: bool


@dataclass(frozen=True, slots=True)
class WatchCancellation:
    """Command: send `CancelTimedOut` if subtasks are still alive after the time allowed."""


@dataclass(frozen=True, slots=True)
class CommitResults:
    """Command: every subtask finished; make what the sinks wrote visible, then send `ResultsCommitted`."""


@dataclass(frozen=True, slots=True)
class EndJob:
    """Command: the job is over; `Scheduler.failures` says why, root cause first."""

    state: JobState


Command = DeployTask | CancelTask | StopSource | WatchCancellation | CommitResults | EndJob


@dataclass(frozen=True, slots=True)
class LocatedFailure:
    """A failure and the subtask where it happened; None if it happened in the job master."""

    failure: TaskFailure
    vertex: ExecutionVertexId | None


class Scheduler:
    """Decides what happens next in one job. Owned by the job master's thread.

    Args:
        graph: what to run.
        job_id: the run.
        slots: how many slots there are; None if there is no limit.
        now_ms: processing time.
    """

    def __init__(self, graph: ExecutionGraph, job_id: str, slots: int | None, now_ms: int) -> None:
        self._graph = graph
        self._slots = slots
        self.executions = Executions(graph, job_id, now_ms)
        self.state = JobState.CREATED
        self.failures: list[LocatedFailure] = []
        """Root cause first, then what failed while the job was taken down."""
        self._stop: StopJob | None = None

    def handle(self, event: Event, now_ms: int) -> list[Command]:
        """What to do about an event.

        Raises:
            InternalError: a subtask made a transition that is not legal.
        """
        if self.state.is_terminal:
            return []
        match event:
            case StartJob():
                return self._start(now_ms)
            case TaskUpdate():
                return self._update(event, now_ms)
            case StopJob():
                return self._stop_sources(event)
            case CancelJob():
                if self.state not in (JobState.CREATED, JobState.RUNNING):
                    return []
                return self._take_down(JobState.CANCELLING, now_ms)
            case JobBroke(error=error, operator=operator):
                return self._fail(LocatedFailure(TaskFailure(error, operator), None), now_ms)
            case ResultsCommitted():
                return self._end(JobState.FINISHED)
            case CancelTimedOut(stuck=stuck):
                return self._give_up(stuck)

    def begin_deployment(self, vertex: ExecutionVertexId, now_ms: int) -> bool:
        """Whether a subtask is still to be deployed; if so it is DEPLOYING from now on."""
        execution = self.executions.current(vertex)
        if execution.state is not ExecutionState.SCHEDULED:
            return False
        execution.transition(ExecutionState.DEPLOYING, now_ms)
        return True

    @property
    def alive(self) -> list[Execution]:
        """Executions that have not ended."""
        return [e for e in self.executions if not e.is_terminal]

    def _start(self, now_ms: int) -> list[Command]:
        needed = len(share_slots(self._graph))
        if self._slots is not None and needed > self._slots:
            error = ClusterError(
                f"job '{self._graph.job_graph.name}' needs {needed} slots, there are {self._slots}",
                hint=f"lower the parallelism, or give the cluster {needed} slots",
            )
            return self._fail(LocatedFailure(TaskFailure(error), None), now_ms)
        self.state = JobState.RUNNING
        commands: list[Command] = []
        for execution in self.executions:
            execution.transition(ExecutionState.SCHEDULED, now_ms)
            commands.append(DeployTask(execution.vertex, execution.attempt_id))
        return commands if commands else [CommitResults()]

    def _update(self, update: TaskUpdate, now_ms: int) -> list[Command]:
        execution = self.executions.by_attempt(update.attempt_id)
        if execution is None:
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
        execution.transition(target, now_ms, update.failure.error if update.failure else None)
        commands: list[Command] = []
        if update.failure is not None:
            commands = self._fail(LocatedFailure(update.failure, update.vertex), now_ms)
        elif target is ExecutionState.RUNNING and self._stop is not None:
            commands = self._stop_commands([execution], self._stop.drain)
        return commands or self._settle()

    def _settle(self) -> list[Command]:
        """What follows once every execution has ended."""
        if not self.executions.all_terminal:
            return []
        if self.state is JobState.RUNNING and self.executions.all_finished:
            return [CommitResults()]
        if self.state is JobState.FAILING:
            return self._end(JobState.FAILED)
        if self.state is JobState.CANCELLING:
            return self._end(JobState.CANCELED)
        if self.state is JobState.RUNNING:
            raise InternalError("every subtask ended, some did not finish, and nobody cancelled or failed")
        return []

    def _fail(self, located: LocatedFailure, now_ms: int) -> list[Command]:
        same = next((i for i, f in enumerate(self.failures) if f.failure.error is located.failure.error), None)
        if same is not None:
            self.failures[same] = located  # told again at its end, now with what closing brought to light
        else:
            self.failures.append(located)
        if self.state in (JobState.CREATED, JobState.RUNNING):
            return self._take_down(JobState.FAILING, now_ms)
        return self._settle()

    def _take_down(self, state: JobState, now_ms: int) -> list[Command]:
        self.state = state
        commands: list[Command] = []
        for execution in self.alive:
            if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED):
                execution.transition(ExecutionState.CANCELED, now_ms)
                continue
            if execution.state is not ExecutionState.CANCELING:
                execution.transition(ExecutionState.CANCELING, now_ms)
                commands.append(CancelTask(execution.attempt_id))
        return [*commands, WatchCancellation()] if self.alive else self._settle()

    def _stop_sources(self, event: StopJob) -> list[Command]:
        if self.state not in (JobState.CREATED, JobState.RUNNING) or self._stop is not None:
            return []
        self._stop = event
        return self._stop_commands(list(self.executions), event.drain)

    def _stop_commands(self, executions: Sequence[Execution], drain: bool) -> list[Command]:
        return [
            StopSource(e.attempt_id, drain)
            for e in executions
            if e.state is ExecutionState.RUNNING and not self._graph.vertex(e.vertex).gates
        ]

    def _give_up(self, stuck: tuple[str, ...]) -> list[Command]:
        if not self.alive:
            return []
        error = ClusterError("subtasks did not end in the time allowed after they were cancelled: " + "; ".join(stuck))
        self.failures.append(LocatedFailure(TaskFailure(error), None))
        return self._end(JobState.FAILED)

    def _end(self, state: JobState) -> list[Command]:
        self.state = state
        return [EndJob(state)]
