"""Rows in flight as a subtask sees them: its channels by name, what was recorded on them, and compact lists of elements."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.elements import Event, RecordBatch, concat_batches
from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionVertex
from flowrun.state.checkpoints import KeptElement


@record
class ChannelPlace:
    """One input channel of a subtask: `gate` is a position in `ExecutionVertex.gates`, `producer` a subtask."""

    gate: int
    data_set_id: str
    producer: int


def channel_places(vertex: ExecutionVertex) -> tuple[ChannelPlace, ...]:
    """All channels in the task's numbering: input by input, the edges of one input (a union) in their order."""
    gates = sorted(enumerate(vertex.gates), key=lambda numbered: numbered[1].input_index)
    return tuple(
        ChannelPlace(position, gate.data_set_id, channel.producer.subtask)
        for position, gate in gates
        for channel in gate.channels
    )


def compact(elements: Sequence[RecordBatch | Event]) -> tuple[RecordBatch | Event, ...]:
    """The same elements with neighbouring batches put together, as far as both or neither have event times."""
    compacted: list[RecordBatch | Event] = []
    run: list[RecordBatch] = []
    for element in elements:
        if isinstance(element, RecordBatch) and (
            not run or (run[0].timestamps is None) == (element.timestamps is None)
        ):
            run.append(element)
            continue
        if run:
            compacted.append(concat_batches(run))
            run = []
        if isinstance(element, RecordBatch):
            run.append(element)
        else:
            compacted.append(element)
    if run:
        compacted.append(concat_batches(run))
    return tuple(compacted)


def in_flight_bytes(elements: Sequence[KeptElement]) -> int:
    """Bytes of the rows."""
    return sum(e.nbytes for e in elements if isinstance(e, RecordBatch))
