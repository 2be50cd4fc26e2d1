"""The sink against a real server that is slow, fails, hangs, lies and goes away."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowrun.core import types as t
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, JobCancelledError
from flowrun.masking import masked
from flowrun.testing.connector_conformance import check_sink, writer_context
from tests.connectors.http.tables import batch, sink, write
from tests.runtime.rpc.certificates import needs_openssl
from tests.servers.http import HttpServer, Received, Reply

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=t.BIGINT, name=t.STRING)


def send(server: HttpServer, count: int = 1, **given: Any) -> None:
    options = {name.replace("__", ".").replace("_", "-"): value for name, value in given.items()}
    rows = batch(SCHEMA, id=list(range(count)), name=["x"] * count)
    write(sink(SCHEMA, {"url": server.url + "/rows", **options}), rows)


def failure(server: HttpServer | str, **given: Any) -> ConnectorError:
    url = server if isinstance(server, str) else server.url + "/rows"
    with pytest.raises(ConnectorError) as caught:
        write(sink(SCHEMA, {"url": url, "sink.max-retries": 1, **given}), batch(SCHEMA, id=[1], name=["x"]))
    return caught.value


def ids(requests: list[Received]) -> list[int]:
    return [r.json()["id"] for r in requests]


def test_headers_and_credentials_go_with_every_request(http_server: HttpServer) -> None:
    for given in (
        {"username": "ann", "password": "pä:ss"},
        {"bearer-token": "t0ken"},
        {"headers.X-Api-Key": "k3y", "headers.Content-Type": "text/x"},
    ):
        write(sink(SCHEMA, {"url": http_server.url, **given}), batch(SCHEMA, id=[1], name=["x"]))
    basic, bearer, own = (r.headers for r in http_server.taken)
    assert basic["authorization"] == "Basic YW5uOnDDpDpzcw=="
    assert bearer["authorization"] == "Bearer t0ken"
    assert own["x-api-key"] == "k3y"
    assert "authorization" not in own
    assert own["content-type"] == "text/x"
    assert bearer["content-type"] == "application/json"


def test_a_proxy_is_gone_through_if_it_is_named_and_only_then(
    http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    send(http_server)
    proxy = http_server.url.replace("//", "//ann:hidden-word@")
    made = sink(SCHEMA, {"url": "http://elsewhere.invalid/rows", "proxy": proxy, "bearer-token": "word"})
    write(made, batch(SCHEMA, id=[7], name=["x"]))
    request = http_server.received[-1]
    assert (request.path, request.json()["id"]) == ("http://elsewhere.invalid/rows", 7)
    assert request.headers["proxy-authorization"] == "Basic YW5uOmhpZGRlbi13b3Jk"
    assert masked(f"through {proxy}") == f"through {http_server.url.replace('//', '//ann:***@')}"


def test_passing_failures_are_tried_again_under_the_same_key(http_server: HttpServer) -> None:
    http_server.replies += [Reply(503), Reply(429, headers={"Retry-After": "0"}), Reply(dropped=True)]
    send(http_server)
    assert len(http_server.received) == 4
    assert len({r.key for r in http_server.received}) == 1
    assert ids(http_server.taken) == [0]


def test_a_server_may_ask_for_a_wait(http_server: HttpServer) -> None:
    http_server.replies += [Reply(429, headers={"Retry-After": "1"})]
    begin = time.monotonic()
    send(http_server)
    assert time.monotonic() - begin >= 1
    http_server.replies += [Reply(503, headers={"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"})]
    error = failure(http_server)
    assert "503" in error.message
    assert "asks to wait for" in error.message
    assert "max-retry-after" in (error.hint or "")


def test_what_fails_again_and_again_fails_the_job_with_what_the_server_says(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(500, b'{"error":\n  "out of ink"}' + b" " * 1_000_000)
    error = failure(http_server)
    assert error.retryable
    assert error.message == (
        f'POST {http_server.url}/rows: the server answers 500 Internal Server Error: {{"error": "out of ink"}} (2 attempts)'
    )


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(400, "success-codes"), (401, "credentials"), (404, "success-codes"), (413, "sink.batch.max-size")],
)
def test_what_will_not_pass_is_not_tried_again(http_server: HttpServer, status: int, remedy: str) -> None:
    http_server.answer = lambda _: Reply(status)
    error = failure(http_server)
    assert not error.retryable
    assert len(http_server.received) == 1
    assert remedy in (error.hint or "")


def test_what_status_codes_mean_can_be_said(http_server: HttpServer) -> None:
    http_server.replies += [Reply(404), Reply(409)]
    given = {"retry-codes": "404", "ignored-response-codes": "409"}
    write(sink(SCHEMA, {"url": http_server.url, **given}), batch(SCHEMA, id=[1], name=["x"]))
    assert len(http_server.received) == 2
    http_server.replies += [Reply(202)]
    with pytest.raises(ConnectorError, match="the server answers 202"):
        write(sink(SCHEMA, {"url": http_server.url, "success-codes": "200"}), batch(SCHEMA, id=[1], name=["x"]))


def test_a_delete_of_what_is_gone_is_done(http_server: HttpServer) -> None:
    http_server.answer = lambda r: Reply(404 if r.method == "DELETE" else 204)
    given = {"url": http_server.url + "/{id}", "sink.delete.mode": "request"}
    write(sink(SCHEMA, given, "id"), batch(SCHEMA, [0, 3], id=[1, 1], name=["x", None]))
    assert [(r.method, r.path) for r in http_server.received] == [("POST", "/1"), ("DELETE", "/1")]


# ---- hangs


def test_a_server_that_hangs_is_given_up_in_time(http_server: HttpServer) -> None:
    never = threading.Event()
    http_server.answer = lambda _: Reply(late=never)
    error = failure(http_server, **{"request.timeout": "200 ms"})
    never.set()
    assert "the server does not answer within 0.2 s (2 attempts)" in error.message
    assert error.retryable
    assert len(http_server.received) == 2


@contextmanager
def odd_server(answer: bytes, *, drips: bool = False) -> Iterator[str]:
    """A server that sends these bytes whatever it is asked; drops by drops for ever, if it drips."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with closing(connection):
                connection.recv(65536)
                try:
                    connection.sendall(answer)
                    while drips and not over.wait(0.02):
                        connection.sendall(b"x")
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_drips_is_given_up_in_time(begin: bytes) -> None:
    with odd_server(begin, drips=True) as url:
        begun = time.monotonic()
        error = failure(url, **{"request.timeout": "300 ms", "sink.max-retries": 0})
        assert time.monotonic() - begun < 5
    assert "does not answer within 0.3 s" in error.message


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort"]
)
def test_what_speaks_no_http_is_one_clear_error(answer: bytes) -> None:
    with odd_server(answer) as url:
        error = failure(url)
    assert "the connection failed" in error.message
    assert error.retryable


