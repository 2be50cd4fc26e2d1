"""Jobs from Kafka to Kafka that are killed and go on: readers of committed messages see every row once."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path

import pytest

from tests.connectors.kafka.die_at import TRANSACTION_PHASES
from tests.recovery.lives import ResumedJob, kill_rounds
from tests.servers.kafka import KafkaBroker

ROWS = 90_000
PARTITIONS = 3
SCRIPT = """
SET 'execution.checkpointing.interval' = '100 ms';
SET 'restart-strategy.type' = 'fixed-delay';
SET 'restart-strategy.fixed-delay.attempts' = '100';
CREATE TABLE rows_in (id BIGINT, part INT METADATA FROM 'partition' VIRTUAL) WITH (
  'connector' = 'kafka', 'topic' = '${IN}', 'properties.bootstrap.servers' = '${BROKER}', 'format' = 'json',
  'properties.max.partition.fetch.bytes' = '20000', 'properties.queued.max.messages.kbytes' = '64',
  'properties.reconnect.backoff.max.ms' = '500', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
CREATE TABLE rows_out (id BIGINT, part INT) WITH (
  'connector' = 'kafka', 'topic' = '${OUT}', 'properties.bootstrap.servers' = '${BROKER}',
  'key.format' = 'json', 'key.fields' = 'part', 'value.format' = 'json', 'properties.reconnect.backoff.max.ms' = '500',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '${OUT}');
INSERT INTO rows_out SELECT id, part FROM rows_in;
"""


class CopyingJob(ResumedJob):
    """A job that copies a topic."""

    def __init__(self, broker: KafkaBroker, folder: Path, rows: int = ROWS) -> None:
        self._broker = broker
        self._rows = rows
        self.source, self.target = broker.create_topic(PARTITIONS), broker.create_topic(2)
        for partition in range(PARTITIONS):
            mine: list[bytes | None] = [json.dumps({"id": i}).encode() for i in range(partition, rows, PARTITIONS)]
            broker.produce(self.source, mine, partition=partition)
        super().__init__(folder, SCRIPT, {"IN": self.source, "OUT": self.target, "BROKER": broker.bootstrap})

    def check(self) -> None:
        """Every row is there once, those of one key in their order."""
        found = [json.loads(v) for v in self._broker.values(self.target)]
        ids = sorted(row["id"] for row in found)
        twice = sorted({a for a, b in itertools.pairwise(ids) if a == b})
        missing = sorted(set(range(self._rows)) - set(ids))
        assert not twice, f"{len(twice)} ids came twice, the first {twice[:5]}"
        assert not missing, f"{len(missing)} ids are missing, the first {missing[:5]}"
        for part in range(PARTITIONS):
            of_part = [row["id"] for row in found if row["part"] == part]
            assert of_part == sorted(of_part)


@pytest.mark.exhaustive
def test_six_kills_at_random_times(kafka: KafkaBroker, tmp_path: Path) -> None:
    job = CopyingJob(kafka, tmp_path)
    kill_rounds(job, random.Random(17), 6)
    job.check()


@pytest.mark.soak
def test_a_hundred_kills_at_random_times(kafka: KafkaBroker, tmp_path: Path) -> None:
    job = CopyingJob(kafka, tmp_path, rows=3_000_000)
    kill_rounds(job, random.Random(18), 100)
    job.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", [*TRANSACTION_PHASES, "between completion and sink commit"])
def test_a_kill_in_each_phase_of_a_commit(kafka: KafkaBroker, tmp_path: Path, phase: str) -> None:
    job = CopyingJob(kafka, tmp_path, rows=9_000)
    killed = job.start("-m", "tests.connectors.kafka.die_at", phase, "1")
    assert killed.wait(timeout=240) == -9, job.said
    job.finish()
    job.check()


@pytest.mark.exhaustive
def test_the_broker_dies_while_the_job_runs(kafka: KafkaBroker, tmp_path: Path) -> None:
    job = CopyingJob(kafka, tmp_path)
    process = job.start()
    deadline = time.monotonic() + 120
    while not kafka.messages(job.target):  # it has begun, and committed something
        assert process.poll() is None, job.said
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kafka.kill()
    kafka.start()
    job.finish(process)
    job.check()
