"""Queues, gates, valves and handlers together: the cut of every checkpoint is exact, whatever is coalesced, held, or overtakes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from runtime_fakes import pairs, rows

from flowrun.api.operator import InputStatus
from flowrun.core.clock import ManualClock
from flowrun.core.elements import (
    END_OF_INPUT,
    Alignment,
    CheckpointBarrier,
    CheckpointOptions,
    LatencyMarker,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)
from flowrun.runtime.metrics import ScopedMetrics
from flowrun.runtime.network.barrier_handlers import MixedBarrierHandler
from flowrun.runtime.network.barriers import TakeSnapshot
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.channel import LocalInputChannel
from flowrun.runtime.network.credit import ChannelCredit, GateCredit
from flowrun.runtime.network.gate import InputGate, SingleInputGate, UnionInputGate
from flowrun.runtime.network.pipelined import PipelinedSubpartition
from flowrun.runtime.network.subpartition import InFlightElement
from flowrun.runtime.task.network_input import NetworkInput

Row = tuple[int, int]
"""(channel, number of the row in it)"""


@dataclass
class Cut:
    barrier: CheckpointBarrier
    processed: set[Row]
    open: set[int]
    rows: set[Row] = field(default_factory=set)

    def add(self, elements: Sequence[InFlightElement]) -> None:
        for element in elements:
            if isinstance(element, RecordBatch):
                found = pairs([element])
                assert self.rows.isdisjoint(found), "twice in flight"
                self.rows.update(found)


def credit() -> ChannelCredit:
    (own,) = GateCredit(GlobalBufferPool(), 1).channels
    return own


class Consumer:
    """Is head and checkpointing in one: keeps what was processed, and every cut."""

    def __init__(self) -> None:
        self.processed: list[Row] = []
        self.cuts: dict[int, Cut] = {}
        self.early: dict[int, list[Sequence[InFlightElement]]] = {}
        """Overtaken before the consumer saw the barrier."""
        self.wake: list[int] = []

    def process_batch(self, batch: RecordBatch, input_index: int) -> None:
        self.processed += pairs([batch])

    def process_event(self, event: Watermark | WatermarkStatus | LatencyMarker, input_index: int) -> None: ...

    def end_input(self, input_index: int) -> None: ...

    def take(self, action: TakeSnapshot) -> None:
        cut = Cut(action.barrier, set(self.processed), set(action.recorded))
        self.cuts[action.barrier.checkpoint_id] = cut
        for overtaken in self.early.pop(action.barrier.checkpoint_id, []):
            cut.add(overtaken)

    def record(self, checkpoint_id: int, channel: int, element: InFlightElement) -> None:
        assert channel in self.cuts[checkpoint_id].open
        self.cuts[checkpoint_id].add([element])

    def stop_recording(self, checkpoint_id: int, channel: int) -> None:
        self.cuts[checkpoint_id].open.remove(channel)

    def give_up(self, checkpoint_id: int, reason: str | None) -> None:
        raise AssertionError((checkpoint_id, reason))

    def wake_at(self, checkpoint_id: int, time_ms: int) -> None:
        self.wake.append(checkpoint_id)

    def overtaken(self, checkpoint_id: int, elements: Sequence[InFlightElement]) -> None:
        if checkpoint_id in self.cuts:
            self.cuts[checkpoint_id].add(elements)
        else:
            self.early.setdefault(checkpoint_id, []).append(elements)


class Bench:
    """Producers that write at random, and one consumer with one or two inputs, which may be unions."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.queues: list[PipelinedSubpartition] = []
        gates: list[InputGate] = []
        batch_rows = chance.choice([1, 3, 1000])
        for _ in range(chance.randint(1, 2)):
            members: list[InputGate] = []
            for _ in range(chance.randint(1, 2)):
                mine = [PipelinedSubpartition("q", lambda slots: None) for _ in range(chance.randint(1, 3))]
                self.queues += mine
                members.append(
                    SingleInputGate([LocalInputChannel("c", q.create_view, credit()) for q in mine], batch_rows)
                )
            gates.append(members[0] if len(members) == 1 else UnionInputGate(members))
        for gate in gates:
            gate.request_partitions()
        self.consumer = Consumer()
        handler = MixedBarrierHandler(len(self.queues), ManualClock(0))
        self.input = NetworkInput(self.consumer, gates, handler, self.consumer, ScopedMetrics(("task",)))
        self.written = [0] * len(self.queues)
        self.at_barrier: list[dict[int, int]] = [{} for _ in self.queues]
        """Checkpoint → rows written before its barrier."""
        self.ended = [False] * len(self.queues)

    def write(self, channel: int) -> None:
        count = self.chance.randint(1, 3)
        first = self.written[channel]
        batch = rows([channel] * count, list(range(first, first + count)), times=self.chance.random() < 0.7)
        self.queues[channel].add(batch, 1, 1)
        self.written[channel] += count
        if self.chance.random() < 0.5:
            self.queues[channel].flush()

    def send(self, channel: int, barrier: CheckpointBarrier) -> None:
        number = barrier.checkpoint_id
        self.at_barrier[channel][number] = self.written[channel]
        self.queues[channel].add_barrier(barrier, lambda overtaken: self.consumer.overtaken(number, overtaken))

    def end(self, channel: int) -> None:
        self.ended[channel] = True
        self.queues[channel].add_event(END_OF_INPUT)

    def expected(self, number: int) -> set[Row]:
        return {
            (channel, row)
            for channel, at in enumerate(self.at_barrier)
            for row in range(at.get(number, self.written[channel]))
        }


