"""One callback of the processing-time service for many timers: it waits for the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flowrun.api.operator import ProcessingTimeService, TimerHandle


class FirstTimer:
    """Keeps exactly one callback, for the earliest of an operator's processing-time timers. For the subtask's thread.

    Args:
        processing_time: where it waits.
        first: when the earliest timer is due, ms; None: there is none.
        fire: fires the timers at or before a time, ms; called within `firing`.
    """

    def __init__(
        self, processing_time: ProcessingTimeService, first: Callable[[], int | None], fire: Callable[[int], None]
    ) -> None:
        self._processing_time = processing_time
        self._first = first
        self._fire = fire
        self._handle: TimerHandle | None = None
        self._handle_ms = 0
        self.is_firing = False

    def rearm(self) -> None:
        """Wait for what is first now; while timers fire, once they have."""
        if self.is_firing:
            return
        first = self._first()
        if self._handle is not None:
            if first == self._handle_ms:
                return
            self.close()
        if first is not None:
            self._handle_ms = first
            self._handle = self._processing_time.register(first, self._due)

    @contextmanager
    def firing(self) -> Iterator[None]:
        """Around the firing of timers: those that they register are waited for afterwards."""
        self.is_firing = True
        try:
            yield
        finally:
            self.is_firing = False
        self.rearm()

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self, timestamp: int) -> None:
        self._handle = None
        with self.firing():
            self._fire(timestamp)
