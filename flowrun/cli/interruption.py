"""Handles Ctrl-C, SIGTERM and SIGHUP while a job runs.

The first signal ends the job with a last checkpoint, or with a savepoint if that is asked for; or, if the job takes no checkpoints, after
the rows that were read are written. The second one cancels it, and so does the time, if there is a limit. A job that waits for slots is
cancelled at the first one, as nothing runs of which a checkpoint could be taken: at once if it has not begun, and after a while if it has
lost its slots. If the job does not end even then, the watchdog (`runtime/watchdog`) ends the process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from flowrun.cli.arguments import NO_STOP_OPTIONS, StopOptions
from flowrun.cli.console import say
from flowrun.core.clock import Clock, SystemClock
from flowrun.core.units import format_duration
from flowrun.errors import StateError
from flowrun.runtime.lifecycle import JobState

if TYPE_CHECKING:
    from flowrun.runners.control import ControllableJob, Ticket

SLOTS_COME_BACK_MS = 10_000
"""How long a job that is to stop may wait for slots that it has lost: a process that died is replaced within a second or two."""


class Interruption:
    """What the user asked for with signals.

    Args:
        quiet: whether only problems are said.
        checkpoints: whether the job takes checkpoints.
        answer: is called for every signal that is handled.
        stop: how the job ends.
        clock: of the limit of time.
    """

    def __init__(
        self,
        quiet: bool,
        *,
        checkpoints: bool,
        answer: Callable[[], None] = lambda: None,
        stop: StopOptions = NO_STOP_OPTIONS,
        clock: Clock | None = None,
    ) -> None:
        self._quiet = quiet
        self._checkpoints = checkpoints
        self._options = stop
        self._clock = SystemClock() if clock is None else clock
        self._asked_ns: int | None = None
        self._without_slots_ns: int | None = None
        """Since when the job that is to stop waits for slots that it has lost."""
        self._answer = answer
        self._job: ControllableJob | None = None
        self._ticket: Ticket | None = None
        self._restarts: int | None = None
        self._cancels = False
        self.requested = False
        self.signal: int | None = None
        """The first one that asked for the end."""
        self.is_shown = False
        """Whether a view on the terminal says that the job is stopping: a line that is printed from here would spoil it."""

    def attach(self, job: ControllableJob) -> None:
        """Name the job that signals are for. If a signal came before, the job is stopped at once, and cancelled if there were two."""
        self._job = job
        if self._cancels:
            job.cancel()
        elif self.requested:
            self._stop(job)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Stop the job at the first signal, and cancel it at the second one."""
        self._answer()
        if number == signal.SIGHUP:
            _leave_terminal()
        if self.requested:
            if number != signal.SIGHUP:  # a terminal that is closed may send several of them
                self._cancels = True
                if self._job is not None:
                    self._job.cancel()
            return
        self.requested = True
        self.signal = number
        if not self._quiet and not self.is_shown:
            how = "with a last checkpoint" if self._checkpoints else "what was read is processed and written"
            how = how if self._options.savepoint is None else "with a savepoint"
            say(f"\nstopping: {how}; press Ctrl-C again to cancel")
        if self._job is not None:
            self._stop(self._job)

    def check(self) -> None:
        """Look whether the last checkpoint was taken; if it failed, or takes too long, cancel the job: what it did since the one before
        does not count.
        """
        if self._job is not None and self.requested and not self._cancels:
            self._give_up_if_it_waits_for_slots(self._job)
        if self._ticket is None or self._job is None:
            return
        if not self._ticket.is_answered:
            self._give_up_if_it_failed_again(self._job)
            self._give_up_if_it_takes_too_long(self._job)
            return
        ticket, self._ticket = self._ticket, None
        try:
            ticket.wait(0)
        except StateError as error:
            if self._job.status().state.is_terminal:  # the job reached its own end meanwhile
                return
            say(f"there is no last {self._what}: {error}")
            self._job.cancel()

    @property
    def _what(self) -> str:
        return "checkpoint" if self._options.savepoint is None else "savepoint"

    def _give_up_if_it_waits_for_slots(self, job: ControllableJob) -> None:
        """Cancel a job that has no slots: nothing of it runs."""
        status = job.status()
        waits_for = status.waits_for or ""
        if not waits_for.startswith("slots") or status.state not in (JobState.CREATED, JobState.RESTARTING):
            self._without_slots_ns = None
            return
        now_ns = self._clock.monotonic_ns()
        if self._without_slots_ns is None:
            self._without_slots_ns = now_ns
        if status.state is JobState.CREATED:
            reason = f"the job has not begun, as it waits for {waits_for}"
        elif now_ns - self._without_slots_ns >= SLOTS_COME_BACK_MS * 1_000_000:
            reason = f"the job waits for {waits_for}: the one before counts"
        else:
            return
        self._ticket, self._cancels = None, True
        say(f"there is no last {self._what}: {reason}" if self._ends_with_snapshot else reason)
        job.cancel()

    def _give_up_if_it_takes_too_long(self, job: ControllableJob) -> None:
        limit_ms = self._options.within_ms
        if limit_ms is None or self._asked_ns is None or self._ticket is None:
            return
        if self._clock.monotonic_ns() - self._asked_ns >= limit_ms * 1_000_000:
            self._ticket = None
            say(f"there is no last {self._what} within {format_duration(limit_ms)}: the one before counts")
            job.cancel()

    def _give_up_if_it_failed_again(self, job: ControllableJob) -> None:
        """Cancel a job that fails again and again: it would be restarted each time, and never take its last checkpoint."""
        status = job.status()
        before, self._restarts = self._restarts, status.restarts
        if before is not None and status.restarts > before:
            self._ticket = None
            say(f"there is no last {self._what}: the job failed while it was to stop: {status.last_failure}")
            job.cancel()

    @property
    def _ends_with_snapshot(self) -> bool:
        return self._checkpoints or self._options.savepoint is not None

    def _stop(self, job: ControllableJob) -> None:
        savepoint = self._options.savepoint
        if not self._ends_with_snapshot:
            job.stop()
            return
        try:
            self._asked_ns = self._clock.monotonic_ns()
            self._ticket = job.take_snapshot(savepoint, savepoint=savepoint is not None, stop=True)
        except StateError as error:
            say(f"there is no last {self._what}: {error}")
            job.cancel()


def _leave_terminal() -> None:
    """Replace a terminal that is gone by the null device: a write to it would fail, and end the job before its last checkpoint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if os.isatty(descriptor):
            os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def stop_on_signals(
    quiet: bool,
    *,
    checkpoints: bool,
    answer: Callable[[], None] = lambda: None,
    stop: StopOptions = NO_STOP_OPTIONS,
) -> Iterator[Interruption]:
    """A context in which the signals are handled; at its end the handlers of before are put back."""
    interruption = Interruption(quiet, checkpoints=checkpoints, answer=answer, stop=stop)
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: the job outlives its terminal
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interruption.handle) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
