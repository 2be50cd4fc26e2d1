"""The scheduler, event by event: what goes in, and which commands come out."""

from __future__ import annotations

from flowrun.graph.execution_graph import build_execution_graph
from flowrun.graph.partitioner import RebalancePartitioner
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.jobmaster.scheduler_events import (
    AnnounceRunning,
    CancelJob,
    CancelTask,
    CancelTimedOut,
    Command,
    CommitResults,
    DeployTask,
    EndJob,
    InterruptJob,
    JobBroke,
    ResultsCommitted,
    StartJob,
    StopJob,
    StopSource,
    WatchCancellation,
)
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.messages import TaskFailure, TaskUpdate
from tests.job_graphs import Edge, Vertex, job_graph
from tests.slot_grants import handle

S = ExecutionState


class Story:
    """A scheduler over source(2) → sink(1), and a short way to tell it things."""

    def __init__(self) -> None:
        graph = build_execution_graph(
            job_graph([Vertex("source", 2), Vertex("sink", 1)], [Edge("source", "sink", RebalancePartitioner())])
        )
        self.scheduler = Scheduler(graph, "job", 0)
        self.executions = list(self.scheduler.executions)

    def deploy(self) -> list[Command]:
        commands = handle(self.scheduler, StartJob(), 0)
        for execution in self.executions:
            assert self.scheduler.begin_deployment(execution.vertex, 0)
        return commands

    def tell(self, index: int, state: S, error: BaseException | None = None) -> list[Command]:
        execution = self.executions[index]
        failure = None if error is None else TaskFailure(error, "op", "process")
        return self.scheduler.handle(TaskUpdate(execution.vertex, execution.attempt_id, state, failure), 0)

    def run(self) -> None:
        self.deploy()
        for index in range(3):
            self.tell(index, S.INITIALIZING)
            self.tell(index, S.RUNNING)

    def attempts(self, *indexes: int) -> list[str]:
        return [self.executions[i].attempt_id for i in indexes]

    def watch(self, *indexes: int) -> WatchCancellation:
        return WatchCancellation(tuple(self.attempts(*indexes)))


CANCELLED = InterruptJob("the job was cancelled")


def test_everything_is_deployed_at_once_producers_first() -> None:
    story = Story()
    deployed = [c.attempt_id for c in story.deploy() if isinstance(c, DeployTask)]
    assert deployed == story.attempts(0, 1, 2)
    assert story.scheduler.state is JobState.RUNNING


def test_results_are_committed_when_all_have_finished() -> None:
    story = Story()
    story.run()
    assert story.tell(0, S.FINISHED) == []
    assert story.tell(1, S.FINISHED) == []
    assert story.tell(2, S.FINISHED) == [CommitResults()]
    assert story.scheduler.handle(ResultsCommitted(), 0) == [EndJob(JobState.FINISHED)]


def test_the_first_failure_is_the_root_cause_and_takes_the_others_down() -> None:
    story = Story()
    story.run()
    root, consequence = ValueError("root"), ValueError("consequence")
    assert story.tell(0, S.CANCELING, root) == [
        InterruptJob("the job failed: ValueError: root"),
        *map(CancelTask, story.attempts(1, 2)),
        story.watch(0, 1, 2),
    ]
    assert story.tell(1, S.FAILED, consequence) == []
    assert story.tell(0, S.FAILED, root) == []
    assert story.tell(2, S.CANCELED) == [EndJob(JobState.FAILED)]
    assert [f.failure.error for f in story.scheduler.failures] == [root, consequence]


def test_subtasks_that_are_not_deployed_yet_are_not_deployed_any_more() -> None:
    story = Story()
    handle(story.scheduler, StartJob(), 0)
    assert story.scheduler.begin_deployment(story.executions[0].vertex, 0)
    assert story.tell(0, S.FAILED, ValueError("no room"))[1:] == [EndJob(JobState.FAILED)]
    assert not story.scheduler.begin_deployment(story.executions[1].vertex, 0)


def test_cancel_waits_for_all_to_end() -> None:
    story = Story()
    story.run()
    story.tell(0, S.FINISHED)
    assert story.scheduler.handle(CancelJob(), 0) == [
        CANCELLED,
        *map(CancelTask, story.attempts(1, 2)),
        story.watch(1, 2),
    ]
    assert story.scheduler.handle(CancelJob(), 0) == []
    assert story.tell(1, S.FINISHED) == [], "it had ended before the cancel came"
    assert story.tell(2, S.CANCELED) == [EndJob(JobState.CANCELED)]


def test_messages_that_crossed_a_cancel_are_ignored() -> None:
    story = Story()
    story.deploy()
    story.scheduler.handle(CancelJob(), 0)
    assert story.tell(0, S.INITIALIZING) == []
    assert story.tell(0, S.RUNNING) == []
    assert story.executions[0].state is S.CANCELING


def test_messages_of_an_unknown_attempt_are_ignored() -> None:
    story = Story()
    story.run()
    update = TaskUpdate(story.executions[0].vertex, "other", S.FAILED, TaskFailure(ValueError()))
    assert story.scheduler.handle(update, 0) == []
    assert story.scheduler.state is JobState.RUNNING


def test_stop_goes_to_sources_even_to_those_that_start_later() -> None:
    story = Story()
    story.deploy()
    story.tell(0, S.INITIALIZING)
    story.tell(0, S.RUNNING)
    assert story.scheduler.handle(StopJob(drain=True), 0) == [StopSource(story.attempts(0)[0], True)]
    story.tell(1, S.INITIALIZING)
    assert story.tell(1, S.RUNNING) == [StopSource(story.attempts(1)[0], True)]
    story.tell(2, S.INITIALIZING)
    assert story.tell(2, S.RUNNING) == [AnnounceRunning()]
    assert story.scheduler.handle(StopJob(drain=False), 0) == [], "it is stopping already"


def test_it_is_announced_once_that_everything_runs_or_has_finished() -> None:
    story = Story()
    story.deploy()
    for index in (0, 1, 2):
        story.tell(index, S.INITIALIZING)
    assert story.tell(0, S.RUNNING) == []
    assert story.tell(1, S.RUNNING) == []
    assert story.tell(0, S.FINISHED) == []
    assert story.tell(2, S.RUNNING) == [AnnounceRunning()]
    assert story.tell(1, S.FINISHED) == []


def test_a_broken_committer_fails_the_finished_job() -> None:
    story = Story()
    story.run()
    for index in range(3):
        story.tell(index, S.FINISHED)
    assert story.scheduler.handle(JobBroke(OSError("disk full"), "out"), 0) == [
        InterruptJob("the job failed: OSError: disk full"),
        EndJob(JobState.FAILED),
    ]
    assert story.scheduler.handle(ResultsCommitted(), 0) == []


def test_subtasks_that_do_not_end_are_given_up_and_named() -> None:
    story = Story()
    story.run()
    story.scheduler.handle(CancelJob(), 0)
    story.tell(0, S.CANCELED)
    timed_out = CancelTimedOut(("sink (1/1) is at write",), tuple(story.attempts(0, 1, 2)))
    assert story.scheduler.handle(timed_out, 0) == [EndJob(JobState.FAILED)]
    assert "sink (1/1) is at write" in str(story.scheduler.failures[-1].failure.error)


def test_a_time_out_after_the_end_is_nothing() -> None:
    story = Story()
    story.run()
    story.scheduler.handle(CancelJob(), 0)
    for index in range(3):
        story.tell(index, S.CANCELED)
    assert story.scheduler.handle(CancelTimedOut((), tuple(story.attempts(0, 1, 2))), 0) == []
