"""Requests for savepoints and checkpoints: from the user's call to the answer on the ticket."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointKind, CheckpointOptions
from flowrun.runtime.checkpoint.events import SnapshotRequested
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.mailbox import Mailbox, Priority


class SnapshotRequests:
    """The open requests of one job. `ask` is thread-safe and may be called in a signal handler; the rest is for the job master's thread.

    Requests that come before every subtask runs, or amid a restart, wait until it does.

    Args:
        mailbox: of the job master.
        clock: of time-outs.
        takes_checkpoints: whether the job has a folder for checkpoints.
        submit: takes requests to the coordinator.
        batch_mode: the job runs stage by stage, of which there are no snapshots.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        clock: Clock,
        takes_checkpoints: bool,
        submit: Callable[[SnapshotRequested], None],
        *,
        batch_mode: bool = False,
    ) -> None:
        self._batch_mode = batch_mode
        self._mailbox = mailbox
        self._clock = clock
        self._takes_checkpoints = takes_checkpoints
        self._submit = submit
        self._open: dict[str, SnapshotTicket] = {}
        self._waiting: list[SnapshotRequested] = []
        self._running = False

    def ask(self, directory: str | None, *, savepoint: bool, stop: bool, drain: bool) -> SnapshotTicket:
        """A ticket for a new request; see `LocalJob.take_snapshot`."""
        ticket = SnapshotTicket(uuid.uuid4().hex, self._clock)
        if self._batch_mode:
            ticket.fail("a job in batch mode has no checkpoints and no savepoints", "run it in streaming mode")
        elif drain and not stop:
            ticket.fail("only a job that is stopped can be drained", "leave drain out, or stop the job")
        elif not savepoint and not self._takes_checkpoints:
            ticket.fail(
                "the job takes no checkpoints", "take a savepoint, or give the pipeline settings.checkpoint.interval"
            )
        else:
            kind = CheckpointKind.SAVEPOINT if savepoint else CheckpointKind.CHECKPOINT
            options = CheckpointOptions(kind, stop=stop, drain=drain)
            self._post(ticket, SnapshotRequested(ticket.request_id, options, directory))
        return ticket

    def ask_last(self) -> SnapshotTicket:
        """A ticket for the last checkpoint of a job whose subtasks have all finished."""
        ticket = SnapshotTicket(uuid.uuid4().hex, self._clock)
        self._open[ticket.request_id] = ticket
        self._submit(SnapshotRequested(ticket.request_id, CheckpointOptions()))
        return ticket

    def _post(self, ticket: SnapshotTicket, request: SnapshotRequested) -> None:
        def take() -> None:
            if self._running:
                self._submit(request)
            else:
                self._waiting.append(request)

        # It is known before it is posted, so that the end of the job answers it even if the mail is never read.
        self._open[ticket.request_id] = ticket
        if not self._mailbox.put(take, Priority.URGENT):
            self._open.pop(ticket.request_id, None)
            ticket.fail("the job has ended")

    @property
    def has_open(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._open)

    def resume(self) -> None:
        """Everything runs: submit what waits."""
        self._running = True
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._submit(request)

    def pause(self) -> None:
        """The job restarts: what comes from now on waits."""
        self._running = False

    def answer(self, request_id: str, path: str | None, failure: str | None, hint: str | None) -> None:
        """A request has come to its end."""
        ticket = self._open.pop(request_id, None)
        if ticket is None:
            return
        if path is not None:
            ticket.succeed(path)
        else:
            ticket.fail(failure or "the snapshot failed", hint)

    def close(self, reason: str) -> None:
        """The job is over, and the mailbox closed: nobody is answered any more after this."""
        self._waiting.clear()
        for request_id in list(self._open):
            self.answer(request_id, None, reason, None)
