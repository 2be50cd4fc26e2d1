"""Every format in every connector that carries bytes: Kafka's messages, files, and lines of a socket; and random bytes in each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.format import ChangeEncoder, RecordFormat, messages_chunk
from flowrun.connectors.formats.registry import (
    FILE_FORMATS,
    RECORD_FORMATS,
    file_format_named,
    format_named,
    record_format_named,
)
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.testing.connector_conformance import writer_context
from tests.connectors.filesystem import tables as files
from tests.connectors.formats.formats import decoder, encoder
from tests.connectors.kafka import tables as topics
from tests.servers.schema_registry import SchemaRegistryServer

SCHEMA = Schema.of(id=BIGINT, name=STRING)
ROWS: list[tuple[Any, ...]] = [(1, "a"), (2, "ä☂"), (-(2**62), "x" * 300), (0, "z")]
TEXTS = [(name,) for _, name in ROWS]


def schema_of(name: str) -> Schema:
    return Schema.of(name=STRING) if name == "raw" else SCHEMA


def rows_of(name: str) -> list[tuple[Any, ...]]:
    return TEXTS if name == "raw" else ROWS


def batch(name: str) -> pa.RecordBatch:
    schema = schema_of(name)
    return pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, r, strict=True)) for r in rows_of(name)], schema=schema.arrow
    )


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    server = SchemaRegistryServer()
    yield server
    server.stop()


@pytest.fixture
def options(registry: SchemaRegistryServer, tmp_path: Path) -> dict[str, dict[str, str]]:
    """What each format needs."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="R")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="name", number=2, type=9, label=1)
    path = tmp_path / "r.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return {
        "avro-confluent": {"avro-confluent.url": registry.url, "avro-confluent.subject": "t-value"},
        "debezium-avro-confluent": {
            "debezium-avro-confluent.url": registry.url,
            "debezium-avro-confluent.subject": "changes-value",
        },
        "protobuf": {"protobuf.message-class-name": "p.R", "protobuf.descriptor-file": str(path)},
    }


@pytest.mark.parametrize("name", RECORD_FORMATS)
def test_messages_of_every_format_are_read_again(name: str, options: dict[str, dict[str, str]]) -> None:
    given = options.get(name, {})
    used = encoder(name, schema_of(name), **given)
    reader = decoder(name, schema_of(name), **given)
    columns = batch(name)
    messages = used.encode_messages(columns)
    decoded = reader.decode(messages_chunk(messages))
    assert not decoded.bad
    assert decoded.columns.equals(columns)
    assert reader.decode(messages_chunk(messages.slice(1, 2))).columns.equals(columns.slice(1, 2))
    assert reader.decode(messages_chunk(messages.slice(0, 0))).columns.num_rows == 0
    if format_named(name).changelog:  # type: ignore[union-attr]
        assert isinstance(used, ChangeEncoder)
        kinds = pa.array([RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_AFTER, RowKind.UPDATE_BEFORE], pa.int8())
        decoded = reader.decode(messages_chunk(used.encode_change_messages(columns, kinds)))
        assert decoded.columns.equals(columns)
        assert decoded.kinds is not None
        assert [k & 1 for k in decoded.kinds.to_pylist()] == [0, 1, 0, 1]


@pytest.mark.parametrize("name", RECORD_FORMATS)
def test_random_bytes_are_bad_records_or_rows_in_every_format(name: str, options: dict[str, dict[str, str]]) -> None:
    given = options.get(name, {})
    source = random.Random(name)
    good = encoder(name, schema_of(name), **given).encode_messages(batch(name)).to_pylist()
    records: list[bytes] = []
    for _ in range(40):
        record = bytearray(source.choice([g.encode() if isinstance(g, str) else g for g in good]))
        match source.randrange(3):
            case 0:
                record[source.randrange(len(record))] = source.randrange(256)
            case 1:
                del record[source.randrange(len(record)) :]
            case _:
                record = bytearray(source.randrange(256) for _ in range(source.randrange(40)))
        records.append(bytes(record))
    decoded = decoder(name, schema_of(name), **given).decode(messages_chunk(pa.array(records, pa.binary())))
    decoded.columns.validate(full=True)
    assert not set(decoded.records.tolist()) & {b.index for b in decoded.bad}
    assert all(b.reason for b in decoded.bad)


@pytest.mark.parametrize("name", RECORD_FORMATS)
def test_topics_of_every_format_are_written_and_read(name: str, options: dict[str, dict[str, str]]) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    from flowrun.connectors.kafka.decoding import MessageDecoder
    from flowrun.connectors.kafka.messages import by_partition
    from flowrun.connectors.kafka.sink import KafkaSink

    schema = schema_of(name)
    given = {f"value.{k}": v for k, v in options.get(name, {}).items() if not k.endswith(".subject")}
    given["value.format"] = name
    sink = topics.sink(schema, given)
    assert isinstance(sink, KafkaSink)
    values = sink.encoder().encode(RecordBatch(batch(name))).column("value").to_pylist()
    source = topics.source(schema, {"scan.startup.mode": "earliest-offset", **given})
    records = [values[0], values[1], b"\xff\xfe{", None, values[2], values[3]]
    messages = [
        kafka.Message(topic="t", partition=0, offset=7 + i, value=v, key=None, timestamp=(1, 0), leader_epoch=0)
        for i, v in enumerate(records)
    ]
    (only,) = by_partition(messages)
    found = MessageDecoder(source.schema, source.metadata, source.layout).decode(only)
    rows = [tuple(r.values()) for r in found.rows.columns.to_pylist()]
    if name == "csv":  # any text is a field
        rows = [r for r in rows if r in ROWS]
    if name == "raw":  # a message without value is NULL
        assert rows.pop(2) == (None,)
    assert rows == rows_of(name)
    if name != "csv":
        assert [(b.offset, b.raw) for b in found.bad] == [(9, b"\xff\xfe{")]


@pytest.mark.parametrize("name", FILE_FORMATS)
def test_files_of_every_format_are_written_and_read(name: str, tmp_path: Path) -> None:
    schema = schema_of(name)
    target = files.sink(tmp_path / "out", name, schema)
    writer = target.create_writer(writer_context())
    writer.open()
    writer.write(RecordBatch(batch(name)))
    target.create_committer().commit(writer.prepare_commit())
    writer.close()
    assert sorted(files.read(files.source(tmp_path / "out", name, schema)), key=str) == sorted(rows_of(name), key=str)


def test_each_connector_names_the_formats_that_it_can_carry() -> None:
    for name in connector_names():
        connector = connector_named(name)
        for format in connector.formats:
            if name == "filesystem":
                file_format_named(format)
            else:
                assert record_format_named(format, name)
    kafka = connector_named("kafka")
    assert set(kafka.formats) == set(RECORD_FORMATS)
    assert set(connector_named("upsert-kafka").formats) == {
        n for n in RECORD_FORMATS if not (isinstance(f := format_named(n), RecordFormat) and f.changelog)
    }
    assert set(connector_named("filesystem").formats) == set(FILE_FORMATS)
