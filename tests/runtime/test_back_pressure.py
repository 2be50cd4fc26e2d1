"""A slow sink bounds what is in flight, and a source that waits for it still serves its mails."""

from __future__ import annotations

import threading

import pyarrow as pa
from runtime_fakes import Count, RepeatSource, job, random_rows, until, vertex

from flowrun.core.clock import ManualClock, SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.local_cluster import LocalCluster
from flowrun.runtime.network.buffer_pool import SLOT_BYTES
from flowrun.runtime.network.credit import EXCLUSIVE_SLOTS, FLOATING_SLOTS
from flowrun.runtime.network.environment import PARTITION_SLOTS


class Turnstile(Count):
    """Processes one batch a ticket."""

    def __init__(self, tickets: threading.Semaphore) -> None:
        self._tickets = tickets

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._tickets.acquire()
        super().process_batch(batch, input_index)


def test_what_is_in_flight_stays_within_the_pools() -> None:
    """An endless source of 1.5 MB batches before a sink that takes one batch at a time."""

    class Fresh(RepeatSource):
        """Every batch has memory of its own, so that what is held shows."""

        def emit_next(self):  # type: ignore[no-untyped-def]
            self._batch = random_rows(60_000)
            return super().emit_next()

    tickets = threading.Semaphore(0)
    source = vertex("source", lambda: Fresh(random_rows(1)), parallelism=2)
    sink = vertex("sink", lambda: Turnstile(tickets), parallelism=2).read(source, KeyGroupPartitioner((0,)))
    with LocalCluster(SystemClock()) as cluster:
        running = cluster.submit(job(source, sink))
        highest = 0
        allocated_before = pa.total_allocated_bytes()
        for _ in range(60):
            tickets.release()
            until(lambda: running.status().vertices[0].back_pressured_ms_per_s != 0)
            used = cluster.pool.total_slots - cluster.pool.free_slots
            highest = max(highest, used)
        # In the queues of two producers, and in the hands of two consumers.
        assert highest <= 2 * PARTITION_SLOTS + 2 * (FLOATING_SLOTS + 2 * EXCLUSIVE_SLOTS)
        held = pa.total_allocated_bytes() - allocated_before
        # In the queues at most; then what each of four subtasks has in its hands.
        assert held < 2 * PARTITION_SLOTS * SLOT_BYTES + 8 * 4_000_000
        running.cancel()
        tickets.release(1_000)
        result = running.wait()
        assert result is not None
        assert result.state is JobState.CANCELED
        assert cluster.pool.free_slots == cluster.pool.total_slots


def test_a_back_pressured_source_still_serves_letters() -> None:
    clock, tickets = ManualClock(), threading.Semaphore(0)
    served = threading.Semaphore(0)

    class WithTimer(RepeatSource):
        def open(self) -> None:
            self._again(0)

        def _again(self, due_ms: int) -> None:
            if due_ms:
                served.release()
            self.context.processing_time.register(due_ms + 10, self._again)

    source = vertex("source", lambda: WithTimer(random_rows(60_000)))
    sink = vertex("sink", lambda: Turnstile(tickets)).read(source)
    with LocalCluster(clock) as cluster:
        running = cluster.submit(job(source, sink))
        until(lambda: cluster.pool.free_slots != cluster.pool.total_slots)
        sent = -1
        while sent != running.status().vertices[0].records_out or sent <= 0:
            sent = running.status().vertices[0].records_out
            clock.advance(1)
        for _ in range(20):
            clock.advance(10)
            assert served.acquire(timeout=10), "the timer's mail was not served under back pressure"
        assert running.status().vertices[0].back_pressured_ms_per_s > 0
        tickets.release(3)
        running.cancel()
        tickets.release(1_000)
        running.wait()


def test_tiny_batches_do_not_pile_up_either() -> None:
    tickets = threading.Semaphore(0)
    source = vertex("source", lambda: RepeatSource(random_rows(1)))
    sink = vertex("sink", lambda: Turnstile(tickets)).read(source)
    with LocalCluster(SystemClock()) as cluster:
        running = cluster.submit(job(source, sink))
        until(lambda: running.status().vertices[0].back_pressured_ms_per_s != 0)
        assert running.status().vertices[0].records_out < PARTITION_SLOTS * SLOT_BYTES / 512 * 1.5
        running.cancel()
        tickets.release(1_000_000)
        running.wait()
