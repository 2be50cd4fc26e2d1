"""Everything that a job master and whoever has slots say to each other.

In one process the cluster's own pool gives slots (`flowrun.runtime.slot_pool`). A resource manager that hands out slots of other
processes speaks the same contract: a job asks for the slots that it needs at one time, and hears that it has them all, that it
waits and for what, or that it will never get them. It never holds a part of what it needs, so jobs cannot block each other.

All messages are frozen values. Gateways are thread-safe and never block.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeAlias

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile


@record
class SlotRequest:
    """One slot that is needed.

    Attributes:
        name: tells the slots of one bulk apart: group and number, such as `default/1`.
        profile: what it must have.
        preferred: what it gets if so much is free; what is unknown is not preferred to what it must have.
    """

    name: str
    profile: ResourceProfile = ResourceProfile()
    preferred: ResourceProfile = ResourceProfile()


@record
class SlotRequestBulk:
    """Slots that a job needs at one time: it gets all of them or none.

    Attributes:
        job_id: the run of the job.
        job_name: for people.
        number: of this bulk within the job; answers bear it.
        requests: at least one.
        instead_of: allocations that the job gives back with this request: of the slots that it had some were lost, and while it waits it
            holds none. It was served before those who wait now, so it comes before them.
    """

    job_id: str
    job_name: str
    number: int
    requests: tuple[SlotRequest, ...]
    instead_of: tuple[str, ...] = ()


@record
class AllocatedSlot:
    """A slot that a job holds until it gives it back.

    Attributes:
        allocation_id: unique to this allocation.
        worker: the process that the slot is in.
        index: number of the slot there.
        name: of the request that it answers.
        profile: what the job may use of the worker.
    """

    allocation_id: str
    worker: str
    index: int
    name: str
    profile: ResourceProfile


@record
class SlotsGranted:
    """Every slot of a bulk, in the order of its requests."""

    job_id: str
    number: int
    slots: tuple[AllocatedSlot, ...]


@record
class SlotsPending:
    """A bulk waits, the first of its job that does. Comes again whenever that changes.

    Attributes:
        job_id: as in the bulk.
        number: as in the bulk.
        needed: slots of the bulk.
        free: slots that nobody holds; None: their number is not limited, resources are.
        total: slots that there are; None likewise.
        reason: for people: what it waits for, who has it, who is before it.
    """

    job_id: str
    number: int
    needed: int
    free: int | None
    total: int | None
    reason: str


@record
class SlotsRefused:
    """A bulk will never fit: there are not so many slots, or they are too small. It is forgotten.

    Attributes:
        job_id: as in the bulk.
        number: as in the bulk.
        reason: for people, as a whole clause: needed and present slots.
        hint: what to do about it.
    """

    job_id: str
    number: int
    reason: str
    hint: str


SlotAnswer: TypeAlias = SlotsGranted | SlotsPending | SlotsRefused


class SlotRequester(Protocol):
    """What whoever has slots calls: a job master."""

    def answer_slot_request(self, answer: SlotAnswer) -> None:
        """Something is known of a bulk. Answers to bulks that were withdrawn meanwhile are ignored."""
        ...


class SlotProvider(Protocol):
    """What a job master calls."""

    def request_slots(self, bulk: SlotRequestBulk, requester: SlotRequester) -> None:
        """Ask for slots; `requester` is told. Bulks are served in the order in which they come."""
        ...

    def withdraw_slot_request(self, job_id: str, number: int) -> None:
        """A bulk is not needed any more; if its slots are on their way, they are free again."""
        ...

    def release_slots(self, job_id: str, allocation_ids: Collection[str]) -> None:
        """Slots are not needed any more."""
        ...

    def leave(self, job_id: str, lost: Collection[str] = ()) -> None:
        """The job is over: all its slots are free, and its bulks are forgotten. Idempotent.

        Allocations in `lost` are not given to anyone again: subtasks that do not end are in them.
        """
        ...
