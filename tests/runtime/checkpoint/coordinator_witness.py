"""Watches a checkpoint coordinator from outside: what it is told and what it asks for must obey the rules, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from flowrun.core.elements import CheckpointKind, CheckpointOptions
from flowrun.core.recovery import CheckpointSettings
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.checkpoint.coordinator import CheckpointCoordinator
from flowrun.runtime.checkpoint.events import (
    AbortCheckpoint,
    AnswerRequest,
    CheckpointCommand,
    CheckpointEvent,
    CheckpointStarted,
    CheckpointStored,
    CompleteCheckpoint,
    DiscardSnapshot,
    FailJob,
    JobIsInterrupted,
    JobIsRunning,
    SnapshotRequested,
    StartCheckpoint,
    StoreCheckpoint,
    SubtaskAcknowledged,
    SubtaskFinished,
    TimePassed,
    WakeAt,
)
from flowrun.state.checkpoints import OperatorSubtaskState, SubtaskSnapshot

SAVEPOINT = CheckpointOptions(CheckpointKind.SAVEPOINT)
STOP = CheckpointOptions(CheckpointKind.SAVEPOINT, stop=True)


def vertex(index: int) -> ExecutionVertexId:
    """The subtask with this number."""
    return ExecutionVertexId("v", index)


def snapshot_of(index: int, attempt: str, checkpoint_id: int) -> SubtaskSnapshot:
    """A snapshot that is equal to no other."""
    return SubtaskSnapshot((OperatorSubtaskState(f"{index}/{attempt}/{checkpoint_id}"),))


def acknowledged(checkpoint_id: int, index: int, attempt: str = "a") -> SubtaskAcknowledged:
    """The acknowledgement of a subtask."""
    return SubtaskAcknowledged(checkpoint_id, vertex(index), attempt, snapshot_of(index, attempt, checkpoint_id))


@dataclass
class Under:
    """A checkpoint under way, as seen from outside."""

    options: CheckpointOptions
    started: bool = False
    storing: StoreCheckpoint | None = None
    told_stored: bool = False
    acknowledged: frozenset[ExecutionVertexId] = frozenset()


@dataclass
class Witness:
    """Takes note of events and commands; raises AssertionError at the first that breaks a rule."""

    settings: CheckpointSettings | None
    subtasks: frozenset[ExecutionVertexId]
    first_id: int
    inherited: tuple[int, ...] = ()
    running: bool = False
    stopped: bool = False
    last_id: int = 0
    under: dict[int, Under] = field(default_factory=dict)
    ended: dict[int, bool] = field(default_factory=dict)
    """Checkpoint → whether it was completed."""
    asked: dict[str, SnapshotRequested] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()
    finished: frozenset[ExecutionVertexId] = frozenset()
    retained: tuple[int, ...] = ()
    stores: dict[int, StoreCheckpoint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last_id = self.first_id - 1
        self.retained = self.inherited

    def clone(self) -> Witness:
        """An independent copy."""
        copied = replace(self)
        copied.last_id, copied.retained = self.last_id, self.retained
        copied.under = {n: replace(u) for n, u in self.under.items()}
        copied.ended, copied.asked, copied.stores = dict(self.ended), dict(self.asked), dict(self.stores)
        return copied

    @property
    def limit(self) -> int:
        """How many may be under way."""
        s = self.settings
        return 1 if s is None or s.unaligned or s.min_pause_ms else s.max_concurrent

    def see(self, event: CheckpointEvent, commands: Iterable[CheckpointCommand], now_ms: int) -> None:
        """Check what was done about an event."""
        self._before(event)
        for command in commands:
            self._command(command, event, now_ms)
            assert len(self.under) <= self.limit, "too many at a time"
        if isinstance(event, JobIsInterrupted):
            assert not self.under, "nothing outlives the run"
            assert not self.asked, "everybody is told"
        for number in self.under:
            newer = [n for n, completed in self.ended.items() if completed and n > number]
            options = self.under[number].options
            if options.kind is CheckpointKind.CHECKPOINT and not options.stop:
                assert not [n for n in newer if n in self.retained], f"{number} is superfluous since {newer}"

    def _before(self, event: CheckpointEvent) -> None:
        match event:
            case JobIsRunning(finished=finished):
                self.running = True
                self.finished |= finished
            case JobIsInterrupted():
                self.running = self.stopped = False
                self.finished = frozenset()
            case SubtaskFinished(vertex=v):
                self.finished |= {v}
            case SnapshotRequested():
                assert event.request_id not in self.asked
                assert event.request_id not in self.answered
                self.asked[event.request_id] = event
            case CheckpointStarted(checkpoint_id=n) if n in self.under:
                self.under[n].started = True
            case CheckpointStored(checkpoint_id=n) if n in self.under and self.under[n].storing:
                self.under[n].told_stored = True
            case SubtaskAcknowledged(checkpoint_id=n, vertex=v) if n in self.under:
                self.under[n].acknowledged |= {v}
            case _:
                pass

    def _command(self, command: CheckpointCommand, event: CheckpointEvent, now_ms: int) -> None:
        match command:
            case StartCheckpoint(checkpoint_id=n):
                assert n == self.last_id + 1, "numbers grow"
                assert self.running
                assert not self.stopped
                assert command.finished == self.finished
                assert command.trigger_ms == now_ms
                self.last_id = n
                self.under[n] = Under(command.options)
            case StoreCheckpoint(checkpoint_id=n):
                seen = self.under[n]
                assert seen.started
                assert seen.storing is None
                assert command.snapshots.keys() <= seen.acknowledged
                assert command.finished <= self.finished
                assert command.snapshots.keys() | command.finished == self.subtasks, "somebody is missing"
                assert not command.snapshots.keys() & command.finished
                seen.storing = self.stores[n] = command
            case CompleteCheckpoint(checkpoint_id=n):
                self._completed(command, self.under.pop(n))
            case AbortCheckpoint(checkpoint_id=n):
                del self.under[n]
                self.ended[n] = False
            case AnswerRequest(request_id=asker):
                assert (command.path is None) != (command.failure is None)
                del self.asked[asker]
                self.answered |= {asker}
            case DiscardSnapshot(checkpoint_id=n, snapshot=stray):
                assert isinstance(event, SubtaskAcknowledged)
                assert event.snapshot == stray
                assert n in self.under or n in self.ended
                if self.ended.get(n) or n in self.under:
                    named = self.stores[n].snapshots if n in self.stores else {}
                    assert stray not in named.values(), "that would delete what a checkpoint names"
            case FailJob():
                assert self.settings is not None
                self.running = False
                self.finished = frozenset()
            case WakeAt(time_ms=at):
                s = self.settings
                longest = max(s.interval_ms, s.timeout_ms, s.min_pause_ms) if s else 600_000
                assert now_ms <= at <= now_ms + longest, "checkpoints would stop for long"

    def _completed(self, command: CompleteCheckpoint, seen: Under) -> None:
        n = command.checkpoint_id
        assert seen.storing is not None
        assert seen.told_stored
        assert command.options == seen.options
        self.ended[n] = True
        retain = 1 if self.settings is None else self.settings.retain
        known = [*self.inherited, *(i for i, completed in self.ended.items() if completed)]
        assert set(command.retained) <= set(known)
        assert list(command.retained) == sorted(command.retained)
        assert len(command.retained) <= max(retain, len(self.inherited))
        if seen.options.kind is CheckpointKind.CHECKPOINT:
            assert command.retained[-1] == n, "the latest is kept"
        else:
            assert command.retained == self.retained, "savepoints change nothing"
        self.retained = command.retained
        self.stopped = self.stopped or seen.options.stop


class World:
    """A coordinator with its witness: tell it something, look at what it does. `now` is the clock, `wake` the last wish."""

    def __init__(
        self,
        settings: CheckpointSettings | None,
        subtasks: int = 2,
        *,
        first_id: int = 1,
        retained: tuple[int, ...] = (),
        now: int = 1_000_000,
    ) -> None:
        everybody = frozenset(vertex(i) for i in range(subtasks))
        self.now = now
        self.wake: int | None = None
        self.coordinator = CheckpointCoordinator(settings, everybody, first_id=first_id, retained=retained, now_ms=now)
        self.witness = Witness(settings, everybody, first_id, retained)

    def tell(self, event: CheckpointEvent, *, later: int = 0) -> list[CheckpointCommand]:
        """Send an event `later` ms from now; the wishes to be woken are left out of the answer."""
        self.now += later
        return self._send(event)

    def wait(self, ms: int) -> list[CheckpointCommand]:
        """Let time pass, waking the coordinator whenever it asked for it."""
        end, commands = self.now + ms, []
        while self.wake is not None and self.wake <= end:
            self.now = max(self.now, self.wake)
            commands += self._send(TimePassed())
        self.now = end
        return commands

    def _send(self, event: CheckpointEvent) -> list[CheckpointCommand]:
        if isinstance(event, TimePassed):
            self.wake = None
        commands = self.coordinator.handle(event, self.now)
        self.coordinator.check_invariants()
        self.witness.see(event, commands, self.now)
        for command in commands:
            if isinstance(command, WakeAt):
                self.wake = command.time_ms
        return [c for c in commands if not isinstance(c, WakeAt)]


S = 1_000
EVERY_10_S = CheckpointSettings(10 * S, tolerable_failures=2, timeout_ms=60 * S)


def running(settings: CheckpointSettings | None = EVERY_10_S, subtasks: int = 2, **more: int) -> World:
    world = World(settings, subtasks, **more)
    world.tell(JobIsRunning())
    return world


def with_checkpoint(settings: CheckpointSettings = EVERY_10_S, subtasks: int = 2) -> World:
    """A world in which checkpoint 1 is under way, its barriers sent."""
    world = running(settings, subtasks)
    assert names(world.wait(settings.interval_ms)) == ["StartCheckpoint 1"]
    assert world.tell(CheckpointStarted(1)) == []
    return world


def complete(world: World, number: int, subtasks: int = 2) -> list[CheckpointCommand]:
    world.tell(CheckpointStarted(number))
    for index in range(subtasks):
        world.tell(acknowledged(number, index))
    return world.tell(CheckpointStored(number, f"chk-{number}"))


def names(commands: list[CheckpointCommand]) -> list[str]:
    """Commands in short: their names and whom they are about."""
    return [f"{type(c).__name__} {getattr(c, 'checkpoint_id', getattr(c, 'request_id', ''))}".strip() for c in commands]
