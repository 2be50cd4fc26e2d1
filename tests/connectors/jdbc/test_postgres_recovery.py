"""Jobs that write to PostgreSQL are killed and go on, and so is the server: every row is in the tables once."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.connectors.jdbc.die_at import TRANSACTION_PHASES
from tests.recovery.chaos import command, kill_rounds, live_to_phase, run_to_end
from tests.servers.postgres import PostgresDatabase, PostgresServer

PIPELINE = """
name: chaos
settings:
  parallelism: 2
  checkpoint: {{interval: 100ms, dir: "{folder}/state", retain: 2}}
  restart: {{strategy: fixed_delay, attempts: 20, delay: 200ms}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: {rate}
    fields: {{id: {{kind: sequence, start: 0, end: {last}}}}}
    schema: {{id: BIGINT}}
    computed: {{k: "id % 10"}}
steps:
  counted: {{sql: "SELECT k, COUNT(*) AS n, SUM(id) AS total FROM rows GROUP BY k"}}
sinks:
  raw: {{from: rows, {access}, table-name: raw, schema: {{id: BIGINT, k: BIGINT}}}}
  counts: {{from: counted, {access}, table-name: counts, schema: {{k: BIGINT, n: BIGINT, total: BIGINT}}, primary_key: [k]}}
"""


class ChaoticJob:
    """A job that appends rows to one table, and keeps another one up to date by key."""

    def __init__(self, database: PostgresDatabase, folder: Path, rows: int, rate: int) -> None:
        self.database = database
        self.folder = folder
        self.rows = rows
        self.file = folder / "chaos.yaml"
        access = (
            f'connector: jdbc, url: "{database.jdbc_url}", username: {database.user}, password: "{database.password}", '
            "sink.delivery-guarantee: exactly-once"
        )
        self.file.write_text(PIPELINE.format(folder=folder, rows=rows, last=rows - 1, rate=rate, access=access))
        database.execute(
            "CREATE TABLE raw (id bigint, k bigint); CREATE TABLE counts (k bigint PRIMARY KEY, n bigint, total bigint)"
        )

    def check(self) -> None:
        """Every row once, and the counts of all of them."""
        assert self.database.execute("SELECT count(*), count(DISTINCT id), max(id) FROM raw") == [
            (self.rows, self.rows, self.rows - 1)
        ]
        expected = [(k, self.rows // 10, sum(range(k, self.rows, 10))) for k in range(10)]
        assert self.database.execute("SELECT k, n, total FROM counts ORDER BY k") == expected


SELDOM = ("before a transaction", "between the number and the rows")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "phase",
    [
        pytest.param(p, marks=[pytest.mark.soak] if p in SELDOM else [])
        for p in (*TRANSACTION_PHASES, "between completion and sink commit")
    ],
)
def test_a_kill_in_each_phase_of_a_commit(postgres: PostgresDatabase, tmp_path: Path, phase: str) -> None:
    job = ChaoticJob(postgres, tmp_path, rows=4_000, rate=8_000)
    done = live_to_phase(tmp_path, job.file, "tests.connectors.jdbc.die_at", phase, 2)
    assert done.returncode == -9, done.stderr
    run_to_end(tmp_path, job.file)
    job.check()


@pytest.mark.exhaustive
def test_six_kills_at_random_times(postgres: PostgresDatabase, tmp_path: Path) -> None:
    job = ChaoticJob(postgres, tmp_path, rows=60_000, rate=10_000)
    kill_rounds(tmp_path, job.file, random.Random(7), rounds=6, longest_s=3)
    run_to_end(tmp_path, job.file)
    job.check()


@pytest.mark.soak
def test_a_hundred_kills_at_random_times(postgres: PostgresDatabase, tmp_path: Path) -> None:
    job = ChaoticJob(postgres, tmp_path, rows=1_200_000, rate=10_000)
    kill_rounds(tmp_path, job.file, random.Random(8), rounds=100, longest_s=4)
    run_to_end(tmp_path, job.file)
    job.check()


@pytest.mark.exhaustive
def test_the_server_dies_while_the_job_runs(
    postgres_server: PostgresServer, postgres: PostgresDatabase, tmp_path: Path
) -> None:
    job = ChaoticJob(postgres, tmp_path, rows=20_000, rate=5_000)
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command(tmp_path, job.file, 2), stdout=output, stderr=output)
        deadline = time.monotonic() + 120
        while not postgres.execute("SELECT 1 FROM raw LIMIT 1"):  # it has begun, and committed something
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        postgres_server.kill()
        postgres_server.start()
        assert process.wait(timeout=240) == 0, log.read_text()
    job.check()
