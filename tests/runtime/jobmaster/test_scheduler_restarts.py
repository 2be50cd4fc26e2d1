"""The scheduler when things fail: who is cancelled, who goes on, and how the job comes back."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from flowrun.core.recovery import RestartSettings
from flowrun.errors import ClusterError, DataError, OptionError, StateError
from flowrun.graph.execution_graph import ExecutionVertexId, build_execution_graph
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner
from flowrun.runtime.jobmaster.failure_log import PAST_FAILURES
from flowrun.runtime.jobmaster.restart import ExponentialDelay, FixedDelay, RestartStrategy, restart_strategy
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.jobmaster.scheduler_events import (
    AnnounceRunning,
    CancelJob,
    CancelTask,
    CancelTimedOut,
    CheckpointCompleted,
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
    StopAwaited,
    StopJob,
    StopSnapshotCompleted,
    StopSource,
    WatchCancellation,
)
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.messages import TaskFailure, TaskUpdate
from tests.job_graphs import Edge, Vertex, job_graph
from tests.slot_grants import handle

S = ExecutionState
ONE = (Vertex("source", 2), Vertex("sink", 1)), (Edge("source", "sink", RebalancePartitioner()),)
"""One region: source_0, source_1, sink_0."""
TWO = (
    (Vertex("a", 1), Vertex("b", 1), Vertex("x", 1), Vertex("y", 1)),
    (Edge("a", "x", ForwardPartitioner()), Edge("b", "y", ForwardPartitioner())),
)
"""Two regions: a_0 → x_0 and b_0 → y_0."""


class Story:
    """A scheduler, and a short way to tell it things. Subtasks are named as in `source_0`."""

    def __init__(
        self,
        shape: tuple[Sequence[Vertex], Sequence[Edge]] = ONE,
        strategy: RestartStrategy | None = None,
    ) -> None:
        self.scheduler = Scheduler(
            build_execution_graph(job_graph(*shape)), "job", 0, strategy or FixedDelay(attempts=3, delay_ms=500)
        )
        self.now = 1_000

    def handle(self, event: Event) -> list[Command]:
        return handle(self.scheduler, event, self.now)

    def id(self, name: str) -> ExecutionVertexId:
        vertex, subtask = name.rsplit("_", 1)
        return ExecutionVertexId(vertex, int(subtask))

    def attempt(self, name: str) -> str:
        return self.scheduler.executions.current(self.id(name)).attempt_id

    def state(self, name: str) -> S:
        return self.scheduler.executions.current(self.id(name)).state

    def tell(self, name: str, state: S, error: BaseException | None = None) -> list[Command]:
        failure = None if error is None else TaskFailure(error, "op", "process")
        return self.handle(TaskUpdate(self.id(name), self.attempt(name), state, failure))

    def bring_up(self, commands: list[Command]) -> list[Command]:
        """Deploy what is to be deployed, until it runs; the last answer."""
        found: list[Command] = []
        for command in commands:
            if isinstance(command, DeployTask):
                assert self.scheduler.begin_deployment(command.vertex, self.now)
        for command in commands:
            if isinstance(command, DeployTask):
                for state in (S.INITIALIZING, S.RUNNING):
                    found += self.handle(TaskUpdate(command.vertex, command.attempt_id, state))
        return found

    def run(self) -> Story:
        assert self.bring_up(self.handle(StartJob())) == [AnnounceRunning()]
        return self

    def fail(self, name: str, error: BaseException | None = None) -> list[Command]:
        return self.tell(name, S.FAILED, error or ValueError(f"{name} broke"))

    def end(self, *names: str) -> list[Command]:
        """These were cancelled and end; the last answer."""
        answer: list[Command] = []
        for name in names:
            answer = self.tell(name, S.CANCELED)
        return answer

    def restart(self, round_: int, finished: frozenset[ExecutionVertexId] = frozenset()) -> list[Command]:
        self.now += 500
        (restore,) = self.handle(RestartDue(round_))
        assert isinstance(restore, RestoreState)
        return self.handle(StateRestored(round_, finished))

    def shown(self, commands: list[Command]) -> list[str]:
        """Commands in short."""
        return [f"{type(c).__name__} {getattr(c, 'attempt_id', '')}".strip() for c in commands]


# A restart that goes well.


def test_a_failed_region_is_cancelled_waited_for_restored_and_deployed_again() -> None:
    story = Story().run()
    assert story.fail("source_0", ValueError("root")) == [
        InterruptJob("the job failed: ValueError: root"),
        CancelTask("job_source_1_0"),
        CancelTask("job_sink_0_0"),
        WatchCancellation(("job_source_1_0", "job_sink_0_0")),
    ]
    assert story.scheduler.state is JobState.RESTARTING
    assert story.end("source_1") == []
    assert story.end("sink_0") == [RestartAt(1_500, 1)]
    everybody = tuple(map(story.id, ("source_0", "source_1", "sink_0")))
    assert story.handle(RestartDue(1)) == [RestoreState(1, everybody)]
    deployed = story.handle(StateRestored(1))
    assert story.shown(deployed) == [
        "DeployTask job_source_0_1",
        "DeployTask job_source_1_1",
        "DeployTask job_sink_0_1",
    ]
    assert story.scheduler.state is JobState.RESTARTING
    assert story.bring_up(deployed) == [AnnounceRunning()]
    assert story.scheduler.state is JobState.RUNNING
    assert story.scheduler.restarts == 1
    assert story.scheduler.failures == [], "it is put right"


def test_a_restarted_job_finishes_as_any_other() -> None:
    story = Story().run()
    story.fail("source_0")
    story.end("source_1", "sink_0")
    story.bring_up(story.restart(1))
    story.tell("source_0", S.FINISHED)
    story.tell("source_1", S.FINISHED)
    assert story.tell("sink_0", S.FINISHED) == [CommitResults()]
    assert story.handle(ResultsCommitted()) == [EndJob(JobState.FINISHED)]


def test_other_regions_go_on() -> None:
    story = Story(TWO).run()
    assert story.shown(story.fail("a_0")) == ["InterruptJob", "CancelTask job_x_0_0", "WatchCancellation"]
    assert story.state("b_0") is S.RUNNING
    assert story.end("x_0") == [RestartAt(1_500, 1)]
    assert story.tell("b_0", S.FINISHED) == []
    deployed = story.restart(1)
    assert story.shown(deployed) == ["DeployTask job_a_0_1", "DeployTask job_x_0_1"]
    assert story.bring_up(deployed) == [AnnounceRunning()]


def test_finished_subtasks_of_the_region_run_again() -> None:
    story = Story().run()
    story.tell("source_0", S.FINISHED)
    story.fail("source_1")
    assert story.end("sink_0") == [RestartAt(1_500, 1)]
    assert story.shown(story.restart(1)) == [
        "DeployTask job_source_0_1",
        "DeployTask job_source_1_1",
        "DeployTask job_sink_0_1",
    ], "even those finished in the checkpoint: consumers must be told that there is no more input"


def test_all_readers_of_one_enumerator_are_restarted_together() -> None:
    vertices, edges = (Vertex("a", 2), Vertex("b", 2)), (Edge("a", "b", ForwardPartitioner()),)
    story = Story((vertices, edges)).run()
    cancelled = [c.attempt_id for c in story.fail("b_0") if isinstance(c, CancelTask)]
    assert cancelled == ["job_a_0_0", "job_a_1_0", "job_b_1_0"]


def test_a_broken_job_restarts_everything() -> None:
    story = Story(TWO).run()
    commands = story.handle(JobBroke(OSError("the committer broke"), "sink"))
    assert len([c for c in commands if isinstance(c, CancelTask)]) == 4


def test_a_region_that_finished_here_and_in_the_checkpoint_is_left_alone() -> None:
    story = Story(TWO).run()
    story.tell("a_0", S.FINISHED)
    story.tell("x_0", S.FINISHED)
    story.handle(JobBroke(OSError("too many checkpoints failed")))
    assert story.end("b_0", "y_0") == [RestartAt(1_500, 1)]
    deployed = story.restart(1, frozenset(map(story.id, ("a_0", "x_0"))))
    assert story.shown(deployed) == ["DeployTask job_b_0_1", "DeployTask job_y_0_1"]
    assert story.bring_up(deployed) == [AnnounceRunning()]


def test_a_failed_final_commit_is_tried_again_from_the_last_checkpoint() -> None:
    story = Story().run()
    names = ("source_0", "source_1", "sink_0")
    for name in names:
        story.tell(name, S.FINISHED)
    assert story.handle(JobBroke(OSError("disk full"), "out")) == [
        InterruptJob("the job failed: OSError: disk full"),
        RestartAt(1_500, 1),
    ]
    assert story.handle(ResultsCommitted()) == [], "of the commit that broke"
    assert story.restart(1, frozenset(map(story.id, names))) == [AnnounceRunning(), CommitResults()]
    assert story.handle(ResultsCommitted()) == [EndJob(JobState.FINISHED)]


# Failures on the way.


def test_consequences_of_a_failure_are_no_failures_of_their_own() -> None:
    story = Story(strategy=FixedDelay(attempts=1, delay_ms=500)).run()
    root = ValueError("root")
    story.tell("source_0", S.CANCELING, root)
    assert story.tell("sink_0", S.FAILED, ValueError("consequence")) == []
    assert story.tell("source_0", S.FAILED, root) == [], "told again, once it is closed"
    assert story.end("source_1") == [RestartAt(1_500, 1)]
    story.bring_up(story.restart(1))
    assert [str(f.failure.error) for f in story.scheduler.failure_log.past] == ["root"]


def test_another_region_that_fails_meanwhile_joins_the_restart() -> None:
    story = Story(TWO, FixedDelay(attempts=1, delay_ms=500)).run()
    story.fail("a_0")
    assert story.end("x_0") == [RestartAt(1_500, 1)]
    assert story.shown(story.fail("b_0")) == ["InterruptJob", "CancelTask job_y_0_0", "WatchCancellation"]
    assert story.end("y_0") == [RestartAt(1_500, 2)]
    assert story.handle(RestartDue(1)) == [], "of before"
    assert len(story.restart(2)) == 4
    assert story.scheduler.restarts == 1


def test_a_failure_while_restoring_makes_what_is_restored_worthless() -> None:
    story = Story(TWO).run()
    story.fail("a_0")
    story.end("x_0")
    story.handle(RestartDue(1))
    story.fail("b_0")
    assert story.handle(StateRestored(1)) == []
    assert story.end("y_0") == [RestartAt(1_500, 2)]
    story.handle(RestartDue(2))
    assert story.handle(StateRestored(1)) == []
    assert len(story.handle(StateRestored(2))) == 4


def test_a_failure_while_starting_asks_the_strategy_again() -> None:
    story = Story(strategy=ExponentialDelay(100, 1_000, 2.0, 10**9)).run()
    story.fail("source_0")
    story.end("source_1", "sink_0")
    for command in story.restart(1):
        assert isinstance(command, DeployTask)
        assert story.scheduler.begin_deployment(command.vertex, 0)
    story.fail("sink_0")
    assert story.end("source_0", "source_1") == [RestartAt(story.now + 200, 2)]
    assert story.bring_up(story.restart(2)) == [AnnounceRunning()]
    assert story.scheduler.restarts == 2


def test_a_subtask_that_is_not_deployed_yet_is_simply_scheduled_again() -> None:
    story = Story().run()
    story.fail("source_0")
    story.end("source_1", "sink_0")
    story.restart(1)
    assert story.scheduler.begin_deployment(story.id("source_0"), 0)
    assert story.fail("source_0")[1:] == [RestartAt(story.now + 500, 2)]


def test_restoring_that_fails_for_the_moment_is_tried_again() -> None:
    story = Story().run()
    story.fail("source_0")
    story.end("source_1", "sink_0")
    story.handle(RestartDue(1))
    assert story.handle(JobBroke(OSError("unreachable")))[1:] == [RestartAt(1_500, 2)]
    assert story.scheduler.restarts == 2


def test_messages_of_an_earlier_attempt_are_ignored() -> None:
    story = Story().run()
    old = story.attempt("source_0")
    story.fail("source_0")
    story.end("source_1", "sink_0")
    story.bring_up(story.restart(1))
    late = TaskUpdate(story.id("source_0"), old, S.FAILED, TaskFailure(ValueError("late")))
    assert story.handle(late) == []
    assert story.scheduler.state is JobState.RUNNING


# Giving up.


def fails_again(story: Story, round_: int, error: BaseException) -> bool:
    """The source fails and is restarted, if it is: whether it was."""
    story.fail("source_0", error)
    if story.scheduler.state is JobState.FAILING:
        return False
    story.end("source_1", "sink_0")
    story.bring_up(story.restart(round_))
    return True


def test_the_same_failure_at_the_same_row_is_the_end_the_third_time() -> None:
    story = Story(strategy=FixedDelay(attempts=100, delay_ms=0)).run()
    # the row has another place in its batch each time, and a checkpoint in front of it is no progress
    assert fails_again(story, 1, DataError("'k' must not be NULL, but it is in row 7 {k: NULL, n: 3}", row=7))
    story.handle(CheckpointCompleted())
    assert fails_again(story, 2, DataError("'k' must not be NULL, but it is in row 0 {k: NULL, n: 3}", row=0))
    assert fails_again(story, 3, DataError("'k' must not be NULL, but it is in row 9 {k: NULL, n: 4}", row=9))
    story.handle(CheckpointCompleted())
    assert not fails_again(story, 4, DataError("'k' must not be NULL, but it is in row 2 {k: NULL, n: 3}", row=2))
    assert story.scheduler.restart_note == "not restarted: this happened 3 times at the same place without progress"


def test_failures_between_which_the_job_went_on_and_those_of_the_world_outside_leave_it_to_the_strategy() -> None:
    story = Story(strategy=FixedDelay(attempts=100, delay_ms=0)).run()
    unreachable = DataError("function 'enrich' raised")
    unreachable.__cause__ = ConnectionError("refused")
    for round_ in range(1, 13, 3):
        assert fails_again(story, round_, ValueError("now and then"))
        assert fails_again(story, round_ + 1, OSError("disk full"))
        assert fails_again(story, round_ + 2, unreachable)
        for _ in range(3):
            story.handle(CheckpointCompleted())


def test_failures_of_the_world_outside_without_a_checkpoint_between_them_come_to_an_end() -> None:
    settings = RestartSettings("exponential", attempts_without_progress=2)
    story = Story(strategy=restart_strategy(settings, checkpoints=True)).run()
    assert fails_again(story, 1, OSError("no route to host"))
    assert fails_again(story, 2, OSError("no route to host"))
    story.handle(CheckpointCompleted())
    assert fails_again(story, 3, OSError("no route to host"))
    assert fails_again(story, 4, OSError("no route to host"))
    assert not fails_again(story, 5, OSError("no route to host"))
    assert story.scheduler.restart_note == (
        "gave up after 4 restarts (exponential, 1000 to 60000 ms, at most 2 in a row without a new checkpoint)"
    )


def test_subtasks_that_fail_together_fail_once() -> None:
    story = Story(strategy=FixedDelay(attempts=100, delay_ms=0)).run()
    for name in ("source_0", "source_1", "sink_0"):
        story.fail(name, ValueError("the same everywhere"))
    assert story.scheduler.state is JobState.RESTARTING


def test_a_strategy_that_gives_up_fails_the_job_and_says_so() -> None:
    story = Story(strategy=FixedDelay(attempts=1, delay_ms=500)).run()
    story.fail("source_0", ValueError("first"))
    story.end("source_1", "sink_0")
    story.bring_up(story.restart(1))
    story.fail("sink_0", ValueError("second"))
    assert story.scheduler.state is JobState.FAILING
    assert story.end("source_0", "source_1") == [EndJob(JobState.FAILED)]
    assert story.scheduler.restart_note == "gave up after 1 restart (fixed_delay, attempts 1)"
    assert [str(f.failure.error) for f in story.scheduler.failures] == ["second"]
    assert [str(f.failure.error) for f in story.scheduler.failure_log.past] == ["first"]


def test_the_causes_of_the_last_restarts_are_kept_without_their_frames() -> None:
    story = Story(strategy=FixedDelay(attempts=99, delay_ms=0)).run()
    for number in range(1, PAST_FAILURES + 3):
        try:
            raise ValueError(str(number))
        except ValueError as error:
            story.fail("source_0", error)
        story.end("source_1", "sink_0")
        story.bring_up(story.restart(number))
    kept = [f.failure.error for f in story.scheduler.failure_log.past]
    assert [str(e) for e in kept] == ["3", "4", "5", "6", "7"]
    assert all(e.__traceback__ is None for e in kept)
    history = story.scheduler.executions.history(story.id("source_0"))
    assert len(history) <= PAST_FAILURES + 1, "old attempts are forgotten"


@pytest.mark.parametrize(
    "refused", [MemoryError(), pa.ArrowMemoryError("malloc of size 64 failed"), RuntimeError("can't start new thread")]
)
def test_a_job_that_gets_no_memory_ends_instead_of_asking_again(refused: Exception) -> None:
    story = Story(TWO).run()
    wrapped = DataError("cannot be joined")
    wrapped.__cause__ = refused
    story.fail("b_0", wrapped)
    assert story.scheduler.state is JobState.FAILING
    assert story.scheduler.restarts == 0
    assert "no more memory or threads" in str(story.scheduler.restart_note)


@pytest.mark.parametrize("joins", [False, True])
def test_an_error_that_would_come_again_fails_the_job_at_once(joins: bool) -> None:
    story = Story(TWO).run()
    if joins:
        story.fail("a_0")
    wrong = OptionError("path", "is missing")
    story.fail("b_0", wrong)
    assert story.scheduler.state is JobState.FAILING
    assert story.scheduler.failures[0].failure.error is wrong
    assert story.scheduler.restart_note == "not restarted: the same error would come again"


def test_state_that_cannot_be_restored_fails_the_job() -> None:
    story = Story().run()
    story.fail("source_0", ValueError("first"))
    story.end("source_1", "sink_0")
    story.handle(RestartDue(1))
    assert story.handle(JobBroke(StateError("chk-3 is damaged")))[1:] == [EndJob(JobState.FAILED)]
    assert [str(f.failure.error) for f in story.scheduler.failures] == ["chk-3 is damaged", "first"]


def test_subtasks_that_do_not_end_before_a_restart_fail_the_job() -> None:
    story = Story(TWO).run()
    watch = story.fail("a_0")[-1]
    assert isinstance(watch, WatchCancellation)
    commands = story.handle(CancelTimedOut(("x (1/1) is at write",), watch.attempts))
    assert story.shown(commands) == [
        "InterruptJob",
        "CancelTask job_b_0_0",
        "CancelTask job_y_0_0",
        "WatchCancellation",
    ]
    assert story.scheduler.state is JobState.FAILING
    assert story.handle(CancelTimedOut((), watch.attempts)) == [], "the others still have time"
    last = commands[-1]
    assert isinstance(last, WatchCancellation)
    story.end("b_0", "y_0")
    assert story.handle(CancelTimedOut(("x",), last.attempts)) == [EndJob(JobState.FAILED)]


def test_a_time_out_of_an_earlier_round_means_nothing_to_the_next() -> None:
    story = Story().run()
    watch = story.fail("source_0")[-1]
    assert isinstance(watch, WatchCancellation)
    story.end("source_1", "sink_0")
    story.bring_up(story.restart(1))
    story.fail("source_0")
    assert story.handle(CancelTimedOut((), watch.attempts)) == []
    assert story.scheduler.state is JobState.RESTARTING


# The user meanwhile.


def test_a_cancel_while_waiting_ends_the_job_at_once() -> None:
    story = Story().run()
    story.fail("source_0")
    story.end("source_1", "sink_0")
    assert story.handle(CancelJob()) == [InterruptJob("the job was cancelled"), EndJob(JobState.CANCELED)]
    assert story.handle(RestartDue(1)) == []


def test_a_cancel_while_cancelling_waits_for_the_rest() -> None:
    story = Story(TWO).run()
    story.fail("a_0")
    assert story.shown(story.handle(CancelJob())) == [
        "InterruptJob",
        "CancelTask job_b_0_0",
        "CancelTask job_y_0_0",
        "WatchCancellation",
    ]
    assert story.end("x_0", "b_0") == []
    assert story.end("y_0") == [EndJob(JobState.CANCELED)]


def test_a_cancel_while_starting_takes_the_new_attempts_down() -> None:
    story = Story().run()
    story.fail("source_0")
    story.end("source_1", "sink_0")
    story.restart(1)
    assert story.handle(CancelJob())[-1] == EndJob(JobState.CANCELED)
    assert not story.scheduler.begin_deployment(story.id("source_0"), 0)


def test_a_stop_while_restarting_is_remembered_for_the_new_attempts() -> None:
    story = Story().run()
    story.fail("source_0")
    story.end("source_1", "sink_0")
    assert story.handle(StopJob(drain=True)) == [RestartAt(story.now, 1)], "it does not wait for the delay of 500 ms"
    assert story.bring_up(story.restart(1)) == [
        StopSource("job_source_0_1", True),
        StopSource("job_source_1_1", True),
        AnnounceRunning(),
    ]


def test_who_waits_for_the_last_snapshot_does_not_wait_for_a_restart() -> None:
    story = Story().run()
    assert story.handle(StopAwaited()) == [], "it runs: there is nothing to hurry"
    story.fail("source_0")
    story.end("source_1", "sink_0")
    assert story.handle(StopAwaited()) == [RestartAt(story.now, 1)]
    story.restart(1)
    assert story.handle(RestartDue(1)) == [], "the timer of the delay comes too late"


def test_a_stop_that_comes_while_subtasks_are_cancelled_counts_too() -> None:
    story = Story().run()
    story.fail("source_0")
    assert story.handle(StopAwaited()) == []
    assert story.end("source_1", "sink_0") == [RestartAt(story.now, 1)]


def test_subtasks_that_were_stopped_with_a_snapshot_finish_the_job() -> None:
    story = Story().run()
    assert story.handle(StopSnapshotCompleted()) == []
    story.tell("source_0", S.FINISHED)
    story.tell("sink_0", S.FINISHED)
    assert story.tell("source_1", S.FINISHED) == [CommitResults()]
    assert story.handle(ResultsCommitted()) == [EndJob(JobState.FINISHED)]


def test_who_loses_a_process_after_the_snapshot_of_a_stop_has_done_its_part() -> None:
    story = Story().run()
    story.handle(StopSnapshotCompleted())
    story.tell("source_0", S.FINISHED)
    story.fail("source_1", ClusterError("rows of source come no more: the connection was closed"))
    assert story.scheduler.state is JobState.RUNNING
    assert story.tell("sink_0", S.FINISHED) == [CommitResults()]
    assert story.handle(ResultsCommitted()) == [EndJob(JobState.FINISHED)]


def test_nothing_is_restarted_after_the_snapshot_of_a_stop() -> None:
    story = Story().run()
    story.handle(StopSnapshotCompleted())
    story.tell("source_0", S.FINISHED)
    story.fail("source_1")
    assert story.end("sink_0") == [EndJob(JobState.FAILED)]
    assert story.scheduler.restart_note is not None
    assert "resume from it" in story.scheduler.restart_note
