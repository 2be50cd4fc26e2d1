"""The execution graph to be shown, and one entry for all graph stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from flowrun.core.record import record
from flowrun.core.resources import ResourceProfile
from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertex, ExecutionVertexId, InputGate
from flowrun.graph.explain import (
    Drawing,
    Format,
    render_drawing,
    render_job_graph,
    render_stream_graph,
    render_transformations,
)
from flowrun.graph.explain.drawing import Arrow, Box, boxes_as_mermaid, counted, partitioner_label
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.stream_graph import StreamGraph
from flowrun.graph.transformation import Transformation
from flowrun.runtime.jobmaster.placement import ChannelKind, ExchangeChannels, PlacedSlot, Placement, place_job
from flowrun.runtime.jobmaster.regions import regions
from flowrun.runtime.jobmaster.slots import SharedSlot, scheduling_units, slot_of
from flowrun.runtime.worker_slots import WorkerSlots

ONE_PROCESS = (WorkerSlots("", None, ResourceProfile()),)
"""As many slots as a job asks for, all in the process of the command."""


class Stage(Enum):
    """The graph stages of `flowrun explain`."""

    TRANSFORMATIONS = "transformations"
    STREAM = "stream"
    JOB = "job"
    EXECUTION = "execution"


GraphStageValue = Sequence[Transformation] | StreamGraph | JobGraph | ExecutionGraph


def render(value: GraphStageValue, stage: Stage, output: Format = Format.TEXT, name: str = "job") -> str:
    """A value of one stage in one format; `name` is the job's, for transformations, which do not know it.

    Raises:
        InternalError: the value is not one of that stage.
    """
    match stage, value:
        case Stage.STREAM, StreamGraph():
            return render_stream_graph(value, output)
        case Stage.JOB, JobGraph():
            return render_job_graph(value, output)
        case Stage.EXECUTION, ExecutionGraph():
            return render_execution_graph(value, output)
        case Stage.TRANSFORMATIONS, list() | tuple():
            return render_transformations(name, value, output)
    raise InternalError(f"a {type(value).__name__} is no value of stage {stage.value}")


def render_execution_graph(
    graph: ExecutionGraph, output: Format = Format.TEXT, workers: Sequence[WorkerSlots] = ONE_PROCESS
) -> str:
    """An execution graph with the regions and slots that follow from it, and where they are on these workers."""
    return render_drawing(draw_execution_graph(graph, workers), output)


def draw_execution_graph(graph: ExecutionGraph, workers: Sequence[WorkerSlots] = ONE_PROCESS) -> Drawing:
    """The subtasks of a job: which subpartitions each reads, its slot and its failover region; in batch mode its stage too.

    Below them its slots, the process of each, and the channels of each exchange by kind. The number of slots is what the job needs at one
    time, at least; stages with a slot of one name need it one after the other.
    """
    numbers = {vertex.id: number for number, vertex in enumerate(graph.all_vertices(), start=1)}
    found = regions(graph)
    units = scheduling_units(graph, found)
    slot_names = {v: _slot_name(slot) for unit in units for v, slot in slot_of(unit.slots).items()}
    region_numbers = {vertex: number for number, region in enumerate(found, start=1) for vertex in region.vertices}
    facts: tuple[str, ...] = (
        counted(len(graph.job_vertices), "vertex", "vertices"),
        counted(len(numbers), "subtask"),
        counted(sum(len(p.consumers) for v in graph.all_vertices() for p in v.partitions), "channel"),
        counted(len(found), "region"),
        counted(max(len(unit.slots) for unit in units), "slot"),
    )
    stages = graph.job_graph.stages() if graph.job_graph.settings.batch_mode else {}
    if stages:
        facts = (*facts, counted(max(stages.values()), "stage"))
    places: _Places = {v: _Place(slot_names[v], region_numbers[v], stages.get(v.vertex_id)) for v in numbers}
    boxes = [
        _box(vertex, numbers, places, f"{number}: {job_vertex.job_vertex.name}")
        for number, job_vertex in enumerate(graph.job_vertices, start=1)
        for vertex in job_vertex.vertices
    ]
    all_vertices = list(graph.all_vertices())
    name = graph.job_graph.name
    vertices = [
        {"id": n, "vertex_id": v.job_vertex.vertex_id, "name": v.job_vertex.name, "parallelism": v.parallelism}
        for n, v in enumerate(graph.job_vertices, start=1)
    ]
    placement = place_job(graph, units, workers)
    document = {
        "name": name,
        "vertices": vertices,
        "subtasks": [_json(v, numbers, places) for v in all_vertices],
        "processes": len(workers),
        "slots": [_slot_json(placed, numbers, stages) for placed in placement.slots],
        "exchanges": [_exchange_json(graph, exchange) for exchange in placement.exchanges],
    }
    tables = (_slot_table(placement, numbers, workers, stages), _exchange_table(graph, placement))
    arrows = [
        replace(box, details=(), arrows=tuple(_arrows(v, numbers))) for box, v in zip(boxes, all_vertices, strict=True)
    ]
    return Drawing(f"ExecutionGraph '{name}'", facts, tuple(boxes), document, boxes_as_mermaid(arrows), tables)


def _slot_name(slot: SharedSlot) -> str:
    """A slot, with what it has if that is known."""
    return slot.name if slot.profile == ResourceProfile() else f"{slot.name} ({slot.profile})"


@record
class _Place:
    """Where and when a subtask runs: its slot's name, its region's number, and in batch mode its stage."""

    slot: str
    region: int
    stage: int | None


_Places = dict[ExecutionVertexId, _Place]


def _box(vertex: ExecutionVertex, numbers: dict[ExecutionVertexId, int], places: _Places, group: str) -> Box:
    details = []
    for gate in vertex.gates:
        channels = ", ".join(f"[{numbers[c.producer]}]/{c.subpartition}" for c in gate.channels)
        label = partitioner_label(gate.partitioner, gate.schema)
        details.append(f"input {gate.input_index} {label} {gate.type.value} <- {channels}")
    for partition in vertex.partitions:
        tag = partition.output.tag
        side = "" if tag is None else f" side output {tag.name}"
        label = partitioner_label(partition.partitioner, partition.output.schema)
        readers = ", ".join(f"[{numbers[c.vertex]}]" for c in partition.consumers)
        details.append(f"result{side} {label} {partition.type.value} -> {readers}")
    place = places[vertex.id]
    facts = (
        f"slot {place.slot}",
        f"region {place.region}",
        *(() if place.stage is None else (f"stage {place.stage}",)),
    )
    return Box(numbers[vertex.id], vertex.name, facts=facts, details=tuple(details), group=group)


def _arrows(vertex: ExecutionVertex, numbers: dict[ExecutionVertexId, int]) -> Iterator[Arrow]:
    for gate in vertex.gates:
        label = partitioner_label(gate.partitioner, gate.schema)
        yield from (Arrow(numbers[channel.producer], label) for channel in gate.channels)


def _json(vertex: ExecutionVertex, numbers: dict[ExecutionVertexId, int], places: _Places) -> dict[str, Any]:
    place = places[vertex.id]
    return {
        "id": numbers[vertex.id],
        "vertex_id": vertex.id.vertex_id,
        "name": vertex.name,
        "subtask": vertex.subtask,
        "slot": place.slot,
        "region": place.region,
        **({} if place.stage is None else {"stage": place.stage}),
        "gates": [_gate_json(gate, numbers) for gate in vertex.gates],
        "partitions": [
            {
                "id": str(p.id),
                "type": p.type.value,
                "ship_strategy": partitioner_label(p.partitioner, p.output.schema),
                "consumers": [numbers[c.vertex] for c in p.consumers],
            }
            for p in vertex.partitions
        ],
    }


def _gate_json(gate: InputGate, numbers: dict[ExecutionVertexId, int]) -> dict[str, Any]:
    return {
        "input_index": gate.input_index,
        "ship_strategy": partitioner_label(gate.partitioner, gate.schema),
        "type": gate.type.value,
        "channels": [{"subtask": numbers[c.producer], "subpartition": c.subpartition} for c in gate.channels],
    }


def _slot_table(
    placement: Placement,
    numbers: dict[ExecutionVertexId, int],
    workers: Sequence[WorkerSlots],
    stages: dict[str, int],
) -> tuple[str, ...]:
    """A line a slot: its name and resources, its process, and who is in it."""
    total = workers[0].total
    each = "" if total is None else f" of {counted(total, 'slot')} each"
    where = (
        "in the process of the command"
        if len(workers) == 1 and not workers[0].name
        else f"in {_processes(workers)}{each}"
    )
    rows = []
    for placed in placement.slots:
        process = "no place" if placed.worker is None else f"process {placed.worker}"
        stage = _stage_of(placed, stages)
        members = " ".join(f"[{numbers[v]}]" for v in placed.slot.vertices)
        rows.append((_slot_name(placed.slot), process, "" if stage is None else f"stage {stage}", members))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True) if w) for row in rows)
    return f"Slots {where}:", *lines


def _processes(workers: Sequence[WorkerSlots]) -> str:
    return counted(len(workers), "worker process", "worker processes")


def _exchange_table(graph: ExecutionGraph, placement: Placement) -> tuple[str, ...]:
    """A line an exchange: its channels, and how many of them are within a slot, a process, or between processes."""
    if not placement.exchanges:
        return ("Exchanges: none",)
    lines = []
    for exchange in placement.exchanges:
        edge = exchange.edge
        label = partitioner_label(edge.partitioner, edge.schema)
        kinds = "" if exchange.kinds is None else f" ({_kinds(exchange.kinds)})"
        number = counted(exchange.channels, f"{exchange.type.value} channel")
        lines += [f"{_name(graph, edge.source)} => {_name(graph, edge.target)}", f"  {label}: {number}{kinds}"]
    return "Exchanges:", *lines


def _kinds(kinds: dict[ChannelKind, int]) -> str:
    return ", ".join(f"{number} {_KINDS[kind]}" for kind, number in kinds.items() if number)


_KINDS = {
    ChannelKind.SAME_SLOT: "local within a slot",
    ChannelKind.SAME_PROCESS: "local between slots",
    ChannelKind.OTHER_PROCESS: "remote",
}


def _name(graph: ExecutionGraph, vertex_id: str) -> str:
    return graph.job_vertex(vertex_id).job_vertex.name


def _stage_of(placed: PlacedSlot, stages: dict[str, int]) -> int | None:
    return stages.get(placed.slot.vertices[0].vertex_id)


def _slot_json(placed: PlacedSlot, numbers: dict[ExecutionVertexId, int], stages: dict[str, int]) -> dict[str, Any]:
    slot, stage = placed.slot, _stage_of(placed, stages)
    return {
        "name": slot.name,
        "group": slot.group,
        "cpu": None if slot.profile.cpu_millis is None else slot.profile.cpu_millis / 1000,
        "memory_bytes": slot.profile.memory_bytes,
        "process": placed.worker,
        **({} if stage is None else {"stage": stage}),
        "subtasks": [numbers[vertex] for vertex in slot.vertices],
    }


def _exchange_json(graph: ExecutionGraph, exchange: ExchangeChannels) -> dict[str, Any]:
    edge, kinds = exchange.edge, exchange.kinds
    return {
        "source": _name(graph, edge.source),
        "target": _name(graph, edge.target),
        "ship_strategy": partitioner_label(edge.partitioner, edge.schema),
        "type": exchange.type.value,
        "channels": exchange.channels,
        "same_slot": None if kinds is None else kinds[ChannelKind.SAME_SLOT],
        "same_process": None if kinds is None else kinds[ChannelKind.SAME_PROCESS],
        "remote": None if kinds is None else kinds[ChannelKind.OTHER_PROCESS],
    }