def test_nobody_listens() -> None:
    error = failure("http://127.0.0.1:1/rows")
    assert "POST http://127.0.0.1:1/rows: the server cannot be reached: Connection refused" in error.message
    assert "'url'" in (error.hint or "")
    assert error.retryable
    assert "name" in failure("http://no-such-host.invalid/").message.lower()


def test_a_subtask_that_waits_can_be_cancelled(http_server: HttpServer) -> None:
    never = threading.Event()
    http_server.answer = lambda _: Reply(late=never)

    def cancelled(_ms: float) -> None:
        raise JobCancelledError("cancelled")

    writer = sink(SCHEMA, {"url": http_server.url}).create_writer(replace(writer_context(), pause=cancelled))
    writer.open()
    writer.write(batch(SCHEMA, id=[1], name=["x"]))
    with pytest.raises(JobCancelledError):
        writer.flush(False)
    begun = time.monotonic()
    writer.close()
    assert time.monotonic() - begun < 5
    never.set()


# ---- redirects and TLS


def test_redirects_on_the_same_server_are_followed_with_the_row(http_server: HttpServer) -> None:
    http_server.replies += [Reply(307, headers={"Location": "/v2/rows"})]
    send(http_server)
    assert [(r.method, r.path, r.body) for r in http_server.received[1:]] == [
        ("POST", "/v2/rows", b'{"id":0,"name":"x"}')
    ]


