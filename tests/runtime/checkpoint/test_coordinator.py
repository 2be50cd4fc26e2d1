"""What the coordinator does about each thing that may happen, one story at a time."""

from __future__ import annotations

import pytest
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
    snapshot_of,
    vertex,
    with_checkpoint,
)

from flowrun.core.elements import Alignment, CheckpointOptions
from flowrun.core.recovery import CheckpointSettings
from flowrun.runtime.checkpoint.coordinator import aligned_options
from flowrun.runtime.checkpoint.events import (
    AbortCheckpoint,
    AnswerRequest,
    CheckpointCommand,
    CheckpointStarted,
    CheckpointStored,
    CompleteCheckpoint,
    DiscardSnapshot,
    FailJob,
    JobIsInterrupted,
    JobIsRunning,
    SnapshotRequested,
    StartCheckpoint,
    StartFailed,
    StoreCheckpoint,
    StoreFailed,
    SubtaskDeclined,
    SubtaskFinished,
    TimePassed,
    WakeAt,
)
from flowrun.state.checkpoints import SnapshotFigures, SubtaskSnapshot

# A checkpoint that goes well.


def test_a_checkpoint_is_started_collected_stored_and_completed() -> None:
    world = with_checkpoint()
    assert world.tell(acknowledged(1, 1)) == []
    assert world.tell(acknowledged(1, 0)) == [
        StoreCheckpoint(1, {vertex(0): snapshot_of(0, "a", 1), vertex(1): snapshot_of(1, "a", 1)}, finished=frozenset())
    ]
    assert world.tell(CheckpointStored(1, "chk-1")) == [CompleteCheckpoint(1, CheckpointOptions(), retained=(1,))]
    latest = world.coordinator.latest
    assert latest is not None
    assert (latest.checkpoint_id, latest.path) == (1, "chk-1")


def test_numbers_go_on_from_the_first_given() -> None:
    world = running(first_id=41)
    assert names(world.wait(10 * S)) == ["StartCheckpoint 41"]
    complete(world, 41)
    assert names(world.wait(10 * S)) == ["StartCheckpoint 42"]


def test_acknowledgements_count_even_before_the_start_is_reported() -> None:
    world = running()
    world.wait(10 * S)
    assert world.tell(acknowledged(1, 0)) == []
    assert world.tell(acknowledged(1, 1)) == []
    assert names(world.tell(CheckpointStarted(1))) == ["StoreCheckpoint 1"]


def test_out_of_order_acknowledgements_of_two_checkpoints() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, max_concurrent=2))
    assert names(world.wait(10 * S)) == ["StartCheckpoint 2"]
    world.tell(CheckpointStarted(2))
    world.tell(acknowledged(2, 0))
    world.tell(acknowledged(1, 1))
    assert names(world.tell(acknowledged(1, 0))) == ["StoreCheckpoint 1"]
    assert names(world.tell(acknowledged(2, 1))) == ["StoreCheckpoint 2"]
    assert names(world.tell(CheckpointStored(1, "chk-1"))) == ["CompleteCheckpoint 1"]
    assert names(world.tell(CheckpointStored(2, "chk-2"))) == ["CompleteCheckpoint 2"]


def test_a_duplicate_acknowledgement_changes_nothing_and_discards_nothing() -> None:
    world = with_checkpoint()
    world.tell(acknowledged(1, 0))
    assert world.tell(acknowledged(1, 0)) == []
    world.tell(acknowledged(1, 1))
    assert world.tell(acknowledged(1, 1)) == [], "it is being stored"
    world.tell(CheckpointStored(1, "chk-1"))
    assert world.tell(acknowledged(1, 1)) == [], "its files are those that the checkpoint names"


def test_a_late_acknowledgement_is_discarded() -> None:
    world = with_checkpoint()
    world.tell(SubtaskDeclined(1, vertex(1), "a", "busy"))
    late = acknowledged(1, 0)
    assert world.tell(late) == [DiscardSnapshot(1, late.snapshot)]


def test_an_acknowledgement_of_a_checkpoint_that_never_was_is_ignored() -> None:
    world = with_checkpoint()
    assert world.tell(acknowledged(7, 0)) == []


