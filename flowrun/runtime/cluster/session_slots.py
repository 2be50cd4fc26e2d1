"""The slots of a session cluster: which task managers there are, and which job has which of their slots.

A job says how many slots it needs as long as it runs (a declarative requirement, as in Apache Flink), and gets them as worker processes of
one slot each: processes, as they alone use more than one core. Jobs are served in the order in which they came. One that needs
more than all task managers have together waits without keeping others waiting.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.cluster.session_messages import TaskManagerGateway, TaskManagerRegistration, WorkerAssignment
from flowrun.runtime.timers import TimerThread

AFTER_A_FAILURE_MS = 1_000
"""How long a slot stays empty whose worker died, so that a job whose workers cannot begin does not keep the machine busy with starts."""

_log = logging.getLogger(__name__)


@record(eq=False, frozen=False)
class Requirement:
    """What a run of a job needs, and has.

    Attributes:
        job_manager: where its workers connect to.
        slots: that it needs.
        workers: processes that it has, of one slot each.
        lost_in: task managers in which workers of it died: what they have written is there.
    """

    job_manager: str
    slots: int
    workers: int = 0
    lost_in: set[str] = field(default_factory=set)


@record(eq=False)
class TaskManagerSlots:
    """A task manager and what its slots are used for.

    Attributes:
        registration: what it offers.
        gateway: how it is reached.
        workers: name of each worker process → whose it is.
        resting: workers that died, and whose slots are not given to anyone yet.
    """

    registration: TaskManagerRegistration
    gateway: TaskManagerGateway
    workers: dict[str, Requirement] = field(default_factory=dict)
    resting: set[str] = field(default_factory=set)

    @property
    def free(self) -> int:
        """Slots that may be given to a job now."""
        return self.registration.slots - len(self.workers) - len(self.resting)


class SessionSlots:
    """Thread-safe.

    Args:
        timers: of the process.
    """

    def __init__(self, timers: TimerThread) -> None:
        self._timers = timers
        self._lock = threading.Lock()
        self._managers: dict[str, TaskManagerSlots] = {}
        self._jobs: dict[str, Requirement] = {}
        """By id, in the order in which they came."""
        self._numbers = itertools.count(1)

    @property
    def task_managers(self) -> Sequence[TaskManagerSlots]:
        """Those that are there."""
        with self._lock:
            return list(self._managers.values())

    def add(self, registration: TaskManagerRegistration, gateway: TaskManagerGateway) -> TaskManagerSlots:
        """A task manager has come. One of a name that is known takes its place."""
        manager = TaskManagerSlots(registration, gateway)
        with self._lock:
            known = self._managers.get(registration.name)
        if known is not None:
            self.remove(known, "another one has come under its name")
        with self._lock:
            self._managers[registration.name] = manager
        _log.info(
            "task manager %s (process %d on %s) offers %d slots",
            registration.name, registration.pid, registration.host, registration.slots,
        )  # fmt: skip
        self._assign()
        return manager

    def remove(self, manager: TaskManagerSlots, reason: str) -> None:
        """A task manager is gone, and its workers with it."""
        with self._lock:
            if self._managers.get(manager.registration.name) is not manager:
                return
            del self._managers[manager.registration.name]
            for requirement in manager.workers.values():
                requirement.workers -= 1
            manager.workers.clear()
        _log.warning("task manager %s is gone: %s", manager.registration.name, reason)
        self._assign()

    def require(self, job_id: str, job_manager: str, slots: int) -> None:
        """A job needs so many slots from now on; workers in them connect to its job manager. Takes the place of what it needed before."""
        with self._lock:
            known = self._jobs.get(job_id)
            if known is not None and known.job_manager == job_manager:
                known.slots = slots
            else:
                self._jobs[job_id] = Requirement(job_manager, slots)
        if known is not None and known.job_manager != job_manager:
            self._forget_files(known)
        self._assign()

    def forget(self, job_id: str) -> None:
        """A job needs no slots any more; its workers end by themselves, and what they have left is deleted. Idempotent."""
        with self._lock:
            gone = self._jobs.pop(job_id, None)
        if gone is not None:
            self._forget_files(gone)
        self._assign()

    def end_worker(self, manager: TaskManagerSlots, worker: str, how: str, *, failed: bool) -> None:
        """A worker process is over."""
        with self._lock:
            requirement = manager.workers.pop(worker, None)
            if requirement is None:
                return
            requirement.workers -= 1
            if failed:
                manager.resting.add(worker)
                requirement.lost_in.add(manager.registration.name)
        if failed:
            _log.warning("worker %s %s", worker, how)
            self._timers.after(AFTER_A_FAILURE_MS, lambda: self._wake(manager, worker))
        self._assign()

    def waits_for(self, job_id: str) -> str | None:
        """What a job waits for, as a clause; None if it has the slots that it needs."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.workers >= job.slots:
                return None
            total = sum(m.registration.slots for m in self._managers.values())
            free = sum(m.free for m in self._managers.values())
            earlier = itertools.takewhile(lambda known: known != job_id, self._jobs)
            before = sum(self._jobs[other].workers < self._jobs[other].slots <= total for other in earlier)
        managers = "no task manager is there" if not total else f"{free} of {total} are free"
        waiting = f"; {'1 job is' if before == 1 else f'{before} jobs are'} before it"
        return (
            f"slots: needs {job.slots}, has {job.workers}, {managers}{waiting if before and job.slots <= total else ''}"
        )

    def _forget_files(self, gone: Requirement) -> None:
        for manager in self.task_managers:
            with suppress(ClusterError):  # it is gone, and its files with it
                manager.gateway.forget_job_manager(gone.job_manager)

    def _wake(self, manager: TaskManagerSlots, worker: str) -> None:
        with self._lock:
            manager.resting.discard(worker)
        self._assign()

    def _assign(self) -> None:
        """Give free slots to jobs, and have the task managers start workers in them."""
        with self._lock:
            calls = self._choose()
        for call in calls:
            try:
                call()
            except ClusterError as error:  # its connection is over, which is told to `remove`
                _log.debug("a worker could not be started: %s", error.message)

    def _choose(self) -> list[Callable[[], None]]:
        calls: list[Callable[[], None]] = []
        total = sum(m.registration.slots for m in self._managers.values())
        for job in self._jobs.values():
            lacking = job.slots - job.workers
            if lacking <= 0 or job.slots > total:
                continue
            if lacking > sum(m.free for m in self._managers.values()):
                break  # those that came later wait as well, so that a big job has its turn
            calls += [self._start_worker(job) for _ in range(lacking)]
        return calls

    def _start_worker(self, job: Requirement) -> Callable[[], None]:
        """Take a slot of the task manager that has most left, so that jobs spread over the machines; before that one where the job has
        lost a worker, so that what that one has written can be read.
        """
        free = [m for m in self._managers.values() if m.free > 0]
        manager = max(free, key=lambda m: (m.registration.name in job.lost_in, m.free))
        job.lost_in.discard(manager.registration.name)
        worker = f"{manager.registration.name}-{next(self._numbers)}"
        manager.workers[worker] = job
        job.workers += 1
        assignment = WorkerAssignment(worker, job.job_manager, 1)
        return lambda: manager.gateway.start_worker(assignment)
