"""The slots of one process: who holds which, and who waits for some.

First come, first served, and all or none: a bulk that does not fit yet keeps those behind it waiting, so that a large job is not
passed by small ones for ever; and as nobody holds a part of what it waits for, waiting jobs never block each other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable

from flowrun.core.record import record
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


@record
class _Held:
    """A slot in use."""

    slot: AllocatedSlot
    job_id: str
    job_name: str
    number: int


class SlotPool:
    """A pure value that changes by calls; each call gives what jobs are to be told. Not thread-safe.

    Args:
        worker: name of the process that the slots are in.
        slots: how many there are; None: as many as are asked for.
        resources: what they divide among them.
    """

    def __init__(self, worker: str, slots: int | None, resources: ResourceProfile | None = None) -> None:
        if slots is not None and slots < 1:
            raise PipelineError.of(
                f"a cluster has at least one slot, got {slots}", hint="leave the number out for as many as jobs need"
            )
        self.total = slots
        """Slots that there are; None: as many as are asked for."""
        self._worker = worker
        self._resources = resources or ResourceProfile()
        self._default = self._resources.share(slots)
        self._held: dict[int, _Held] = {}
        self._lost: dict[int, ResourceProfile] = {}
        self._queue: list[SlotRequestBulk] = []
        self._told: dict[str, SlotsPending] = {}

    @property
    def held(self) -> dict[int, AllocatedSlot]:
        """Number of each slot in use → what it is used for."""
        return {index: held.slot for index, held in self._held.items()}

    @property
    def waiting(self) -> tuple[SlotRequestBulk, ...]:
        """The bulks that wait, in the order in which they came."""
        return tuple(self._queue)

    @property
    def free(self) -> int | None:
        """Slots that nobody holds; None: as many as are asked for."""
        return None if self.total is None else self.total - len(self._held) - len(self._lost)

    def request(self, bulk: SlotRequestBulk) -> list[SlotAnswer]:
        """Queue a bulk behind those that wait; see `SlotProvider.request_slots`.

        Raises:
            InternalError: the job uses a number twice, or asks for nothing.
        """
        known = [(b.job_id, b.number) for b in self._queue] + [(h.job_id, h.number) for h in self._held.values()]
        if not bulk.requests or (bulk.job_id, bulk.number) in known:
            raise InternalError(f"job '{bulk.job_name}' asks for slots in vain: bulk {bulk.number} is empty or not new")
        refusal = self._refusal(bulk)
        if refusal is not None:
            return [refusal]
        self._queue.append(bulk)
        return self._serve()

    def withdraw(self, job_id: str, number: int) -> list[SlotAnswer]:
        """See `SlotProvider.withdraw_slot_request`."""
        self._queue = [b for b in self._queue if (b.job_id, b.number) != (job_id, number)]
        self._free(i for i, h in self._held.items() if (h.job_id, h.number) == (job_id, number))
        return self._serve()

    def release(self, job_id: str, allocation_ids: Collection[str]) -> list[SlotAnswer]:
        """See `SlotProvider.release_slots`."""
        self._free(i for i, h in self._held.items() if h.job_id == job_id and h.slot.allocation_id in allocation_ids)
        return self._serve()

    def leave(self, job_id: str, lost: Collection[str] = ()) -> list[SlotAnswer]:
        """See `SlotProvider.leave`."""
        self._queue = [b for b in self._queue if b.job_id != job_id]
        mine = {i: h.slot for i, h in self._held.items() if h.job_id == job_id}
        self._lost |= {i: slot.profile for i, slot in mine.items() if slot.allocation_id in lost}
        self._free(mine)
        refusals: list[SlotAnswer] = []
        if lost:
            refusals += filter(None, map(self._refusal, self._queue))
            never = {(r.job_id, r.number) for r in refusals}
            self._queue = [b for b in self._queue if (b.job_id, b.number) not in never]
        return [*refusals, *self._serve()]

    def _free(self, indexes: Iterable[int]) -> None:
        for index in list(indexes):
            del self._held[index]

    def _serve(self) -> list[SlotAnswer]:
        """Grant bulks from the front of the queue as long as they fit; tell the other jobs what they wait for, if that is new.

        A job hears of the first of its bulks: those behind it wait for the same.
        """
        answers: list[SlotAnswer] = []
        while self._queue and self._fits(needed := self._profiles(self._queue[0])):
            bulk = self._queue.pop(0)
            preferred = [r.preferred.at_least(p) for r, p in zip(bulk.requests, needed, strict=True)]
            answers.append(self._grant(bulk, preferred if self._fits(preferred) else needed))
        reports: dict[str, SlotsPending] = {}
        for position, bulk in enumerate(self._queue):
            if bulk.job_id not in reports:
                reports[bulk.job_id] = self._pending(bulk, position)
        answers += [report for job_id, report in reports.items() if self._told.get(job_id) != report]
        self._told = reports
        return answers

    def _profiles(self, bulk: SlotRequestBulk) -> list[ResourceProfile]:
        return [request.profile.otherwise(self._default) for request in bulk.requests]

    def _fits(self, profiles: list[ResourceProfile]) -> bool:
        free = self.free
        used = _sum([*(h.slot.profile for h in self._held.values()), *self._lost.values(), *profiles])
        return (free is None or len(profiles) <= free) and self._resources.covers(used)

    def _grant(self, bulk: SlotRequestBulk, profiles: list[ResourceProfile]) -> SlotsGranted:
        slots: list[AllocatedSlot] = []
        index = 0
        for request, profile in zip(bulk.requests, profiles, strict=True):
            while index in self._held or index in self._lost:
                index += 1
            allocation = f"{bulk.job_id}_{bulk.number}_{request.name}"
            slot = AllocatedSlot(allocation, self._worker, index, request.name, profile)
            self._held[index] = _Held(slot, bulk.job_id, bulk.job_name, bulk.number)
            slots.append(slot)
        return SlotsGranted(bulk.job_id, bulk.number, tuple(slots))

    def _refusal(self, bulk: SlotRequestBulk) -> SlotsRefused | None:
        """Why a bulk can never be granted; None if it can."""
        needed = len(bulk.requests)
        if self.total is not None and needed > (present := self.total - len(self._lost)):
            lost = f", {len(self._lost)} more are held by subtasks that did not end" if self._lost else ""
            reason = f"needs {_counted(needed)}, there are {present}{lost}"
            hint = f"lower the parallelism or the number of slot sharing groups, or give the cluster {_counted(needed)}"
            return SlotsRefused(bulk.job_id, bulk.number, reason, hint)
        profiles = self._profiles(bulk)
        if not self._resources.covers(_sum([*profiles, *self._lost.values()])):
            largest = max(zip(profiles, bulk.requests, strict=True), key=lambda p: _size(p[0]))
            together = self._named(_sum(profiles))
            reason = (
                f"needs {_counted(needed)} of {together} together (the largest, '{largest[1].name}', of "
                f"{self._named(largest[0])}), there are {self._resources} in all"
            )
            hint = f"ask for less in the slot sharing groups, lower the parallelism, or give the cluster {together}"
            return SlotsRefused(bulk.job_id, bulk.number, reason, hint)
        return None

    def _named(self, profile: ResourceProfile) -> ResourceProfile:
        """The parts of a sum that the worker counts, for messages."""
        return ResourceProfile(
            None if self._resources.cpu_millis is None else profile.cpu_millis,
            None if self._resources.memory_bytes is None else profile.memory_bytes,
        )

    def _pending(self, bulk: SlotRequestBulk, position: int) -> SlotsPending:
        needed, free, total = len(bulk.requests), self.free, self.total
        holders = Counter(h.job_name for h in self._held.values())
        who = ", ".join(f"'{name}' {count}" for name, count in holders.most_common())
        # Without a number of slots it is resources that are short.
        of = f"{len(self._held)} are in use" if free is None else f"{free} of {total} are free"
        reason = f"needs {_counted(needed)}, {of}"
        if who:
            reason += f" (held by {who})"
        if position == 0 and (free is None or needed <= free):
            used = _sum([*(h.slot.profile for h in self._held.values()), *self._lost.values()])
            wanted = self._named(_sum(self._profiles(bulk)))
            reason += f"; of {self._resources} it needs {wanted}, {self._named(used)} are in use"
        if position:
            reason += f"; {'1 request is' if position == 1 else f'{position} requests are'} before it"
        return SlotsPending(bulk.job_id, bulk.number, needed, free, total, reason)


class LocalSlots:
    """The `SlotProvider` of one process: a pool behind a lock. Thread-safe.

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

    @property
    def held(self) -> dict[int, AllocatedSlot]:
        """Number of each slot in use → what it is used for."""
        with self._lock:
            return self._pool.held

    def _tell(self, answers: Iterable[SlotAnswer]) -> None:
        for answer in answers:
            self._requesters[answer.job_id].answer_slot_request(answer)


def _sum(profiles: Iterable[ResourceProfile]) -> ResourceProfile:
    total = ResourceProfile()
    for profile in profiles:
        total = total.plus(profile)
    return total


def _size(profile: ResourceProfile) -> tuple[int, int]:
    return profile.cpu_millis or 0, profile.memory_bytes or 0


def _counted(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"
