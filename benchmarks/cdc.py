"""PostgreSQL: changes of a table from its log into a keyed count and into a table, against a bare loop of the client library."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.jdbc import running
from benchmarks.measuring import ENVIRONMENT, FLOWRUN, Figure, timed_in_a_fresh_process
from tests.servers.postgres import PostgresDatabase

ROWS = 200_000
"""In the table before."""
TRANSACTIONS, A_TRANSACTION = 4_000, 100
CHANGES = TRANSACTIONS * A_TRANSACTION
RUNS = 3
BAR = 50_000
_WAIT_S = 300.0

_TABLE = """
CREATE TABLE {table} (id bigint PRIMARY KEY, customer text, amount numeric(10, 2), seen timestamp, n integer);
INSERT INTO {table} SELECT i, 'customer ' || i, i / 100.0, timestamp '2024-01-01' + i * interval '1 s', i % 1000
  FROM generate_series(1, {rows}) i;
"""
_CHANGE = f"""
CREATE OR REPLACE PROCEDURE change(first bigint) LANGUAGE plpgsql AS $$
BEGIN
  FOR turn IN 0..{TRANSACTIONS - 1} LOOP
    INSERT INTO t SELECT first + turn * 40 + i, 'customer ' || i, i / 7.0, timestamp '2024-06-01' + turn * interval '1 s', i
      FROM generate_series(1, 40) i;
    UPDATE t SET n = n + 1, amount = amount + 1 WHERE id BETWEEN first + turn * 40 + 1 AND first + turn * 40 + 40;
    DELETE FROM t WHERE id BETWEEN first + turn * 40 + 21 AND first + turn * 40 + 40;
    COMMIT;
  END LOOP;
END $$;
"""
_BARE = """
import psycopg
from psycopg import pq
connection = pq.PGconn.connect({info!r}.encode())
# begin
result = connection.exec_({start!r}.encode())
assert result.status == pq.ExecStatus.COPY_BOTH, connection.error_message
import select
poll = select.poll()
poll.register(connection.socket, select.POLLIN)
changes = 0
while changes < {changes}:
    count, data = connection.get_copy_data(1)
    if count > 0:
        message = bytes(data)
        changes += message[0] == 119 and message[25] in b"IUD"
    else:
        poll.poll()
        connection.consume_input()
"""
_SOURCE = """
SET 'execution.checkpointing.interval' = '500 ms';
CREATE TABLE t (id BIGINT, customer STRING, amount DECIMAL(10, 2), seen TIMESTAMP(6), n INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'postgres-cdc', 'hostname' = '{host}', 'port' = '{port}', 'database-name' = '{name}', 'table-name' = 't',
  'username' = '{user}', 'password' = '{password}', 'slot.name' = '{slot}');