def test_an_acknowledgement_of_a_foreign_attempt_is_discarded() -> None:
    world = World(EVERY_10_S, 2)
    world.tell(JobIsRunning(attempts={vertex(0): "new", vertex(1): "a"}))
    world.wait(10 * S)
    world.tell(CheckpointStarted(1))
    old = acknowledged(1, 0, attempt="old")
    assert world.tell(old) == [DiscardSnapshot(1, old.snapshot)]
    world.tell(acknowledged(1, 1))
    assert world.tell(SubtaskDeclined(1, vertex(0), "old", "cancelled")) == [], "nobody cares"
    assert names(world.tell(acknowledged(1, 0, attempt="new"))) == ["StoreCheckpoint 1"]
    assert world.tell(old) == [DiscardSnapshot(1, old.snapshot)]
    stranger = acknowledged(1, 9)
    assert world.tell(stranger) == [DiscardSnapshot(1, stranger.snapshot)]


# Subtasks that come to their end.


def test_a_source_that_ends_during_a_checkpoint_needs_not_acknowledge() -> None:
    world = with_checkpoint()
    assert world.tell(SubtaskFinished(vertex(0))) == []
    assert world.tell(acknowledged(1, 1)) == [
        StoreCheckpoint(1, {vertex(1): snapshot_of(1, "a", 1)}, finished=frozenset({vertex(0)}))
    ]


def test_the_last_one_to_end_completes_the_set() -> None:
    world = with_checkpoint()
    world.tell(acknowledged(1, 1))
    assert names(world.tell(SubtaskFinished(vertex(0)))) == ["StoreCheckpoint 1"]


def test_a_subtask_that_ends_before_the_start_is_reported_counts() -> None:
    world = running()
    world.wait(10 * S)
    world.tell(SubtaskFinished(vertex(0)))
    world.tell(acknowledged(1, 1))
    assert names(world.tell(CheckpointStarted(1))) == ["StoreCheckpoint 1"]


def test_a_subtask_that_acknowledged_and_then_ended_keeps_its_snapshot() -> None:
    world = with_checkpoint()
    world.tell(acknowledged(1, 0))
    world.tell(SubtaskFinished(vertex(0)))
    (store,) = world.tell(acknowledged(1, 1))
    assert isinstance(store, StoreCheckpoint)
    assert store.snapshots.keys() == {vertex(0), vertex(1)}
    assert not store.finished


def test_a_snapshot_that_comes_after_its_subtask_ended_still_counts() -> None:
    world = with_checkpoint()
    world.tell(SubtaskFinished(vertex(0)))
    world.tell(acknowledged(1, 0))
    (store,) = world.tell(acknowledged(1, 1))
    assert isinstance(store, StoreCheckpoint)
    assert store.snapshots.keys() == {vertex(0), vertex(1)}
    assert not store.finished


def test_a_snapshot_that_comes_too_late_to_count_ends_the_checkpoint_that_would_be_wrong_without_it() -> None:
    world = with_checkpoint()
    world.tell(acknowledged(1, 1))
    assert names(world.tell(SubtaskFinished(vertex(0)))) == ["StoreCheckpoint 1"]
    late = acknowledged(1, 0)
    assert world.tell(late) == [
        DiscardSnapshot(1, late.snapshot),
        AbortCheckpoint(1, "v_0 acknowledged only after it had finished", (snapshot_of(1, "a", 1),)),
    ]


@pytest.mark.parametrize("told", ["before it runs", "with the news that it runs"])
def test_tasks_finished_before_the_checkpoint_are_not_asked(told: str) -> None:
    world = World(EVERY_10_S, 2)
    if told == "before it runs":
        world.tell(SubtaskFinished(vertex(0)))
        world.tell(JobIsRunning())
    else:
        world.tell(JobIsRunning(finished=frozenset({vertex(0)})))
    (start,) = world.wait(10 * S)
    assert isinstance(start, StartCheckpoint)
    assert start.finished == {vertex(0)}
    world.tell(CheckpointStarted(1))
    assert names(world.tell(acknowledged(1, 1))) == ["StoreCheckpoint 1"]


