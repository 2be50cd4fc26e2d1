"""What the coordinator does for those who ask: savepoints, checkpoints now, and stopping with a snapshot."""

from __future__ import annotations

from coordinator_witness import (
    EVERY_10_S,
    SAVEPOINT,
    STOP,
    S,
    World,
    acknowledged,
    complete,
    names,
    running,
    vertex,
    with_checkpoint,
)

from flowrun.core.elements import CheckpointKind, CheckpointOptions
from flowrun.core.recovery import CheckpointSettings
from flowrun.runtime.checkpoint.events import (
    AbortCheckpoint,
    AnswerRequest,
    CheckpointStarted,
    CompleteCheckpoint,
    DiscardSnapshot,
    JobIsInterrupted,
    JobIsRunning,
    SnapshotRequested,
    StartCheckpoint,
    StartFailed,
    SubtaskDeclined,
    SubtaskFinished,
)

# Savepoints and other requests.


def test_a_request_waits_for_neither_interval_nor_pause() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, min_pause_ms=60 * S))
    complete(world, 1)
    (start,) = world.tell(SnapshotRequested("me", SAVEPOINT, "/save"))
    assert isinstance(start, StartCheckpoint)
    assert (start.checkpoint_id, start.directory, start.options.kind) == (2, "/save", CheckpointKind.SAVEPOINT)


def test_a_request_waits_for_room_and_goes_before_periodic_ones() -> None:
    world = with_checkpoint()
    assert world.tell(SnapshotRequested("me", SAVEPOINT)) == []
    world.wait(30 * S)
    completed, start = complete(world, 1)
    assert names([completed]) == ["CompleteCheckpoint 1"]
    assert isinstance(start, StartCheckpoint)
    assert start.options.kind is CheckpointKind.SAVEPOINT
    assert names(complete(world, 2)) == ["CompleteCheckpoint 2", "AnswerRequest me", "StartCheckpoint 3"]


def test_a_savepoint_is_not_retained_nor_what_a_restart_goes_back_to() -> None:
    world = running()
    world.wait(10 * S)
    complete(world, 1)
    world.tell(SnapshotRequested("me", SAVEPOINT))
    completed, answer = complete(world, 2)
    assert isinstance(completed, CompleteCheckpoint)
    assert completed.retained == (1,)
    assert not completed.is_restored_from
    assert answer == AnswerRequest("me", "chk-2")
    assert world.coordinator.latest is not None
    assert world.coordinator.latest.checkpoint_id == 1


def test_a_savepoint_neither_subsumes_nor_is_subsumed() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, max_concurrent=3))
    world.tell(SnapshotRequested("me", SAVEPOINT))
    assert names(complete(world, 2)) == ["CompleteCheckpoint 2", "AnswerRequest me"], "1 goes on"
    world.tell(SnapshotRequested("you", SAVEPOINT))
    world.wait(10 * S)
    assert names(complete(world, 4)) == ["CompleteCheckpoint 4", "AbortCheckpoint 1"], "3 goes on"


def test_a_savepoint_that_fails_is_answered_and_does_not_count() -> None:
    world = running(CheckpointSettings(10 * S))
    world.tell(SnapshotRequested("me", SAVEPOINT))
    assert world.tell(StartFailed(1, "no such folder")) == [
        AbortCheckpoint(1, "no such folder"),
        AnswerRequest("me", None, "no such folder"),
    ]
    assert world.coordinator.is_running


def test_a_request_for_a_checkpoint_that_a_newer_one_overtakes_gets_the_newer() -> None:
    world = running(CheckpointSettings(10 * S, max_concurrent=2))
    world.tell(SnapshotRequested("me", CheckpointOptions()))
    world.wait(10 * S)
    assert complete(world, 2)[1] == AnswerRequest("me", "chk-2")


def test_requests_while_the_job_does_not_run_are_refused_with_the_reason() -> None:
    world = World(EVERY_10_S)
    assert world.tell(SnapshotRequested("early", SAVEPOINT)) == [
        AnswerRequest("early", None, "the job is not running: it has not started")
    ]
    world.tell(JobIsRunning())
    world.tell(JobIsInterrupted("the job failed: disk full"))
    assert world.tell(SnapshotRequested("amid", STOP)) == [
        AnswerRequest("amid", None, "the job is not running: the job failed: disk full")
    ]


