"""Rows that go from one process to another: the same rows in the same order, as far as the reader has credit."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from runtime_fakes import Collect, ListSource, Seen, job, rows, until, vertex

from flowrun.core.clock import SystemClock
from flowrun.core.elements import (
    END_OF_INPUT,
    IDLE,
    Alignment,
    CheckpointBarrier,
    CheckpointOptions,
    Event,
    PassingWatermarks,
    RecordBatch,
    Watermark,
    concat_batches,
)
from flowrun.errors import ClusterError, PartitionLostError
from flowrun.graph.execution_graph import build_execution_graph
from flowrun.graph.job_graph import ResultType
from flowrun.graph.partitioner import BroadcastPartitioner, Partitioner, RebalancePartitioner
from flowrun.runtime.messages import PartitionLocation
from flowrun.runtime.network.batches import BatchDecoder, BatchEncoder
from flowrun.runtime.network.buffer_pool import GlobalBufferPool, slots_for
from flowrun.runtime.network.gate import GateEvent, GateRows, InputGate
from flowrun.runtime.network.host_folder import HostFolder
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.remote import shared_memory
from flowrun.runtime.network.remote.data_server import DataServer
from flowrun.runtime.rpc.address import TcpAddress, UnixAddress
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, Link
from flowrun.runtime.rpc.secret import SharedSecret
from flowrun.runtime.timers import TimerThread

SECRET = Credentials(SharedSecret(b"a secret of sixteen bytes and more"))
CLOCK = SystemClock()


class Process:
    """What one worker process has of the network."""

    def __init__(
        self, name: str, folder: Path, *, tcp: bool = False, lz4: bool = False, host_folder: HostFolder | None = None
    ) -> None:
        self.name = name
        self.timers = TimerThread(CLOCK)
        self.pool = GlobalBufferPool()
        address = TcpAddress("127.0.0.1", 0) if tcp else UnixAddress(str(folder / name))
        self.data = DataServer(
            address, Introduction("taskmanager", name), SECRET, self.timers, lz4=lz4, host_folder=host_folder
        )
        self.network = self.data.environment("job", self.pool, CLOCK)

    def close(self) -> None:
        self.network.release()
        self.data.close()
        self.timers.close()


class Exchange:
    """Two processes: the first writes, the second reads."""

    def __init__(
        self,
        folder: Path,
        *,
        tcp: bool = False,
        lz4: bool = False,
        type: ResultType = ResultType.PIPELINED,
        readers: int = 1,
        partitioner: Partitioner | None = None,
    ) -> None:
        folder.chmod(0o700)
        source = vertex("source", lambda: ListSource(lambda _: ()))
        sink = vertex("sink", lambda: Collect(Seen()), parallelism=readers)
        sink.read(source, partitioner or RebalancePartitioner())
        self.producer, *self.consumers = build_execution_graph(job(source, sink)).all_vertices()
        self.description = replace(self.producer.partitions[0], type=type)
        self.writer, self.reader = Process("w1", folder, tcp=tcp, lz4=lz4), Process("w2", folder, tcp=tcp, lz4=lz4)

    def partition(self, attempt: str = "first") -> ResultPartition:
        return self.writer.network.create_partition(self.description, attempt)

    def gate(
        self,
        attempt: str = "first",
        batch_rows: int = 100_000,
        reader: int = 0,
        process: Process | None = None,
        location: PartitionLocation | None = None,
    ) -> InputGate:
        location = location or PartitionLocation(self.description.id, attempt, "w1", str(self.writer.data.address))
        consumer, places = self.consumers[reader], {location.partition: location}
        (gate,) = (process or self.reader).network.create_gates(consumer, batch_rows, places)
        gate.request_partitions()
        return gate

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.fixture(params=["unix", "tcp", "shared memory"])
def exchange(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exchange]:
    if request.param == "shared memory":
        monkeypatch.setattr(shared_memory, "SHORTEST_BYTES", 1)
    made = Exchange(tmp_path, tcp=request.param == "tcp")
    yield made
    made.close()


class Reader:
    """Reads a gate on a thread of its own, as a task does."""

    def __init__(self, gate: InputGate, pause_s: float = 0) -> None:
        self.gate = gate
        self.read: list[RecordBatch | Event] = []
        self.error: BaseException | None = None
        self.overtaken: list[RecordBatch | Event] = []
        self._woken = threading.Event()
        gate.set_listener(self._woken.set)
        self.pause_s = pause_s
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.gate.is_finished:
                element = self.gate.poll()
                if element is None:
                    self._woken.wait(10)
                    self._woken.clear()
                    continue
                if isinstance(element, GateEvent):
                    self.read.append(element.event)
                    self.overtaken += element.overtaken
                else:
                    self.read.append(element.rows if isinstance(element, GateRows) else element)
                    time.sleep(self.pause_s)
        except (ClusterError, PartitionLostError) as error:
            self.error = error

    @property
    def events(self) -> list[Event]:
        return [e for e in self.read if not isinstance(e, RecordBatch)]

    @property
    def rows(self) -> RecordBatch:
        return concat_batches([e for e in self.read if isinstance(e, RecordBatch)])

    def end(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


def same(one: RecordBatch, other: RecordBatch) -> bool:
    return (
        one.columns.equals(other.columns)
        and (one.timestamps is None) == (other.timestamps is None)
        and (one.timestamps is None or one.timestamps.equals(other.timestamps))
    )


def test_rows_and_events_come_in_their_order(exchange: Exchange) -> None:
    partition, reader = exchange.partition(), Reader(exchange.gate(batch_rows=1))
    written = [rows([i], [i * 10]) for i in range(50)]
    for number, batch in enumerate(written):
        partition.write([(0, batch)])
        partition.broadcast_event(Watermark(number))
    partition.broadcast_event(IDLE)
    partition.finish()
    reader.end()
    assert reader.error is None
    assert [e.timestamp for e in reader.events if isinstance(e, Watermark)] == list(range(50))
    assert reader.events[-2:] == [IDLE, END_OF_INPUT]
    assert same(reader.rows, concat_batches(written))


def test_a_slow_reader_holds_the_writer_up_and_all_slots_come_back(exchange: Exchange) -> None:
    partition, reader = exchange.partition(), Reader(exchange.gate(batch_rows=20_000), pause_s=0.002)
    chance = np.random.default_rng(1)
    written = [
        rows(chance.integers(0, 9, n).tolist(), chance.integers(0, 9, n).tolist()) for n in (1, 70_000, 5, 130_000) * 8
    ]
    for batch in written:
        partition.write([(0, batch)])
    partition.finish()
    reader.end()
    assert same(reader.rows, concat_batches(written))
    reader.gate.release()
    partition.release()
    until(lambda: exchange.reader.pool.free_slots == exchange.reader.pool.total_slots)
    assert exchange.writer.pool.free_slots == exchange.writer.pool.total_slots


def test_what_is_read_waits_for_its_producer(exchange: Exchange) -> None:
    reader = Reader(exchange.gate("second"))
    exchange.partition("first").write([(0, rows([1], [1]))])
    partition = exchange.partition("second")
    partition.write([(0, rows([2], [2]))])
    partition.finish()
    reader.end()
    assert same(reader.rows, rows([2], [2]))


def test_an_attempt_that_is_over_is_not_waited_for(exchange: Exchange) -> None:
    exchange.partition("first")
    reader = Reader(exchange.gate("third"))
    exchange.partition("second")
    began = time.monotonic()
    late = Reader(exchange.gate("first"))
    late.end()
    assert time.monotonic() - began < 10
    assert "of attempt first is there no more: that attempt is over" in str(late.error)
    assert reader.error is None, "of one that was never there nobody knows whether it comes"
    exchange.partition("third").finish()
    reader.end()
    assert reader.error is None


def test_a_writer_that_does_not_read_holds_up_no_reader(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests, credits and their ends are written by tasks and timers, which must not wait for another process."""
    monkeypatch.setattr("flowrun.runtime.rpc.link.DATA_BUFFER_BYTES", 1 << 16)
    stuck = threading.Event()
    server = exchange.writer.data
    read = server._serve
    held: list[Link] = []

    def keep(link: Link) -> None:
        held.append(link)
        stuck.set()

    server._server._on_link[Purpose.DATA] = keep
    connection = exchange.reader.data.connect(str(server.address))
    assert stuck.wait(10)
    began = time.monotonic()
    with suppress(ClusterError):
        for _ in range(50_000):
            connection.add_credit(1, 1)
    connection.cancel(1)
    assert time.monotonic() - began < 30
    connection.close()
    held[0].stream.close()
    server._server._on_link[Purpose.DATA] = read


