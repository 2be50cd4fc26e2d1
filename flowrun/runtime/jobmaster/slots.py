"""Slot sharing: which subtasks run in one slot, as a pure value computed before anything is deployed.

The rules are Apache Flink's: no two subtasks of one job vertex in one shared slot; only vertices of one slot sharing group
share; subtasks of one index of vertices with one co-location key always share; else a subtask goes where one of its producers is,
so that most channels are local (`LocalInputPreferredSlotSharingStrategy`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile, ResourceSpec
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertex, ExecutionVertexId, PartitionId
from flowrun.runtime.jobmaster.regions import PipelinedRegion
from flowrun.runtime.slot_messages import SlotRequest


@record
class SharedSlot:
    """Subtasks that run in one slot.

    Attributes:
        group: the slot sharing group.
        index: number of the slot in its group.
        vertices: in topological order.
        min_resources: sum over the subtasks.
        preferred_resources: sum over the subtasks.
        profile: what is asked for: what the group says that its slots have, else what its subtasks need.
        preferred: what is taken if it is free: the same, but what its subtasks prefer.
    """

    group: str
    index: int
    vertices: tuple[ExecutionVertexId, ...]
    min_resources: ResourceSpec
    preferred_resources: ResourceSpec
    profile: ResourceProfile = ResourceProfile()
    preferred: ResourceProfile = ResourceProfile()

    @property
    def name(self) -> str:
        """As users see it: group and number, from 1."""
        return f"{self.group}/{self.index + 1}"

    @property
    def request(self) -> SlotRequest:
        """What is asked of whoever has slots."""
        return SlotRequest(self.name, self.profile, self.preferred)


@record
class SchedulingUnit:
    """Subtasks that are deployed together, as none of them can do its work without the others, and their slots.

    Attributes:
        vertices: in topological order.
        slots: what they need at one time.
        reads: blocking partitions of other units; the unit may start once they are complete.
    """

    vertices: tuple[ExecutionVertexId, ...]
    slots: tuple[SharedSlot, ...]
    reads: tuple[PartitionId, ...]


Placed = dict[ExecutionVertexId, tuple[str, int]]
"""Subtask → group and number of its slot."""


def scheduling_units(graph: ExecutionGraph, found: tuple[PipelinedRegion, ...]) -> tuple[SchedulingUnit, ...]:
    """The units of a job, in topological order; together they hold every subtask once.

    A job in streaming mode, whose exchanges are all pipelined, is one unit: it keeps its slots to its end. In batch mode, or with
    blocking exchanges, each pipelined region is one, so that a job of many stages needs the slots of one at a time.

    Args:
        graph: the parallel job.
        found: its pipelined regions.
    """
    if not graph.job_graph.settings.batch_mode and not any(region.reads for region in found):
        return (SchedulingUnit(tuple(v.id for v in graph.all_vertices()), share_slots(graph), ()),)
    return tuple(SchedulingUnit(r.vertices, share_slots(graph, r.vertices), r.reads) for r in found)


def share_slots(graph: ExecutionGraph, among: Sequence[ExecutionVertexId] | None = None) -> tuple[SharedSlot, ...]:
    """The slots that a job needs, in the order of their groups' first appearance: each subtask is in exactly one.

    A group needs as many slots as its most parallel vertex has subtasks, or more if co-location asks for it.

    Args:
        graph: the parallel job.
        among: only these subtasks, in topological order; None: all.
    """
    groups: dict[str, _GroupUnderConstruction] = {}
    placed: Placed = {}
    chosen = graph.all_vertices() if among is None else map(graph.vertex, among)
    for _, members in groupby(chosen, key=lambda v: v.id.vertex_id):
        vertices = list(members)
        name = vertices[0].job_vertex.slot_sharing_group
        group = groups.setdefault(name, _GroupUnderConstruction(name))
        waiting = [v for v in vertices if not group.place_co_located(v, placed)]
        waiting = [v for v in waiting if not group.place_near_producer(v, placed)]
        for vertex in waiting:
            group.place_anywhere(vertex, placed)
    return tuple(slot for group in groups.values() for slot in group.finish(graph))


def slot_of(slots: tuple[SharedSlot, ...]) -> Mapping[ExecutionVertexId, SharedSlot]:
    """Subtask → its slot."""
    return {vertex: slot for slot in slots for vertex in slot.vertices}


class _GroupUnderConstruction:
    """The slots of one group while subtasks are placed, vertex by vertex."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._slots: list[list[ExecutionVertexId]] = []
        self._co_located: dict[tuple[str, int], int] = {}
        self._vertex = ""
        self._free: deque[int] = deque()
        self._taken: set[int] = set()

    def _turn_to(self, vertex: ExecutionVertex) -> None:
        """Start with all slots free when the next job vertex comes."""
        if vertex.id.vertex_id != self._vertex:
            self._vertex = vertex.id.vertex_id
            self._free = deque(range(len(self._slots)))
            self._taken = set()

    def place_co_located(self, vertex: ExecutionVertex, placed: Placed) -> bool:
        """Place a subtask beside the subtask of the same index that has its co-location key; False if there is none yet."""
        self._turn_to(vertex)
        key = vertex.job_vertex.co_location_key
        index = None if key is None else self._co_located.get((key, vertex.subtask))
        if index is None:
            return False
        self._put(vertex, index, placed)
        return True

    def place_near_producer(self, vertex: ExecutionVertex, placed: Placed) -> bool:
        """Place a subtask in a free slot that holds one of its producers; False if there is none."""
        for gate in vertex.gates:
            # Of an all-to-all exchange every slot holds a producer: the one of the same index keeps layouts regular.
            same_index = [c for c in gate.channels if c.producer.subtask == vertex.subtask]
            for channel in (*same_index, *gate.channels):
                place = placed.get(channel.producer)  # None if it is of another stage
                if place is not None and place[0] == self._name and place[1] not in self._taken:
                    self._put(vertex, place[1], placed)
                    return True
        return False

    def place_anywhere(self, vertex: ExecutionVertex, placed: Placed) -> None:
        """Place a subtask in the first free slot, or in a new one."""
        while self._free:
            index = self._free.popleft()
            if index not in self._taken:
                self._put(vertex, index, placed)
                return
        self._slots.append([])
        self._put(vertex, len(self._slots) - 1, placed)

    def _put(self, vertex: ExecutionVertex, index: int, placed: Placed) -> None:
        self._slots[index].append(vertex.id)
        self._taken.add(index)
        placed[vertex.id] = (self._name, index)
        key = vertex.job_vertex.co_location_key
        if key is not None:
            self._co_located.setdefault((key, vertex.subtask), index)

    def finish(self, graph: ExecutionGraph) -> list[SharedSlot]:
        groups = graph.job_graph.slot_sharing_groups
        own = next((ResourceProfile.of(g.resources) for g in groups if g.name == self._name), ResourceProfile())
        finished = []
        for index, members in enumerate(self._slots):
            smallest, preferred = ResourceSpec(), ResourceSpec()
            for member in members:
                job_vertex = graph.vertex(member).job_vertex
                smallest = smallest.merge(job_vertex.min_resources)
                preferred = preferred.merge(job_vertex.preferred_resources)
            profile = own.otherwise(ResourceProfile.of(smallest))
            liked = own.otherwise(ResourceProfile.of(preferred))
            finished.append(SharedSlot(self._name, index, tuple(members), smallest, preferred, profile, liked))
        return finished
