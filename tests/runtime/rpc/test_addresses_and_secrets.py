"""Addresses are read as they are written; sockets and secrets are for this user only."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from flowrun.errors import ClusterError
from flowrun.masking import masked
from flowrun.runtime.rpc.address import TcpAddress, UnixAddress, listen, open_connection, parse_address
from flowrun.runtime.rpc.secret import TOKEN, SharedSecret, read_or_create_secret, read_secret, secret_of_text


@pytest.mark.parametrize(
    "text", ["tcp://127.0.0.1:6123", "tcp://[::1]:80", "tcp://worker-1.example:65535", "unix:///run/flowrun/jm"]
)
def test_an_address_reads_as_it_is_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp://",
        "host",
        "host:",
        ":80",
        "host:65536",
        "host:-1",
        "host:8o",
        "http://host:80",
        "tcp://host:80/path",
        "unix://relative",
        "::1:80",
        "[::1",
        "[::1]80",
        "host:¹",
    ],
)
def test_what_is_no_address_is_an_error_with_a_remedy(text: str) -> None:
    with pytest.raises(ClusterError, match="is no address") as raised:
        parse_address(text)
    assert raised.value.hint is not None


def test_addresses_know_whether_other_machines_reach_them() -> None:
    assert [
        parse_address(f"{host}:1").is_of_this_machine for host in ("127.0.0.1", "[::1]", "localhost", "127.1.2.3")
    ] == [True] * 4
    assert [
        parse_address(f"{host}:1").is_of_this_machine for host in ("0.0.0.0", "[::]", "example.org", "10.0.0.1")
    ] == [False] * 4


def test_nobody_at_an_address_is_a_clear_error(tmp_path: Path) -> None:
    listener, address = listen(TcpAddress("127.0.0.1", 0))
    listener.close()
    for nowhere in (address, UnixAddress(str(tmp_path / "none"))):
        with pytest.raises(ClusterError, match="cannot connect to"):
            open_connection(nowhere, 1_000)


def test_a_taken_address_is_a_clear_error(tmp_path: Path) -> None:
    for wanted in (TcpAddress("127.0.0.1", 0), UnixAddress(str(tmp_path / "s" / "jm"))):
        listener, address = listen(wanted)
        with listener, pytest.raises(ClusterError, match="cannot listen at"):
            listen(address)


def test_the_socket_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    address = UnixAddress(str(tmp_path / "s" / "jm"))
    listen(address)[0].close()  # the file stays
    listener, _ = listen(address)
    listener.close()


def test_the_folder_of_a_unix_socket_is_for_this_user_only(tmp_path: Path) -> None:
    address = UnixAddress(str(tmp_path / "s" / "jm"))
    listen(address)[0].close()
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    (tmp_path / "s").chmod(0o750)
    with pytest.raises(ClusterError, match="other users may enter its folder"):
        listen(address)
    (tmp_path / "link").symlink_to(tmp_path / "s")
    (tmp_path / "s").chmod(0o700)
    with pytest.raises(ClusterError, match="other users may enter its folder"):
        listen(UnixAddress(str(tmp_path / "link" / "jm")))


def test_a_path_that_is_too_long_for_a_socket_is_a_clear_error(tmp_path: Path) -> None:
    address = UnixAddress(str(tmp_path / ("x" * 120)))
    with pytest.raises(ClusterError, match="too long"):
        listen(address)
    with pytest.raises(ClusterError, match="too long"):
        open_connection(address, 1_000)


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    (folder / "jm").write_text("mine")
    with pytest.raises(ClusterError, match="cannot listen at"):
        listen(UnixAddress(str(folder / "jm")))
    assert (folder / "jm").read_text() == "mine"


def test_connections_have_no_delay_and_block() -> None:
    listener, address = listen(TcpAddress("127.0.0.1", 0))
    with listener, open_connection(address, 1_000) as connected:
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert connected.gettimeout() is None


def test_a_secret_is_masked_and_not_shown() -> None:
    secret = secret_of_text(" correct horse battery\n", "a test")
    assert "horse" not in f"{secret!r} {secret}"
    assert masked("it is correct horse battery") == "it is ***"
    assert secret.value == b"correct horse battery"


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"the shared secret of --secret has 5 bytes; it must have 16 to 4096"):
        secret_of_text("short", "--secret")


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef")
    path.chmod(0o640)
    with pytest.raises(ClusterError, match="other users may read"):
        read_secret(path)
    path.chmod(0o600)
    assert read_secret(path) == SharedSecret(b"0123456789abcdef")
    with pytest.raises(ClusterError, match="cannot read the shared secret") as missing:
        read_secret(tmp_path / "none")
    assert "`flowrun jobmanager` makes it" in str(missing.value.hint)
    with pytest.raises(ClusterError, match=r"cannot read the shared secret in .*: Is a directory") as unreadable:
        read_secret(tmp_path)
    assert unreadable.value.hint is None


def test_the_token_of_the_rest_api_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(ClusterError, match="cannot read the token in") as missing:
        read_secret(path, TOKEN)
    assert "the process that serves the REST API makes it" in str(missing.value.hint)
    path.write_text("short")
    path.chmod(0o640)
    with pytest.raises(ClusterError, match="other users may read the token in"):
        read_secret(path, TOKEN)
    path.chmod(0o600)
    with pytest.raises(ClusterError, match=r"the token of .* has 5 bytes; it must have 16 to 4096"):
        read_or_create_secret(path, TOKEN)


def test_processes_that_make_a_secret_at_once_get_the_same_one(tmp_path: Path) -> None:
    path, found, start = tmp_path / "new" / "secret", list[SharedSecret](), threading.Barrier(8)

    def make() -> None:
        start.wait()
        found.append(read_or_create_secret(path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({secret.value for secret in found}) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["secret"]
