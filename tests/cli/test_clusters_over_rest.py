"""`--cluster http://…`: commands that ask a REST API with its token."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "rpc"))
from certificates import make_authority, make_identity, needs_openssl

from flowrun.core.record import record
from flowrun.errors import ClusterError, PipelineError, StateError
from flowrun.masking import forget_secrets
from flowrun.rest.doors import DoorOptions, open_door
from flowrun.runners.http_requests import HttpRequests, RestAddress, parse_rest_address
from flowrun.runners.rest_requests import RestReply, answered
from flowrun.runners.session.client import HttpCluster
from flowrun.runners.session.messages import JobSubmission
from flowrun.runtime.cluster.job_files import NO_FILES
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.rpc.address import TcpAddress
from flowrun.state.checkpoints import PipelineText, ProjectText
from tests.end_to_end.conftest import Command
from tests.rest.control_fakes import FakeJob, controlled

TOKEN = "0123456789abcdef" * 2


@record(eq=False)
class Served:
    """A job that a REST API serves, and where."""

    job: FakeJob
    url: str
    token_file: Path


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file


@pytest.fixture
def served(token_file: Path, tmp_path: Path) -> Iterator[Served]:
    door = open_door(DoorOptions(TcpAddress("127.0.0.1", 0), token_file))
    job = FakeJob()
    with controlled(job, tmp_path / "other-registry", door=door):
        yield Served(job, door.url, token_file)


def test_jobs_are_listed_and_looked_at(flowrun: Command, served: Served) -> None:
    at = ("--cluster", served.url, "--token-file", served.token_file)
    listed = json.loads(flowrun("jobs", "--json", *at).out)
    assert [(job["name"], job["state"]) for job in listed] == [("orders", "running")]
    assert flowrun("jobs").out == "no job runs\n", "it is no job of this machine"
    why = json.loads(flowrun("why", "orders", "--json", *at).out)
    assert why["findings"]
    assert "orders" in flowrun("top", "--once", "-d", "0.1", *at).out


def test_orders_are_carried_out(flowrun: Command, served: Served) -> None:
    at = ("--cluster", served.url, "--token-file", served.token_file)
    served.job.answer_with = "/saved/savepoint-orders-8"
    taken = flowrun("savepoint", "orders", *at)
    assert (taken.code, taken.out) == (0, "/saved/savepoint-orders-8\n"), taken.err
    place = f"--cluster {served.url.rstrip('/')} --token-file {served.token_file}"
    assert f"flowrun resume --from-savepoint /saved/savepoint-orders-8 {place}" in taken.err
    assert TOKEN not in taken.err
    assert flowrun("stop", "orders", "--savepoint", "/saved", *at).code == 0
    assert ("snapshot", "/saved", True, True, False) in served.job.asked


def test_the_token_comes_with_the_address_too_and_is_not_repeated(flowrun: Command, served: Served) -> None:
    forget_secrets()  # what serves it is in this process, and masks it
    address = f"{served.url}#token={TOKEN}"
    assert "orders" in flowrun("jobs", "--cluster", address).out
    assert flowrun("ui", "--cluster", address).out.strip() == address
    wrong = flowrun("jobs", "--cluster", f"{served.url}#token=wrong")
    assert (wrong.code, "the token is wrong" in wrong.err, "--token-file" in wrong.err) == (1, True, True), wrong.err
    nothing = flowrun("jobs", "--cluster", served.url)
    assert (nothing.code, "needs a token, and none was given" in nothing.err) == (1, True)


def test_the_environment_names_a_cluster(flowrun: Command, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_CLUSTER", served.url)
    monkeypatch.setenv("FLOWRUN_TOKEN_FILE", str(served.token_file))
    assert "orders" in flowrun("jobs").out


@needs_openssl
def test_beyond_this_machine_the_authority_of_the_cluster_is_trusted(
    flowrun: Command, token_file: Path, tmp_path: Path
) -> None:
    folder = make_identity(tmp_path / "server", make_authority(tmp_path / "one"))
    other = make_identity(tmp_path / "client", make_authority(tmp_path / "two"))
    door = open_door(DoorOptions(TcpAddress("127.0.0.1", 0), token_file, folder))
    with controlled(FakeJob(), tmp_path / "other-registry", door=door):
        at = ("jobs", "--cluster", door.url, "--token-file", token_file)
        assert "orders" in flowrun(*at, "--tls", folder).out
        for proof in ((), ("--tls", other)):
            refused = flowrun(*at, *proof)
            assert (refused.code, "is not trusted here" in refused.err) == (1, True), refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cluster", "http://10.0.0.1:8081"), "others would read the token on its way"),
        (("--cluster", "https://me@host"), "no address of a REST API"),
        (("--cluster", "https://host/path"), "no address of a REST API"),
        (("--cluster", "https://host:port"), "no address of a REST API"),
        (("--cluster", "http://127.0.0.1:1", "--cluster", "127.0.0.1:1"), "not both"),
    ],
)
def test_an_address_that_cannot_be_is_wrong_input(flowrun: Command, options: tuple[str, ...], message: str) -> None:
    outcome = flowrun("jobs", *options)
    assert (outcome.code, message in outcome.err) == (2, True), outcome.err


def test_a_token_in_an_address_is_not_shown() -> None:
    address = parse_rest_address(f"http://[::1]:8081/#token={TOKEN}&/jobs/5f")
    assert (address, str(address)) == (RestAddress("::1", 8081, False, TOKEN), "http://[::1]:8081")
    assert TOKEN not in repr(address)


def test_who_leads_is_found_among_several(served: Served) -> None:
    (port,) = {parse_rest_address(served.url).port}
    places = [RestAddress("127.0.0.1", 1), RestAddress("127.0.0.1", port)]
    assert HttpRequests(places, [TOKEN, TOKEN]).ask("GET", "/v1/jobs").status == 200
    with pytest.raises(ClusterError, match="cannot be reached: Connection refused"):
        HttpRequests(places[:1], [TOKEN]).ask("GET", "/v1/jobs")


class Said:
    """Answers as a test says, and keeps what it was asked."""

    def __init__(self, status: int, answer: dict[str, Any]) -> None:
        self.reply = RestReply(status, json.dumps(answer).encode())
        self.asked: list[tuple[str, str, Any]] = []

    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        self.asked.append((method, path, None if body is None else json.loads(body)))
        return self.reply


@pytest.mark.parametrize(
    ("status", "kind"),
    [(409, StateError), (422, PipelineError), (503, ClusterError), (404, ClusterError), (500, ClusterError)],
)
def test_refusals_are_errors_of_their_kind(status: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="it is so"):
        answered(Said(status, {"error": "it is so", "hint": "change it"}), "GET", "/v1/jobs")


def test_another_server_is_told_apart() -> None:
    said = Said(200, {})
    said.reply = RestReply(200, b"<html>")
    with pytest.raises(ClusterError, match="no REST API of flowrun"):
        answered(said, "GET", "/v1/jobs")


def test_a_job_travels_as_text_with_all_that_it_goes_on_from() -> None:
    said = Said(201, {"job_id": "5f"})
    kept = PipelineText(
        "jobs/orders.sql", "SELECT 1", "/home/jobs", {"day": "1"}, {"settings.parallelism": "2"}, "/home"
    )
    kept = replace(kept, project=ProjectText("flowrun.yaml", "sources: {}", "/home"))
    submission = JobSubmission("orders", JobText(kept, {"password": "hunter2"}), "f", "/saved", True, "keep", 2, "u1")
    cluster = HttpCluster(HttpRequests([], []))
    cluster.ask = said.ask  # type: ignore[method-assign]
    assert cluster.submit(submission, NO_FILES) == "5f"
    ((method, path, body),) = said.asked
    assert (method, path) == ("POST", "/v1/jobs")
    assert body == {
        "text": "SELECT 1",
        "file": "orders.sql",
        "variables": {"day": "1"},
        "secrets": {"password": "hunter2"},
        "overrides": {"settings.parallelism": "2"},
        "directory": "/home/jobs",
        "working_directory": "/home",
        "from_savepoint": "/saved",
        "allow_non_restored_state": True,
        "committed_after": "keep",
        "project": {"file_name": "flowrun.yaml", "text": "sources: {}", "directory": "/home", "scripts": {}},
        "upgrade": "u1",
    }


def test_a_program_is_submitted_by_who_belongs_to_the_cluster() -> None:
    kept = PipelineText("job.py", "import flowrun", "/home", {}, {}, "/home")
    with pytest.raises(PipelineError, match="is a program, which whoever has the token of a REST API cannot send"):
        HttpCluster(HttpRequests([], [])).submit(JobSubmission("job", JobText(kept), "f"), NO_FILES)
