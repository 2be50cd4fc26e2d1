"""Which requests rows become, and which options go together; without a server."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest

from flowrun.connectors.http.client import HttpRequest
from flowrun.connectors.http.cutting import RequestCutter
from flowrun.connectors.http.encoding import RowEncoder
from flowrun.connectors.http.endpoint import Endpoint
from flowrun.connectors.http.layout import RequestShape
from flowrun.connectors.http.sink import HttpSink
from flowrun.core import types as t
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.errors import DataError, OptionError, StateError
from flowrun.masking import masked
from tests.connectors.http.tables import batch, lookup, sink

SCHEMA = Schema.of(id=t.BIGINT, name=t.STRING)
ROWS = {"id": [1, 2], "name": ["a", None]}
URL = "http://h/rows"
ITEMS = {"url": "http://h/items/{id}"}
INSERT, BEFORE, AFTER, DELETE = (
    RowKind.INSERT,
    RowKind.UPDATE_BEFORE,
    RowKind.UPDATE_AFTER,
    RowKind.DELETE,
)


def requests(made: HttpSink, *batches: RecordBatch, identity: str = "x") -> list[tuple[int, HttpRequest]]:
    sent: list[tuple[int, HttpRequest]] = []
    encoder = RowEncoder(made.layout)
    cutter = RequestCutter(
        made.layout.shape, made.endpoint.url, made.layout.content_type, identity, lambda lane, r: sent.append((lane, r))
    )
    for each in batches:
        cutter.add(encoder.encode(each))
    cutter.flush()
    return sent


def bodies(made: HttpSink, *batches: RecordBatch) -> list[bytes | None]:
    return [r.body for _, r in requests(made, *batches)]


def keys(sent: list[tuple[int, HttpRequest]]) -> list[str]:
    return [dict(r.headers)["Idempotency-Key"] for _, r in sent]


def test_a_request_for_each_row() -> None:
    sent = [r for _, r in requests(sink(SCHEMA, {"url": URL}), batch(SCHEMA, **ROWS))]
    assert [(r.method, r.url, r.body) for r in sent] == [
        ("POST", URL, b'{"id":1,"name":"a"}'),
        ("POST", URL, b'{"id":2,"name":null}'),
    ]
    assert dict(sent[0].headers)["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("json-array", [b'[{"id":1},{"id":2}]', b'[{"id":3},{"id":4}]', b'[{"id":5}]']),
        ("lines", [b'{"id":1}\n{"id":2}\n', b'{"id":3}\n{"id":4}\n', b'{"id":5}\n']),
    ],
)
def test_requests_for_many_rows_are_cut_where_they_are_full(mode: str, expected: list[bytes]) -> None:
    schema = Schema.of(id=t.BIGINT)
    made = sink(schema, {"url": URL, "sink.request.mode": mode, "sink.batch.max-size": 2})
    assert bodies(made, batch(schema, id=[1, 2, 3]), batch(schema, id=[]), batch(schema, id=[4, 5])) == expected


def test_requests_are_cut_by_bytes_and_a_long_row_goes_alone() -> None:
    schema = Schema.of(v=t.STRING)
    given = {"url": URL, "format": "raw", "sink.request.mode": "lines", "sink.flush-buffer.size": "10 b"}
    rows = ["aaaa", "bbbb", "cccc", "d" * 30, "e"]
    assert bodies(sink(schema, given), batch(schema, v=rows)) == [
        b"aaaa\nbbbb\n",
        b"cccc\n",
        b"d" * 30 + b"\n",
        b"e\n",
    ]


@pytest.mark.parametrize("keyed", [False, True])
def test_the_same_rows_become_the_same_requests_however_they_are_handed_over(keyed: bool) -> None:
    schema, chance = Schema.of(id=t.BIGINT, v=t.STRING), random.Random(7)
    rows = [(chance.randrange(20), "v" * chance.randrange(30)) for _ in range(500)]
    given = {"url": URL, "sink.request.mode": "lines", "sink.batch.max-size": 7, "sink.flush-buffer.size": "200 b"}
    made = sink(schema, given, *(["id"] if keyed else []))
    found = []
    for _ in range(6):
        batches, left = [], rows
        while left:
            size = chance.randrange(1, 90)
            part, left = left[:size], left[size:]
            batches.append(batch(schema, id=[i for i, _ in part], v=[v for _, v in part]))
        sent = requests(made, *batches)
        found.append(sorted((lane, r.body or b"") for lane, r in sent))
        assert all(len((r.body or b"").splitlines()) <= 7 for _, r in sent)
        written = [json.loads(line) for _, r in sent for line in (r.body or b"").splitlines()]
        for key in range(20):
            assert [w["v"] for w in written if w["id"] == key] == [v for i, v in rows if i == key]
        if keyed:
            lanes = {(json.loads(line)["id"], lane) for lane, r in sent for line in (r.body or b"").splitlines()}
            assert len(lanes) == len({i for i, _ in lanes}), "a key has one lane"
    assert all(f == found[0] for f in found)


def test_values_in_urls_are_quoted() -> None:
    schema = Schema.of(day=t.DATE, name=t.STRING)
    made = sink(schema, {"url": "https://h:8443/{day}/x/{name}?n={name}"})
    (sent,) = requests(made, batch(schema, day=[19_000], name=["é/../?a=1&b#"]))
    value = "%C3%A9%2F..%2F%3Fa%3D1%26b%23"
    assert sent[1].url == f"https://h:8443/2022-01-08/x/{value}?n={value}"


@pytest.mark.parametrize("value", ["", ".", "..", None])
def test_values_that_would_make_a_url_name_something_else(value: str | None) -> None:
    schema = Schema.of(name=t.STRING)
    with pytest.raises(DataError, match="cannot stand in the URL") as caught:
        requests(sink(schema, {"url": "http://h/items/{name}"}), batch(schema, name=["a", value]))
    assert caught.value.row == 1
    if value is not None:
        assert requests(sink(schema, {"url": "http://h/items?q={name}"}), batch(schema, name=[value]))


def test_updates_and_deletes_by_key() -> None:
    made = sink(SCHEMA, {**ITEMS, "insert-method": "put", "sink.delete.mode": "request"}, "id", updating=True)
    kinds = [INSERT, BEFORE, AFTER, INSERT, DELETE, BEFORE]
    sent = requests(made, batch(SCHEMA, kinds, id=[1, 1, 1, 2, 2, 3], name=["a", "a", "b", "c", None, "d"]))
    assert [(r.method, r.url, r.body) for _, r in sent] == [
        ("PUT", "http://h/items/1", b'{"id":1,"name":"a"}'),
        ("PUT", "http://h/items/1", b'{"id":1,"name":"b"}'),
        ("PUT", "http://h/items/2", b'{"id":2,"name":"c"}'),
        ("DELETE", "http://h/items/2", None),
        ("DELETE", "http://h/items/3", None),
    ]
    assert 404 in sent[3][1].ignored
    assert len({lane for lane, r in sent if r.url.endswith("/2")}) == 1


def test_deletes_are_left_out_or_refused() -> None:
    rows = batch(SCHEMA, [INSERT, DELETE], id=[1, 1], name=["a", "a"])
    assert len(requests(sink(SCHEMA, {"url": URL, "sink.delete.mode": "ignore"}, "id"), rows)) == 1
    with pytest.raises(DataError, match="the table says nothing of deleted rows") as caught:
        requests(sink(SCHEMA, {"url": URL}, "id"), rows)
    assert caught.value.row == 1
    assert "sink.delete.mode" in (caught.value.hint or "")


def test_formats_that_carry_changes() -> None:
    made = sink(SCHEMA, {"url": URL, "format": "debezium-json", "sink.request.mode": "json-array"})
    (body,) = bodies(made, batch(SCHEMA, [BEFORE, AFTER], id=[1, 1], name=["a", "b"]))
    assert [(c["op"], (c["before"] or c["after"])["name"]) for c in json.loads(body or b"")] == [("d", "a"), ("c", "b")]


def test_nulls_where_none_may_be() -> None:
    with pytest.raises(DataError, match="'id' is in the PRIMARY KEY"):
        requests(sink(SCHEMA, {"url": URL}, "id"), batch(SCHEMA, id=[None], name=["a"]))
    strict = Schema((Field("id", t.BIGINT), Field("n", t.INT, nullable=False)))
    with pytest.raises(DataError, match="'n' is NOT NULL"):
        requests(sink(strict, {"url": URL}), _nulls(strict))


def _nulls(schema: Schema) -> RecordBatch:
    import pyarrow as pa

    return RecordBatch(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([None], pa.int32())], names=schema.names))


def test_keys_of_requests_are_their_own_and_stay_the_same() -> None:
    made, rows = sink(SCHEMA, {"url": URL}), batch(SCHEMA, id=[1, 1], name=["a", "a"])
    one, again, other = (keys(requests(made, rows, identity=i)) for i in ("x", "x", "y"))
    assert one == again
    assert len({*one, *other}) == 4


def test_keys_of_contents_are_the_same_for_the_same_rows() -> None:
    made = sink(SCHEMA, {"url": URL, "sink.idempotency-key.mode": "content"})
    first = keys(requests(made, batch(SCHEMA, id=[1, 2], name=["a", "b"]), identity="x"))
    second = keys(requests(made, batch(SCHEMA, id=[2, 1], name=["b", "a"]), identity="y"))
    assert first == second[::-1]
    assert len(set(first)) == 2


def test_the_shape_goes_with_rows_that_wait() -> None:
    made = sink(SCHEMA, {"url": URL, "sink.request.mode": "lines"})
    rows = RowEncoder(made.layout).encode(batch(SCHEMA, **ROWS))
    assert RequestShape.of_metadata(rows.schema.metadata) == made.layout.shape
    with pytest.raises(StateError, match="do not say what requests they are"):
        RequestShape.of_metadata(None)


EXACTLY = {"sink.delivery-guarantee": "exactly-once"}


@pytest.mark.parametrize(
    ("given", "key", "option", "message"),
    [
        ({"url": "h/rows"}, (), "url", "should begin with http://"),
        ({"url": "http://{name}.example.com/"}, (), "url", "rows do not choose the server"),
        ({"url": "http://h/#x"}, (), "url", "behind # is never sent"),
        ({"url": "http://h/a b"}, (), "url", "white space"),
        ({"url": "http://h:port/"}, (), "url", "no address of an HTTP server"),
        ({"url": "http://h/{nam}"}, (), "url", "no such column"),
        ({"url": "http://h/{name"}, (), "url", "belongs to no placeholder"),
        ({"url": URL, "headers.X": "a\nb"}, (), "headers.X", "no header can have"),
        ({"url": URL, "headers.X Y": "a"}, (), "headers.X Y", "no name of a header"),
        ({"url": URL, "headers.Content-Length": "1"}, (), "headers.Content-Length", "belongs to the connection"),
        ({"url": URL, "headers.A": "1", "headers.a": "2"}, (), "headers.a", "given twice"),
        ({"url": URL, "bearer-token": "t", "username": "u"}, (), "bearer-token", "both say who asks"),
        ({"url": URL, "username": "u", "headers.Authorization": "x"}, (), "username", "both say who asks"),
        ({"url": URL, "password": "p"}, (), "password", "needs 'username'"),
        ({"url": URL, "bearer-token": "a\nb"}, (), "bearer-token", "no header can have"),
        ({"url": URL, "security.key.client": "k"}, (), "security.key.client", "needs 'security.cert.client'"),
        ({"url": URL, "proxy": "h:1"}, (), "proxy", "no address"),
        ({"url": URL, "retry-codes": "5XX,abc"}, (), "retry-codes", "'abc', which is no status code"),
        ({"url": URL, "retry-codes": "204"}, (), "retry-codes", "has 204, which another list"),
        ({**ITEMS, "sink.request.mode": "lines"}, (), "url", "go together in a request have one URL"),
        ({"url": URL, "format": "csv", "sink.request.mode": "json-array"}, (), "sink.request.mode", "no values of a JSON"),
        ({"url": URL, "sink.delete.mode": "ignore"}, (), "sink.delete.mode", "needs a PRIMARY KEY"),
        ({"url": URL, "sink.delete.mode": "request"}, ("id",), "sink.delete.mode", "'url' lacks {id}"),
        (
            {"url": "http://h/{id}/{name}", "sink.delete.mode": "request"},
            ("id",),
            "sink.delete.mode",
            "'{name}', which is no part of the PRIMARY KEY",
        ),
        ({**ITEMS, "format": "debezium-json", "sink.delete.mode": "request"}, ("id",), "sink.delete.mode", "says itself"),
        ({"url": URL, "sink.delete.method": "GET /"}, (), "sink.delete.method", "is no method"),
        (
            {"url": URL, "headers.idempotency-key": "x"},
            (),
            "sink.idempotency-key.header",
            "the connector makes its value",
        ),
        ({"url": URL, **EXACTLY, "sink.idempotency-key.mode": "none"}, (), "sink.idempotency-key.mode", "needs idempotency"),
        (
            {"url": URL, "sink.request.mode": "lines", "sink.idempotency-key.mode": "content"},
            (),
            "sink.idempotency-key.mode",
            "after a restart rows go together with others",
        ),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(
    given: dict[str, Any], key: tuple[str, ...], option: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        sink(SCHEMA, given, *key)
    assert caught.value.option == option


def test_keys_of_contents_are_not_for_rows_that_change() -> None:
    given = {"url": URL, "sink.idempotency-key.mode": "content"}
    with pytest.raises(OptionError, match="changed back, has the same key again"):
        sink(SCHEMA, given, "id", updating=True)


@pytest.mark.parametrize(
    ("given", "key", "option", "message"),
    [
        ({"format": "csv"}, ("id",), "format", "'json' only"),
        ({"lookup.request.body": "{id}"}, ("id",), "lookup.request.body", "a GET has no body"),
        (
            {"lookup-method": "post", "lookup.request.body": "{}"},
            ("id",),
            "lookup.request.body",
            "nothing of key column",
        ),
        ({"lookup.request.mode": "batch"}, ("id", "name"), "lookup.request.mode", "do not fit into a URL"),
        (
            {"url": "http://h/{id}", "lookup.request.mode": "batch", "lookup-method": "post"},
            ("id",),
            "url",
            "has them in its body",
        ),
        ({"lookup.response.rows": "data"}, ("id",), "lookup.response.rows", "no JSON pointer"),
        ({"url": "http://h/{name}"}, ("id",), "url", "no such column to take a value from"),
    ],
)
def test_options_of_lookups(given: dict[str, Any], key: tuple[str, ...], option: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        lookup(SCHEMA, SCHEMA, {"url": URL, **given}, *key)
    assert caught.value.option == option


def test_secrets_are_masked_wherever_they_stand() -> None:
    given = {
        "url": "http://ann:word-in-url@h/rows?api_token=token-in-url",
        "headers.X-Api-Key": "key-in-header",
        "headers.X-Colour": "blue",
    }
    made = sink(SCHEMA, given)
    assert made.endpoint.url == "http://h/rows?api_token=token-in-url"
    assert str(made.endpoint) == "http://h/rows"
    login = dict(made.endpoint.headers)["Authorization"]
    text = f"word-in-url token-in-url key-in-header blue {login}"
    assert masked(text) == "*** *** *** blue Basic ***"
    with pytest.raises(OptionError) as caught:
        sink(SCHEMA, {"url": "ftp://ann:hidden-word@h/x"})
    assert "hidden-word" not in str(caught.value)


def test_a_sink_can_be_sent_to_other_processes() -> None:
    made = sink(SCHEMA, {"url": URL, "username": "ann", "password": "word"}, "id")
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert isinstance(again.endpoint, Endpoint)
