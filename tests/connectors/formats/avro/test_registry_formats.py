"""avro-confluent and debezium-avro-confluent against a schema registry: evolution, caching, credentials, and what goes wrong."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from flowrun.api.format import ChangeEncoder, messages_chunk
from flowrun.connectors.formats.avro.registry_options import registry_settings
from flowrun.connectors.formats.avro.schema_registry import schema_registry as client
from flowrun.connectors.formats.registry import with_subject
from flowrun.connectors.kafka.sink import KafkaSink
from flowrun.core.elements import RowKind
from flowrun.core.options import Options
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, DOUBLE, STRING, array, row
from flowrun.errors import ConnectorError, OptionError
from tests.connectors.kafka.tables import sink as kafka_sink
from tests.connectors.kafka.tables import source as kafka_source
from tests.runtime.rpc.certificates import make_authority, make_identity, needs_openssl
from tests.servers.schema_registry import SchemaRegistryServer

from ..formats import decoder, encoder, options_of, record_format, rows
from .samples import EVERYTHING, sample_rows, their_records

NAME = "avro-confluent"
DEBEZIUM = "debezium-avro-confluent"
SCHEMA = Schema.of(id=BIGINT, name=STRING)
ADD, UB, UA, D = RowKind


@pytest.fixture(autouse=True)
def _fresh_clients() -> None:
    client.cache_clear()


def options(server: SchemaRegistryServer, format: str = NAME, **more: str) -> dict[str, str]:
    return {f"{format}.{k.replace('__', '.').replace('_', '-')}": v for k, v in ({"url": server.url} | more).items()}


def message(number: int, schema: Any, value: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + their_records(fastavro.parse_schema(schema), [value])[0]


def messages(*records: bytes) -> Any:
    return messages_chunk(pa.array(records, pa.binary()))


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "user", "fields": [{"name": n, "type": t} for n, t in fields]}


def test_what_is_written_is_read_and_asked_for_once(schema_registry: SchemaRegistryServer) -> None:
    columns = sample_rows(EVERYTHING, 50)
    used = encoder(NAME, EVERYTHING, **options(schema_registry, subject="t-value"))
    assert schema_registry.requests == []  # nothing is registered before there is a row
    first = used.encode_messages(columns.slice(0, 20))
    again = encoder(NAME, EVERYTHING, **options(schema_registry, subject="t-value")).encode_messages(columns.slice(20))
    assert schema_registry.requests == ["POST /subjects/t-value/versions"]
    for _ in range(2):
        reader = decoder(NAME, EVERYTHING, **options(schema_registry))
        for _ in range(3):
            decoded = reader.decode(messages_chunk(pa.concat_arrays([first, again])))
            assert decoded.columns.equals(columns)
            assert not decoded.bad
    assert schema_registry.requests[1:] == ["GET /schemas/ids/1"]


def test_records_of_many_schemas_are_read_with_the_columns_of_the_table(schema_registry: SchemaRegistryServer) -> None:
    old = record(("id", "int"), ("gone", "string"))
    new = record(("name", ["null", "string"]), ("id", "long"))
    newest = record(("id", ["null", "long"]), ("name", "string"), ("more", {"type": "array", "items": "double"}))
    numbers = [schema_registry.register(f"s{i}", json.dumps(s)) for i, s in enumerate((old, new, newest))]
    records = [
        message(numbers[0], old, {"id": 1, "gone": "x"}),
        message(numbers[2], newest, {"id": 2, "name": "b", "more": [1.0]}),
        message(numbers[1], new, {"id": 3, "name": None}),
        message(numbers[0], old, {"id": 4, "gone": "y"}),
    ]
    schema = Schema.of(id=BIGINT, name=STRING, more=array(DOUBLE))
    decoded = decoder(NAME, schema, **options(schema_registry)).decode(messages(*records))
    assert rows(decoded) == [(1, None, None), (2, "b", [1.0]), (3, None, None), (4, None, None)]
    assert decoded.records.tolist() == [0, 1, 2, 3]
    assert rows(decoder(NAME, Schema(()), schema, **options(schema_registry)).decode(messages(*records))) == [()] * 4


def test_poison_records_are_told_and_others_read(schema_registry: SchemaRegistryServer) -> None:
    good = record(("id", "long"), ("name", "string"))
    wrong = record(("id", "string"))
    number = schema_registry.register("s", json.dumps(good))
    misfit = schema_registry.register("t", json.dumps(wrong))
    proto = schema_registry.register("u", "syntax = 'proto3';", schemaType="PROTOBUF")
    broken = schema_registry.register("v", '{"type": "record"}')
    fine = message(number, good, {"id": 1, "name": "a"})
    poison = {
        b"": "does not begin with a 0",
        b"\0\0\0": "does not begin with a 0",
        b"\1" + fine[1:]: "does not begin with a 0",
        b"\0\0\0\x7f\x01" + fine[5:]: "the registry has no schema 32513",
        message(misfit, wrong, {"id": "x"}): f"schema {misfit}: field 'id': expected BIGINT, got string",
        b"\0" + proto.to_bytes(4, "big"): "of type PROTOBUF, expected AVRO",
        b"\0" + broken.to_bytes(4, "big"): "has no name",
        fine[:-1]: "in the middle of a value",
    }
    reader = decoder(NAME, SCHEMA, **options(schema_registry))
    decoded = reader.decode(messages(fine, *poison, fine))
    assert rows(decoded) == [(1, "a")] * 2
    assert decoded.records.tolist() == [0, len(poison) + 1]
    assert [b.index for b in decoded.bad] == list(range(1, len(poison) + 1))
    for bad, reason in zip(decoded.bad, poison.values(), strict=True):
        assert reason in bad.reason
    source = random.Random(1)
    random_records = [b"\0\0\0\0" + bytes(source.randrange(4) for _ in range(source.randrange(9))) for _ in range(300)]
    decoded = reader.decode(messages(*random_records))
    assert len(decoded.bad) + len(decoded.records) == 300


def test_schemas_may_use_types_of_others(schema_registry: SchemaRegistryServer) -> None:
    inner = {"type": "record", "name": "shop.place", "fields": [{"name": "city", "type": "string"}]}
    schema_registry.register("places", json.dumps(inner))
    outer = record(("id", "long"), ("at", "shop.place"))
    references = [{"name": "shop.place", "subject": "places", "version": 1}]
    number = schema_registry.register("s", json.dumps(outer), references=references)
    data = b"\0" + number.to_bytes(4, "big") + b"\x02" + b"\x06abc"
    schema = Schema.of(id=BIGINT, at=row(("city", STRING)))
    assert rows(decoder(NAME, schema, **options(schema_registry)).decode(messages(data))) == [(1, {"city": "abc"})]


def test_a_schema_that_readers_could_not_follow_is_refused(schema_registry: SchemaRegistryServer) -> None:
    schema_registry.register("t-value", json.dumps(record(("id", "string"))))
    columns = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], SCHEMA.arrow)
    with pytest.raises(
        ConnectorError, match=r"refuses the schema of 't-value': .*field 'id': string became long"
    ) as caught:
        encoder(NAME, SCHEMA, **options(schema_registry, subject="t-value")).encode_messages(columns)
    assert not caught.value.retryable


def test_schemas_that_must_be_there_already(schema_registry: SchemaRegistryServer) -> None:
    columns = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], SCHEMA.arrow)
    given = {**options(schema_registry, subject="t-value"), f"{NAME}.auto.register.schemas": "false"}
    with pytest.raises(ConnectorError, match="is not in the schema registry: Subject 't-value' not found"):
        encoder(NAME, SCHEMA, **given).encode_messages(columns)
    encoder(NAME, SCHEMA, **options(schema_registry, subject="t-value")).encode_messages(columns)
    client.cache_clear()
    assert encoder(NAME, SCHEMA, **given).encode_messages(columns).to_pylist() == [b"\0\0\0\0\1\x02\x02\x02\x02a"]


def test_a_schema_of_the_users_own_is_registered_if_it_means_the_same(schema_registry: SchemaRegistryServer) -> None:
    own = {
        "type": "record",
        "name": "User",
        "doc": "somebody",
        "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}],
    }
    used = options(schema_registry, subject="t-value", schema=json.dumps(own))
    encoder(NAME, SCHEMA, **used).encode_messages(pa.RecordBatch.from_pylist([{"id": 1}], SCHEMA.arrow))
    assert json.loads(schema_registry.schemas[1]["schema"]) == own
    own["fields"][0]["type"] = "long"
    used = options(schema_registry, subject="t-value", schema=json.dumps(own))
    with pytest.raises(OptionError, match="does not mean the same as the table's columns: id is long, expected union"):
        record_format(NAME).check(SCHEMA, options_of(NAME, **used))


def test_credentials_are_shown_and_never_said(schema_registry: SchemaRegistryServer) -> None:
    number = schema_registry.register("s", json.dumps(record(("id", "long"))))
    data = message(number, record(("id", "long")), {"id": 5})
    schema_registry.let_in("ann", "pass:word")
    with_password = schema_registry.url.replace("://", "://ann:pass%3Aword@")
    for given in (
        options(schema_registry, basic_auth__credentials_source="USER_INFO", basic_auth__user_info="ann:pass:word"),
        {f"{NAME}.url": with_password},
    ):
        client.cache_clear()
        assert rows(decoder(NAME, SCHEMA, **given).decode(messages(data))) == [(5, None)]
    for given in (
        options(schema_registry, basic_auth__user_info="ann:guess77"),
        {f"{NAME}.url": with_password.replace("word", "guess77")},
    ):
        with pytest.raises(ConnectorError, match="lets nobody in: Unauthorized") as caught:
            decoder(NAME, SCHEMA, **given).decode(messages(data))
        assert "guess77" not in str(caught.value) + str(caught.value.hint)
    schema_registry.authorization = "Bearer abc"
    used = options(schema_registry, bearer_auth__credentials_source="STATIC_TOKEN", bearer_auth__token="abc")
    assert rows(decoder(NAME, SCHEMA, **used).decode(messages(data))) == [(5, None)]
    assert "abc" not in repr(client.cache_info()) + repr(record_format(NAME))


def test_a_registry_that_fails_is_asked_again(schema_registry: SchemaRegistryServer) -> None:
    number = schema_registry.register("s", json.dumps(record(("id", "long"))))
    data = message(number, record(("id", "long")), {"id": 5})
    schema_registry.failing = 1
    assert rows(decoder(NAME, SCHEMA, **options(schema_registry)).decode(messages(data))) == [(5, None)]
    url = f"http://127.0.0.1:1,{schema_registry.url}"
    assert rows(decoder(NAME, SCHEMA, **{f"{NAME}.url": url}).decode(messages(data))) == [(5, None)]
    with pytest.raises(ConnectorError, match=r"the schema registry at http://127\.0\.0\.1:1 cannot be asked") as caught:
        decoder(NAME, SCHEMA, **{f"{NAME}.url": "http://127.0.0.1:1"}).decode(messages(data))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "localhost:8081"}, "is needed and expects an http:// or https:// URL"),
        ({"basic-auth.credentials-source": "SASL_INHERIT"}, "must be USER_INFO or URL"),
        ({"basic-auth.credentials-source": "USER_INFO"}, "is needed as user:password"),
        ({"bearer-auth.credentials-source": "OAUTHBEARER"}, "must be STATIC_TOKEN"),
        ({"ssl.truststore.location": "/x/trust.jks"}, "a store of Java's"),
        ({"properties.some.thing": "1"}, "is not known"),
        ({"schema": "{"}, "no JSON"),
    ],
)
@pytest.mark.parametrize("format", [NAME, DEBEZIUM])
def test_options_that_cannot_be_served_are_told(format: str, given: dict[str, str], message: str) -> None:
    used = options_of(format, **{f"{format}.{k}": v for k, v in ({"url": "http://localhost:1"} | given).items()})
    with pytest.raises(OptionError, match=message):
        record_format(format).check(SCHEMA, used)


def test_a_subject_is_needed_for_writing_and_chosen_for_topics() -> None:
    used = options_of(NAME, **{f"{NAME}.url": "http://localhost:1"})
    with pytest.raises(OptionError, match=r"avro-confluent\.subject' is needed"):
        record_format(NAME).create_encoder(SCHEMA, used)
    assert with_subject(NAME, used, "t-value").text(f"{NAME}.subject") == "t-value"
    named = Options({**used.values, f"{NAME}.subject": "mine"})
    assert with_subject(NAME, named, "t-value").text(f"{NAME}.subject") == "mine"
    assert with_subject("json", Options({}), "t-value") == Options({})


@needs_openssl
@pytest.mark.exhaustive
def test_encrypted_connections_are_checked(tmp_path: Path) -> None:
    make_authority(tmp_path / "ca")
    server = SchemaRegistryServer(make_identity(tmp_path / "me", tmp_path / "ca"))
    try:
        given = {f"{NAME}.url": server.url}
        with pytest.raises(ConnectorError, match="certificate") as caught:
            decoder(NAME, SCHEMA, **given).decode(messages(b"\0\0\0\0\1"))
        assert not caught.value.retryable
        given |= {f"{NAME}.ssl.truststore.location": str(tmp_path / "nothing.pem")}
        with pytest.raises(ConnectorError, match="a PEM file for the schema registry cannot be read"):
            decoder(NAME, SCHEMA, **given).decode(messages(b"\0\0\0\0\1"))
    finally:
        server.stop()


def test_tables_of_topics_have_a_registry_for_values_and_keys() -> None:
    given = {
        "value.format": NAME,
        "value.avro-confluent.url": "http://values:1",
        "value.avro-confluent.properties.http.read.timeout.ms": "7",
        "key.format": NAME,
        "key.avro-confluent.url": "http://keys:1",
        "key.fields": "id",
    }
    begin = {"scan.startup.mode": "earliest-offset"}
    written = kafka_sink(SCHEMA, given)
    assert isinstance(written, KafkaSink)
    for layout in (kafka_source(SCHEMA, given | begin).layout, written.layout):
        assert layout.key is not None
        value = registry_settings(layout.value.options, NAME)
        assert (value.urls, value.timeout_ms) == (("http://values:1",), 7)
        assert registry_settings(layout.key.options, NAME).urls == ("http://keys:1",)
        assert layout.value.options.text(f"{NAME}.subject") == "t-value"
        assert layout.key.options.text(f"{NAME}.subject") == "t-key"
    assert kafka_source(SCHEMA, begin, format="json").layout.key is None
    with pytest.raises(OptionError, match=r"avro-confluent\.url' is needed"):
        kafka_source(SCHEMA, begin | {"value.format": NAME})


# ---- debezium-avro-confluent


def test_changes_are_written_as_flink_writes_them_and_read(schema_registry: SchemaRegistryServer) -> None:
    schema = Schema((Field("id", BIGINT, nullable=False), Field("name", STRING)))
    used = encoder(DEBEZIUM, schema, **options(schema_registry, DEBEZIUM, subject="t-value"))
    assert isinstance(used, ChangeEncoder)
    columns = pa.RecordBatch.from_pylist([{"id": i, "name": f"n{i}" if i else None} for i in range(4)], schema.arrow)
    records = used.encode_change_messages(columns, pa.array([ADD, UB, UA, D], pa.int8()))
    registered = json.loads(schema_registry.schemas[1]["schema"])
    assert registered[0] == "null"
    assert [f["name"] for f in registered[1]["fields"]] == ["before", "after", "op"]
    theirs = fastavro.parse_schema(registered)
    events = [fastavro.schemaless_reader(io.BytesIO(r[5:]), theirs) for r in records.to_pylist()]
    assert events == [
        {"before": None, "after": {"id": 0, "name": None}, "op": "c"},
        {"before": {"id": 1, "name": "n1"}, "after": None, "op": "d"},
        {"before": None, "after": {"id": 2, "name": "n2"}, "op": "c"},
        {"before": {"id": 3, "name": "n3"}, "after": None, "op": "d"},
    ]
    decoded = decoder(DEBEZIUM, schema, **options(schema_registry, DEBEZIUM)).decode(messages_chunk(records))
    assert decoded.columns.equals(columns)
    assert decoded.kinds is not None
    assert decoded.kinds.to_pylist() == [ADD, D, ADD, D]
    assert rows(
        decoder(DEBEZIUM, schema, **options(schema_registry, DEBEZIUM)).decode(
            messages_chunk(used.encode_messages(columns))
        )
    ) == [(0, None), (1, "n1"), (2, "n2"), (3, "n3")]


def test_debeziums_own_envelopes_are_read(schema_registry: SchemaRegistryServer) -> None:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
    }
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "db", "type": "string"}, {"name": "ts_ms", "type": "long"}],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "server.inventory.products",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
    number = schema_registry.register("products-value", json.dumps(envelope))

    def event(op: str, before: Any, after: Any) -> bytes:
        rest = {"source": {"db": "d", "ts_ms": 1}, "op": op, "ts_ms": 7}
        return message(number, envelope, {"before": before, "after": after, **rest})

    a, b = {"id": 1, "name": "a"}, {"id": 1, "name": None}
    reader = decoder(DEBEZIUM, SCHEMA, **options(schema_registry, DEBEZIUM))
    records = [event("r", None, a), event("u", a, b), event("d", b, None), event("u", None, b), event("x", a, b)]
    decoded = reader.decode(messages(*records))
    assert decoded.kinds is not None
    symbols = [RowKind(k).symbol for k in decoded.kinds.to_pylist()]
    assert list(zip(symbols, rows(decoded), strict=True)) == [
        ("+I", (1, "a")),
        ("-U", (1, "a")),
        ("+U", (1, None)),
        ("-D", (1, None)),
    ]
    assert [b.index for b in decoded.bad] == [3, 4]
    assert "REPLICA IDENTITY FULL" in decoded.bad[0].reason
    assert "changelog-mode" not in decoded.bad[0].reason
    assert "expected c, r, u or d" in decoded.bad[1].reason