def test_the_end_of_the_other_process_is_an_error_with_its_name(exchange: Exchange) -> None:
    partition, reader = exchange.partition(), Reader(exchange.gate())
    partition.write([(0, rows([1], [1]))])
    partition.flush()
    until(lambda: reader.read)
    exchange.writer.data.close()
    reader.end()
    assert reader.error is not None
    assert "rows of source-0_0 in worker w1 come no more" in str(reader.error)
    with pytest.raises(ClusterError):
        exchange.gate("other")


def test_a_gate_that_is_released_stops_its_sender(exchange: Exchange) -> None:
    partition, gate = exchange.partition(), exchange.gate()
    partition.write([(0, rows([1], [1]))])
    gate.release()
    until(lambda: partition.subpartitions[0]._released)  # type: ignore[attr-defined]


def test_a_barrier_that_overtakes_is_read_first_and_names_what_it_overtook(exchange: Exchange) -> None:
    partition, gate = exchange.partition(), exchange.gate(batch_rows=1)
    partition.write([(0, rows([1], [1]))])
    partition.broadcast_event(Watermark(5))
    until(lambda: gate._channels[0].holds_rows)  # type: ignore[attr-defined]
    held: list[object] = []
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(alignment=Alignment.UNALIGNED))
    partition.broadcast_barrier(barrier, lambda _, overtaken: held.extend(overtaken))
    until(lambda: gate.has_urgent)
    element = gate.poll()
    assert isinstance(element, GateEvent)
    assert element.event == barrier
    overtaken = [*element.overtaken, *held]
    assert [e for e in overtaken if isinstance(e, Watermark)] == [Watermark(5)]
    assert [e.num_rows for e in overtaken if isinstance(e, RecordBatch)] == [1]
    assert isinstance(gate.poll(), RecordBatch)
    gate.release()


