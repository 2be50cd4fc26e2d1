"""Between the scheduler and whoever has slots: asks for them, and hears the answers."""

from __future__ import annotations

from collections.abc import Callable, Collection

from flowrun.runtime.jobmaster import scheduler_events as events
from flowrun.runtime.mailbox import Mail
from flowrun.runtime.slot_messages import SlotAnswer, SlotProvider, SlotRequestBulk, SlotsPending
from flowrun.runtime.timers import Timer, TimerThread


class SlotRequests:
    """The requests of one job. Used by the job master's thread, but for `answer_slot_request`.

    Args:
        job_id: the run.
        job_name: for other jobs that wait.
        provider: has the slots.
        timers: of waiting.
        timeout_ms: how long the job waits; 0: for ever.
        post: puts a mail into the job master's mailbox; from any thread.
    """

    def __init__(
        self,
        job_id: str,
        job_name: str,
        provider: SlotProvider,
        timers: TimerThread,
        timeout_ms: int,
        post: Callable[[Mail], None],
    ) -> None:
        self._job_id = job_id
        self._job_name = job_name
        self._provider = provider
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._post = post
        self._handle: Callable[[SlotAnswer | events.SlotRequestTimedOut], None] | None = None
        self._waiting: dict[int, Timer] = {}

    def connect(self, handle: Callable[[SlotAnswer | events.SlotRequestTimedOut], None]) -> None:
        """Set who hears of slots, on the job master's thread; before anything else."""
        self._handle = handle

    def request(self, command: events.RequestSlots) -> None:
        """Ask for slots, and wait for them so long and no longer."""
        self.wait(command.number)
        bulk = SlotRequestBulk(self._job_id, self._job_name, command.number, command.requests, command.instead_of)
        self._provider.request_slots(bulk, self)

    def wait(self, number: int) -> None:
        """Have the scheduler told when a request was waited for long enough from now on."""
        if self._timeout_ms:
            event = events.SlotRequestTimedOut(number, f"{self._timeout_ms / 1000:g} s")
            self._waiting[number] = self._timers.after(self._timeout_ms, lambda: self._post(lambda: self._hear(event)))

    def withdraw(self, number: int) -> None:
        """Wait no more."""
        self._forget(number)
        self._provider.withdraw_slot_request(self._job_id, number)

    def release(self, allocation_ids: Collection[str]) -> None:
        """Give slots back."""
        self._provider.release_slots(self._job_id, allocation_ids)

    def leave(self, lost: Collection[str]) -> None:
        """Give everything back at the end of the job, but slots whose subtasks do not end. Idempotent."""
        for number in list(self._waiting):
            self._forget(number)
        self._provider.leave(self._job_id, lost)

    def answer_slot_request(self, answer: SlotAnswer) -> None:
        """See `SlotRequester`; from any thread."""
        self._post(lambda: self._answered(answer))

    def _answered(self, answer: SlotAnswer) -> None:
        if not isinstance(answer, SlotsPending):
            self._forget(answer.number)
        self._hear(answer)

    def _hear(self, event: SlotAnswer | events.SlotRequestTimedOut) -> None:
        assert self._handle is not None
        self._handle(event)

    def _forget(self, number: int) -> None:
        timer = self._waiting.pop(number, None)
        if timer is not None:
            timer.cancel()
