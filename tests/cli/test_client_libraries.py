"""Client libraries that are not installed are said before anything runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb
import pytest

from tests.end_to_end.conftest import Command

SCRIPT = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');
CREATE TABLE files (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
CREATE TABLE other (n BIGINT) WITH ({options});
INSERT INTO files SELECT n FROM numbers;
INSERT INTO other SELECT n FROM numbers;
"""
KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = '127.0.0.1:1'"


@pytest.mark.parametrize(
    ("package", "options", "said"),
    [
        (
            "confluent_kafka",
            f"{KAFKA}, 'format' = 'json'",
            "connector 'kafka' needs the Python package confluent_kafka",
        ),
        (
            "google",
            f"{KAFKA}, 'format' = 'protobuf', 'protobuf.message-class-name' = 'a.B', 'protobuf.descriptor-file' = 'x'",
            "format 'protobuf' needs the Python package google",
        ),
    ],
)
def test_what_is_missing_is_wrong_input_and_nothing_is_written(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, options: str, said: str
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else found(name))
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(SCRIPT.format(options=options))
    outcome = flowrun("run", "job.sql")
    assert outcome.code == 2, outcome.err
    assert f"{said}, which is not installed" in outcome.err
    assert "pip install 'flowrun-streaming[" in outcome.err
    assert not Path("out").exists()


@pytest.mark.parametrize(("scheme", "code"), [("duckdb", 0), ("sqlite", 2)])
def test_the_url_of_a_database_says_what_it_needs(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, code: int
) -> None:
    found = importlib.util.find_spec
    missing = ("adbc_driver_postgresql", "adbc_driver_sqlite")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else found(name))
    monkeypatch.chdir(tmp_path)
    duckdb.connect("file.db").execute("CREATE TABLE t (n BIGINT)").close()
    options = f"'connector' = 'jdbc', 'url' = 'jdbc:{scheme}:file.db', 'table-name' = 't'"
    Path("job.sql").write_text(SCRIPT.format(options=options))
    outcome = flowrun("run", "job.sql")
    assert outcome.code == code, outcome.err
    assert ("needs the Python package adbc_driver_sqlite, which is not installed" in outcome.err) == (code == 2)
    assert "adbc_driver_postgresql" not in outcome.err


def test_a_table_of_several_sources_needs_what_each_of_them_needs(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "confluent_kafka" else found(name))
    monkeypatch.chdir(tmp_path)
    live = KAFKA.replace("'connector'", "'b.connector'").replace("'topic'", "'b.topic'").replace("'prop", "'b.prop")
    Path("job.sql").write_text(f"""
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'hybrid', 'source-identifiers' = 'a,b', 'a.connector' = 'datagen',
  'a.number-of-rows' = '10', {live}, 'b.format' = 'json', 'b.scan.startup.mode' = 'earliest-offset');
CREATE TABLE gone (n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO gone SELECT n FROM numbers;""")
    outcome = flowrun("run", "job.sql")
    assert outcome.code == 2, outcome.err
    assert "connector 'kafka' needs the Python package confluent_kafka, which is not installed" in outcome.err