def test_a_barrier_behind_rows_overtakes_when_its_time_is_up(exchange: Exchange) -> None:
    partition, gate = exchange.partition(), exchange.gate(batch_rows=1)
    partition.write([(0, rows([1], [1]))])
    barrier = CheckpointBarrier(1, CLOCK.now_ms(), CheckpointOptions(alignment_timeout_ms=300))
    partition.broadcast_barrier(barrier, lambda *_: None)
    until(lambda: gate.has_urgent)
    element = gate.poll()
    assert isinstance(element, GateEvent)
    assert isinstance(element.event, CheckpointBarrier)
    assert element.event.options.alignment is Alignment.UNALIGNED
    assert [e.num_rows for e in element.overtaken if isinstance(e, RecordBatch)] == [1]
    gate.release()


@pytest.mark.parametrize("lz4", [False, True])
@pytest.mark.parametrize("count", [1, 5_000])
def test_what_is_broadcast_is_made_into_bytes_once_and_charged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lz4: bool, count: int
) -> None:
    """Also for readers in several processes, whichever of them comes first, and however much it takes at once."""
    encoded: list[int] = []
    encode = BatchEncoder._columns

    def columns(encoder: BatchEncoder, batch: RecordBatch) -> object:
        encoded.append(batch.num_rows)
        return encode(encoder, batch)

    monkeypatch.setattr(BatchEncoder, "_columns", columns)
    with closing(Exchange(tmp_path, readers=4, partitioner=BroadcastPartitioner(), lz4=lz4)) as exchange:
        other = Process("w3", tmp_path, lz4=lz4)
        partition = exchange.partition()
        readers = [Reader(exchange.gate(reader=0))]
        for number in range(10):
            partition.broadcast(rows([number] * count, range(count)))
            charged = partition.pool.used
        assert charged <= 10 * slots_for(rows([0] * count).nbytes), "as much as one reader takes"
        partition.finish()
        readers += [Reader(exchange.gate(reader=n, process=p)) for n, p in ((1, None), (2, other), (3, other))]
        for reader in readers:
            reader.end()
            assert reader.error is None
            assert [len(reader.rows.columns), reader.rows.num_rows] == [10 * count, 10 * count]
            reader.gate.release()
        other.close()
    if count == 1:
        assert encoded == [1] * 10
    else:  # in pieces for those who have too little credit for all, which get the same ones
        assert 10 * count <= sum(encoded) <= 2 * 10 * count


