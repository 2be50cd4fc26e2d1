"""Jobs that follow a table while it changes and are killed: the sink's table becomes what the source's is."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.running import ROOT
from tests.recovery.lives import ResumedJob
from tests.servers.postgres import PostgresDatabase

pytestmark = pytest.mark.exhaustive

PAGE = ROOT / "docs" / "connectors" / "postgres-cdc.md"
TABLES = """
CREATE TABLE t (id bigint PRIMARY KEY, name text, n integer);
CREATE TABLE copied (id bigint PRIMARY KEY, name text, n integer);
CREATE TABLE counted (n integer PRIMARY KEY, c bigint);
INSERT INTO t SELECT i, 'first ' || i, i % 7 FROM generate_series(1, {rows}) i;
ANALYZE t;
"""
SCRIPT = """
SET 'execution.checkpointing.interval' = '100 ms';
CREATE TABLE t (id BIGINT, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'postgres-cdc', 'hostname' = '${HOST}', 'port' = '${PORT}', 'database-name' = '${NAME}', 'table-name' = 't',
  'username' = '${USER}', 'password' = '${PASSWORD}', 'slot.name' = 'slot_${NAME}', 'scan.incremental.snapshot.chunk.size' = '1000');
CREATE TABLE copied (id BIGINT, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = '${URL}', 'username' = '${USER}', 'password' = '${PASSWORD}', 'table-name' = 'copied',
  'sink.delivery-guarantee' = 'exactly-once');
CREATE TABLE counted (n INT, c BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = '${URL}', 'username' = '${USER}', 'password' = '${PASSWORD}', 'table-name' = 'counted',
  'sink.delivery-guarantee' = 'exactly-once');
