"""Gates read their channels fairly, coalesce what is ready, and keep order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from runtime_fakes import pairs, rows

from flowrun.core.elements import END_OF_INPUT, CheckpointBarrier, Event, RecordBatch, Watermark
from flowrun.errors import InternalError
from flowrun.runtime.network.barriers import BarrierTracker
from flowrun.runtime.network.channel import LocalInputChannel
from flowrun.runtime.network.gate import GateEvent, InputGate, SingleInputGate, UnionInputGate
from flowrun.runtime.network.subpartition import Control, Data, PipelinedSubpartition


def gate_of(channels: int, batch_rows: int = 100) -> tuple[list[PipelinedSubpartition], SingleInputGate]:
    queues = [PipelinedSubpartition(f"q{i}", lambda slots: None) for i in range(channels)]
    gate = SingleInputGate([LocalInputChannel(q.name, q.create_view) for q in queues], batch_rows)
    gate.request_partitions()
    return queues, gate


def put(queue: PipelinedSubpartition, *elements: RecordBatch | Event) -> None:
    for element in elements:
        if isinstance(element, RecordBatch):
            queue.add(element, 1, 1)
        else:
            queue.add_event(element)
    queue.flush()


def drain(gate: InputGate) -> list[object]:
    found: list[object] = []
    while (element := gate.poll()) is not None:
        found.append(pairs([element]) if isinstance(element, RecordBatch) else (element.channel, element.event))
    return found


def test_what_is_ready_comes_as_one_batch_over_all_channels() -> None:
    queues, gate = gate_of(3)
    for i, queue in enumerate(queues):
        put(queue, rows([i], [0]), rows([i], [1]))
    assert drain(gate) == [[(k, v) for k in range(3) for v in range(2)]]


def test_events_do_not_overtake_and_are_not_overtaken() -> None:
    queues, gate = gate_of(2)
    put(queues[0], rows([1]), Watermark(3), rows([2]))
    put(queues[1], rows([9]))
    assert drain(gate) == [[(1, 0), (9, 0)], (0, Watermark(3)), [(2, 0)]]


def test_big_batches_are_not_copied_together() -> None:
    queues, gate = gate_of(2, batch_rows=10)
    big = rows(list(range(8)))
    put(queues[0], big)
    put(queues[1], big)
    assert gate.poll() is big
    assert gate.poll() is big


def test_a_busy_channel_does_not_starve_another() -> None:
    queues, gate = gate_of(2, batch_rows=1)
    put(queues[0], *(rows([0], [i]) for i in range(4)))
    put(queues[1], *(rows([1], [i]) for i in range(4)))
    keys = [k for found in drain(gate) for k, _ in found]  # type: ignore[attr-defined]
    assert keys == [0, 1] * 4


def test_batches_with_and_without_event_time_stay_apart() -> None:
    queues, gate = gate_of(1)
    put(queues[0], rows([1]), rows([2], times=False), rows([3], times=False))
    assert drain(gate) == [[(1, 0)], [(2, 0), (3, 0)]]


def test_the_listener_is_called_only_after_nothing_was_found() -> None:
    queues, gate = gate_of(2)
    heard: list[int] = []
    gate.set_listener(lambda: heard.append(1))
    put(queues[0], rows([1]))
    assert heard == []
    drain(gate)
    put(queues[1], rows([1]))
    put(queues[0], rows([1]))
    assert heard == [1]


def test_a_blocked_channel_is_left_alone_until_it_is_resumed() -> None:
    queues, gate = gate_of(2)
    gate.block(0)
    put(queues[0], rows([1]))
    put(queues[1], rows([2]))
    assert drain(gate) == [[(2, 0)]]
    gate.resume(0)
    assert drain(gate) == [[(1, 0)]]


def test_a_gate_is_finished_once_all_channels_have_ended() -> None:
    queues, gate = gate_of(2)
    put(queues[0], END_OF_INPUT)
    drain(gate)
    assert not gate.is_finished
    put(queues[1], END_OF_INPUT)
    assert not gate.is_finished, "ended, but not read yet"
    drain(gate)
    assert gate.is_finished


def test_a_union_numbers_channels_through_and_takes_turns() -> None:
    (a,), left = gate_of(1, batch_rows=1)
    (b, c), right = gate_of(2, batch_rows=1)
    union = UnionInputGate([left, right])
    heard: list[int] = []
    union.set_listener(lambda: heard.append(1))
    assert union.channels == 3
    put(a, rows([1]), rows([1]), END_OF_INPUT)
    put(b, rows([2]))
    put(c, Watermark(1), END_OF_INPUT)
    found = drain(union)
    assert found[:2] == [[(1, 0)], [(2, 0)]]
    assert (2, Watermark(1)) in found
    assert not union.is_finished
    union.block(1)
    put(b, END_OF_INPUT)
    assert drain(union) == []
    assert heard == [1]
    union.resume(1)
    assert drain(union) == [(1, END_OF_INPUT)]
    assert union.is_finished
    union.release()


def test_a_gap_in_a_channel_is_a_bug() -> None:
    class Gappy:
        def __init__(self) -> None:
            self.elements: deque[Data | Control] = deque(
                [Data([rows([1])], 0, 0, True), Data([rows([1])], 2, 0, False)]
            )

        def poll(self, max_rows: int) -> Data | Control | None:
            return self.elements.popleft()

        def release(self) -> None: ...

    def open_view(listener: Callable[[], None]) -> Gappy:
        return Gappy()

    channel = LocalInputChannel("c", open_view)
    assert channel.poll(1) is None, "not requested yet"
    channel.request(lambda: None)
    channel.poll(1)
    with pytest.raises(InternalError, match="expected element 1, got 2"):
        channel.poll(1)


def test_the_tracker_acts_once_all_open_channels_have_the_barrier() -> None:
    tracker = BarrierTracker(3)
    first, second = CheckpointBarrier(1, 0), CheckpointBarrier(2, 0)
    assert tracker.barrier(0, first) is None
    assert tracker.barrier(1, first) is None
    assert tracker.end_of_input(2) == first
    assert tracker.barrier(0, first) is None, "late: forgotten"
    assert tracker.barrier(0, second) is None
    assert tracker.barrier(1, CheckpointBarrier(3, 0)) is None
    assert tracker.barrier(0, CheckpointBarrier(3, 0)) == CheckpointBarrier(3, 0), "a newer one subsumes"
    assert tracker.barrier(1, second) is None


def test_one_channel_acts_at_once() -> None:
    assert BarrierTracker(1).barrier(0, CheckpointBarrier(4, 0)) == CheckpointBarrier(4, 0)


def test_gate_events_name_their_channel() -> None:
    queues, gate = gate_of(2)
    put(queues[1], Watermark(1))
    assert gate.poll() == GateEvent(1, Watermark(1))