@pytest.mark.parametrize("kind", ["aligned", "unaligned", "timeout"])
@pytest.mark.parametrize("seed", range(60))
def test_the_cut_is_exact(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench(chance)
    options = {
        "aligned": CheckpointOptions(),
        "unaligned": CheckpointOptions(alignment=Alignment.UNALIGNED),
        "timeout": CheckpointOptions(alignment_timeout_ms=10),
    }[kind]
    channels = range(len(bench.queues))
    for number in range(1, 5):
        barrier = CheckpointBarrier(number, 0, options)
        left = [c for c in channels if not bench.ended[c]]
        if not left:
            break
        pending = set(left)
        while pending or number not in bench.consumer.cuts or bench.consumer.cuts[number].open:
            roll, channel = chance.random(), chance.choice(list(channels))
            if roll < 0.35 and not bench.ended[channel]:
                bench.write(channel)
            elif roll < 0.4 and not bench.ended[channel]:
                bench.queues[channel].add_event(Watermark(bench.written[channel]))
            elif roll < 0.5 and channel in pending:
                bench.send(channel, barrier)
                pending.remove(channel)
            elif roll < 0.51 and channel in pending and len(left) > 1:
                bench.end(channel)
                pending.remove(channel)
                left.remove(channel)
            elif roll < 0.53 and kind == "timeout":
                bench.queues[channel].overtake(number)
            elif roll < 0.54 and bench.consumer.wake:
                bench.input.alignment_timed_out(bench.consumer.wake.pop())
            elif roll > 0.7:
                bench.input.process_next()
    for channel in channels:
        if not bench.ended[channel]:
            bench.end(channel)
    while bench.input.process_next() is not InputStatus.END_OF_INPUT:
        pass
    everything = {(c, r) for c in channels for r in range(bench.written[c])}
    assert sorted(bench.consumer.processed) == sorted(everything)
    for number, cut in bench.consumer.cuts.items():
        assert cut.processed.isdisjoint(cut.rows), f"checkpoint {number}: both processed and in flight"
        assert cut.processed | cut.rows == bench.expected(number), f"checkpoint {number}"
        if kind == "aligned":
            assert not cut.rows
