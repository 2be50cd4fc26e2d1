"""Reactive mode: a job whose parallelism is what the slots that there are allow, after Apache Flink's `scheduler-mode: reactive`.

More slots: it is rescaled from a checkpoint that it takes for that. Fewer: it waits for the lost ones like any job, and if they do not
come back it goes on with the others, from its last checkpoint. A change counts once the number of slots has stood still for the settle
time, so a task manager that is replaced costs no rescaling, and several that come one after the other cost one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from flowrun.core.clock import Clock, SystemClock
from flowrun.errors import FlowrunError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.rescaling import RescalableJob
from flowrun.runners.workers import slots_needed
from flowrun.runtime.lifecycle import JobState

DEFAULT_SETTLE_MS = 10_000
"""As Flink's `jobmanager.adaptive-scheduler.resource-stabilization-timeout`."""
_LOOK_EVERY_MS = 100.0

_log = logging.getLogger(__name__)


class SettledSlots:
    """Says when a number of slots has stood still for long enough.

    >>> slots = SettledSlots(settle_ms=100)
    >>> [slots.observe(number, at_ms) for number, at_ms in ((2, 0), (2, 99), (3, 120), (3, 219), (3, 220))]
    [None, None, None, None, 3]
    """

    def __init__(self, settle_ms: float) -> None:
        self._settle_ms = settle_ms
        self._number: int | None = None
        self._since_ms = 0.0

    def observe(self, number: int, now_ms: float) -> int | None:
        """There are so many slots now; gives the number if it has settled. `now_ms` is monotonic."""
        if number != self._number:
            self._number, self._since_ms = number, now_ms
        return number if now_ms - self._since_ms >= self._settle_ms else None


def fitting_parallelism(slots: int, most: int, compile_at: Callable[[int], JobGraph]) -> int:
    """The highest parallelism at which a job needs no more than so many slots; 1 if there is none.

    Args:
        slots: that there are, at least 1.
        most: the maximal parallelism.
        compile_at: gives the job graph at a parallelism. Raises FlowrunError.
    """
    parallelism = min(slots, most)
    while parallelism > 1:
        needed = slots_needed(compile_at(parallelism))
        if needed <= slots:
            break
        parallelism = max(1, min(parallelism - 1, parallelism * slots // needed))
    return parallelism


def first_settled(slots: Callable[[], int], settle_ms: float, is_over: Callable[[], bool], clock: Clock) -> int | None:
    """Wait until there are slots, and their number has settled; None: `is_over` said so before."""
    settled, pause = SettledSlots(settle_ms), threading.Condition()
    while not is_over():
        number = settled.observe(slots(), clock.monotonic_ns() / 1e6)
        if number:
            return number
        with pause:
            clock.wait(pause, _LOOK_EVERY_MS)
    return None


class ReactiveScaler:
    """Rescales a job as slots come and go, from entering its context to leaving it.

    Args:
        job: to rescale.
        slots: gives the number of slots at this moment.
        compile_at: gives the job graph at a parallelism. Raises FlowrunError.
        settle_ms: see the head of this module.
    """

    def __init__(
        self,
        job: RescalableJob,
        slots: Callable[[], int],
        compile_at: Callable[[int], JobGraph],
        settle_ms: float,
        clock: Clock | None = None,
    ) -> None:
        self._job = job
        self._slots = slots
        self._compile_at = compile_at
        self._settled = SettledSlots(settle_ms)
        self._clock = SystemClock() if clock is None else clock
        self._refused: int | None = None
        """With so many slots the job could not be rescaled: that is not tried again before their number changes."""
        self._known: int | None = None
        self._wanted = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="flowrun-reactive", daemon=True)

    def __enter__(self) -> ReactiveScaler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._closed:
                    self._clock.wait(self._changed, _LOOK_EVERY_MS)
                if self._closed:
                    return
            self._look()

    def _look(self) -> None:
        """Rescale the job if there is a reason to."""
        number = self._settled.observe(self._slots(), self._clock.monotonic_ns() / 1e6)
        if number is None or number != self._refused:
            self._refused = None
        if not number or number == self._refused:
            return
        try:
            if number != self._known:
                self._wanted = fitting_parallelism(number, self._job.max_parallelism, self._compile_at)
                self._known = number
            if self._wanted == self._job.parallelism or not self._can_move():
                return
            _log.info("there are %d slots: the job goes to parallelism %d", number, self._wanted)
            ticket = self._job.rescale(self._wanted)
            while not ticket.is_answered and not self._closed:
                with self._changed:
                    self._clock.wait(self._changed, _LOOK_EVERY_MS)
            if ticket.is_answered:
                ticket.wait(0)
        except FlowrunError as error:
            self._refused = number
            if not self._closed and not self._job.status().state.is_terminal:
                _log.warning("with %d slots: %s", number, error.message)

    def _can_move(self) -> bool:
        """Whether the job runs, or waits for slots; one that starts again after a failure is left alone."""
        status = self._job.status()
        if status.state not in (JobState.CREATED, JobState.RUNNING, JobState.RESTARTING):
            return False
        return status.state is JobState.RUNNING or status.waits_for is not None