@pytest.mark.parametrize("settings", [EVERY_10_S, None])
def test_when_all_have_finished_a_last_checkpoint_asks_nobody(settings: CheckpointSettings | None) -> None:
    world = running(settings)
    world.tell(SubtaskFinished(vertex(0)))
    world.tell(SubtaskFinished(vertex(1)))
    assert world.wait(60 * S) == [], "no periodic one: nothing changes any more"
    (start,) = world.tell(SnapshotRequested("last", CheckpointOptions()))
    assert isinstance(start, StartCheckpoint)
    assert start.finished == {vertex(0), vertex(1)}
    assert world.tell(CheckpointStarted(1)) == [StoreCheckpoint(1, {}, frozenset({vertex(0), vertex(1)}))]
    assert world.tell(CheckpointStored(1, "chk-1")) == [
        CompleteCheckpoint(1, start.options, retained=(1,)),
        AnswerRequest("last", "chk-1"),
    ]


# When checkpoints are triggered.


def test_the_first_is_triggered_an_interval_after_the_job_runs() -> None:
    world = World(EVERY_10_S)
    now = world.now
    assert world.coordinator.handle(TimePassed(), now + 50 * S) == []
    assert world.coordinator.handle(JobIsRunning(), now + 50 * S) == [WakeAt(now + 60 * S)]
    assert world.coordinator.handle(TimePassed(), now + 60 * S - 1) == [WakeAt(now + 60 * S)], "too early"
    assert names(world.coordinator.handle(TimePassed(), now + 60 * S)) == ["StartCheckpoint 1", "WakeAt"]


def test_a_wish_is_made_once() -> None:
    world = World(EVERY_10_S)
    assert world.coordinator.handle(JobIsRunning(), world.now) == [WakeAt(world.now + 10 * S)]
    assert world.coordinator.handle(SubtaskFinished(vertex(0)), world.now + 1) == []
    assert world.coordinator.handle(TimePassed(), world.now + 2) == [WakeAt(world.now + 10 * S)], "that used it up"


def test_a_slow_checkpoint_delays_the_next_and_the_missed_ones_are_not_made_up_for() -> None:
    world = with_checkpoint()
    assert world.wait(35 * S) == []
    assert names(complete(world, 1)) == ["CompleteCheckpoint 1", "StartCheckpoint 2"]
    assert names(complete(world, 2)) == ["CompleteCheckpoint 2"]
    assert world.wait(9 * S) == []
    assert names(world.wait(1 * S)) == ["StartCheckpoint 3"]


@pytest.mark.parametrize("well", [True, False])
def test_there_is_a_pause_after_each_checkpoint(well: bool) -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, min_pause_ms=4 * S, max_concurrent=3, tolerable_failures=9))
    assert world.wait(9 * S) == []
    if well:
        complete(world, 1)
    else:
        world.tell(SubtaskDeclined(1, vertex(0), "a", "busy"))
    assert world.wait(4 * S - 1) == []
    assert names(world.wait(1)) == ["StartCheckpoint 2"]


def test_with_a_pause_between_checkpoints_there_is_one_at_a_time() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, min_pause_ms=4 * S, max_concurrent=3))
    assert world.wait(30 * S) == [], "the pause begins when the first one ends"
    assert names(complete(world, 1)) == ["CompleteCheckpoint 1"]
    assert names(world.wait(4 * S)) == ["StartCheckpoint 2"]


def test_several_may_be_under_way_but_no_more_than_allowed() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, max_concurrent=2))
    assert names(world.wait(10 * S)) == ["StartCheckpoint 2"]
    assert world.wait(10 * S) == []
    assert names(complete(world, 1)) == ["CompleteCheckpoint 1", "StartCheckpoint 3"]


def test_unaligned_checkpoints_come_one_at_a_time() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, max_concurrent=2, unaligned=True))
    assert world.wait(10 * S) == []


def test_a_clock_that_goes_back_delays_by_no_more_than_an_interval() -> None:
    world = running()
    assert world.tell(TimePassed(), later=-3_600 * S) == []
    assert world.wake == world.now + 10 * S
    assert names(world.wait(10 * S)) == ["StartCheckpoint 1"]


