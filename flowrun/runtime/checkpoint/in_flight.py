"""Who processes the rows that were in flight when an unaligned checkpoint was taken. Pure.

They are processed by consumers before they read anything. Only keyed exchanges have rows in flight. At an unchanged number of
consumers each takes back its own channels; else they go to every new subtask that owns key groups of the old one, which leaves
out what is not its own.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from flowrun.core.elements import MIN_TIMESTAMP, Event, RecordBatch
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertex, InputGate
from flowrun.runtime.messages import RestoredChannel
from flowrun.state.checkpoints import ChannelProgress, CheckpointMetadata, InFlight
from flowrun.state.key_groups import key_group_range


@record
class _Channel:
    """One channel of an old consumer subtask."""

    data_set_id: str
    producer: int
    consumer: int


class InFlightAssignment:
    """Deals the channels of a checkpoint to the subtasks of a graph.

    Args:
        metadata: of the checkpoint.
        graph: to run.

    Raises:
        StateError: rows in flight cannot be given to anybody.
    """

    def __init__(self, metadata: CheckpointMetadata, graph: ExecutionGraph) -> None:
        self._metadata = metadata
        self._elements: dict[_Channel, tuple[RecordBatch | Event, ...]] = {}
        # What the consumer had received goes before what the producer still held.
        for held in sorted(metadata.in_flight, key=lambda i: not i.received):
            key = _channel(held)
            self._elements[key] = (*self._elements.get(key, ()), *held.elements)
        self._progress = {_channel(p): p for p in metadata.progress}
        self._channels: dict[str, list[_Channel]] = defaultdict(list)
        for key in sorted({*self._elements, *self._progress}, key=lambda c: (c.consumer, c.producer)):
            self._channels[key.data_set_id].append(key)
        self._exchanges = {
            gate.data_set_id
            for vertex in graph.job_vertices
            for gate in vertex.vertices[0].gates
            if gate.partitioner.supports_unaligned_checkpoints
        }

    def channels_of(self, subtask: ExecutionVertex) -> tuple[RestoredChannel, ...]:
        """What one subtask processes first: by gate, old consumer and producer.

        Raises:
            StateError: the columns of an exchange changed.
        """
        restored: list[RestoredChannel] = []
        for position, gate in enumerate(subtask.gates):
            channels = self._channels.get(gate.data_set_id, ())
            if not channels or not gate.partitioner.supports_unaligned_checkpoints:
                continue
            old = self._old_consumers(subtask, channels)
            same = old == subtask.job_vertex.parallelism
            restored += (
                self._restored(position, gate, channel, not same, subtask)
                for channel in channels
                if (channel.consumer == subtask.subtask if same else _takes(channel, subtask, old))
            )
        return tuple(restored)

    def check_all_assigned(self) -> None:
        """Pass if every exchange with rows in flight still exists.

        Raises:
            StateError: one does not.
        """
        for channel, elements in self._elements.items():
            if channel.data_set_id not in self._exchanges and _rows(elements):
                raise StateError(
                    f"checkpoint {self._metadata.checkpoint_id} holds {_rows(elements)} rows in flight on an exchange that the "
                    "pipeline no longer has",
                    hint="resume with the unchanged pipeline and take a savepoint, which has no rows in flight; then change it",
                )

    def _old_consumers(self, subtask: ExecutionVertex, channels: list[_Channel]) -> int:
        """Number of old consumer subtasks: as recorded for an operator of the vertex, else as far as channels show."""
        for operator in subtask.job_vertex.operators:
            saved = self._metadata.operators.get(operator.operator_id)
            if saved is not None:
                return saved.parallelism
        return max(c.consumer for c in channels) + 1

    def _restored(
        self, position: int, gate: InputGate, channel: _Channel, filters: bool, subtask: ExecutionVertex
    ) -> RestoredChannel:
        elements = self._elements.get(channel, ())
        expected = gate.schema.arrow
        for element in elements:
            if isinstance(element, RecordBatch) and _types(element.columns.schema) != _types(expected):
                raise StateError(
                    f"checkpoint {self._metadata.checkpoint_id} holds rows in flight to '{subtask.job_vertex.name}' with columns "
                    f"{_columns(element.columns.schema)}; the pipeline sends it {_columns(expected)}",
                    hint="resume with the unchanged pipeline and take a savepoint, which has no rows in flight; then change it",
                )
        progress = self._progress.get(channel)
        return RestoredChannel(
            gate=position,
            producer=channel.producer,
            old_consumer=channel.consumer,
            watermark=MIN_TIMESTAMP if progress is None else progress.watermark,
            idle=progress is not None and progress.idle,
            aligned=progress is None or progress.aligned,
            elements=elements,
            filter_keys=filters,
        )


def _channel(found: InFlight | ChannelProgress) -> _Channel:
    return _Channel(found.data_set_id, found.producer, found.consumer)


def _takes(channel: _Channel, subtask: ExecutionVertex, old: int) -> bool:
    """Whether a subtask owns key groups of the one of `old` consumers that had the channel."""
    vertex = subtask.job_vertex
    new = key_group_range(subtask.subtask, vertex.parallelism, vertex.max_parallelism)
    before = key_group_range(channel.consumer, old, vertex.max_parallelism)
    return before.start < new.stop and new.start < before.stop


def _rows(elements: tuple[RecordBatch | Event, ...]) -> int:
    return sum(e.num_rows for e in elements if isinstance(e, RecordBatch))


def _types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Names and types; how strings are encoded does not matter."""
    return [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _types(schema))
