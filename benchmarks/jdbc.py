"""PostgreSQL: writing against a bare COPY, reading against ADBC alone, and keys looked up a second, all on a server of this machine."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import FLOWRUN, Figure, run_process, timed_in_a_fresh_process
from tests.servers.postgres import PostgresDatabase, PostgresServer, binaries_folder

ROWS = 1_000_000
KEYS_A_BATCH = 10_000
RUNS = 3
COLUMNS = "id BIGINT, name STRING, amount DECIMAL(12, 2), seen TIMESTAMP(6), score DOUBLE"
DDL = "CREATE TABLE {} (id bigint, name text, amount numeric(12,2), seen timestamp, score double precision)"
COPY = """
import psycopg
from pathlib import Path
lines = Path({path!r}).read_bytes()
connection = psycopg.connect({uri!r}, autocommit=True)
# begin
with connection.cursor() as cursor, cursor.copy("COPY {table} FROM STDIN (FORMAT csv)") as copy:
    for start in range(0, len(lines), 1 << 20):
        copy.write(lines[start : start + (1 << 20)])
"""
ADBC = """
import adbc_driver_postgresql.dbapi
# begin
with adbc_driver_postgresql.dbapi.connect({uri!r}) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT * FROM {table}")
    rows = sum(batch.num_rows for batch in cursor.fetch_record_batch())
    assert rows == {rows}, rows
"""
QUERIES = """
import adbc_driver_postgresql.dbapi
import pyarrow.parquet as pq
file = pq.ParquetFile({path!r})
groups = [file.read_row_group(i)["id"].to_pylist() for i in range(file.num_row_groups)]
queries = ["SELECT name, score, id FROM source WHERE id = ANY ('{{" + ",".join(map(str, keys)) + "}}'::bigint[])" for keys in groups]
# begin
with adbc_driver_postgresql.dbapi.connect({uri!r}) as connection, connection.cursor() as cursor:
    for query in queries:
        cursor.execute(query)
        cursor.fetch_arrow_table()
