"""The processing time of one subtask: timers of the process whose callbacks become mails of the subtask."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.api.operator import TimerHandle
from flowrun.runtime.mailbox import Mailbox
from flowrun.runtime.timers import Timer, TimerThread


class MailboxTimeService:
    """Processing time of one subtask: callbacks run as mails in its mailbox, never concurrently with its other work."""

    def __init__(self, timers: TimerThread, mailbox: Mailbox) -> None:
        self._timers = timers
        self._mailbox = mailbox
        self._closed = False
        self._held: list[Callable[[], None]] | None = None
        """What came due while suspended; None: not suspended."""

    def now_ms(self) -> int:
        """Current processing time, ms since the epoch."""
        return self._timers.clock.now_ms()

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> TimerHandle:
        """Call `callback(timestamp_ms)` once processing time reaches `timestamp_ms`."""
        timer = Timer(lambda: callback(timestamp_ms))

        def fire() -> None:
            if self._held is not None:
                self._held.append(fire)
                return
            due, timer.callback = timer.callback, None
            if due is not None and not self._closed:
                due()

        def put() -> None:
            if timer.callback is not None:
                self._mailbox.put(fire)

        return _Registered(self._timers.at(timestamp_ms, put), timer)

    def suspend(self) -> None:
        """Hold back what comes due until `resume`. The subtask's thread."""
        if self._held is None:
            self._held = []

    def resume(self) -> None:
        """Run what was held back, soon. The subtask's thread."""
        held, self._held = self._held or (), None
        for fire in held:
            self._mailbox.put(fire)

    def close(self) -> None:
        """No callback runs any more."""
        self._closed = True


class _Registered:
    """A callback on its way: what waits for its time, and what runs as a mail then."""

    __slots__ = ("_mail", "_waiting")

    def __init__(self, waiting: Timer, mail: Timer) -> None:
        self._waiting = waiting
        self._mail = mail

    def cancel(self) -> None:
        """Forget the callback if it has not run."""
        self._waiting.cancel()
        self._mail.cancel()
