"""socket: a real server on loopback, delimiters, retries and clear failures."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from flowrun.api.connector import TableDefinition
from flowrun.api.operator import InputStatus
from flowrun.api.source import Delivery, Source
from flowrun.connectors.formats.registry import prefixed_options
from flowrun.connectors.socket import CONNECTOR
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError, DataError, OptionError
from tests.connectors.reading import Reading

LINES = Schema.of(line=STRING)


@contextmanager
def server(*connections: list[bytes]) -> Iterator[int]:
    """A server that sends each connection's pieces in turn, then closes it; yields its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for pieces in connections:
            peer, _ = listening.accept()
            with peer:
                for piece in pieces:
                    peer.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        thread.join()
        listening.close()


def socket_source(port: int, schema: Schema = LINES, form: str = "raw", **given: object) -> Source:
    options, errors = parse_options(
        (*CONNECTOR.source_options, *prefixed_options(form)),
        {"hostname": "127.0.0.1", "port": port, **{k.replace("_", "-"): v for k, v in given.items()}},
        "connector 'socket'",
    )
    assert not errors, errors
    assert CONNECTOR.create_source is not None
    return CONNECTOR.create_source(TableDefinition("lines", schema, options, format=form))


def read(source: Source) -> list[tuple[object, ...]]:
    """All rows; waits for the reader to say that there is more."""
    reading = Reading(source)
    try:
        while (status := reading.step()) is not InputStatus.END_OF_INPUT:
            if status is InputStatus.NOTHING_AVAILABLE and not reading._asked:
                reading.available.wait(1)
                reading.available.clear()
        return reading.output.rows
    finally:
        reading.reader.close()


def test_records_are_cut_at_line_ends_wherever_the_network_cuts_them() -> None:
    with server([b"one\ntw", "o\r\nünï".encode()[:-1], "ï".encode()[-1:] + b"code\nlast"]) as port:
        assert read(socket_source(port)) == [("one",), ("two",), ("ünïcode",), ("last",)]


@pytest.mark.parametrize(("given", "sent"), [({"delimiter": "||"}, b"a|b||c||"), ({"byte_delimiter": 0}, b"a|b\0c\0")])
def test_the_delimiter_can_be_another_byte_or_several(given: Mapping[str, object], sent: bytes) -> None:
    with server([sent]) as port:
        assert read(socket_source(port, **given)) == [("a|b",), ("c",)]


def test_it_connects_again_as_often_as_asked() -> None:
    with server([b"a\n"], [b"b\n"], [b"c\n"]) as port:
        assert read(socket_source(port, max_retries=2, retry_delay="0ms")) == [("a",), ("b",), ("c",)]


def test_a_record_goes_on_in_the_next_connection() -> None:
    with server([b"hel"], [b"lo,2\nwor"], [b"ld"]) as port:
        assert read(socket_source(port, max_retries=2, retry_delay="0ms")) == [("hello,2",), ("world",)]


def test_a_server_that_goes_away_for_good_is_tried_as_often_as_allowed() -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listening.accept()
        listening.close()
        with peer:
            peer.sendall(b"a\nhal")

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(ConnectorError, match="tried 4 times"):
        read(socket_source(listening.getsockname()[1], max_retries=3, retry_delay="0ms"))
    thread.join()


def test_json_records_become_typed_rows() -> None:
    with server([b'{"id": 1, "x": "y"}\n{"id": 2}\n']) as port:
        assert read(socket_source(port, Schema.of(id=BIGINT, x=STRING), "json")) == [(1, "y"), (2, None)]


def test_a_bad_record_fails_with_its_text_or_is_skipped() -> None:
    schema = Schema.of(id=BIGINT)
    with server([b'{"id": 1}\nnonsense\n{"id": 3}\n']) as port, pytest.raises(DataError, match="nonsense"):
        read(socket_source(port, schema, "json"))
    with server([b'{"id": 1}\nnonsense\n{"id": 3}\n']) as port:
        assert read(socket_source(port, schema, "json", **{"format.on-error": "skip"})) == [(1,), (3,)]


def test_a_server_that_is_not_there_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(ConnectorError, match=rf"127\.0\.0\.1:{port} \(tried 2 times\)") as failure:
        read(socket_source(port, max_retries=1, retry_delay="0ms"))
    assert failure.value.retryable


def test_closing_the_reader_ends_a_blocked_read() -> None:
    release = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def hold() -> None:
        peer, _ = listening.accept()
        with peer:
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        reading = Reading(socket_source(listening.getsockname()[1]))
        assert reading.step() is InputStatus.NOTHING_AVAILABLE
        reading.step()
        reading.reader.close()
    finally:
        release.set()
        thread.join()
        listening.close()


def test_what_it_promises_and_refuses() -> None:
    assert socket_source(1).delivery is Delivery.AT_MOST_ONCE
    with pytest.raises(OptionError, match="at most 65535"):
        socket_source(70_000)
    with pytest.raises(OptionError, match="must not be empty"):
        socket_source(1, delimiter="")


def test_a_delimiter_and_a_character_may_be_cut_by_the_end_of_a_connection() -> None:
    with server([b"a|"], [b"|" + "ü".encode()[:1]], ["ü".encode()[1:] + b"||"]) as port:
        assert read(socket_source(port, delimiter="||", max_retries=2, retry_delay="0ms")) == [("a",), ("ü",)]


def test_a_connection_that_is_reset_keeps_its_partial_record_too() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    received = threading.Event()

    def serve() -> None:
        peer, _ = listening.accept()
        peer.sendall(b"one\nhel")
        received.wait(10)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # a reset instead of an end
        peer, _ = listening.accept()
        with peer:
            peer.sendall(b"lo\n")

    thread = threading.Thread(target=serve)
    thread.start()
    reading = Reading(socket_source(listening.getsockname()[1], max_retries=1, retry_delay="0ms"))
    try:
        while reading.step() is not InputStatus.END_OF_INPUT:
            if reading.output.rows:
                received.set()  # so what was sent before the reset was read
            reading.available.wait(0.05)
            reading.available.clear()
        assert reading.output.rows == [("one",), ("hello",)]
    finally:
        reading.reader.close()
        thread.join()
        listening.close()


def test_a_server_that_comes_up_late_is_found_with_the_last_attempt() -> None:
    attempts: list[int] = []

    def connect(*arguments: object, **more: object) -> socket.socket:
        attempts.append(1)
        if len(attempts) < 4:
            raise ConnectionRefusedError("not there yet")
        return real(*arguments, **more)  # type: ignore[arg-type]

    real = socket.create_connection
    with server([b"late\n"]) as port, pytest.MonkeyPatch.context() as patched:
        patched.setattr("flowrun.connectors.socket.socket.create_connection", connect)
        assert read(socket_source(port, max_retries=3, retry_delay="0ms")) == [("late",)]
    assert len(attempts) == 4
