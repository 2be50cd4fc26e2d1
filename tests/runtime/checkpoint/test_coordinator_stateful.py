"""Long random lives of a coordinator: jumping clocks, restarts, requests, and messages that come late, twice or from nowhere."""

from __future__ import annotations

from coordinator_witness import SAVEPOINT, STOP, World, acknowledged, vertex
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowrun.core.elements import CheckpointOptions
from flowrun.core.recovery import CheckpointSettings
from flowrun.runtime.checkpoint.events import (
    AnswerRequest,
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
from tests.examples import examples

SUBTASKS = 3
NUMBERS = st.integers(0, 4)
"""How many checkpoints back from the newest."""


class Life(RuleBasedStateMachine):
    """The witness checks every command; see there for the rules."""

    @initialize(
        concurrent=st.integers(1, 3),
        pause=st.sampled_from([0, 0, 300]),
        unaligned=st.booleans(),
        tolerable=st.integers(0, 3),
        retain=st.integers(1, 3),
        periodic=st.sampled_from([True, True, True, False]),
    )
    def begin(self, concurrent: int, pause: int, unaligned: bool, tolerable: int, retain: int, periodic: bool) -> None:
        self.world = World(
            CheckpointSettings(
                1_000,
                timeout_ms=3_000,
                max_concurrent=concurrent,
                min_pause_ms=pause,
                unaligned=unaligned,
                tolerable_failures=tolerable,
                retain=retain,
            )
            if periodic
            else None,
            SUBTASKS,
            first_id=5,
            retained=(2, 4),
        )
        self.requests = 0

    def number(self, back: int) -> int:
        return self.world.witness.last_id - back

    @precondition(lambda self: not self.world.witness.running)
    @rule(finished=st.sets(st.integers(0, SUBTASKS - 1)))
    def run(self, finished: set[int]) -> None:
        attempts = {vertex(i): "a" for i in range(SUBTASKS)}
        self.world.tell(JobIsRunning(frozenset(map(vertex, finished)), attempts))

    @rule()
    def restart(self) -> None:
        self.world.tell(JobIsInterrupted("a task failed"))

    @rule(ms=st.integers(0, 5_000))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(ms=st.sampled_from([-10_000_000, -500, 10_000_000]))
    def jump(self, ms: int) -> None:
        before = set(self.world.witness.under)
        self.world.tell(TimePassed(), later=ms)
        started = set(self.world.witness.under) - before
        assert len(started) <= 1, "no burst"

    @rule(options=st.sampled_from([SAVEPOINT, CheckpointOptions(), STOP, CheckpointOptions(stop=True, drain=True)]))
    def ask(self, options: CheckpointOptions) -> None:
        self.requests += 1
        running = self.world.witness.running
        commands = self.world.tell(SnapshotRequested(str(self.requests), options))
        answers = [c for c in commands if isinstance(c, AnswerRequest)]
        assert running or (len(answers) == 1 and answers[0].failure is not None)

    @rule(back=NUMBERS, index=st.integers(0, SUBTASKS), attempt=st.sampled_from(["a", "a", "a", "old"]))
    def acknowledge(self, back: int, index: int, attempt: str) -> None:
        self.world.tell(acknowledged(self.number(back), index, attempt))

    @rule(back=NUMBERS)
    def acknowledge_all(self, back: int) -> None:
        number = self.number(back)
        self.world.tell(CheckpointStarted(number))
        for index in range(SUBTASKS):
            self.world.tell(acknowledged(number, index))

    @rule(back=NUMBERS, index=st.integers(0, SUBTASKS))
    def decline(self, back: int, index: int) -> None:
        self.world.tell(SubtaskDeclined(self.number(back), vertex(index), "a", "busy"))

    @rule(index=st.integers(0, SUBTASKS - 1))
    def finish(self, index: int) -> None:
        if not self.world.witness.stopped:
            self.world.tell(SubtaskFinished(vertex(index)))

    @rule(back=NUMBERS)
    def started(self, back: int) -> None:
        self.world.tell(CheckpointStarted(self.number(back)))

    @rule(back=NUMBERS)
    def stored(self, back: int) -> None:
        self.world.tell(CheckpointStored(self.number(back), f"chk-{self.number(back)}"))

    @rule(back=NUMBERS, storing=st.booleans())
    def not_stored(self, back: int, storing: bool) -> None:
        number = self.number(back)
        self.world.tell(StoreFailed(number, "disk full") if storing else StartFailed(number, "no folder"))

    @invariant()
    def checkpoints_never_stop(self) -> None:
        """While the job runs with periodic checkpoints, somebody is to be woken, or there is nothing left to remember."""
        world = getattr(self, "world", None)
        if world is None or world.witness.settings is None or not world.coordinator.is_running:
            return
        idle = world.witness.stopped or world.witness.finished == world.witness.subtasks
        assert world.wake is not None or idle

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.tell(JobIsInterrupted("the end"))


Life.TestCase.settings = examples(100, stateful_step_count=60)
TestLife = Life.TestCase
