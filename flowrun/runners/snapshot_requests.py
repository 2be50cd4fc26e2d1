"""Savepoints and checkpoints that are asked of a job which may be rescaled before it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from flowrun.errors import StateError
from flowrun.runners.embedded import LocalJob
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket

_LOOK_AGAIN_S = 0.05


class RequestedSnapshot:
    """A ticket that outlasts the execution which it was given to: what that does not answer is asked of the next one. Thread-safe.

    Args:
        ask: asks an execution for the snapshot.
        stops: whether the job ends with it.
    """

    def __init__(self, ask: Callable[[LocalJob], SnapshotTicket], *, stops: bool) -> None:
        self.stops = stops
        self._ask = ask
        self._ticket: SnapshotTicket | None = None
        self._is_carried = True

    def place(self, job: LocalJob) -> None:
        """Ask an execution; its answer counts."""
        self._ticket = self._ask(job)
        self._is_carried = False

    def carry(self) -> None:
        """Another execution is about to take the place of the one that was asked: what that one refuses from now on does not count."""
        if not self.is_answered:
            self._is_carried = True

    def go_on(self, job: LocalJob) -> None:
        """This execution goes on: it is asked, unless the one before has taken the snapshot."""
        if self._is_carried and not self._has_succeeded:
            self.place(job)
        self._is_carried = False

    @property
    def _has_succeeded(self) -> bool:
        ticket = self._ticket
        if ticket is None or not ticket.is_answered:
            return False
        with suppress(StateError):
            ticket.wait(0)
            return True
        return False

    @property
    def is_answered(self) -> bool:
        """Whether `wait` returns or raises at once."""
        ticket = self._ticket
        return ticket is not None and ticket.is_answered and (not self._is_carried or self._has_succeeded)

    def wait(self, timeout_ms: float | None = None) -> str:
        """See `SnapshotTicket.wait`."""
        pause, waited_ms = threading.Event(), 0.0
        while not self.is_answered and (timeout_ms is None or waited_ms < timeout_ms):
            pause.wait(_LOOK_AGAIN_S)
            waited_ms += _LOOK_AGAIN_S * 1000
        ticket = self._ticket
        if ticket is None or not self.is_answered:
            raise StateError(f"the snapshot is not complete after {waited_ms:.0f} ms", hint="it goes on; wait longer")
        return ticket.wait(0)
