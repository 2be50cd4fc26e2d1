"""`flowrun infer kafka://…`: what it writes reads the messages, and says what was seen of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Command
from tests.servers.kafka import PASSWORD, USER, KafkaBroker
from tests.servers.kafka_mock import MockCluster
from tests.servers.schema_registry import SchemaRegistryServer

Message = tuple[bytes | None, bytes | None]
RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def orders(count: int, first: int = 0) -> list[Message]:
    """Messages keyed by their user; each fifth is 2 s behind the one before."""
    rows = [
        {"id": i, "user": f"u{i % 3}", "ts": f"2024-01-01 10:00:{i % 60 - (3 if i % 5 == 4 else 0):02d}"}
        for i in range(first, first + count)
    ]
    return [(str(r["user"]).encode(), json.dumps(r).encode()) for r in rows]


def shown(flowrun: Command, path: str, rows: int) -> list[dict[str, Any]]:
    """The rows of the topic, of which there are so many: it has no end."""
    done = flowrun("preview", path, "--format", "json", "--sample", rows)
    assert done.code == 0, Path(path).read_text() + done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_json_of_several_partitions(flowrun: Command, mock_kafka: MockCluster, to: str) -> None:
    topic = mock_kafka.topic(orders(50), orders(30, 60))
    done = flowrun("infer", f"kafka://{mock_kafka.bootstrap}/{topic}", "-o", to)
    assert done.code == 0, done.err
    text = Path(to).read_text()
    assert f"80 rows of 2 partitions of topic '{topic}'" in text
    assert "none is more than 2 s behind one before it" in text
    assert ("key.fields: user" if to.endswith("yaml") else "'key.fields' = 'user'") in text
    assert "differs in each row" in text
    found = shown(flowrun, to, 80)
    assert sorted(f["id"] for f in found) == [*range(50), *range(60, 90)]


def test_a_sample_is_of_the_beginning_and_the_end(flowrun: Command, mock_kafka: MockCluster) -> None:
    topic = mock_kafka.topic([(None, b'{"old": 1}'), *[(None, b'{"middle": 1}')] * 500, (None, b'{"new": "x"}')])
    done = flowrun("infer", f"kafka://{mock_kafka.bootstrap}/{topic}", "--rows", 20)
    assert done.code == 0, done.err
    assert "Proposed from 20 rows of 1 partition" in done.out
    assert "old: BIGINT" in done.out
    assert "new: STRING" in done.out


def test_messages_without_a_time_in_them_have_one_of_their_own(flowrun: Command, mock_kafka: MockCluster) -> None:
    topic = mock_kafka.topic([(None, b"1;a"), (None, b"2;b")])
    place = f"kafka://{mock_kafka.bootstrap}/{topic}"
    in_yaml = flowrun("infer", place)
    assert "messages have times of their own (2 rows of the sample are in order)" in in_yaml.out
    assert 'csv.field-delimiter: ";"' in in_yaml.out
    assert flowrun("infer", place, "-o", "made.sql").code == 0
    text = Path("made.sql").read_text()
    assert "TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'" in text
    assert "WATERMARK FOR `event_time`" in text
    assert [f["f2"] for f in shown(flowrun, "made.sql", 2)] == ["a", "b"]


def test_keys_without_values_make_a_table_of_upserts(flowrun: Command, mock_kafka: MockCluster) -> None:
    topic = mock_kafka.topic([(b"a", b'{"n": 1}'), (b"b", b'{"n": 2}'), (b"a", None)])
    assert flowrun("infer", f"kafka://{mock_kafka.bootstrap}/{topic}", "-o", "made.yaml").code == 0
    text = Path("made.yaml").read_text()
    assert "connector: upsert-kafka" in text
    assert "primary_key: [message_key]" in text
    assert "1 of the messages have a key and no value" in text
    assert flowrun("validate", "made.yaml").code == 0


def test_changes_of_debezium(flowrun: Command, mock_kafka: MockCluster) -> None:
    events = [{"before": None, "after": {"id": i, "n": i}, "op": "c"} for i in range(3)]
    events.append({"before": None, "after": {"id": 1, "n": 5}, "op": "u"})
    keys = [b'{"id": %d}' % i for i in (0, 1, 2, 1)]
    topic = mock_kafka.topic([(k, json.dumps(e).encode()) for k, e in zip(keys, events, strict=True)])
    made = flowrun("init", "project", "--from", f"kafka://{mock_kafka.bootstrap}/{topic}")
    assert made.code == 0, made.err
    text = Path("project/pipeline.yaml").read_text()
    assert "format: debezium-json" in text
    assert "debezium-json.changelog-mode: upsert" in text
    assert "primary_key: [id]" in text
    tested = flowrun("test", "project")
    assert tested.code == 0, tested.out + tested.err


def test_avro_with_a_registry(flowrun: Command, mock_kafka: MockCluster, schema_registry: SchemaRegistryServer) -> None:
    schema_registry.let_in("me", "registry-secret-word")
    number = schema_registry.register("s", json.dumps(RECORD))
    topic = mock_kafka.topic([(None, b"\0" + number.to_bytes(4, "big") + bytes([2 * i])) for i in range(5)])
    place = f"kafka://{mock_kafka.bootstrap}/{topic}"
    without = flowrun("infer", place)
    assert without.code == 2
    assert "say where it is: --registry URL" in without.err
    refused = flowrun("infer", place, "--registry", schema_registry.url)
    assert refused.code == 1
    assert "lets nobody in" in refused.err
    login = "avro-confluent.basic-auth.user-info=me:registry-secret-word"
    done = flowrun("infer", place, "--registry", schema_registry.url, "--with", login)
    assert done.code == 0, done.err
    assert "id: BIGINT" in done.out
    assert 'avro-confluent.basic-auth.user-info: "${AVRO_CONFLUENT_BASIC_AUTH_USER_INFO}"' in done.out
    assert "registry-secret-word" not in done.out + done.err
    in_url = flowrun("infer", place, "--registry", schema_registry.url.replace("://", "://me:registry-secret-word@"))
    assert in_url.code == 0, in_url.err
    assert 'avro-confluent.url: "${AVRO_CONFLUENT_URL}"' in in_url.out
    assert "registry-secret-word" not in in_url.out + in_url.err


def test_a_broken_message_is_said_and_left_out(flowrun: Command, mock_kafka: MockCluster) -> None:
    topic = mock_kafka.topic([*orders(20), (b"u1", b"oops")])
    assert flowrun("infer", f"kafka://{mock_kafka.bootstrap}/{topic}", "-o", "made.yaml").code == 0
    text = Path("made.yaml").read_text()
    assert "1 of the messages could not be read: it is no JSON object" in text
    assert "format.on-error: skip" in text
    assert len(shown(flowrun, "made.yaml", 20)) == 20


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "does not exist in Kafka at"),
        ([b"\x0a\x05\xff\x01"], "bytes of a format that is not known: one begins with 0a 05 ff 01"),
    ],
)
def test_nothing_that_can_be_read(flowrun: Command, mock_kafka: MockCluster, values: list[bytes], said: str) -> None:
    topic = mock_kafka.topic([(None, v) for v in values]) if values else "nothing-here"
    done = flowrun("infer", f"kafka://{mock_kafka.bootstrap}/{topic}")
    assert done.code in (1, 2)
    assert said in done.err
    assert done.out == ""


def test_no_broker_is_one_message(flowrun: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowrun.connectors.kafka.peeking._PATIENCE_OF_A_QUESTION_S", 0.1)
    done = flowrun("infer", "kafka://127.0.0.1:1/orders")
    assert done.code == 1
    assert done.err.startswith("error: Kafka at 127.0.0.1:1 does not answer: ")
    assert "hint: check properties.bootstrap.servers" in done.err
    assert len(done.err.splitlines()) == 2


@pytest.mark.parametrize(
    "place", ["kafka://orders", "kafka://host/orders", "kafka://me:pw@host:9092/orders", "kafka://host:9092/"]
)
def test_places_that_name_no_topic(flowrun: Command, place: str) -> None:
    done = flowrun("infer", place)
    assert done.code == 2
    assert "kafka://HOST:PORT/TOPIC" in done.err


@pytest.mark.exhaustive
def test_a_broker_with_a_login_is_left_as_it_was(
    flowrun: Command, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No group is there afterwards, and no password in what is written; a wrong one, and an empty topic, are one message each."""
    topic, empty = kafka.create_topic(2), kafka.create_topic()
    for partition in range(2):
        kafka.produce(topic, [v for _, v in orders(40)], partition=partition)
    login = [
        "--with", "properties.security.protocol=SASL_PLAINTEXT", "--with", "properties.sasl.mechanism=PLAIN",
        "--with", f"properties.sasl.username={USER}",
    ]  # fmt: skip
    done = flowrun(
        "infer",
        f"kafka://{kafka.sasl}/{topic}",
        *login,
        "--with",
        f"properties.sasl.password={PASSWORD}",
        "-o",
        "made.yaml",
    )
    assert done.code == 0, done.err
    text = Path("made.yaml").read_text()
    assert PASSWORD not in text
    assert '"${KAFKA_PASSWORD}"' in text
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    assert len(shown(flowrun, "made.yaml", 80)) == 80
    groups = kafka.admin().list_consumer_groups().result().valid
    assert not [g.group_id for g in groups if "flowrun" in g.group_id]
    wrong = flowrun("infer", f"kafka://{kafka.sasl}/{topic}", *login, "--with", "properties.sasl.password=nonsense")
    assert wrong.code == 1
    assert "refuses the login" in wrong.err
    assert "nonsense" not in wrong.err
    nothing = flowrun("infer", f"kafka://{kafka.bootstrap}/{empty}")
    assert nothing.code == 2
    assert f"topic '{empty}' is empty" in nothing.err
