"""The data protocol between simulated processes: real partitions, senders, connections, channels and gates; tasks only write and read.

A subtask of the producer writes numbered rows for each channel, one of the consumer checks that they come in order and once. If
anything fails, all subtasks are released, and the next attempt begins, as a region restarts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa
from runtime_fakes import Collect, ListSource, Seen, job, vertex

from flowrun.core.elements import (
    Alignment,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfInput,
    RecordBatch,
    Watermark,
)
from flowrun.errors import ClusterError
from flowrun.graph.execution_graph import ExecutionVertex, build_execution_graph
from flowrun.graph.partitioner import RebalancePartitioner
from flowrun.runtime.messages import PartitionLocation, ResultPartitionId
from flowrun.runtime.network.barriers import overtaking_time_ms
from flowrun.runtime.network.buffer_pool import SLOT_BYTES, GlobalBufferPool, slots_for
from flowrun.runtime.network.gate import GateEvent, GateRows
from flowrun.runtime.network.remote.environment import ConnectedEnvironment, JobPlace
from flowrun.runtime.network.remote.receiver import DataConnection
from flowrun.runtime.network.remote.registry import WAIT_MS, PartitionRegistry
from flowrun.runtime.network.remote.sender import PartitionSender
from flowrun.runtime.network.remote.wire import DataFrames
from flowrun.runtime.network.subpartition import InFlightElement
from tests.runtime.simulation.streams import VirtualStream, stream_pair
from tests.runtime.simulation.virtual_time import Process, VirtualTime

Barriers = dict[int, list[int]]
"""Checkpoint → rows of each channel that were written before its barrier."""


def numbered(producer: int, numbers: Sequence[int], padding: int) -> RecordBatch:
    """Rows (producer, number), of which each takes so many bytes more."""
    columns = {
        "producer": np.full(len(numbers), producer),
        "number": np.asarray(numbers),
        "padding": _padding(len(numbers), padding),
    }
    return RecordBatch(pa.record_batch(columns))


@cache
def _padding(rows: int, size: int) -> pa.StringArray:
    return pa.array(["x" * size] * rows)


def numbers_of(elements: Sequence[InFlightElement]) -> list[int]:
    """The numbers of rows in flight."""
    return [n for e in elements if isinstance(e, RecordBatch) for n in e.columns["number"].to_pylist()]


class Member:
    """A worker process, as far as it exchanges rows."""

    def __init__(self, world: DataPlane, name: str, slots: int) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.time, name)
        self.pool = GlobalBufferPool(slots)
        self.registry = PartitionRegistry(self.process.timers)
        self.environment = ConnectedEnvironment(
            JobPlace("job", name), self.registry, self.connect, self.pool, self.process.timers, self.process.clock
        )
        self.connections: dict[str, DataConnection] = {}
        self.senders: list[PartitionSender] = []
        self.streams: list[VirtualStream] = []
        self._due: set[PartitionSender] = set()

    def connect(self, address: str) -> DataConnection:
        """As `DataServer.connect`."""
        if address in self.connections:
            return self.connections[address]
        other = self.world.members[address]
        if other.process.is_stopped or self.world.is_cut:
            raise ClusterError(f"{address} does not answer")
        ours, theirs = stream_pair(self.process, other.process, self.world.delay_ms)
        connection = DataConnection(DataFrames(ours, address), self._forget)
        sender = PartitionSender(DataFrames(theirs, self.name), other.registry, other._forget_sender)
        self.connections[address] = connection
        other.senders.append(sender)
        self.streams.append(ours)
        other.streams.append(theirs)
        ours.read_with(connection.read_next)
        theirs.read_with(sender.read_next)
        return connection

    def look(self) -> None:
        """Have the threads of senders go on that have something to send."""
        for sender in self.senders:
            if sender.has_ready and sender not in self._due:
                self._due.add(sender)
                self.process.soon(partial(self._send, sender), 0.5)
            for channel in sender._channels.values():
                assert channel.credit >= -self.world.overdraft, "more was sent than there was credit for"

        if not self.world.has_large_rows:
            for connection in self.connections.values():
                for read in connection._channels.values():
                    assert read._credit._promised <= read._credit.available, "slots were promised that others have"

    def die(self) -> None:
        """Its connections are reset."""
        self.process.die()
        for stream in self.streams:
            stream.reset()

    def check_empty(self) -> None:
        """Nobody reads or writes here any more: nothing is left of those who did."""
        assert self.pool.free_slots == self.pool.total_slots, f"{self.name} has lost buffers"
        assert not self.registry._partitions, "a partition is kept"
        assert not self.registry._waiting, "somebody waits for a partition for ever"
        for sender in self.senders:
            assert not sender._channels, "a sender still serves a channel that nobody reads"
        for connection in self.connections.values():
            assert not connection._channels, "a connection keeps a channel that nobody reads"

    def _send(self, sender: PartitionSender) -> None:
        self._due.discard(sender)
        if sender.has_ready:
            sender.send_next()

    def _forget(self, connection: DataConnection) -> None:
        self.connections = {a: c for a, c in self.connections.items() if c is not connection}

    def _forget_sender(self, sender: PartitionSender) -> None:
        self.senders.remove(sender)


class Writer:
    """A subtask that writes rows, to one channel at a time or to all."""

    def __init__(self, world: DataPlane, vertex: ExecutionVertex, index: int, attempt: str, batches: int) -> None:
        self.world = world
        self.index = index
        self.member = world.member_of_writer(index)
        self.attempt = attempt
        self.description = vertex.partitions[0]
        self.location = PartitionLocation(self.description.id, attempt, self.member.name, self.member.name)
        self.partition = self.member.environment.create_partition(self.description, attempt)
        self.written = [0] * self.description.subpartitions
        self.barriers: Barriers = {}
        self.overtaken: dict[tuple[int, int], list[int]] = {}
        """Checkpoint and channel → rows that its barrier has overtaken here, once that is settled."""
        self.is_released = False
        self._batches = batches
        self._broadcasts = world.time.chance.random() < 0.3

    def start(self) -> None:
        """Begin to write."""
        self._later()

    def _later(self) -> None:
        self.member.process.soon(self._write, self.world.write_pace_ms)

    def _write(self) -> None:
        chance = self.world.time.chance
        if self.is_released:
            return
        if not self._batches:
            self.partition.finish()
            return
        rows, padding = self.world.a_size()
        if not (self.partition.is_available and self.partition.pool.has_room(slots_for(rows * (padding + 64)))):
            if not self.partition.listen(self._later):
                self._later()
            return
        self._batches -= 1
        if self._broadcasts and len(set(self.written)) == 1:
            self.partition.broadcast(self._rows(0, rows, padding))
            self.written = [self.written[0] + rows] * len(self.written)
        else:
            channel = chance.randrange(len(self.written))
            self.partition.write([(channel, self._rows(channel, rows, padding))])
            self.written[channel] += rows
        if chance.random() < 0.1:
            self.partition.broadcast_event(Watermark(sum(self.written)))
        self._later()

    def _rows(self, channel: int, count: int, padding: int) -> RecordBatch:
        begin = self.written[channel]
        return numbered(self.index, range(begin, begin + count), padding)

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """Send a barrier, unless everything was written."""
        if self.is_released or not self._batches:
            return
        self.barriers[barrier.checkpoint_id] = list(self.written)
        self.partition.broadcast_barrier(barrier, partial(self._settled, barrier.checkpoint_id))
        due = overtaking_time_ms(barrier)
        if due is not None:
            self.member.process.timers.at(due, lambda: self.partition.overtake(barrier.checkpoint_id))

    def _settled(self, checkpoint_id: int, channel: int, overtaken: Sequence[InFlightElement]) -> None:
        assert (checkpoint_id, channel) not in self.overtaken, "a barrier is settled twice"
        self.overtaken[checkpoint_id, channel] = numbers_of(overtaken)

    def release(self) -> None:
        """The attempt is over."""
        if not self.is_released:
            self.is_released = True
            self.member.environment.release_partitions([ResultPartitionId(self.description.id, self.attempt)])


class Reader:
    """A subtask that reads all channels, aligns barriers, and checks every row."""

    def __init__(self, world: DataPlane, vertex: ExecutionVertex, index: int, writers: Sequence[Writer]) -> None:
        self.world = world
        self.index = index
        self.writers = writers
        self.member = world.member_of_reader(index)
        locations = {w.location.partition: w.location for w in writers}
        chance = world.time.chance
        (self.gate,) = self.member.environment.create_gates(vertex, chance.choice([1, 50, 100_000]), locations)
        self.read = [0] * self.gate.channels
        self.is_released = self._has_failed = False
        self._is_due = False
        self._by_channel = chance.random() < 0.5
        self._checkpoint = 0
        self._arrived: set[int] = set()
        self._ended: set[int] = set()

    def start(self) -> None:
        """Ask for the partitions, and begin to read."""
        if self.is_released:
            return
        self.gate.set_listener(self._wake)
        try:
            self.gate.request_partitions()
        except ClusterError:
            self.world.fail()
            return
        self._wake()

    @property
    def is_finished(self) -> bool:
        """Whether it has read everything."""
        return self.gate.is_finished

    def release(self) -> None:
        """The attempt is over."""
        if not self.is_released:
            self.is_released = True
            self.gate.release()

    def _wake(self) -> None:
        if not (self._is_due or self.is_released or self._has_failed):
            self._is_due = True
            self.member.process.soon(self._read, self.world.read_pace_ms)

    def _read(self) -> None:
        self._is_due = False
        if self.is_released or self._has_failed:
            return
        try:
            element = self.gate.poll_channel() if self._by_channel else self.gate.poll()
        except ClusterError:
            self._has_failed = True  # a task reads no more, so what the gate had in its hands is not missed
            self.world.fail()
            return
        if element is None:
            return
        if isinstance(element, GateEvent):
            self._take_event(element)
        else:
            self._take_rows(element.rows if isinstance(element, GateRows) else element)
        self._wake()

    def _take_rows(self, rows: RecordBatch) -> None:
        producers, numbers = rows.columns["producer"].to_pylist(), rows.columns["number"].to_pylist()
        for producer, number in zip(producers, numbers, strict=True):
            assert number == self.read[producer], f"row {number} of {producer} came where {self.read[producer]} was due"
            self.read[producer] += 1

    def _take_event(self, event: GateEvent) -> None:
        channel = event.channel
        if isinstance(event.event, CheckpointBarrier):
            self._check_cut(event, event.event)
            self._align(channel, event.event)
        elif isinstance(event.event, EndOfInput):
            assert self.read[channel] == self.writers[channel].written[self.index], "rows are missing at the end"
            self._ended.add(channel)
            self._go_on_if_aligned()

    def _check_cut(self, event: GateEvent, barrier: CheckpointBarrier) -> None:
        """What was read before the barrier, and what it overtook in this process and in that of the producer, is what was written."""
        writer, number = self.writers[event.channel], barrier.checkpoint_id
        cut = [*range(self.read[event.channel]), *numbers_of(event.overtaken)]
        cut += writer.overtaken[number, self.index]
        written = writer.barriers[number][self.index]
        assert cut == list(range(written)), f"checkpoint {number} has {cut} of {written} rows of {event.channel}"

    def _align(self, channel: int, barrier: CheckpointBarrier) -> None:
        if barrier.checkpoint_id < self._checkpoint:
            return
        if barrier.checkpoint_id > self._checkpoint:
            self._go_on()
            self._checkpoint = barrier.checkpoint_id
        self._arrived.add(channel)
        if barrier.options.alignment is Alignment.UNALIGNED:
            for arrived in self._arrived:
                self.gate.resume(arrived)
        else:
            self.gate.block(channel)
        self._go_on_if_aligned()

    def _go_on_if_aligned(self) -> None:
        if len(self._arrived | self._ended) == self.gate.channels:
            self._go_on()

    def _go_on(self) -> None:
        for channel in self._arrived:
            self.gate.resume(channel)
        self._arrived = set()


class DataPlane:
    """Some processes, the subtasks of one exchange in them, and what befalls both.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.time = VirtualTime(seed)
        chance = self.time.chance
        self.delay_ms = chance.choice([0.1, 5.0, 200.0])
        self.write_pace_ms = chance.choice([0.2, 3.0])
        self.read_pace_ms = chance.choice([0.2, 3.0, 30.0])
        self._barriers_every_ms = chance.choice([4, 20]) * self.read_pace_ms + self.delay_ms
        self.has_large_rows = chance.random() < 0.25
        self.overdraft = 4 if self.has_large_rows else 0
        self.is_cut = False
        self.slots = chance.choice([60, 100, 16_384])
        self.members = {f"w{i}": Member(self, f"w{i}", self.slots) for i in range(chance.randint(2, 3))}
        source = vertex("source", lambda: ListSource(lambda _: ()), parallelism=chance.randint(1, 3))
        sink = vertex("sink", lambda: Collect(Seen()), parallelism=chance.randint(1, 3))
        sink.read(source, RebalancePartitioner())
        vertices = list(build_execution_graph(job(source, sink)).all_vertices())
        self._sources = [v for v in vertices if v.partitions]
        self._sinks = [v for v in vertices if v.gates]
        self._batches = chance.choice([0, 60, 150])
        self._numbers = itertools.count(1)
        self._is_over = False
        self._attempt = 0
        self._leaves = 0
        """Subtasks of the failed attempt that have not been released."""
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self.time.after_each.append(self._look)
        self._deploy()
        self._trigger()

    # What tests do.

    def fail(self) -> None:
        """A subtask fails: all end, and begin again."""
        if self._leaves:
            return
        ending: list[Writer | Reader] = [*self.writers, *self.readers]
        self._leaves = len(ending)
        for task in ending:
            self.time.soon(partial(self._end, task), 50)

    def kill(self, name: str) -> None:
        """A process dies, and another one takes its place."""
        member = self.members[name]
        member.die()
        self.members[name] = Member(self, name, self.slots)
        self.fail()

    def reset(self, name: str) -> None:
        """All connections of a process break."""
        for stream in self.members[name].streams:
            stream.reset()
        self.members[name].streams.clear()

    def cut(self) -> None:
        """Nothing arrives any more."""
        self.is_cut = True
        for wire in self._wires():
            wire.cut()

    def mend(self) -> None:
        """What was sent meanwhile arrives late."""
        self.is_cut = False
        for wire in self._wires():
            wire.mend()

    def end(self) -> None:
        """Nothing more befalls: all rows arrive; then nothing is left."""
        self.mend()
        for member in self.members.values():
            member.process.go_on()
        assert self.time.run_until(self._is_finished, 3_600_000), f"the exchange stands still: {self._progress()}"
        self._is_over = True
        self.time.run_for(WAIT_MS)  # credit that is on its way, and requests that nobody has cancelled
        self._check_credit()
        for task in (*self.readers, *self.writers):
            task.release()
        self.time.run_for(2 * WAIT_MS)
        for member in self.members.values():
            member.check_empty()

    # What others ask.

    def a_size(self) -> tuple[int, int]:
        """(rows of a batch, bytes of padding of each)."""
        chance = self.time.chance
        if self.has_large_rows and chance.random() < 0.2:
            return 1, 3 * SLOT_BYTES
        return chance.choice([(1, 0), (3, 5_000), (1, SLOT_BYTES - 2_000), (20, 0)])

    def member_of_writer(self, index: int) -> Member:
        """Where a producer runs."""
        return list(self.members.values())[index % len(self.members)]

    def member_of_reader(self, index: int) -> Member:
        """Where a consumer runs."""
        return list(self.members.values())[(index + 1) % len(self.members)]

    # ---- inside

    def _look(self) -> None:
        for member in self.members.values():
            member.look()

    def _wires(self) -> list:  # type: ignore[type-arg]
        return [stream.incoming for member in self.members.values() for stream in member.streams]

    def _deploy(self) -> None:
        self._attempt += 1
        attempt = str(self._attempt)
        self.writers = [Writer(self, v, i, attempt, self._batches) for i, v in enumerate(self._sources)]
        self.readers = [Reader(self, v, i, self.writers) for i, v in enumerate(self._sinks)]
        for task in (*self.writers, *self.readers):
            task.member.process.soon(task.start, 20)

    def _trigger(self) -> None:
        """Have all producers send a barrier, each at its own time."""
        if self._is_over:
            return
        chance = self.time.chance
        alignment = chance.choice([Alignment.ALIGNED, Alignment.UNALIGNED])
        timeout_ms = chance.choice([None, 0, 5, 100])
        options = CheckpointOptions(alignment=alignment, alignment_timeout_ms=timeout_ms)
        barrier = CheckpointBarrier(next(self._numbers), self.time.now_ms(), options)
        for writer in self.writers:
            writer.member.process.soon(partial(writer.trigger, barrier), self.write_pace_ms)
        self.time.after(chance.uniform(0, 2 * self._barriers_every_ms), self._trigger)

    def _end(self, task: Writer | Reader) -> None:
        if not task.member.process.is_dead:
            task.release()
        self._leaves -= 1
        if not self._leaves:
            self._deploy()

    def _is_finished(self) -> bool:
        return not self._leaves and all(reader.is_finished for reader in self.readers)

    def _progress(self) -> list[tuple[list[int], list[int]]]:
        return [(reader.read, [w.written[reader.index] for w in self.writers]) for reader in self.readers]

    def _check_credit(self) -> None:
        """Both ends of a connection agree on the credit of each channel when nothing is on its way."""
        for member in self.members.values():
            for address, connection in member.connections.items():
                senders = [s for s in self.members[address].senders if s._frames.peer == member.name]
                served = {number: channel for sender in senders for number, channel in sender._channels.items()}
                for number, channel in connection._channels.items():
                    assert channel._credit._promised == served[number].credit, "credit was lost"