def test_files_of_a_process_that_is_gone_are_served_by_another_of_its_host(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "host", "host")
    with closing(Exchange(tmp_path, type=ResultType.BLOCKING)) as exchange:
        gone, heir = Process("w3", tmp_path, host_folder=host), Process("w4", tmp_path, host_folder=host)
        partition = gone.network.create_partition(exchange.description, "first")
        written = [rows([i] * 1000, [i] * 1000) for i in range(40)]
        for batch in written:
            partition.write([(0, batch)])
        partition.finish()
        gone.data.close()
        address = str(heir.data.address)
        place = PartitionLocation(exchange.description.id, "first", "w4", address, "host", only_files=True)
        reader = Reader(exchange.gate(location=place))
        reader.end()
        assert same(reader.rows, concat_batches(written))
        gone.network.release()
        for attempt in ("first", "second", "../job/first", ".."):
            late = Reader(exchange.gate(location=replace(place, attempt_id=attempt)))
            late.end()
            assert late.error is not None
        gone.close()
        heir.close()


def test_blocking_partitions_are_read_by_other_processes(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path, type=ResultType.BLOCKING)
    partition = exchange.partition()
    written = [rows([i] * 1000, [i] * 1000) for i in range(40)]
    for batch in written:
        partition.write([(0, batch)])
    partition.finish()
    for _ in range(2):
        reader = Reader(exchange.gate())
        reader.end()
        assert same(reader.rows, concat_batches(written))
        reader.gate.release()
    exchange.close()


TYPES = {
    "strings": pa.array(["a", None, "bcd" * 50]),
    "lists": pa.array([[1], None, [2, None]], pa.list_(pa.int64())),
    "structs": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "dictionary": pa.array(["x", "y", "x"]).dictionary_encode(),
    "decimals": pa.array([1, None, 3], pa.decimal128(20, 3)),
    "maps": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(3),
}


@pytest.mark.parametrize("lz4", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_all_kinds_of_columns_survive(seed: int, lz4: bool) -> None:
    chance = random.Random(seed)
    names = chance.sample(sorted(TYPES), chance.randrange(len(TYPES) + 1))
    columns = (
        pa.record_batch([TYPES[n] for n in names], names=names) if names else pa.record_batch([pa.nulls(3)], ["n"])
    )
    batches = []
    for _ in range(chance.randrange(1, 5)):
        start = chance.randrange(3)
        piece = columns.slice(start)
        times = pa.array(range(piece.num_rows), pa.int64()) if chance.random() < 0.5 else None
        kinds = (
            pa.array([chance.randrange(4) for _ in range(piece.num_rows)], pa.int8()) if chance.random() < 0.5 else None
        )
        marks = PassingWatermarks(np.array([0, 1]), np.array([5, 9])) if chance.random() < 0.5 else None
        batches.append(RecordBatch(piece, times, kinds, marks))
    decoder, encoder = BatchDecoder(), BatchEncoder(lz4=lz4)
    schema = encoder.new_schema(batches[0])
    assert (schema is None) == ("dictionary" in names)
    if schema is not None:
        decoder.set_schema(schema.serialize())
    assert encoder.new_schema(batches[-1]) is None
    payload = pa.py_buffer(b"".join(bytes(memoryview(p)) for p in encoder.payload(batches)))
    pieces = [p for b in decoder.batches(payload) for p in b.pieces()]
    assert [p for p in pieces if isinstance(p, Watermark)] == [
        p for b in batches for p in b.pieces() if isinstance(p, Watermark)
    ]
    found = pa.Table.from_batches([p.columns for p in pieces if isinstance(p, RecordBatch)])
    assert found.equals(pa.Table.from_batches([b.columns for b in batches]))
    assert sum(p.num_rows for p in pieces if isinstance(p, RecordBatch)) == sum(b.num_rows for b in batches)
