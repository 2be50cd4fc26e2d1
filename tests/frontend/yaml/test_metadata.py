"""Metadata columns of YAML pipelines: the plans that SQL makes of the same meaning, and rows of files with their paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from flowrun.plan.nodes import Calc, PlanNode, Scan, Sink, walk_plan
from tests.frontend.yaml.small_runs import results

KAFKA = "connector: kafka, topic: t, properties.bootstrap.servers: 'b:9092', format: json"
WITH = "'connector'='kafka', 'topic'='t', 'properties.bootstrap.servers'='b:9092', 'format'='json'"


def nodes(name: str, text: str) -> tuple[PlanNode, ...]:
    return tuple(walk_plan(load_text(SourceText(name, text), Path(), {}, {}, {}).plan))


def scan_of(name: str, text: str) -> Scan:
    return next(n for n in nodes(name, text) if isinstance(n, Scan))


def sink_of(name: str, text: str) -> Sink:
    return next(n for n in nodes(name, text) if isinstance(n, Sink))


def test_a_source_reads_what_sql_reads_with_computed_columns_and_a_watermark_over_it() -> None:
    document = f"""
sources:
  t:
    {KAFKA.replace(", ", chr(10) + "    ")}
    scan.startup.mode: earliest-offset
    schema: {{id: BIGINT, offset: STRING}}
    metadata: {{at: timestamp, part: partition, place: offset, again: partition}}
    computed: {{ts: CAST(at AS TIMESTAMP(3)), double: part + again}}
    watermark: {{column: at, delay: 5s}}
sinks:
  out: {{from: t, connector: blackhole}}
"""
    script = f"""
CREATE TABLE t (
  id BIGINT, `offset` STRING, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, part INT METADATA FROM 'partition' VIRTUAL,
  place BIGINT METADATA FROM 'offset' VIRTUAL, again INT METADATA FROM 'partition' VIRTUAL,
  ts AS CAST(`at` AS TIMESTAMP(3)), `double` AS part + again, WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND
) WITH ({WITH}, 'scan.startup.mode'='earliest-offset');
CREATE TABLE out_ (id BIGINT) WITH ('connector'='blackhole');
INSERT INTO out_ SELECT id FROM t;
"""
    ours, theirs = scan_of("p.yaml", document), scan_of("p.sql", script)
    assert ours.schema == theirs.schema
    assert ours.physical == theirs.physical
    assert ours.projections == theirs.projections
    assert ours.table.metadata == theirs.table.metadata
    assert ours.table.metadata == {"timestamp": "timestamp", "partition": "partition", "metadata.offset": "offset"}
    assert ours.watermark is not None
    assert theirs.watermark is not None
    assert (ours.watermark.time, ours.watermark.delay_ms) == (theirs.watermark.time, theirs.watermark.delay_ms)


@pytest.mark.parametrize("schema", ["", "schema: {id: BIGINT}"])
def test_a_sink_gives_the_connector_what_sql_gives_it(schema: str) -> None:
    document = f"""
sources:
  s: {{connector: datagen, schema: {{at: TIMESTAMP(3), where: STRING, id: BIGINT}}}}
sinks:
  out: {{from: s, {KAFKA}, metadata: {{at: timestamp, where: topic}}, {schema}}}
"""
    script = f"""
CREATE TABLE s (`at` TIMESTAMP(3), `where` STRING, id BIGINT) WITH ('connector'='datagen');
CREATE TABLE out_ (id BIGINT, `at` TIMESTAMP(3) METADATA FROM 'timestamp', `where` STRING METADATA FROM 'topic') WITH ({WITH});
INSERT INTO out_ SELECT id, `at`, `where` FROM s;
"""
    ours, theirs = sink_of("p.yaml", document), sink_of("p.sql", script)
    assert ours.schema == theirs.schema
    assert ours.table.written_metadata == theirs.table.written_metadata == {"at": "timestamp", "where": "topic"}
    assert str(ours.schema.field("at").type) == "TIMESTAMP_LTZ(3)"
    assert isinstance(ours.input, Calc)
    assert isinstance(theirs.input, Calc)
    columns = tuple(str(p) for p in ours.input.projections)
    assert len(columns) == 3
    assert ours.input.schema == theirs.input.schema


def test_rows_know_the_file_that_they_come_from(tmp_path: Path) -> None:
    found = results(
        tmp_path,
        """
        sources:
          rows:
            connector: filesystem
            path: ${DIR}/*/rows.json
            format: json
            schema: {id: BIGINT}
            metadata: {file: file.path, size: file.size}
            computed: {folder: "REGEXP_EXTRACT(file, '([^/]*)/[^/]*$', 1)"}
        sinks:
          out:
            from: rows
            connector: filesystem
            path: ${DIR}/out
            format: debezium-json
            schema: {id: BIGINT, folder: STRING, size: BIGINT}
        """,
        a=[{"id": 1}, {"id": 2}],
        b=[{"id": 10}],
    )
    assert found == ["1 a 20", "10 b 11", "2 a 20"]