"""
_SINK = (
    "'connector' = 'jdbc', 'url' = '{url}', 'username' = '{user}', 'password' = '{password}', "
    "'sink.delivery-guarantee' = 'exactly-once'"
)
_INTO_A_TABLE = """
CREATE TABLE copied (id BIGINT, customer STRING, amount DECIMAL(10, 2), seen TIMESTAMP(6), n INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ({sink}, 'table-name' = 'copied');
INSERT INTO copied SELECT * FROM t;
"""
_INTO_A_COUNT = """
CREATE TABLE counted (n INT, c BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ({sink}, 'table-name' = 'counted');
INSERT INTO counted SELECT n, COUNT(*) FROM t GROUP BY n;
"""
_ROW_COPIED = "SELECT EXISTS (SELECT FROM copied WHERE id = (SELECT max(id) FROM t))"
_ROWS_COUNTED = "SELECT coalesce(sum(c), 0) = {rows} FROM counted"
"""Of the server, which shares the machine's cores, they ask little; what must hold in the end is asked once they hold."""
_COPIED = "SELECT (SELECT (count(*), sum(id), sum(n), sum(amount)) FROM t) = (SELECT (count(*), sum(id), sum(n), sum(amount)) FROM copied)"
_COUNTED = "SELECT NOT EXISTS (SELECT n, count(*) FROM t GROUP BY n EXCEPT ALL SELECT n, c FROM counted)"


def run() -> list[Figure]:
    with running() as database, tempfile.TemporaryDirectory() as folder:
        database.execute(_TABLE.format(table="t", rows=ROWS))
        database.execute(
            "CREATE TABLE copied (LIKE t INCLUDING INDEXES); CREATE TABLE counted (n integer PRIMARY KEY, c bigint)"
        )
        database.execute(_CHANGE)
        return _changes(database, Path(folder))


def _changes(database: PostgresDatabase, folder: Path) -> list[Figure]:
    """The jobs and the bare loop read the same changes, which are there before any of them begins; they take turns."""
    jobs = {
        "into a table": (_Job(database, folder / "copied", _INTO_A_TABLE), _ROW_COPIED, _COPIED),
        "into a keyed count": (_Job(database, folder / "counted", _INTO_A_COUNT), _ROWS_COUNTED, _COUNTED),
    }
    database.execute("CREATE PUBLICATION bare FOR TABLE t")
    database.execute("SELECT pg_create_logical_replication_slot('bare', 'pgoutput')")
    rates: dict[str, list[float]] = {name: [] for name in ("bare", *jobs)}

    def done(query: str) -> Callable[[], bool]:
        return lambda: database.execute(query) == [(True,)]

    for job, _, holds in jobs.values():
        with job.running():
            _until(done(holds))
    for number in range(RUNS):
        database.execute(f"CALL change({ROWS + number * TRANSACTIONS * 40})")
        rates["bare"].append(CHANGES / _bare_seconds(database))
        [[rows]] = database.execute("SELECT count(*) FROM t")
        for name, (job, seen, holds) in jobs.items():
            with job.running():
                _until(lambda job=job: job.is_reading())
                began = time.perf_counter()
                _until(done(seen.format(rows=rows)))
                _until(done(holds))
                rates[name].append(CHANGES / (time.perf_counter() - began))
    bare = statistics.median(rates["bare"])
    return [
        Figure(
            f"PostgreSQL, {CHANGES:,} changes from the log {name}, exactly once",
            f"{statistics.median(rates[name]) / 1e3:.0f} k changes/s",
            f"psycopg alone, counting messages: {bare / 1e3:.0f} k changes/s",
            f"{statistics.median(r / b for r, b in zip(rates[name], rates['bare'], strict=True)):.2f}",
            f"≥ {BAR // 1000} k changes/s",
            statistics.median(rates[name]) >= BAR,
        )
        for name in jobs
    ]


def _bare_seconds(database: PostgresDatabase) -> float:
    start = "START_REPLICATION SLOT bare LOGICAL 0/0 (proto_version '1', publication_names 'bare')"
    seconds = timed_in_a_fresh_process(
        _BARE.format(
            info=f"{database.uri}?replication=database&options=-c%20wal_sender_timeout%3D0",
            start=start,
            changes=CHANGES,
        )
    )
    _until(lambda: database.execute("SELECT active FROM pg_replication_slots WHERE slot_name = 'bare'") == [(False,)])
    database.execute("SELECT pg_replication_slot_advance('bare', pg_current_wal_lsn())")
    return seconds


class _Job:
    """A job that goes on from its newest checkpoint whenever it is started."""

    def __init__(self, database: PostgresDatabase, folder: Path, insert: str, parallelism: int = 1) -> None:
        folder.mkdir()
        self._database, self._folder, self._parallelism = database, folder, parallelism
        self._slot = folder.name
        names = {"name": database.name, "user": database.user, "password": database.password}
        sink = _SINK.format(url=database.jdbc_url, **names)
        source = _SOURCE.format(host=database.host, port=database.port, slot=self._slot, **names)
        (folder / "job.sql").write_text(source + insert.format(sink=sink))

    @contextmanager
    def running(self) -> Iterator[None]:
        state = self._folder / "state"
        known = any(state.glob("*/chk-*/_metadata.json"))
        words = ["resume", "--from-savepoint", str(state)] if known else ["run"]
        given = ["--set", f"settings.checkpoint.dir={state}", "-p", str(self._parallelism), "--no-live"]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*FLOWRUN, *words, "job.sql", *given], cwd=self._folder, stdout=log, stderr=log, env=ENVIRONMENT
            )
        try:
            yield
            assert process.poll() is None, (self._folder / "log").read_text()[-2000:]
        finally:
            process.kill()
            process.wait()

    def is_reading(self) -> bool:
        """Whether the log is being sent to it."""
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        return self._database.execute(query, [self._slot]) == [(True,)]


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_WAIT_S:g} s")
        time.sleep(0.05)
