"""What tables of Kafka may say, and what is told to those who say something wrong. No broker."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowrun.api.changelog import ChangelogMode
from flowrun.api.source import Boundedness
from flowrun.connectors.kafka.cluster import CLIENT, ClientErrors, KafkaCluster, cluster_of, library
from flowrun.connectors.kafka.offsets import ScanMode
from flowrun.connectors.kafka.producing import flush_timeout_s, producer_settings
from flowrun.core import types as t
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from flowrun.masking import masked
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_source
from tests.connectors.kafka.tables import sink, source

needs_client = pytest.mark.skipif(not CLIENT.is_installed, reason="the client library is not installed")
ROWS = Schema.of(k_id=t.BIGINT, name=t.STRING)
EARLIEST = {"scan.startup.mode": "earliest-offset"}
SASL = {**EARLIEST, "properties.security.protocol": "SASL_SSL"}
BY_OAUTH = {
    "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.client.secret": "of-the-client",
    "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
}  # fmt: skip
KEYED = {"key.format": "json", "key.fields": "k_id", "value.format": "json", **EARLIEST}


def cluster(**properties: str) -> dict[str, str]:
    given = {"bootstrap.servers": "b:1", **{k.replace("__", "."): v for k, v in properties.items()}}
    return dict(cluster_of(Options({f"properties.{k}": v for k, v in given.items()})).properties)


def test_a_table_reads_all_of_a_topic() -> None:
    made = source(ROWS, {"topic": "a;b", "scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 5})
    assert made.scan.topics == ("a", "b")
    assert (made.scan.startup.mode, made.scan.startup.timestamp_ms) == (ScanMode.TIMESTAMP, 5)
    assert made.boundedness is Boundedness.UNBOUNDED
    assert made.scan.discovery_interval_ms == 300_000
    assert made.changelog_mode is ChangelogMode.APPEND


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a group: 'properties.group.id'"),
        ({"topic": None, **EARLIEST}, "'topic' or 'topic-pattern' is needed"),
        ({"topic-pattern": "a", **EARLIEST}, "cannot both be given"),
        ({"topic": None, "topic-pattern": "(", **EARLIEST}, "no regular expression"),
        ({"scan.startup.mode": "timestamp"}, "needs 'scan.startup.timestamp-millis'"),
        ({"scan.startup.mode": "specific-offsets"}, "needs 'scan.startup.specific-offsets'"),
        ({"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:5"}, "expects partition:0,offset:42"),
        ({**EARLIEST, "scan.bounded.mode": "group-offsets"}, "needs a group"),
        ({**EARLIEST, "properties.auto.offset.reset": "first"}, "one of earliest, latest, none"),
        ({**EARLIEST, "properties.bootstrap.servers": " "}, "is empty"),
        ({**EARLIEST, "properties.ssl.truststore.location": "a.jks"}, "key store of Java"),
        ({**EARLIEST, "properties.ssl.keystore.location": "a.jks"}, "key store of Java, 'a.jks', which cannot be read here"),
        ({**EARLIEST, "properties.interceptor.classes": "com.example.I"}, "class of Java, 'com.example.I', which cannot run here"),
        ({**EARLIEST, "properties.sasl.client.callback.handler.class": "x.Y"}, "class of Java"),
        ({"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": " "}, "expects partition:0,offset:42"),
        ({**EARLIEST, "properties.sasl.jaas.config": "x required;"}, "no username and password"),
        ({**EARLIEST, "key.format": "json"}, "no column is in the key"),
        ({**EARLIEST, "key.fields": "k_id"}, "need 'key.format'"),
        ({**KEYED, "key.fields": "kid"}, "no column of t"),
        ({**KEYED, "key.fields-prefix": "k_"}, "cannot be in the value, too"),
        ({**KEYED, "key.fields-prefix": "x_"}, "does not begin with"),
        ({**KEYED, "key.fields": "k_id;name", "value.fields-include": "EXCEPT_KEY"}, "none is left for the value"),
        ({**KEYED, "key.format": "debezium-json"}, "a key is no change"),
        ({**KEYED, "key.format": "parquet"}, "one of whole files"),
        ({**KEYED, "key.json.nothing": "1"}, "has no option 'key.json.nothing'"),
        ({**EARLIEST, "format.on-error": "dead-letter"}, "needs format.dead-letter.path"),
        ({**EARLIEST, "topic": "a b/ü"}, "'a b/ü' is no name of a topic"),
        ({**EARLIEST, "topic": "a;" + "b" * 250}, "'b+' is no name of a topic"),
        ({**EARLIEST, "topic": ".."}, "'..' is no name of a topic"),
        ({**EARLIEST, "properties.bootstrap.servers": "b:1, host:nine"}, "'host:nine' is no address of a broker"),
        ({**EARLIEST, "properties.bootstrap.servers": "http://b:1/x"}, "'http://b:1/x' is no address of a broker"),
        ({**EARLIEST, "properties.bootstrap.servers": "b:1,c:65536"}, "'c:65536' .* the port is 65536"),
        ({**EARLIEST, "properties.bootstrap.servers": "[::1]:99999"}, "the port is 99999"),
        ({**EARLIEST, "properties.bootstrap.servers": "b:0"}, "the port is 0"),
        ({**EARLIEST, "properties.bootstrap.servers": " , "}, "is empty"),
        ({"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 10**20}, "is at most 9223372036854775807"),
        *(
            ({"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": text}, message)
            for text, message in [
                ("partition:0,offset:1;partition:0,offset:2", "names partition 0 twice"),
                ("partition:0,offset:1,offset:2", "expects partition:0,offset:42"),
                ("partition:٣,offset:1", "expects partition:0,offset:42"),
                (f"partition:0,offset:{2**63}", "9223372036854775808 .* is at most 9223372036854775807"),
                (f"partition:{2**31},offset:0", "2147483648 .* is at most 2147483647"),
            ]
        ),
        ({**EARLIEST, "properties.group.id": " "}, "'properties.group.id' is empty"),
        ({**SASL, "properties.sasl.mechanism": "plain"}, "no mechanism of a login: 'plain'"),
        ({**SASL, "properties.sasl.mechanism": "PLAIN"}, "needs 'properties.sasl.username'"),
        ({**SASL, "properties.sasl.mechanism": "SCRAM-SHA-256", "properties.sasl.username": "u"}, "needs 'properties.sasl.password'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(ROWS, options)


@needs_client
@pytest.mark.parametrize(
    ("properties", "option", "message"),
    [
        ({"auto.ofset.reset": "latest"}, "auto.ofset.reset", "has no property 'auto.ofset.reset'"),
        ({"acks": "7777777"}, "acks", "outside allowed range -1..1000"),
        ({"linger.ms": "soon"}, "linger.ms", 'Invalid value for .*"queue.buffering.max.ms"'),
        ({"max.request.size": ""}, "max.request.size", "cannot be set to empty value"),
        ({"security.protocol": "TLS"}, "security.protocol", 'Invalid value "TLS"'),
        ({"compression.type": "best"}, "compression.type", 'Invalid value "best"'),
        ({"reconnect.backoff.ms": "9", "reconnect.backoff.max.ms": "1"}, "reconnect.backoff.max.ms", "must be >= `reconnect.backoff.ms`"),
        ({"ssl.keystore.location": "a.p12"}, "ssl.keystore.location", "`ssl.keystore.password` is mandatory"),
        ({"security.protocol": "SASL_SSL"}, "security.protocol", "cannot log in by GSSAPI .*the default of 'properties.sasl.mechanism'"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism", r"cannot log in by GSSAPI \(Kerberos\)\n"),
        ({"error_cb": "print"}, "error_cb", "callable"),
        ({"default.topic.config": "x"}, "default.topic.config", "attribute"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [source, sink])
def test_what_the_client_would_refuse_is_said_before_anything_runs(
    make: Callable[..., object], properties: dict[str, str], option: str, message: str
) -> None:
    reads = EARLIEST if make is source else {}
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    with pytest.raises(OptionError, match=message) as raised:
        make(ROWS, {**reads, **{f"properties.{name}": value for name, value in properties.items()}})
    assert raised.value.option == f"properties.{option}"
    assert raised.value.hint
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == before, "no client was started"


@needs_client
@pytest.mark.parametrize(
    ("make", "properties", "message"),
    [
        (source, {"session.timeout.ms": "90000", "max.poll.interval.ms": "80000"}, "must be >= `session.timeout.ms`"),
        (source, {"fetch.max.bytes": "10", "message.max.bytes": "20000"}, "`fetch.max.bytes` must be"),
        (sink, {"delivery.timeout.ms": "1", "linger.ms": "1000"}, "`message.timeout.ms` must be greater than"),
        (sink, {"acks": "1", "enable.idempotence": "true"}, "`acks` must be set to `all`"),
        (sink, {"max.in.flight": "10", "enable.idempotence": "true"}, "`max.in.flight` must be set <="),
    ],
)
def test_properties_that_contradict_each_other_are_said(
    make: Callable[..., object], properties: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        make(ROWS, {**EARLIEST, **{f"properties.{name}": value for name, value in properties.items()}})
    assert raised.value.option.removeprefix("properties.") in (*properties, "bootstrap.servers")


@needs_client
@pytest.mark.parametrize(
    "properties",
    [
        {"auto.offset.reset": "none", "group.id": "g"},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p",
         "ssl.ca.location": "not-here.pem"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
         "sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.client.secret": "of-the-client", "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token"},
        {"security.protocol": "SSL", "ssl.ca.location": "not-here.pem", "ssl.keystore.location": "not-here.p12",
         "ssl.keystore.password": "p"},
        {"max.partition.fetch.bytes": "100000", "max.poll.interval.ms": "600000", "compression.type": "zstd", "acks": "all",
         "batch.size": "9"},
        {"plugin.library.paths": "not-here.so", "debug": "broker"},
        {"acks": "1"},
        {"acks": "1", "retries": "0"},
        {"acks": "0", "max.in.flight.requests.per.connection": "10"},
    ],
)  # fmt: skip
def test_what_only_the_machine_that_runs_it_can_tell_is_not_asked(properties: dict[str, str]) -> None:
    given = {f"properties.{name}": value for name, value in properties.items()}
    assert source(ROWS, {**EARLIEST, **given}).scan.topics
    sink(ROWS, given)
    if "acks" not in properties:
        sink(ROWS, {**given, "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"})


@needs_client
@pytest.mark.parametrize(
    "given_as", ["ssl.ca.location", "ssl.truststore.location", "ssl.certificate.location", "ssl.key.location"]
)
def test_a_file_of_certificates_that_is_not_there_is_named_by_who_runs_the_job(given_as: str, tmp_path: Path) -> None:
    """The client library ends the process where it fails so after a login by OAuth was set up."""
    missing = str(tmp_path / "not-here.pem")
    found = cluster_of(
        Options({f"properties.{name}": value for name, value in {**BY_OAUTH, given_as: missing}.items()})
    )
    with pytest.raises(OptionError, match=r"names a file that is not there: .*not-here\.pem") as raised:
        found.client(library().Consumer, ClientErrors("b:1"), {"group.id": "g"})
    assert raised.value.option == f"properties.{given_as.replace('truststore', 'ca')}"
    assert "on each machine" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("properties", "is_idempotent"),
    [
        ({}, True),
        ({"acks": "-1", "retries": "3", "max.in.flight": "5"}, True),
        ({"acks": "1"}, False),
        ({"retries": "0"}, False),
        ({"message.send.max.retries": "0"}, False),
        ({"max.in.flight.requests.per.connection": "6"}, False),
    ],
)
def test_messages_are_idempotent_unless_properties_exclude_that_as_in_java(
    properties: dict[str, str], is_idempotent: bool
) -> None:
    given = KafkaCluster({"bootstrap.servers": "b:1", **properties})
    assert producer_settings(given, {})["enable.idempotence"] is is_idempotent
    assert "enable.idempotence" not in producer_settings(KafkaCluster({**properties, "enable.idempotence": "true"}), {})
    if not is_idempotent:
        with pytest.raises(OptionError, match=f"'exactly-once' needs 'properties.{next(iter(properties))}'"):
            sink(
                ROWS,
                {
                    "sink.delivery-guarantee": "exactly-once",
                    "sink.transactional-id-prefix": "p",
                    **{f"properties.{name}": value for name, value in properties.items()},
                },
            )


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [({}, 125), ({"delivery.timeout.ms": "1000"}, 6), ({"message.timeout.ms": "600000"}, 605), ({"delivery.timeout.ms": "0"}, math.inf)],
)  # fmt: skip
def test_messages_are_waited_for_as_long_as_the_client_tries(properties: dict[str, str], seconds: float) -> None:
    assert flush_timeout_s(properties) == seconds


@pytest.mark.parametrize(
    "address", ["b", "b:1", "b:1,c:2 ,", "127.0.0.1:9092", "[::1]:9092", "SASL_SSL://b.example.com:9093"]
)
def test_addresses_of_brokers_have_every_form_that_clients_know(address: str) -> None:
    assert source(ROWS, {**EARLIEST, "properties.bootstrap.servers": address}).scan.topics


@pytest.mark.parametrize(("given", "ms"), [("60000", 60_000), (60_000, 60_000), ("1 min", 60_000), ("0", None)])
def test_a_duration_without_a_unit_is_milliseconds_as_in_flink(given: object, ms: int | None) -> None:
    made = source(ROWS, {**EARLIEST, "scan.topic-partition-discovery.interval": given})
    assert made.scan.discovery_interval_ms == ms


def test_a_value_has_one_format() -> None:
    given = {"properties.bootstrap.servers": "b:1", "topic": "t", **EARLIEST, "value.format": "csv"}
    assert create_source(TableReference("t", "kafka", given, "csv"), ROWS)
    with pytest.raises(OptionError, match=r"'value.format' = 'csv' contradict each other") as raised:
        create_source(TableReference("t", "kafka", given, "json"), ROWS)
    assert raised.value.hint == "leave one of them out"


@pytest.mark.parametrize("format", ["jsn", "parquet", "debezium-json"])
def test_a_wrong_format_of_keys_is_said_of_the_key(format: str) -> None:
    with pytest.raises(OptionError) as raised:
        source(ROWS, {**KEYED, "key.format": format})
    assert raised.value.option == "key.format"


def test_a_table_has_a_column_that_is_in_the_messages() -> None:
    with pytest.raises(OptionError, match="no column but metadata: nothing is left for the value"):
        source(Schema(()), EARLIEST)


def test_an_end_bounds_a_source() -> None:
    made = source(
        ROWS,
        {**EARLIEST, "scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:1, offset:7"},
    )
    assert made.boundedness is Boundedness.BOUNDED
    assert made.scan.end is not None
    assert made.scan.end.specific == ((1, 7),)
    assert made.scan.discovery_interval_ms is None


def test_keys_have_a_format_with_options_of_its_own() -> None:
    made = source(
        ROWS,
        {
            **KEYED,
            "key.fields-prefix": "k_",
            "value.fields-include": "EXCEPT_KEY",
            "value.json.ignore-parse-errors": "true",
        },
    )
    key, value = made.layout.key, made.layout.value
    assert key is not None
    assert key.stored(key.columns).names == ("id",)
    assert value.columns.names == ("name",)
    assert (key.options.flag("json.ignore-parse-errors"), value.options.flag("json.ignore-parse-errors")) == (
        False,
        True,
    )


def test_upserts_are_keyed_by_the_primary_key() -> None:
    options = {"key.format": "json", "value.format": "json"}
    made = source(ROWS, options, connector="upsert-kafka", primary_key=("k_id",))
    assert made.changelog_mode is ChangelogMode.UPSERT
    assert made.scan.startup.mode is ScanMode.EARLIEST
    assert made.layout.key is not None
    with pytest.raises(OptionError, match="needs a PRIMARY KEY"):
        source(ROWS, options, connector="upsert-kafka")


def test_properties_of_java_become_those_of_the_client() -> None:
    login = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\\"w-very-secret";'
    )
    found = cluster(
        sasl__jaas__config=login, sasl__mechanism="PLAIN", security__protocol="SASL_SSL",
        ssl__truststore__location="ca.pem", ssl__truststore__type="PEM", ssl__endpoint__identification__algorithm="",
        fetch__max__wait__ms="7", max__poll__records="5", metric__reporters="x.Y", metrics__num__samples="2",
        ssl__protocol="TLSv1.3", partition__assignment__strategy="x.RangeAssignor", exclude__internal__topics="true",
    )  # fmt: skip
    assert found == {
        "bootstrap.servers": "b:1", "sasl.username": "u", "sasl.password": 'p"w-very-secret', "sasl.mechanism": "PLAIN",
        "security.protocol": "SASL_SSL", "ssl.ca.location": "ca.pem", "ssl.endpoint.identification.algorithm": "none",
        "fetch.wait.max.ms": "7",
    }  # fmt: skip
    assert cluster(auto__offset__reset="none") == {"bootstrap.servers": "b:1"}
    assert "very-secret" not in masked(f"the password is {found['sasl.password']}")
