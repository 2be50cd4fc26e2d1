"""The connector against a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from flowrun.api.lookup import FoundRows, LookupContext
from flowrun.api.sink import Committable
from flowrun.connectors.redis.commands import COMMANDS
from flowrun.connectors.redis.connector import FORMATS
from flowrun.connectors.redis.sink import RedisSink, RedisTarget
from flowrun.connectors.staged.commit import StagedCommit
from flowrun.core import types as t
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError
from flowrun.testing.connector_conformance import check_sink, writer_context
from flowrun.testing.metrics import RecordedMetrics
from tests.connectors.redis.tables import lookup, sink
from tests.end_to_end.running import ROOT, run_file
from tests.servers.redis import PASSWORD, RedisServerProcess
from tests.servers.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=t.BIGINT, name=t.STRING, n=t.INT)
TEXTS = Schema.of(v=t.STRING)


@pytest.fixture
def there(redis_server: RedisServerProcess, redis_client: Any) -> dict[str, Any]:
    """The options that name the empty server."""
    return {"url": redis_server.url, "password": PASSWORD}


def batch(schema: Schema, **columns: list[Any]) -> RecordBatch:
    return RecordBatch(pa.RecordBatch.from_pydict(columns, schema=schema.arrow))


def write(made: RedisSink, *batches: RecordBatch) -> None:
    writer = made.create_writer(writer_context())
    writer.open()
    for each in batches:
        writer.write(each)
    writer.flush(True)
    writer.close()


def find(made: Any, **keys: list[Any]) -> FoundRows:
    looking = made.create_lookup(LookupContext(0, 1, ManualClock(0), RecordedMetrics()))
    looking.open()
    try:
        found: FoundRows = looking.find(pa.RecordBatch.from_pydict(keys, schema=made.keys.arrow))
    finally:
        looking.close()
    return found


ROWS = {"id": [1, 2, 3], "name": ["ann", "b\r\no", None], "n": [None, 7, 8]}


@pytest.mark.parametrize("kind", ["string", "hash"])
def test_rows_are_found_as_they_were_written(there: dict[str, Any], kind: str) -> None:
    given = {**there, "type": kind, "key.prefix": "user:", **({"format": "json"} if kind == "string" else {})}
    write(sink(SCHEMA, given, "id"), batch(SCHEMA, **ROWS))
    found = find(lookup(SCHEMA, SCHEMA, given, "id"), id=[3, None, 9, 1, 2, 1])
    assert found.probe.tolist() == [0, 3, 4, 5]
    assert found.rows.to_pylist() == [
        {"id": 3, "name": None, "n": 8},
        {"id": 1, "name": "ann", "n": None},
        {"id": 2, "name": "b\r\no", "n": 7},
        {"id": 1, "name": "ann", "n": None},
    ]
    wanted = Schema.of(n=t.INT)
    assert find(lookup(SCHEMA, wanted, given, "id"), id=[2]).rows.to_pylist() == [{"n": 7}]
    assert find(lookup(SCHEMA, SCHEMA, given, "id"), id=[None]).rows.num_rows == 0


def test_a_column_of_text_needs_no_format(there: dict[str, Any], redis_client: Any) -> None:
    schema = Schema.of(k=t.STRING, v=t.STRING)
    write(sink(schema, there, "k"), batch(schema, k=["é"], v=["ü"]))
    assert redis_client.get("é".encode()).decode() == "ü"
    assert find(lookup(schema, schema, there, "k"), k=["é"]).rows.to_pylist() == [{"k": "é", "v": "ü"}]


@pytest.mark.parametrize("format", FORMATS)
def test_values_have_every_format_of_single_rows(
    there: dict[str, Any], schema_registry: SchemaRegistryServer, tmp_path: Path, format: str
) -> None:
    schema = Schema.of(id=t.BIGINT, name=t.STRING)
    of_formats = {
        "avro-confluent": {"avro-confluent.url": schema_registry.url, "avro-confluent.subject": "names"},
        "protobuf": {"protobuf.message-class-name": "p.R", "protobuf.descriptor-file": str(tmp_path / "r.desc")},
    }
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax="proto3")
    file.message_type.add(name="R").field.add(name="name", number=1, type=9, label=1)
    (tmp_path / "r.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    given = {**there, "type": "string", "format": format, **of_formats.get(format, {})}
    write(sink(schema, given, "id"), batch(schema, id=[1, 2], name=["ann", "b\no"]))
    found = find(lookup(schema, schema, given, "id"), id=[2, 3, 1])
    assert found.rows.to_pylist() == [{"id": 2, "name": "b\no"}, {"id": 1, "name": "ann"}]


def test_a_null_is_an_empty_text(there: dict[str, Any], redis_client: Any) -> None:
    schema = Schema.of(id=t.BIGINT, name=t.STRING)
    write(sink(schema, {**there, "format": "raw"}, "id"), batch(schema, id=[1], name=[None]))
    assert redis_client.get("1") == b""


def test_lists_sets_and_streams_grow(there: dict[str, Any], redis_client: Any) -> None:
    for kind in ("list", "set", "stream"):
        made = sink(TEXTS, {**there, "type": kind, "key": kind})
        write(made, batch(TEXTS, v=["a", "b"]), batch(TEXTS, v=["a"]))
    assert redis_client.lrange("list", 0, -1) == [b"a", b"b", b"a"]
    assert redis_client.smembers("set") == {b"a", b"b"}
    assert [fields for _, fields in redis_client.xrange("stream")] == [{b"v": b"a"}, {b"v": b"b"}, {b"v": b"a"}]


def test_values_go_after_their_time(there: dict[str, Any], redis_client: Any) -> None:
    for kind in ("string", "hash"):
        given = {**there, "type": kind, "key.prefix": kind, "sink.ttl": "1 h"}
        write(sink(SCHEMA, {**given, **({"format": "json"} if kind == "string" else {})}, "id"), batch(SCHEMA, **ROWS))
        assert 0 < redis_client.pttl(f"{kind}1") <= 3_600_000


def members(client: Any, kind: str) -> list[tuple[str]]:
    if kind == "list":
        return [(v.decode(),) for v in client.lrange("all", 0, -1)]
    return [(fields[b"v"].decode(),) for _, fields in client.xrange("all")]


@pytest.mark.parametrize("kind", ["list", "stream"])
def test_exactly_once_keeps_the_contract_of_sinks(
    there: dict[str, Any], redis_client: Any, tmp_path: Path, kind: str
) -> None:
    made = sink(TEXTS, {**there, "type": kind, "key": "all", "sink.delivery-guarantee": "exactly-once"})
    batches = [batch(TEXTS, v=["a", "b"]), batch(TEXTS, v=["c"]), batch(TEXTS, v=["d", "e"])]
    check_sink(made, batches, lambda: members(redis_client, kind), staging=str(tmp_path / "staged"))


def staged(made: RedisSink, tmp_path: Path, *values: str) -> Sequence[Committable]:
    writer = made.create_writer(writer_context(staging=str(tmp_path / "staged")))
    writer.open()
    writer.write(batch(TEXTS, v=list(values)))
    found = writer.prepare_commit()
    writer.close()
    return found


def test_a_transaction_on_its_way_of_a_process_that_is_gone_is_not_carried_out_too(
    there: dict[str, Any], redis_client: Any, tmp_path: Path
) -> None:
    made = sink(TEXTS, {**there, "type": "list", "key": "all", "sink.delivery-guarantee": "exactly-once"})
    (committable,) = staged(made, tmp_path, "a")
    commit = StagedCommit(str(committable.payload["writer"]), 1, committable.commit_id, 1)
    old = RedisTarget(made.server, made.layout)
    command = pa.RecordBatch.from_pydict(
        {"command": [b"*3\r\n$5\r\nRPUSH\r\n$3\r\nall\r\n$1\r\na\r\n"], "answers": [1]}, schema=COMMANDS
    )

    def while_it_writes() -> Any:
        made.create_committer().commit([committable])  # type: ignore[union-attr]
        yield command

    with pytest.raises(ConnectorError, match="another process has committed") as caught:
        old.write(commit, while_it_writes())
    assert caught.value.retryable
    assert members(redis_client, "list") == [("a",)]
    old.close()


def test_a_value_of_another_type_is_told_before_anything_is_written(
    there: dict[str, Any], redis_client: Any, tmp_path: Path
) -> None:
    made = sink(TEXTS, {**there, "type": "list", "key": "all", "sink.delivery-guarantee": "exactly-once"})
    committables = staged(made, tmp_path, "a")
    redis_client.set("all", "text")
    with pytest.raises(ConnectorError, match="is a string: rows cannot be added to it as to a list"):
        made.create_committer().commit(committables)  # type: ignore[union-attr]
    for delivery in ("at-least-once", "exactly-once"):
        again = sink(TEXTS, {**there, "type": "list", "key": "all", "sink.delivery-guarantee": delivery})
        with pytest.raises(ConnectorError, match="is a string"):
            again.create_writer(writer_context(staging=str(tmp_path))).open()
    assert redis_client.get("all") == b"text"
    redis_client.delete("all")
    made.create_committer().commit(committables)  # type: ignore[union-attr]
    assert members(redis_client, "list") == [("a",)]


@pytest.mark.parametrize("password", [None, "wrong-secret-word"])
def test_a_wrong_password_is_told_and_not_shown(redis_server: RedisServerProcess, password: str | None) -> None:
    given: dict[str, Any] = {"url": redis_server.url, "type": "list", "key": "x"}
    made = sink(TEXTS, given if password is None else {**given, "password": password})
    with pytest.raises(ConnectorError, match=r"does not let this user|refuses") as caught:
        made.create_writer(writer_context()).open()
    assert "secret-word" not in str(caught.value)
    assert caught.value.hint == "check 'username' and 'password', and what they may do"


def test_a_server_that_is_not_there() -> None:
    made = sink(TEXTS, {"url": "redis://127.0.0.1:1/0", "type": "list", "key": "x"})
    with pytest.raises(ConnectorError, match=r"redis server 127.0.0.1:1 does not answer") as caught:
        made.create_writer(writer_context()).open()
    assert caught.value.retryable


def test_values_that_are_no_rows(there: dict[str, Any], redis_client: Any) -> None:
    redis_client.set("1", '{"name": "ann", "n": 1}')
    redis_client.set("2", "{")
    given = {**there, "format": "json"}
    with pytest.raises(DataError, match=r"the value '2' on redis server .* is no row of the table"):
        find(lookup(SCHEMA, SCHEMA, given, "id"), id=[1, 2])
    found = find(lookup(SCHEMA, SCHEMA, {**given, "format.on-error": "skip"}, "id"), id=[2, 1])
    assert found.probe.tolist() == [1]
    redis_client.rpush("3", "a list")
    with pytest.raises(ConnectorError, match=r"WRONGTYPE.*\n.*of another type"):
        find(lookup(SCHEMA, SCHEMA, {**there, "type": "hash"}, "id"), id=[3])


def test_the_example_of_the_page_runs(
    redis_server: RedisServerProcess, redis_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", PASSWORD)
    for number, name in enumerate(("Ann", "Bob", "Cy"), 1):
        redis_client.hset(f"customer:{number}", mapping={"name": name})
    (example,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/connectors/redis.md").read_text(), re.DOTALL)
    path = tmp_path / "script.sql"
    path.write_text(example.replace("redis://localhost:6379/0", redis_server.url))
    run_file(path)
    found = {key.decode(): json.loads(redis_client.get(key)) for key in redis_client.keys("spent:*")}
    assert set(found) == {"spent:Ann", "spent:Bob", "spent:Cy"}
    assert sum(row["orders"] for row in found.values()) == 1000
    assert all(row["amount"] == 5 * row["orders"] for row in found.values())
