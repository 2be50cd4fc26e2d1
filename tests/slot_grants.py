"""A scheduler whose slots are always there, for tests of everything else."""

from __future__ import annotations

from flowrun.core.resources import ResourceProfile
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.jobmaster.scheduler_events import Command, Event, ReleaseSlots, RequestSlots, WithdrawSlotRequest
from flowrun.runtime.slot_messages import AllocatedSlot, SlotsGranted


def granted(request: RequestSlots) -> SlotsGranted:
    """Every slot that is asked for."""
    slots = tuple(
        AllocatedSlot(f"{request.number}_{r.name}", "local", i, r.name, ResourceProfile())
        for i, r in enumerate(request.requests)
    )
    return SlotsGranted("job", request.number, slots)


def handle(scheduler: Scheduler, event: Event, now_ms: int) -> list[Command]:
    """What the scheduler says of an event, with all slots granted at once."""
    commands: list[Command] = []
    for command in scheduler.handle(event, now_ms):
        if isinstance(command, RequestSlots):
            commands += handle(scheduler, granted(command), now_ms)
        elif not isinstance(command, ReleaseSlots | WithdrawSlotRequest):
            commands.append(command)
    return commands
