"""The source against a real broker: where it begins and ends, what it does when things change or go wrong."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowrun.api.source import Source
from flowrun.core import types as t
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError, OptionError
from flowrun.testing.connector_conformance import SourceDrive, check_source
from tests.connectors.kafka.tables import source
from tests.runtime.rpc.certificates import make_authority
from tests.servers.kafka import PASSWORD, USER, KafkaBroker

pytestmark = pytest.mark.exhaustive

IDS = Schema.of(id=t.BIGINT)
_PATIENCE_S = 60


def lines(*ids: int) -> list[bytes | None]:
    return [json.dumps({"id": i}).encode() for i in ids]


def reading(broker: KafkaBroker, topic: str, **options: Any) -> Source:
    given = {
        "topic": topic,
        "properties.bootstrap.servers": broker.bootstrap,
        "scan.startup.mode": "earliest-offset",
        **{k.replace("__", "-").replace("_", "."): v for k, v in options.items()},
    }
    return source(IDS, given)


def bounded(broker: KafkaBroker, topic: str, **options: Any) -> list[int]:
    """The ids of what a source reads up to what is there now."""
    with driving(reading(broker, topic, **{"scan_bounded_mode": "latest-offset", **options})) as drive:
        return sorted(i for (i,) in drive.run())


@contextmanager
def driving(made: Source, **more: Any) -> Iterator[SourceDrive]:
    drive = SourceDrive(made, **more)
    try:
        yield drive
    finally:
        drive.close()


def until(drive: SourceDrive, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"{len(drive.emitted)} batches so far"
        if not drive.step():
            time.sleep(0.001)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ids(drive: SourceDrive) -> list[int]:
    return [i for batch in drive.emitted for i in batch.columns.column("id").to_pylist()]


def read_until(drive: SourceDrive, count: int) -> list[int]:
    until(drive, lambda: len(ids(drive)) >= count)
    return sorted(ids(drive))


def test_a_bounded_source_keeps_the_contract(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(3)
    for partition in range(3):
        kafka.produce(topic, lines(*range(partition * 50, partition * 50 + 50)), partition=partition)
    made = reading(kafka, topic, scan_bounded_mode="latest-offset")
    check_source(made, [(i,) for i in range(150)], batch_rows=(1, 7, 1024), restarts=4)


def test_a_client_that_has_enough_messages_goes_on_soon(kafka: KafkaBroker) -> None:
    """By itself it waits a second whenever it holds enough of a partition: ten times here, as each answer of the broker is enough."""
    topic = kafka.create_topic(1)
    for first in range(0, 200, 20):
        kafka.produce(topic, lines(*range(first, first + 20)))
    few = {"properties_queued.min.messages": 1, "properties_max.partition.fetch.bytes": 700}
    began = time.monotonic()
    assert bounded(kafka, topic, **few) == list(range(200))
    assert time.monotonic() - began < 6


def test_where_a_source_begins_and_ends(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(2)
    kafka.produce(topic, lines(0, 1), partition=0, timestamp=1_000)
    kafka.produce(topic, lines(2, 3), partition=0, timestamp=2_000)
    kafka.produce(topic, lines(10), partition=1, timestamp=1_500)
    assert bounded(kafka, topic) == [0, 1, 2, 3, 10]
    assert bounded(kafka, topic, scan_startup_mode="latest-offset") == []
    at = {"scan_startup_mode": "timestamp", "scan_startup_timestamp__millis": 1_500}
    assert bounded(kafka, topic, **at) == [2, 3, 10]
    specific = {"scan_startup_mode": "specific-offsets", "scan_startup_specific__offsets": "partition:0,offset:3"}
    assert bounded(kafka, topic, **specific) == [3, 10]
    end = {"scan_bounded_mode": "timestamp", "scan_bounded_timestamp__millis": 1_500}
    assert bounded(kafka, topic, **end) == [0, 1]
    stop = {
        "scan_bounded_mode": "specific-offsets",
        "scan_bounded_specific__offsets": "partition:0,offset:1;partition:1,offset:0",
    }
    assert bounded(kafka, topic, **stop) == [0]
    some = {**stop, "scan_bounded_specific__offsets": "partition:1,offset:1"}
    with pytest.raises(ConnectorError, match="names no offset for partition 0"):
        bounded(kafka, topic, **some)


def test_offsets_are_committed_after_the_checkpoint_that_holds_them_and_a_group_begins_there(
    kafka: KafkaBroker,
) -> None:
    topic = kafka.create_topic(1)
    group = {"scan_startup_mode": "group-offsets", "properties_group_id": f"g-{topic}"}
    with pytest.raises(ConnectorError, match="has committed no offset for partition 0"):
        bounded(kafka, topic, **group)
    kafka.produce(topic, lines(0, 1, 2))
    with driving(reading(kafka, topic, **{**group, "properties_auto_offset_reset": "earliest"})) as drive:
        assert read_until(drive, 3) == [0, 1, 2]
        (reader,) = drive.readers
        reader.snapshot()
        reader.notify_snapshot(1)  # type: ignore[attr-defined]
        kafka.produce(topic, lines(3))
        read_until(drive, 4)
        reader.notify_checkpoint_complete(1)
        until(drive, lambda: drive.metrics.counter("commitsSucceeded").count == 1)
    assert bounded(kafka, topic, **group) == [3], "not what came behind the checkpoint"


def test_new_partitions_are_found_and_read_from_their_beginning(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    made = reading(kafka, topic, scan_startup_mode="latest-offset")
    with driving(made, parallelism=2) as drive:
        kafka.produce(topic, lines(0))
        assert read_until(drive, 1) == [0]
        kafka.add_partitions(topic, 3)
        for partition in (1, 2):
            kafka.produce(topic, lines(partition * 10), partition=partition)
        drive.enumerator.discover()
        assert read_until(drive, 3) == [0, 10, 20]
        state, splits = drive.snapshot()
    kafka.add_partitions(topic, 4)
    kafka.produce(topic, lines(30), partition=3)
    with driving(made, enumerator_state=state, restored=splits) as again:
        assert read_until(again, 1) == [30], "what came while nobody read"


def test_a_pattern_reads_all_topics_that_match(kafka: KafkaBroker) -> None:
    topics = [kafka.create_topic(name=f"pattern-{i}") for i in range(2)]
    for i, topic in enumerate(topics):
        kafka.produce(topic, lines(i))
    given = {"topic": None, "topic-pattern": "pattern-.*", "scan.bounded.mode": "latest-offset"}
    options = {"properties.bootstrap.servers": kafka.bootstrap, "scan.startup.mode": "earliest-offset", **given}
    with driving(source(IDS, options)) as drive:
        assert sorted(drive.run()) == [(0,), (1,)]


def transactional(broker: KafkaBroker, topic: str, values: list[bytes | None], *, commit: bool | None) -> Any:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"x-{topic}-{values[0]!r}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(30)
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return producer


def test_only_committed_messages_are_read(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    transactional(kafka, topic, lines(0, 1), commit=True)
    transactional(kafka, topic, lines(2, 3), commit=False)
    assert bounded(kafka, topic) == [0, 1], "the end is a mark of a transaction, at which no message stands"
    open_ = transactional(kafka, topic, lines(4), commit=None)
    kafka.produce(topic, lines(5))
    assert bounded(kafka, topic) == [0, 1], "what is behind an open transaction waits"
    assert bounded(kafka, topic, properties_isolation_level="read_uncommitted") == [0, 1, 2, 3, 4, 5]
    open_.abort_transaction(30)
    assert bounded(kafka, topic) == [0, 1, 5]


def test_a_message_that_is_no_row_says_where_it_is(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(2)
    kafka.produce(topic, [*lines(0), b"{", *lines(1)], partition=1)
    with pytest.raises(DataError, match=f"topic '{topic}', partition 1, offset 1: ") as raised:
        bounded(kafka, topic)
    assert "format.on-error" in str(raised.value.hint)
    with driving(reading(kafka, topic, scan_bounded_mode="latest-offset", **{"format_on__error": "skip"})) as drive:
        assert sorted(drive.run()) == [(0,), (1,)]
        assert drive.metrics.counter("numRecordsSkipped").count == 1


def test_lag_is_what_is_behind_the_position(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, lines(*range(50)))
    with driving(reading(kafka, topic), batch_rows=10) as drive:
        until(drive, lambda: bool(drive.emitted))
        wait_for(lambda: drive.metrics.gauges["pendingRecords"]() == 40)
        read_until(drive, 50)
        assert drive.metrics.gauges["pendingRecords"]() == 0


def test_a_topic_that_is_not_there(kafka: KafkaBroker) -> None:
    kafka.create_topic(name="orders-typo")
    with pytest.raises(ConnectorError, match="topic 'orders-tipo' does not exist") as raised:
        bounded(kafka, "orders-tipo")
    assert "orders-typo" in str(raised.value.hint)


def test_a_topic_that_is_created_just_now(kafka: KafkaBroker) -> None:
    topic = f"t-{uuid.uuid4().hex[:10]}"
    creation = threading.Timer(0.5, kafka.create_topic, (3, topic))
    creation.start()
    assert bounded(kafka, topic) == []
    creation.join()


def test_a_topic_that_is_deleted_while_it_is_read(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, lines(0))
    with driving(reading(kafka, topic, properties_topic_metadata_propagation_max_ms="500")) as drive:
        read_until(drive, 1)
        kafka.delete_topic(topic)
        with pytest.raises(ConnectorError, match=f"a topic does not exist any more: {topic}"):
            until(drive, lambda: False)


def test_messages_that_were_deleted_before_they_were_read(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, lines(0, 1, 2, 3))
    made = reading(kafka, topic)
    with driving(made, batch_rows=2) as drive:
        until(drive, lambda: len(ids(drive)) == 2)
        state, splits = drive.snapshot()
    kafka.delete_records(topic, 0, 3)
    gone = pytest.raises(ConnectorError, match=f"topic '{topic}', partition 0: the position to read on at is not there")
    with driving(made, enumerator_state=state, restored=splits) as again, gone:
        read_until(again, 1)
    lenient = reading(kafka, topic, properties_auto_offset_reset="earliest")
    with driving(lenient, enumerator_state=state, restored=splits) as again:
        assert read_until(again, 1) == [3]


def test_reading_goes_on_when_the_broker_comes_back(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, lines(0))
    with driving(reading(kafka, topic, properties_reconnect_backoff_max_ms="500")) as drive:
        read_until(drive, 1)
        kafka.kill()
        for _ in range(3):
            drive.step()
        kafka.start()
        kafka.produce(topic, lines(1))
        assert read_until(drive, 2) == [0, 1]


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowrun.connectors.kafka.partitions.REQUEST_TIMEOUT_S", 0.5)
    with pytest.raises(ConnectorError, match=r"Kafka at 127\.0\.0\.1:1 does not answer: .*refused"):
        SourceDrive(source(IDS, {"scan.startup.mode": "earliest-offset"}))


def login(broker: KafkaBroker, password: str) -> dict[str, str]:
    return {
        "properties_bootstrap_servers": broker.sasl, "properties_security_protocol": "SASL_PLAINTEXT",
        "properties_sasl_mechanism": "PLAIN", "properties_sasl_username": USER, "properties_sasl_password": password,
    }  # fmt: skip


def test_credentials_are_needed_and_must_be_right(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, lines(0))
    assert bounded(kafka, topic, **login(kafka, PASSWORD)) == [0]
    with pytest.raises(ConnectorError, match="refuses the login") as raised:
        bounded(kafka, topic, **login(kafka, "a-wrong-word"))
    assert "a-wrong-word" not in str(raised.value) + caplog.text


def test_a_property_that_nobody_knows(kafka: KafkaBroker) -> None:
    with pytest.raises(OptionError, match=r"has no property .fetch.min.byte.") as raised:
        bounded(kafka, "t", properties_fetch_min_byte="1")
    assert raised.value.option == "properties.fetch.min.byte"


def test_connections_are_encrypted_and_the_broker_is_known_by_its_authority(kafka: KafkaBroker, tmp_path: Path) -> None:
    if kafka.tls is None:
        pytest.skip("there is no `openssl` command")
    topic = kafka.create_topic(1)
    kafka.produce(topic, lines(0))
    tls = {
        "properties_bootstrap_servers": kafka.tls, "properties_security_protocol": "SSL",
        "properties_ssl_truststore_type": "PEM", "properties_ssl_endpoint_identification_algorithm": "",
    }  # fmt: skip
    assert bounded(kafka, topic, **tls, properties_ssl_truststore_location=str(kafka.authority)) == [0]
    stranger = make_authority(tmp_path / "stranger") / "ca.pem"
    with pytest.raises(ConnectorError, match=r"certificate verify failed|SSL handshake failed"):
        bounded(kafka, topic, **tls, properties_ssl_truststore_location=str(stranger))


def test_reading_goes_on_when_a_broker_that_hangs_goes_on(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, lines(0))
    with driving(reading(kafka, topic)) as drive:
        read_until(drive, 1)
        kafka.hang()
        drive.step()
        kafka.go_on()
        kafka.produce(topic, lines(1))
        assert read_until(drive, 2) == [0, 1]
