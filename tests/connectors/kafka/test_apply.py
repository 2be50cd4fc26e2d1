"""Versions of a pipeline from Kafka to Kafka take each other's place while rows come: every row is committed once."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command, flowrun, no_thread_is_left_behind, own_registry
from tests.end_to_end.processes import started, wait_for
from tests.servers.kafka import KafkaBroker, why_not
from tests.servers.needed import give_up

__all__ = ["flowrun", "no_thread_is_left_behind", "own_registry"]

SCRIPT = """
SET 'pipeline.name' = 'copy';
SET 'execution.checkpointing.interval' = '100 ms';
SET 'execution.checkpointing.dir' = 'state';
CREATE TABLE rows_in (id BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '{source}', 'properties.bootstrap.servers' = '{broker}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset');
CREATE TABLE rows_out (id BIGINT, v BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '{target}', 'properties.bootstrap.servers' = '{broker}', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{target}');
INSERT INTO rows_out SELECT id, {version} FROM rows_in WHERE MOD(id, 10) <> 0;
"""
FAILS = "CAST(CONCAT('x', CAST(id AS STRING)) AS BIGINT)"
APPLY = ("--yes", "--healthy-for", "200ms")


@pytest.fixture(scope="module")
def fresh_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that nobody has used: its topics of offsets and transactions come with the first commit."""
    reason = why_not()
    if reason is not None:
        give_up(reason)
    broker = KafkaBroker(tmp_path_factory.mktemp("fresh-kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@contextmanager
def producing(broker: KafkaBroker, topic: str) -> Iterator[list[int]]:
    """A context in which ids come without a pause; the list has how many have been sent."""
    ended, sent = threading.Event(), [0]

    def produce() -> None:
        for begin in itertools.count(0, 20):
            if ended.wait(0.02):
                return
            broker.produce(topic, [json.dumps({"id": i}).encode() for i in range(begin, begin + 20)])
            sent[0] = begin + 20

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


@pytest.mark.exhaustive
def test_every_row_is_there_once_whatever_becomes_of_versions(
    flowrun: Command, fresh_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = fresh_broker.create_topic(2), fresh_broker.create_topic(2)

    def write(version: object) -> None:
        text = SCRIPT.format(source=source, target=target, broker=fresh_broker.bootstrap, version=version)
        Path("copy.sql").write_text(text)

    def committed() -> Counter[tuple[int, int]]:
        rows = (json.loads(value) for value in fresh_broker.values(target))
        return Counter((row["id"], row["v"]) for row in rows)

    write(1)
    with started("run", "copy.sql", "--no-live", cwd=tmp_path) as process:
        with producing(fresh_broker, source) as sent:
            wait_for(committed, process)  # the first commit that this broker has seen
            write(2)
            accepted = flowrun("apply", "copy.sql", *APPLY)
            assert (accepted.code, "version 2 is healthy and goes on" in accepted.err) == (0, True), accepted.err
            wait_for(lambda: any(v == 2 for _, v in committed()), process)
            write(FAILS)
            failed = flowrun("apply", "copy.sql", *APPLY)
            assert (failed.code, "version 2 goes on from the savepoint" in failed.err) == (1, True), failed.err
            back = flowrun("apply", "--to", "copy", "--version", "1", *APPLY)
            assert back.code == 0, back.err
            seen = max(i for i, _ in committed())
            wait_for(lambda: any(v == 1 and i > seen for i, v in committed()), process)
        wanted = Counter(i for i in range(sent[0]) if i % 10)
        wait_for(lambda: len(committed()) >= len(wanted), process)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    rows = committed()
    assert Counter(i for i, _ in rows.elements()) == wanted, "every row once, from one version"
    assert {v for _, v in rows} == {1, 2}
