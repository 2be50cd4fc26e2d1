"""Rows become messages, without a broker."""

from __future__ import annotations

import datetime
import threading
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.changelog import ChangesTaken, changes_taken_by
from flowrun.api.source import Delivery
from flowrun.connectors.kafka.encoding import WRITABLE
from flowrun.connectors.kafka.partitioner import FIXED, ROUND_ROBIN, PartitionChooser
from flowrun.connectors.kafka.sink import KafkaSink
from flowrun.connectors.kafka.transactions import _within
from flowrun.core import types as t
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.errors import ConnectorError, DataError, OptionError
from tests.connectors.kafka.tables import sink

ROWS = Schema((Field("k_id", t.BIGINT, False), Field("name", t.STRING)))
KEYED = {"key.format": "json", "key.fields": "k_id", "key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"}
UPSERT: dict[str, Any] = {"connector": "upsert-kafka", "primary_key": ("k_id",)}
UPSERT_OPTIONS = {"key.format": "json", "value.format": "json"}
EXACTLY_ONCE = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"}
ADD, UB, UA, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


def made(schema: Schema, options: dict[str, Any], **more: Any) -> KafkaSink:
    found = sink(schema, options, **more)
    assert isinstance(found, KafkaSink)
    return found


def batch(schema: Schema, rows: list[tuple[Any, ...]], kinds: list[RowKind] | None = None) -> RecordBatch:
    columns = [pa.array([r[i] for r in rows], f.type.arrow) for i, f in enumerate(schema)]
    return RecordBatch(
        pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        None,
        None if kinds is None else pa.array(kinds, pa.int8()),
    )


def encoded(found: KafkaSink, rows: list[tuple[Any, ...]], kinds: list[RowKind] | None = None) -> list[dict[str, Any]]:
    return found.encoder().encode(batch(found.schema, rows, kinds)).to_pylist()


def test_a_row_is_a_message_and_its_key_has_a_format_of_its_own() -> None:
    assert [m["value"] for m in encoded(made(ROWS, {}), [(1, "a"), (2, None)])] == [
        b'{"k_id":1,"name":"a"}',
        b'{"k_id":2,"name":null}',
    ]
    (message,) = encoded(made(ROWS, KEYED), [(1, "a")])
    assert (message["key"], message["value"], message["partition"]) == (b'{"id":1}', b'{"name":"a"}', None)


def test_a_raw_null_is_no_key_and_no_value() -> None:
    schema = Schema.of(k=t.BIGINT, v=t.STRING)
    options = {"key.format": "raw", "key.fields": "k", "value.format": "raw", "value.fields-include": "EXCEPT_KEY"}
    messages = encoded(made(schema, options), [(1, "a"), (None, "b"), (2, None), (3, "")])
    assert [(m["key"], m["value"]) for m in messages] == [
        (b"\0\0\0\0\0\0\0\1", b"a"),
        (None, b"b"),
        (b"\0\0\0\0\0\0\0\2", None),
        (b"\0\0\0\0\0\0\0\3", b""),
    ]


def test_changes_are_written_by_formats_that_carry_them() -> None:
    found = made(ROWS, {}, format="debezium-json", updating=True)
    assert changes_taken_by(found) is ChangesTaken.ALL
    assert b'"op":"d"' in encoded(found, [(1, "a")], [DEL])[0]["value"]
    assert changes_taken_by(made(ROWS, {})) is ChangesTaken.APPEND


def test_upserts_write_the_last_row_of_each_key_and_nothing_for_deleted_ones() -> None:
    found = made(ROWS, UPSERT_OPTIONS, **UPSERT)
    assert changes_taken_by(found) is ChangesTaken.UPSERT
    rows = [(1, "a"), (2, "b"), (1, "a"), (1, "c"), (2, "b"), (3, "d"), (4, "e")]
    messages = encoded(found, rows, [ADD, ADD, UB, UA, DEL, UA, UB])
    assert [(m["key"], m["value"]) for m in messages] == [
        (b'{"k_id":1}', b'{"k_id":1,"name":"c"}'),
        (b'{"k_id":2}', None),
        (b'{"k_id":3}', b'{"k_id":3,"name":"d"}'),
        (b'{"k_id":4}', None),
    ]


def test_rows_say_what_their_message_is() -> None:
    schema = Schema((Field("id", t.BIGINT), *(Field(key, kind) for key, kind in WRITABLE)))
    found = made(schema, {"topic": "a;b"}, written_metadata={key: key for key, _ in WRITABLE})
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    first, second = encoded(found, [(1, "b", moment, [("h", b"x")]), (2, "a", None, None)])
    assert (first["topic"], first["timestamp"], first["headers"]) == ("b", 1_704_067_200_000, [("h", b"x")])
    assert first["value"] == b'{"id":1}'
    assert (second["timestamp"], second["headers"]) == (None, None)
    with pytest.raises(DataError, match="names topic 'c', which is not one of a, b") as raised:
        encoded(found, [(1, "b", None, None), (2, "c", None, None)])
    assert raised.value.row == 1


