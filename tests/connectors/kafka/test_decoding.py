"""Messages become rows: values, keys, metadata, tombstones and what cannot be read, without a broker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from flowrun.connectors.kafka.connector import KAFKA
from flowrun.connectors.kafka.decoding import DecodedMessages, MessageDecoder
from flowrun.connectors.kafka.messages import METADATA, by_partition
from flowrun.core import types as t
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.plan.tables import create_sink
from tests.connectors.kafka.tables import reference, source

confluent_kafka = pytest.importorskip("confluent_kafka")
Row = tuple[Any, ...]


def message(offset: int, value: bytes | None, key: bytes | None = None, **more: Any) -> Any:
    given = {"topic": "t", "partition": 1, "timestamp": (1, 1000 + offset), "leader_epoch": 3, **more}
    return confluent_kafka.Message(offset=offset, value=value, key=key, **given)


def decode(
    messages: list[Any], schema: Schema, options: dict[str, Any], *, read: Schema | None = None, **more: Any
) -> DecodedMessages:
    if more.get("connector") is None:
        options = {"scan.startup.mode": "earliest-offset", **options}
    made = source(schema if read is None else read, options, declared=schema, **more)
    decoder = MessageDecoder(made.schema, made.metadata, made.layout, upsert=made.upsert)
    (only,) = by_partition(messages)
    return decoder.decode(only)


def rows(decoded: DecodedMessages) -> list[Row]:
    return [tuple(r.values()) for r in decoded.rows.columns.to_pylist()]


ID_NAME = Schema.of(id=t.BIGINT, name=t.STRING)


def test_values_are_rows_and_offsets_say_where_to_go_on() -> None:
    found = decode([message(4, b'{"id": 1}'), message(9, b'{"id": 2, "name": "b"}')], ID_NAME, {})
    assert rows(found) == [(1, None), (2, "b")]
    assert found.offsets.tolist() == [4, 9]
    assert found.next_offset == 10


def test_a_message_without_value_is_no_row() -> None:
    found = decode([message(0, None), message(1, b'{"id": 1}'), message(2, None)], ID_NAME, {})
    assert rows(found) == [(1, None)]
    assert (found.tombstones, found.next_offset) == (2, 3)


def test_a_raw_message_without_value_is_a_row_as_in_flink() -> None:
    schema = Schema((Field("v", t.STRING), Field("place", t.BIGINT)))
    messages = [message(0, None), message(1, b"a"), message(2, b""), message(3, None)]
    found = decode(messages, schema, {}, format="raw", metadata={"place": "offset"})
    assert rows(found) == [(None, 0), ("a", 1), ("", 2), (None, 3)]
    assert (found.offsets.tolist(), found.tombstones, found.next_offset) == ([0, 1, 2, 3], 0, 4)
    required = decode(messages, Schema((Field("v", t.STRING, False),)), {}, format="raw")
    assert rows(required) == [("a",), ("",)]
    assert [(b.offset, b.value) for b in required.bad] == [(0, None), (3, None)]


def test_what_cannot_be_read_is_known_by_its_offset() -> None:
    found = decode([message(5, b"{"), message(6, b'{"id": 1}'), message(7, b'{"id": "x"}')], ID_NAME, {})
    assert rows(found) == [(1, None)]
    assert [(b.offset, b.raw) for b in found.bad] == [(5, b"{"), (7, b'{"id": "x"}')]
    assert "'id'" in found.bad[1].reason


def test_all_metadata_of_a_message() -> None:
    schema = Schema((Field("id", t.BIGINT), *(Field(key, kind) for key, kind in METADATA)))
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    keys = {key: key for key, _ in METADATA}
    messages = [
        message(7, b'{"id": 1}', headers=headers),
        message(8, b'{"id": 2}', timestamp=(0, -1)),
    ]
    first, second = rows(decode(messages, schema, {}, metadata=keys))
    assert first[1:4] == ("t", 1, 7)
    assert first[4].timestamp() == pytest.approx(1.007)
    assert first[5:] == ("CreateTime", [("a", b"2"), ("b", None)], 3)
    assert second[4:] == (None, "NoTimestampType", [], 3)


KEYED = {"key.format": "json", "key.fields": "k_id", "key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"}
KEY_ROWS = Schema.of(k_id=t.BIGINT, id=t.BIGINT)


def test_columns_of_the_key_come_from_it() -> None:
    messages = [message(0, b'{"id": 1}', b'{"id": 10}'), message(1, b'{"id": 2}'), message(2, b'{"id": 3}', b"{")]
    found = decode(messages, KEY_ROWS, KEYED)
    assert rows(found) == [(10, 1), (None, 2)]
    assert [(b.offset, b.raw) for b in found.bad] == [(2, b"{")]
    assert found.bad[0].reason.startswith("key: ")


def test_a_key_that_nobody_asks_for_is_not_decoded() -> None:
    found = decode([message(0, b'{"id": 1}', b"{")], KEY_ROWS, KEYED, read=Schema.of(id=t.BIGINT))
    assert rows(found) == [(1,)]
    assert decode([message(0, b"{}", b"{")] * 2, KEY_ROWS, KEYED, read=Schema(())).rows.num_rows == 2


UPSERT: dict[str, Any] = {"connector": "upsert-kafka", "primary_key": ("id",), "format": None}
UPSERT_OPTIONS = {"key.format": "raw", "value.format": "json"}
UPSERT_ROWS = Schema((Field("id", t.STRING, False), Field("n", t.BIGINT)))


def test_upserts_set_the_row_of_a_key_and_delete_it_without_a_value() -> None:
    messages = [
        message(0, b'{"id": "a", "n": 1}', b"a"),
        message(1, None, b"b"),
        message(2, b'{"id": "b", "n": 2}', b"b"),
        message(3, None, b"a"),
    ]
    found = decode(messages, UPSERT_ROWS, UPSERT_OPTIONS, **UPSERT)
    assert rows(found) == [("a", 1), ("b", None), ("b", 2), ("a", None)]
    kinds = found.rows.row_kinds
    assert kinds is not None
    assert [RowKind(k).symbol for k in kinds.to_pylist()] == ["+U", "-D", "+U", "-D"]
    assert found.offsets.tolist() == [0, 1, 2, 3]
    assert not found.bad


def test_an_upsert_without_key_is_no_row() -> None:
    found = decode(
        [message(0, b'{"id": "a"}'), message(1, None), message(2, b"{}", b"a")], UPSERT_ROWS, UPSERT_OPTIONS, **UPSERT
    )
    assert rows(found) == [("a", None)]
    assert [b.offset for b in found.bad] == [0, 1]
    assert "no key" in found.bad[0].reason


def test_messages_of_several_partitions_are_kept_apart_in_order() -> None:
    messages = [message(i, b"{}", topic="ab"[i % 2], partition=i % 3) for i in range(12)]
    groups = by_partition(messages)
    assert sorted((g.partition.topic, g.partition.number, g.offsets.tolist()) for g in groups) == sorted(
        ("ab"[i % 2], i % 3, [i, i + 6]) for i in range(6)
    )
    assert groups[0].before(6).offsets.tolist() == groups[0].offsets.tolist()[:1]


def test_changes_of_a_value_stay_with_their_message() -> None:
    update = b'{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op": "u"}'
    found = decode([message(3, update), message(4, b'{"op": "x"}')], ID_NAME, {}, format="debezium-json")
    assert rows(found) == [(1, "a"), (1, "b")]
    assert found.offsets.tolist() == [3, 3]
    assert [b.offset for b in found.bad] == [4]


_SCHEMA_ELSEWHERE = ("avro-confluent", "debezium-avro-confluent", "protobuf")
SIMPLE = tuple(f for f in KAFKA.formats if f not in _SCHEMA_ELSEWHERE)


@pytest.mark.parametrize("format", SIMPLE)
def test_a_poisoned_message_of_any_format_is_known_by_its_offset(format: str) -> None:
    schema = Schema.of(name=t.STRING)
    options: dict[str, Any] = {"format": format}
    encoder = create_sink(reference({}, **options), schema, unbounded=True).encoder()  # type: ignore[attr-defined]
    (good,) = encoder.encode(RecordBatch(pa.record_batch({"name": ["a"]}, schema.arrow))).column("value").to_pylist()
    found = decode([message(0, good), message(1, b"\xff\xfe"), message(2, good)], schema, {}, **options)
    assert rows(found) == [("a",), ("a",)]
    assert [(b.offset, b.raw) for b in found.bad] == [(1, b"\xff\xfe")]
    assert found.offsets.tolist() == [0, 2]
