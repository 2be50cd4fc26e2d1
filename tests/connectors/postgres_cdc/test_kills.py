"""Jobs that follow a table while it changes and are killed: the sink's table becomes what the source's is."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.end_to_end.running import ROOT
from tests.servers.postgres import PostgresDatabase

pytestmark = pytest.mark.exhaustive

PAGE = ROOT / "docs" / "connectors" / "postgres-cdc.md"
TABLES = """
CREATE TABLE t (id bigint PRIMARY KEY, name text, n integer);
CREATE TABLE copied (id bigint PRIMARY KEY, name text, n integer);
CREATE TABLE counted (n integer PRIMARY KEY, c bigint);
INSERT INTO t SELECT i, 'first ' || i, i % 7 FROM generate_series(1, 20000) i;
"""
SCRIPT = """
SET 'execution.checkpointing.interval' = '100 ms';
CREATE TABLE t (id BIGINT, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'postgres-cdc', 'hostname' = '{host}', 'port' = '{port}', 'database-name' = '{name}', 'table-name' = 't',
  'username' = '{user}', 'password' = '{password}', 'slot.name' = 'slot_{name}');
CREATE TABLE copied (id BIGINT, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({sink}, 'table-name' = 'copied');
CREATE TABLE counted (n INT, c BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ({sink}, 'table-name' = 'counted');
INSERT INTO copied SELECT id, name, n FROM t;
INSERT INTO counted SELECT n, COUNT(*) FROM t GROUP BY n;
"""


class Following:
    """A job in a process of its own, that goes on from its newest checkpoint when it is started again."""

    def __init__(self, database: PostgresDatabase, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        sink = (
            f"'connector' = 'jdbc', 'url' = '{database.jdbc_url}', 'username' = '{database.user}', "
            f"'password' = '{database.password}', 'sink.delivery-guarantee' = 'exactly-once'"
        )
        text = SCRIPT.format(
            host=database.host,
            port=database.port,
            name=database.name,
            user=database.user,
            password=database.password,
            sink=sink,
        )
        (folder / "follow.sql").write_text(text)

    def start(self) -> None:
        state = self._folder / "state"
        known = any(state.glob("*/chk-*/_metadata.json"))
        how = ["resume", "--from-savepoint", str(state)] if known else ["run"]
        given = ["--set", f"settings.checkpoint.dir={state}", "--parallelism", "2", "--no-live"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flowrun", *how, "follow.sql", *given], cwd=self._folder, stdout=log, stderr=log
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def said(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-3000:]

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.said


def change(database: PostgresDatabase, seed: int, transactions: int) -> None:
    """Random transactions: large ones, rolled back ones, some with savepoints, and keys that change."""
    chance = random.Random(seed)
    with database.connect() as connection:
        for number in range(transactions):
            with connection.transaction() as transaction:
                for _ in range(1 if chance.random() < 0.9 else 300):
                    one, other, n = chance.randrange(30_000), chance.randrange(30_000), chance.randrange(7)
                    match chance.randrange(5):
                        case 0:
                            connection.execute("DELETE FROM t WHERE id = %s", [one])
                        case 1:
                            connection.execute(
                                "UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT 1 FROM t WHERE id = %s)",
                                [other, one, other],
                            )
                        case 2:
                            with connection.transaction() as inner:
                                connection.execute("UPDATE t SET n = %s WHERE id = %s", [n, one])
                                if chance.random() < 0.5:
                                    import psycopg

                                    raise psycopg.Rollback(inner)
                        case _:
                            connection.execute(
                                "INSERT INTO t VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, n = EXCLUDED.n",
                                [one, f"change {number}", n],
                            )
                if chance.random() < 0.1:
                    import psycopg

                    raise psycopg.Rollback(transaction)
            if number == transactions // 2:
                connection.execute("ALTER TABLE t ADD COLUMN IF NOT EXISTS extra text DEFAULT 'x'")


def follow(postgres: PostgresDatabase, folder: Path, seed: int, transactions: int, kills: int) -> None:
    postgres.execute(TABLES)
    job, chance = Following(postgres, folder), random.Random(seed)
    writing = threading.Thread(target=change, args=(postgres, seed, transactions))
    job.start()
    writing.start()
    for _ in range(kills):
        time.sleep(0.5 + 4 * chance.random())
        job.check()
        job.kill()
        job.start()
    writing.join()
    same = (
        "SELECT (SELECT count(*) FROM (SELECT id, name, n FROM t EXCEPT ALL SELECT id, name, n FROM copied) a) "
        "+ (SELECT count(*) FROM (SELECT id, name, n FROM copied EXCEPT ALL SELECT id, name, n FROM t) b) "
        "+ (SELECT count(*) FROM (SELECT n, count(*) c FROM t GROUP BY n EXCEPT ALL SELECT n, c FROM counted) c)"
    )
    deadline = time.monotonic() + 120
    while postgres.execute(same) != [(0,)]:
        job.check()
        assert time.monotonic() < deadline, (postgres.execute(same), job.said)
        time.sleep(0.2)
    job.kill()


def test_the_copy_becomes_the_table(postgres: PostgresDatabase, tmp_path: Path) -> None:
    follow(postgres, tmp_path, seed=1, transactions=1500, kills=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_the_copy_becomes_the_table_after_many_transactions(
    postgres: PostgresDatabase, tmp_path: Path, seed: int
) -> None:
    follow(postgres, tmp_path, seed, transactions=25_000, kills=20)


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
