"""Strangers, slow clients and floods: the owner of a job is answered whatever they do, and the job is not held up."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowrun.rest import connections
from flowrun.rest.connections import MOST_CONNECTIONS
from flowrun.rest.endpoint import JobEndpoint
from flowrun.runners.control_client import client_of
from tests.rest.control_fakes import FakeJob, controlled
from tests.rest.test_parts import HOSTILE, get


@pytest.fixture
def job() -> FakeJob:
    return FakeJob()


@pytest.fixture
def endpoint(job: FakeJob, tmp_path: Path) -> Iterator[JobEndpoint]:
    with controlled(job, tmp_path / "run") as endpoint:
        yield endpoint


def opened(endpoint: JobEndpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.entry.port), timeout=20)


def head(endpoint: JobEndpoint, path: str = "/v1/jobs", *more: str, method: str = "GET") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{endpoint.entry.port}",
        f"Authorization: Bearer {endpoint.entry.token}",
        *more,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """(the status line, the body) of one answer."""
    with connection.makefile("rb", buffering=0) as stream:  # nothing is read of the next answer
        lines = [b""]
        while lines[-1] != b"\r\n":
            line = stream.readline()
            if not line:
                return b"".join(lines), b""
            lines.append(line)
        length = next(int(line.split()[1]) for line in lines if line.lower().startswith(b"content-length:"))
        body = b""
        while len(body) < length:
            body += stream.read(length - len(body))
    return lines[1].strip(), body


def is_dropped(connection: socket.socket) -> bool:
    """Whether the other side ends the connection, without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.exhaustive
def test_a_thousand_idle_connections_lock_nobody_out(endpoint: JobEndpoint) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4_096), hard), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        owner = stack.enter_context(opened(endpoint))
        owner.sendall(head(endpoint))
        assert answer(owner)[0].endswith(b"200 OK")
        idle = [stack.enter_context(opened(endpoint)) for _ in range(1_000)]
        assert client_of(endpoint.entry).describe()["name"] == "orders", "a new connection of the owner"
        owner.sendall(head(endpoint))
        assert answer(owner)[0].endswith(b"200 OK"), "and one that was there before"
        assert all(is_dropped(connection) for connection in idle[: 1_000 - MOST_CONNECTIONS])


def test_without_file_descriptors_the_owner_comes_in_as_soon_as_there_are_some(endpoint: JobEndpoint) -> None:
    assert client_of(endpoint.entry).describe()["name"] == "orders"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = [socket.socket() for _ in range(8)]
    with opened(endpoint) as waiting:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(s.fileno() for s in spare) - 7, hard))
        try:
            for one in spare[4:]:
                one.close()
            waiting.sendall(head(endpoint))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for one in spare:
                one.close()
        assert answer(waiting)[0].endswith(b"200 OK")


def test_one_connection_serves_many_requests(endpoint: JobEndpoint) -> None:
    with opened(endpoint) as connection:
        for _ in range(3):
            connection.sendall(head(endpoint))
            assert answer(connection)[0].endswith(b"200 OK")
        connection.sendall(head(endpoint) + head(endpoint, "/v1/jobs/none"))
        assert answer(connection)[0].endswith(b"200 OK")
        assert answer(connection)[0].endswith(b"404 Not Found")


@pytest.mark.parametrize("sent", [b"", b"GET /v1/jobs HTTP/1.1\r\nHost", "body"])
def test_who_sends_slowly_is_dropped(endpoint: JobEndpoint, monkeypatch: pytest.MonkeyPatch, sent: bytes | str) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    orders = f"/v1/jobs/{endpoint.entry.job_id}/orders"
    begun = (
        sent
        if isinstance(sent, bytes)
        else head(endpoint, orders, "Content-Type: application/json", "Content-Length: 9", method="POST") + b"{"
    )
    with opened(endpoint) as slow:
        slow.sendall(begun)
        assert is_dropped(slow)


def test_an_idle_connection_is_closed_after_a_while(endpoint: JobEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.1)
    with opened(endpoint) as connection:
        connection.sendall(head(endpoint))
        assert answer(connection)[0].endswith(b"200 OK")
        assert is_dropped(connection)