"""


def run() -> list[Figure]:
    with running() as database, tempfile.TemporaryDirectory() as folder:
        rows = _rows()
        pq.write_table(rows, Path(folder) / "rows.parquet")
        database.execute(DDL.format("source"))
        lines = Path(folder) / "rows.csv"
        _write_lines(rows, lines)
        return [*_sinks(database, Path(folder), lines), _scan(database), _lookup(database, Path(folder))]


@contextmanager
def running() -> Iterator[PostgresDatabase]:
    binaries = binaries_folder()
    assert binaries is not None, "apt-get install postgresql"
    server = PostgresServer(binaries, Path(tempfile.mkdtemp(prefix="flowrun-postgres-")))
    try:
        server.start(shared_buffers="512MB", max_wal_size="8GB")
        yield server.create_database()
    finally:
        server.close()


def _rows() -> pa.Table:
    random = np.random.default_rng(1)
    ids = np.arange(ROWS)
    return pa.table(
        {
            "id": ids,
            "name": pa.array([f"customer {i}" for i in ids]),
            "amount": pa.array(random.integers(0, 10**9, ROWS)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2)),
            "seen": pa.array(1_600_000_000_000_000 + ids * 1_000_003, pa.timestamp("us")),
            "score": random.random(ROWS),
        }
    )


def _write_lines(rows: pa.Table, path: Path) -> None:
    import pyarrow.csv

    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    pyarrow.csv.write_csv(rows, path, options)


def _table(name: str, table: str, database: PostgresDatabase, columns: str = COLUMNS, more: str = "") -> str:
    return (
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'jdbc', 'url' = '{database.jdbc_url}', 'table-name' = '{table}', "
        f"'username' = '{database.user}', 'password' = '{database.password}'{more});\n"
    )


def _files(folder: Path) -> str:
    return f"CREATE TABLE files ({COLUMNS}) WITH ('connector' = 'filesystem', 'path' = '{folder}/rows.parquet', 'format' = 'parquet');\n"


def _engine_seconds(text: str) -> float:
    """Seconds that the engine takes for a script, in a process of its own."""
    with tempfile.TemporaryDirectory() as own:
        script, report = Path(own) / "script.sql", Path(own) / "report.json"
        script.write_text(text)
        run_process([*FLOWRUN, "run", str(script), "--quiet", "--report", str(report)])
        return float(json.loads(report.read_text())["duration_ms"]) / 1000


def _sinks(database: PostgresDatabase, folder: Path, lines: Path) -> Iterator[Figure]:
    """Rows from Parquet into a table: appended, by key, and exactly once; each in turn with a bare COPY of the same rows as CSV."""
    exactly = (
        f"SET 'execution.checkpointing.interval' = '1 s';\nSET 'state.checkpoints.dir' = '{folder}/state';\n",
        ", 'sink.delivery-guarantee' = 'exactly-once'",
        "",
    )
    cases = {
        "appended": ("", "", ""),
        "appended, exactly once, a checkpoint a second": exactly,
        "by primary key, all new": ("", "", ", PRIMARY KEY (id) NOT ENFORCED"),
    }
    times: dict[str, list[float]] = {name: [] for name in (*cases, "bare", "bare with an index")}
    for _ in range(RUNS):
        for name, index in (("bare", ""), ("bare with an index", "; CREATE UNIQUE INDEX ON target (id)")):
            database.execute(f"DROP TABLE IF EXISTS target; {DDL.format('target')}{index}")
            times[name].append(timed_in_a_fresh_process(COPY.format(path=str(lines), uri=database.uri, table="target")))
        for name, (settings, options, key) in cases.items():
            index = "; CREATE UNIQUE INDEX ON target (id)" if key else ""
            database.execute(f"DROP TABLE IF EXISTS target; {DDL.format('target')}{index}")
            target = _table("target", "target", database, COLUMNS + key, options)
            times[name].append(
                _engine_seconds(f"{settings}{_files(folder)}{target}INSERT INTO target SELECT * FROM files;")
            )
            assert database.execute("SELECT count(*) FROM target") == [(ROWS,)]
    database.execute("INSERT INTO source SELECT * FROM target")
    for name in cases:
        bare = "bare with an index" if "key" in name else "bare"
        peer, own = statistics.median(times[bare]), statistics.median(times[name])
        ratio = statistics.median(b / t for b, t in zip(times[bare], times[name], strict=True))
        bar = 0.5 if name == "appended" else None
        yield Figure(
            f"PostgreSQL, {ROWS:,} rows from Parquet, {name}",
            f"{ROWS / own / 1e3:.0f} k rows/s",
            f"COPY of CSV{' into a table with an index' if 'key' in name else ''}: {ROWS / peer / 1e3:.0f} k rows/s",
            f"{ratio:.2f}",
            f"≥ {bar}" if bar else "",
            ratio >= bar if bar else None,
        )


def _scan(database: PostgresDatabase) -> Figure:
    """All columns of a table to nowhere, in one subtask."""
    database.execute("VACUUM ANALYZE source")
    nowhere = f"CREATE TABLE nowhere ({COLUMNS}) WITH ('connector' = 'blackhole');\n"
    script = _table("source", "source", database) + nowhere + "INSERT INTO nowhere SELECT * FROM source;"
    peers, owns = [], []
    for _ in range(RUNS):
        peers.append(timed_in_a_fresh_process(ADBC.format(uri=database.uri, table="source", rows=ROWS)))
        owns.append(_engine_seconds(script))
    ratio = statistics.median(p / t for p, t in zip(peers, owns, strict=True))
    return Figure(
        f"PostgreSQL, a table of {ROWS:,} rows read",
        f"{ROWS / statistics.median(owns) / 1e3:.0f} k rows/s",
        f"ADBC alone: {ROWS / statistics.median(peers) / 1e3:.0f} k rows/s",
        f"{ratio:.2f}",
        "≥ 0.8",
        ratio >= 0.8,
    )


def _lookup(database: PostgresDatabase, folder: Path) -> Figure:
    """Each row of the files finds its row by a key that no other row of its batch has."""
    database.execute("CREATE UNIQUE INDEX ON source (id)")
    database.execute("VACUUM ANALYZE source")
    keys = np.random.default_rng(2).permutation(ROWS)
    pq.write_table(pa.table({"id": keys}), folder / "keys.parquet", row_group_size=KEYS_A_BATCH)
    script = (
        f"SET 'flowrun.batch_rows' = '{KEYS_A_BATCH}';\n"
        f"CREATE TABLE asked (id BIGINT, seen AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = '{folder}/keys.parquet', "
        "'format' = 'parquet');\n"
        + _table("source", "source", database)
        + "CREATE TABLE nowhere (id BIGINT, name STRING, score DOUBLE) WITH ('connector' = 'blackhole');\n"
        "INSERT INTO nowhere SELECT a.id, s.name, s.score FROM asked AS a JOIN source FOR SYSTEM_TIME AS OF a.seen AS s ON a.id = s.id;"
    )
    own, peer = [], []
    for _ in range(RUNS):
        peer.append(timed_in_a_fresh_process(QUERIES.format(uri=database.uri, path=f"{folder}/keys.parquet")))
        own.append(_engine_seconds(script))
    rate = ROWS / statistics.median(own)
    ratio = statistics.median(p / t for p, t in zip(peer, own, strict=True))
    return Figure(
        f"PostgreSQL, lookup join, {KEYS_A_BATCH:,} distinct keys a batch",
        f"{rate / 1e3:.0f} k keys/s",
        f"the same queries by ADBC alone: {ROWS / statistics.median(peer) / 1e3:.0f} k keys/s",
        f"{ratio:.2f}",
        "≥ 100 k keys/s",
        rate >= 100_000,
    )
