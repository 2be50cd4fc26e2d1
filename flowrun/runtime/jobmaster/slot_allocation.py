"""Which units of a job have their slots, and which wait for some. A pure state machine, part of the scheduler."""

from __future__ import annotations

from collections.abc import Collection

from flowrun.errors import NeverEnoughSlotsError, NoResourceAvailableError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertex, ExecutionVertexId, PartitionId
from flowrun.runtime.jobmaster import scheduler_events as events
from flowrun.runtime.jobmaster.regions import PipelinedRegion
from flowrun.runtime.jobmaster.slots import scheduling_units
from flowrun.runtime.slot_messages import AllocatedSlot, SlotsGranted, SlotsPending, SlotsRefused


class SlotAllocation:
    """The slots of one job, unit by unit. Owned by the job master's thread; not thread-safe.

    A unit asks for all its slots at once, and keeps them while it is restarted. If some are lost it gives the others back and asks again
    for all: who waits holds nothing.

    Args:
        graph: the parallel job.
        found: its pipelined regions.
    """

    def __init__(self, graph: ExecutionGraph, found: tuple[PipelinedRegion, ...]) -> None:
        self._job_name = graph.job_graph.name
        self.units = scheduling_units(graph, found)
        """What is deployed together, in topological order."""
        self.unit_of = {vertex: number for number, unit in enumerate(self.units) for vertex in unit.vertices}
        """Subtask → position of its unit."""
        self._name_of = {v: slot.name for unit in self.units for slot in unit.slots for v in slot.vertices}
        self._readers: dict[PartitionId, list[int]] = {}
        for number, unit in enumerate(self.units):
            for partition in unit.reads:
                self._readers.setdefault(partition, []).append(number)
        self._next_number = 1
        self._asked: dict[int, int] = {}
        """Number of a bulk → the unit that waits for it."""
        self._held: dict[int, dict[str, AllocatedSlot]] = {}
        """Unit → its slots, by name."""
        self._reports: dict[int, SlotsPending] = {}
        """Number of a bulk → what it waits for, as was told last."""

    @property
    def is_staged(self) -> bool:
        """Whether there are stages, which need slots one after the other."""
        return len(self.units) > 1

    def readers(self, vertex: ExecutionVertex) -> list[int]:
        """The units that read what a subtask writes, in topological order; units that run at the same time as it are not meant."""
        return sorted({unit for partition in vertex.partitions for unit in self._readers.get(partition.id, ())})

    def holds(self, unit: int) -> bool:
        """Whether a unit has all its slots."""
        return len(self._held.get(unit, ())) == len(self.units[unit].slots)

    def waits(self, unit: int) -> bool:
        """Whether a unit has asked for slots that it did not get yet."""
        return unit in self._asked.values()

    def request(self, unit: int) -> events.RequestSlots:
        """Have all slots of a unit asked for, instead of those that it still has."""
        number, self._next_number = self._next_number, self._next_number + 1
        self._asked[number] = unit
        left = tuple(slot.allocation_id for slot in self._held.pop(unit, {}).values())
        return events.RequestSlots(number, tuple(slot.request for slot in self.units[unit].slots), left)

    def grant(self, granted: SlotsGranted) -> int | None:
        """Note that a unit has the slots that it asked for; gives the unit, or None if it has given up waiting for them."""
        unit = self._answered(granted.number)
        if unit is not None:
            self._held[unit] = {slot.name: slot for slot in granted.slots}
        return unit

    def lose_worker(self, worker: str) -> None:
        """A worker is gone: its slots are nobody's any more."""
        for held in self._held.values():
            for name in [name for name, slot in held.items() if slot.worker == worker]:
                del held[name]

    def report(self, pending: SlotsPending) -> None:
        """Note what a unit waits for."""
        if pending.number in self._asked:
            self._reports[pending.number] = pending

    def report_of(self, number: int) -> SlotsPending | None:
        """What a bulk waits for, or the one of the job that is before it; None if nothing was told."""
        return self._reports.get(number) or self.pending

    @property
    def pending(self) -> SlotsPending | None:
        """What the job has waited for longest, as it was told last; None if it waits for nothing. From any thread."""
        reports = self._reports.copy()
        return reports[min(reports)] if reports else None

    def refuse(self, answer: SlotsRefused | events.SlotRequestTimedOut) -> bool:
        """Note that a unit will not get its slots; whether it waited for them."""
        return self._answered(answer.number) is not None

    def lack(self, answer: SlotsRefused | events.SlotRequestTimedOut) -> NoResourceAvailableError:
        """The error for slots that do not come."""
        if isinstance(answer, SlotsRefused):
            return NeverEnoughSlotsError(f"job '{self._job_name}' {answer.reason}", hint=answer.hint)
        pending = self.report_of(answer.number)
        reason = "got no answer to its request for slots" if pending is None else pending.reason
        return NoResourceAvailableError(
            f"job '{self._job_name}' {reason}; it waited {answer.waited}",
            hint="wait for the end of other jobs, give the cluster more slots, or have the job wait longer (slots.request_timeout)",
        )

    def outlasts(self, number: int) -> bool:
        """Whether a bulk is waited for without limit: other stages of the job have slots, and will give them back."""
        asking = self._asked.get(number)
        return asking is not None and any(held for unit, held in self._held.items() if unit != asking)

    def withdraw(self, vertices: Collection[ExecutionVertexId]) -> list[events.Command]:
        """Have the units of these subtasks wait no more."""
        units = {self.unit_of[vertex] for vertex in vertices}
        numbers = [number for number, unit in self._asked.items() if unit in units]
        for number in numbers:
            self._answered(number)
        return [events.WithdrawSlotRequest(number) for number in numbers]

    def release(self, unit: int) -> list[events.Command]:
        """Have the slots of a unit given back, if it has any."""
        slots = self._held.pop(unit, {})
        return [events.ReleaseSlots(tuple(slot.allocation_id for slot in slots.values()))] if slots else []

    def slot_of(self, vertex: ExecutionVertexId) -> AllocatedSlot | None:
        """The slot that a subtask may use; None if it has none."""
        return self._held.get(self.unit_of[vertex], {}).get(self._name_of[vertex])

    @property
    def held(self) -> int:
        """How many slots the job has. From any thread."""
        return sum(map(len, list(self._held.values())))

    def _answered(self, number: int) -> int | None:
        self._reports.pop(number, None)
        return self._asked.pop(number, None)