def test_credentials_and_rows_are_not_sent_to_another_server(http_server: HttpServer) -> None:
    with closing_server() as other:
        http_server.replies += [Reply(308, headers={"Location": other.url + "/steal?token=abc"})]
        error = failure(http_server, **{"bearer-token": "hidden-word"})
        assert other.received == []
        assert f"redirects to another one, {other.url}" in error.message
    assert not error.retryable
    assert "hidden-word" not in str(error)


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_post_never_becomes_a_get(http_server: HttpServer, status: int) -> None:
    http_server.replies += [Reply(status, headers={"Location": "/login"})]
    error = failure(http_server)
    assert str(status) in error.message
    assert "'url'" in (error.hint or "")
    assert len(http_server.received) == 1


def test_redirects_in_a_circle_end(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(307, headers={"Location": "/rows"})
    assert "redirected the request 5 times" in failure(http_server).message


@contextmanager
def closing_server(*arguments: Any) -> Iterator[HttpServer]:
    server = HttpServer(*arguments)
    try:
        yield server
    finally:
        server.stop()


def certificate(folder: Path, name: str) -> Path:
    """A folder with a certificate for 127.0.0.1, signed by itself, and its key, encrypted with `key-word`."""
    made = folder / name
    made.mkdir()
    subject = ["-x509", "-days", "30", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", made / "key.pem"]
    locked = ["-aes256", "-passout", "pass:key-word", "-in", made / "key.pem", "-out", made / "locked.pem"]
    for command in (["req", *subject, *key, "-out", made / "cert.pem"], ["pkey", *locked]):
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    return made


@needs_openssl
def test_tls_and_certificates_of_clients(tmp_path: Path) -> None:
    own, client, other = (certificate(tmp_path, name) for name in ("server", "client", "other"))
    trusted = {"security.cert.server": str(own / "cert.pem")}
    with closing_server(own, client / "cert.pem") as server:
        untrusted = failure(server, **{"security.cert.server": str(other / "cert.pem")})
        assert "the server's certificate is not trusted" in untrusted.message
        assert "security.cert.server" in (untrusted.hint or "")
        unknown = failure(server, **trusted)
        # whether TLS's alert or the end of the connection is noticed first is up to chance
        assert re.search("the connection failed|TLSV13_ALERT_CERTIFICATE_REQUIRED", unknown.message)
        assert "security.cert.client" in (unknown.hint or "")
        assert not untrusted.retryable
        assert server.received == []
        shown = {"security.cert.client": str(client / "cert.pem"), "security.key.client": str(client / "locked.pem")}
        wrong = failure(server, **trusted, **shown, **{"security.key.password": "other-word"})
        assert "'security.cert.client': the PEM file" in wrong.message
        assert "other-word" not in str(wrong)
        send(server, **trusted, **shown, **{"security.key.password": "key-word"})
        assert ids(server.taken) == [0]
    with pytest.raises(ConnectorError, match=r"'security.cert.server': the PEM file '/none' cannot be used"):
        write(sink(SCHEMA, {"url": "https://127.0.0.1:1/", "security.cert.server": "/none"}))


def test_tls_with_a_server_that_knows_none() -> None:
    with odd_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        error = failure(url.replace("http:", "https:"))
    assert "there can be no TLS with the server" in error.message
    assert not error.retryable


# ---- order, and how many at a time


def test_rows_of_a_key_arrive_in_order_though_requests_fail_and_overtake(http_server: HttpServer) -> None:
    chance = random.Random(3)
    under_way: set[str] = set()
    lock = threading.Lock()
    together: list[str] = []

    def answer(request: Received) -> Reply:
        with lock:
            if request.path in under_way:
                together.append(request.path)
            under_way.add(request.path)
            pause, fails = chance.random() * 0.01, chance.random() < 0.2
        threading.Event().wait(pause)
        with lock:
            under_way.discard(request.path)
        return Reply(503 if fails else 200)

    http_server.answer = answer
    rows = [(chance.randrange(6), str(n)) for n in range(200)]
    made = sink(SCHEMA, {"url": http_server.url + "/{id}", "sink.max-retries": 50}, "id")
    write(made, *(batch(SCHEMA, id=[i for i, _ in part], name=[v for _, v in part]) for part in (rows[:77], rows[77:])))
    assert together == []
    for key in range(6):
        assert [r.json()["name"] for r in http_server.taken if r.path == f"/{key}"] == [v for i, v in rows if i == key]
    assert http_server.most_at_a_time > 1


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_requests_than_allowed_are_under_way(http_server: HttpServer, most: int) -> None:
    go = threading.Event()
    http_server.answer = lambda _: Reply(late=go)
    threading.Timer(0.3, go.set).start()
    send(http_server, 20, sink__requests__max_inflight=most)
    assert http_server.most_at_a_time == most
    assert sorted(ids(http_server.taken)) == list(range(20))


def test_a_failure_is_told_where_no_more_rows_come(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(400)
    context = writer_context()
    writer = sink(SCHEMA, {"url": http_server.url, "sink.flush-buffer.timeout": "1 s"}).create_writer(context)
    writer.open()
    writer.write(batch(SCHEMA, id=[1], name=["x"]))

    def look_again_and_again() -> None:
        for _ in range(1000):
            context.processing_time.advance(1_000)  # type: ignore[attr-defined]
            threading.Event().wait(0.01)

    with pytest.raises(ConnectorError, match="400"):
        look_again_and_again()
    writer.close()


def test_rows_wait_for_others_only_so_long(http_server: HttpServer) -> None:
    context = writer_context()
    given = {"url": http_server.url, "sink.request.mode": "json-array", "sink.flush-buffer.timeout": "2 s"}
    writer = sink(SCHEMA, given).create_writer(context)
    writer.open()
    writer.write(batch(SCHEMA, id=[1], name=["x"]))
    context.processing_time.advance(1_000)  # type: ignore[attr-defined]
    writer.write(batch(SCHEMA, id=[2], name=["y"]))
    assert http_server.received == []
    context.processing_time.advance(1_000)  # type: ignore[attr-defined]
    writer.flush(False)
    assert [len(r.json()) for r in http_server.taken] == [2]
    writer.close()


# ---- exactly once


@pytest.mark.parametrize("mode", ["single", "json-array"])
def test_exactly_once_keeps_the_contract_of_sinks(http_server: HttpServer, tmp_path: Path, mode: str) -> None:
    given = {"url": http_server.url, "sink.request.mode": mode, "sink.delivery-guarantee": "exactly-once"}
    batches = [batch(SCHEMA, id=[n, n + 1], name=["a", None]) for n in (1, 3, 5)]

    def taken() -> list[tuple[Any, ...]]:
        bodies = [r.json() for r in http_server.taken]
        return [tuple(row.values()) for b in bodies for row in (b if isinstance(b, list) else [b])]

    check_sink(sink(SCHEMA, given), batches, taken, staging=str(tmp_path / "staged"))


def test_a_commit_that_is_made_again_has_the_same_requests_whatever_the_options_say_then(
    http_server: HttpServer, tmp_path: Path
) -> None:
    given = {"url": http_server.url, "sink.request.mode": "json-array", "sink.delivery-guarantee": "exactly-once"}
    made = sink(SCHEMA, {**given, "sink.batch.max-size": 3, "sink.requests.max-inflight": 1, "sink.max-retries": 0})
    writer = made.create_writer(writer_context(staging=str(tmp_path / "staged")))
    writer.open()
    for n in range(0, 10, 2):
        writer.write(batch(SCHEMA, id=[n, n + 1], name=["x", "y"]))
    committables = writer.prepare_commit()
    writer.close()
    http_server.replies += [Reply(200), Reply(200), Reply(503)]
    with pytest.raises(ConnectorError, match="503"):
        made.create_committer().commit(committables)  # type: ignore[union-attr]
    first = [(r.key, r.body) for r in http_server.received]
    http_server.received.clear()
    other = sink(SCHEMA, {**given, "sink.batch.max-size": 7})
    other.create_committer().commit(committables)  # type: ignore[union-attr]
    again = [(r.key, r.body) for r in http_server.received]
    assert again[:3] == first
    assert [len(r.json()) for r in http_server.received] == [3, 3, 3, 1]
    assert len({key for key, _ in again}) == 4
    http_server.received.clear()
    other.create_committer().commit(committables)  # type: ignore[union-attr]
    assert http_server.received == [], "the record says that all were taken"
