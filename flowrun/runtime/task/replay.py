"""Rows that were in flight when an unaligned checkpoint was taken: processed before a restored subtask reads anything else.

They are taken as if the old consumers still existed: each has its valves, over its old channels, which go on where they were. At an
unchanged parallelism there is one. At another a subtask processes the rows of several, which had come to different event times
because watermarks were in flight as well. So it is always the old consumer that is furthest behind that goes on, and event time is
that of those which have something left: each row is judged late or not as its old consumer would have.

Event time never passes what any old consumer comes to with all that was in flight to it. Where each producer sends to all consumers they
come to the same. On a forward exchange they do not: the producer of the one that is behind may itself have rows in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from flowrun.api.state import KeyGroupRange
from flowrun.core.elements import ACTIVE, IDLE, MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch, Watermark, WatermarkStatus
from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionVertex, InputGate
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runtime.messages import RestoredChannel
from flowrun.runtime.network.valve import ChannelState, StatusWatermarkValve
from flowrun.runtime.task.network_input import Head
from flowrun.state.checkpoints import KeptElement
from flowrun.state.key_groups import key_group_range, key_groups


def replay_in_flight(
    channels: Sequence[RestoredChannel],
    vertex: ExecutionVertex,
    head: Head,
    check_cancelled: Callable[[], None],
) -> tuple[int, ...]:
    """Have an operator process everything that was in flight to it; gives the event time that each input came to, ms.

    Args:
        channels: of old consumer subtasks, all to one operator of the chain.
        vertex: the subtask.
        head: is fed: the head of the chain, or what stands for an operator within it, whose only input these channels are.
        check_cancelled: called before each element; raises if the task was cancelled.
    """
    inside_chain = channels[0].operator > 0
    inputs = 1 if inside_chain else 1 + max(gate.input_index for gate in vertex.gates)
    numbers = sorted({c.old_consumer for c in channels})

    def input_of(channel: RestoredChannel) -> int:
        return 0 if inside_chain else vertex.gates[channel.gate].input_index

    def old_consumers() -> list[_OldConsumer]:
        return [_OldConsumer([c for c in channels if c.old_consumer == n], input_of, inputs) for n in numbers]

    consumers = old_consumers()
    shown = _ShownTime(head, _limits(old_consumers(), inputs))
    groups = key_group_range(vertex.subtask, vertex.job_vertex.parallelism, vertex.job_vertex.max_parallelism)
    shown.update(consumers)
    while left := [c for c in consumers if c.has_more]:
        check_cancelled()
        source, element = min(left, key=lambda c: c.event_time).take()
        if isinstance(element, RecordBatch):
            rows = element
            if source.filter_keys:
                rows = _own(element, vertex.gates[source.gate], groups, vertex.job_vertex.max_parallelism)
            if rows.num_rows:
                head.process_batch(rows, input_of(source))
        shown.update(consumers)
    shown.wake()
    return tuple(shown.watermarks)


def _limits(consumers: Sequence[_OldConsumer], inputs: int) -> list[int]:
    """What event time may come to on each input, ms: the minimum over these consumers, which are used up for it, once everything in
    flight has passed their valves. Those that end idle do not count.
    """
    for consumer in consumers:
        while consumer.has_more:
            consumer.take()
    return [
        min((v.last_watermark for c in consumers if (v := c.valves[i]) and not v.idle), default=MAX_TIMESTAMP)
        for i in range(inputs)
    ]


class _Place:
    """A channel of an old consumer: its number in the valve of its input, and what comes next."""

    __slots__ = ("channel", "input", "next", "number")

    def __init__(self, channel: RestoredChannel, index: int, number: int) -> None:
        self.channel = channel
        self.input = index
        self.number = number
        self.next = 0


class _OldConsumer:
    """The channels and valves of one subtask of the old job."""

    def __init__(
        self, channels: Sequence[RestoredChannel], input_of: Callable[[RestoredChannel], int], inputs: int
    ) -> None:
        self.valves: list[StatusWatermarkValve | None] = []
        """By input; None: it had no channel there."""
        self._places: list[_Place] = []
        for index in range(inputs):
            mine = [c for c in channels if input_of(c) == index]
            valve = StatusWatermarkValve(len(mine)) if mine else None
            if valve is not None:
                valve.start([ChannelState(c.watermark, c.idle, c.aligned) for c in mine])
            self.valves.append(valve)
            self._places += [_Place(c, index, number) for number, c in enumerate(mine) if c.elements]

    @property
    def has_more(self) -> bool:
        """Whether something is left to process."""
        return bool(self._places)

    @property
    def event_time(self) -> int:
        """What its operator had come to: the minimum over the inputs that count, ms."""
        return min(v.last_watermark for i, v in enumerate(self.valves) if v is not None and self.counts(i))

    def counts(self, index: int) -> bool:
        """Whether an input has a say in event time: an idle one only if all are, as then the last value stands."""
        valve = self.valves[index]
        if valve is None:
            return False
        return not valve.idle or all(v is None or v.idle for v in self.valves)

    def take(self) -> tuple[RestoredChannel, KeptElement]:
        """The next element of the channel that is furthest behind; an event has gone through its valve."""
        place = min(self._places, key=self._watermark_at)
        element = place.channel.elements[place.next]
        place.next += 1
        if place.next == len(place.channel.elements):
            self._places.remove(place)
        valve = self.valves[place.input]
        assert valve is not None
        if isinstance(element, Watermark):
            valve.watermark(place.number, element.timestamp)
        elif isinstance(element, WatermarkStatus):
            valve.status(place.number, idle=element.idle)
        elif not isinstance(element, RecordBatch):
            raise InternalError(f"a {type(element).__name__} was in flight: only rows, watermarks and statuses can be")
        return place.channel, element

    def _watermark_at(self, place: _Place) -> int:
        valve = self.valves[place.input]
        assert valve is not None
        return valve.watermark_of(place.number)


class _ShownTime:
    """Event time and idleness of each input as the head was told.

    Args:
        head: is told.
        limits: what event time may come to, ms, by input.
    """

    def __init__(self, head: Head, limits: Sequence[int]) -> None:
        self._head = head
        self._limits = limits
        self.watermarks = [MIN_TIMESTAMP] * len(limits)
        self._idle = [False] * len(limits)

    def update(self, consumers: Sequence[_OldConsumer]) -> None:
        """Tell what is new: the minimum over the old consumers that have something left (over all, once none has)."""
        left = [c for c in consumers if c.has_more] or consumers
        for index in range(len(self.watermarks)):
            valves = [v for c in left if (v := c.valves[index]) is not None]
            if not valves:
                continue
            counting = [v for c in left if (v := c.valves[index]) is not None and c.counts(index)]
            timestamp = min(self._limits[index], *(v.last_watermark for v in counting or valves))
            idle = all(v.idle for v in valves)
            if self._idle[index] and not idle:
                self._show_status(index, ACTIVE)
            if timestamp > self.watermarks[index]:
                self.watermarks[index] = timestamp
                self._head.process_event(Watermark(timestamp), index)
            if idle and not self._idle[index]:
                self._show_status(index, IDLE)

    def wake(self) -> None:
        """The new channels are active until they say otherwise."""
        for index, idle in enumerate(self._idle):
            if idle:
                self._show_status(index, ACTIVE)

    def _show_status(self, index: int, status: WatermarkStatus) -> None:
        self._idle[index] = status.idle
        self._head.process_event(status, index)


def _own(batch: RecordBatch, gate: InputGate, groups: KeyGroupRange, max_parallelism: int) -> RecordBatch:
    """The rows of the subtask's own key groups, as other subtasks process the others."""
    if not isinstance(gate.partitioner, KeyGroupPartitioner):
        raise InternalError(f"rows in flight on a {gate.partitioner.label} exchange cannot be cut to key groups")
    found = key_groups([batch.columns.column(key) for key in gate.partitioner.keys], max_parallelism)
    return batch.filter(pa.array((found >= groups.start) & (found < groups.stop)))
