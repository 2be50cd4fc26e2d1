"""Who processes the rows that were in flight when an unaligned checkpoint was taken. Pure.

They are processed by consumers before they read anything. At an unchanged number of consumers each takes back its own channels, whatever
the exchange. At another number

- keyed rows go to every new subtask that owns key groups of the old consumer, and each leaves out what is not its own;
- broadcast rows go, like broadcast state, from an old consumer to the new one in its place, and to those whose number modulo that of
  the old consumers is its own; of old consumers without a place in the new job they are dropped, as each remaining one has had, or
  has in flight, its own copy of them. Where a consumer has keys as well, its keys go elsewhere without what was in flight to it: then
  all copies must have come equally far, else the restore is refused;
- all others stay together: those of old consumer c of n go to new subtask ⌊c·m/n⌋ of m.

An exchange may be inside a chain now, because its ends have the same parallelism: its rows then go to the operator in the chain that
read them. Where a subtask gets rows of an old consumer, it gets to know the event time of all channels of that consumer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from flowrun.core.elements import MIN_TIMESTAMP
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertex
from flowrun.graph.partitioner import BroadcastPartitioner, ForwardPartitioner, KeyGroupPartitioner, Partitioner
from flowrun.runtime.messages import RestoredChannel
from flowrun.state.checkpoints import (
    ChannelProgress,
    CheckpointMetadata,
    InFlight,
    KeptElement,
    has_row_kinds,
    rows_of,
    schema_in_flight,
)
from flowrun.state.key_groups import key_group_range

_REMEDY = "resume with the unchanged pipeline and take a savepoint, which has no rows in flight; then change it"


@record
class _Channel:
    """One channel of an old consumer subtask."""

    data_set_id: str
    producer: int
    consumer: int


@record
class _Reader:
    """What reads an exchange in a subtask: gate `gate` of its head, or, if the exchange is inside its chain, the operator at a position."""

    data_set_id: str
    gate: int
    operator: int
    partitioner: Partitioner
    schema: Schema | None


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
        self._elements: dict[_Channel, tuple[KeptElement, ...]] = {}
        # What the consumer had received goes before what the producer still held.
        for held in sorted(metadata.in_flight, key=lambda i: not i.received):
            key = _channel(held)
            self._elements[key] = (*self._elements.get(key, ()), *held.elements)
        self._progress = {_channel(p): p for p in metadata.progress}
        self._channels: dict[str, list[_Channel]] = defaultdict(list)
        for key in sorted({*self._elements, *self._progress}, key=lambda c: (c.consumer, c.producer)):
            self._channels[key.data_set_id].append(key)
        self._exchanges = {r.data_set_id for vertex in graph.job_vertices for r in _readers(vertex.vertices[0])}

    def channels_of(self, subtask: ExecutionVertex) -> tuple[RestoredChannel, ...]:
        """What one subtask processes first: by reader, old consumer and producer.

        Raises:
            StateError: the columns of an exchange changed, or the order of changes of one row would be lost.
        """
        restored: list[RestoredChannel] = []
        by_operator: dict[int, list[_Reader]] = defaultdict(list)
        for reader in _readers(subtask):
            if reader.data_set_id in self._channels:
                by_operator[reader.operator].append(reader)
        for operator, readers in by_operator.items():
            old = self._old_consumers(subtask, operator, readers)
            self._check_copies(subtask, readers, old)
            taken = [[c for c in self._channels[r.data_set_id] if _takes(c, r, subtask, old)] for r in readers]
            consumers = {channel.consumer for channels in taken for channel in channels}
            for reader, mine in zip(readers, taken, strict=True):
                restored += (
                    self._restored(reader, channel, subtask, old, with_elements=channel in mine)
                    for channel in self._channels[reader.data_set_id]
                    if channel.consumer in consumers
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
                    hint=_REMEDY,
                )

    def _old_consumers(self, subtask: ExecutionVertex, operator: int, readers: Sequence[_Reader]) -> int:
        """Number of old consumer subtasks: as recorded for the operator that reads or one behind it, else as far as channels show."""
        for chained in subtask.job_vertex.operators[operator:]:
            saved = self._metadata.operators.get(chained.operator_id)
            if saved is not None:
                return saved.parallelism
        return 1 + max(c.consumer for r in readers for c in self._channels[r.data_set_id])

    def _restored(
        self, reader: _Reader, channel: _Channel, subtask: ExecutionVertex, old: int, *, with_elements: bool
    ) -> RestoredChannel:
        elements = self._elements.get(channel, ()) if with_elements else ()
        self._check(elements, reader, subtask, old)
        progress = self._progress.get(channel)
        return RestoredChannel(
            gate=reader.gate,
            producer=channel.producer,
            old_consumer=channel.consumer,
            watermark=MIN_TIMESTAMP if progress is None else progress.watermark,
            idle=progress is not None and progress.idle,
            aligned=progress is None or progress.aligned,
            elements=elements,
            filter_keys=isinstance(reader.partitioner, KeyGroupPartitioner) and old != subtask.job_vertex.parallelism,
            operator=reader.operator,
        )

    def _check_copies(self, subtask: ExecutionVertex, readers: Sequence[_Reader], old: int) -> None:
        new = subtask.job_vertex.parallelism
        if old == new or not any(isinstance(g.partitioner, KeyGroupPartitioner) for g in subtask.gates):
            return
        for reader in readers:
            if isinstance(reader.partitioner, BroadcastPartitioner) and not copies_are_alike(
                self._metadata.in_flight, reader.data_set_id, old
            ):
                raise StateError(
                    f"checkpoint {self._metadata.checkpoint_id} holds broadcast rows in flight to '{subtask.job_vertex.name}' that some "
                    f"of its {old} subtasks had processed for their keys and others had not: at parallelism {new}, where keys have "
                    "other subtasks, some would miss them",
                    hint=f"resume at parallelism {old} and take a savepoint, which has no rows in flight; then change it",
                )

    def _check(self, elements: tuple[KeptElement, ...], reader: _Reader, subtask: ExecutionVertex, old: int) -> None:
        new = subtask.job_vertex.parallelism
        for rows in rows_of(elements):
            schema = schema_in_flight(rows)
            place = f"checkpoint {self._metadata.checkpoint_id} holds rows in flight to '{subtask.job_vertex.name}'"
            if reader.schema is not None and _types(schema) != _types(reader.schema.arrow):
                raise StateError(
                    f"{place} with columns {_columns(schema)}; the pipeline sends it {_columns(reader.schema.arrow)}",
                    hint=_REMEDY,
                )
            if has_row_kinds(rows) and not keeps_changes_in_order(reader.partitioner, old, new):
                raise StateError(
                    f"{place}, changes of rows that keep their order only if its parallelism, which was {old}, divides by the new "
                    f"one, {new}",
                    hint=f"resume at parallelism {old} and take a savepoint, which has no rows in flight; then change it",
                )


def keeps_changes_in_order(partitioner: Partitioner, old: int, new: int) -> bool:
    """Whether changes of one row that were in flight stay before those that come after a restore at another parallelism.

    On a forward exchange those of one row go from one producer to its consumer. At another parallelism they do so as well if each
    new consumer takes the place of whole old ones.

    >>> keeps_changes_in_order(ForwardPartitioner(), 4, 2), keeps_changes_in_order(ForwardPartitioner(), 2, 3)
    (True, False)
    """
    return not isinstance(partitioner, ForwardPartitioner) or old % new == 0


def copies_are_alike(in_flight: Sequence[InFlight], data_set_id: str, consumers: int) -> bool:
    """Whether the same rows of a broadcast were in flight to all of its consumers: of one producer's rows the last so many."""
    missing: dict[int, list[int]] = defaultdict(lambda: [0] * consumers)
    for held in in_flight:
        if held.data_set_id == data_set_id:
            missing[held.producer][held.consumer] += _rows(held.elements)
    return all(min(counts) == max(counts) for counts in missing.values())


