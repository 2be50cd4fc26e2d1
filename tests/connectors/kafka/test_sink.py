"""The sink against a real broker: what is there when, and what happens when things go wrong."""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.sink import Committable, SinkWriter
from flowrun.connectors.kafka.encoding import MESSAGES
from flowrun.connectors.kafka.sink import KafkaSink
from flowrun.connectors.kafka.transactions import KafkaTransactions
from flowrun.connectors.staged.commit import StagedCommit
from flowrun.core import types as t
from flowrun.core.elements import RowKind
from flowrun.core.schema import Field, Schema
from flowrun.errors import ConnectorError, DataError, OptionError
from flowrun.testing.connector_conformance import SourceDrive, check_sink, rows_in, writer_context
from tests.connectors.kafka.tables import sink, source
from tests.connectors.kafka.test_encoding import batch
from tests.servers.kafka import KafkaBroker

pytestmark = pytest.mark.exhaustive

IDS = Schema.of(id=t.BIGINT)


def writing(
    broker: KafkaBroker, topic: str, schema: Schema = IDS, options: dict[str, Any] | None = None, **more: Any
) -> KafkaSink:
    given = {"topic": topic, "properties.bootstrap.servers": broker.bootstrap, **(options or {})}
    made = sink(schema, given, **more)
    assert isinstance(made, KafkaSink)
    return made


def exactly_once(broker: KafkaBroker, topic: str, **properties: str) -> KafkaSink:
    options = {f"properties.{k.replace('_', '.')}": v for k, v in properties.items()}
    guarantee = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": f"p-{topic}"}
    return writing(broker, topic, IDS, {**guarantee, **options})


def write(made: KafkaSink, *ids: int, staging: str = "") -> list[Committable]:
    writer = made.create_writer(writer_context(staging=staging))
    writer.open()
    try:
        writer.write(batch(IDS, [(i,) for i in ids]))
        writer.flush(True)
        return list(writer.prepare_commit())
    finally:
        writer.close()


def ids(broker: KafkaBroker, topic: str) -> list[int]:
    return sorted(json.loads(v)["id"] for v in broker.values(topic))


