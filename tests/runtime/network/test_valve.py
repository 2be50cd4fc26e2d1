"""The valve passes on the minimum over channels that count, and agrees with a plain recomputation from the whole history."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import (
    ACTIVE,
    IDLE,
    MAX_TIMESTAMP,
    MAX_WATERMARK,
    MIN_TIMESTAMP,
    PassingWatermarks,
    Watermark,
)
from flowrun.runtime.network.valve import StatusWatermarkValve


def test_the_slowest_channel_decides() -> None:
    valve = StatusWatermarkValve(2)
    assert valve.watermark(0, 10) == ()
    assert valve.watermark(1, 4) == (Watermark(4),)
    assert valve.watermark(1, 20) == (Watermark(10),)


def test_a_channel_never_goes_back() -> None:
    valve = StatusWatermarkValve(1)
    valve.watermark(0, 10)
    assert valve.watermark(0, 9) == ()
    assert valve.watermark(0, 10) == ()


def test_an_idle_channel_does_not_hold_the_others_back() -> None:
    valve = StatusWatermarkValve(2)
    valve.watermark(0, 10)
    assert valve.watermark(1, 3) == (Watermark(3),)
    assert valve.status(1, idle=True) == (Watermark(10),)


def test_a_resumed_channel_counts_again_only_once_it_has_caught_up() -> None:
    valve = StatusWatermarkValve(2)
    valve.watermark(0, 10)
    valve.watermark(1, 3)
    valve.status(1, idle=True)
    assert valve.status(1, idle=False) == ()
    assert valve.watermark(1, 5) == (), "behind: it neither counts nor holds back"
    assert valve.watermark(0, 12) == (Watermark(12),)
    assert valve.watermark(1, 12) == (), "caught up: it counts from now on"
    assert valve.watermark(0, 15) == ()
    assert valve.watermark(1, 14) == (Watermark(14),)


def test_a_resumed_channel_that_stands_where_the_others_are_counts_at_once() -> None:
    valve = StatusWatermarkValve(2)
    valve.watermark(0, 10)
    valve.watermark(1, 10)
    valve.status(1, idle=True)
    assert valve.status(1, idle=False) == ()
    assert valve.watermark(0, 12) == ()
    assert valve.watermark(1, 11) == (Watermark(11),)


def test_when_the_last_channel_goes_idle_the_highest_watermark_is_flushed() -> None:
    valve = StatusWatermarkValve(2)
    valve.watermark(0, 10)
    valve.watermark(1, 3)
    valve.status(0, idle=True)
    assert valve.status(1, idle=True) == (Watermark(10), IDLE)
    assert valve.status(0, idle=False) == (ACTIVE,)


def test_an_idle_channel_beside_a_finished_one_does_not_end_event_time() -> None:
    valve = StatusWatermarkValve(2)
    valve.watermark(0, 5)
    valve.watermark(1, 7)
    valve.status(1, idle=True)
    assert valve.watermark(0, MAX_TIMESTAMP) == (Watermark(7), IDLE)
    assert valve.end(0) == ()
    assert valve.status(1, idle=False) == (ACTIVE,)
    assert valve.watermark(1, 8) == (Watermark(8),)
    assert valve.watermark(1, MAX_TIMESTAMP) == (MAX_WATERMARK,)


def test_an_idle_channel_may_end() -> None:
    valve = StatusWatermarkValve(1)
    assert valve.status(0, idle=True) == (IDLE,)
    assert valve.watermark(0, MAX_TIMESTAMP) == (ACTIVE, MAX_WATERMARK)


def test_a_channel_that_ends_without_max_just_leaves() -> None:
    valve = StatusWatermarkValve(2)
    valve.watermark(0, 5)
    valve.watermark(1, 9)
    assert valve.end(0) == (Watermark(9),)
    assert valve.end(1) == (), "stopped without drain: MAX never comes"


Step = tuple[int, str, int]


class Oracle:
    """The definition, replayed channel by channel from the history."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.wm = [MIN_TIMESTAMP] * channels
        self.idle = [False] * channels
        self.counts = [True] * channels
        self.gone = [False] * channels
        self.out = MIN_TIMESTAMP
        self.out_idle = False

    def done(self, c: int) -> bool:
        return self.gone[c] or self.wm[c] == MAX_TIMESTAMP

    def step(self, step: Step) -> None:
        c, kind, value = step
        before_all_idle = self.all_idle()
        leaver = self.wm[c]
        flush = False
        if kind == "wm" and not self.gone[c] and value > self.wm[c] and not self.idle[c]:
            self.wm[c] = value
            if value >= self.out:
                self.counts[c] = True
        elif kind == "idle" and not self.done(c) and not self.idle[c]:
            self.idle[c], self.counts[c] = True, False
            flush = leaver == self.out
        elif kind == "active" and not self.done(c) and self.idle[c]:
            self.idle[c] = False
            self.counts[c] = self.wm[c] >= self.out
        elif kind == "max" and not self.done(c):
            self.wm[c] = MAX_TIMESTAMP
            flush = True
        elif kind == "end" and not self.gone[c]:
            self.gone[c] = True
        live = [i for i in range(self.channels) if not self.done(i)]
        if all(w == MAX_TIMESTAMP for w in self.wm):
            self.out, self.out_idle = MAX_TIMESTAMP, False
            return
        counted = [self.wm[i] for i in live if self.counts[i] and not self.idle[i]]
        if counted:
            self.out = max(self.out, min(counted))
        elif self.all_idle() and not before_all_idle and flush:
            self.out = max(self.out, *(self.wm[i] for i in live))
        if live:
            self.out_idle = self.all_idle()

    def all_idle(self) -> bool:
        live = [i for i in range(self.channels) if not self.done(i)]
        return bool(live) and all(self.idle[i] for i in live)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["wm"] * 5 + ["idle", "active", "max", "end"]), st.integers(0, 12)),
    max_size=40,
)


