"""Strangers and peers that do harm: a server goes on, takes no more than a bound, and locks nobody out."""

from __future__ import annotations

import random
import resource
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Protocol

import pytest
from rpc_links import TASKMANAGER, RunningServer, running_server

from flowrun.runtime.rpc.address import TcpAddress
from flowrun.runtime.rpc.answering import AnsweringThreads
from flowrun.runtime.rpc.calls import Call, pieces_of_call
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.link import Link
from flowrun.runtime.rpc.server import ServerLimits


class Adding(Protocol):
    def add(self, numbers: tuple[int, ...]) -> int: ...

    def note(self, text: str) -> None: ...


class Adder:
    def add(self, numbers: tuple[int, ...]) -> int:
        return sum(numbers)

    def note(self, text: str) -> None:
        assert isinstance(text, str)


@pytest.fixture
def running() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


def served(running: RunningServer) -> tuple[Link, RpcConnection]:
    """A client that may write what it likes, and the connection that serves it."""
    client, link = running.pair()
    connection = RpcConnection(link)
    connection.serve("adder", Adding, Adder())
    connection.start()
    return client, connection


def frames(rng: random.Random) -> bytes:
    """What a peer that knows the secret may write: calls, damaged calls, and what is no call at all."""
    call = Call(
        rng.choice([0, 1, 7]), rng.choice(["adder", "x"]), rng.choice(["add", "note", "y"]), "", rng.randbytes(9)
    )
    content = bytearray(b"".join(bytes(piece) for piece in pieces_of_call(call)))
    kind = rng.randrange(5)
    if kind == 0:
        content = bytearray(rng.randbytes(rng.randrange(40)))
    elif kind == 1:
        content[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == 2:
        del content[rng.randrange(len(content)) :]
    length = rng.choice([len(content)] * 6 + [len(content) + 5, 0, 1 << 26, (1 << 26) + 1, (1 << 32) - 1])
    return struct.pack(">I", length) + content


def test_a_peer_that_writes_anything_ends_its_own_connection_only(running: RunningServer) -> None:
    good_client, good = served(running)
    for seed in range(60):
        rng = random.Random(seed)
        client, connection = served(running)
        with suppress(OSError):
            for _ in range(rng.randrange(1, 30)):
                client.stream.write(frames(rng))
        client.stream.shutdown_writing()
        ended = threading.Event()
        connection.on_close(lambda _, ended=ended: ended.set())  # type: ignore[misc]
        assert ended.wait(10), seed
        client.stream.close()
        connection.close()
    caller = RpcConnection(good_client)
    caller.start()
    assert caller.gateway(Adding, "adder").add((1, 2)) == 3
    caller.close()
    good.close()


def test_a_length_alone_takes_no_memory(running: RunningServer) -> None:
    client, connection = served(running)
    tracemalloc.start()
    client.stream.write(struct.pack(">I", 64 << 20) + b"x")
    time.sleep(0.1)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 4 << 20
    client.stream.close()
    connection.close()


def test_calls_without_end_take_a_bounded_number_of_threads() -> None:
    go_on, done = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        go_on.wait(10)
        done.release()

    threads = AnsweringThreads("bounded", most_threads=4, most_waiting=10)
    until = time.monotonic() + 10
    assert all(threads.run(work) for _ in range(4))
    while sum(t.name == "bounded" for t in threading.enumerate()) < 4:
        assert time.monotonic() < until
    taken = [threads.run(work) for _ in range(30)]
    assert sum(t.name == "bounded" for t in threading.enumerate()) == 4
    assert 6 <= sum(taken) <= 10
    go_on.set()
    for _ in range(4 + sum(taken)):
        assert done.acquire(timeout=10)
    while any(t.name == "bounded" for t in threading.enumerate()):
        assert time.monotonic() < until
    assert threads.run(done.release)
    assert done.acquire(timeout=10)


@pytest.mark.exhaustive
def test_a_thousand_idle_connections_lock_nobody_out() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with running_server(limits=ServerLimits(handshake_ms=60_000)) as running, ExitStack() as idle:
            for _ in range(1000):
                idle.enter_context(running.raw())
            began = time.monotonic()
            client, server = running.pair()
            assert time.monotonic() - began < 30
            assert server.peer == TASKMANAGER
            assert running.server.strangers <= 64
            assert sum(t.name == "flowrun-handshake" for t in threading.enumerate()) <= 64 + 8
            client.stream.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_flood_from_one_address_locks_out_nobody_from_another() -> None:
    """One that comes slowly from elsewhere has its whole time, however many come from one place meanwhile."""
    with running_server(limits=ServerLimits(strangers=4, handshake_ms=60_000)) as running, ExitStack() as flood:
        assert isinstance(running.address, TcpAddress)
        place = (running.address.host, running.address.port)
        slow = flood.enter_context(socket.create_connection(place, 10, ("127.0.0.2", 0)))
        for _ in range(40):
            flood.enter_context(running.raw())
        client, _ = running.pair()  # the server has taken all of them by now
        slow.settimeout(0.05)
        with pytest.raises(TimeoutError):
            slow.recv(1)
        client.stream.close()


def test_who_is_refused_again_and_again_does_not_wear_the_server_out(running: RunningServer) -> None:
    before = threading.active_count()
    for seed in range(200):
        with running.raw() as raw, suppress(OSError):
            raw.sendall(random.Random(seed).randbytes(seed * 7 % 600))
    client, _ = running.pair()
    until = time.monotonic() + 10
    while running.server.strangers:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert threading.active_count() <= before + 8
    client.stream.close()


def test_a_server_whose_numbers_of_files_are_used_up_goes_on_later() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with running_server() as running, ExitStack() as files:
        client, _ = running.pair()
        client.stream.close()
        raw = files.enter_context(socket.socket())
        raw.settimeout(10)
        assert isinstance(running.address, TcpAddress)
        lowest = files.enter_context(socket.socket()).fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
        try:
            raw.connect((running.address.host, running.address.port))
            until = time.monotonic() + 10
            while not running.server.refused:
                assert time.monotonic() < until
                time.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        again, _ = running.pair()
        again.stream.close()
