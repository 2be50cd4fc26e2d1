"""`flowrun ui`, and where `--rest` lets a job listen."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec
import pytest

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.logs import LogOptions
from flowrun.cli.main import cli
from flowrun.cli.supervising import VersionProcess, texts_of
from flowrun.rest.doors import Door, DoorOptions, open_door
from flowrun.runtime.rpc.address import TcpAddress
from tests.end_to_end.conftest import Command
from tests.rest.asking import Api
from tests.rest.control_fakes import FakeJob, controlled

PIPELINE = """
name: small
sources: {rows: {connector: datagen, number-of-rows: 10, rows-per-second: 1000000, schema: {k: BIGINT}}}
sinks: {out: {from: rows, connector: blackhole}}
"""


def test_the_address_of_the_only_job_opens_its_page(flowrun: Command, own_registry: Path) -> None:
    with controlled(FakeJob(), own_registry) as endpoint:
        outcome = flowrun("ui")
        assert outcome.out == f"http://127.0.0.1:{endpoint.entry.port}/#token={endpoint.entry.token}\n"
        assert Api.of_page(outcome.out).get("/v1/jobs")["jobs"][0]["name"] == "orders"


def test_the_address_is_where_the_user_has_asked_for_the_page(
    flowrun: Command, own_registry: Path, tmp_path: Path
) -> None:
    door = open_door(DoorOptions(TcpAddress("127.0.0.1", 0)))
    with controlled(FakeJob(), own_registry, door=door) as endpoint:
        outcome = flowrun("ui")
        assert outcome.out == f"{door.url}#token={endpoint.entry.token}\n"
        assert Api.of_page(outcome.out).get("/v1/jobs")["jobs"][0]["name"] == "orders"
    door = open_door(DoorOptions(TcpAddress("127.0.0.1", 0), tmp_path / "token"))
    with controlled(FakeJob(), own_registry, door=door) as endpoint:  # whose token is another one
        assert flowrun("ui").out == f"http://127.0.0.1:{endpoint.entry.port}/#token={endpoint.entry.token}\n"


def test_versions_of_a_pipeline_have_the_same_token(tmp_path: Path) -> None:
    view = ViewOptions(
        False,
        LogOptions("info", "text", None),
        None,
        None,
        rest=DoorOptions(TcpAddress("127.0.0.1", 0), None, tmp_path),
    )
    sent = msgspec.json.encode(VersionProcess(1, {}, None, texts_of(view)))
    assert msgspec.json.decode(sent, type=VersionProcess).view_options().rest == view.rest
    assert view.rest is not None
    assert view.rest.token not in repr(view)
    assert view.rest.token != DoorOptions(TcpAddress("127.0.0.1", 0)).token


def test_of_several_jobs_one_is_named(flowrun: Command, own_registry: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(controlled(FakeJob("aaaa1111" * 4), own_registry, name="orders"))
        stack.enter_context(controlled(FakeJob("bbbb2222" * 4), own_registry, name="payments"))
        asked = flowrun("ui")
        assert (asked.code, "2 jobs run: 'orders', 'payments'" in asked.err) == (2, True)
        assert first.entry.token in flowrun("ui", "orders").out
        assert flowrun("ui", "bbbb").code == 0
        assert flowrun("ui", "nobody").code == 2
    assert "no job of yours runs" in flowrun("ui").err


def test_the_address_is_opened_in_a_browser_if_there_is_one(
    flowrun: Command, own_registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)))
    with controlled(FakeJob(), own_registry):
        outcome = flowrun("ui", "--open")
    assert opened == [outcome.out.strip()]
    assert "there is no browser on this machine" in outcome.err


def test_a_job_says_where_its_page_is_and_a_quiet_one_does_not(flowrun: Command, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(PIPELINE)
    outcome = flowrun("run", file, "--rest", "127.0.0.1:0", "--no-live")
    assert outcome.code == 0, outcome.err
    assert re.search(r"^the page of this job: http://127\.0\.0\.1:\d+/#token=[0-9a-f]{64}$", outcome.err, re.MULTILINE)
    assert "token" not in flowrun("run", file, "--rest", "127.0.0.1:0", "-q").err
    of_file = flowrun("run", file, "--rest", "localhost:0", "--token-file", tmp_path / "token", "--no-live").err
    token = (tmp_path / "token").read_text().strip()
    assert f"the token is in {tmp_path / 'token'}" in of_file
    assert token not in of_file


def test_a_port_that_is_taken_ends_the_run_before_it_begins(flowrun: Command, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(PIPELINE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = flowrun("run", file, "--rest", f"127.0.0.1:{taken.getsockname()[1]}")
    assert outcome.code == 1
    assert "Address already in use" in outcome.err
    assert "rows" not in outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rest", "0.0.0.0:0"), "without --token-file FILE and --tls FOLDER"),
        (("--rest", "unix:///run/x"), "cannot listen at unix:///run/x"),
        (("--rest", "nowhere:port"), "is no address"),
        (("--token-file", "t"), "--token-file goes with --rest"),
        (("--rest", "127.0.0.1:0", "--cluster", "127.0.0.1:1"), "--rest is for jobs of this process"),
    ],
)
def test_what_does_not_fit_is_wrong_input(
    flowrun: Command, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(PIPELINE)
    outcome = flowrun("run", file, *options)
    assert (outcome.code, message in outcome.err) == (2, True), outcome.err


def test_a_door_knows_its_own_names() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        door = Door(listener, "::1", "t")
        assert door.url == f"http://[::1]:{port}/"
        assert door.hosts == {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}


SERVING = {
    "run": ("run", "small.yaml"),
    "resume": ("resume", "--from-savepoint", "saved"),
    "jobmanager": ("jobmanager", "--listen", "127.0.0.1:0"),
    "cluster up": ("cluster", "up", "--listen", "127.0.0.1:1"),
    "serve": ("serve", ".", "--listen", "127.0.0.1:1"),
}
"""Commands that serve the REST API, with what they need besides."""


def commands_with(option: str) -> set[str]:
    found: set[str] = set()
    waiting: list[tuple[str, click.Command]] = [("", cli)]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            for part in command.list_commands(context):
                below = command.get_command(context, part)
                assert below is not None
                waiting.append((f"{name} {part}".strip(), below))
        elif any(option in parameter.opts for parameter in command.params):
            found.add(name)
    return found


def test_all_commands_that_serve_the_rest_api_are_known_here() -> None:
    assert commands_with("--rest") == set(SERVING)


@pytest.mark.parametrize("command", SERVING)
@pytest.mark.parametrize(
    ("proofs", "missing"),
    [
        ((), "without --token-file FILE and --tls FOLDER"),
        (("--token-file", "token"), "without --tls FOLDER"),
        (("--tls", "certificates"), "without --token-file FILE"),
    ],
)
def test_no_command_listens_beyond_this_machine_without_token_and_tls(
    flowrun: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    proofs: tuple[str, ...],
    missing: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWRUN_CLUSTER_SECRET_FILE", str(tmp_path / "secret"))
    (tmp_path / "small.yaml").write_text(PIPELINE)
    for place in ("0.0.0.0:0", "[::]:0", "192.0.2.1:8081", "somewhere.example:8081"):
        outcome = flowrun(*SERVING[command], "--rest", place, *proofs)
        assert (outcome.code, missing in outcome.err) == (2, True), outcome.err
    assert not (tmp_path / "secret").exists(), "nothing has been begun"