def test_a_clock_that_leaps_ahead_triggers_one_checkpoint_and_gives_none_up() -> None:
    world = running()
    assert names(world.tell(TimePassed(), later=3_600 * S)) == ["StartCheckpoint 1"]
    assert world.tell(TimePassed()) == []
    assert names(complete(world, 1)) == ["CompleteCheckpoint 1"]
    assert names(world.wait(10 * S)) == ["StartCheckpoint 2"]
    assert world.tell(CheckpointStarted(2), later=3_600 * S) == [], "the process slept: nobody was slow"


# Checkpoints that fail.


def test_a_checkpoint_that_takes_too_long_is_given_up_and_says_who_is_missing() -> None:
    world = with_checkpoint()
    world.tell(acknowledged(1, 0))
    assert world.wait(59 * S) == []
    abort, start = world.wait(1 * S)
    assert abort == AbortCheckpoint(
        1, "it was not complete after 60000 ms: no acknowledgement from v_1", (snapshot_of(0, "a", 1),)
    )
    assert names([start]) == ["StartCheckpoint 2"]


@pytest.mark.parametrize("phase", ["started", "stored"])
def test_time_limits_hold_in_every_phase(phase: str) -> None:
    world = running()
    world.wait(10 * S)
    if phase == "stored":
        world.tell(CheckpointStarted(1))
        world.tell(acknowledged(1, 0))
        world.tell(acknowledged(1, 1))
    world.wait(59 * S)
    (abort, _start) = world.wait(1 * S)
    assert isinstance(abort, AbortCheckpoint)
    assert f"still being {phase}" in abort.reason
    assert world.tell(CheckpointStored(1, "chk-1")) == [], "too late: it is discarded already"


def test_a_decline_aborts_and_names_the_subtask_and_its_reason() -> None:
    world = with_checkpoint()
    world.tell(acknowledged(1, 1))
    assert world.tell(SubtaskDeclined(1, vertex(0), "a", "No space left on device")) == [
        AbortCheckpoint(1, "v_0 declined: No space left on device", (snapshot_of(1, "a", 1),))
    ]
    assert world.coordinator.status().last_failure == "v_0 declined: No space left on device"


def test_an_abort_comes_for_everybody_even_before_any_barrier_arrived() -> None:
    world = running()
    world.wait(10 * S)
    assert world.tell(StartFailed(1, "the folder may not be written")) == [
        AbortCheckpoint(1, "the folder may not be written", ())
    ]
    assert world.tell(CheckpointStarted(1)) == []


def test_a_checkpoint_that_cannot_be_stored_does_not_exist() -> None:
    world = with_checkpoint()
    world.tell(acknowledged(1, 0))
    world.tell(acknowledged(1, 1))
    assert names(world.tell(StoreFailed(1, "disk full"))) == ["AbortCheckpoint 1"]
    assert world.coordinator.latest is None
    assert world.coordinator.retained == ()


def fail_next(world: World, number: int) -> list[CheckpointCommand]:
    world.wait(10 * S)
    return world.tell(StartFailed(number, f"no folder {number}"))


def test_more_failures_in_a_row_than_tolerated_fail_the_job() -> None:
    world = running()
    assert names(fail_next(world, 1)) == ["AbortCheckpoint 1"]
    assert names(fail_next(world, 2)) == ["AbortCheckpoint 2"]
    _, failed = fail_next(world, 3)
    assert failed == FailJob("3 checkpoints in a row failed (2 tolerated), the last one because: no folder 3")
    assert world.wait(60 * S) == [], "nothing more until the job runs again"
    world.tell(JobIsInterrupted("restart"))
    world.tell(JobIsRunning())
    assert names(fail_next(world, 4)) == ["AbortCheckpoint 4"], "and it starts counting anew"


def test_a_completed_checkpoint_resets_the_count() -> None:
    world = running()
    fail_next(world, 1)
    fail_next(world, 2)
    world.wait(10 * S)
    complete(world, 3)
    assert names(fail_next(world, 4)) == ["AbortCheckpoint 4"]