@pytest.mark.exhaustive
def test_who_does_not_read_is_dropped_and_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_S", 3)
    size = 12_000_000
    with controlled(FakeJob(), tmp_path, name="n" * size) as endpoint, opened(endpoint) as deaf:
        deaf.sendall(head(endpoint) * 2)
        assert deaf.recv(1), "it is being answered"
        for _ in range(3):
            assert get(endpoint, "/healthz")[0].status == 200
        threading.Event().wait(3.5)  # it reads nothing for longer than an answer may take
        came = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := deaf.recv(1 << 20):
                came += len(piece)
    assert came < 2 * size


def test_a_huge_body_is_refused_by_a_clear_answer(endpoint: JobEndpoint, job: FakeJob) -> None:
    orders = f"/v1/jobs/{endpoint.entry.job_id}/orders"
    with opened(endpoint) as connection:
        length = 4_000_000
        connection.sendall(
            head(endpoint, orders, "Content-Type: application/json", f"Content-Length: {length}", method="POST")
        )
        connection.sendall(b" " * length)
        status, body = answer(connection)
    assert status.endswith(b"413 Request Entity Too Large") or b"413" in status
    assert json.loads(body)["error"] == "a request has at most 16384 bytes"
    assert job.asked == []


def test_who_leaves_in_the_middle_of_a_body_is_no_event_of_the_job(
    endpoint: JobEndpoint, job: FakeJob, caplog: pytest.LogCaptureFixture
) -> None:
    for method, path in (("POST", f"/v1/jobs/{endpoint.entry.job_id}/orders"), ("POST", "/v1/validate")):
        with opened(endpoint) as connection:
            lines = ("Content-Type: application/json", "Content-Length: 9")
            connection.sendall(head(endpoint, path, *lines, method=method) + b"{")
            connection.shutdown(socket.SHUT_WR)
            assert is_dropped(connection)
    assert get(endpoint, "/healthz")[0].status == 200
    assert (caplog.records, job.asked) == ([], [])


def test_a_body_without_a_token_is_not_waited_for(endpoint: JobEndpoint) -> None:
    with opened(endpoint) as connection:
        request = head(endpoint, "/v1/jobs", "Content-Length: 1000000", method="POST")
        connection.sendall(request.replace(b"Bearer", b"Basic"))
        assert b"401" in answer(connection)[0]
        assert is_dropped(connection)


@pytest.mark.parametrize(
    "line",
    [
        b"X" * 20_000,
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Transfer-Encoding: gzip",
        b"Bad Header: 1",
        b"A: " + b"\x00" * 10,
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    ],
)
def test_smuggled_and_broken_heads_get_one_clear_answer(endpoint: JobEndpoint, job: FakeJob, line: bytes) -> None:
    with opened(endpoint) as connection:
        given = head(endpoint, f"/v1/jobs/{endpoint.entry.job_id}/orders", method="POST")
        connection.sendall(given.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n") + b"GET /v1/jobs HTTP/1.1\r\n\r\n")
        status, body = answer(connection)
        assert status.split()[1] in (b"400", b"411", b"501"), status
        assert json.loads(body)["error"]
        assert is_dropped(connection)
    assert job.asked == []


@pytest.mark.parametrize("line", ["X: " + "y" * 17_000, "\r\n".join(f"X{i}: y" for i in range(5_000))])
def test_a_head_that_is_too_large_is_refused_even_if_it_comes_at_once(endpoint: JobEndpoint, line: str) -> None:
    with opened(endpoint) as connection:
        connection.sendall(head(endpoint, "/healthz", line))
        status, body = answer(connection)
        assert status.split()[1] == b"400"
        assert "head is too large" in json.loads(body)["error"]
        assert is_dropped(connection)


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/index.html/../routes.py",
        "//",
        "/v1/jobs/%00",
        "/v1/jobs/" + "a" * 9_000,
    ],
)
def test_no_path_leads_to_the_disk(endpoint: JobEndpoint, path: str) -> None:
    with opened(endpoint) as connection:
        connection.sendall(head(endpoint, path))
        status, body = answer(connection)
    assert b"404" in status
    assert json.loads(body)["hint"]


@pytest.mark.parametrize("name", ["Host", "Origin"])
@pytest.mark.parametrize(
    "value",
    [
        "evil.example",
        "127.0.0.1.evil.example:{port}",
        "http://127.0.0.1:{port}@evil.example",
        HOSTILE.encode("ascii", "ignore").decode().strip("\x1b\x07"),
    ],
)
def test_pages_of_others_get_nothing(endpoint: JobEndpoint, name: str, value: str) -> None:
    line = f"{name}: {value.format(port=endpoint.entry.port)}".encode()
    given = head(endpoint, "/")
    if name == "Host":
        given = given.replace(f"Host: 127.0.0.1:{endpoint.entry.port}".encode(), line)
    else:
        given = given.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")
    with opened(endpoint) as connection:
        connection.sendall(given)
        assert answer(connection)[0].split()[1] in (b"403", b"400")


