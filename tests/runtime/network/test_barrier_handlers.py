"""Barriers of one checkpoint meet at a task: aligned, tracked, overtaking, or aligned until a time has passed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.elements import Alignment, CheckpointBarrier, CheckpointKind, CheckpointOptions
from flowrun.runtime.network.barrier_alignment import BarrierAligner
from flowrun.runtime.network.barrier_handlers import MixedBarrierHandler
from flowrun.runtime.network.barrier_tracker import BarrierTracker
from flowrun.runtime.network.barriers import (
    MAX_REMEMBERED_ABORTS,
    BarrierAction,
    BarrierHandler,
    Block,
    GiveUp,
    Resume,
    StopRecording,
    TakeSnapshot,
    WakeAt,
    as_unaligned,
    barrier_to_send,
)

CLOCK = ManualClock(1_000)


def aligned(number: int, timeout_ms: int | None = None, trigger_ms: int = 1_000) -> CheckpointBarrier:
    return CheckpointBarrier(number, trigger_ms, CheckpointOptions(alignment_timeout_ms=timeout_ms))


def unaligned(number: int) -> CheckpointBarrier:
    return CheckpointBarrier(number, 1_000, CheckpointOptions(alignment=Alignment.UNALIGNED))


def tracked(number: int) -> CheckpointBarrier:
    return CheckpointBarrier(number, 1_000, CheckpointOptions(alignment=Alignment.AT_LEAST_ONCE))


def take(barrier: CheckpointBarrier, *recorded: int) -> TakeSnapshot:
    return TakeSnapshot(barrier, frozenset(recorded), CLOCK.monotonic_ns())


def told(actions: Sequence[BarrierAction]) -> list[BarrierAction]:
    return list(actions)


# ---- aligned


def test_channels_that_are_ahead_wait_for_the_others() -> None:
    handler = BarrierAligner(3, CLOCK)
    assert told(handler.barrier(1, aligned(1))) == [Block(1)]
    assert told(handler.barrier(0, aligned(1))) == [Block(0)]
    assert told(handler.barrier(2, aligned(1))) == [Resume(0), Resume(1), take(aligned(1))]
    assert told(handler.barrier(0, aligned(2))) == [Block(0)], "the next one starts afresh"


def test_one_channel_acts_at_once() -> None:
    for barrier in (aligned(1), aligned(2, timeout_ms=0), unaligned(3)):
        assert told(BarrierAligner(1, CLOCK).barrier(0, barrier)) == [take(barrier)]


def test_the_end_of_a_channel_counts_as_its_barrier() -> None:
    handler = BarrierAligner(3, CLOCK)
    assert told(handler.end_of_input(2)) == []
    assert told(handler.barrier(0, aligned(1))) == [Block(0)]
    assert told(handler.end_of_input(1)) == [Resume(0), take(aligned(1))]
    assert told(handler.barrier(0, aligned(2))) == [take(aligned(2))], "only one channel is left"
    assert told(handler.end_of_input(0)) == []


def test_a_newer_checkpoint_subsumes_the_pending_one() -> None:
    handler = BarrierAligner(3, CLOCK)
    handler.barrier(0, aligned(1))
    assert told(handler.barrier(1, aligned(2))) == [Resume(0), GiveUp(1, "subsumed by checkpoint 2"), Block(1)]
    assert told(handler.barrier(2, aligned(1))) == [], "late: its channel is not blocked"
    assert told(handler.barrier(0, aligned(2))) == [Block(0)]
    assert told(handler.barrier(2, aligned(2))) == [Resume(0), Resume(1), take(aligned(2))]


def test_barriers_of_what_is_over_are_dropped() -> None:
    handler = BarrierAligner(2, CLOCK)
    handler.barrier(0, aligned(5))
    handler.barrier(1, aligned(5))
    for number in (4, 5):
        assert told(handler.barrier(0, aligned(number))) == []


def test_an_abort_unblocks_and_is_remembered() -> None:
    handler = BarrierAligner(2, CLOCK)
    handler.barrier(0, aligned(1))
    assert told(handler.abort(1)) == [Resume(0), GiveUp(1, None)]
    assert told(handler.barrier(1, aligned(1))) == []
    assert told(handler.abort(3)) == [], "before its barrier"
    assert told(handler.barrier(0, aligned(3))) == []
    assert told(handler.barrier(1, aligned(3))) == []
    assert told(handler.barrier(0, aligned(2))) == [Block(0)], "an older one that is not aborted still counts"
    assert told(handler.barrier(1, aligned(2))) == [Resume(0), take(aligned(2))]
    assert told(handler.abort(2)) == [], "late"


def test_aborts_are_not_remembered_without_end() -> None:
    handler = BarrierAligner(1, CLOCK)
    for number in range(1, MAX_REMEMBERED_ABORTS + 2):
        handler.abort(number)
    assert told(handler.barrier(0, aligned(1))) == [take(aligned(1))], "the oldest was forgotten"
    assert told(handler.barrier(0, aligned(2))) == []


# ---- unaligned


def test_the_first_overtaking_barrier_triggers_and_the_others_end_the_recording() -> None:
    handler = BarrierAligner(3, CLOCK)
    assert told(handler.barrier(1, unaligned(1))) == [take(unaligned(1), 0, 2)]
    assert told(handler.barrier(0, unaligned(1))) == [StopRecording(1, 0)]
    assert told(handler.barrier(0, unaligned(1))) == [], "once"
    assert told(handler.end_of_input(2)) == [StopRecording(1, 2)]


def test_an_abort_ends_the_recording() -> None:
    handler = BarrierAligner(2, CLOCK)
    handler.barrier(0, unaligned(1))
    assert told(handler.abort(1)) == [GiveUp(1, None)]
    assert told(handler.barrier(1, unaligned(1))) == []


def test_a_newer_one_gives_up_what_is_still_recorded() -> None:
    handler = BarrierAligner(2, CLOCK)
    handler.barrier(0, unaligned(1))
    assert told(handler.barrier(0, unaligned(2))) == [GiveUp(1, "subsumed by checkpoint 2"), take(unaligned(2), 1)]
    assert told(handler.barrier(1, unaligned(1))) == []
    assert told(handler.barrier(1, unaligned(2))) == [StopRecording(2, 1)]


# ---- aligned, then unaligned


def test_an_alignment_that_takes_too_long_goes_on_unaligned() -> None:
    barrier = aligned(1, timeout_ms=50)
    handler = BarrierAligner(3, CLOCK)
    assert told(handler.barrier(0, barrier)) == [WakeAt(1, 1_050), Block(0)]
    assert told(handler.barrier(1, barrier)) == [Block(1)], "one wake-up is enough"
    assert told(handler.timed_out(1)) == [Resume(0), Resume(1), take(as_unaligned(barrier), 2)]
    assert told(handler.timed_out(1)) == []
    assert told(handler.barrier(2, barrier)) == [StopRecording(1, 2)], "an aligned barrier ends the recording, too"


def test_a_time_out_after_the_alignment_does_nothing() -> None:
    handler = BarrierAligner(2, CLOCK)
    handler.barrier(0, aligned(1, timeout_ms=50))
    handler.barrier(1, aligned(1, timeout_ms=50))
    assert told(handler.timed_out(1)) == []


def test_a_barrier_that_comes_after_its_time_overtakes_at_once() -> None:
    barrier = aligned(1, timeout_ms=50, trigger_ms=900)
    assert told(BarrierAligner(2, CLOCK).barrier(0, barrier)) == [take(as_unaligned(barrier), 1)]


def test_a_barrier_that_began_to_overtake_upstream_ends_the_alignment() -> None:
    barrier = aligned(1, timeout_ms=50)
    handler = BarrierAligner(3, CLOCK)
    handler.barrier(0, barrier)
    assert told(handler.barrier(2, as_unaligned(barrier))) == [Resume(0), take(as_unaligned(barrier), 1)]


def test_the_last_barrier_needs_no_recording_even_if_it_overtook() -> None:
    barrier = aligned(1, timeout_ms=50)
    handler = BarrierAligner(2, CLOCK)
    handler.barrier(0, barrier)
    assert told(handler.barrier(1, as_unaligned(barrier))) == [Resume(0), take(as_unaligned(barrier))]


@pytest.mark.parametrize(
    "options",
    [
        CheckpointOptions(CheckpointKind.SAVEPOINT, Alignment.UNALIGNED),
        CheckpointOptions(CheckpointKind.SAVEPOINT, alignment_timeout_ms=0),
        CheckpointOptions(alignment=Alignment.UNALIGNED, stop=True),
        CheckpointOptions(alignment_timeout_ms=0, stop=True),
    ],
)
def test_savepoints_and_stopping_never_overtake(options: CheckpointOptions) -> None:
    barrier = barrier_to_send(CheckpointBarrier(1, 0, options), CLOCK)
    handler = BarrierAligner(2, CLOCK)
    assert told(handler.barrier(0, barrier)) == [Block(0)]
    assert barrier.options.alignment is Alignment.ALIGNED


def test_a_barrier_is_sent_on_overtaking_once_its_time_is_up() -> None:
    early, late = aligned(1, timeout_ms=50, trigger_ms=951), aligned(1, timeout_ms=50, trigger_ms=950)
    assert barrier_to_send(early, CLOCK) == early
    assert barrier_to_send(late, CLOCK) == as_unaligned(late)


# ---- at least once


def test_the_tracker_acts_once_all_open_channels_have_the_barrier() -> None:
    tracker = BarrierTracker(3, CLOCK)
    assert told(tracker.barrier(0, tracked(1))) == []
    assert told(tracker.barrier(1, tracked(1))) == []
    assert told(tracker.end_of_input(2)) == [take(tracked(1))]
    assert told(tracker.barrier(0, tracked(1))) == [], "late: forgotten"


def test_the_tracker_has_several_checkpoints_under_way() -> None:
    tracker = BarrierTracker(2, CLOCK)
    for number in (2, 3, 4):
        assert told(tracker.barrier(0, tracked(number))) == []
    assert told(tracker.barrier(1, tracked(2))) == [take(tracked(2))]
    assert told(tracker.barrier(1, tracked(4))) == [GiveUp(3, "subsumed by checkpoint 4"), take(tracked(4))]
    assert told(tracker.barrier(1, tracked(3))) == []


def test_the_tracker_remembers_aborts() -> None:
    tracker = BarrierTracker(2, CLOCK)
    tracker.barrier(0, tracked(1))
    assert told(tracker.abort(1)) == [GiveUp(1, None)]
    assert told(tracker.barrier(1, tracked(1))) == []
    assert told(tracker.abort(2)) == []
    assert told(tracker.barrier(0, tracked(2))) == told(tracker.barrier(1, tracked(2))) == []
    assert told(tracker.timed_out(1)) == []


def test_savepoints_are_aligned_where_checkpoints_are_tracked() -> None:
    handler = MixedBarrierHandler(2, CLOCK)
    assert told(handler.barrier(0, tracked(1))) == []
    assert told(handler.barrier(0, aligned(2))) == [Block(0)]
    assert told(handler.barrier(1, tracked(1))) == [take(tracked(1))]
    assert told(handler.barrier(1, aligned(2))) == [Resume(0), take(aligned(2))]
    assert told(handler.barrier(0, tracked(3))) == []
    assert told(handler.end_of_input(1)) == [take(tracked(3))]
    assert told(handler.abort(4)) == told(handler.timed_out(4)) == []


# ---- random scripts against a row-at-a-time oracle


@dataclass
class Cut:
    """What one snapshot consists of: rows processed before it, rows recorded after it, and channels still recorded."""

    barrier: CheckpointBarrier
    processed: list[tuple[int, int]]
    recorded: list[tuple[int, int]] = field(default_factory=list)
    open: set[int] = field(default_factory=set)


class Reader:
    """Reads scripts of channels in a random order, doing what the handler says, and keeps every cut."""

    def __init__(self, scripts: list[list[int | CheckpointBarrier]], handler: BarrierHandler) -> None:
        self.scripts = scripts
        self.handler = handler
        self.position = [0] * len(scripts)
        self.blocked: set[int] = set()
        self.ended: set[int] = set()
        self.processed: list[tuple[int, int]] = []
        self.cuts: dict[int, Cut] = {}
        self.given_up: set[int] = set()
        self.wake: list[int] = []

    @property
    def readable(self) -> list[int]:
        return [c for c in range(len(self.scripts)) if c not in self.blocked | self.ended]

    def read(self, channel: int) -> None:
        script, at = self.scripts[channel], self.position[channel]
        self.position[channel] += 1
        if at == len(script):
            self.ended.add(channel)
            self.act(self.handler.end_of_input(channel))
        elif isinstance(element := script[at], CheckpointBarrier):
            self.act(self.handler.barrier(channel, element))
        else:
            for cut in self.cuts.values():
                if channel in cut.open:
                    cut.recorded.append((channel, element))
            self.processed.append((channel, element))

    def act(self, actions: Sequence[BarrierAction]) -> None:
        for action in actions:
            match action:
                case Block(channel=channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case Resume(channel=channel):
                    self.blocked.remove(channel)
                case TakeSnapshot(barrier=barrier, recorded=recorded):
                    assert barrier.checkpoint_id > max(self.cuts, default=-1)
                    self.cuts[barrier.checkpoint_id] = Cut(barrier, list(self.processed), open=set(recorded))
                case StopRecording(checkpoint_id=number, channel=channel):
                    self.cuts[number].open.remove(channel)
                case GiveUp(checkpoint_id=number):
                    self.given_up.add(number)
                    if number in self.cuts:
                        self.cuts[number].open.clear()
                case WakeAt(checkpoint_id=number):
                    self.wake.append(number)


def before(scripts: list[list[int | CheckpointBarrier]], number: int) -> list[tuple[int, int]] | None:
    """The oracle: rows of each channel before its barrier, or all of them if it ends without one. None: a channel skipped it."""
    rows: list[tuple[int, int]] = []
    for channel, script in enumerate(scripts):
        numbers = [e.checkpoint_id for e in script if isinstance(e, CheckpointBarrier)]
        if number not in numbers and any(n > number for n in numbers):
            return None
        for element in script:
            if isinstance(element, CheckpointBarrier):
                if element.checkpoint_id == number:
                    break
            else:
                rows.append((channel, element))
    return rows


def random_scripts(chance: random.Random, kinds: str) -> list[list[int | CheckpointBarrier]]:
    channels, checkpoints = chance.randint(1, 4), chance.randint(1, 4)
    kind_of = {n: chance.choice(kinds) for n in range(1, checkpoints + 1)}
    scripts: list[list[int | CheckpointBarrier]] = []
    for _ in range(channels):
        script: list[int | CheckpointBarrier] = []
        for number in range(1, checkpoints + 1):
            script += range(len(script), len(script) + chance.randint(0, 3))
            if chance.random() < 0.05:
                break  # it ends early
            if chance.random() < 0.05:
                continue  # the producer heard of the abort first
            kind = kind_of[number]
            barrier = {"a": aligned(number), "u": unaligned(number), "t": aligned(number, 50), "l": tracked(number)}[
                kind
            ]
            if kind == "t" and chance.random() < 0.3:
                barrier = as_unaligned(barrier)  # it overtook in the producer's queue
            script.append(barrier)
        scripts.append([*script, *range(len(script), len(script) + chance.randint(0, 3))])
    return scripts


def run(scripts: list[list[int | CheckpointBarrier]], chance: random.Random, *, aborts: bool) -> Reader:
    reader = Reader(scripts, MixedBarrierHandler(len(scripts), ManualClock(1_000)))
    newest = 4
    while len(reader.ended) < len(scripts):
        roll = chance.random()
        if reader.wake and roll < 0.2:
            reader.act(reader.handler.timed_out(reader.wake.pop(0)))
        elif aborts and roll < 0.25:
            number = chance.randint(1, newest)
            reader.given_up.add(number)
            reader.act(reader.handler.abort(number))
        elif reader.readable:
            reader.read(chance.choice(reader.readable))
        else:
            # A channel skipped the barrier that the others wait for: the job master has aborted that checkpoint.
            for number in range(1, newest + 1):
                reader.act(reader.handler.abort(number))
            assert reader.readable, "blocked for ever"
    return reader


@pytest.mark.parametrize("kinds", ["a", "u", "t", "aut", "al", "l"])
@pytest.mark.parametrize("aborts", [False, True])
def test_every_cut_is_exact(kinds: str, aborts: bool) -> None:
    for seed in range(700):
        chance = random.Random(seed)
        scripts = random_scripts(chance, kinds)
        reader = run(scripts, chance, aborts=aborts)
        everything = sorted((c, e) for c, s in enumerate(scripts) for e in s if isinstance(e, int))
        assert sorted(reader.processed) == everything, "nothing is lost or repeated"
        for number, cut in reader.cuts.items():
            expected = before(scripts, number)
            if expected is None or number in reader.given_up:
                continue
            assert not cut.open, f"seed {seed}: channels {cut.open} are recorded for ever"
            found = sorted(cut.processed + cut.recorded)
            if cut.barrier.options.alignment is Alignment.AT_LEAST_ONCE:
                assert set(found) >= set(expected), f"seed {seed}, checkpoint {number}"
                continue
            assert found == sorted(expected), f"seed {seed}, checkpoint {number}"
            if cut.barrier.options.alignment is Alignment.ALIGNED:
                assert cut.recorded == []


def test_without_aborts_and_gaps_every_checkpoint_is_taken() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        scripts = random_scripts(chance, "aut")
        numbers = [{e.checkpoint_id for e in s if isinstance(e, CheckpointBarrier)} for s in scripts]
        if any(n != numbers[0] for n in numbers):
            continue
        assert set(run(scripts, chance, aborts=False).cuts) == numbers[0], f"seed {seed}"
