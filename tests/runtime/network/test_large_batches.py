"""Rows are charged what they take: large batches are cut by rows, large rows are overdrawn, what is broadcast is held once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest
from runtime_fakes import pairs, random_rows, rows
from test_partition import Bench

from flowrun.core.clock import SystemClock
from flowrun.core.elements import PassingWatermarks, RecordBatch, RowKind, Watermark
from flowrun.errors import JobCancelledError
from flowrun.graph.partitioner import BroadcastPartitioner
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.network.buffer_pool import SLOT_BYTES, GlobalBufferPool, slots_for
from flowrun.runtime.network.cutting import rows_within
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.pipelined import PipelinedSubpartition
from flowrun.runtime.network.selectors import create_selector
from flowrun.runtime.network.subpartition import Data
from flowrun.runtime.network.writer import RecordWriter
from flowrun.runtime.timers import TimerThread

MIB = 1 << 20


@pytest.fixture
def timers() -> Iterator[TimerThread]:
    thread = TimerThread(SystemClock())
    yield thread
    thread.close()


def texts(*sizes: int) -> RecordBatch:
    """One row of text a size."""
    return RecordBatch(pa.record_batch({"t": pa.array(["x" * size for size in sizes])}))


class Reader:
    """Reads one subpartition on a thread; `hold` keeps it from reading on."""

    def __init__(self, bench: Bench, index: int = 0) -> None:
        self.batches: list[RecordBatch] = []
        self.most_used = 0
        self._bench = bench
        self._index = index
        self._ready = threading.Semaphore(0)
        self._view = bench.partition.create_view(index, self._ready.release)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            self._ready.acquire()
            while (element := self._view.poll(1 << 20)) is not None:
                if not isinstance(element, Data):
                    return
                self.most_used = max(self.most_used, self._bench.pool.used)
                self.batches += element.batches


def bench_of(timers: TimerThread, slots: int, channels: int = 1, total: int = 0) -> Bench:
    """A partition whose views are not open yet."""
    bench = Bench.__new__(Bench)
    bench.shared = GlobalBufferPool(total or slots + 10)
    bench.pool = bench.shared.create_local(channels, slots)
    queues = [PipelinedSubpartition(f"p.{i}", bench.pool.recycle) for i in range(channels)]
    bench.partition = ResultPartition(
        "p", queues, bench.pool, clock=SystemClock(), timers=timers, buffer_timeout_ms=100
    )
    return bench


def written(bench: Bench, *batches: RecordBatch) -> Reader:
    """What a reader gets of batches that are written while it reads; every slot is free in the end."""
    reader = Reader(bench)
    reader.thread.start()
    for batch in batches:
        bench.partition.write([(0, batch)])
    bench.partition.finish()
    reader.thread.join(30)
    assert not reader.thread.is_alive()
    assert bench.shared.free_slots == bench.shared.total_slots
    return reader


def test_a_batch_larger_than_its_pool_is_cut_by_rows_and_charged_what_it_holds(timers: TimerThread) -> None:
    """64 MiB through 8 MiB: never more than that is in flight, and all of it is charged."""
    bench = bench_of(timers, 256)
    batch = random_rows(64 * MIB // 24)
    reader = written(bench, batch)
    assert len(reader.batches) >= 15
    assert all(slots_for(b.nbytes) <= 256 for b in reader.batches)
    assert bench.pool.peak_used <= 256
    assert bench.pool.peak_used >= 128
    found = np.concatenate([b.columns.column("v").to_numpy() for b in reader.batches])
    assert (found == np.arange(batch.num_rows)).all()
    assert pa.concat_batches([b.columns for b in reader.batches]).equals(batch.columns)


def test_pieces_share_the_memory_of_their_batch(timers: TimerThread) -> None:
    batch = random_rows(2 * MIB // 24)
    addresses = {b.columns.column(0).buffers()[1].address for b in written(bench_of(timers, 16), batch).batches}
    assert addresses == {batch.columns.column(0).buffers()[1].address}


def test_a_row_larger_than_the_pool_goes_and_is_charged_as_what_it_is(timers: TimerThread) -> None:
    bench = bench_of(timers, 8, total=1_000)
    bench.partition.create_view(0, lambda: None)
    bench.partition.write([(0, texts(10, 3 * MIB))])
    assert bench.pool.used >= 3 * MIB // SLOT_BYTES
    assert bench.shared.free_slots <= 1_000 - 3 * MIB // SLOT_BYTES
    assert not bench.partition.is_available
    bench.partition.release()
    assert bench.shared.free_slots == 1_000


def test_a_row_larger_than_all_buffers_of_the_process_goes_too(timers: TimerThread) -> None:
    """Others get no slots until it was read, beyond those that are theirs."""
    bench = bench_of(timers, 8, total=20)
    other = bench.shared.create_local(1, 8)
    view = bench.partition.create_view(0, lambda: None)
    bench.partition.write([(0, texts(3 * MIB))])
    assert bench.shared.free_slots < 0
    assert other.try_acquire(1) == 1
    assert other.try_acquire(1) == 0
    element = view.poll(1)
    assert isinstance(element, Data)
    assert element.batches[0].num_rows == 1
    assert other.try_acquire(1) == 1
    other.recycle(2)
    other.close()
    bench.partition.release()
    assert bench.shared.free_slots == 20


def test_a_writer_that_has_only_its_reserve_goes_on_in_pieces(timers: TimerThread) -> None:
    bench = bench_of(timers, 64, total=80)
    greedy = bench.shared.create_local(79, 79)
    batch = random_rows(20_000)
    reader = Reader(bench)
    reader.thread.start()
    bench.partition.write([(0, batch)])
    bench.partition.finish()
    reader.thread.join(30)
    assert bench.pool.peak_used == 1, "nobody lent it any"
    assert all(b.nbytes <= SLOT_BYTES for b in reader.batches)
    assert pairs(reader.batches) == pairs([batch])
    greedy.close()
    assert bench.shared.free_slots == 80


def test_a_full_pool_stops_the_writer_until_its_rows_are_read(timers: TimerThread) -> None:
    bench = bench_of(timers, 16)
    view = bench.partition.create_view(0, lambda: None)
    batch = random_rows(4 * MIB // 24)
    writer = threading.Thread(target=lambda: bench.partition.write([(0, batch)]), daemon=True)
    writer.start()
    found: list[RecordBatch] = []
    while sum(b.num_rows for b in found) < batch.num_rows:
        assert bench.pool.used <= 16
        element = view.poll(1 << 20)
        if isinstance(element, Data):
            found += element.batches
    writer.join(30)
    assert not writer.is_alive()
    assert pairs(found) == pairs([batch])


def test_a_writer_within_a_large_batch_can_be_cancelled(timers: TimerThread) -> None:
    bench = bench_of(timers, 16)
    bench.partition.create_view(0, lambda: None)
    raised: list[BaseException] = []

    def write() -> None:
        try:
            bench.partition.write([(0, random_rows(4 * MIB // 24))])
        except JobCancelledError as error:
            raised.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    bench.partition.cancel()
    writer.join(30)
    assert not writer.is_alive()
    assert len(raised) == 1
    bench.partition.release()
    assert bench.shared.free_slots == bench.shared.total_slots


def test_an_update_pair_is_never_cut(timers: TimerThread) -> None:
    count = 20_000
    plain = random_rows(count)
    kinds = np.tile(np.array([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], np.int8), count // 2)
    batch = RecordBatch(plain.columns, plain.timestamps, pa.array(kinds))
    reader = written(bench_of(timers, 2), batch)
    assert len(reader.batches) > 5
    for piece in reader.batches:
        assert piece.row_kinds is not None
        assert piece.row_kinds[0].as_py() == RowKind.UPDATE_BEFORE
        assert piece.row_kinds[-1].as_py() == RowKind.UPDATE_AFTER
    assert rows_within(batch, 0) == 2
    assert rows_within(batch.slice(0, 2), 0) == 2


def test_watermarks_between_rows_stay_where_they_are(timers: TimerThread) -> None:
    count = 20_000
    between = PassingWatermarks(np.arange(0, count + 1, 500), np.arange(count // 500 + 1))
    batch = random_rows(count).with_watermarks(between)
    found: list[object] = []
    for piece in written(bench_of(timers, 4), batch).batches:
        for part in piece.pieces():
            found += [part] if isinstance(part, Watermark) else [p[1] for p in pairs([part])]
    expected: list[object] = []
    for part in batch.pieces():
        expected += [part] if isinstance(part, Watermark) else [p[1] for p in pairs([part])]
    assert found == expected


def test_dictionaries_that_no_cut_makes_smaller_do_not_end_in_single_rows(timers: TimerThread) -> None:
    values = pa.array([f"{i:0200d}" for i in range(5_000)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(20_000) % 5_000, pa.int32()), values)
    batch = RecordBatch(pa.record_batch({"d": column}))
    reader = written(bench_of(timers, 8, total=1_000), batch)
    assert len(reader.batches) < 4
    assert sum(b.num_rows for b in reader.batches) == 20_000


# ---- broadcast


def broadcaster(bench: Bench, channels: int) -> RecordWriter:
    records = MetricRegistry().group("v", "0").counter("numRecordsOut")
    return RecordWriter(create_selector(BroadcastPartitioner(), channels, 0, 128), bench.partition, records)


def test_what_is_broadcast_is_held_and_charged_once(timers: TimerThread) -> None:
    bench = bench_of(timers, 64, channels=9)
    views = [bench.partition.create_view(i, lambda: None) for i in range(9)]
    batch = random_rows(10_000)  # 240 kB: 8 slots
    writer = broadcaster(bench, 9)
    writer.emit(batch)
    assert bench.pool.used == slots_for(batch.nbytes) == 8
    for view in views[1:]:
        element = view.poll(1)
        assert isinstance(element, Data)
        assert element.batches[0] is batch
        assert bench.pool.used == 8, "the slowest consumer has not read it"
    views[0].poll(1)
    assert bench.pool.used == 0


def test_small_broadcasts_share_a_slot(timers: TimerThread) -> None:
    bench = bench_of(timers, 64, channels=3)
    views = [bench.partition.create_view(i, lambda: None) for i in range(3)]
    writer = broadcaster(bench, 3)
    for i in range(20):
        writer.emit(rows([i]))
        bench.partition.broadcast_event(Watermark(i))
    assert bench.pool.used == 1
    for view in views:
        seen = 0
        while (element := view.poll(100)) is not None:
            seen += isinstance(element, Data)
        assert seen == 20
    assert bench.pool.used == 0


def test_consumers_that_leave_free_their_share_of_what_is_broadcast(timers: TimerThread) -> None:
    bench = bench_of(timers, 64, channels=3)
    views = [bench.partition.create_view(i, lambda: None) for i in range(3)]
    writer = broadcaster(bench, 3)
    writer.emit(random_rows(5_000))
    views[0].release()
    assert bench.pool.used == 4
    writer.emit(random_rows(5_000))
    assert bench.pool.used == 8
    views[1].poll(1 << 20)
    assert bench.pool.used == 8
    views[2].release()
    assert bench.pool.used == 0
    bench.partition.release()
    assert bench.shared.free_slots == bench.shared.total_slots


def test_a_broadcast_batch_larger_than_the_pool_is_cut_for_all(timers: TimerThread) -> None:
    bench = bench_of(timers, 16, channels=4)
    readers = [Reader(bench, i) for i in range(4)]
    for reader in readers:
        reader.thread.start()
    batch = random_rows(2 * MIB // 24)
    broadcaster(bench, 4).emit(batch)
    bench.partition.finish()
    for reader in readers:
        reader.thread.join(30)
        assert pa.concat_batches([b.columns for b in reader.batches]).equals(batch.columns)
    assert bench.pool.peak_used <= 16
    assert bench.shared.free_slots == bench.shared.total_slots


# ---- a reader with little credit


def polled(batches: Sequence[RecordBatch], credit: int) -> tuple[list[RecordBatch], list[Data]]:
    queue = PipelinedSubpartition("q", lambda slots: None)
    view = queue.create_view(lambda: None)
    for batch in batches:
        queue.add(batch, batch.nbytes, slots_for(batch.nbytes))
    elements = []
    while (element := view.poll(1 << 20, credit)) is not None:
        assert isinstance(element, Data)
        elements.append(element)
    return [b for e in elements for b in e.batches], elements


@pytest.mark.parametrize("credit", [1, 2, 7, 1_000])
def test_a_reader_gets_no_more_than_it_has_credit_for(credit: int) -> None:
    batches = [random_rows(8_000), random_rows(10), random_rows(30_000)]
    found, elements = polled(batches, credit)
    assert pairs(found) == pairs(batches)
    assert all(e.slots <= credit for e in elements)
    expected = 0
    for element in elements:
        assert element.sequence == expected
        expected += len(element.batches)


def test_the_backlog_is_what_the_rows_behind_take() -> None:
    _, elements = polled([random_rows(8_000)] * 3, 6)
    total = 3 * 8_000 * 24
    assert [e.backlog for e in elements][:2] == [-(-(total - 192_000) // SLOT_BYTES), -(-192_000 // SLOT_BYTES)]
    assert elements[-1].backlog == 0


def test_a_row_larger_than_the_credit_comes_all_the_same() -> None:
    found, elements = polled([texts(10, MIB, 10)], 2)
    assert [b.num_rows for b in found] == [1, 1, 1]
    assert elements[1].slots > 2