def test_a_savepoint_says_nothing_about_failures_of_checkpoints() -> None:
    world = running()
    fail_next(world, 1)
    fail_next(world, 2)
    world.tell(SnapshotRequested("me", SAVEPOINT))
    complete(world, 3)
    _, failed = fail_next(world, 4)
    assert isinstance(failed, FailJob), "the third failure in a row, as if there were no savepoint in between"


def test_without_tolerance_the_first_failure_fails_the_job() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S))
    _, failed = world.tell(SubtaskDeclined(1, vertex(0), "a", "busy"))
    assert failed == FailJob("a checkpoint failed (0 tolerated), the last one because: v_0 declined: busy")


def test_what_a_newer_checkpoint_or_a_restart_ends_does_not_count() -> None:
    world = with_checkpoint(CheckpointSettings(10 * S, max_concurrent=2))
    world.wait(10 * S)
    assert names(complete(world, 2)) == ["CompleteCheckpoint 2", "AbortCheckpoint 1"]
    world.wait(10 * S)
    assert names(world.tell(JobIsInterrupted("a task failed"))) == ["AbortCheckpoint 3"]
    assert world.coordinator.status().failed == 0


# What is kept, and what is shown.


def test_the_newest_are_retained_inherited_ones_included() -> None:
    world = World(CheckpointSettings(10 * S, retain=3), first_id=9, retained=(5, 8))
    assert world.coordinator.retained == (5, 8)
    world.tell(JobIsRunning())
    kept = []
    for number in (9, 10, 11, 12):
        world.wait(10 * S)
        completed = complete(world, number)[0]
        assert isinstance(completed, CompleteCheckpoint)
        kept.append(completed.retained)
    assert kept == [(5, 8, 9), (8, 9, 10), (9, 10, 11), (10, 11, 12)]


def test_the_status_counts_and_sums_up() -> None:
    world = with_checkpoint()
    assert world.coordinator.status().in_progress == 1
    for index, figures in enumerate(
        [
            SnapshotFigures(alignment_ms=3, synchronous_ms=1, written_bytes=10, state_bytes=100),
            SnapshotFigures(alignment_ms=1, synchronous_ms=2, written_bytes=5, state_bytes=200),
        ]
    ):
        event = acknowledged(1, index)
        world.coordinator.handle(type(event)(1, event.vertex, "a", SubtaskSnapshot(figures=figures)), world.now + 200)
    world.coordinator.handle(CheckpointStored(1, "chk-1"), world.now + 250)
    status = world.coordinator.status()
    assert (status.completed, status.failed, status.in_progress) == (1, 0, 0)
    last = status.last
    assert last is not None
    assert status.history == (last,)
    assert (last.path, last.triggered_ms, last.duration_ms) == ("chk-1", world.now, 250)
    assert (last.written_bytes, last.state_bytes, last.max_synchronous_ms, last.max_alignment_ms) == (15, 300, 2, 3)


def test_the_status_shows_the_last_ten() -> None:
    world = running()
    for number in range(1, 13):
        world.wait(10 * S)
        complete(world, number)
    assert [f.checkpoint_id for f in world.coordinator.status().history] == list(range(3, 13))


# How barriers meet.


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (CheckpointSettings(1), (Alignment.ALIGNED, None)),
        (CheckpointSettings(1, mode="at_least_once"), (Alignment.AT_LEAST_ONCE, None)),
        (CheckpointSettings(1, unaligned=True), (Alignment.UNALIGNED, None)),
        (CheckpointSettings(1, unaligned=True, alignment_timeout_ms=5), (Alignment.ALIGNED, 5)),
        (CheckpointSettings(1, alignment_timeout_ms=5), (Alignment.ALIGNED, None)),
        (None, (Alignment.ALIGNED, None)),
    ],
)
def test_checkpoints_align_as_the_settings_say_but_savepoints_and_stops_always(
    settings: CheckpointSettings | None, expected: tuple[Alignment, int | None]
) -> None:
    found = aligned_options(CheckpointOptions(), settings)
    assert (found.alignment, found.alignment_timeout_ms) == expected
    for options in (SAVEPOINT, STOP, CheckpointOptions(stop=True, drain=True)):
        assert aligned_options(options, settings) == options
