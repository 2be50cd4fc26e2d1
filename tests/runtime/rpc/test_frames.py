"""Frames arrive whole and in order; a cut, a lie about a length and a peer that does not read are clear errors."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from flowrun.errors import ClusterError
from flowrun.runtime.rpc.byte_stream import SocketStream
from flowrun.runtime.rpc.frames import FrameReader, FrameWriter

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if request.param == "unix":
        left, right = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            left = socket.create_connection(listener.getsockname())
            right, _ = listener.accept()
    with left, right:
        yield left, right


_writers: list[FrameWriter] = []


@pytest.fixture(autouse=True)
def _writers_are_closed() -> Iterator[None]:
    yield
    while _writers:
        _writers.pop().close()


def writer(end: socket.socket, failures: list[ClusterError] | None = None, **limits: int) -> FrameWriter:
    _writers.append(FrameWriter(SocketStream(end), "peer", (failures if failures is not None else []).append, **limits))
    return _writers[-1]


def reader(end: socket.socket, **limits: int) -> FrameReader:
    return FrameReader(SocketStream(end), "peer", **limits)


def test_frames_of_any_size_arrive_whole_and_in_order(pair: Pair) -> None:
    rng = random.Random(7)
    sizes = [0, 1, 3, 4, 5, 1_000, 65_536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_333_333, 0, 9]
    contents = [rng.randbytes(size) for size in sizes]
    write, got = writer(pair[0]), []
    for content in contents:
        cut = sorted(rng.randrange(len(content) + 1) for _ in range(3))
        assert write.write(content[: cut[0]], memoryview(content)[cut[0] : cut[1]], b"", bytearray(content[cut[1] :]))
    read = reader(pair[1])
    for _ in contents:
        frame = read.read()
        assert frame is not None
        got.append(bytes(frame))
    assert got == contents
    assert write.flush(10_000)


def test_writers_of_many_threads_do_not_mix_their_frames(pair: Pair) -> None:
    write = writer(pair[0])

    def send(number: int) -> None:
        for turn in range(300):
            write.write(struct.pack(">II", number, turn), bytes([number]) * (turn * 17 % 5_000))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    read, turns = reader(pair[1]), dict.fromkeys(range(4), 0)
    for _ in range(4 * 300):
        frame = read.read()
        assert frame is not None
        number, turn = struct.unpack(">II", frame[:8])
        assert turn == turns[number]
        turns[number] += 1
        assert bytes(frame[8:]) == bytes([number]) * (turn * 17 % 5_000)
    for thread in threads:
        thread.join()


def test_an_end_after_a_whole_frame_is_an_end(pair: Pair) -> None:
    writer(pair[0]).write(b"last")
    pair[0].shutdown(socket.SHUT_WR)
    read = reader(pair[1])
    frame = read.read()
    assert frame is not None
    assert bytes(frame) == b"last"
    assert read.read() is None


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\0", "1 of 4"),
        (b"\0\0\0", "3 of 4"),
        (b"\0\0\0\x05", "0 of 5"),
        (b"\0\0\0\x05abcd", "4 of 5"),
        (b"\x01\0\0\0abc", "3 of 16777216"),
    ],
)
def test_a_cut_within_a_frame_says_how_much_came(pair: Pair, sent: bytes, said: str) -> None:
    pair[0].sendall(sent)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(ClusterError, match=f"the connection to peer was cut within a frame: {said} bytes came"):
        reader(pair[1]).read()


def test_a_frame_over_the_limit_is_not_read(pair: Pair) -> None:
    pair[0].sendall(struct.pack(">I", 11) + b"x" * 11)
    with pytest.raises(ClusterError, match="announces a frame of 11 bytes; the limit is 10"):
        reader(pair[1], limit_bytes=10).read()


def test_a_frame_over_the_limit_is_not_written_and_the_next_is(pair: Pair) -> None:
    write = writer(pair[0], limit_bytes=10)
    with pytest.raises(ClusterError, match="a message of 11 bytes is too long for peer; the limit is 10"):
        write.write(b"x" * 6, b"x" * 5)
    write.write(b"short")
    frame = reader(pair[1]).read()
    assert frame is not None
    assert bytes(frame) == b"short"


def test_a_peer_that_does_not_read_holds_up_nobody_and_gets_everything_later(pair: Pair) -> None:
    write, content = writer(pair[0]), b"x" * 1_000_000
    for _ in range(50):
        assert write.write(content)
    assert write.waiting_bytes > 10_000_000
    assert not write.flush(1)
    read = reader(pair[1])
    for _ in range(50):
        frame = read.read()
        assert frame is not None
        assert frame == content
    assert write.flush(10_000)


def test_too_much_for_a_peer_that_does_not_read_is_a_failure(pair: Pair) -> None:
    failures: list[ClusterError] = []
    write = writer(pair[0], failures, most_waiting_bytes=20_000_000)
    taken = sum(write.write(b"x" * 1_000_000) for _ in range(60))
    assert 20 <= taken < 60
    assert [failure.message.partition(":")[0] for failure in failures] == ["peer does not read"]
    assert write.waiting_bytes == 0


def test_a_connection_that_the_peer_reset_is_told_once(pair: Pair) -> None:
    failures: list[ClusterError] = []
    write = writer(pair[0], failures)
    pair[1].close()
    taken = [write.write(b"x" * 100_000) for _ in range(100)]
    assert taken[-1] is False
    assert len(failures) == 1
    assert failures[0].message.startswith("the connection to peer failed:")


def test_a_writer_that_waits_notices_the_reset(pair: Pair) -> None:
    told = threading.Event()
    write = FrameWriter(SocketStream(pair[0]), "peer", lambda _: told.set())
    for _ in range(20):
        write.write(b"x" * 1_000_000)
    assert write.waiting_bytes > 0
    pair[1].close()
    assert told.wait(10)
    assert not write.write(b"more")