def test_an_interruption_ends_everything_and_tells_who_asked_then_numbers_grow_on() -> None:
    world = with_checkpoint()
    world.tell(SnapshotRequested("waits", SAVEPOINT))
    assert world.tell(JobIsInterrupted("a task failed")) == [
        AbortCheckpoint(1, "a task failed"),
        AnswerRequest("waits", None, "a task failed"),
    ]
    assert world.tell(JobIsInterrupted("another failed")) == []
    late = acknowledged(1, 0)
    assert world.tell(late) == [DiscardSnapshot(1, late.snapshot)]
    world.tell(JobIsRunning())
    assert names(world.wait(10 * S)) == ["StartCheckpoint 2"]


def test_subtasks_that_run_again_after_a_restart_are_asked_again() -> None:
    world = running()
    world.tell(SubtaskFinished(vertex(0)))
    world.tell(SubtaskFinished(vertex(1)))
    world.tell(JobIsInterrupted("committing failed"))
    world.tell(JobIsRunning(finished=frozenset({vertex(1)})))
    (start,) = world.wait(10 * S)
    assert isinstance(start, StartCheckpoint)
    assert start.finished == {vertex(1)}


# Stopping with a snapshot.


def test_after_a_stop_is_asked_for_nothing_is_triggered_any_more() -> None:
    world = running()
    (start,) = world.tell(SnapshotRequested("stop", STOP))
    assert isinstance(start, StartCheckpoint)
    assert start.options.stop
    assert world.wait(30 * S) == []
    assert names(complete(world, 1)) == ["CompleteCheckpoint 1", "AnswerRequest stop"]
    assert world.coordinator.is_stopped
    assert world.wait(30 * S) == []
    assert world.tell(SnapshotRequested("more", SAVEPOINT)) == [AnswerRequest("more", None, "the job has been stopped")]
    assert world.coordinator.latest is not None
    assert world.coordinator.latest.path == "chk-1"


def test_a_stop_waits_for_the_checkpoint_under_way() -> None:
    world = with_checkpoint()
    assert world.tell(SnapshotRequested("stop", STOP)) == []
    assert names(complete(world, 1)) == ["CompleteCheckpoint 1", "StartCheckpoint 2"]


def test_of_two_stops_the_second_is_refused() -> None:
    world = with_checkpoint()
    world.tell(SnapshotRequested("stop", STOP))
    assert world.tell(SnapshotRequested("again", STOP)) == [
        AnswerRequest("again", None, "the job is being stopped already")
    ]


def test_if_the_snapshot_of_a_stop_fails_the_job_goes_on() -> None:
    world = running(CheckpointSettings(10 * S))
    world.tell(SnapshotRequested("stop", CheckpointOptions(stop=True)))
    assert world.tell(SubtaskDeclined(1, vertex(0), "a", "disk full"))[1] == AnswerRequest(
        "stop", None, "v_0 declined: disk full"
    )
    assert names(world.wait(10 * S)) == ["StartCheckpoint 2"]
    complete(world, 2)
    assert names(world.tell(SnapshotRequested("again", STOP))) == ["StartCheckpoint 3"]


def test_a_stop_ends_other_checkpoints_but_no_savepoint_and_is_not_ended_by_them() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, max_concurrent=4))
    world.tell(SnapshotRequested("mine", SAVEPOINT))
    world.tell(SnapshotRequested("stop", STOP))
    assert names(complete(world, 3)) == ["CompleteCheckpoint 3", "AnswerRequest stop", "AbortCheckpoint 1"]
    assert names(complete(world, 2)) == ["CompleteCheckpoint 2", "AnswerRequest mine"]


def test_subtasks_that_end_because_they_were_stopped_have_not_finished_their_input() -> None:
    world = running(CheckpointSettings(10 * S, max_concurrent=4))
    world.tell(SnapshotRequested("mine", SAVEPOINT))
    world.tell(CheckpointStarted(1))
    world.tell(SnapshotRequested("stop", STOP))
    complete(world, 2)
    assert world.coordinator.handle(SubtaskFinished(vertex(0)), world.now) == []
    assert world.coordinator.handle(SubtaskFinished(vertex(1)), world.now) == [], "no false savepoint of empty state"
    assert names(world.tell(JobIsInterrupted("the job is over"))) == ["AbortCheckpoint 1", "AnswerRequest mine"]
