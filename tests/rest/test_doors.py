"""Where the REST API listens: what is asked for beyond this machine, tokens in files, and TLS."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "rpc"))
from certificates import make_authority, make_identity, needs_openssl

from flowrun.errors import ClusterError
from flowrun.rest.doors import DoorOptions, close_doors, open_door
from flowrun.runtime.rpc.address import TcpAddress, UnixAddress
from tests.rest.asking import Api
from tests.rest.control_fakes import FakeJob, controlled

ANYWHERE = TcpAddress("0.0.0.0", 0)


@pytest.mark.parametrize(
    ("token_file", "tls", "missing"),
    [
        (None, None, "without --token-file FILE and --tls FOLDER"),
        (Path("t"), None, "without --tls FOLDER"),
        (None, Path("t"), "without --token-file FILE"),
    ],
)
def test_beyond_this_machine_it_takes_a_token_and_tls(token_file: Path | None, tls: Path | None, missing: str) -> None:
    with pytest.raises(ClusterError, match=missing) as refused:
        DoorOptions(ANYWHERE, token_file, tls).check()
    assert "127.0.0.1:0 needs neither" in str(refused.value)


def test_a_browser_knows_no_unix_sockets() -> None:
    with pytest.raises(ClusterError, match="cannot listen at unix:///run/x"):
        DoorOptions(UnixAddress("/run/x")).check()


def test_a_token_file_is_made_for_its_owner_only_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "of" / "token"
    options = DoorOptions(TcpAddress("127.0.0.1", 0), file)
    first = open_door(options)
    assert file.stat().st_mode & 0o777 == 0o600
    assert (first.token, first.token_file) == (file.read_text().strip(), file)
    second = open_door(options)
    assert second.token == first.token
    close_doors((first, second))
    file.chmod(0o644)
    with pytest.raises(ClusterError, match="other users may read"):
        open_door(options)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(ClusterError, match="has 5 bytes"):
        open_door(options)
    file.write_text("a token with spaces in it")
    with pytest.raises(ClusterError, match="cannot be a token"):
        open_door(options)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    taken = open_door(DoorOptions(TcpAddress("127.0.0.1", 0)))
    with pytest.raises(ClusterError, match=f"cannot listen at tcp://127.0.0.1:{taken.port}: Address already in use"):
        open_door(DoorOptions(TcpAddress("127.0.0.1", taken.port)))
    close_doors((taken,))


@needs_openssl
def test_beyond_this_machine_connections_are_encrypted(tmp_path: Path) -> None:
    folder = make_identity(tmp_path / "server", make_authority(tmp_path / "one"))
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "token").chmod(0o600)
    door = open_door(DoorOptions(ANYWHERE, tmp_path / "token", folder))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(folder / "ca.pem")
    with controlled(FakeJob(), tmp_path / "run", door=door) as endpoint:
        api = Api(f"https://127.0.0.1:{door.port}/", "0123456789abcdef", client)
        assert api.get("/v1/jobs")["jobs"][0]["name"] == "orders"
        assert Api(api.url, "wrong", client).ask("GET", "/v1/jobs")[0] == 403
        assert api.ask("GET", "/v1/jobs", Origin=f"https://127.0.0.1:{door.port}")[0] == 200
        assert api.ask("GET", "/v1/jobs", Origin="https://evil.example")[0] == 403
        with pytest.raises((ConnectionError, OSError)):
            Api(f"http://127.0.0.1:{door.port}/", api.token).get("/v1/jobs")
        assert endpoint.entry.token != api.token, "the commands of this machine have a door of their own"
        assert Api(f"http://127.0.0.1:{endpoint.entry.port}/", endpoint.entry.token).get("/healthz")
        assert Api(f"http://127.0.0.1:{endpoint.entry.port}/", api.token).ask("GET", "/v1/jobs")[0] == 403