@given(st.integers(1, 3), STEPS)
def test_the_valve_agrees_with_the_definition(channels: int, steps: list[Step]) -> None:
    valve, oracle = StatusWatermarkValve(channels), Oracle(channels)
    passed = MIN_TIMESTAMP
    for any_channel, kind, value in steps:
        channel = any_channel % channels
        if kind == "wm" and oracle.gone[channel]:
            continue  # nothing comes after the end of a channel
        match kind:
            case "wm":
                emitted = valve.watermark(channel, value)
            case "max":
                if oracle.gone[channel]:
                    continue
                emitted = valve.watermark(channel, MAX_TIMESTAMP)
            case "end":
                emitted = valve.end(channel)
            case _:
                emitted = valve.status(channel, idle=kind == "idle")
        oracle.step((channel, kind, value))
        for event in emitted:
            if isinstance(event, Watermark):
                assert event.timestamp > passed, "event time goes forward only"
                passed = event.timestamp
        assert passed == valve.last_watermark == oracle.out, (channel, kind, value)
        assert valve.idle == oracle.out_idle, (channel, kind, value)


def test_a_valve_goes_on_where_another_one_was() -> None:
    """Random histories: a valve that is started with the channels of another behaves like it from then on."""
    for seed in range(300):
        chance = random.Random(seed)
        original = StatusWatermarkValve(3)
        for _ in range(chance.randint(0, 12)):
            channel = chance.randrange(3)
            if chance.random() < 0.6:
                original.watermark(channel, chance.randint(1, 20))
            else:
                original.status(channel, idle=chance.random() < 0.5)
        successor = StatusWatermarkValve(3)
        told = successor.start(original.channels)
        assert successor.last_watermark == original.last_watermark, f"seed {seed}"
        assert successor.idle == original.idle
        expected = [Watermark(original.last_watermark)] if original.last_watermark > MIN_TIMESTAMP else []
        assert list(told) == [*expected, *([IDLE] if original.idle else [])]
        for _ in range(10):
            channel, timestamp = chance.randrange(3), chance.randint(1, 40)
            if chance.random() < 0.6:
                assert successor.watermark(channel, timestamp) == original.watermark(channel, timestamp)
            else:
                idle = chance.random() < 0.5
                assert successor.status(channel, idle=idle) == original.status(channel, idle=idle), f"seed {seed}"


def test_new_channels_repeat_nothing_that_old_ones_passed_on() -> None:
    valve = StatusWatermarkValve(1)
    valve.start_at(10)
    assert list(valve.watermark(0, 7)) == []
    assert list(valve.watermark(0, 11)) == [Watermark(11)]
    ended = StatusWatermarkValve(1)
    ended.start_at(MAX_TIMESTAMP)
    assert list(ended.watermark(0, MAX_TIMESTAMP)) == []


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["up", "between", "idle", "active", "end"]), st.integers(0, 60)),
        max_size=40,
    )
)
def test_watermarks_between_rows_mean_what_they_mean_one_by_one(actions: list[tuple[int, str, int]]) -> None:
    valve, single = StatusWatermarkValve(3), StatusWatermarkValve(3)
    for channel, action, value in actions:
        match action:
            case "up":
                assert valve.watermark(channel, value) == single.watermark(channel, value)
            case "between":
                timestamps = np.unique([value // 3, value // 2, value, value + channel])
                places = np.arange(len(timestamps)) * 2
                wanted = [
                    (p, e) for p, t in zip(places, timestamps, strict=True) for e in single.watermark(channel, int(t))
                ]
                found = valve.passing(channel, PassingWatermarks(places, timestamps))
                pairs = [] if found is None else zip(found.rows, found.timestamps, strict=True)
                assert [(p, Watermark(int(t))) for p, t in pairs] == wanted
            case "end":
                assert valve.end(channel) == single.end(channel)
            case _:
                assert valve.status(channel, idle=action == "idle") == single.status(channel, idle=action == "idle")
        assert valve.channels == single.channels
        assert valve.last_watermark == single.last_watermark
