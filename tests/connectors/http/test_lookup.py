"""Lookups against a real server."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import threading
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from flowrun.api.lookup import LookupContext
from flowrun.connectors.http.answers import NoRowsError, rows_in
from flowrun.core import types as t
from flowrun.core.clock import ManualClock
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError
from flowrun.testing.metrics import RecordedMetrics
from tests.connectors.http.tables import find, lookup
from tests.servers.http import HttpServer, Received, Reply

SCHEMA = Schema.of(id=t.BIGINT, name=t.STRING)
PEOPLE = {1: "ann", 2: 'b"o', 3: None}


def asked_id(request: Received) -> int:
    return int(parse_qs(urlsplit(request.path).query)["id"][0])


def person(request: Received) -> Reply:
    number = asked_id(request)
    if number not in PEOPLE:
        return Reply(404, b"<html>no such person</html>")
    return Reply(200, json.dumps({"id": number, "name": PEOPLE[number], "more": [1]}).encode())


@pytest.mark.exhaustive
@pytest.mark.parametrize("in_flight", [1, 8])
def test_one_request_a_key(http_server: HttpServer, in_flight: int) -> None:
    http_server.answer = person
    given = {"url": http_server.url + "/people", "lookup.requests.max-inflight": in_flight}
    found = find(lookup(SCHEMA, SCHEMA, given, "id"), id=[3, None, 9, 1, 2, 1])
    assert found.probe.tolist() == [0, 3, 4, 5]
    assert found.rows.to_pylist() == [
        {"id": 3, "name": None},
        {"id": 1, "name": "ann"},
        {"id": 2, "name": 'b"o'},
        {"id": 1, "name": "ann"},
    ]
    assert sorted(map(asked_id, http_server.received)) == [1, 2, 3, 9], "each key once"
    assert find(lookup(SCHEMA, Schema(()), given, "id"), id=[1, 9, 2]).probe.tolist() == [0, 2]
    assert find(lookup(SCHEMA, SCHEMA, given, "id"), id=[None]).rows.num_rows == 0


@pytest.mark.exhaustive
def test_keys_in_the_path_and_in_the_query(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(200, b'{"name": "x"}')
    schema = Schema.of(id=t.BIGINT, day=t.DATE, name=t.STRING)
    given = {"url": http_server.url + "/p/{id}?v=1"}
    found = find(lookup(schema, schema, given, "id", "day"), id=[7], day=[dt.date(2024, 3, 1)])
    assert http_server.received[0].path == "/p/7?v=1&day=2024-03-01"
    assert found.rows.to_pylist() == [{"id": 7, "day": dt.date(2024, 3, 1), "name": "x"}]
    text = Schema.of(id=t.STRING, name=t.STRING)
    find(lookup(text, text, {"url": http_server.url + "/p/{id}"}, "id"), id=["../é?x=1"])
    assert http_server.received[1].path == "/p/..%2F%C3%A9%3Fx%3D1"


@pytest.mark.exhaustive
def test_bodies_of_templates(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(200, b'{"found": {"people": [{"name": "x"}, {"name": "y"}]}}')
    schema = Schema.of(id=t.STRING, n=t.INT, name=t.STRING)
    given = {
        "url": http_server.url,
        "lookup-method": "post",
        "lookup.request.body": '{"q": {"id": {id}, "other": {"of": [{n}]}, "all": {keys}}}',
        "lookup.response.rows": "/found/people",
    }
    found = find(lookup(schema, schema, given, "id", "n"), id=['a"}'], n=[5])
    assert http_server.received[0].json() == {"q": {"id": 'a"}', "other": {"of": [5]}, "all": {"id": 'a"}', "n": 5}}}
    assert (
        http_server.received[0].headers["content-type"]
        == http_server.received[0].headers["accept"]
        == "application/json"
    )
    assert found.rows.column("name").to_pylist() == ["x", "y"]
    assert found.probe.tolist() == [0, 0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["get", "post"])
def test_one_request_for_many_keys(http_server: HttpServer, method: str) -> None:
    def answer(request: Received) -> Reply:
        if method == "get":
            wanted = [int(v) for v in parse_qs(urlsplit(request.path).query)["id"][0].split(",")]
        else:
            wanted = [row["id"] for row in request.json()]
        rows = [{"name": PEOPLE[i], "id": i} for i in (*wanted, 3, 1, 77) if i in PEOPLE]
        return Reply(200, json.dumps(rows).encode())

    http_server.answer = answer
    given = {
        "url": http_server.url,
        "lookup-method": method,
        "lookup.request.mode": "batch",
        "lookup.batch.max-size": 2,
        "lookup.requests.max-inflight": 1,
    }
    found = find(lookup(SCHEMA, Schema.of(name=t.STRING), given, "id"), id=[9, 2, None, 2])
    assert len(http_server.received) == 1
    assert found.probe.tolist() == [1, 3]
    assert found.rows.to_pylist() == [{"name": 'b"o'}, {"name": 'b"o'}]
    find(lookup(SCHEMA, SCHEMA, given, "id"), id=[1, 2, 9, 8, 7])
    assert len(http_server.received) == 4


@pytest.mark.exhaustive
def test_numbers_and_times_are_read_exactly(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(
        200,
        gzip.compress(b'{"d": 12345678901234567890.123, "ts": "2024-03-01 10:00:00.5"}'),
        {"Content-Encoding": "gzip"},
    )
    schema = Schema.of(id=t.BIGINT, d=t.decimal(30, 3), ts=t.timestamp(3))
    found = find(lookup(schema, schema, {"url": http_server.url}, "id"), id=[1])
    assert found.rows.to_pylist() == [
        {"id": 1, "d": Decimal("12345678901234567890.123"), "ts": dt.datetime(2024, 3, 1, 10, 0, 0, 500_000)}
    ]


POISON: list[tuple[bytes, dict[str, Any], str]] = [
    (b"<html>", {}, r"for {'id': 1} holds no row of the table: it is no JSON \(.*\): <html>"),
    (b'{"id": 1', {}, "it is no JSON"),
    (b"7", {}, "it has no object or array, but 7"),
    (b'"x"', {}, "it has no object or array"),
    (b'{"a": {}}', {"lookup.response.rows": "/a/b"}, "it has nothing at /a/b"),
    (b'{"a": 5}', {"lookup.response.rows": "/a/b"}, "Expected `array`"),
    (b'[{"name": "x"}, 7]', {}, "no JSON object|expected an object|object"),
    (b"\xff\xfe{}", {}, "it is no JSON"),
    (b'{"a":' * 100_000, {}, "it is no JSON"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("body", "given", "message"), POISON)
def test_answers_that_hold_no_rows(http_server: HttpServer, body: bytes, given: dict[str, Any], message: str) -> None:
    http_server.answer = lambda _: Reply(200, body)
    options = {"url": http_server.url + "/people", **given}
    with pytest.raises(DataError, match=message) as caught:
        find(lookup(SCHEMA, SCHEMA, options, "id"), id=[1])
    assert len(caught.value.message) < 400
    assert caught.value.message.startswith(f"GET {http_server.url}/people: the answer")
    skipped = find(lookup(SCHEMA, SCHEMA, {**options, "format.on-error": "skip"}, "id"), id=[1])
    assert skipped.rows.num_rows == (1 if b'"x"}, 7' in body else 0)


@pytest.mark.exhaustive
def test_values_of_another_type(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(200, b'{"n": "many"}')
    schema = Schema.of(id=t.BIGINT, n=t.INT)
    with pytest.raises(DataError, match=r"for {'id': 1} holds no row of the table: column 'n'"):
        find(lookup(schema, schema, {"url": http_server.url}, "id"), id=[1])


@pytest.mark.parametrize("body", [b"", b"  \n", b"null", b"[]"])
def test_answers_without_rows(body: bytes) -> None:
    assert rows_in(body, ()) == []


def test_white_space_and_order_of_members_do_not_matter() -> None:
    assert rows_in(b' {"b": 1, "a": [ {"x": 1 } ,{}] } ', ("a",)) == [b'{"x": 1 }', b"{}"]
    with pytest.raises(NoRowsError, match="nothing at /a/2"):
        rows_in(b'{"a": [1, 2]}', ("a", "2"))


@pytest.mark.exhaustive
def test_huge_answers_are_not_read(http_server: HttpServer) -> None:
    bomb = gzip.compress(b'{"name": "' + b"x" * 50_000_000 + b'"}')
    http_server.answer = lambda _: Reply(200, bomb, {"Content-Encoding": "gzip"})
    with pytest.raises(ConnectorError, match="longer than 1048576 bytes") as caught:
        find(lookup(SCHEMA, SCHEMA, {"url": http_server.url, "lookup.response.max-size": "1 mb"}, "id"), id=[1])
    assert "lookup.response.max-size" in (caught.value.hint or "")
    http_server.answer = lambda _: Reply(200, b"no gzip", {"Content-Encoding": "gzip"})
    with pytest.raises(ConnectorError, match="not compressed as it says"):
        find(lookup(SCHEMA, SCHEMA, {"url": http_server.url}, "id"), id=[1])


@pytest.mark.exhaustive
def test_only_the_requests_that_failed_are_tried_again(http_server: HttpServer) -> None:
    failed: set[int] = set()
    lock = threading.Lock()

    def answer(request: Received) -> Reply:
        with lock:
            first = asked_id(request) not in failed
            failed.add(asked_id(request))
        return Reply(503) if first and asked_id(request) % 2 else person(request)

    http_server.answer = answer
    found = find(lookup(SCHEMA, SCHEMA, {"url": http_server.url}, "id"), id=[1, 2, 3])
    assert found.probe.tolist() == [0, 1, 2]
    assert sorted(map(asked_id, http_server.received)) == [1, 1, 2, 3, 3]


@pytest.mark.exhaustive
def test_a_lookup_that_fails_for_good_says_so_once(http_server: HttpServer) -> None:
    http_server.answer = lambda _: Reply(503)
    given = {"url": http_server.url + "/p", "lookup.max-retries": 2, "lookup.requests.max-inflight": 2}
    with pytest.raises(ConnectorError, match=r"the server answers 503 .* \(3 attempts\)") as caught:
        find(lookup(SCHEMA, SCHEMA, given, "id"), id=list(range(100)))
    assert not caught.value.retryable, "it was tried again already"
    assert len(http_server.received) <= 6


@pytest.mark.exhaustive
def test_the_same_lookup_asks_again_after_a_failure(http_server: HttpServer) -> None:
    made = lookup(SCHEMA, SCHEMA, {"url": http_server.url, "lookup.max-retries": 0}, "id")
    asking = made.create_lookup(LookupContext(0, 1, ManualClock(0), RecordedMetrics()))
    asking.open()
    keys = pa.record_batch({"id": [1]}, made.keys.arrow)
    http_server.answer = person
    assert asking.find(keys).rows.num_rows == 1
    http_server.stop()
    with pytest.raises(ConnectorError):
        asking.find(keys)
    http_server.start()
    assert asking.find(keys).rows.num_rows == 1
    asking.close()
    asking.close()


@pytest.mark.exhaustive
def test_redirects_and_cookies(http_server: HttpServer) -> None:
    http_server.replies += [Reply(302, headers={"Location": "/v2?id=1", "Set-Cookie": "session=abc"})]
    http_server.answer = person
    given = {"url": http_server.url, "bearer-token": "word"}
    assert find(lookup(SCHEMA, SCHEMA, given, "id"), id=[1]).rows.num_rows == 1
    assert [r.path for r in http_server.received] == ["/?id=1", "/v2?id=1"]
    assert "cookie" not in http_server.received[1].headers
