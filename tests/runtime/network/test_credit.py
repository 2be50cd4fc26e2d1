"""Receivers have slots of their own: exclusive ones a channel, floating ones a gate, asked for by the sender's backlog."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_fakes import pairs, random_rows

from flowrun.core.elements import Alignment, CheckpointBarrier, CheckpointOptions
from flowrun.errors import ClusterError
from flowrun.runtime.network.buffer_pool import SLOT_BYTES, GlobalBufferPool
from flowrun.runtime.network.channel import LocalInputChannel
from flowrun.runtime.network.credit import GateCredit
from flowrun.runtime.network.gate import SingleInputGate
from flowrun.runtime.network.pipelined import PipelinedSubpartition
from flowrun.runtime.network.subpartition import Control, Data


def test_a_channel_begins_with_its_exclusive_slots() -> None:
    pool = GlobalBufferPool(20)
    gate = GateCredit(pool, 3, exclusive=2, floating=8)
    assert [c.available for c in gate.channels] == [2, 2, 2]
    assert pool.free_slots == 14
    gate.release()
    gate.release()
    assert pool.free_slots == 20


def test_a_backlog_brings_floating_slots_as_far_as_there_are_any() -> None:
    gate = GateCredit(GlobalBufferPool(1_000), 2, exclusive=2, floating=8)
    first, second = gate.channels
    assert first.for_backlog(1) == 2
    assert gate.used_floating == 0
    assert first.for_backlog(7) == 7
    first.receive(7)
    assert second.for_backlog(100) == 2 + 3
    assert gate.used_floating == 8


def test_a_channel_that_holds_nothing_parts_with_its_floating_slots() -> None:
    gate = GateCredit(GlobalBufferPool(1_000), 2, exclusive=2, floating=8)
    first, second = gate.channels
    first.receive(first.for_backlog(10))
    assert second.for_backlog(10) == 2
    first.recycle()
    assert second.for_backlog(10) == 10


def test_floating_slots_go_back_at_once_when_the_process_has_few() -> None:
    pool = GlobalBufferPool(20)
    (channel,) = GateCredit(pool, 1, exclusive=2, floating=18).channels
    channel.receive(channel.for_backlog(18))
    assert pool.free_slots == 2
    channel.recycle()
    assert pool.free_slots == 18


def test_too_few_exclusive_slots_are_refused() -> None:
    with pytest.raises(ClusterError, match="8 slots needed for one more result partition or input gate, 5 of 5 left"):
        GateCredit(GlobalBufferPool(5), 4)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["announce", "receive", "recycle"]), st.integers(1, 30)),
        max_size=60,
    )
)
def test_credit_is_never_lost_or_made_up(steps: list[tuple[int, str, int]]) -> None:
    pool = GlobalBufferPool(40)
    gate = GateCredit(pool, 3, exclusive=2, floating=20)
    for index, what, slots in steps:
        channel = gate.channels[index]
        if what == "announce":
            assert channel.for_backlog(slots) >= min(channel.available, slots)
        elif what == "receive":
            channel.receive(min(slots, max(channel.for_backlog(slots), 1)))
        else:
            channel.recycle()
            assert channel.available >= 2
        assert all(c.available >= 0 for c in gate.channels)
    for channel in gate.channels:
        channel.release()
    gate.release()
    assert pool.free_slots == 40


def test_slots_that_were_promised_to_another_process_are_given_to_nobody_else() -> None:
    pool = GlobalBufferPool(1_000)
    gate = GateCredit(pool, 2, exclusive=2, floating=8)
    first, second = gate.channels
    assert first.promise(10) == 10
    assert second.promise(10) == 2, "the sender of the first may fill all floating ones"
    first.receive_promised(10)
    assert gate.used_floating == 8
    first.recycle()
    assert second.promise(10) == 8
    assert first.promise(10) == 2
    second.receive_promised(10)
    first.receive_promised(2)
    assert gate.used_floating == 8


def test_rows_that_wait_keep_their_slots_when_the_process_has_few() -> None:
    pool = GlobalBufferPool(20)
    (channel,) = GateCredit(pool, 1, exclusive=2, floating=18).channels
    assert channel.promise(18) == 18
    channel.receive_promised(18)
    channel.recycle(still_held=12)
    assert pool.free_slots == 8
    assert pool.borrow(8), "others may have what is free, and only that"
    channel.recycle()
    assert pool.free_slots == 10


def test_a_channel_does_not_count_its_own_slots_twice() -> None:
    gate = GateCredit(GlobalBufferPool(1_000), 2, exclusive=2, floating=8)
    first, _ = gate.channels
    assert first.for_backlog(10) == 10
    assert first.for_backlog(20) == 10
    assert first.available == 10


def test_a_sender_without_backlog_keeps_its_share_only() -> None:
    gate = GateCredit(GlobalBufferPool(1_000), 2, exclusive=2, floating=8)
    first, second = gate.channels
    assert first.promise(10) == 10
    first.receive_promised(10)
    first.recycle()
    assert first.promise(0) == 2 + 4
    assert second.promise(100) == 2 + 4


class Sender:
    """Sends rows as far as it has credit, as another process does."""

    def __init__(self) -> None:
        self.credit = 0
        self.queued = 0

    def send(self, most: int) -> int:
        sent = min(most, self.credit, self.queued)
        self.credit -= sent
        self.queued -= sent
        return sent


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["write", "send", "recycle", "take", "others"]), st.integers(1, 30)
        ),
        max_size=80,
    )
)
def test_senders_that_keep_to_their_credit_never_overdraw(steps: list[tuple[int, str, int]]) -> None:
    pool = GlobalBufferPool(40)
    gate = GateCredit(pool, 3, exclusive=2, floating=20)
    senders, waiting, taken = [Sender() for _ in range(3)], [0] * 3, 0
    for sender, channel in zip(senders, gate.channels, strict=True):
        sender.credit += channel.promise(0)
    for index, what, slots in steps:
        channel, sender = gate.channels[index], senders[index]
        if what == "write":
            sender.queued += slots
        elif what == "send":
            if sent := sender.send(slots):
                channel.receive_promised(sent)
                waiting[index] += sent
                sender.credit += channel.promise(sender.queued)
        elif what == "take":
            waiting[index] -= min(waiting[index], slots)
        elif what == "recycle":
            channel.recycle(waiting[index])
            sender.credit += channel.promise(sender.queued)
        else:
            taken += pool.borrow_some(slots)
        assert gate.used_floating <= 20
        assert pool.free_slots >= 0
        assert sender.credit >= 0
    for _ in range(200):  # everybody comes to his end, however little the others leave
        for channel, sender in zip(gate.channels, senders, strict=True):
            if sent := sender.send(10):
                channel.receive_promised(sent)
                sender.credit += channel.promise(sender.queued)
            channel.recycle()
            sender.credit += channel.promise(sender.queued)
    assert [s.queued for s in senders] == [0] * 3
    for channel in gate.channels:
        channel.release()
    gate.release()
    assert pool.free_slots == 40 - taken


def gate_over(
    pool: GlobalBufferPool, channels: int, floating: int
) -> tuple[list[PipelinedSubpartition], SingleInputGate]:
    queues = [PipelinedSubpartition(f"q{i}", lambda slots: None) for i in range(channels)]
    credit = GateCredit(pool, channels, floating=floating)
    own = [LocalInputChannel(q.name, q.create_view, c) for q, c in zip(queues, credit.channels, strict=True)]
    gate = SingleInputGate(own, 100_000, credit.release)
    gate.set_listener(lambda: None)
    gate.request_partitions()
    return queues, gate


def test_what_a_task_has_in_its_hands_is_charged_until_it_asks_for_more() -> None:
    pool = GlobalBufferPool(100)
    (queue,), gate = gate_over(pool, 1, 90)
    queue.add(random_rows(80_000), 1_920_000, 0)
    queue.flush()
    assert gate.poll() is not None
    assert pool.free_slots == 100 - 2 - (-(-1_920_000 // SLOT_BYTES) - 2)
    assert gate.poll() is None
    assert pool.free_slots == 98
    gate.release()
    assert pool.free_slots == 100


def test_events_come_without_credit() -> None:
    """The channel has given all that it may in one round; the barrier that overtook the rest is found all the same."""
    (queue,), gate = gate_over(GlobalBufferPool(100), 1, 0)
    batch = random_rows(20_000)
    queue.add(batch, batch.nbytes, 0)
    queue.flush()
    channel = gate._channels[0]
    first = channel.poll(100_000)
    assert isinstance(first, Data)
    assert channel.poll(100_000) is None, "there is no credit left"
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(alignment=Alignment.UNALIGNED))
    queue.add_barrier(barrier, lambda overtaken: None)
    found = channel.poll(100_000)
    assert isinstance(found, Control)
    assert found.event == barrier
    channel.recycle()
    assert isinstance(channel.poll(100_000), Data)


def test_without_floating_slots_a_task_gets_little_at_a_time() -> None:
    pool = GlobalBufferPool(100)
    queues, gate = gate_over(pool, 2, 0)
    batch = random_rows(20_000)
    for queue in queues:
        queue.add(batch, batch.nbytes, 0)
        queue.flush()
    found = []
    while (element := gate.poll()) is not None:
        assert element.nbytes <= 2 * 2 * SLOT_BYTES  # type: ignore[union-attr]
        found.append(element)
    assert sorted(pairs(found)) == sorted(2 * pairs([batch]))  # type: ignore[arg-type]
    gate.release()
    assert pool.free_slots == 100
