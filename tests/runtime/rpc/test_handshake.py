"""Only who knows the secret gets in, and nobody else has anything read beyond the handshake; whoever is refused hears why."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rpc_links import (
    CREDENTIALS,
    JOBMANAGER,
    LOOPBACK,
    TASKMANAGER,
    RunningServer,
    running_server,
    unix_address,
)

from flowrun.errors import ClusterError
from flowrun.runtime.rpc.address import TcpAddress, listen
from flowrun.runtime.rpc.handshake import _INTRODUCTION, Introduction, Purpose, Verdict
from flowrun.runtime.rpc.link import Credentials, open_link
from flowrun.runtime.rpc.secret import SharedSecret
from flowrun.runtime.rpc.server import Server, ServerLimits

OTHER_SECRET = Credentials(SharedSecret(b"another secret of 16"))


def wait_until_no_stranger_is_left(running: RunningServer) -> None:
    until = time.monotonic() + 10
    while running.server.strangers and time.monotonic() < until:
        time.sleep(0.005)
    assert running.server.strangers == 0


@pytest.mark.parametrize("purpose", list(Purpose))
def test_both_sides_know_who_the_other_is(purpose: Purpose) -> None:
    with running_server() as running:
        client, server = running.pair(purpose)
        assert (client.peer, client.purpose, client.address) == (JOBMANAGER, purpose, str(running.address))
        assert (server.peer, server.purpose) == (TASKMANAGER, purpose)
        client.stream.write(b"hello")
        with memoryview(bytearray(5)) as view:
            server.stream.read_into(view)
            assert bytes(view) == b"hello"
        client.stream.close()


def test_a_unix_socket_in_a_folder_of_this_user_needs_no_secret(tmp_path: Path) -> None:
    with running_server(unix_address(tmp_path), Credentials()) as running:
        client, server = running.pair(credentials=Credentials())
        assert server.peer == TASKMANAGER
        client.stream.close()
        path = running.address.path  # type: ignore[union-attr]
        assert Path(path).exists()
    assert not Path(path).exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_is_not_opened_without_a_secret(host: str) -> None:
    with pytest.raises(ClusterError, match="without a shared secret") as raised:
        Server(TcpAddress(host, 0), JOBMANAGER, Credentials(), {})
    assert raised.value.hint is not None


def test_a_wrong_secret_is_refused_and_logged_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    with running_server() as running:
        for credentials in (OTHER_SECRET, Credentials()):
            with pytest.raises(ClusterError, match=r"jobmanager jm-1 at tcp://.* has another shared secret") as raised:
                open_link(running.address, TASKMANAGER, Purpose.CONTROL, credentials)
            assert raised.value.hint == "give both processes the same secret"
        wait_until_no_stranger_is_left(running)
        assert running.links.empty()
        assert running.server.refused == 2
    assert caplog.text.count("was refused: taskmanager tm-1 does not know the shared secret") == 2
    assert "another secret" not in caplog.text


def test_another_version_of_flowrun_is_refused_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    with running_server() as running:
        old = Introduction("taskmanager", "tm-1", "0.0.1")
        with pytest.raises(
            ClusterError, match=r"jobmanager jm-1 .* runs flowrun .*, and this process 0\.0\.1"
        ) as raised:
            open_link(running.address, old, Purpose.CONTROL, CREDENTIALS)
        assert raised.value.hint == "install the same version of flowrun on both sides"
        wait_until_no_stranger_is_left(running)
    assert "taskmanager tm-1 (the other side) runs flowrun 0.0.1" in caplog.text


def test_another_version_of_the_protocol_is_answered_with_the_own_one() -> None:
    with running_server() as running, running.raw() as raw:
        raw.sendall(_INTRODUCTION.pack(b"flowrun\n", 99, 1, b"taskmanager", b"tm", b"0.1.0", bytes(32)))
        answer = _INTRODUCTION.unpack(raw.recv(_INTRODUCTION.size, socket.MSG_WAITALL))
        assert answer[2] == Verdict.OTHER_PROTOCOL
        assert raw.recv(1) == b""


def test_a_purpose_that_is_not_served_is_refused() -> None:
    server = Server(LOOPBACK, JOBMANAGER, CREDENTIALS, {Purpose.CONTROL: lambda link: link.stream.close()})
    try:
        with pytest.raises(ClusterError, match="serves no data connections"):
            open_link(server.address, TASKMANAGER, Purpose.DATA, CREDENTIALS)
    finally:
        server.close()


def test_a_proof_is_good_once_only() -> None:
    """Who heard a whole handshake and repeats it meets another random number."""
    with running_server() as running:
        heard: list[bytes] = []
        with Relay(running, heard) as relay_address:
            open_link(relay_address, TASKMANAGER, Purpose.CONTROL, CREDENTIALS).stream.close()
            running.links.get(timeout=10)
        with running.raw() as raw:
            raw.sendall(heard[0])
            raw.recv(_INTRODUCTION.size, socket.MSG_WAITALL)
            raw.sendall(heard[1])
            assert raw.recv(33, socket.MSG_WAITALL)[0] == Verdict.WRONG_SECRET


class Relay:
    """Listens, passes a handshake on, and keeps what the client said."""

    def __init__(self, running: RunningServer, heard: list[bytes]) -> None:
        self.running, self.heard = running, heard

    def __enter__(self) -> object:
        self.listener, address = listen(TcpAddress("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._pass_on)
        self.thread.start()
        return address

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        self.listener.close()

    def _pass_on(self) -> None:
        client, _ = self.listener.accept()
        with client, self.running.raw() as server:
            for asked, answered in ((_INTRODUCTION.size, _INTRODUCTION.size), (32, 33)):
                self.heard.append(client.recv(asked, socket.MSG_WAITALL))
                server.sendall(self.heard[-1])
                client.sendall(server.recv(answered, socket.MSG_WAITALL))


def test_a_server_that_does_not_know_the_secret_gets_no_client() -> None:
    """It says welcome to whatever proof it gets, and sends that back as its own."""
    listener, address = listen(TcpAddress("127.0.0.1", 0))

    def pretend() -> None:
        client, _ = listener.accept()
        with client:
            said = client.recv(_INTRODUCTION.size, socket.MSG_WAITALL)
            client.sendall(said[:10] + b"\0" + said[11:])
            client.sendall(b"\0" + client.recv(32, socket.MSG_WAITALL))

    thread = threading.Thread(target=pretend)
    thread.start()
    with listener, pytest.raises(ClusterError, match="did not prove that it knows the shared secret"):
        open_link(address, TASKMANAGER, Purpose.CONTROL, CREDENTIALS)
    thread.join()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH\r\n" * 20, bytes(300)])
def test_what_is_no_flowrun_is_told_from_one_that_is(answer: bytes) -> None:
    listener, address = listen(TcpAddress("127.0.0.1", 0))

    def speak() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(_INTRODUCTION.size, socket.MSG_WAITALL)
            client.sendall(answer)

    thread = threading.Thread(target=speak)
    thread.start()
    with (
        listener,
        pytest.raises(ClusterError, match=r"does not speak flowrun's protocol|closed the connection") as raised,
    ):
        open_link(address, TASKMANAGER, Purpose.CONTROL, CREDENTIALS)
    assert raised.value.hint == "check the address, and whether one side uses TLS"
    thread.join()


def test_a_listener_that_says_nothing_ends_in_an_error_in_time() -> None:
    listener, address = listen(TcpAddress("127.0.0.1", 0))
    with listener, pytest.raises(ClusterError, match="no answer in time") as raised:
        open_link(address, TASKMANAGER, Purpose.CONTROL, CREDENTIALS, timeout_ms=50)
    assert raised.value.hint is not None
    assert "a process that hangs there does not answer either" in raised.value.hint


def test_who_sends_a_byte_now_and_then_is_dropped_in_time() -> None:
    with running_server(limits=ServerLimits(handshake_ms=200)) as running, running.raw() as raw:
        raw.settimeout(0.02)
        until = time.monotonic() + 10
        introduction = _INTRODUCTION.pack(b"flowrun\n", 1, 1, b"taskmanager", b"tm", b"0.1.0", bytes(32))
        dropped_after = 0
        for sent, byte in enumerate(introduction):
            try:
                raw.send(bytes([byte]))
                assert raw.recv(1) == b""
            except TimeoutError:
                assert time.monotonic() < until
                continue
            except OSError:
                pass
            dropped_after = sent
            break
        assert 0 < dropped_after < len(introduction) - 1


def test_strangers_without_a_word_lock_nobody_out() -> None:
    with running_server(limits=ServerLimits(strangers=8, handshake_ms=60_000)) as running:
        silent = [running.raw() for _ in range(40)]
        client, server = running.pair()
        assert server.peer == TASKMANAGER
        assert running.server.strangers <= 8
        client.stream.close()
        for one in silent:
            one.close()


def test_hostile_bytes_neither_get_in_nor_stop_the_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    rng = random.Random(11)
    good = _INTRODUCTION.pack(b"flowrun\n", 1, 1, b"taskmanager", b"tm-1", TASKMANAGER.version.encode(), bytes(32))
    with running_server(limits=ServerLimits(handshake_ms=5_000)) as running:
        for turn in range(150):
            damaged = bytearray(good)
            for _ in range(rng.randrange(4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            sent = rng.choice([bytes(damaged), rng.randbytes(rng.randrange(600)), bytes(damaged) + rng.randbytes(32)])
            with running.raw() as raw:
                try:
                    raw.sendall(sent)
                    raw.shutdown(socket.SHUT_WR)
                    answer = raw.recv(4096, socket.MSG_WAITALL)
                except OSError:
                    continue  # dropped before everything was sent
                assert len(answer) in (0, _INTRODUCTION.size, _INTRODUCTION.size + 33), turn
                assert len(answer) <= _INTRODUCTION.size or answer[_INTRODUCTION.size] == Verdict.WRONG_SECRET
        wait_until_no_stranger_is_left(running)
        assert running.links.empty()
        assert running.server.refused == 150
        client, _ = running.pair()
        client.stream.close()
    assert 0 < len(caplog.records) <= 41, "nobody fills a log by knocking"


@pytest.mark.parametrize("text", ["", "x" * 33, "tab\there", "line\n"])
def test_a_role_that_cannot_be_shown_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="cannot be the role of a process"):
        Introduction(text, "id")


def test_a_closed_server_is_closed() -> None:
    with running_server() as running:
        with running.raw() as silent:
            running.server.close()
            running.server.close()
            with suppress(ConnectionResetError):  # it was not accepted yet
                assert silent.recv(1) == b""
        with pytest.raises(ClusterError, match="cannot connect"):
            open_link(running.address, TASKMANAGER, Purpose.CONTROL, CREDENTIALS)