def _readers(subtask: ExecutionVertex) -> list[_Reader]:
    """All exchanges that end in a subtask, those inside its chain too."""
    gates = [
        _Reader(gate.data_set_id, position, 0, gate.partitioner, gate.schema)
        for position, gate in enumerate(subtask.gates)
    ]
    return gates + [
        _Reader(edge.data_set_id, 0, edge.target, ForwardPartitioner(), edge.schema)
        for edge in subtask.job_vertex.chain_edges
    ]


def _channel(found: InFlight | ChannelProgress) -> _Channel:
    return _Channel(found.data_set_id, found.producer, found.consumer)


def _takes(channel: _Channel, reader: _Reader, subtask: ExecutionVertex, old: int) -> bool:
    """Whether rows of a channel of one of `old` consumers go to a subtask."""
    vertex = subtask.job_vertex
    if old == vertex.parallelism:
        return channel.consumer == subtask.subtask
    if isinstance(reader.partitioner, KeyGroupPartitioner):
        new = key_group_range(subtask.subtask, vertex.parallelism, vertex.max_parallelism)
        before = key_group_range(channel.consumer, old, vertex.max_parallelism)
        return before.start < new.stop and new.start < before.stop
    if isinstance(reader.partitioner, BroadcastPartitioner):
        return channel.consumer == subtask.subtask % old
    return channel.consumer * vertex.parallelism // old == subtask.subtask


def _rows(elements: Sequence[KeptElement]) -> int:
    return sum(rows.num_rows for rows in rows_of(elements))


def _types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Names and types; how strings are encoded does not matter."""
    return [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _types(schema))
