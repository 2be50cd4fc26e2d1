"""Jobs from Kafka to Kafka that are killed and go on: readers of committed messages see every row once."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.connectors.kafka.die_at import TRANSACTION_PHASES
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


class CopyingJob:
    """A job that copies a topic, in processes of its own, and the folder that it goes on from."""

    def __init__(self, broker: KafkaBroker, folder: Path, rows: int = ROWS) -> None:
        self._broker = broker
        self._folder = folder
        self._rows = rows
        self._lives = 0
        self.source, self.target = broker.create_topic(PARTITIONS), broker.create_topic(2)
        for partition in range(PARTITIONS):
            mine: list[bytes | None] = [json.dumps({"id": i}).encode() for i in range(partition, rows, PARTITIONS)]
            broker.produce(self.source, mine, partition=partition)
        (folder / "copy.sql").write_text(SCRIPT)

    def start(self, *words: str, parallelism: int = 2) -> subprocess.Popen[str]:
        """Begin, or go on from the newest checkpoint; `words` are what Python runs."""
        state = self._folder / "state"
        known = any(state.glob("*/chk-*/_metadata.json"))
        variables = {"IN": self.source, "OUT": self.target, "BROKER": self._broker.bootstrap}
        command = [
            sys.executable, *(words or ("-m", "flowrun")), *(("resume", "--from-savepoint", str(state)) if known else ("run",)),
            "copy.sql", *itertools.chain(*(("--var", f"{k}={v}") for k, v in variables.items())),
            "--set", f"settings.checkpoint.dir={state}", "--parallelism", str(parallelism), "--no-live",
        ]  # fmt: skip
        self._lives += 1
        with (self._folder / f"life-{self._lives}.log").open("w") as log:
            return subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, text=True)

    @property
    def said(self) -> str:
        """What the last life has said so far."""
        return (self._folder / f"life-{self._lives}.log").read_text()

    def finish(self, process: subprocess.Popen[str] | None = None) -> None:
        """The last life."""
        process = process or self.start()
        assert process.wait(timeout=240) == 0, self.said

    def live_and_die(self, seconds: float, parallelism: int, *, from_checkpoint: bool) -> bool:
        """A life that is ended from outside, so long after its start or its first checkpoint; whether it was not over before."""
        before = self._checkpoints()
        process = self.start(parallelism=parallelism)
        deadline = time.monotonic() + 120
        while from_checkpoint and process.poll() is None and self._checkpoints() <= before:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)
        try:
            assert process.wait(timeout=seconds) == 0, self.said
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True
        return False

    def _checkpoints(self) -> set[str]:
        return {path.parent.name for path in (self._folder / "state").glob("*/chk-*/_metadata.json")}

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


def kill_rounds(job: CopyingJob, rng: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        early = rng.random() < 0.2
        seconds = rng.uniform(0.2, 3.0) if early else rng.uniform(0.0, 0.6)
        if not job.live_and_die(seconds, rng.choice((1, 2, 3)), from_checkpoint=not early):
            return
    job.finish()


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
