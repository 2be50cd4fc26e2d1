"""Data connections whose other end does harm: the channels fail with an error, the process goes on, and nothing waits for ever."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from runtime_fakes import rows, until

from flowrun.core.elements import Watermark
from flowrun.errors import ClusterError, FlowrunError
from flowrun.runtime.network.batches import BatchDecoder, BatchEncoder
from flowrun.runtime.network.events import decode_event, encode_event
from flowrun.runtime.network.remote import wire
from flowrun.runtime.network.remote.wire import DataFrames, FrameKind
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Link, open_link
from flowrun.runtime.rpc.server import Server
from tests.runtime.network.test_remote_channels import SECRET, Exchange, Reader

HEAD = struct.Struct(">BBIIQQII")


@pytest.fixture
def exchange(tmp_path: Path) -> Iterator[Exchange]:
    made = Exchange(tmp_path, tcp=True)
    yield made
    made.close()


def hostile_frame(rng: random.Random) -> bytes:
    payload = rng.randbytes(rng.randrange(60))
    size = rng.choice([len(payload)] * 5 + [len(payload) + 9, 1 << 31, (1 << 32) - 1])
    numbers = [rng.choice([0, 1, 2, rng.randrange(1 << 32)]) for _ in range(5)]
    return HEAD.pack(rng.randrange(8), rng.randrange(4), numbers[0], size, *numbers[1:]) + payload


def test_a_reader_that_asks_for_anything_ends_its_own_connection_only(exchange: Exchange) -> None:
    address = exchange.writer.data._server.address
    for seed in range(60):
        rng = random.Random(seed)
        link = open_link(address, Introduction("taskmanager", "stranger"), Purpose.DATA, SECRET)
        with suppress(OSError):
            for _ in range(rng.randrange(1, 20)):
                link.stream.write(hostile_frame(rng))
        link.stream.shutdown_writing()
        with memoryview(bytearray(1 << 16)) as view, suppress(OSError):
            while link.stream.read_into(view) == len(view):
                pass
        link.stream.close()
    until(lambda: not exchange.writer.data._senders)
    partition = exchange.partition()
    reader = Reader(exchange.gate())
    partition.write([(0, rows([1, 2, 3]))])
    partition.finish()
    reader.end()
    assert reader.error is None
    assert reader.rows.num_rows == 3


def test_who_has_another_role_exchanges_no_rows(exchange: Exchange) -> None:
    with pytest.raises(ClusterError, match="waits for other processes than this one"):
        open_link(exchange.writer.data.address, Introduction("jobmanager", "jm"), Purpose.DATA, SECRET)


@pytest.mark.parametrize("seed", range(12))
def test_a_writer_that_answers_anything_fails_the_channels_that_read_it(exchange: Exchange, seed: int) -> None:
    rng = random.Random(seed)
    encoder = BatchEncoder()
    batch = rows([1, 2, 3])
    schema = encoder.new_schema(batch)
    assert schema is not None
    good = b"".join(map(bytes, encoder.payload([batch])))

    def harm(link: Link) -> None:
        frames = DataFrames(link.stream, "reader")
        try:
            frames.read()
            frames.write(FrameKind.SCHEMA, 1, [schema.serialize()])
            for _ in range(20):
                damaged = bytearray(good)
                for _ in range(rng.randrange(6)):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
                kind = rng.choice([FrameKind.BUFFER_RESPONSE] * 3 + [FrameKind.SCHEMA, FrameKind.ERROR_RESPONSE])
                frames.write(kind, 1, [bytes(damaged)], flags=rng.randrange(4), sequence=rng.randrange(3), slots=1)
                link.stream.write_nowait([memoryview(hostile_frame(rng))])
        except ClusterError:
            pass
        link.stream.close()

    own = Introduction("taskmanager", "w1")
    address = exchange.writer.data.address
    exchange.writer.data._server.close()
    server = Server(address, own, SECRET, {Purpose.DATA: harm})
    try:
        reader = Reader(exchange.gate())
        reader.end()
        assert isinstance(reader.error, FlowrunError)
    finally:
        server.close()


def test_a_length_alone_takes_no_memory(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    link = open_link(exchange.writer.data.address, Introduction("taskmanager", "x"), Purpose.DATA, SECRET)
    before = pa.total_allocated_bytes()
    link.stream.write(HEAD.pack(1, 0, 1, 1 << 30, 1, 0, 0, 0) + b"x")
    until(lambda: pa.total_allocated_bytes() > before)
    assert pa.total_allocated_bytes() - before <= wire._FIRST_BYTES
    link.stream.close()


def test_long_frames_come_whole(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_FIRST_BYTES", 1 << 10)
    partition = exchange.partition()
    reader = Reader(exchange.gate())
    for start in range(0, 200_000, 50_000):
        partition.write([(0, rows(list(range(start, start + 50_000))))])
    partition.finish()
    reader.end()
    assert reader.error is None
    assert reader.rows.num_rows == 200_000


def test_damaged_rows_and_events_are_errors_of_ours() -> None:
    encoder, rng = BatchEncoder(), random.Random(5)
    batch = rows(list(range(100)))
    schema = encoder.new_schema(batch)
    assert schema is not None
    payload = b"".join(map(bytes, encoder.payload([batch])))
    event = encode_event(Watermark(7))
    for _ in range(2000):
        decoder = BatchDecoder()
        decoder.set_schema(schema.serialize())
        damaged = bytearray(payload)
        for _ in range(rng.randrange(1, 8)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with suppress(ClusterError):
            decoder.batches(pa.py_buffer(bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])))
        damaged = bytearray(event + rng.randbytes(3))
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with suppress(ClusterError):
            decode_event(memoryview(damaged[: rng.randrange(len(damaged))]))
