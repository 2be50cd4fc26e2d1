"""Jobs from Kafka, joined with PostgreSQL, to Kafka and PostgreSQL, that are killed and go on; and so are the servers: every row once."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.worker_jobs import children, kill
from tests.connectors.kafka_and_postgres.die_at import TRANSACTION_PHASES
from tests.recovery.die_at import PHASES
from tests.recovery.lives import ResumedJob
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresDatabase, PostgresServer

PARTITIONS = 3
CUSTOMERS = 1000
OF_FILES = ("during commit",)
"""The phases of a sink that this job does not have."""
TIERS = ("gold", "silver", "bronze")
SCRIPT = """
SET 'execution.checkpointing.interval' = '100 ms';
SET 'restart-strategy.type' = 'fixed-delay';
SET 'restart-strategy.fixed-delay.attempts' = '100';
SET 'restart-strategy.fixed-delay.delay' = '200 ms';
CREATE TABLE orders (id BIGINT, customer BIGINT, seen AS PROCTIME()) WITH (
  'connector' = 'kafka', 'topic' = '${IN}', 'properties.bootstrap.servers' = '${BROKER}', 'format' = 'json',
  'properties.max.partition.fetch.bytes' = '20000', 'properties.queued.max.messages.kbytes' = '64',
  'properties.reconnect.backoff.max.ms' = '500', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
CREATE TABLE customers (id BIGINT, tier STRING) WITH (
  'connector' = 'jdbc', 'url' = '${URL}', 'username' = '${USER}', 'password' = '${PASSWORD}', 'table-name' = 'customers');
CREATE TABLE sent (id BIGINT, tier STRING) WITH (
  'connector' = 'kafka', 'topic' = '${OUT}', 'properties.bootstrap.servers' = '${BROKER}', 'format' = 'json',
  'properties.reconnect.backoff.max.ms' = '500',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '${OUT}');
CREATE TABLE stored (id BIGINT, tier STRING) WITH (
  'connector' = 'jdbc', 'url' = '${URL}', 'username' = '${USER}', 'password' = '${PASSWORD}', 'table-name' = 'stored',
  'sink.delivery-guarantee' = 'exactly-once');
CREATE TABLE counted (tier STRING, n BIGINT, PRIMARY KEY (tier) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = '${URL}', 'username' = '${USER}', 'password' = '${PASSWORD}', 'table-name' = 'counted',
  'sink.delivery-guarantee' = 'exactly-once');
CREATE TEMPORARY VIEW rich AS
  SELECT o.id, c.tier FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.seen AS c ON o.customer = c.id;
INSERT INTO sent SELECT id, tier FROM rich;
INSERT INTO stored SELECT id, tier FROM rich;
INSERT INTO counted SELECT tier, COUNT(*) FROM rich GROUP BY tier;
"""


class JoiningJob(ResumedJob):
    """A job that looks up the tier of each order's customer."""

    def __init__(self, broker: KafkaBroker, database: PostgresDatabase, folder: Path, rows: int) -> None:
        self._broker, self._database, self._rows = broker, database, rows
        _create(database)
        orders, self.target = broker.create_topic(PARTITIONS), broker.create_topic(2)
        for partition in range(PARTITIONS):
            ids = range(partition, rows, PARTITIONS)
            mine: list[bytes | None] = [json.dumps({"id": i, "customer": i % CUSTOMERS}).encode() for i in ids]
            broker.produce(orders, mine, partition=partition)
        variables = {
            "IN": orders, "OUT": self.target, "BROKER": broker.bootstrap, "URL": database.jdbc_url, "USER": database.user,
            "PASSWORD": database.password,
        }  # fmt: skip
        super().__init__(folder, SCRIPT, variables)

    def check(self) -> None:
        """Every order is in the topic and in the table once, with its tier, and was counted once."""
        expected = [(i, TIERS[i % CUSTOMERS % 3]) for i in range(self._rows)]
        sent = sorted((row["id"], row["tier"]) for row in map(json.loads, self._broker.values(self.target)))
        stored = self._database.execute("SELECT id, tier FROM stored ORDER BY id")
        for place, found in (("topic", sent), ("table", stored)):
            twice = [a for a, b in itertools.pairwise(found) if a == b]
            assert not twice, f"{len(twice)} rows are in the {place} twice, the first {twice[:5]}"
            missing = sorted(set(expected) - set(found))
            assert not missing, f"{len(missing)} rows are not in the {place}, the first {missing[:5]}"
            assert found == expected
        assert dict(self._database.execute("SELECT tier, n FROM counted")) == Counter(tier for _, tier in expected)

    def die_in(self, phase: str, times: int) -> bool:
        """A life that ends when it comes to a phase for so many times; whether it was not over before."""
        words = ("-m", "tests.connectors.kafka_and_postgres.die_at", phase, str(times))
        process = self.start(
            *words, options=("--workers", "0")
        )  # a worker that dies in a phase is replaced, and dies again
        assert process.wait(timeout=600) in (0, -9), self.said
        return process.returncode != 0

    def die_with_workers(self, rng: random.Random) -> bool:
        """A life in worker processes: one of these is killed, another takes its place, and then all end; whether it was not over before."""
        before = self.checkpoints()
        process = self.start(options=("--workers", "2"))
        self.wait_for_checkpoint(process, before)
        workers = [worker for child in children(process.pid) for worker in children(child)]
        if workers:
            kill(rng.choice(workers))
        return not self.is_over(process, rng.uniform(0.0, 1.0))


def _create(database: PostgresDatabase) -> None:
    tiers = ", ".join(f"'{tier}'" for tier in TIERS)
    database.execute(
        "DROP TABLE IF EXISTS customers, stored, counted;"
        "CREATE TABLE customers (id bigint PRIMARY KEY, tier text); CREATE TABLE stored (id bigint, tier text);"
        "CREATE TABLE counted (tier text PRIMARY KEY, n bigint);"
        f"INSERT INTO customers SELECT i, (ARRAY[{tiers}])[i % 3 + 1] FROM generate_series(0, {CUSTOMERS - 1}) i"
    )


def deaths(job: JoiningJob, rng: random.Random, rounds: int) -> int:
    """At most so many lives that end in a phase of a checkpoint or commit, at a random time, or in worker processes, until one is over
    before; gives how many died.
    """
    phases = _shuffled([*(p for p in PHASES if p not in OF_FILES), *TRANSACTION_PHASES], rng)
    for number in range(rounds):
        match number % 3:
            case 0:
                died = job.die_in(next(phases), rng.choice((1, 2, 3)))
            case 1:
                died = job.live_and_die(rng.uniform(0.0, 0.6), rng.choice((1, 2, 3)), from_checkpoint=True)
            case _:
                died = job.die_with_workers(rng)
        if not died:
            return number
    return rounds


def _shuffled(phases: list[str], rng: random.Random) -> Iterator[str]:
    while True:
        yield from rng.sample(phases, len(phases))


def check_deaths(
    kafka: KafkaBroker, postgres: PostgresDatabase, folder: Path, rng: random.Random, rounds: int, rows: int
) -> None:
    """So many deaths cost and double no row. There are as many jobs as it takes: the machine decides how many rows a life has time for."""
    died = 0
    for number in itertools.count():
        own = folder / str(number)
        own.mkdir()
        with JoiningJob(kafka, postgres, own, rows) as job:
            found = deaths(job, rng, rounds - died)
            assert found > 0, "no life was ended before it was over"
            job.finish()
            job.check()
        died += found
        if died == rounds:
            return


@pytest.mark.exhaustive
def test_six_deaths(kafka: KafkaBroker, postgres: PostgresDatabase, tmp_path: Path) -> None:
    check_deaths(kafka, postgres, tmp_path, random.Random(5), 6, rows=200_000)


@pytest.mark.soak
def test_a_hundred_deaths(kafka: KafkaBroker, postgres: PostgresDatabase, tmp_path: Path) -> None:
    check_deaths(kafka, postgres, tmp_path, random.Random(6), 100, rows=500_000)


@pytest.mark.soak
@pytest.mark.parametrize("phase", TRANSACTION_PHASES)
def test_a_death_in_each_phase_of_a_commit(
    kafka: KafkaBroker, postgres: PostgresDatabase, tmp_path: Path, phase: str
) -> None:
    with JoiningJob(kafka, postgres, tmp_path, rows=9_000) as job:
        assert job.die_in(phase, 1)
        job.finish()
        job.check()


@pytest.mark.exhaustive
def test_both_servers_die_while_rows_are_committed(
    kafka: KafkaBroker, postgres: PostgresDatabase, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """A lock holds a transaction of the job in its middle; there the database dies, and soon after the broker."""
    with JoiningJob(kafka, postgres, tmp_path, rows=20_000) as job:
        other = postgres.connect(autocommit=False)
        other.execute("LOCK TABLE stored IN SHARE MODE")
        process = job.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
        job.until(process, lambda: postgres.execute(waits, [postgres.name]))
        postgres_server.kill()
        other.close()
        postgres_server.start()
        job.until(process, lambda: kafka.messages(job.target))
        kafka.kill()
        kafka.start()
        job.finish(process)
        job.check()
