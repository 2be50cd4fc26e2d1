"""Control of a running job by the REST API: what it does for those who may, and how it turns everybody else away."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowrun.core.clock import ManualClock
from flowrun.errors import ClusterError, StateError
from flowrun.rest.connections import MOST_CONNECTIONS
from flowrun.rest.endpoint import JobEndpoint
from flowrun.runners.control import LINGER_MS, WATCHERS_MS, JobControl, Order
from flowrun.runners.control_client import JobClient, client_of
from flowrun.runners.registry import JobRegistry, new_entry
from flowrun.runtime.lifecycle import JobState
from tests.rest.control_fakes import FakeJob, controlled
from tests.slices import everyday


@pytest.fixture
def job() -> FakeJob:
    return FakeJob()


@pytest.fixture
def endpoint(job: FakeJob, tmp_path: Path) -> Iterator[JobEndpoint]:
    with controlled(job, tmp_path / "run") as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def client(endpoint: JobEndpoint) -> JobClient:
    return client_of(endpoint.entry)


def ask(endpoint: JobEndpoint, method: str, path: str, body: object = None, **headers: str) -> tuple[int, object]:
    """One request with the right token unless `headers` say otherwise (`_` stands for `-`; empty: leave out)."""
    given = {"Authorization": f"Bearer {endpoint.entry.token}", "Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.entry.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in given)
        for name, value in given.items():
            if value:
                connection.putheader(name, value)
        if data is not None and "Content-Length" not in given:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    assert response.getheader("Access-Control-Allow-Origin") is None
    return response.status, json.loads(text) if text else None


def answered(state: str, path: str | None = None, job_state: str | None = None, **failed: str) -> dict[str, str | None]:
    """What the API tells of an order."""
    return {"state": state, "path": path, "job_state": job_state, "message": None, "hint": None, **failed}


def test_a_job_tells_about_itself(endpoint: JobEndpoint) -> None:
    about = client(endpoint).describe()
    assert about["name"] == "orders"
    assert about["state"] == "running"
    assert (about["rows_read"], about["rows_per_s"]) == (6_000, 3_000.0)
    assert about["restarts"] == 2
    assert about["checkpoints"]["last"]["path"] == "/state/chk-7"  # type: ignore[index,call-overload]
    assert endpoint.entry.token not in json.dumps(about)


def test_a_savepoint_is_asked_for_and_waited_for(endpoint: JobEndpoint, job: FakeJob) -> None:
    order = client(endpoint).place("savepoint", "/keep")
    assert client(endpoint).answer(order)["state"] == "pending"
    job.tickets[0].succeed("/keep/savepoint-1")
    assert client(endpoint).answer(order) == answered("done", "/keep/savepoint-1", "running")
    assert job.asked == [("snapshot", "/keep", True, False, False)]


def test_a_savepoint_that_fails_says_why(endpoint: JobEndpoint, job: FakeJob) -> None:
    order = client(endpoint).place("savepoint")
    job.tickets[0].fail("the disk is full", "free some space")
    answer = answered("failed", message="the disk is full", hint="free some space")
    assert client(endpoint).answer(order) == answer


def test_a_job_that_refuses_says_why_at_once(endpoint: JobEndpoint, job: FakeJob) -> None:
    job.refusal = StateError("the job takes no checkpoints", hint="set settings.checkpoint")
    with pytest.raises(StateError, match="takes no checkpoints") as refused:
        client(endpoint).place("savepoint")
    assert refused.value.hint == "set settings.checkpoint"


def test_a_stop_is_done_when_the_job_has_ended(endpoint: JobEndpoint, job: FakeJob) -> None:
    order = client(endpoint).place("stop", drain=True)
    assert job.asked == [("snapshot", None, False, True, True)], "with a last checkpoint"
    job.tickets[0].succeed("/state/chk-8")
    assert client(endpoint).answer(order)["state"] == "pending", "what is pending has still to be committed"
    job.state = JobState.FINISHED
    assert client(endpoint).answer(order) == answered("done", "/state/chk-8", "finished")


def test_a_stop_with_a_folder_ends_with_a_savepoint(endpoint: JobEndpoint, job: FakeJob) -> None:
    client(endpoint).answer(client(endpoint).place("stop", "/keep"))
    assert job.asked == [("snapshot", "/keep", True, True, False)]
    job.tickets[0].fail("never mind")
    client(endpoint).answer("1")


def test_a_job_without_checkpoints_stops_gracefully(tmp_path: Path) -> None:
    job = FakeJob(takes_checkpoints=False)
    with controlled(job, tmp_path / "run", checkpoints=False) as endpoint:
        order = client(endpoint).place("stop")
        assert client(endpoint).answer(order) == answered("done", None, "finished")
    assert job.asked == [("stop", False)]


def test_a_cancelled_job(endpoint: JobEndpoint, job: FakeJob) -> None:
    assert client(endpoint).answer(client(endpoint).place("cancel"))["job_state"] == "canceled"
    assert job.asked == [("cancel",)]


def test_the_pipeline_may_say_where_savepoints_go(tmp_path: Path, job: FakeJob) -> None:
    with controlled(job, tmp_path / "run", savepoints="/by/default") as endpoint:
        for directory in (None, "/asked"):
            order = client(endpoint).place("savepoint", directory)
            job.tickets[-1].succeed("x")
            client(endpoint).answer(order)
    assert [asked[1] for asked in job.asked] == ["/by/default", "/asked"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer " + "0" * 64}, 403),
        ({"Authorization": "Bearer \xff"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize(
    "request_line",
    [("GET", "/v1/jobs/0123456789abcdef"), ("POST", "/v1/jobs/0123456789abcdef/orders"), ("GET", "/nowhere")],
)
def test_strangers_get_nothing(
    endpoint: JobEndpoint, job: FakeJob, headers: dict[str, str], status: int, request_line: tuple[str, str]
) -> None:
    body = {"kind": "cancel"} if request_line[0] == "POST" else None
    got, answer = ask(endpoint, *request_line, body, **headers)
    assert got == status
    assert set(answer) == {"error", "hint", "problems"}  # type: ignore[call-overload]
    assert job.asked == []


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/nowhere", None, {}, 404),
        ("GET", "/v1/jobs/0123456789abcdef/orders/99", None, {}, 404),
        ("GET", "/v1/jobs/0123456789abcdef/orders/../../job", None, {}, 404),
        ("GET", "/v1/jobs/another", None, {}, 404),
        ("GET", "/v1/jobs/", None, {}, 404),
        ("GET", "/v1/jobs/0123456789abcdef?after=1", None, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef", {}, {}, 405),
        ("DELETE", "/v1/jobs/0123456789abcdef", None, {}, 405),
        ("GET", "/v1/jobs/0123456789abcdef/orders", None, {}, 405),
        ("BREW", "/v1/jobs/0123456789abcdef/orders", None, {}, 405),
        ("POST", "/v1/jobs/0123456789abcdef/orders", None, {}, 411),
        ("POST", "/v1/jobs/0123456789abcdef/orders", None, {"Content_Length": "-1"}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", None, {"Transfer_Encoding": "chunked"}, 411),
        ("POST", "/v1/jobs/0123456789abcdef/orders", None, {"Content_Length": "16385"}, 413),
        ("POST", "/v1/jobs/0123456789abcdef/orders", None, {"Content_Length": "9" * 5000}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", None, {"Content_Length": "9" * 20}, 413),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "cancel"}, {"Content_Type": "text/plain"}, 415),
        ("POST", "/v1/jobs/0123456789abcdef/orders", b"{", {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", b"[" * 10_000, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", b"[]", {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "explode"}, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "cancel", "force": True}, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "savepoint", "directory": 7}, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "stop", "drain": "yes"}, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "rescale"}, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "rescale", "parallelism": True}, {}, 400),
        ("POST", "/v1/jobs/0123456789abcdef/orders", {"kind": "stop", "parallelism": 2}, {}, 400),
    ],
)
def test_wrong_requests_are_refused(
    endpoint: JobEndpoint, job: FakeJob, method: str, path: str, body: object, headers: dict[str, str], status: int
) -> None:
    assert ask(endpoint, method, path, body, **headers)[0] == status
    assert job.asked == []


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET /v1/jobs/0123456789abcdef\r\n",
        b"\x16\x03\x01\x02",
        b"A" * 70_000 + b"\r\n\r\n",
    ],
)
def test_nonsense_does_no_harm(endpoint: JobEndpoint, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.entry.port), timeout=10) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(65_536):
                pass
        except ConnectionResetError:
            pass
    assert client(endpoint).describe()["name"] == "orders"


@pytest.mark.parametrize("sent", everyday([b"", b"GET /v1/jobs/0123456789abcdef HTTP/1.1\r\n"], 2))
def test_connections_that_are_held_open_neither_lock_the_owner_out_nor_delay_the_end(
    endpoint: JobEndpoint, sent: bytes
) -> None:
    address = ("127.0.0.1", endpoint.entry.port)
    held = [socket.create_connection(address, timeout=10) for _ in range(MOST_CONNECTIONS * 5 // 2)]
    for connection in held:
        with contextlib.suppress(OSError):  # dropped already
            connection.sendall(sent)
    assert client(endpoint).describe()["name"] == "orders"
    endpoint.close()
    for connection in held:
        connection.close()


def test_it_listens_on_the_loopback_interface_only(endpoint: JobEndpoint) -> None:
    listening = endpoint.doors[0].listener.getsockname()[0]
    assert listening == "127.0.0.1"


def test_a_job_that_has_ended_is_out_of_the_registry_and_gone(job: FakeJob, tmp_path: Path) -> None:
    registry = JobRegistry([tmp_path / "run"])
    with controlled(job, tmp_path / "run") as endpoint:
        assert registry.entries() == (endpoint.entry,)
    assert registry.entries() == ()
    with pytest.raises(ClusterError, match=r"job 0123456789abcdef .* is gone"):
        client(endpoint).describe()


def test_the_end_waits_for_those_who_have_no_answer_yet_but_not_for_ever() -> None:
    clock = ManualClock()
    job = FakeJob()
    control = JobControl(job, new_entry(job.job_id, "orders", "f", 1, 0), frozenset(), clock, checkpoints=True)
    control.linger()
    fetched, left_alone = control.place(Order("savepoint")), control.place(Order("savepoint"))
    control.delivered(fetched)
    clock.advance(LINGER_MS - 1)
    assert control.answer(left_alone) is not None
    ended = threading.Event()
    thread = threading.Thread(target=lambda: (control.linger(), ended.set()))
    thread.start()
    assert not ended.is_set()
    while not ended.is_set():
        clock.advance(LINGER_MS)
    thread.join()


def test_the_end_waits_until_those_who_watch_the_job_have_seen_it() -> None:
    clock, job = ManualClock(), FakeJob()
    control = JobControl(job, new_entry(job.job_id, "orders", "f", 1, 0), frozenset(), clock)
    ended = threading.Event()

    def end() -> threading.Thread:
        thread = threading.Thread(target=lambda: (control.linger(), ended.set()))
        thread.start()
        return thread

    control.details()
    clock.advance(LINGER_MS)
    end().join(10)
    assert ended.is_set(), "who does not look any more is not waited for"
    ended.clear()
    control.details()
    job.state = JobState.FINISHED
    thread = end()
    control.details()
    assert not ended.is_set(), "another page may not have looked yet"
    clock.advance(WATCHERS_MS)
    thread.join(10)
    assert ended.is_set()


def test_answers_that_were_fetched_make_room() -> None:
    job = FakeJob()
    control = JobControl(job, new_entry(job.job_id, "orders", "f", 1, 0), frozenset(), ManualClock())
    numbers = [control.place(Order("savepoint")) for _ in range(10)]
    control.delivered(numbers[0])
    more = [control.place(Order("savepoint")) for _ in range(256)]
    assert control.answer(numbers[0]) is None
    assert control.answer(numbers[1]) is not None
    assert control.answer(more[-1]) is not None


def test_rescaling_is_done_when_the_job_goes_on(tmp_path: Path) -> None:
    job = FakeJob()
    with controlled(job, tmp_path) as endpoint:
        client = client_of(endpoint.entry)
        order = client.place("rescale", parallelism=4)
        assert job.asked == [("rescale", 4)]
        assert client.answer(order)["state"] == "pending"
        job.tickets[-1].succeed("/state/chk-8")
        answer = client.answer(order)
        assert (answer["state"], answer["path"], answer["job_state"]) == ("done", "/state/chk-8", "running")
