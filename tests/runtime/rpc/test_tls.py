"""Encrypted connections: both sides prove who they are, bytes come as on plain ones, and nobody else gets in or learns anything."""

from __future__ import annotations

import queue
import random
import shutil
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import make_authority, make_identity, needs_openssl
from rpc_links import CREDENTIALS, LOOPBACK, TASKMANAGER, RunningServer, running_server, unix_address

from flowrun.errors import ClusterError, RefusedError
from flowrun.runtime.rpc.frames import FrameReader, FrameWriter
from flowrun.runtime.rpc.handshake import Purpose
from flowrun.runtime.rpc.link import Credentials, Link, open_link
from flowrun.runtime.rpc.secret import SharedSecret
from flowrun.runtime.rpc.server import Server, ServerLimits
from flowrun.runtime.rpc.tls import read_identity

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tls")
    authority, other = make_authority(root / "authority"), make_authority(root / "other")
    return {
        "one": make_identity(root / "one", authority),
        "two": make_identity(root / "two", authority),
        "stranger": make_identity(root / "stranger", other),
        "expired": make_identity(root / "expired", authority, days=-1),
    }


def tls(folders: dict[str, Path], name: str, secret: bytes = b"") -> Credentials:
    return Credentials(SharedSecret(secret), read_identity(folders[name]))


@pytest.fixture
def running(folders: dict[str, Path]) -> object:
    with running_server(credentials=tls(folders, "one")) as server:
        yield server


def linked(running: RunningServer, credentials: Credentials) -> tuple[Link, Link]:
    return running.pair(credentials=credentials)


def test_both_sides_prove_themselves_without_a_secret(running: RunningServer, folders: dict[str, Path]) -> None:
    client, server = linked(running, tls(folders, "two"))
    assert server.peer == TASKMANAGER
    client.stream.close()


def test_frames_go_both_ways_at_once_and_come_whole(running: RunningServer, folders: dict[str, Path]) -> None:
    ends = linked(running, tls(folders, "two"))
    rng = random.Random(3)
    sizes = [0, 1, 5, 16_383, 16_384, 16_385, 70_000, 1 << 20, 5_000_000, 3, 0]
    contents = [rng.randbytes(size) for size in sizes] * 3
    got: list[list[bytes]] = [[], []]

    def read(which: int) -> None:
        reader = FrameReader(ends[which].stream, "peer")
        while len(got[which]) < len(contents):
            frame = reader.read()
            assert frame is not None
            got[which].append(bytes(frame))

    readers = [threading.Thread(target=read, args=(n,)) for n in (0, 1)]
    for reader in readers:
        reader.start()
    failures: list[ClusterError] = []
    writers = [FrameWriter(end.stream, "peer", failures.append) for end in ends]
    for content in contents:
        for writer in writers:
            half = len(content) // 2
            assert writer.write(content[:half], memoryview(content)[half:])
    for reader in readers:
        reader.join(60)
    assert got == [contents, contents]
    assert all(writer.flush(10_000) for writer in writers)
    for writer in writers:
        writer.close()
    ends[0].stream.close()


def test_a_peer_that_does_not_read_gets_everything_later(running: RunningServer, folders: dict[str, Path]) -> None:
    client, server = linked(running, tls(folders, "two"))
    writer, content = FrameWriter(client.stream, "peer", lambda _: None), b"x" * 1_000_000
    for _ in range(30):
        assert writer.write(content)
    assert not writer.flush(1)
    reader = FrameReader(server.stream, "peer")
    for _ in range(30):
        assert reader.read() == content
    assert writer.flush(10_000)
    writer.close()
    client.stream.close()


def test_a_cut_within_a_frame_is_noticed(running: RunningServer, folders: dict[str, Path]) -> None:
    client, server = linked(running, tls(folders, "two"))
    client.stream.write_nowait([memoryview(b"\0\0\0\x05abc")])
    client.stream.close()
    with pytest.raises(ClusterError, match="cut within a frame: 3 of 5 bytes came"):
        FrameReader(server.stream, "peer").read()


@pytest.mark.parametrize(
    ("name", "message"),
    [("stranger", "unknown ca|is not trusted here"), ("expired", "certificate expired|is not trusted here")],
)
def test_certificates_that_do_not_count(
    running: RunningServer, folders: dict[str, Path], name: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RefusedError, match=message) as raised:
        open_link(running.address, TASKMANAGER, Purpose.CONTROL, tls(folders, name))
    assert "certificates of one authority" in (raised.value.hint or "")
    until = time.monotonic() + 10
    while running.server.refused < 1:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert running.links.empty()
    assert "was refused" in caplog.text