def test_the_page_of_the_server_itself_may_ask(endpoint: JobEndpoint) -> None:
    for host in ("127.0.0.1", "localhost"):
        own = f"{host}:{endpoint.entry.port}"
        given = head(endpoint, "/v1/jobs", f"Origin: http://{own}").replace(
            f"Host: 127.0.0.1:{endpoint.entry.port}".encode(), f"Host: {own}".encode()
        )
        with opened(endpoint) as connection:
            connection.sendall(given)
            assert answer(connection)[0].endswith(b"200 OK")


def test_two_who_order_at_once_are_both_answered(tmp_path: Path) -> None:
    job = FakeJob()
    job.answer_with = "/keep/savepoint-1"
    with controlled(job, tmp_path) as endpoint:
        numbers: list[str] = []

        def order() -> None:
            client = client_of(endpoint.entry)
            for _ in range(20):
                number = client.place("savepoint")
                assert client.answer(number)["state"] == "done"
                numbers.append(number)

        writers = [threading.Thread(target=order) for _ in range(2)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert sorted(map(int, numbers)) == list(range(1, 41))


class HungJob(FakeJob):
    """Tells its details when it may: it says each time that it was asked for them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.leave = threading.Semaphore(0), threading.Event()

    def details(self):  # type: ignore[no-untyped-def]
        self.asked.release()
        assert self.leave.wait(20)
        return super().details()


def test_requests_that_wait_hold_up_nobody_who_asks_for_something_else(tmp_path: Path) -> None:
    job = HungJob()
    with controlled(job, tmp_path) as endpoint, contextlib.ExitStack() as stack:
        stack.callback(job.leave.set)
        paths = [f"/v1/jobs/{endpoint.entry.job_id}/vertices/{i}" for i in range(20)]
        for path in paths:
            stack.enter_context(opened(endpoint)).sendall(head(endpoint, path))
        for path in paths:
            assert job.asked.acquire(timeout=5), f"{path} waits until another request is answered"
        with opened(endpoint) as owner:
            for path in ("/v1/jobs", "/healthz"):
                owner.sendall(head(endpoint, path))
                assert answer(owner)[0].endswith(b"200 OK")


def test_an_answer_that_takes_long_is_made_once_for_all_who_ask_meanwhile(tmp_path: Path) -> None:
    class Restarting(HungJob):
        def status(self):  # type: ignore[no-untyped-def]
            self.restarts += 1
            return super().status()

    job = Restarting()
    with controlled(job, tmp_path) as endpoint, contextlib.ExitStack() as stack:
        stack.callback(job.leave.set)
        path = f"/v1/jobs/{endpoint.entry.job_id}/overview"
        first, second = (stack.enter_context(opened(endpoint)) for _ in range(2))
        first.sendall(head(endpoint, path))
        with opened(endpoint) as owner:

            def listed() -> bytes:
                owner.sendall(head(endpoint))
                return answer(owner)[1]

            assert job.asked.acquire(timeout=5)
            before = listed()
            while listed() == before:  # answers that are shared are young
                pass
            second.sendall(head(endpoint, path))
            listed()  # it is answered behind what came before it
        job.leave.set()
        assert answer(first) == answer(second)
    assert not job.asked.acquire(blocking=False)


def test_the_end_of_the_job_waits_for_an_answer_that_is_being_made_and_then_closes(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(FakeJob):
        def details(self):  # type: ignore[no-untyped-def]
            entered.set()
            assert leave.wait(10)
            return super().details()

    with controlled(Slow(), tmp_path) as endpoint, opened(endpoint) as asked, opened(endpoint) as idle:
        idle.sendall(head(endpoint))
        assert answer(idle)[0].endswith(b"200 OK")
        asked.sendall(head(endpoint, f"/v1/jobs/{endpoint.entry.job_id}/graph"))
        assert entered.wait(10)
        closing = threading.Thread(target=endpoint.close)
        closing.start()
        assert is_dropped(idle)
        leave.set()
        assert answer(asked)[0].endswith(b"200 OK")
        closing.join()
        with pytest.raises(ConnectionRefusedError):
            opened(endpoint)
