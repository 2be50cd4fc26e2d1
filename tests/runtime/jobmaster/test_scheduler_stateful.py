"""Random lives of a job: subtasks fail, end and are restarted in any order; the scheduler always knows what to do next."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowrun.graph.execution_graph import ExecutionVertexId, build_execution_graph
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner
from flowrun.runtime.jobmaster.restart import ExponentialDelay
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.jobmaster.scheduler_events import (
    AnnounceRunning,
    CancelJob,
    CancelTask,
    Command,
    CommitResults,
    DeployTask,
    EndJob,
    Event,
    InterruptJob,
    JobBroke,
    RestartAt,
    RestartDue,
    RestoreState,
    ResultsCommitted,
    StartJob,
    StateRestored,
    StopJob,
    StopSource,
    WatchCancellation,
)
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.messages import TaskFailure, TaskUpdate
from tests.examples import examples
from tests.job_graphs import Edge, Vertex, job_graph
from tests.slot_grants import handle

S = ExecutionState
NEXT = {S.DEPLOYING: S.INITIALIZING, S.INITIALIZING: S.RUNNING, S.RUNNING: S.FINISHED}
PICK = st.integers(0, 99)


class Life(RuleBasedStateMachine):
    """Two chains that share nothing, and a shuffle; tasks as they really are, beside what the scheduler believes."""

    @initialize()
    def begin(self) -> None:
        graph = build_execution_graph(
            job_graph(
                [Vertex("a", 2), Vertex("b", 1), Vertex("x", 1), Vertex("y", 1)],
                [Edge("a", "x", RebalancePartitioner()), Edge("b", "y", ForwardPartitioner())],
            )
        )
        self.scheduler = Scheduler(graph, "job", 0, ExponentialDelay(10, 100, 2.0, 10**9))
        self.tasks: dict[str, tuple[ExecutionVertexId, S]] = {}
        """Attempt → what it really is at; only living ones."""
        self.cancelled: set[str] = set()
        self.wanted: list[Event] = []
        self.ended: JobState | None = None
        self.believed_running = False
        self.send(StartJob())

    def send(self, event: Event) -> None:
        for command in handle(self.scheduler, event, 0):
            self.carry_out(command)

    def carry_out(self, command: Command) -> None:
        assert self.ended is None, "nothing comes after the end"
        match command:
            case DeployTask(vertex=vertex, attempt_id=attempt):
                assert self.scheduler.begin_deployment(vertex, 0)
                assert all(v != vertex for v, _ in self.tasks.values()), "the attempt before it still lives"
                self.tasks[attempt] = (vertex, S.DEPLOYING)
            case CancelTask(attempt_id=attempt):
                assert attempt in self.tasks
                assert attempt not in self.cancelled
                self.cancelled.add(attempt)
            case WatchCancellation(attempts=attempts):
                assert set(attempts) <= self.tasks.keys()
            case InterruptJob():
                self.believed_running = False
            case AnnounceRunning():
                assert all(state is S.RUNNING for _, state in self.tasks.values())
                self.believed_running = True
            case RestartAt(round=number):
                self.wanted.append(RestartDue(number))
            case RestoreState(round=number, vertices=vertices):
                assert not any(vertex in vertices for vertex, _ in self.tasks.values())
                self.wanted.append(StateRestored(number))
            case CommitResults():
                assert not self.tasks
                self.wanted.append(ResultsCommitted())
            case EndJob(state=state):
                assert not self.tasks
                self.ended = state
            case StopSource(attempt_id=attempt):
                assert self.tasks[attempt] == (self.tasks[attempt][0], S.RUNNING)

    def update(self, attempt: str, state: S, failure: TaskFailure | None = None) -> None:
        vertex, _ = self.tasks[attempt]
        if state in (S.FINISHED, S.FAILED, S.CANCELED):
            del self.tasks[attempt]
        else:
            self.tasks[attempt] = (vertex, state)
        self.send(TaskUpdate(vertex, attempt, state, failure))

    def pick(self, pick: int) -> str:
        return sorted(self.tasks)[pick % len(self.tasks)]

    @precondition(lambda self: self.tasks)
    @rule(pick=PICK)
    def advance(self, pick: int) -> None:
        attempt = self.pick(pick)
        self.update(attempt, NEXT[self.tasks[attempt][1]])

    @precondition(lambda self: self.tasks)
    @rule()
    def bring_up(self) -> None:
        for attempt in list(self.tasks):
            while attempt in self.tasks and self.tasks[attempt][1] is not S.RUNNING:
                self.update(attempt, NEXT[self.tasks[attempt][1]])

    @precondition(lambda self: self.tasks)
    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        self.update(self.pick(pick), S.FAILED, TaskFailure(OSError("broke")))

    @precondition(lambda self: self.cancelled & self.tasks.keys())
    @rule(pick=PICK)
    def end_cancelled(self, pick: int) -> None:
        ending = sorted(self.cancelled & self.tasks.keys())
        self.update(ending[pick % len(ending)], S.CANCELED)

    @precondition(lambda self: self.wanted)
    @rule(pick=PICK)
    def do_what_was_wanted(self, pick: int) -> None:
        self.send(self.wanted.pop(pick % len(self.wanted)))

    @rule()
    def break_job(self) -> None:
        self.send(JobBroke(OSError("no disk")))

    @rule()
    def stop(self) -> None:
        self.send(StopJob(drain=False))

    @invariant()
    def checkpoints_are_taken_only_of_a_whole_job(self) -> None:
        if getattr(self, "believed_running", False) and self.ended is None:
            assert self.scheduler.state is JobState.RUNNING
            assert all(state is S.RUNNING for _, state in self.tasks.values())

    def teardown(self) -> None:
        """Whatever happened: either left alone the job comes to its end, or a cancel ends it."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(100):
            if self.wanted:
                self.send(self.wanted.pop(0))
            elif self.cancelled & self.tasks.keys():
                self.end_cancelled(0)
            elif self.tasks:
                self.bring_up()
                if self.scheduler.restarts % 2:
                    self.send(CancelJob())
                else:
                    self.advance(0)
        assert self.ended in (JobState.FINISHED, JobState.CANCELED)


Life.TestCase.settings = examples(100, stateful_step_count=50)
TestLife = Life.TestCase
