"""Between the pure scheduler and those who carry out what it decides. Used by the job master's thread only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from flowrun.core.clock import Clock
from flowrun.runtime.jobmaster.failure import job_broke
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.jobmaster.scheduler_events import Command, Event


class SchedulerDriver:
    """Gives events to the scheduler one at a time; events that its commands cause wait until these are carried out.

    Args:
        scheduler: decides.
        clock: processing time.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self.scheduler = scheduler
        self._clock = clock
        self._carry_out: Callable[[Command], None] | None = None
        self._pending: deque[Event] = deque()
        self._handling = False

    def connect(self, carry_out: Callable[[Command], None]) -> None:
        """Set who carries out commands; before anything else."""
        self._carry_out = carry_out

    def handle(self, event: Event) -> None:
        """Give an event to the scheduler and have its commands carried out."""
        assert self._carry_out is not None
        self._pending.append(event)
        if self._handling:
            return
        self._handling = True
        while self._pending:
            for command in self.scheduler.handle(self._pending.popleft(), self._clock.now_ms()):
                self._carry_out(command)
        self._handling = False

    def fail(self, error: Exception) -> None:
        """Something beside the subtasks failed: end the job, or restart it."""
        self.handle(job_broke(error))

    def recover(self, error: Exception) -> None:
        """What was being done for an event raised: forget the events that wait, and fail the job."""
        self._pending.clear()
        self._handling = False
        self.fail(error)
