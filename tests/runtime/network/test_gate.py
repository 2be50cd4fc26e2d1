"""Gates read their channels fairly, coalesce what is ready, and keep order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from runtime_fakes import pairs, rows

from flowrun.core.elements import (
    END_OF_INPUT,
    Alignment,
    CheckpointBarrier,
    CheckpointOptions,
    Event,
    RecordBatch,
    Watermark,
)
from flowrun.errors import InternalError
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.channel import LocalInputChannel
from flowrun.runtime.network.credit import ChannelCredit, GateCredit
from flowrun.runtime.network.gate import GateEvent, GateRows, InputGate, SingleInputGate, UnionInputGate
from flowrun.runtime.network.pipelined import PipelinedSubpartition
from flowrun.runtime.network.subpartition import Control, Data


def credit() -> ChannelCredit:
    (own,) = GateCredit(GlobalBufferPool(), 1).channels
    return own


def gate_of(
    channels: int, batch_rows: int = 100, *, watermarks_may_wait: bool = False
) -> tuple[list[PipelinedSubpartition], SingleInputGate]:
    queues = [PipelinedSubpartition(f"q{i}", lambda slots: None) for i in range(channels)]
    inputs = [LocalInputChannel(q.name, q.create_view, credit()) for q in queues]
    gate = SingleInputGate(inputs, batch_rows, watermarks_may_wait=watermarks_may_wait)
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


def test_a_channel_that_ended_before_the_gate_was_connected_is_read_first() -> None:
    queues = [PipelinedSubpartition(f"q{i}", lambda slots: None) for i in range(3)]
    put(queues[0], rows([0], [0]), Watermark(5))
    put(queues[2], Watermark(9), END_OF_INPUT)
    gate = SingleInputGate([LocalInputChannel(q.name, q.create_view, credit()) for q in queues], 100)
    gate.request_partitions()
    assert drain(gate) == [(2, Watermark(9)), [(0, 0)], (2, END_OF_INPUT), (0, Watermark(5))]


def test_events_do_not_overtake_and_are_not_overtaken() -> None:
    queues, gate = gate_of(2)
    put(queues[0], rows([1]), Watermark(3), rows([2]))
    put(queues[1], rows([9]))
    assert drain(gate) == [[(1, 0), (9, 0)], (0, Watermark(3)), [(2, 0)]]


def test_watermarks_that_may_wait_come_behind_what_is_ready_and_only_the_last_of_each_channel() -> None:
    queues, gate = gate_of(2, watermarks_may_wait=True)
    put(queues[0], rows([1]), Watermark(3), rows([2]), Watermark(4))
    put(queues[1], Watermark(1), rows([9]), Watermark(2), rows([8]))
    found = drain(gate)
    batches = [element for element in found if isinstance(element, list)]
    assert sorted(key for batch in batches for key, _ in batch) == [1, 2, 8, 9]
    assert len(batches) < 4
    assert [e for e in found if e[0] == 0] == [(0, Watermark(4))]
    assert [e for e in found if e[0] == 1][-1] == (1, Watermark(2))
    assert drain(gate) == []


def test_no_other_event_is_overtaken_by_rows_nor_by_watermarks_that_wait() -> None:
    queues, gate = gate_of(1, watermarks_may_wait=True)
    barrier = CheckpointBarrier(1, 0)
    put(queues[0], rows([1]), Watermark(3), rows([2]), Watermark(4), barrier, rows([3]), Watermark(5), END_OF_INPUT)
    assert drain(gate) == [
        [(1, 0), (2, 0)],
        (0, Watermark(4)),
        (0, barrier),
        [(3, 0)],
        (0, Watermark(5)),
        (0, END_OF_INPUT),
    ]
    assert gate.is_finished


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
                [Data([rows([1])], 0, 0, True, 1), Data([rows([1])], 2, 0, False, 1)]
            )

        backlog = 0

        def poll(self, max_rows: int, credit: int) -> Data | Control | None:
            return self.elements.popleft()

        def release(self) -> None: ...

    def open_view(listener: Callable[[], None], urgent: Callable[[], None]) -> Gappy:
        return Gappy()

    channel = LocalInputChannel("c", open_view, credit())
    assert channel.poll(1) is None, "not requested yet"
    channel.request(lambda: None, lambda: None)
    channel.poll(1)
    with pytest.raises(InternalError, match="expected element 1, got 2"):
        channel.poll(1)


def test_gate_events_name_their_channel() -> None:
    queues, gate = gate_of(2)
    put(queues[1], Watermark(1))
    assert gate.poll() == GateEvent(1, Watermark(1))


UNALIGNED = CheckpointBarrier(1, 0, CheckpointOptions(alignment=Alignment.UNALIGNED))


def drain_channels(gate: InputGate) -> list[object]:
    found: list[object] = []
    while (element := gate.poll_channel()) is not None:
        content = pairs([element.rows]) if isinstance(element, GateRows) else element.event
        found.append((element.channel, content))
    return found


def test_rows_of_one_channel_at_a_time_name_their_channel() -> None:
    (a, b), left = gate_of(2)
    (c,), right = gate_of(1)
    union = UnionInputGate([left, right])
    put(a, rows([1], [0]), rows([1], [1]), Watermark(1))
    put(b, rows([2]))
    put(c, rows([3]), rows([3], times=False))
    assert sorted(drain_channels(union), key=lambda found: found[0]) == [  # type: ignore[index]
        (0, [(1, 0), (1, 1)]),
        (0, Watermark(1)),
        (1, [(2, 0)]),
        (2, [(3, 0)]),
        (2, [(3, 0)]),
    ]


def test_what_a_gate_holds_keeps_its_channel() -> None:
    """Taken from its channel, not given yet: it may have to be recorded as in flight."""
    queues, gate = gate_of(2)
    put(queues[0], rows([1]))
    put(queues[1], rows([2], times=False), Watermark(7))
    assert pairs([gate.poll()]) == [(1, 0)]  # type: ignore[list-item]
    assert drain_channels(gate) == [(1, [(2, 0)]), (1, Watermark(7))]


def test_a_channel_with_a_barrier_that_overtook_is_read_next() -> None:
    queues, gate = gate_of(3, batch_rows=1)
    for queue in queues:
        put(queue, rows([1]), rows([2]))
    gate.poll()
    queues[2].add_barrier(UNALIGNED, lambda overtaken: None)
    assert gate.poll() == GateEvent(2, UNALIGNED)


def test_a_gate_says_that_a_barrier_has_overtaken_until_it_is_read() -> None:
    queues, gate = gate_of(2)
    woken: list[str] = []
    gate.set_listener(lambda: woken.append("woken"))
    put(queues[0], rows(range(3)))
    put(queues[1], rows(range(3)))
    assert not gate.has_urgent
    before = len(woken)
    queues[1].add_barrier(UNALIGNED, lambda overtaken: None)
    assert gate.has_urgent
    assert len(woken) == before + 1, "a reader that has no room for rows is woken, too"
    event = gate.poll()
    assert isinstance(event, GateEvent)
    assert event.channel == 1
    assert not gate.has_urgent


def test_nothing_behind_a_barrier_is_given_before_the_alignment_ends() -> None:
    queues, gate = gate_of(3)
    barrier = CheckpointBarrier(1, 0)
    for number, queue in enumerate(queues):
        put(queue, rows([number], [0]))
    put(queues[0], barrier, rows([0], [1]))
    put(queues[1], barrier, rows([1], [1]))
    found: list[object] = []
    while (element := gate.poll()) is not None:
        found.append(pairs([element]) if isinstance(element, RecordBatch) else element)
        if isinstance(element, GateEvent):
            gate.block(element.channel)
    given = [pair for e in found if isinstance(e, list) for pair in e]
    assert sorted(given) == [(0, 0), (1, 0), (2, 0)]
    assert [e for e in found if isinstance(e, GateEvent)] == [GateEvent(0, barrier), GateEvent(1, barrier)]
    gate.resume(0)
    gate.resume(1)
    assert sorted(pair for batch in drain(gate) for pair in batch) == [(0, 1), (1, 1)]  # type: ignore[attr-defined]
