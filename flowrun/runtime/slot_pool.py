"""The slots of one process or of many: who holds which, and who waits for some.

First come, first served, and all or none: a bulk that does not fit yet keeps those behind it waiting, so that a large job is not
passed by small ones for ever; and as nobody holds a part of what it waits for, waiting jobs never block each other. A job that has lost
some of its slots gives back the others when it asks again, and comes before those that wait.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from flowrun.core.resources import ResourceProfile
from flowrun.errors import InternalError, PipelineError
from flowrun.runtime.slot_messages import (
    AllocatedSlot,
    SlotAnswer,
    SlotRequestBulk,
    SlotRequester,
    SlotsGranted,
    SlotsPending,
    SlotsRefused,
)
from flowrun.runtime.worker_slots import HeldSlot, Placement, WorkerSlots, place, total_of

_log = logging.getLogger(__name__)


Expect: TypeAlias = Callable[[int | None, str], None]
"""Is told how many slots there will be when all workers have come, and why there are no more; see `SlotPool.expect`."""


class SlotPool:
    """A pure value that changes by calls; each call gives what jobs are to be told. Not thread-safe.

    Slots of a bulk are spread over the workers: each goes to the worker that has fewest in use, so that a job uses all processes
    that it can (Flink: `cluster.evenly-spread-out-slots`).

    Args:
        worker: name of a process that slots are in; None: there is none yet.
        slots: how many there are in it; None: as many as are asked for.
        resources: what they divide among them.
        expected: slots that there will be when all workers that are being started have come: what needs no more waits for them; None:
            any number.
    """

    def __init__(
        self,
        worker: str | None,
        slots: int | None,
        resources: ResourceProfile | None = None,
        expected: int | None = 0,
    ) -> None:
        self._expected = expected
        self._why = ""
        self._workers: dict[str, WorkerSlots] = {}
        self._queue: list[SlotRequestBulk] = []
        self._told: dict[str, SlotsPending] = {}
        if worker is not None:
            self.add_worker(worker, slots, resources)

    @property
    def workers(self) -> tuple[WorkerSlots, ...]:
        """In the order in which they came."""
        return tuple(self._workers.values())

    @property
    def held(self) -> dict[tuple[str, int], AllocatedSlot]:
        """Worker and number of each slot in use → what it is used for."""
        return {(w.name, index): held.slot for w in self._workers.values() for index, held in w.held.items()}

    @property
    def waiting(self) -> tuple[SlotRequestBulk, ...]:
        """The bulks that wait, in the order in which they came."""
        return tuple(self._queue)

    @property
    def total(self) -> int | None:
        """Slots that there are; None: as many as are asked for."""
        return _added(w.total for w in self._workers.values())

    @property
    def free(self) -> int | None:
        """Slots that nobody holds; None: as many as are asked for."""
        return _added(w.free for w in self._workers.values())

    def add_worker(self, name: str, slots: int | None, resources: ResourceProfile | None = None) -> list[SlotAnswer]:
        """A worker has come, with its slots.

        Raises:
            PipelineError: it has no slot.
            InternalError: it is there already.
        """
        if slots is not None and slots < 1:
            raise PipelineError.of(
                f"a cluster has at least one slot, got {slots}", hint="leave the number out for as many as jobs need"
            )
        if name in self._workers:
            raise InternalError(f"worker '{name}' came twice")
        self._workers[name] = WorkerSlots(name, slots, resources or ResourceProfile())
        return self._serve()

    def remove_worker(self, name: str) -> tuple[dict[str, tuple[AllocatedSlot, ...]], list[SlotAnswer]]:
        """A worker is gone: gives what each job has lost with it, by job id. Idempotent."""
        worker = self._workers.pop(name, None)
        lost: dict[str, tuple[AllocatedSlot, ...]] = {}
        if worker is not None:
            for held in worker.held.values():
                lost[held.job_id] = (*lost.get(held.job_id, ()), held.slot)
        return lost, [*self._refuse_hopeless(), *self._serve()]

    def expect(self, slots: int | None, why: str = "") -> list[SlotAnswer]:
        """So many slots will be there from now on when all workers have come that are being started.

        `why` says why there are no more, for who needs more: a clause; empty: nobody has asked for more.
        """
        self._expected, self._why = slots, why
        return [*self._refuse_hopeless(), *self._serve()]

    def request(self, bulk: SlotRequestBulk) -> list[SlotAnswer]:
        """Queue a bulk behind those that wait, or before them if it is for slots that were lost; see `SlotProvider.request_slots`.

        Raises:
            InternalError: the job uses a number twice, or asks for nothing.
        """
        known = [(b.job_id, b.number) for b in self._queue] + [(h.job_id, h.number) for h in self._all_held()]
        if not bulk.requests or (bulk.job_id, bulk.number) in known:
            raise InternalError(f"job '{bulk.job_name}' asks for slots in vain: bulk {bulk.number} is empty or not new")
        self._free(lambda h: h.job_id == bulk.job_id and h.slot.allocation_id in bulk.instead_of)
        refusal = self._refusal(bulk)
        if refusal is not None:
            return [refusal, *(self._serve() if bulk.instead_of else ())]
        before = [b for b in self._queue if b.instead_of or not bulk.instead_of]
        self._queue = [*before, bulk, *(b for b in self._queue if b not in before)]
        return self._serve()

    def withdraw(self, job_id: str, number: int) -> list[SlotAnswer]:
        """See `SlotProvider.withdraw_slot_request`."""
        self._queue = [b for b in self._queue if (b.job_id, b.number) != (job_id, number)]
        self._free(lambda h: (h.job_id, h.number) == (job_id, number))
        return self._serve()

    def release(self, job_id: str, allocation_ids: Collection[str]) -> list[SlotAnswer]:
        """See `SlotProvider.release_slots`."""
        self._free(lambda h: h.job_id == job_id and h.slot.allocation_id in allocation_ids)
        return self._serve()

    def leave(self, job_id: str, lost: Collection[str] = ()) -> list[SlotAnswer]:
        """See `SlotProvider.leave`."""
        self._queue = [b for b in self._queue if b.job_id != job_id]
        for worker in self._workers.values():
            worker.lose(lost)
        self._free(lambda h: h.job_id == job_id)
        return [*(self._refuse_hopeless() if lost else ()), *self._serve()]

    def _all_held(self) -> list[HeldSlot]:
        return [held for worker in self._workers.values() for held in worker.held.values()]

    def _free(self, chosen: Callable[[HeldSlot], bool]) -> None:
        for worker in self._workers.values():
            worker.free_slots(chosen)

    def _refuse_hopeless(self) -> list[SlotAnswer]:
        """Have those go who waited for what will never be there."""
        refusals: list[SlotAnswer] = [*filter(None, map(self._refusal, self._queue))]
        never = {(r.job_id, r.number) for r in refusals}
        self._queue = [b for b in self._queue if (b.job_id, b.number) not in never]
        return refusals

    def _serve(self) -> list[SlotAnswer]:
        """Grant bulks from the front of the queue as long as they fit; tell the other jobs what they wait for, if that is new.

        A job hears of the first of its bulks: those behind it wait for the same.
        """
        answers: list[SlotAnswer] = []
        while self._queue:
            bulk = self._queue[0]
            placed = place(bulk.requests, self.workers)
            if placed is None:
                break
            if any(request.preferred != ResourceProfile() for request in bulk.requests):
                placed = place(bulk.requests, self.workers, preferred=True) or placed
            self._queue.pop(0)
            answers.append(self._grant(bulk, placed))
        reports: dict[str, SlotsPending] = {}
        for position, bulk in enumerate(self._queue):
            if bulk.job_id not in reports:
                reports[bulk.job_id] = self._pending(bulk, position)
        answers += [report for job_id, report in reports.items() if self._told.get(job_id) != report]
        self._told = reports
        return answers

    def _grant(self, bulk: SlotRequestBulk, placed: Sequence[Placement]) -> SlotsGranted:
        slots: list[AllocatedSlot] = []
        for request, chosen in zip(bulk.requests, placed, strict=True):
            allocation = f"{bulk.job_id}_{bulk.number}_{request.name}"
            slot = AllocatedSlot(allocation, chosen.worker, chosen.index, request.name, chosen.profile)
            self._workers[chosen.worker].held[chosen.index] = HeldSlot(slot, bulk.job_id, bulk.job_name, bulk.number)
            slots.append(slot)
        return SlotsGranted(bulk.job_id, bulk.number, tuple(slots))

    def _refusal(self, bulk: SlotRequestBulk) -> SlotsRefused | None:
        """Why a bulk can never be granted; None if it can."""
        needed = len(bulk.requests)
        expected = self._expected
        if expected is None or needed <= expected:
            return None
        lost = sum(len(w.lost) for w in self._workers.values())
        total = self.total
        if total is not None and needed > (present := max(total - lost, expected)):
            more = f", {lost} more are held by subtasks that did not end" if lost else ""
            reason = f"needs {_counted(needed)}, there are {present}{more}"
            hint = f"lower the parallelism or the number of slot sharing groups, or give the cluster {_counted(needed)}"
            if self._why:
                reason += f": {self._why}"
                hint = "run the command again, or go on from the last checkpoint: flowrun resume --from-savepoint PATH"
            return SlotsRefused(bulk.job_id, bulk.number, reason, hint)
        if place(bulk.requests, [w.emptied() for w in self._workers.values()]) is None:
            return self._too_large(bulk)
        return None

    def _too_large(self, bulk: SlotRequestBulk) -> SlotsRefused:
        """Of a bulk whose resources fit nowhere, however much is free."""
        profiles = self._profiles(bulk)
        largest = max(zip(profiles, bulk.requests, strict=True), key=lambda p: _size(p[0]))
        resources = self._resources
        together = resources.masks(total_of(profiles))
        reason = (
            f"needs {_counted(len(bulk.requests))} of {together} together (the largest, '{largest[1].name}', of "
            f"{resources.masks(largest[0])}), there are {resources} in all"
        )
        if len(self._workers) > 1:
            reason += f" in {len(self._workers)} workers"
        hint = f"ask for less in the slot sharing groups, lower the parallelism, or give the cluster {together}"
        return SlotsRefused(bulk.job_id, bulk.number, reason, hint)

    @property
    def _resources(self) -> ResourceProfile:
        """What all workers have; of several, what each of them counts."""
        known = [w.resources for w in self._workers.values()]
        cpus, memories = [r.cpu_millis for r in known], [r.memory_bytes for r in known]
        return ResourceProfile(_added(cpus) if cpus else None, _added(memories) if memories else None)

    def _profiles(self, bulk: SlotRequestBulk) -> list[ResourceProfile]:
        """What a bulk asks for, or, where it does not say, what a slot of the first worker has."""
        default = next((w.default for w in self._workers.values()), ResourceProfile())
        return [request.profile.otherwise(default) for request in bulk.requests]

    def _pending(self, bulk: SlotRequestBulk, position: int) -> SlotsPending:
        needed, free, total = len(bulk.requests), self.free, self.total
        held = self._all_held()
        holders = Counter(h.job_name for h in held)
        who = ", ".join(f"'{name}' {count}" for name, count in holders.most_common())
        # Without a number of slots it is resources that are short.
        of = f"{len(held)} are in use" if free is None else f"{free} of {total} are free"
        reason = f"needs {_counted(needed)}, {of}"
        if who:
            reason += f" (held by {who})"
        if position == 0 and (free is None or needed <= free):
            resources = self._resources
            used = total_of([profile for w in self._workers.values() for profile in w.used])
            wanted = resources.masks(total_of(self._profiles(bulk)))
            reason += f"; of {resources} it needs {wanted}, {resources.masks(used)} are in use"
        if position:
            reason += f"; {'1 request is' if position == 1 else f'{position} requests are'} before it"
        return SlotsPending(bulk.job_id, bulk.number, needed, free, total, reason)


class LocalSlots:
    """The `SlotProvider` for jobs in this process: a pool behind a lock. Thread-safe.

    Requesters are told while the lock is held, so that nobody hears of two things in the wrong order; they must not block.
    """

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._requesters: dict[str, SlotRequester] = {}

    def request_slots(self, bulk: SlotRequestBulk, requester: SlotRequester) -> None:
        """See `SlotProvider`."""
        with self._lock:
            self._requesters[bulk.job_id] = requester
            self._tell(self._pool.request(bulk))

    def withdraw_slot_request(self, job_id: str, number: int) -> None:
        """See `SlotProvider`."""
        with self._lock:
            self._tell(self._pool.withdraw(job_id, number))

    def release_slots(self, job_id: str, allocation_ids: Collection[str]) -> None:
        """See `SlotProvider`."""
        with self._lock:
            self._tell(self._pool.release(job_id, allocation_ids))

    def leave(self, job_id: str, lost: Collection[str] = ()) -> None:
        """See `SlotProvider`."""
        with self._lock:
            self._requesters.pop(job_id, None)
            self._tell(self._pool.leave(job_id, lost))
            in_use, gone = len(self._pool.held), sum(len(worker.lost) for worker in self._pool.workers)
        _log.info("job %s has given back its slots: %d are in use, %d lost", job_id, in_use, gone)

    def add_worker(self, name: str, slots: int | None, resources: ResourceProfile | None = None) -> None:
        """A worker has come; see `SlotPool.add_worker`."""
        with self._lock:
            self._tell(self._pool.add_worker(name, slots, resources))

    def remove_worker(self, name: str) -> dict[str, tuple[AllocatedSlot, ...]]:
        """A worker is gone; gives what each job has lost with it, by job id."""
        with self._lock:
            lost, answers = self._pool.remove_worker(name)
            self._tell(answers)
            return lost

    def expect(self, slots: int | None, why: str = "") -> None:
        """So many slots will be there when all workers have come that are being started; see `SlotPool.expect`."""
        with self._lock:
            self._tell(self._pool.expect(slots, why))

    @property
    def workers(self) -> tuple[WorkerSlots, ...]:
        """In the order in which they came."""
        with self._lock:
            return self._pool.workers

    @property
    def held(self) -> dict[tuple[str, int], AllocatedSlot]:
        """Worker and number of each slot in use → what it is used for."""
        with self._lock:
            return self._pool.held

    def _tell(self, answers: Iterable[SlotAnswer]) -> None:
        for answer in answers:
            self._requesters[answer.job_id].answer_slot_request(answer)


def _added(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is."""
    listed = list(numbers)
    return None if None in listed else sum(n for n in listed if n is not None)


def _size(profile: ResourceProfile) -> tuple[int, int]:
    return profile.cpu_millis or 0, profile.memory_bytes or 0


def _counted(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"
