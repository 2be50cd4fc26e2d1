"""A result partition accounts for what is in flight, shows rows when they are worth it, and never lets an event overtake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from runtime_fakes import pairs, random_rows, rows

from flowrun.core.clock import ManualClock
from flowrun.core.elements import (
    END_OF_INPUT,
    IDLE,
    Alignment,
    CheckpointBarrier,
    CheckpointOptions,
    LatencyMarker,
    RecordBatch,
    Watermark,
)
from flowrun.errors import InternalError, JobCancelledError
from flowrun.graph.execution_graph import PartitionId
from flowrun.runtime.network.barriers import as_unaligned
from flowrun.runtime.network.blocking import BlockingSubpartition
from flowrun.runtime.network.buffer_pool import SLOT_BYTES, GlobalBufferPool, LocalBufferPool
from flowrun.runtime.network.partition import (
    MIN_LINGER_MS,
    SATURATED_LINGER_MS,
    SATURATED_ROWS,
    WORTH_A_WAKE_UP_ROWS,
    ResultPartition,
)
from flowrun.runtime.network.partition_files import SubpartitionPath
from flowrun.runtime.network.pipelined import PipelinedSubpartition
from flowrun.runtime.network.subpartition import (
    Control,
    Data,
    InFlightElement,
    SubpartitionView,
)
from flowrun.runtime.timers import TimerThread


class Bench:
    """One pipelined partition of `channels` channels with its views and what their listeners heard."""

    def __init__(
        self,
        clock: ManualClock,
        timers: TimerThread,
        channels: int,
        slots: int,
        timeout_ms: int,
        waits: bool,
        saturated: Callable[[int], bool] = lambda _: False,
        overdraft: int = 0,
    ) -> None:
        self.shared = GlobalBufferPool(slots + 10)
        self.pool: LocalBufferPool = self.shared.create_local(1, slots, overdraft)
        subpartitions = [PipelinedSubpartition(f"p.{i}", self.pool.recycle) for i in range(channels)]
        self.partition = ResultPartition(
            "p",
            subpartitions,
            self.pool,
            clock=clock,
            timers=timers,
            buffer_timeout_ms=timeout_ms,
            watermarks_may_wait=waits,
            saturated=saturated,
        )
        self.heard = [0] * channels
        self.views = [self.partition.create_view(i, self._hear(i)) for i in range(channels)]

    def _hear(self, index: int) -> Callable[[], None]:
        def listen() -> None:
            self.heard[index] += 1

        return listen


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def timers(clock: ManualClock) -> Iterator[TimerThread]:
    thread = TimerThread(clock)
    yield thread
    thread.close()
    assert thread.failure is None


@pytest.fixture
def make(clock: ManualClock, timers: TimerThread) -> Callable[..., Bench]:
    def create(
        channels: int = 1,
        slots: int = 16,
        timeout_ms: int = 100,
        waits: bool = False,
        saturated: bool = False,
        overdraft: int = 0,
    ) -> Bench:
        return Bench(clock, timers, channels, slots, timeout_ms, waits, lambda _: saturated, overdraft)

    return create


def drain(view: SubpartitionView, max_rows: int = 1 << 20) -> list[object]:
    found: list[object] = []
    while (element := view.poll(max_rows)) is not None:
        found.append(pairs(element.batches) if isinstance(element, Data) else element.event)
    return found


def test_events_keep_their_place(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.partition.write([(0, rows([1]))])
    bench.partition.broadcast_event(Watermark(5))
    bench.partition.write([(0, rows([2]))])
    bench.partition.write([(0, rows([3]))])
    bench.partition.finish()
    assert drain(bench.views[0]) == [[(1, 0)], Watermark(5), [(2, 0), (3, 0)], END_OF_INPUT]


def test_that_it_ended_without_rows_is_known_when_all_readers_have_let_go(make: Callable[..., Bench]) -> None:
    bench, told = make(channels=2), threading.Event()
    bench.partition.broadcast_event(Watermark(5))
    bench.partition.finish()
    bench.partition.call_when_read(told.set, 60_000)
    bench.views[0].release()
    bench.views[0].release()
    assert not told.is_set()
    bench.views[1].release()
    assert told.is_set()
    late = threading.Event()
    bench.partition.call_when_read(late.set, 60_000)
    assert late.is_set(), "they have let go before"


def test_readers_that_do_not_let_go_are_waited_for_no_longer_than_said(
    make: Callable[..., Bench], clock: ManualClock, timers: TimerThread
) -> None:
    bench, told = make(channels=2), threading.Event()
    bench.partition.finish()
    bench.partition.call_when_read(told.set, 500)
    bench.views[0].release()
    clock.advance(499)
    wait_until(timers)
    assert not told.is_set()
    clock.advance(1)
    assert told.wait(10)
    bench.views[1].release()


def test_who_has_rows_knows_of_the_subtask(make: Callable[..., Bench]) -> None:
    bench, told = make(), threading.Event()
    bench.partition.write([(0, rows([1]))])
    bench.partition.finish()
    bench.partition.call_when_read(told.set, 60_000)
    assert told.is_set()


Settled = list[tuple[int, list[object]]]


def settle_into(found: Settled) -> Callable[[int, Sequence[InFlightElement]], None]:
    """Keep what a barrier overtook: rows as pairs."""
    return lambda channel, overtaken: found.append(
        (channel, [pairs([e]) if isinstance(e, RecordBatch) else e for e in overtaken])
    )


def test_an_unaligned_barrier_overtakes_and_gives_back_what_it_overtook(make: Callable[..., Bench]) -> None:
    """Rows that were not shown to the consumer count, too; probes do not."""
    bench, found = make(channels=2, timeout_ms=-1), Settled()
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(alignment=Alignment.UNALIGNED))
    bench.partition.write([(0, rows([1]))])
    bench.partition.broadcast_event(Watermark(3))
    bench.partition.send_event(0, LatencyMarker(0, "s", 0))
    bench.partition.broadcast_event(IDLE)
    bench.partition.write([(0, rows([2]))])
    bench.partition.broadcast_barrier(barrier, settle_into(found))
    assert found == [(0, [[(1, 0)], Watermark(3), IDLE, [(2, 0)]]), (1, [Watermark(3), IDLE])]
    assert drain(bench.views[0]) == [barrier, [(1, 0)], Watermark(3), LatencyMarker(0, "s", 0), IDLE, [(2, 0)]]
    assert bench.pool.used == 0


def test_a_barrier_that_keeps_its_place_overtakes_nothing(make: Callable[..., Bench]) -> None:
    bench, found = make(), Settled()
    bench.partition.write([(0, rows([1]))])
    bench.partition.broadcast_barrier(CheckpointBarrier(1, 0), settle_into(found))
    assert found == [(0, [])]
    assert drain(bench.views[0]) == [[(1, 0)], CheckpointBarrier(1, 0)]


def test_a_barrier_that_may_overtake_is_settled_when_it_is_taken(make: Callable[..., Bench]) -> None:
    bench, found = make(), Settled()
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(alignment_timeout_ms=10))
    bench.partition.write([(0, rows([1]))])
    bench.partition.broadcast_barrier(barrier, settle_into(found))
    assert found == []
    assert drain(bench.views[0]) == [[(1, 0)], barrier]
    assert found == [(0, [])]
    bench.partition.overtake(1)
    assert found == [(0, [])], "it is gone"


def test_a_stuck_barrier_overtakes_what_is_before_it_only(make: Callable[..., Bench]) -> None:
    bench, found = make(), Settled()
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(alignment_timeout_ms=10))
    bench.partition.write([(0, rows([1]))])
    bench.partition.broadcast_barrier(barrier, settle_into(found))
    bench.partition.write([(0, rows([2]))])
    bench.partition.finish()
    bench.partition.overtake(7)
    assert found == []
    bench.partition.overtake(1)
    assert found == [(0, [[(1, 0)]])]
    assert drain(bench.views[0]) == [as_unaligned(barrier), [(1, 0), (2, 0)], END_OF_INPUT]


def test_a_stuck_barrier_is_settled_when_its_consumer_is_gone(make: Callable[..., Bench]) -> None:
    bench, found = make(channels=2), Settled()
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(alignment_timeout_ms=10))
    bench.partition.broadcast_barrier(barrier, settle_into(found))
    bench.views[0].release()
    assert found == [(0, [])]
    bench.views[1].release()
    bench.partition.broadcast_barrier(replace(barrier, checkpoint_id=2), settle_into(found))
    overtaking = CheckpointBarrier(3, 0, CheckpointOptions(alignment=Alignment.UNALIGNED))
    bench.partition.broadcast_barrier(overtaking, settle_into(found))
    assert found == [(0, []), (1, []), (0, []), (1, []), (0, []), (1, [])]


def test_blocking_partitions_belong_to_no_checkpoint(tmp_path: Path) -> None:
    spilled, found = BlockingSubpartition(SubpartitionPath(tmp_path, PartitionId("d", 0), "first", 0)), list[object]()
    spilled.add(rows([1]), 0, 0)
    spilled.add_barrier(CheckpointBarrier(1, 0, CheckpointOptions(alignment_timeout_ms=10)), found.append)
    spilled.overtake(1)
    spilled.finish()
    assert found == [()]
    assert drain(spilled.create_view(lambda: None)) == [[(1, 0)]]
    spilled.release()


def test_a_lone_row_goes_at_once_and_a_second_one_lingers(
    make: Callable[..., Bench], clock: ManualClock, timers: TimerThread
) -> None:
    bench = make()
    bench.partition.write([(0, rows([1]))])
    assert bench.heard == [1]
    assert drain(bench.views[0]) == [[(1, 0)]]
    bench.partition.write([(0, rows([2]))])
    bench.partition.write([(0, rows([3]))])
    clock.advance(MIN_LINGER_MS - 1)
    wait_until(timers)
    assert bench.heard == [1], "it waits for company"
    clock.advance(1)
    wait_until(timers)
    assert bench.heard == [2]
    assert drain(bench.views[0]) == [[(2, 0), (3, 0)]]
    clock.advance(1_000)
    bench.partition.write([(0, rows([4]))])
    assert bench.heard == [3], "after silence a row goes at once again"


def test_a_watermark_that_may_wait_lingers_with_the_rows_before_it(
    make: Callable[..., Bench], clock: ManualClock, timers: TimerThread
) -> None:
    bench = make(waits=True, saturated=True)
    bench.partition.write([(0, rows([1]))])
    bench.partition.broadcast_event(Watermark(1))
    assert bench.heard == [1]
    assert drain(bench.views[0]) == [[(1, 0)], Watermark(1)]
    bench.partition.write([(0, rows([2]))])
    bench.partition.broadcast_event(Watermark(2))
    assert bench.heard == [1], "both wait for company"
    bench.partition.write([(0, rows([3]))])
    clock.advance(SATURATED_LINGER_MS)
    wait_until(timers)
    assert bench.heard == [2]
    assert drain(bench.views[0]) == [[(2, 0)], Watermark(2), [(3, 0)]]
    bench.partition.write([(0, rows([4]))])
    bench.partition.broadcast_event(Watermark(4))
    assert bench.views[0].poll(1) is not None
    assert drain(bench.views[0]) == [Watermark(4)], "a consumer that asks gets what is hidden"
    bench.partition.broadcast_event(Watermark(5))
    assert bench.heard == [3], "one without rows before it goes at once"


@pytest.mark.parametrize("timeout_ms", [-1, 0])
def test_a_watermark_that_may_wait_shows_rows_that_nothing_else_would(
    make: Callable[..., Bench], timeout_ms: int
) -> None:
    bench = make(waits=True, timeout_ms=timeout_ms, saturated=True)
    bench.partition.write([(0, rows([1]))])
    bench.partition.broadcast_event(Watermark(1))
    assert bench.heard == [1]


def test_a_watermark_shows_the_rows_before_it_while_the_process_has_time(make: Callable[..., Bench]) -> None:
    bench = make(waits=True)
    for key in (1, 2):
        bench.partition.write([(0, rows([key]))])
        bench.partition.broadcast_event(Watermark(key))
        assert bench.heard == [key]
        assert drain(bench.views[0]) == [[(key, 0)], Watermark(key)]


def test_more_rows_linger_for_longer_while_the_process_is_saturated(clock: ManualClock, timers: TimerThread) -> None:
    busy = [True]
    bench = Bench(clock, timers, 1, 1_000, 100, False, lambda _: busy[0])
    bench.partition.write([(0, rows([1]))])
    assert bench.heard == [1]
    assert drain(bench.views[0]) == [[(1, 0)]]
    bench.partition.write([(0, rows(list(range(WORTH_A_WAKE_UP_ROWS))))])
    clock.advance(SATURATED_LINGER_MS - 1)
    wait_until(timers)
    assert bench.heard == [1]
    clock.advance(1)
    wait_until(timers)
    assert bench.heard == [2]
    drain(bench.views[0])
    bench.partition.write([(0, rows(list(range(SATURATED_ROWS))))])
    assert bench.heard == [3]
    drain(bench.views[0])
    busy[0] = False
    bench.partition.write([(0, rows(list(range(WORTH_A_WAKE_UP_ROWS))))])
    assert bench.heard == [4]


def test_a_partition_has_room_if_the_largest_of_the_last_writes_would_fit(make: Callable[..., Bench]) -> None:
    """Parts of a batch differ: one that is larger than the one before must not wait in the middle of a call."""
    bench = make(slots=8)
    wide = rows(list(range(3 * SLOT_BYTES // 24 - 64)))
    bench.partition.write([(0, wide)])
    assert bench.pool.used == 3
    drain(bench.views[0])
    for key in range(6):
        bench.partition.write([(0, rows([key]))])
        bench.partition.broadcast_event(Watermark(key))
    assert bench.pool.used == 6
    assert not bench.partition.is_available, "two are left, and three were needed lately"
    drain(bench.views[0])
    assert bench.partition.is_available


def test_a_writer_in_the_middle_takes_an_overdraft_and_then_has_no_room(make: Callable[..., Bench]) -> None:
    bench = make(slots=4, overdraft=2)
    wide = rows(list(range(SLOT_BYTES // 24 - 64)))
    for _ in range(6):
        bench.partition.write([(0, wide)])  # nobody reads: it would wait for ever
    assert bench.pool.used == 6
    assert not bench.partition.is_available
    woken: list[int] = []
    assert bench.partition.listen(lambda: woken.append(1))
    bench.views[0].poll(1)
    assert not bench.partition.is_available, "the overdraft is paid back first"
    drain(bench.views[0])
    assert woken == [1]
    assert bench.partition.is_available


def test_enough_rows_go_at_once(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.partition.write([(0, rows([1]))])
    drain(bench.views[0])
    bench.partition.write([(0, random_rows(WORTH_A_WAKE_UP_ROWS - 1))])
    assert bench.heard == [1]
    bench.partition.write([(0, rows([1]))])
    assert bench.heard == [2]


def test_without_a_timeout_every_row_goes_at_once(make: Callable[..., Bench]) -> None:
    bench = make(timeout_ms=0)
    for _ in range(3):
        bench.partition.write([(0, rows([1]))])
        drain(bench.views[0])
    assert bench.heard == [3]


def test_a_negative_timeout_waits_for_enough_rows_or_an_event(make: Callable[..., Bench], clock: ManualClock) -> None:
    bench = make(timeout_ms=-1)
    bench.partition.write([(0, rows([1]))])
    clock.advance(1_000_000)
    bench.partition.write([(0, rows([2]))])
    assert bench.heard == [0]
    bench.partition.broadcast_event(Watermark(1))
    assert bench.heard == [1]


def test_tiny_batches_share_a_slot(make: Callable[..., Bench]) -> None:
    bench = make()
    for i in range(20):
        bench.partition.write([(0, rows([i]))])
    assert bench.pool.used == 1
    assert drain(bench.views[0], max_rows=5) == [[(i, 0) for i in range(at, at + 5)] for at in range(0, 20, 5)]
    assert bench.pool.used == 0


def test_a_shared_slot_is_recycled_with_its_last_batch(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.partition.write([(0, rows([1]))])
    bench.partition.write([(0, rows([2]))])
    bench.views[0].poll(1)
    assert bench.pool.used == 1
    bench.views[0].poll(1)
    assert bench.pool.used == 0


def test_sliced_bytes_are_counted_not_the_parents(make: Callable[..., Bench]) -> None:
    bench = make(slots=64)
    bench.partition.write([(0, random_rows(65_536).slice(10, 1_000))])
    assert bench.pool.used == 1


def test_a_full_pool_is_not_available_until_the_consumer_reads(make: Callable[..., Bench]) -> None:
    bench = make(slots=8)
    big = random_rows(8_000)  # 192 kB: 6 slots
    woken: list[int] = []
    bench.partition.write([(0, big)])
    assert not bench.partition.is_available
    assert bench.partition.listen(lambda: woken.append(1))
    assert drain(bench.views[0]) == [pairs([big])]
    assert woken == [1]
    assert bench.partition.is_available
    assert not bench.partition.listen(lambda: woken.append(2))


def test_a_cancelled_partition_refuses_rows(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.partition.cancel()
    with pytest.raises(JobCancelledError):
        bench.partition.write([(0, rows([1]))])


def test_releasing_gives_every_slot_back(make: Callable[..., Bench]) -> None:
    bench = make(channels=3, slots=30)
    bench.partition.write([(i, random_rows(3_000)) for i in range(3)])
    bench.views[0].poll(10)
    bench.partition.release()
    bench.partition.release()
    assert bench.shared.free_slots == bench.shared.total_slots


def test_a_released_view_drops_what_comes_later(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.views[0].release()
    bench.partition.write([(0, random_rows(3_000))])
    assert bench.pool.used == 0


def test_a_pipelined_subpartition_is_read_once(make: Callable[..., Bench]) -> None:
    bench = make()
    with pytest.raises(InternalError, match="opened twice"):
        bench.partition.create_view(0, lambda: None)


def test_elements_are_numbered(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.partition.write([(0, rows([1]))])
    bench.partition.write([(0, rows([2]))])
    bench.partition.broadcast_event(Watermark(1))
    first, second = bench.views[0].poll(100), bench.views[0].poll(100)
    assert isinstance(first, Data)
    assert (first.sequence, len(first.batches), first.more) == (0, 2, True)
    assert isinstance(second, Control)
    assert (second.sequence, second.more) == (2, False)


def test_a_blocking_subpartition_is_spilled_and_can_be_read_again(tmp_path: Path) -> None:
    spilled = BlockingSubpartition(SubpartitionPath(tmp_path, PartitionId("d", 0), "first", 0))
    heard: list[int] = []
    first = spilled.create_view(lambda: heard.append(1))
    plain = rows([1, 2])
    changes = RecordBatch(plain.columns, plain.timestamps, pa.array([1, 2], pa.int8()))
    timeless = rows([3], times=False)
    for element in (plain, changes):
        spilled.add(element, 0, 0)
    spilled.add_event(Watermark(7))
    spilled.add(timeless, 0, 0)
    spilled.add(plain, 0, 0)
    spilled.add_event(END_OF_INPUT)
    assert first.poll(100) is None
    spilled.finish()
    assert heard == [1]
    second = spilled.create_view(lambda: heard.append(2))
    assert heard == [1, 2]
    for view in (first, second):
        found: list[object] = []
        while (element := view.poll(100)) is not None:
            found.append(element.batches[0] if isinstance(element, Data) else element.event)
        assert found == [plain, changes, Watermark(7), timeless, plain, END_OF_INPUT]
        view.release()
    spilled.release()
    spilled.release()
    assert list(tmp_path.iterdir()) == []


def wait_until(timers: TimerThread) -> None:
    """Return once everything that is due has run: a timer set now runs after it."""
    ran = threading.Event()
    timers.after(0, ran.set)
    assert ran.wait(10)
