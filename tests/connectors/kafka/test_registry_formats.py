"""Avro with a schema registry through a real broker: schemas that change, changes of a table, and poison records."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.connectors.kafka.test_pipelines import BOUNDED, flowrun, table
from tests.servers.kafka import KafkaBroker
from tests.servers.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.exhaustive


def to_topic(folder: Path, columns: str, rows: list[dict[str, object]], sink: str) -> None:
    """Write rows to a topic with a job."""
    (folder / "rows.json").write_text("\n".join(json.dumps(r) for r in rows))
    source = (
        f"CREATE TABLE given ({columns}) WITH ('connector' = 'filesystem', 'path' = 'rows.json', 'format' = 'json');\n"
    )
    flowrun(folder, f"{source}{sink}INSERT INTO t SELECT * FROM given;")


def written(folder: Path) -> list[tuple[object, ...]]:
    lines = [line for p in (folder / "out").glob("part-*") for line in p.read_text().splitlines()]
    return sorted(tuple(json.loads(line).values()) for line in lines)


def test_records_of_several_schemas_and_poison_ones_are_read(
    kafka: KafkaBroker,
    schema_registry: SchemaRegistryServer,
    tmp_path: Path,
) -> None:
    topic = kafka.create_topic(1)
    avro = ("'value.format' = 'avro-confluent'", f"'value.avro-confluent.url' = '{schema_registry.url}'")
    old, new = "id BIGINT, name STRING", "id BIGINT, price DOUBLE, name STRING, tags ARRAY<STRING>"
    to_topic(tmp_path, old, [{"id": 1, "name": "a"}], table("t", old, kafka.bootstrap, topic, *avro))
    kafka.produce(topic, [b"\0\0\0\0\1\x02"])
    kafka.produce(topic, [b"{}", b"\0\0\0\xff\xff\x02"])
    rows: list[dict[str, object]] = [{"id": 2, "price": 1.5, "name": None, "tags": ["x", None]}]
    to_topic(tmp_path, new, rows, table("t", new, kafka.bootstrap, topic, *avro))
    assert sorted(schema_registry.subjects) == [f"{topic}-value"]
    assert len(schema_registry.subjects[f"{topic}-value"]) == 2
    sink = (
        "CREATE TABLE out_ (id BIGINT, name STRING, price DOUBLE, tags ARRAY<STRING>) WITH ('connector' = 'filesystem', "
        "'path' = 'out', 'format' = 'json');\nINSERT INTO out_ SELECT id, name, price, tags FROM t;"
    )
    keep = ("'format.on-error' = 'dead-letter'", "'format.dead-letter.path' = 'dead'")
    flowrun(tmp_path, table("t", new, kafka.bootstrap, topic, *avro, BOUNDED, *keep) + sink)
    assert written(tmp_path) == [(1, "a", None, None), (2, None, 1.5, ["x", None])]
    letters = [json.loads(line) for p in (tmp_path / "dead").iterdir() for line in p.read_text().splitlines()]
    raw = sorted(base64.b64decode(letter["raw"]) for letter in letters)
    assert raw == sorted([b"\0\0\0\0\1\x02", b"{}", b"\0\0\0\xff\xff\x02"])
    ids = "CREATE TABLE ids (id BIGINT) WITH ('connector' = 'blackhole');\nINSERT INTO ids SELECT id FROM t;"
    said = flowrun(tmp_path, table("t", old, kafka.bootstrap, topic, *avro, BOUNDED) + ids, code=1)
    assert topic in said
    assert "the record ends in the middle of a value" in said


def test_changes_go_through_a_topic(
    kafka: KafkaBroker,
    schema_registry: SchemaRegistryServer,
    tmp_path: Path,
) -> None:
    topic = kafka.create_topic(1)
    name = "debezium-avro-confluent"
    changes = (f"'format' = '{name}'", f"'{name}.url' = '{schema_registry.url}'")
    rows: list[dict[str, object]] = [{"user": u, "amount": a} for u, a in (("a", 1), ("b", 2), ("a", 3))]
    (tmp_path / "rows.json").write_text("\n".join(json.dumps(r) for r in rows))
    flowrun(
        tmp_path,
        "CREATE TABLE given (`user` STRING, amount BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rows.json', 'format' = 'json');\n"
        + table("totals", "`user` STRING, total BIGINT", kafka.bootstrap, topic, *changes)
        + "INSERT INTO totals SELECT `user`, SUM(amount) FROM given GROUP BY `user`;",
    )
    flowrun(
        tmp_path,
        table("totals", "`user` STRING, total BIGINT", kafka.bootstrap, topic, *changes, BOUNDED)
        + "CREATE TABLE out_ (`user` STRING, total BIGINT, PRIMARY KEY (`user`) NOT ENFORCED) WITH ('connector' = 'filesystem', "
        "'path' = 'out', 'format' = 'json');\nINSERT INTO out_ SELECT `user`, SUM(total) FROM totals GROUP BY `user`;",
    )
    lines = [json.loads(line) for p in (tmp_path / "out").rglob("*.json") for line in p.read_text().splitlines()]
    assert sorted((r["user"], r["total"]) for r in lines) == [("a", 4), ("b", 2)]


def test_a_registry_that_is_gone_or_lets_nobody_in_is_one_clear_error(
    kafka: KafkaBroker,
    schema_registry: SchemaRegistryServer,
    tmp_path: Path,
) -> None:
    topic = kafka.create_topic(1)
    kafka.produce(topic, [b"\0\0\0\0\1\x02\x02"])
    ids = "CREATE TABLE ids (id BIGINT) WITH ('connector' = 'blackhole');\nINSERT INTO ids SELECT id FROM t;"

    def said(url: str) -> str:
        avro = ("'format' = 'avro-confluent'", f"'avro-confluent.url' = '{url}'")
        password = "'avro-confluent.basic-auth.user-info' = 'ann:sesame-99'"
        script = table("t", "id BIGINT", kafka.bootstrap, topic, *avro, password, BOUNDED) + ids
        return flowrun(tmp_path, script, code=1)

    gone = said("http://127.0.0.1:1")
    assert "the schema registry at http://127.0.0.1:1 cannot be asked" in gone
    schema_registry.let_in("ann", "another")
    refused = said(schema_registry.url)
    assert f"the schema registry at {schema_registry.url} lets nobody in: Unauthorized" in refused
    for text in (gone, refused):
        assert "Traceback" not in text
        assert "sesame" not in text
