"""Binary formats of messages and files against the libraries that read one record at a time, in this process and on one thread."""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2

from benchmarks.measuring import Figure
from flowrun.api.format import FileFormat, ReadRequest, RecordFormat, messages_chunk
from flowrun.connectors.formats.avro.types import schema_text
from flowrun.connectors.formats.protobuf.descriptors import message_class
from flowrun.connectors.formats.registry import file_format_named, format_named, prefixed_options
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DOUBLE, INT, STRING, timestamp

ROWS = 200_000
BATCH_ROWS = 8_192
"""How many messages both sides take at a time, as a consumer gets them: more of them at once would cost the libraries' objects a
garbage collection."""
ORDERS = Schema.of(id=BIGINT, user=STRING, amount=DOUBLE, at=timestamp(3), item=STRING, count=INT)


def run() -> list[Figure]:
    return [*_avro_messages(), _avro_files(), *_protobuf_messages()]


def _orders() -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    columns = {
        "id": pa.array(np.arange(ROWS)),
        "user": [f"user-{i}" for i in rng.integers(0, 10_000, ROWS)],
        "amount": rng.random(ROWS),
        "at": pa.array(np.arange(ROWS) + 1_700_000_000_000).view(pa.timestamp("ms")),
        "item": [f"some item text {i}" for i in rng.integers(0, 10**6, ROWS)],
        "count": pa.array(rng.integers(0, 1000, ROWS).astype(np.int32)),
    }
    return pa.RecordBatch.from_pydict(columns, schema=ORDERS.arrow)


def _seconds(work: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    """The shortest of five runs of each, which take turns."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(5):
        for function, found in ((work, ours), (peer, theirs)):
            begin = time.perf_counter()
            function()
            found.append(time.perf_counter() - begin)
    return min(ours), min(theirs)


def _figure(name: str, work: Callable[[], object], peer: Callable[[], object], bar: float) -> Figure:
    ours, theirs = _seconds(work, peer)
    ratio = theirs / ours
    return Figure(
        name,
        f"{ROWS / ours / 1e6:.2f} M rows/s",
        f"{ROWS / theirs / 1e6:.2f} M rows/s",
        f"{ratio:.1f}",
        f"at least {bar:g}",
        ratio >= bar,
    )


def _batches(values: pa.Array | pa.RecordBatch) -> list[Any]:
    return [values.slice(begin, BATCH_ROWS) for begin in range(0, len(values), BATCH_ROWS)]


def _columns(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({f.name: pa.array([r[f.name] for r in rows]) for f in ORDERS})


def _avro_messages() -> list[Figure]:
    avro = format_named("avro")
    assert isinstance(avro, RecordFormat)
    options, _ = parse_options(prefixed_options("avro"), {}, "avro")
    columns = _orders()
    encoder = avro.create_encoder(ORDERS, options)
    decoder = avro.create_decoder(ReadRequest(ORDERS, ORDERS, options))
    messages = encoder.encode_messages(columns)
    theirs = fastavro.parse_schema(json.loads(schema_text(ORDERS, legacy_timestamps=True)))

    def read() -> object:
        return [
            _columns([fastavro.schemaless_reader(io.BytesIO(m), theirs) for m in some.to_pylist()])
            for some in _batches(messages)
        ]

    def write() -> object:
        return [pa.array([encoded(row) for row in some.to_pylist()]) for some in _batches(columns)]

    def encoded(row: object) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, theirs, row)
        return out.getvalue()

    return [
        _figure(
            "Avro messages to columns, against fastavro",
            lambda: [decoder.decode(messages_chunk(m)) for m in _batches(messages)],
            read,
            5,
        ),
        _figure(
            "columns to Avro messages, against fastavro",
            lambda: [encoder.encode_messages(c) for c in _batches(columns)],
            write,
            5,
        ),
    ]


def _avro_files() -> Figure:
    avro = file_format_named("avro")
    assert isinstance(avro, FileFormat)
    options, _ = parse_options(prefixed_options("avro"), {"avro.codec": "deflate"}, "avro")
    out = io.BytesIO()
    writer = avro.create_writer(out, ORDERS, options)
    columns = _orders()
    for begin in range(0, ROWS, 8192):
        writer.write(columns.slice(begin, 8192))
    writer.finish()
    reader = avro.create_reader(ReadRequest(ORDERS, ORDERS, options))

    def read() -> object:
        out.seek(0)
        found = iter(fastavro.reader(out))
        return [_columns(list(some)) for some in iter(lambda: tuple(islice(found, BATCH_ROWS)), ())]

    return _figure(
        "Avro files (deflate) to columns, against fastavro",
        lambda: list(reader.read(out, "orders.avro", 0, 0, None, 8192)),
        read,
        2,
    )


def _protobuf_messages() -> list[Figure]:
    kind = descriptor_pb2.FieldDescriptorProto
    kinds = {"id": kind.TYPE_INT64, "user": kind.TYPE_STRING, "amount": kind.TYPE_DOUBLE, "at": kind.TYPE_INT64}
    kinds |= {"item": kind.TYPE_STRING, "count": kind.TYPE_INT32}
    described = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = described.message_type.add(name="Order")
    for number, (name, type_) in enumerate(kinds.items(), start=1):
        order.field.add(name=name, number=number, type=type_, label=kind.LABEL_OPTIONAL)
    schema = Schema.of(**{f.name: BIGINT if f.name == "at" else f.type for f in ORDERS})
    columns = _orders()
    columns = pa.RecordBatch.from_arrays(
        [c.view(f.type) for c, f in zip(columns.columns, schema.arrow, strict=True)], schema=schema.arrow
    )
    protobuf = format_named("protobuf")
    assert isinstance(protobuf, RecordFormat)
    with tempfile.NamedTemporaryFile(suffix=".desc") as file:
        file.write(descriptor_pb2.FileDescriptorSet(file=[described]).SerializeToString())
        file.flush()
        given = {"protobuf.message-class-name": "shop.Order", "protobuf.descriptor-file": file.name}
        options, _ = parse_options(prefixed_options("protobuf"), given, "protobuf")
        made = message_class("shop.Order", file.name)
        decoder = protobuf.create_decoder(ReadRequest(schema, schema, options))
        encoder = protobuf.create_encoder(schema, options)
        messages = encoder.encode_messages(columns)

    def read() -> object:
        return [taken([made.FromString(m) for m in some.to_pylist()]) for some in _batches(messages)]

    def taken(found: list[Any]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({n: pa.array([getattr(m, n) for m in found]) for n in schema.names})

    def write() -> object:
        return [pa.array([made(**row).SerializeToString() for row in some.to_pylist()]) for some in _batches(columns)]

    return [
        _figure(
            "Protobuf messages to columns, against the library",
            lambda: [decoder.decode(messages_chunk(m)) for m in _batches(messages)],
            read,
            2,
        ),
        _figure(
            "columns to Protobuf messages, against the library",
            lambda: [encoder.encode_messages(c) for c in _batches(columns)],
            write,
            2,
        ),
    ]
