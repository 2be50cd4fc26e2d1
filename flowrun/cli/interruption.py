"""Ctrl-C, SIGTERM and SIGHUP: the first ends a job with a last checkpoint, or gracefully if it takes none; the second cancels it.

A job that does not end all the same is ended by the watchdog (`runtime/watchdog`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from flowrun.cli.console import say
from flowrun.errors import StateError

if TYPE_CHECKING:
    from flowrun.runners.control import ControllableJob, Ticket


class Interruption:
    """What the user asked for with signals.

    Args:
        quiet: say nothing but what went wrong.
        checkpoints: whether the job takes checkpoints.
        answer: called for every signal that is handled.
    """

    def __init__(self, quiet: bool, *, checkpoints: bool, answer: Callable[[], None] = lambda: None) -> None:
        self._quiet = quiet
        self._checkpoints = checkpoints
        self._answer = answer
        self._job: ControllableJob | None = None
        self._ticket: Ticket | None = None
        self._restarts: int | None = None
        self.requested = False
        self.is_shown = False
        """Whether a view on the terminal says that the job is stopping: a line from here would tear it."""

    def attach(self, job: ControllableJob) -> None:
        """The job that signals are for; one that came before stops it at once."""
        self._job = job
        if self.requested:
            self._stop(job)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """First signal: stop; second: cancel."""
        self._answer()
        if number == signal.SIGHUP:
            _leave_terminal()
        if self.requested:
            if self._job is not None and number != signal.SIGHUP:  # closing a terminal may send several
                self._job.cancel()
            return
        self.requested = True
        if not self._quiet and not self.is_shown:
            how = "with a last checkpoint" if self._checkpoints else "what was read is processed and written"
            say(f"\nstopping: {how}; press Ctrl-C again to cancel")
        if self._job is not None:
            self._stop(self._job)

    def check(self) -> None:
        """Look what became of the last checkpoint; without it the job is cancelled, so that nothing after the one before counts."""
        if self._ticket is None or self._job is None:
            return
        if not self._ticket.is_answered:
            self._give_up_if_it_failed_again(self._job)
            return
        ticket, self._ticket = self._ticket, None
        try:
            ticket.wait(0)
        except StateError as error:
            if self._job.status().state.is_terminal:  # it came to its own end meanwhile
                return
            say(f"there is no last checkpoint: {error}")
            self._job.cancel()

    def _give_up_if_it_failed_again(self, job: ControllableJob) -> None:
        """A job that fails over and over would be restarted, and never come to its last checkpoint."""
        status = job.status()
        before, self._restarts = self._restarts, status.restarts
        if before is not None and status.restarts > before:
            self._ticket = None
            say(f"there is no last checkpoint: the job failed while it was to stop: {status.last_failure}")
            job.cancel()

    def _stop(self, job: ControllableJob) -> None:
        if not self._checkpoints:
            job.stop()
            return
        try:
            self._ticket = job.take_snapshot(savepoint=False, stop=True)
        except StateError as error:
            say(f"there is no last checkpoint: {error}")
            job.cancel()


def _leave_terminal() -> None:
    """Nothing can be shown any more: what is still said would fail, and end the job before its last checkpoint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if os.isatty(descriptor):
            os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def stop_on_signals(
    quiet: bool, *, checkpoints: bool, answer: Callable[[], None] = lambda: None
) -> Iterator[Interruption]:
    """Handles signals in here; puts back the handlers of before."""
    interruption = Interruption(quiet, checkpoints=checkpoints, answer=answer)
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: the job outlives its terminal
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interruption.handle) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