def test_rows_name_topics_that_the_pattern_matches() -> None:
    schema = Schema.of(id=t.BIGINT, topic=t.STRING)
    found = made(schema, {"topic": None, "topic-pattern": "a+"}, written_metadata={"topic": "topic"})
    assert [m["topic"] for m in encoded(found, [(1, "aa"), (2, "a")])] == ["aa", "a"]
    with pytest.raises(DataError, match=r"names topic 'ab', which is not matched by 'a\+'") as raised:
        encoded(found, [(1, "a"), (2, "ab")])
    assert raised.value.row == 1
    with pytest.raises(DataError, match="names no topic"):
        encoded(found, [(1, None)])


@pytest.mark.parametrize("ms", [0, -1, -5])
def test_times_that_mean_something_else_to_kafka_are_refused(ms: int) -> None:
    schema = Schema.of(id=t.BIGINT, ts=t.timestamp_ltz(3))
    found = made(schema, {}, written_metadata={"ts": "timestamp"})
    moment = datetime.datetime.fromtimestamp(0, datetime.UTC)
    with pytest.raises(DataError, match="must be later than 1970-01-01 00:00:00 UTC") as raised:
        encoded(found, [(1, moment + datetime.timedelta(seconds=1)), (2, moment + datetime.timedelta(milliseconds=ms))])
    assert raised.value.row == 1


def test_a_row_that_lacks_a_value_is_refused() -> None:
    with pytest.raises(DataError, match="'k_id' is NOT NULL"):
        encoded(made(ROWS, {}), [(None, "a")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink.delivery-guarantee": "exactly-once"}, "needs 'sink.transactional-id-prefix'"),
        ({"topic": "a;b"}, "no column says which one"),
        ({"topic": None, "topic-pattern": "a.*"}, "no column says which one"),
        ({**KEYED, "sink.partitioner": "round-robin"}, "deal messages with one key"),
        ({"properties.transactional.id": "mine"}, "transactions are named by the sink"),
        ({**EXACTLY_ONCE, "properties.acks": "1"}, "needs 'properties.acks' = 'all'"),
        ({**EXACTLY_ONCE, "properties.enable.idempotence": "false"}, "needs 'properties.enable.idempotence' = 'true'"),
        ({"sink.partitioner": "com.example.Mine"}, "must be one of default, fixed, round-robin"),
    ],
)
def test_what_does_not_fit_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        sink(ROWS, options)


def test_upserts_are_gathered_with_both_options_or_none() -> None:
    both = {"sink.buffer-flush.max-rows": 5, "sink.buffer-flush.interval": "1 s"}
    assert made(ROWS, {**UPSERT_OPTIONS, **both}, **UPSERT).most_rows == 5
    with pytest.raises(OptionError, match="must both be 0, or both more"):
        sink(ROWS, {**UPSERT_OPTIONS, "sink.buffer-flush.max-rows": 5}, **UPSERT)
    with pytest.raises(OptionError, match="cannot use format 'debezium-json'"):
        sink(ROWS, {**UPSERT_OPTIONS, "value.format": "debezium-json"}, **UPSERT)


def test_what_is_promised() -> None:
    exactly = {**EXACTLY_ONCE, "properties.acks": "-1", "properties.enable.idempotence": "true"}
    assert made(ROWS, exactly).delivery is Delivery.EXACTLY_ONCE
    assert made(ROWS, exactly).create_committer() is not None
    assert made(ROWS, {}).create_committer() is None
    assert made(ROWS, {"sink.delivery-guarantee": "none"}).delivery is Delivery.AT_MOST_ONCE


class Topics:
    def partitions(self, topic: str) -> int:
        return 3


def chosen(kind: str, subtask: int, *counts: int) -> list[list[int]]:
    chooser = PartitionChooser(kind, ("t",), subtask)
    chooser.open(Topics())
    encoder = made(ROWS, {}).encoder()
    return [chooser.chosen(encoder.encode(batch(ROWS, [(1, "a")] * n))).column("partition").to_pylist() for n in counts]


def test_partitions_are_chosen_for_a_subtask_or_in_turn() -> None:
    assert chosen(FIXED, 4, 2, 1) == [[1, 1], [1]]
    assert chosen(ROUND_ROBIN, 1, 2, 3) == [[1, 2], [0, 1, 2]]


def test_a_call_of_the_client_that_never_returns_is_left_behind() -> None:
    ended = threading.Event()
    with pytest.raises(ConnectorError, match="has not answered"):
        _within(ended.wait, 0.01)
    ended.set()
    assert _within(lambda: 5, 10) == 5
    with pytest.raises(DataError, match="as it is"):
        _within(partial(fail, DataError("as it is")), 10)


def fail(error: Exception) -> None:
    raise error
