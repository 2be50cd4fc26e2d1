"""Small worlds explored to the end: every order of events that two subtasks and a few checkpoints can bring about."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import replace

import pytest
from coordinator_witness import SAVEPOINT, STOP, World, acknowledged, vertex

from flowrun.core.elements import CheckpointOptions
from flowrun.core.recovery import CheckpointSettings
from flowrun.runtime.checkpoint.events import (
    CheckpointEvent,
    CheckpointStarted,
    CheckpointStored,
    JobIsInterrupted,
    JobIsRunning,
    SnapshotRequested,
    StartFailed,
    StoreFailed,
    SubtaskDeclined,
    SubtaskFinished,
    TimePassed,
)
from tests.slices import everyday

INTERVAL = 1_000
Step = tuple[CheckpointEvent, int]


def clone(world: World) -> World:
    """An independent copy: much faster than a deep copy, which tens of thousands of steps would not bear."""
    copied = copy.copy(world)
    c = copied.coordinator = copy.copy(world.coordinator)
    c._pacing = copy.copy(c._pacing)
    c._history = copy.copy(c._history)
    c._history._accepted = dict(c._history._accepted)
    c._history._figures = copy.copy(c._history._figures)
    c._finished = set(c._finished)
    c._queue = deque(c._queue)
    c._pending = {
        n: replace(
            p,
            missing=set(p.missing),
            finished=set(p.finished),
            snapshots=dict(p.snapshots),
            attempts=dict(p.attempts),
        )
        for n, p in c._pending.items()
    }
    copied.witness = world.witness.clone()
    return copied


def key(world: World) -> Hashable:
    """What two worlds have in common in which the same will happen."""
    c, pacing = world.coordinator, world.coordinator._pacing
    due = None if pacing._due is None else max(0, pacing._due - pacing.elapsed_ms)
    return (
        c._next_id,
        c._not_running is None,
        c._stop_id,
        c._stopped,
        c._failures,
        frozenset(c._finished),
        tuple(r.request_id for r in c._queue),
        tuple(
            (n, p.phase, frozenset(p.finished), frozenset(p.snapshots), p.request_id, p.deadline - pacing.elapsed_ms)
            for n, p in c._pending.items()
        ),
        c.retained,
        due,
        max(0, pacing._pause_end - pacing.elapsed_ms),
        None if pacing._wake_ms is None else pacing._wake_ms - world.now,
        tuple(world.witness.asked),
        world.witness.answered,
        tuple(world.witness.ended.items()),
    )


def steps(world: World, subtasks: int, requests: dict[str, CheckpointOptions]) -> Iterator[Step]:
    """Everything that may happen next, impossible and repeated messages included."""
    witness = world.witness
    if witness.running:
        yield JobIsInterrupted("a task failed"), 0
    else:
        yield JobIsRunning(), 0
    yield TimePassed(), 300_000 if world.witness.settings is None else INTERVAL
    yield TimePassed(), 0
    for request, options in requests.items():
        if request not in witness.asked and request not in witness.answered:
            yield SnapshotRequested(request, options), 0
    for index in range(subtasks):
        if vertex(index) not in witness.finished:
            yield SubtaskFinished(vertex(index)), 0
    for number in [*witness.under, *witness.ended]:
        yield CheckpointStarted(number), 0
        yield CheckpointStored(number, f"path/{number}"), 0
        yield StoreFailed(number, "disk full"), 0
        if number in witness.under and not witness.under[number].started:
            yield StartFailed(number, "no folder"), 0
        for index in range(subtasks):
            yield acknowledged(number, index), 0
        yield SubtaskDeclined(number, vertex(0), "a", "busy"), 0
    yield acknowledged(99, 0), 0


def settle(world: World) -> None:
    """From wherever it is, a well-behaved job brings everything under way to a good end."""
    for _ in range(10):
        if not world.coordinator.pending or not world.witness.running:
            break
        number = world.coordinator.pending[0]
        world.tell(CheckpointStarted(number))
        for v in sorted(world.witness.subtasks):
            if number in world.coordinator.pending:
                world.tell(acknowledged(number, v.subtask))
        world.tell(CheckpointStored(number, "path"))
        assert number in world.witness.ended
    assert not world.coordinator.pending
    assert not world.witness.asked, "everybody who asked has been answered"


def explore(
    settings: CheckpointSettings | None, requests: dict[str, CheckpointOptions], *, last_id: int, subtasks: int = 2
) -> int:
    """Walk through all worlds with checkpoints up to `last_id`; the number of different ones."""
    start = World(settings, subtasks, retained=(0,))
    seen = {key(start)}
    pending = [start]
    while pending:
        world = pending.pop()
        for event, later in steps(world, subtasks, requests):
            following = clone(world)
            following.tell(event, later=later)
            found = key(following)
            if found not in seen:
                seen.add(found)
                if following.witness.last_id <= last_id:
                    pending.append(following)
                settle(clone(following))
    return len(seen)


def test_all_orders_of_two_periodic_checkpoints_at_a_time() -> None:
    settings = CheckpointSettings(INTERVAL, max_concurrent=2, timeout_ms=2 * INTERVAL, retain=2, tolerable_failures=1)
    assert explore(settings, {}, last_id=2) > 600


@pytest.mark.exhaustive
def test_all_orders_of_a_checkpoint_and_a_savepoint() -> None:
    settings = CheckpointSettings(INTERVAL, timeout_ms=2 * INTERVAL, min_pause_ms=INTERVAL, tolerable_failures=5)
    assert explore(settings, {"save": SAVEPOINT}, last_id=2) > 500


@pytest.mark.exhaustive
def test_all_orders_of_a_checkpoint_and_a_stop() -> None:
    settings = CheckpointSettings(INTERVAL, timeout_ms=2 * INTERVAL, max_concurrent=2)
    assert explore(settings, {"stop": STOP}, last_id=2) > 500


@pytest.mark.parametrize("subtasks", everyday([1, 3], 2))
def test_all_orders_of_requests_without_periodic_checkpoints(subtasks: int) -> None:
    requests = {"now": CheckpointOptions(), "stop": STOP}
    assert explore(None, requests, last_id=1, subtasks=subtasks) > 20
