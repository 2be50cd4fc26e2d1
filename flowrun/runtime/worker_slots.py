"""The slots of one worker, and where the slots of a request go."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.runtime.slot_messages import AllocatedSlot, SlotRequest


@record
class HeldSlot:
    """A slot in use: what it is used for, and the bulk of requests that it answers."""

    slot: AllocatedSlot
    job_id: str
    job_name: str
    number: int


@record
class Placement:
    """Where one request goes: a free slot of a worker, and what it may use of it."""

    worker: str
    index: int
    profile: ResourceProfile


class WorkerSlots:
    """The slots of one worker.

    Args:
        name: of the worker.
        total: how many there are; None: as many as are asked for.
        resources: what they divide among them.
    """

    def __init__(self, name: str, total: int | None, resources: ResourceProfile) -> None:
        self.name = name
        self.total = total
        self.resources = resources
        self.default = resources.share(total)
        """What a slot has of which nothing is said."""
        self.held: dict[int, HeldSlot] = {}
        """Number of each slot in use → what it is used for."""
        self.lost: dict[int, ResourceProfile] = {}
        """Slots whose subtasks do not end: nobody gets them again."""

    @property
    def free(self) -> int | None:
        """Slots that nobody holds; None: as many as are asked for."""
        return None if self.total is None else self.total - len(self.held) - len(self.lost)

    @property
    def used(self) -> list[ResourceProfile]:
        """What slots that are in use, or lost, have of the resources."""
        return [*(h.slot.profile for h in self.held.values()), *self.lost.values()]

    def emptied(self) -> WorkerSlots:
        """The same worker with nothing in use but what is lost."""
        copy = WorkerSlots(self.name, self.total, self.resources)
        copy.lost = dict(self.lost)
        return copy

    def lose(self, allocations: Collection[str]) -> None:
        """The subtasks of these allocations do not end."""
        self.lost |= {i: h.slot.profile for i, h in self.held.items() if h.slot.allocation_id in allocations}

    def free_slots(self, chosen: Callable[[HeldSlot], bool]) -> None:
        """Slots are not in use any more."""
        for index in [i for i, held in self.held.items() if chosen(held)]:
            del self.held[index]


def place(
    requests: Sequence[SlotRequest], workers: Sequence[WorkerSlots], *, preferred: bool = False
) -> list[Placement] | None:
    """A place for each request, in their order; None if they do not all fit.

    The largest are placed first, each in the worker with fewest slots in use that can take it. With `preferred` each gets what it likes
    best, and no less than it needs.
    """
    waiting = [(plan.in_use, number, plan) for number, plan in enumerate(map(_Plan, workers))]
    heapq.heapify(waiting)
    order = sorted(range(len(requests)), key=lambda i: _size(requests[i], preferred=preferred), reverse=True)
    placed: dict[int, Placement] = {}
    for position in order:
        request, passed = requests[position], []
        while waiting:
            _, number, plan = heapq.heappop(waiting)
            needed = request.profile.otherwise(plan.worker.default)
            profile = request.preferred.at_least(needed) if preferred else needed
            fits = plan.fits(profile)
            if fits:
                placed[position] = plan.take(profile)
            passed.append((plan.in_use, number, plan))
            if fits:
                break
        if position not in placed:
            return None
        for entry in passed:
            heapq.heappush(waiting, entry)
    return [placed[position] for position in range(len(requests))]


def total_of(profiles: Iterable[ResourceProfile]) -> ResourceProfile:
    """All together."""
    total = ResourceProfile()
    for profile in profiles:
        total = total.plus(profile)
    return total


class _Plan:
    """A worker with what is to be placed in it."""

    __slots__ = ("_next", "_used", "in_use", "worker")

    def __init__(self, worker: WorkerSlots) -> None:
        self.worker = worker
        self.in_use = len(worker.held) + len(worker.lost)
        self._used = total_of(worker.used)
        self._next = 0

    def fits(self, profile: ResourceProfile) -> bool:
        has_slot = self.worker.total is None or self.in_use < self.worker.total
        return has_slot and self.worker.resources.covers(self._used.plus(profile))

    def take(self, profile: ResourceProfile) -> Placement:
        while self._next in self.worker.held or self._next in self.worker.lost:
            self._next += 1
        index, self._next = self._next, self._next + 1
        self.in_use += 1
        self._used = self._used.plus(profile)
        return Placement(self.worker.name, index, profile)


def _size(request: SlotRequest, *, preferred: bool) -> tuple[int, int]:
    asked = request.preferred.at_least(request.profile) if preferred else request.profile
    return asked.cpu_millis or 0, asked.memory_bytes or 0