def test_who_connects_checks_who_listens(folders: dict[str, Path]) -> None:
    with (
        running_server(credentials=tls(folders, "stranger")) as running,
        pytest.raises(RefusedError, match="its certificate is not trusted here: "),
    ):
        open_link(running.address, TASKMANAGER, Purpose.CONTROL, tls(folders, "one"))


def test_a_secret_that_is_given_must_fit_as_well(folders: dict[str, Path]) -> None:
    with running_server(credentials=tls(folders, "one", b"0123456789abcdef")) as running:
        running.pair(credentials=tls(folders, "two", b"0123456789abcdef"))[0].stream.close()
        with pytest.raises(RefusedError, match="another shared secret"):
            open_link(running.address, TASKMANAGER, Purpose.CONTROL, tls(folders, "two", b"another secret 16"))


def test_plain_and_encrypted_do_not_meet(folders: dict[str, Path]) -> None:
    with running_server(credentials=tls(folders, "one")) as running:
        with pytest.raises(ClusterError, match=r"closed the connection|does not speak|reset") as raised:
            open_link(running.address, TASKMANAGER, Purpose.CONTROL, CREDENTIALS)
        assert "TLS" in (raised.value.hint or "")
    with running_server() as running:
        with pytest.raises(ClusterError, match="handshake") as raised:
            open_link(running.address, TASKMANAGER, Purpose.CONTROL, tls(folders, "two"))
        assert "TLS" in (raised.value.hint or "")


def test_a_client_without_a_certificate_or_with_old_tls_is_dropped(
    running: RunningServer, folders: dict[str, Path]
) -> None:
    for newest in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(folders["one"] / "ca.pem")
        context.maximum_version = newest
        answer = b""
        with running.raw() as raw, suppress(OSError), context.wrap_socket(raw) as client:  # an alert, or a reset
            client.sendall(b"x")
            answer = client.recv(1)
        assert answer == b""
    assert running.links.empty()


def test_silence_in_the_handshake_is_bounded(folders: dict[str, Path]) -> None:
    limits = ServerLimits(strangers=4, handshake_ms=1_000)
    with running_server(credentials=tls(folders, "one"), limits=limits) as running:
        silent = [running.raw() for _ in range(20)]
        client, _ = running.pair(credentials=tls(folders, "two"))
        for one in silent:
            one.settimeout(10)
            with one, suppress(ConnectionResetError):
                assert one.recv(1) == b""
        client.stream.close()


def test_unix_sockets_are_not_encrypted(tmp_path: Path, folders: dict[str, Path]) -> None:
    with running_server(unix_address(tmp_path), tls(folders, "one")) as running:
        client, server = running.pair(credentials=Credentials())
        client.stream.write_nowait([memoryview(b"hello")])
        with memoryview(bytearray(5)) as view:
            assert server.stream.read_into(view) == 5
        client.stream.close()


def test_what_is_wrong_with_the_folder_is_said(tmp_path: Path, folders: dict[str, Path]) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folders["one"], broken)
    (broken / "key.pem").chmod(0o644)
    with pytest.raises(ClusterError, match="other users may read the key"):
        read_identity(broken)
    shutil.copy(folders["two"] / "key.pem", broken / "key.pem")
    (broken / "key.pem").chmod(0o600)
    with pytest.raises(ClusterError, match=r"cannot be used: .*mismatch"):
        read_identity(broken)
    (broken / "ca.pem").unlink()
    with pytest.raises(ClusterError, match=r"cannot read .*ca\.pem"):
        read_identity(broken)


def test_only_processes_of_a_role_are_let_in() -> None:
    links: queue.Queue[Link] = queue.Queue()
    server = Server(LOOPBACK, TASKMANAGER, CREDENTIALS, {Purpose.DATA: links.put}, roles=frozenset({"taskmanager"}))
    try:
        from rpc_links import JOBMANAGER

        with pytest.raises(RefusedError, match="waits for other processes than this one"):
            open_link(server.address, JOBMANAGER, Purpose.DATA, CREDENTIALS)
        with pytest.raises(RefusedError, match="and not a jobmanager"):
            open_link(server.address, TASKMANAGER, Purpose.DATA, CREDENTIALS, roles=frozenset({"jobmanager"}))
        links.get(timeout=10).stream.close()
        open_link(server.address, TASKMANAGER, Purpose.DATA, CREDENTIALS).stream.close()
        links.get(timeout=10).stream.close()
    finally:
        server.close()


def test_the_kernel_watches_whether_the_other_machine_is_there() -> None:
    with running_server() as running:
        for purpose, served_ms in ((Purpose.CONTROL, 15_000), (Purpose.DATA, 60_000)):
            client, server = running.pair(purpose)
            for link, silence_ms in ((client, 15_000), (server, served_ms)):
                connected: socket.socket = link.stream.socket  # type: ignore[attr-defined]
                assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == silence_ms
                assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == silence_ms // 3000
            client.stream.close()
