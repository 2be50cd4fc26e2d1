"""Avro records: what is written is what fastavro reads, what fastavro writes is read, and broken records are told apart."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from flowrun.api.format import DecodedRecords, lines_chunk, messages_chunk
from flowrun.connectors.formats.avro.columns import MisfitError
from flowrun.connectors.formats.avro.encoding import AvroEncoder
from flowrun.connectors.formats.avro.reading import AvroReader
from flowrun.connectors.formats.avro.schema import AvroSchemaError, parse_schema
from flowrun.connectors.formats.avro.types import schema_text
from flowrun.core.schema import Field, Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL_DAY_TIME,
    NULL,
    STRING,
    TINYINT,
    DataType,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import OptionError

from ..formats import decoder, encoder, options_of, record_format, rows
from .samples import EVERYTHING, as_dicts, sample_rows, their_records, their_schema


def read_as(writer: Any, values: list[Any], schema: Schema) -> DecodedRecords:
    """Values that fastavro writes with one schema, read as a table."""
    records = their_records(fastavro.parse_schema(writer), values)
    decoded = AvroReader(parse_schema(json.dumps(writer)), schema).read(messages_chunk(pa.array(records, pa.binary())))
    decoded.columns.validate(full=True)
    return decoded


def field_of(type: Any, values: list[Any], target: DataType) -> tuple[list[Any], list[str]]:
    """(the values of a column that are read from a field of an Avro type, what is wrong with the other records)."""
    writer = {"type": "record", "name": "r", "fields": [{"name": "v", "type": type}]}
    decoded = read_as(writer, [{"v": v} for v in values], Schema.of(v=target))
    return [r[0] for r in rows(decoded)], [b.reason for b in decoded.bad]


@pytest.mark.parametrize(("rows_", "seed"), [(0, 0), (1, 1), (3, 2), (150, 3)])
def test_another_implementation_reads_what_is_written_and_writes_what_is_read(rows_: int, seed: int) -> None:
    columns = sample_rows(EVERYTHING, rows_, seed)
    records = AvroEncoder(EVERYTHING).encode_messages(columns)
    theirs = their_schema(EVERYTHING)
    assert [fastavro.schemaless_reader(io.BytesIO(r), theirs) for r in records.to_pylist()] == [
        r | {"fine_clock": r["fine_clock"]} for r in as_dicts(columns)
    ]
    reader = AvroReader(parse_schema(schema_text(EVERYTHING, legacy_timestamps=False)), EVERYTHING)
    for given_records in (records.to_pylist(), their_records(theirs, as_dicts(columns))):
        decoded = reader.read(messages_chunk(pa.array(given_records, pa.binary())))
        assert not decoded.bad
        assert decoded.columns.equals(columns)


def test_slices_of_batches_are_written_as_they_are() -> None:
    columns = sample_rows(EVERYTHING, 200)
    used = AvroEncoder(EVERYTHING)
    whole = used.encode_messages(columns)
    assert used.encode_messages(columns.slice(70, 60)).equals(whole.slice(70, 60))
    assert used.encode(columns.slice(3, 4)).to_pybytes() == b"".join(whole.slice(3, 4).to_pylist())


def test_the_format_reads_what_it_writes_and_only_the_columns_that_are_asked_for() -> None:
    columns = sample_rows(EVERYTHING, 100)
    records = encoder("avro", EVERYTHING).encode_messages(columns)
    wanted = EVERYTHING.select(["long", "text", "place"])
    decoded = decoder("avro", wanted, EVERYTHING).decode(messages_chunk(records))
    assert decoded.columns.equals(columns.select(wanted.names))
    assert rows(decoder("avro", Schema(()), EVERYTHING).decode(messages_chunk(records))) == [()] * 100


def test_columns_that_may_not_be_null_are_no_unions() -> None:
    schema = Schema((Field("id", BIGINT, nullable=False), Field("name", STRING)))
    assert json.loads(schema_text(schema, legacy_timestamps=True)) == {
        "type": "record",
        "name": "org.apache.flink.avro.generated.record",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
    }
    columns = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], schema=schema.arrow)
    assert AvroEncoder(schema).encode_messages(columns).to_pylist() == [b"\x02\x02\x02a"]


def test_the_schema_is_the_one_that_flink_derives() -> None:
    schema = Schema.of(at=timestamp(3), z=timestamp_ltz(3), r=row(("x", array(map_of(STRING, BYTES)))))
    fields = json.loads(schema_text(schema, legacy_timestamps=True))["fields"]
    assert [f["type"][1] for f in fields] == [
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {
            "type": "record",
            "name": "org.apache.flink.avro.generated.record_r",
            "fields": [
                {
                    "name": "x",
                    "type": [
                        "null",
                        {"type": "array", "items": ["null", {"type": "map", "values": ["null", "bytes"]}]},
                    ],
                    "default": None,
                }
            ],
        },
    ]
    fields = json.loads(schema_text(schema, legacy_timestamps=False))["fields"]
    assert fields[0]["type"][1] == {"type": "long", "logicalType": "local-timestamp-millis"}


UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("type", "values", "target", "expected"),
    [
        ("int", [1, -5], BIGINT, [1, -5]),
        ("int", [1], DOUBLE, [1.0]),
        ("long", [2], FLOAT, [2.0]),
        ("float", [0.5], DOUBLE, [0.5]),
        ("long", [7], decimal(5, 2), [Decimal("7.00")]),
        ("string", ["ab"], BYTES, [b"ab"]),
        ("bytes", [b"ab"], STRING, ["ab"]),
        (["null", "int", "string"], [None, 1, 2], INT, [None, 1, 2]),
        (["int", "long"], [1, 2**40], BIGINT, [1, 2**40]),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A"], STRING, ["B", "A"]),
        ({"type": "fixed", "name": "f", "size": 3}, [b"abc"], BYTES, [b"abc"]),
        ({"type": "string", "logicalType": "uuid"}, [UUID], STRING, [str(UUID)]),
        ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, [UUID.bytes], STRING, [str(UUID)]),
        (
            {"type": "fixed", "name": "d", "size": 20, "logicalType": "decimal", "precision": 30, "scale": 3},
            [Decimal("-1.234"), Decimal(10) ** 20],
            decimal(30, 2),
            [Decimal("-1.23"), Decimal(10) ** 20],
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 4},
            [Decimal("0.0050"), Decimal("-0.0051")],
            decimal(6, 2),
            [Decimal("0.01"), Decimal("-0.01")],
        ),
        ("null", [None, None], BIGINT, [None, None]),
        ({"type": "array", "items": ["null", "int"]}, [[1, None], []], array(BIGINT), [[1, None], []]),
        ({"type": "map", "values": "int"}, [{"a": 1}, {}], map_of(STRING, BIGINT), [[("a", 1)], []]),
    ],
)
def test_what_other_schemas_write_is_read_as_the_table_says(
    type: Any, values: list[Any], target: DataType, expected: list[Any]
) -> None:
    assert field_of(type, values, target) == (expected, [])


@pytest.mark.parametrize("unit", ["millis", "micros", "nanos"])
@pytest.mark.parametrize("local", ["", "local-"])
def test_times_keep_their_meaning_in_every_unit(unit: str, local: str) -> None:
    per_second = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}[unit]
    writer = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "v", "type": {"type": "long", "logicalType": f"{local}timestamp-{unit}"}}],
    }
    plain = {"type": "record", "name": "r", "fields": [{"name": "v", "type": "long"}]}
    records = their_records(fastavro.parse_schema(plain), [{"v": 1_700_000_000 * per_second}, {"v": -1}])
    for target in (timestamp(3), timestamp(6), timestamp(9), timestamp_ltz(3)):
        decoded = AvroReader(parse_schema(json.dumps(writer)), Schema.of(v=target)).read(lines_chunk(records))
        numbers = decoded.columns.column(0).view(pa.int64()).to_pylist()
        wanted = {"ms": 10**3, "us": 10**6, "ns": 10**9}[target.arrow.unit]
        assert numbers == [1_700_000_000 * wanted, -1 * wanted // per_second]


def test_fields_are_matched_by_name_and_others_are_passed_over() -> None:
    inner = {
        "type": "record",
        "name": "inner",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
    }
    tree = {
        "type": "record",
        "name": "tree",
        "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "tree"]}],
    }
    writer = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "tree", "type": tree},
            {"name": "many", "type": {"type": "array", "items": {"type": "map", "values": "bytes"}}},
            {"name": "f", "type": {"type": "fixed", "name": "f5", "size": 5}},
            {"name": "x", "type": "double"},
            {"name": "y", "type": ["float", "null", "boolean"]},
            {"name": "in", "type": inner},
            {"name": "id", "type": "long"},
        ],
    }
    value = {
        "tree": {"v": 1, "next": {"v": 2, "next": None}},
        "many": [{"k": b"v"}, {}],
        "f": b"12345",
        "x": 1.5,
        "y": True,
        "in": {"a": 1, "b": "s"},
        "id": 9,
    }
    schema = Schema.of(id=BIGINT, missing=STRING, **{"in": row(("b", STRING), ("z", INT))})
    decoded = read_as(writer, [value, value | {"y": None, "id": 10}], schema)
    assert rows(decoded) == [(9, None, {"b": "s", "z": None}), (10, None, {"b": "s", "z": None})]


@pytest.mark.parametrize(
    ("type", "target", "message"),
    [
        ("string", BIGINT, "field 'v': expected BIGINT, got string"),
        ("double", FLOAT, "expected FLOAT, got double"),
        (["null", "string"], BIGINT, "expected BIGINT, got string"),
        ({"type": "array", "items": "string"}, array(INT), "expected INT, got string"),
        ("long", row(("a", INT)), "got long"),
        ({"type": "long", "logicalType": "time-micros"}, timestamp(3), "got time-micros"),
    ],
)
def test_types_that_do_not_fit_are_told_by_field(type: Any, target: DataType, message: str) -> None:
    with pytest.raises(MisfitError, match=message.replace("(", r"\(")):
        field_of(type, [], target)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "in the middle of a value"),
        (b"\x02", "in the middle of a value"),
        (b"\x02\x02", "in the middle of a value"),
        (b"\x02\x02\x02\x04a", "in the middle of a value"),
        (b"\x02\x02\x02\x03a", "length is negative"),
        (b"\x02\x02\x02\x02\xff", "not UTF-8"),
        (b"\x04\x02\x00", "branch 2 of a union that has 2"),
        (b"\x01\x02\x00", "branch -1 of a union that has 2"),
        (b"\x02" + b"\xff" * 11, "more than 64 bits"),
        (b"\x02" + b"\xff" * 9 + b"\x02\x00", "more than 64 bits"),
        (b"\x02\x02\x00garbage", "7 bytes are left behind the row"),
    ],
)
def test_broken_records_are_told_apart_from_good_ones(record: bytes, reason: str) -> None:
    schema = Schema.of(id=BIGINT, name=STRING)
    good = b"\x02\x0e\x02\x06abc"
    decoded = decoder("avro", schema).decode(messages_chunk(pa.array([good, record, good], pa.binary())))
    assert rows(decoded) == [(7, "abc")] * 2
    assert decoded.records.tolist() == [0, 2]
    assert [b.index for b in decoded.bad] == [1]
    assert reason in decoded.bad[0].reason


@pytest.mark.parametrize(
    ("type", "value", "target", "reason"),
    [
        ("int", 300, TINYINT, "300 is no TINYINT"),
        ("long", 2**40, INT, "is no INT"),
        ("long", 10**6, decimal(5, 2), "is no DECIMAL"),
        ("boolean", None, BOOLEAN, "neither 0 nor 1"),
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000, time(3), "no time of a day"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62, timestamp(9), "no TIMESTAMP"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 0},
            None,
            decimal(5, 0),
            "is no DECIMAL",
        ),
        (["null", "int", "string"], "s", INT, "a string is no INT"),
    ],
)
def test_values_out_of_range_are_told(type: Any, value: Any, target: DataType, reason: str) -> None:
    plain = type["type"] if isinstance(type, dict) else type
    record = lambda v, t: their_records(fastavro.parse_schema(t), [v])[0]  # noqa: E731
    raw = {"boolean": b"\x02", "bytes": record(b"\x7f" * 5, "bytes")}.get(plain if isinstance(plain, str) else "")
    data = raw if value is None and raw is not None else record(value, plain)
    writer = {"type": "record", "name": "r", "fields": [{"name": "v", "type": type}]}
    decoded = AvroReader(parse_schema(json.dumps(writer)), Schema.of(v=target)).read(lines_chunk([data]))
    assert not decoded.columns.num_rows
    assert reason in decoded.bad[0].reason


def test_many_items_that_take_no_bytes_take_no_memory() -> None:
    for items in ("null", {"type": "record", "name": "empty", "fields": []}):
        writer = {"type": "record", "name": "r", "fields": [{"name": "v", "type": {"type": "array", "items": items}}]}
        bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"
        for schema in (Schema.of(v=array(NULL if items == "null" else row())), Schema.of(other=INT)):
            decoded = AvroReader(parse_schema(json.dumps(writer)), schema).read(lines_chunk([bomb, b"\x04\x00"]))
            assert "items are announced" in decoded.bad[0].reason
            assert decoded.records.tolist() == [1]


def test_a_value_within_itself_without_end_is_a_bad_record() -> None:
    writer = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "v", "type": ["null", "r"]}, {"name": "id", "type": "int"}],
    }
    reader = AvroReader(parse_schema(json.dumps(writer)), Schema.of(id=INT))
    decoded = reader.read(lines_chunk([b"\x02" * 100_000, b"\x02\x00\x0c\x04"]))
    assert "contains itself" in decoded.bad[0].reason
    assert rows(decoded) == [(2,)]


@pytest.mark.parametrize("size", [3, 40, 400])
def test_random_bytes_never_raise_and_never_take_much_memory(size: int) -> None:
    source = random.Random(size)
    reader = AvroReader(parse_schema(schema_text(EVERYTHING, legacy_timestamps=False)), EVERYTHING)
    good = AvroEncoder(EVERYTHING).encode_messages(sample_rows(EVERYTHING, 100)).to_pylist()
    records = [bytes(source.choice((0, 2, 4, source.randrange(256))) for _ in range(size)) for _ in range(200)]
    for record in good:
        changed = bytearray(record)
        changed[source.randrange(len(changed))] = source.randrange(256)
        records += [bytes(changed), record[: source.randrange(len(record))]]
    source.shuffle(records)
    tracemalloc.start()
    decoded = reader.read(messages_chunk(pa.array(records, pa.binary())))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    decoded.columns.validate(full=True)
    assert peak < 64 << 20
    assert sorted([*decoded.records.tolist(), *(b.index for b in decoded.bad)]) == list(range(len(records)))
    for index, record in enumerate(records[:20]):  # a record means the same alone
        alone = reader.read(messages_chunk(pa.array([record], pa.binary())))
        assert bool(alone.bad) == (index in {b.index for b in decoded.bad})
        if not alone.bad:
            at = decoded.records.tolist().index(index)
            assert alone.columns.equals(decoded.columns.slice(at, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("7", "no Avro type"),
        ('{"type": "record", "name": "r"}', "has no fields"),
        ('{"type": "record", "fields": []}', "has no name"),
        ('{"type": "array"}', "null is no Avro type"),
        ('"other"', "uses the type 'other'"),
        ('["int", ["null"]]', "none of them is a union"),
        ('{"type": "fixed", "name": "f", "size": 1e9}', "needs a size"),
        ('{"type": "enum", "name": "e"}', "no symbols"),
        ('[{"type": "fixed", "name": "f", "size": 1}, {"type": "fixed", "name": "f", "size": 1}]', "twice"),
        ('{"type": "array", "items": ' * 200 + '"int"' + "}" * 200, "levels deep"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_schema_is_told(text: str, message: str) -> None:
    with pytest.raises(AvroSchemaError, match=message):
        parse_schema(text)


def test_types_of_other_schemas_can_be_used() -> None:
    found = parse_schema(
        '{"type": "record", "name": "a.r", "fields": [{"name": "x", "type": "a.f"}, {"name": "y", "type": "f"}]}',
        {"a.f": '{"type": "fixed", "name": "f", "namespace": "a", "size": 2}'},
    )
    assert [child.size for child in found.children] == [2, 2]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (Schema.of(v=INTERVAL_DAY_TIME), "which Avro cannot hold"),
        (Schema.of(v=time(9)), "end at microseconds"),
        (Schema.of(v=map_of(INT, INT)), "keys of Avro's maps are text"),
        (Schema.of(**{"a b": INT}), "no name for a field in Avro"),
    ],
)
def test_columns_that_avro_cannot_hold_are_refused(schema: Schema, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        record_format("avro").check(schema, options_of("avro"))


def test_the_json_encoding_is_refused_in_words() -> None:
    with pytest.raises(OptionError, match="not supported"):
        record_format("avro").check(EVERYTHING, options_of("avro", avro__encoding="json"))
