"""The watermark valve: one watermark and one status out of those of all channels of an input. Pure.

After Apache Flink's `StatusWatermarkValve`: channels are monotonic; the minimum over the active, aligned channels is passed on; an
idle channel does not count, and one that resumes counts again once it has caught up; when the last one goes idle, the
highest watermark is flushed. It differs in one point: a channel at MAX is done and counts no more, so that an idle channel that comes
back beside a finished one does not find event time at its end; MAX itself passes when all channels have reached it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowrun.core.elements import (
    ACTIVE,
    IDLE,
    MAX_TIMESTAMP,
    MAX_WATERMARK,
    MIN_TIMESTAMP,
    PassingWatermarks,
    Watermark,
    WatermarkStatus,
)
from flowrun.core.record import record

Emission = Sequence[Watermark | WatermarkStatus]


@record
class ChannelState:
    """What a valve knows of a channel. `aligned`: active, and caught up with the others since it was idle."""

    watermark: int
    idle: bool
    aligned: bool


_NOTHING: Emission = ()


class _Channel:
    """What is known of one channel; `aligned` says that it takes part in the minimum."""

    __slots__ = ("aligned", "ended", "idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        self.aligned = True
        self.ended = False

    @property
    def done(self) -> bool:
        """Whether nothing is expected from it."""
        return self.ended or self.watermark == MAX_TIMESTAMP


class StatusWatermarkValve:
    """Combines the watermarks and statuses of `channels` channels. Each call gives what to pass on, in order.

    >>> valve = StatusWatermarkValve(2)
    >>> valve.watermark(0, 5), valve.watermark(1, 3), valve.status(1, idle=True)
    ((), (Watermark(timestamp=3),), (Watermark(timestamp=5),))
    """

    def __init__(self, channels: int) -> None:
        self._channels = [_Channel() for _ in range(channels)]
        self.last_watermark = MIN_TIMESTAMP
        """The last watermark that was passed on, ms."""
        self.idle = False
        """Whether the last status passed on was idle."""

    @property
    def channels(self) -> Sequence[ChannelState]:
        """What is known of each channel; one that ended is at MAX."""
        return [ChannelState(MAX_TIMESTAMP if c.done else c.watermark, c.idle, c.aligned) for c in self._channels]

    def watermark_of(self, channel: int) -> int:
        """The last watermark of one channel, ms."""
        return self._channels[channel].watermark

    def start(self, channels: Sequence[ChannelState]) -> Emission:
        """Go on where a valve with these channels was; gives its last watermark and status, if they are not those of a new one."""
        for state, known in zip(self._channels, channels, strict=True):
            state.watermark, state.idle, state.aligned = known.watermark, known.idle, known.aligned
        left = [c for c in self._channels if not c.done]
        counted = [c.watermark for c in left if c.aligned and not c.idle]
        if not left:
            reached = MAX_TIMESTAMP
        elif counted:
            reached = min(counted)
        else:  # when the last channel that counted went idle, the highest watermark was passed on
            reached = max(c.watermark for c in left)
        self.idle = self._all_idle()
        return (*self._advance(reached), IDLE) if self.idle else self._advance(reached)

    def start_at(self, timestamp: int) -> None:
        """With new channels, go on where another valve was: nothing up to this watermark (ms) is passed on any more."""
        self.last_watermark = max(self.last_watermark, timestamp)

    def watermark(self, channel: int, timestamp: int) -> Emission:
        """A watermark arrived. One of an idle channel is ignored, unless it is MAX."""
        state = self._channels[channel]
        if timestamp <= state.watermark or (state.idle and timestamp < MAX_TIMESTAMP):
            return _NOTHING
        state.watermark = timestamp
        if timestamp == MAX_TIMESTAMP:
            return self._channel_done(flush=True)
        if timestamp >= self.last_watermark:
            state.aligned = True
        return self._minimum()

    def passing(self, channel: int, watermarks: PassingWatermarks) -> PassingWatermarks | None:
        """What `watermark` gives for each of these, between the same rows."""
        state = self._channels[channel]
        if state.idle or state.done:
            return None
        timestamps = watermarks.timestamps
        state.watermark = max(state.watermark, int(timestamps[-1]))
        if state.watermark >= self.last_watermark:
            state.aligned = True
        others = [c.watermark for c in self._channels if c is not state and c.aligned and not c.idle and not c.done]
        reached = np.minimum(timestamps, min(others, default=MAX_TIMESTAMP))
        new = (reached > self.last_watermark) & (reached > np.append(MIN_TIMESTAMP, reached[:-1]))
        if not new.any():
            return None
        self.last_watermark = int(reached[-1])
        return PassingWatermarks(watermarks.rows[new], reached[new])

    def status(self, channel: int, *, idle: bool) -> Emission:
        """A channel became idle or active."""
        state = self._channels[channel]
        if state.idle == idle or state.done:
            return _NOTHING
        state.idle = idle
        if not idle:
            state.aligned = state.watermark >= self.last_watermark
            if not self.idle:
                return self._minimum()
            self.idle = False
            return (ACTIVE, *self._minimum())
        state.aligned = False
        if not self._all_idle():
            return self._minimum() if state.watermark == self.last_watermark else _NOTHING
        self.idle = True
        if state.watermark == self.last_watermark:
            return (*self._highest(), IDLE)
        return (IDLE,)

    def end(self, channel: int) -> Emission:
        """A channel ended; without MAX before (a stop without drain) it just does not count any more, and MAX never passes."""
        state = self._channels[channel]
        if state.ended:
            return _NOTHING
        was_done = state.done
        state.ended = True
        return _NOTHING if was_done else self._channel_done(flush=False)

    def _channel_done(self, *, flush: bool) -> Emission:
        if all(c.watermark == MAX_TIMESTAMP for c in self._channels):
            if self.last_watermark == MAX_TIMESTAMP:
                return _NOTHING
            self.last_watermark = MAX_TIMESTAMP
            if self.idle:
                self.idle = False
                return (ACTIVE, MAX_WATERMARK)
            return (MAX_WATERMARK,)
        if self._all_idle() and not self.idle:
            self.idle = True
            return (*self._highest(), IDLE) if flush else (IDLE,)
        return self._minimum()

    def _highest(self) -> Emission:
        return self._advance(max(c.watermark for c in self._channels if not c.done))

    def _all_idle(self) -> bool:
        """Whether some channels are not done and all of those are idle."""
        left = [c for c in self._channels if not c.done]
        return bool(left) and all(c.idle for c in left)

    def _minimum(self) -> Emission:
        counted = [c.watermark for c in self._channels if c.aligned and not c.idle and not c.done]
        return self._advance(min(counted)) if counted else _NOTHING

    def _advance(self, timestamp: int) -> Emission:
        if timestamp <= self.last_watermark:
            return _NOTHING
        self.last_watermark = timestamp
        return (Watermark(timestamp),)
