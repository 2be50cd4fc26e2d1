"""Whole pipelines with tables of files: as the page shows them, in workers, killed and gone on with, on Spark."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.errors import PipelineError
from flowrun.plan.guarantees import plan_guarantees
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.workers import choose_workers
from tests.connectors.jdbc.files import SCHEMES, FileDatabase, made
from tests.connectors.jdbc.test_postgres_pipelines import PAGE, SHOP
from tests.connectors.jdbc.test_postgres_recovery import PIPELINE
from tests.end_to_end.running import run_file
from tests.recovery.chaos import kill_rounds, live_to_phase, run_to_end
from tests.spark.files import sql_plan
from tests.spark.test_outputs import run_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARALLEL = "SET 'parallelism.default' = '2';"


def table(file: FileDatabase, name: str, columns: str, more: str = "") -> str:
    url = f"'connector' = 'jdbc', 'url' = '{file.jdbc_url}', 'table-name' = '{name}'"
    return f"CREATE TABLE {name} ({columns}) WITH ({url}{more});\n"


def script(folder: Path, text: str) -> Path:
    path = folder / "script.sql"
    path.write_text(text)
    return path


@pytest.mark.exhaustive
def test_the_example_of_the_page_runs_on_a_file(file: FileDatabase, tmp_path: Path) -> None:
    file.execute(SHOP)
    (example,) = re.findall(r"```sql\n(CREATE TABLE customers .*?)```", PAGE.read_text(), re.DOTALL)
    text = example.replace("jdbc:postgresql://localhost:5432/shop", file.jdbc_url)
    text = re.sub(r"\s*'username' = 'me', 'password' = '[^']*',?", "", text)
    run_file(script(tmp_path, re.sub(r",\s*\)", ")", text)))
    found = {tier: (payments, amount) for tier, payments, amount in file.execute("SELECT * FROM revenue")}
    assert set(found) == {"gold", "silver"}
    assert sum(payments for payments, _ in found.values()) == 1000
    assert all(amount == 5 * payments for payments, amount in found.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_a_table_is_copied_exactly_once_within_its_file(file: FileDatabase, tmp_path: Path, parallelism: int) -> None:
    """A reader that waits for the sink does not keep the sink from writing."""
    file.execute(
        "CREATE TABLE a (id bigint, v text); CREATE TABLE b (id bigint, v text); "
        f"INSERT INTO a SELECT i, 'v' || i FROM ({file.numbers(200_000)})"
    )
    text = f"SET 'execution.checkpointing.interval' = '100 ms';\nSET 'state.checkpoints.dir' = '{tmp_path}/state';\n"
    text += table(file, "a", "id BIGINT, v STRING")
    text += table(file, "b", "id BIGINT, v STRING", ", 'sink.delivery-guarantee' = 'exactly-once'")
    run_file(script(tmp_path, text + "INSERT INTO b SELECT id, v FROM a WHERE id > 10;"), parallelism=parallelism)
    assert file.execute("SELECT count(*), count(DISTINCT v), min(id), max(id) FROM b") == [(199990, 199990, 11, 200000)]


def test_what_is_promised(file: FileDatabase, tmp_path: Path) -> None:
    text = "SET 'execution.checkpointing.interval' = '1 s'; SET 'state.checkpoints.dir' = '/nowhere';"
    text += table(file, "a", "id BIGINT")
    text += table(file, "b", "id BIGINT", ", 'sink.delivery-guarantee' = 'exactly-once'")
    plan = sql_plan(text + "INSERT INTO b SELECT id FROM a;", tmp_path)
    assert [str(g) for g in plan_guarantees(plan)] == ["sink 'b': exactly once"]


def test_workers_are_refused_where_one_process_must_have_the_file(file: FileDatabase, tmp_path: Path) -> None:
    text = PARALLEL + table(file, "a", "id BIGINT") + "CREATE TABLE b (id BIGINT) WITH ('connector' = 'blackhole');"
    graph = compile_pipeline(script(tmp_path, text + "INSERT INTO b SELECT id FROM a;"), {}, {}).job_graph
    if file.scheme == "sqlite":
        assert choose_workers(graph, 2) is not None
        return
    with pytest.raises(PipelineError, match=r"(?s)works in the command's own process only.*access_mode=READ_ONLY"):
        choose_workers(graph, 2)
    shared = text.replace(file.jdbc_url, f"{file.jdbc_url};access_mode=READ_ONLY")
    graph = compile_pipeline(script(tmp_path, shared + "INSERT INTO b SELECT id FROM a;"), {}, {}).job_graph
    assert choose_workers(graph, 2) is not None


def test_a_lookup_of_a_duckdb_file_needs_one_process_too(duckdb_file: FileDatabase, tmp_path: Path) -> None:
    text = PARALLEL + "CREATE TABLE p (id BIGINT, seen AS PROCTIME()) WITH ('connector' = 'datagen');"
    text += "CREATE TABLE b (id BIGINT) WITH ('connector' = 'blackhole');" + table(
        duckdb_file, "c", "id BIGINT, v STRING"
    )
    query = "INSERT INTO b SELECT p.id FROM p JOIN c FOR SYSTEM_TIME AS OF p.seen AS c ON p.id = c.id;"
    graph = compile_pipeline(script(tmp_path, text + query), {}, {}).job_graph
    assert choose_workers(graph, None) is None
    with pytest.raises(PipelineError, match="works in the command's own process only"):
        choose_workers(graph, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        (
            "jdbc:sqlite:",
            "jdbc:mysql:",
            2,
            r"expects jdbc:postgresql://host:port/database, jdbc:duckdb:path or jdbc:sqlite:path",
        ),
        ("shop.duckdb", "shp.duckdb", 1, r"there is no file '.*shp\.duckdb'"),
        ("n INT,", "n STRING,", 1, r"column 'n' of .* is INT, into which STRING cannot be written"),
        ("INSERT INTO b", "INSERT INTO b", 0, "2 rows read"),
    ],
)
def test_from_one_kind_of_file_to_the_other(
    duckdb_file: FileDatabase, sqlite_file: FileDatabase, tmp_path: Path, old: str, new: str, code: int, message: str
) -> None:
    duckdb_file.execute("CREATE TABLE a (id bigint, n int); INSERT INTO a VALUES (1, 10), (2, 20), (3, 30)")
    sqlite_file.execute("CREATE TABLE b (n int, id bigint PRIMARY KEY)")
    text = table(duckdb_file, "a", "id BIGINT, n INT") + table(
        sqlite_file, "b", "n INT, id BIGINT, PRIMARY KEY (id) NOT ENFORCED"
    )
    text += f"INSERT INTO b SELECT {'CAST(n AS STRING)' if 'STRING' in new else 'n'}, id FROM a WHERE id < 3;"
    path = script(tmp_path, text.replace(old, new))
    words = [sys.executable, "-m", "flowrun", "run", str(path), "--no-live"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert re.search(message, said), said
    assert sqlite_file.execute("SELECT * FROM b ORDER BY id") == ([] if code else [(10, 1), (20, 2)])


# -- killed


class ChaoticFile:
    """A job that appends rows to one table, and keeps another one up to date by key."""

    def __init__(self, file: FileDatabase, folder: Path, rows: int, rate: int) -> None:
        self.database = file
        self.rows = rows
        self.file = folder / "chaos.yaml"
        access = f'connector: jdbc, url: "{file.jdbc_url}", sink.delivery-guarantee: exactly-once'
        self.file.write_text(PIPELINE.format(folder=folder, rows=rows, last=rows - 1, rate=rate, access=access))
        file.execute(
            "CREATE TABLE raw (id bigint, k bigint); CREATE TABLE counts (k bigint PRIMARY KEY, n bigint, total bigint)"
        )

    def check(self) -> None:
        """Every row once, and the counts of all of them."""
        counted = self.database.execute("SELECT count(*), count(DISTINCT id), max(id) FROM raw")
        assert counted == [(self.rows, self.rows, self.rows - 1)]
        expected = [(k, self.rows // 10, sum(range(k, self.rows, 10))) for k in range(10)]
        assert self.database.execute("SELECT k, n, total FROM counts ORDER BY k") == expected


PHASES = (
    "before a transaction",
    "between the number and the rows",
    "before the end of a transaction",
    "after a transaction",
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("phase", [pytest.param(p, marks=[] if p == PHASES[2] else [pytest.mark.soak]) for p in PHASES])
def test_a_kill_in_each_phase_of_a_commit(tmp_path: Path, scheme: str, phase: str) -> None:
    job = ChaoticFile(made(scheme, tmp_path), tmp_path, rows=3_000, rate=8_000)
    name = phase if phase in (PHASES[0], PHASES[3]) else f"{phase} of {scheme}"
    done = live_to_phase(tmp_path, job.file, "tests.connectors.jdbc.die_at", name, 2)
    assert done.returncode == -9, done.stderr
    run_to_end(tmp_path, job.file)
    job.check()


@pytest.mark.exhaustive
def test_kills_at_random_times(file: FileDatabase, tmp_path: Path) -> None:
    job = ChaoticFile(file, tmp_path, rows=20_000, rate=10_000)
    kill_rounds(tmp_path, job.file, random.Random(7), rounds=2, longest_s=3)
    run_to_end(tmp_path, job.file)
    job.check()


@pytest.mark.soak
def test_fifty_kills_at_random_times(file: FileDatabase, tmp_path: Path) -> None:
    job = ChaoticFile(file, tmp_path, rows=600_000, rate=10_000)
    kill_rounds(tmp_path, job.file, random.Random(8), rounds=50, longest_s=4)
    run_to_end(tmp_path, job.file)
    job.check()


# -- on Spark


@pytest.mark.exhaustive
def test_a_batch_on_spark_reads_and_writes_files(spark: SparkSession, file: FileDatabase, tmp_path: Path) -> None:
    amount = "decimal(12,2)"
    file.execute(
        f"CREATE TABLE orders (id bigint, customer int, amount {amount}); "
        f"CREATE TABLE totals (customer int PRIMARY KEY, n bigint, amount {amount}); "
        "INSERT INTO totals VALUES (1, 0, 0), (9, 1, 1); "
        f"INSERT INTO orders SELECT i, i % 3, i * 0.25 FROM ({file.numbers(5000)})"
    )
    text = table(file, "orders", "id BIGINT, customer INT, amount DECIMAL(12, 2)")
    text += table(file, "totals", "customer INT, n BIGINT, amount DECIMAL(12, 2), PRIMARY KEY (customer) NOT ENFORCED")
    query = "INSERT INTO totals SELECT customer, COUNT(*), CAST(SUM(amount) AS DECIMAL(12, 2)) FROM orders WHERE id > 2 GROUP BY customer;"
    run_batch(spark, sql_plan(text + query, tmp_path), "r1")
    counted = "SELECT customer, count(*), sum(amount) FROM orders WHERE id > 2 GROUP BY 1"
    expected = file.execute(f"{counted} UNION ALL SELECT 9, 1, 1 ORDER BY 1")
    assert file.execute("SELECT * FROM totals ORDER BY 1") == expected