def test_what_is_flushed_is_there(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(3)
    assert write(writing(kafka, topic), *range(20_000)) == []
    assert ids(kafka, topic) == list(range(20_000))


def test_an_exactly_once_sink_keeps_the_contract(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.create_topic(2)
    batches = [batch(IDS, [(i,) for i in range(start, start + 3)]) for start in (0, 3, 6)]
    made = exactly_once(kafka, topic)
    staging = str(tmp_path / "state" / "staged")
    check_sink(made, batches, lambda: [(i,) for i in ids(kafka, topic)], staging=staging)


def test_keys_go_where_javas_clients_put_them(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(5)
    schema = Schema.of(k=t.STRING, v=t.STRING)
    made = writing(kafka, topic, schema, {"key.format": "raw", "key.fields": "k"})
    writer = made.create_writer(writer_context())
    writer.open()
    writer.write(batch(schema, [(k, "x") for k in ("21", "foobar", "a-little-bit-long-string", "abc")]))
    writer.flush(True)
    writer.close()
    # Java: Utils.toPositive(Utils.murmur2(key)) % 5, whose hashes are -973932308, -790332482, -985981536 and 479470107
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    expected = {key: (value & 0x7FFFFFFF) % 5 for key, value in hashes.items()}
    assert {m.key(): m.partition() for m in kafka.messages(topic)} == expected


def test_what_rows_say_of_their_message_is_written(kafka: KafkaBroker) -> None:
    topics = [kafka.create_topic(1) for _ in range(2)]
    schema = Schema(
        (
            Field("id", t.BIGINT),
            Field("topic", t.STRING),
            Field("ts", t.timestamp_ltz(3)),
            Field("h", t.map_of(t.STRING, t.BYTES)),
        )
    )
    metadata = {"topic": "topic", "ts": "timestamp", "h": "headers"}
    made = writing(kafka, ";".join(topics), schema, {"sink.partitioner": "fixed"}, written_metadata=metadata)
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    writer = made.create_writer(writer_context())
    writer.open()
    writer.write(batch(schema, [(1, topics[1], moment, [("a", b"x")]), (2, topics[0], None, None)]))
    writer.flush(True)
    writer.close()
    (message,) = kafka.messages(topics[1])
    assert message.value() == b'{"id":1}'
    assert message.headers() == [("a", b"x")]
    assert message.timestamp() == (1, 1_704_067_200_000)
    assert kafka.values(topics[0]) == [b'{"id":2}']


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_times_alone_are_written(kafka: KafkaBroker, tmp_path: Path, guarantee: str) -> None:
    topic = kafka.create_topic(1)
    schema = Schema((Field("id", t.BIGINT), Field("ts", t.timestamp_ltz(3))))
    options = {"sink.delivery-guarantee": guarantee, "sink.transactional-id-prefix": "times"}
    made = writing(kafka, topic, schema, options, written_metadata={"ts": "timestamp"})
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    writer = made.create_writer(writer_context(staging=str(tmp_path / "staged")))
    writer.open()
    writer.write(batch(schema, [(1, moment), (2, None)]))
    writer.flush(True)
    committer = made.create_committer()
    if committer is not None:
        committer.commit(writer.prepare_commit())
    writer.close()
    first, second = kafka.messages(topic)
    assert first.timestamp() == (1, 1_704_067_200_000)
    assert second.timestamp()[1] > 1_704_067_200_000


@pytest.mark.parametrize("timed", [False, True])
def test_a_small_queue_of_the_client_is_waited_for(kafka: KafkaBroker, timed: bool) -> None:
    topic = kafka.create_topic(1)
    schema = Schema((Field("id", t.BIGINT), Field("ts", t.timestamp_ltz(3))))
    options = {"properties.queue.buffering.max.messages": 50}
    made = writing(kafka, topic, schema, options, written_metadata={"ts": "timestamp"})
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) if timed else None
    writer = made.create_writer(writer_context())
    writer.open()
    writer.write(batch(schema, [(i, moment) for i in range(1000)]))
    writer.flush(True)
    writer.close()
    assert [json.loads(v)["id"] for v in kafka.values(topic)] == list(range(1000))


def test_a_message_that_no_queue_holds_is_said(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    schema = Schema.of(id=t.BIGINT, text=t.STRING)
    made = writing(kafka, topic, schema, {"properties.queue.buffering.max.kbytes": 1})
    writer = made.create_writer(writer_context())
    writer.open()
    with pytest.raises(DataError, match="larger than the queue of the client"):
        writer.write(batch(schema, [(1, "x" * 2000)]))
    writer.close()


def test_a_row_may_name_any_topic_that_the_pattern_matches(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    schema = Schema((Field("id", t.BIGINT), Field("topic", t.STRING)))
    pattern = {"topic": None, "topic-pattern": f"{topic}|gone-.*"}
    made = writing(kafka, "", schema, pattern, written_metadata={"topic": "topic"})
    writer = made.create_writer(writer_context())
    writer.open()
    writer.write(batch(schema, [(1, topic)]))
    writer.flush(False)
    assert kafka.values(topic) == [b'{"id":1}']
    writer.write(batch(schema, [(2, "gone-1")]))
    with pytest.raises(ConnectorError, match="topic 'gone-1' does not exist"):
        writer.flush(True)
    writer.close()


UPSERT_ROWS = Schema((Field("id", t.BIGINT, False), Field("name", t.STRING)))
UPSERT: dict[str, Any] = {"connector": "upsert-kafka", "primary_key": ("id",)}
UPSERT_OPTIONS = {"key.format": "json", "value.format": "json"}


def test_upserts_are_read_back_as_they_were_written(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(2)
    made = writing(kafka, topic, UPSERT_ROWS, UPSERT_OPTIONS, **UPSERT)
    writer = made.create_writer(writer_context())
    writer.open()
    writer.write(batch(UPSERT_ROWS, [(1, "a"), (2, "b")]))
    writer.write(
        batch(
            UPSERT_ROWS, [(1, "a"), (1, "c"), (2, "b")], [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE]
        )
    )
    writer.flush(True)
    writer.close()
    options = {"topic": topic, "properties.bootstrap.servers": kafka.bootstrap, "scan.bounded.mode": "latest-offset"}
    drive = SourceDrive(source(UPSERT_ROWS, {**options, **UPSERT_OPTIONS}, **UPSERT))
    drive.run()
    drive.close()
    kinds = [k for b in drive.emitted if b.row_kinds is not None for k in b.row_kinds.to_pylist()]
    changes = sorted(zip(rows_in(drive.emitted), kinds, strict=True), key=str)
    assert changes == sorted([((1, "a"), 2), ((1, "c"), 2), ((2, "b"), 2), ((2, None), 3)], key=str)


def test_gathered_upserts_are_written_in_time(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    gather = {"sink.buffer-flush.max-rows": 3, "sink.buffer-flush.interval": "1 s"}
    made = writing(kafka, topic, UPSERT_ROWS, {**UPSERT_OPTIONS, **gather}, **UPSERT)
    context = writer_context()
    writer = made.create_writer(context)
    writer.open()
    for name in "ab":
        writer.write(batch(UPSERT_ROWS, [(1, name)]))
    context.processing_time.advance(1_000)  # type: ignore[attr-defined]
    writer.write(batch(UPSERT_ROWS, [(1, "c")]))
    writer.flush(False)
    writer.close()
    assert [json.loads(v)["name"] for v in kafka.values(topic)] == ["b", "c"]


def test_a_topic_that_is_not_there(kafka: KafkaBroker, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="topic 'nowhere' does not exist"):
        write(writing(kafka, "nowhere"), 1)
    with pytest.raises(ConnectorError, match="topic 'nowhere' does not exist"):
        write(exactly_once(kafka, "nowhere"), 1, staging=str(tmp_path / "staged"))


def test_a_topic_that_is_created_just_now(kafka: KafkaBroker) -> None:
    topic = f"t-{uuid.uuid4().hex[:10]}"
    creation = threading.Timer(0.5, kafka.create_topic, (1, topic))
    creation.start()
    write(writing(kafka, topic), 1)
    creation.join()
    assert len(kafka.values(topic)) == 1


def test_a_message_that_is_too_large(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1, max_message_bytes="2000")
    schema = Schema.of(v=t.STRING)
    writer = writing(kafka, topic, schema, format="raw").create_writer(writer_context())
    writer.open()
    with pytest.raises(DataError, match=f"topic '{topic}', partition 0: a message is larger than is allowed"):
        write_all(writer, schema, "x" * 5_000)
    writer.close()


def write_all(writer: SinkWriter, schema: Schema, value: str) -> None:
    writer.write(batch(schema, [(value,)]))
    writer.flush(True)


def test_rows_written_while_the_broker_is_away_are_there_once(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    made = writing(kafka, topic, options={"properties.reconnect.backoff.max.ms": "500"})
    writer = made.create_writer(writer_context())
    writer.open()
    writer.write(batch(IDS, [(1,)]))
    kafka.kill()
    writer.write(batch(IDS, [(2,)]))
    kafka.start()
    writer.flush(False)
    writer.close()
    assert ids(kafka, topic) == [1, 2]


def test_a_broker_that_stays_away_is_said_in_time(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    short = {"properties.delivery.timeout.ms": "1000", "properties.request.timeout.ms": "500"}
    writer = writing(kafka, topic, options=short).create_writer(writer_context())
    writer.open()
    kafka.kill()
    try:
        writer.write(batch(IDS, [(1,)]))
        with pytest.raises(ConnectorError, match=r"could not be delivered|does not answer"):
            writer.flush(False)
    finally:
        writer.close()
        kafka.start()


def commit(made: KafkaSink, committables: list[Committable]) -> None:
    committer = made.create_committer()
    assert committer is not None
    committer.commit(committables)


def test_a_commit_of_a_process_that_is_thought_dead_is_fenced(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.create_topic(1)
    made = exactly_once(kafka, topic)
    committables = write(made, 1, 2, staging=str(tmp_path / "staged"))
    (writer,) = {str(c.payload["writer"]) for c in committables}
    zombie = KafkaTransactions(made.cluster, topic, made.prefix)
    assert zombie.committed_number(writer) == 0

    def slowly() -> Iterator[pa.RecordBatch]:
        yield made.encoder().encode(batch(IDS, [(1,), (2,)]))
        commit(made, committables)  # somebody else has taken over meanwhile

    with pytest.raises(ConnectorError, match="ended from outside"):
        zombie.write(
            StagedCommit(writer, int(str(committables[0].payload["number"])), committables[0].commit_id, 2), slowly()
        )
    zombie.close()
    assert ids(kafka, topic) == [1, 2]


def test_a_transaction_that_the_broker_has_ended_is_made_again(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    made = exactly_once(kafka, topic, transaction_timeout_ms="1000")
    first = StagedCommit("job/sink/0", 1, "c-1", 1)

    def too_slowly() -> Iterator[pa.RecordBatch]:
        import time

        rows = made.encoder().encode(batch(IDS, [(1,)]))
        yield rows
        time.sleep(4)  # the broker looks twice a second
        yield rows

    target = KafkaTransactions(made.cluster, topic, made.prefix)
    assert target.committed_number("job/sink/0") == 0
    with pytest.raises(ConnectorError) as raised:
        target.write(first, too_slowly())
    assert raised.value.retryable
    target.close()
    assert target.committed_number("job/sink/0") == 0
    target.write(first, iter([made.encoder().encode(batch(IDS, [(1,)]))]))
    assert target.committed_number("job/sink/0") == 1
    target.close()
    assert ids(kafka, topic) == [1]


def test_commits_of_several_writers_take_place_together_or_not_at_all(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1, max_message_bytes="2000")
    made = exactly_once(kafka, topic)
    commits = [StagedCommit(f"job/sink/{i}", 7 + i, f"c-{i}", 1) for i in range(2)]
    rows = [made.encoder().encode(batch(IDS, [(i,)])) for i in range(2)]
    (large,) = rows[1].to_pylist()
    refused = pa.RecordBatch.from_pylist([{**large, "value": b"x" * 5_000}], MESSAGES)
    target = KafkaTransactions(made.cluster, topic, made.prefix)
    with pytest.raises(DataError, match="a message is larger than is allowed"):
        target.write_together([(commits[0], iter([rows[0]])), (commits[1], iter([refused]))])
    target.close()
    assert ids(kafka, topic) == []
    assert [target.committed_number(c.writer) for c in commits] == [0, 0]
    target.write_together([(commit, iter([each])) for commit, each in zip(commits, rows, strict=True)])
    target.close()
    assert ids(kafka, topic) == [0, 1]
    assert [target.committed_number(c.writer) for c in commits] == [7, 8], (
        "asked of the broker, as the target was closed"
    )
    target.close()


def test_what_is_recorded_is_known_to_a_new_process(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    made = exactly_once(kafka, topic)
    for number in (3, 4, 9):
        target = KafkaTransactions(made.cluster, topic, made.prefix)
        target.write(StagedCommit("job/sink/0", number, f"c-{number}", 0), iter(()))
        target.close()
        again = KafkaTransactions(made.cluster, topic, made.prefix)
        assert [again.committed_number(f"job/sink/{i}") for i in range(2)] == [number, 0]
        again.close()


def test_transactions_that_the_broker_does_not_allow_are_known_at_the_start(kafka: KafkaBroker, tmp_path: Path) -> None:
    made = exactly_once(kafka, kafka.create_topic(1), transaction_timeout_ms="3600000")
    with pytest.raises(OptionError, match="does not allow transactions of 3600000 ms"):
        write(made, 1, staging=str(tmp_path / "staged"))


def test_without_checkpoints_rows_are_written_as_they_come(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    assert write(exactly_once(kafka, topic), 1) == []
    assert ids(kafka, topic) == [1]


def test_a_message_that_is_too_large_for_a_transaction_is_said(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1, max_message_bytes="2000")
    made = exactly_once(kafka, topic)
    (large,) = made.encoder().encode(batch(IDS, [(1,)])).to_pylist()
    rows = pa.RecordBatch.from_pylist([{**large, "value": b"x" * 5_000}], MESSAGES)
    target = KafkaTransactions(made.cluster, topic, made.prefix)
    with pytest.raises(DataError, match="a message is larger than is allowed"):
        target.write(StagedCommit("job/sink/0", 1, "c-1", 1), iter([rows]))
    target.close()
    assert target.committed_number("job/sink/0") == 0
    target.close()
    assert kafka.values(topic) == []
