"""The job master: one thread that runs one job. It feeds the scheduler with events and carries out its commands.

It also holds what exists once a job: the split enumerators of the sources and the committers of the sinks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from flowrun.core.clock import Clock
from flowrun.errors import FlowrunError, InternalError
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.jobmaster.commits import CommitCoordinator, CommitError
from flowrun.runtime.jobmaster.execution import ExecutionState
from flowrun.runtime.jobmaster.execution_graph import build_execution_graph
from flowrun.runtime.jobmaster.failure import job_failure, secondary_notes
from flowrun.runtime.jobmaster.scheduler import (
    CancelJob,
    CancelTask,
    CancelTimedOut,
    Command,
    CommitResults,
    DeployTask,
    EndJob,
    Event,
    JobBroke,
    ResultsCommitted,
    Scheduler,
    StartJob,
    StopJob,
    StopSource,
    WatchCancellation,
)
from flowrun.runtime.jobmaster.source_coordinator import SourceCoordinator, SplitAnswer
from flowrun.runtime.jobmaster.status import StatusReader
from flowrun.runtime.messages import (
    CommittablesReport,
    JobResult,
    JobState,
    JobStatus,
    SplitRequest,
    TaskDeployment,
    TaskExecutorGateway,
    TaskFailure,
    TaskUpdate,
)
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.task.mailbox import Mailbox, Priority
from flowrun.runtime.task.timers import TimerThread

DEFAULT_CANCEL_TIMEOUT_MS = 30_000
"""How long subtasks may take to end after they were cancelled."""


class JobMaster:
    """Runs one job. The public methods are thread-safe; `cancel` and `stop` may be called in a signal handler.

    Args:
        job_graph: the job.
        job_id: unique to this run.
        clock: processing time.
        timers: for periodic work.
        metrics: of the job.
        slots: the number of slots there are; None: as many as needed.
        cancel_timeout_ms: how long subtasks may take to end once cancelled.
        on_end: called on the job master's thread with all subtasks ended: frees what they shared.
        describe_stuck: attempt ids → what those subtasks are doing, for the error.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        *,
        job_id: str,
        clock: Clock,
        timers: TimerThread,
        metrics: MetricRegistry,
        slots: int | None = None,
        cancel_timeout_ms: int = DEFAULT_CANCEL_TIMEOUT_MS,
        on_end: Callable[[Sequence[str]], None],
        describe_stuck: Callable[[Sequence[str]], tuple[str, ...]],
    ) -> None:
        self.job_graph = job_graph
        self.job_id = job_id
        self.execution_graph = build_execution_graph(job_graph)
        self._clock = clock
        self._timers = timers
        self._started_ms = clock.now_ms()
        self._started_ns = clock.monotonic_ns()
        self._scheduler = Scheduler(self.execution_graph, job_id, slots, self._started_ms)
        self._status = StatusReader(self.execution_graph, self._scheduler.executions, metrics, clock)
        self._cancel_timeout_ms = cancel_timeout_ms
        self._on_end = on_end
        self._describe_stuck = describe_stuck
        self._mailbox = Mailbox()
        self._pending: deque[Event] = deque()
        self._handling = False
        self._executor: TaskExecutorGateway | None = None
        self._sources: dict[str, SourceCoordinator] = {}
        self._commits = CommitCoordinator()
        for vertex in job_graph.vertices:
            for operator in vertex.operators:
                if operator.source is not None:
                    coordinator = SourceCoordinator(operator.name, operator.source, vertex.parallelism, clock)
                    self._sources[vertex.vertex_id] = coordinator
                if operator.sink is not None:
                    self._commits.add_sink(operator.operator_id, operator.name, operator.sink)
        self._done = threading.Condition()
        self._result: JobResult | FlowrunError | None = None
        self._thread = threading.Thread(target=self._run, name=f"flowrun-job-{job_graph.name}", daemon=True)

    def start(self, executor: TaskExecutorGateway) -> None:
        """Begin; subtasks run on `executor`."""
        self._executor = executor
        self._thread.start()

    def cancel(self) -> None:
        """Take the job down without results."""
        self._mailbox.put(lambda: self._handle(CancelJob()), Priority.URGENT)

    def stop(self, *, drain: bool) -> None:
        """Have the sources end; everything that they emitted is processed and committed. With `drain` event time ends, too."""
        self._mailbox.put(lambda: self._handle(StopJob(drain)), Priority.URGENT)

    def status(self) -> JobStatus:
        """The present status."""
        return self._status.read(self.job_id, self._scheduler.state, self._clock.now_ms() - self._started_ms)

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
        self._thread.join()
        if isinstance(self._result, FlowrunError):
            raise self._result
        return self._result

    # What subtasks call, on their threads.

    def update_task(self, update: TaskUpdate) -> None:
        """A subtask reached a state."""
        self._mailbox.put(lambda: self._handle(update))

    def request_split(self, request: SplitRequest) -> None:
        """A source subtask asks for a split."""
        self._mailbox.put(lambda: self._answer(self._sources[request.vertex.vertex_id], request))

    def report_committables(self, report: CommittablesReport) -> None:
        """A sink subtask wrote something that is not visible yet."""
        self._mailbox.put(lambda: self._take(report))

    # Everything below runs on the job master's thread.

    def _run(self) -> None:
        self._guard(self._begin)
        while self._result is None:
            self._mailbox.wait_for_letter()
            letter = self._mailbox.take_nowait()
            if letter is not None:
                self._guard(letter)
        self._mailbox.close()

    def _guard(self, letter: Callable[[], None]) -> None:
        """Run a letter; what it raises fails the job, and if even that fails, ends it."""
        try:
            letter()
        except Exception as error:
            self._pending.clear()
            self._handling = False
            try:
                self._handle(JobBroke(error))
            except Exception as worse:
                worse.add_note(f"while the job was being failed because of: {error!r}")
                self._finish(JobState.FAILED, InternalError(f"the job master broke: {worse}"), worse)

    def _begin(self) -> None:
        for coordinator in self._sources.values():
            try:
                coordinator.start()
            except Exception as error:
                self._handle(JobBroke(error, coordinator.name))
                return
        self._handle(StartJob())
        for vertex_id in self._sources:
            self._schedule_discovery(vertex_id)

    def _handle(self, event: Event) -> None:
        """Give an event to the scheduler and carry out its commands; events that these cause wait their turn."""
        self._pending.append(event)
        if self._handling:
            return
        self._handling = True
        while self._pending:
            for command in self._scheduler.handle(self._pending.popleft(), self._clock.now_ms()):
                self._carry_out(command)
        self._handling = False

    def _carry_out(self, command: Command) -> None:
        executor = self._executor
        assert executor is not None
        match command:
            case DeployTask():
                self._deploy(command, executor)
            case CancelTask(attempt_id=attempt):
                executor.cancel(attempt)
            case StopSource(attempt_id=attempt, drain=drain):
                executor.stop(attempt, drain)
            case WatchCancellation():
                self._timers.after(self._cancel_timeout_ms, lambda: self._put(self._cancel_timed_out))
            case CommitResults():
                self._commit_results()
            case EndJob(state=state):
                self._end(state)

    def _put(self, letter: Callable[[], None]) -> None:
        self._mailbox.put(letter)

    def _deploy(self, command: DeployTask, executor: TaskExecutorGateway) -> None:
        if not self._scheduler.begin_deployment(command.vertex, self._clock.now_ms()):
            return
        vertex = self.execution_graph.vertex(command.vertex)
        groups = tuple(
            self.execution_graph.vertex(p.consumers[0].vertex).job_vertex.max_parallelism for p in vertex.partitions
        )
        deployment = TaskDeployment(self.job_id, command.attempt_id, vertex, groups, self.job_graph.settings)
        try:
            executor.deploy(deployment)
        except Exception as error:
            self._handle(
                TaskUpdate(
                    command.vertex, command.attempt_id, ExecutionState.FAILED, TaskFailure(error, phase="deployment")
                )
            )

    def _commit_results(self) -> None:
        try:
            self._commits.commit_all()
        except CommitError as error:
            self._handle(JobBroke(error.__cause__ or error, error.sink))
        else:
            self._handle(ResultsCommitted())

    def _take(self, report: CommittablesReport) -> None:
        try:
            self._commits.report(report, commit_now=self._scheduler.state is JobState.RUNNING)
        except CommitError as error:
            self._handle(JobBroke(error.__cause__ or error, error.sink))

    def _answer(self, coordinator: SourceCoordinator, request: SplitRequest | None) -> None:
        try:
            answers = coordinator.discover() if request is None else coordinator.request(request)
        except Exception as error:
            self._handle(JobBroke(error, coordinator.name))
            return
        for answer in answers:
            self._send(answer)

    def _send(self, answer: SplitAnswer) -> None:
        assert self._executor is not None
        if answer.split is None:
            self._executor.notify_no_more_splits(answer.attempt_id)
        else:
            self._executor.add_splits(answer.attempt_id, (answer.split,))

    def _schedule_discovery(self, vertex_id: str) -> None:
        coordinator = self._sources[vertex_id]
        interval_ms = coordinator.discovery_interval_ms
        if interval_ms is None or self._scheduler.state is not JobState.RUNNING:
            return

        def discover() -> None:
            self._answer(coordinator, None)
            self._schedule_discovery(vertex_id)

        self._timers.after(interval_ms, lambda: self._put(discover))

    def _cancel_timed_out(self) -> None:
        alive = [e.attempt_id for e in self._scheduler.alive]
        self._handle(CancelTimedOut(self._describe_stuck(alive)))

    def _end(self, state: JobState) -> None:
        """Clean up after the last subtask and publish the result."""
        problems = self._commits.abort_all()
        for coordinator in self._sources.values():
            try:
                coordinator.close()
            except Exception as error:
                problems.append(f"closing the splits of '{coordinator.name}' failed: {error}")
        stuck = [e.attempt_id for e in self._scheduler.alive]
        self._on_end(stuck)
        if state is JobState.FAILED:
            failures = self._scheduler.failures
            failed = job_failure(self.execution_graph, failures, problems)
            self._finish(state, failed, failures[0].failure.error)
            return
        notes = secondary_notes(self.execution_graph, self._scheduler.failures, problems)
        self._publish(
            JobResult(
                self.job_id,
                self.job_graph.name,
                state,
                (self._clock.monotonic_ns() - self._started_ns) / 1e6,
                self.status().vertices,
                self._status.accumulators(),
                tuple(notes),
            )
        )

    def _finish(self, state: JobState, error: FlowrunError, cause: BaseException) -> None:
        self._scheduler.state = state
        error.__cause__ = cause
        self._publish(error)

    def _publish(self, result: JobResult | FlowrunError) -> None:
        with self._done:
            self._result = result
            self._done.notify_all()