INSERT INTO copied SELECT id, name, n FROM t;
INSERT INTO counted SELECT n, COUNT(*) FROM t GROUP BY n;
"""
IDS = 30_000
SAME = (
    "SELECT (SELECT count(*) FROM (SELECT id, name, n FROM t EXCEPT ALL SELECT id, name, n FROM copied) a) "
    "+ (SELECT count(*) FROM (SELECT id, name, n FROM copied EXCEPT ALL SELECT id, name, n FROM t) b) "
    "+ (SELECT count(*) FROM (SELECT n, count(*) c FROM t GROUP BY n EXCEPT ALL SELECT n, c FROM counted) c)"
)


def following(database: PostgresDatabase, folder: Path, rows: int = 20_000) -> ResumedJob:
    """A job that keeps a copy of a table of so many rows, and counts them."""
    database.execute(TABLES.format(rows=rows))
    variables = {
        "HOST": database.host, "PORT": str(database.port), "NAME": database.name, "USER": database.user,
        "PASSWORD": database.password, "URL": database.jdbc_url,
    }  # fmt: skip
    return ResumedJob(folder, SCRIPT, variables)


class Writer(threading.Thread):
    """Random transactions: some large, some rolled back, some with savepoints that are; rows whose keys change, and a new column."""

    def __init__(self, database: PostgresDatabase, seed: int, transactions: int) -> None:
        super().__init__()
        self._database, self._transactions = database, transactions
        self._chance = random.Random(seed)
        self.committed = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with self._database.connect() as connection:
                for number in range(self._transactions):
                    if number == self._transactions // 2:
                        connection.execute("ALTER TABLE t ADD COLUMN IF NOT EXISTS extra text DEFAULT 'x'")
                    self._transact(connection, number)
        except BaseException as error:
            self.error = error

    def _transact(self, connection: Any, number: int) -> None:
        try:
            with connection.transaction() as transaction:
                for _ in range(self._chance.choice((1, 1, 1, 2, 5))):
                    self._change(connection, f"change {number}")
                if self._chance.random() < 0.1:
                    raise psycopg.Rollback(transaction)
            self.committed += 1
        except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
            pass  # another writer was in the way: that is rolled back, too

    def _change(self, connection: Any, name: str) -> None:
        chance = self._chance
        one, other, n = chance.randrange(IDS), chance.randrange(IDS), chance.randrange(7)
        update = "ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, n = EXCLUDED.n"
        match chance.randrange(200):
            case 0:
                connection.execute(
                    f"INSERT INTO t SELECT i, %s, i %% 5 FROM generate_series(%s::int, %s::int) i {update}",
                    [name, one, one + 3000],
                )
            case 1:
                connection.execute("DELETE FROM t WHERE id BETWEEN %s AND %s", [one, one + 1000])
            case k if k < 50:
                connection.execute("DELETE FROM t WHERE id = %s", [one])
            case k if k < 80:
                connection.execute(
                    "UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT 1 FROM t WHERE id = %s)",
                    [other, one, other],
                )
            case k if k < 120:
                with connection.transaction() as inner:
                    connection.execute("UPDATE t SET n = %s WHERE id = %s", [n, one])
                    if chance.random() < 0.5:
                        raise psycopg.Rollback(inner)
            case _:
                connection.execute(f"INSERT INTO t VALUES (%s, %s, %s) {update}", [one, name, n])


def follow(postgres: PostgresDatabase, folder: Path, seed: int, transactions: int, kills: int) -> None:
    """Two writers, a job that is killed while they write, and then the same rows on both sides."""
    chance = random.Random(seed)
    writers = [Writer(postgres, seed * 2 + n, transactions // 2) for n in range(2)]
    with following(postgres, folder) as job:
        process = job.start()
        for writer in writers:
            writer.start()
        for _ in range(kills):
            assert not job.is_over(process, 0.5 + 4 * chance.random()), job.said
            process = job.start()
        for writer in writers:
            writer.join()
            assert writer.error is None
            assert writer.committed > transactions // 3
        job.until(process, lambda: postgres.execute(SAME) == [(0,)])


def test_the_copy_becomes_the_table(postgres: PostgresDatabase, tmp_path: Path) -> None:
    follow(postgres, tmp_path, seed=1, transactions=2000, kills=3)


@pytest.mark.soak
def test_the_copy_becomes_the_table_after_a_hundred_thousand_transactions(
    postgres: PostgresDatabase, tmp_path: Path
) -> None:
    follow(postgres, tmp_path, seed=2, transactions=100_000, kills=40)


@pytest.mark.parametrize("chunks", [3, 17])
def test_a_job_that_is_killed_between_the_chunks_of_a_table_reads_the_others(
    postgres: PostgresDatabase, tmp_path: Path, chunks: int
) -> None:
    def is_between_chunks() -> bool:
        with suppress(OSError):  # an older checkpoint may go meanwhile
            states = [pq.read_table(p).to_pylist() for p in (tmp_path / "state").glob("**/*-splits-*.parquet")]
            return bool(job.checkpoints()) and re.search(r'"left": ?\[\[', str(states)) is not None
        return False

    writer = Writer(postgres, chunks, 300)
    with following(postgres, tmp_path) as job:
        process = job.start("-m", "tests.connectors.postgres_cdc.held_chunks", str(chunks))
        writer.start()
        job.until(process, is_between_chunks)
        process.kill()
        process.wait()
        process = job.start()
        writer.join()
        assert writer.error is None
        job.until(process, lambda: postgres.execute(SAME) == [(0,)])


def test_the_example_of_the_page_runs(postgres: PostgresDatabase, tmp_path: Path) -> None:
    postgres.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(10, 2));"
        "CREATE TABLE spent (customer text PRIMARY KEY, orders bigint, amount numeric(38, 2));"
        "INSERT INTO orders VALUES (1, 'Ann', 5), (2, 'Bob', 7.50)"
    )
    (example,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = example.replace("jdbc:postgresql://localhost:5432/shop", postgres.jdbc_url).replace(
        "'localhost'", f"'{postgres.host}'"
    )
    text = text.replace("'5432'", f"'{postgres.port}'").replace("'shop'", f"'{postgres.name}'")
    text = text.replace("'me'", f"'{postgres.user}'").replace("${secret:SHOP_PASSWORD}", postgres.password)
    (tmp_path / "script.sql").write_text(text)
    command = [
        sys.executable,
        "-m",
        "flowrun",
        "run",
        "script.sql",
        "--no-live",
        "--set",
        "settings.checkpoint.dir=state",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        for wanted in ([("Ann", 1, 5.0), ("Bob", 1, 7.5)], [("Bob", 2, 9.75)]):
            deadline = time.monotonic() + 60
            while [(c, n, float(a)) for c, n, a in postgres.execute("SELECT * FROM spent ORDER BY 1")] != wanted:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, (
                    postgres.execute("SELECT * FROM spent"),
                    (tmp_path / "log").read_text(),
                )
                time.sleep(0.1)
            postgres.execute(
                "DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (3, 'Bob', 2.25) ON CONFLICT DO NOTHING"
            )
    finally:
        process.kill()
        process.wait()
