"""When checkpoints are due: intervals, pauses and time-outs that hold although clocks jump."""

from __future__ import annotations

from collections.abc import Iterable

from flowrun.core.recovery import CheckpointSettings
from flowrun.runtime.checkpoint.events import WakeAt

DEFAULT_TIMEOUT_MS = CheckpointSettings(interval_ms=0).timeout_ms
"""For snapshots of jobs that take no periodic checkpoints."""


class Pacing:
    """The times of one job's checkpoints. Everything is measured in `elapsed_ms`, a time that passes only as it was waited for.

    A clock that goes back adds nothing, one that leaps ahead (or a process that slept) no more than the wait that was asked for
    with `WakeAt`. So whatever is due is at most one such wait late, and nothing is caught up on in a burst. Time-outs are waited for
    in quarters, so that a leap takes no more than one from a checkpoint under way; tests that pass them go in such steps too.
    """

    def __init__(self, settings: CheckpointSettings | None, now_ms: int) -> None:
        self.elapsed_ms = 0
        self._interval_ms = None if settings is None else settings.interval_ms
        self._min_pause_ms = 0 if settings is None else settings.min_pause_ms
        self._timeout_ms = DEFAULT_TIMEOUT_MS if settings is None else settings.timeout_ms
        self._now_ms = now_ms
        self._wake_ms: int | None = None
        self._due: int | None = None
        self._pause_end = 0

    def advance(self, now_ms: int) -> None:
        """The clock shows `now_ms`."""
        passed = now_ms - self._now_ms
        if self._wake_ms is not None:
            passed = min(passed, self._wake_ms - self._now_ms)
        self.elapsed_ms += max(0, passed)
        self._now_ms = now_ms

    def start(self) -> None:
        """The next periodic checkpoint is due an interval from now: the job runs, or one was triggered."""
        self._due = None if self._interval_ms is None else self.elapsed_ms + self._interval_ms

    def stop(self) -> None:
        """No periodic checkpoint is due any more."""
        self._due = None

    def begin_pause(self) -> None:
        """A checkpoint has ended, well or not."""
        self._pause_end = self.elapsed_ms + self._min_pause_ms

    @property
    def deadline(self) -> int:
        """When a checkpoint that is triggered now is given up."""
        return self.elapsed_ms + self._timeout_ms

    @property
    def periodic_due(self) -> int | None:
        """When the next periodic checkpoint may be triggered; None: never."""
        return None if self._due is None else max(self._due, self._pause_end)

    def wake(self, due: int | None, deadlines: Iterable[int]) -> WakeAt | None:
        """The wish to be woken if it is not already made; None: nothing to ask for.

        Args:
            due: when something is to be begun (elapsed); None: nothing is.
            deadlines: when something is to be given up (elapsed).
        """
        step = self.elapsed_ms + max(1, self._timeout_ms // 4)
        times = [min(deadline, step) for deadline in deadlines]
        if due is not None:
            times.append(due)
        if not times:
            self._wake_ms = None
            return None
        due = min(times)
        wake_ms = self._now_ms + max(0, due - self.elapsed_ms)
        if wake_ms == self._wake_ms:
            return None
        self._wake_ms = wake_ms
        return WakeAt(wake_ms)

    def woken(self) -> None:
        """The wish has come true: it is to be made again if need be."""
        self._wake_ms = None
