"""Where the subtasks of a job would run: the slot and the process of each, and what kinds of channels are between them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.graph.job_graph import JobEdge, ResultType
from flowrun.runtime.jobmaster.slots import SchedulingUnit, SharedSlot, slot_of
from flowrun.runtime.slot_messages import SlotRequestBulk
from flowrun.runtime.slot_pool import SlotPool
from flowrun.runtime.worker_slots import WorkerSlots

_JOB = "job"


class ChannelKind(Enum):
    """Between which subtasks a channel is."""

    SAME_SLOT = "same slot"
    SAME_PROCESS = "same process"
    OTHER_PROCESS = "other process"


@record
class PlacedSlot:
    """A slot of a job.

    Attributes:
        unit: position of the subtasks that are deployed together.
        slot: which subtasks are in it.
        worker: number of its process, from 1; None: there is no place for all slots of its unit.
    """

    unit: int
    slot: SharedSlot
    worker: int | None


@record
class ExchangeChannels:
    """The channels of one edge of the job graph: how many there are of each kind, if all slots have a process."""

    edge: JobEdge
    type: ResultType
    channels: int
    kinds: dict[ChannelKind, int] | None


@record
class Placement:
    """A job on some processes. `slots`: in the order of units; `exchanges`: in topological order of their readers."""

    slots: tuple[PlacedSlot, ...]
    exchanges: tuple[ExchangeChannels, ...]


def place_job(graph: ExecutionGraph, units: Sequence[SchedulingUnit], workers: Sequence[WorkerSlots]) -> Placement:
    """Where a job runs that has these workers for itself: the slots that it would be given if each subtask took as long as any other.

    A unit that reads what others write follows them; one that does not fit beside others follows those, too.

    Args:
        graph: the parallel job.
        units: its subtasks as they are deployed together.
        workers: the processes, with nothing in use.
    """
    numbers = {worker.name: number for number, worker in enumerate(workers, start=1)}
    pool = SlotPool(None, None, expected=None)
    for worker in workers:
        pool.add_worker(worker.name, worker.total, worker.resources)
    writers = {p.id: vertex.id for vertex in graph.all_vertices() for p in vertex.partitions}
    unit_of = {vertex: number for number, unit in enumerate(units) for vertex in unit.vertices}
    slots: list[PlacedSlot] = []
    for number, unit in enumerate(units):
        _end(pool, {unit_of[writers[partition]] for partition in unit.reads})
        bulk = SlotRequestBulk(_JOB, _JOB, number, tuple(slot.request for slot in unit.slots))
        pool.request(bulk)
        if pool.waiting:
            _end(pool, range(number))
        given = {
            s.name: numbers[s.worker] for s in pool.held.values() if s.allocation_id.startswith(f"{_JOB}_{number}_")
        }
        if pool.waiting:
            _end(pool, [number])
        slots += [PlacedSlot(number, slot, given.get(slot.name)) for slot in unit.slots]
    return Placement(tuple(slots), tuple(_exchanges(graph, units, slots)))


def _end(pool: SlotPool, units: Iterable[int]) -> None:
    """Units have come to their ends, and give back their slots."""
    for number in units:
        pool.withdraw(_JOB, number)


def _exchanges(
    graph: ExecutionGraph, units: Sequence[SchedulingUnit], slots: Sequence[PlacedSlot]
) -> list[ExchangeChannels]:
    places: dict[ExecutionVertexId, tuple[int, str, int | None]] = {}
    workers = {(placed.unit, placed.slot.name): placed.worker for placed in slots}
    for number, unit in enumerate(units):
        for vertex, slot in slot_of(unit.slots).items():
            places[vertex] = number, slot.name, workers[number, slot.name]
    is_placed = all(placed.worker is not None for placed in slots)
    exchanges = []
    for job_vertex in graph.job_vertices:
        for position, edge in enumerate(job_vertex.job_vertex.inputs):
            gates = [(vertex.id, vertex.gates[position]) for vertex in job_vertex.vertices]
            kinds = Counter(_kind(places[c.producer], places[reader]) for reader, gate in gates for c in gate.channels)
            counted = {kind: kinds[kind] for kind in ChannelKind} if is_placed else None
            exchanges.append(ExchangeChannels(edge, gates[0][1].type, kinds.total(), counted))
    return exchanges


def _kind(producer: tuple[int, str, int | None], reader: tuple[int, str, int | None]) -> ChannelKind:
    if producer[:2] == reader[:2]:
        return ChannelKind.SAME_SLOT
    return ChannelKind.SAME_PROCESS if producer[2] == reader[2] else ChannelKind.OTHER_PROCESS
