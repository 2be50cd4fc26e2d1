"""Whole pipelines with tables of a real PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowrun.errors import JobFailedError, PipelineError
from flowrun.runners.compile import compile_pipeline
from tests.end_to_end.running import ROOT, run_file
from tests.servers.postgres import PostgresDatabase

pytestmark = pytest.mark.exhaustive

PAGE = ROOT / "docs" / "connectors" / "jdbc.md"
SHOP = """
CREATE TABLE customers (id bigint PRIMARY KEY, name text, tier text);
INSERT INTO customers VALUES (1, 'Ann', 'gold'), (2, 'Bob', 'silver'), (3, 'Cy', 'gold');
CREATE TABLE revenue (tier text PRIMARY KEY, payments bigint, amount bigint);
"""


def script(folder: Path, database: PostgresDatabase, text: str, password: str | None = None) -> Path:
    """A script whose tables are in the database of the test; `password`: written instead of the place where it is kept."""
    text = text.replace("jdbc:postgresql://localhost:5432/shop", database.jdbc_url)
    text = text.replace("'username' = 'me'", f"'username' = '{database.user}'")
    path = folder / "script.sql"
    path.write_text(text if password is None else text.replace("${secret:env:SHOP_PASSWORD}", password))
    return path


def test_the_example_of_the_page_runs(
    postgres: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute(SHOP)
    monkeypatch.setenv("SHOP_PASSWORD", postgres.password)
    (example,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    run_file(script(tmp_path, postgres, example))
    found = {tier: (payments, amount) for tier, payments, amount in postgres.execute("SELECT * FROM revenue")}
    assert set(found) == {"gold", "silver"}
    assert sum(payments for payments, _ in found.values()) == 1000
    assert all(amount == 5 * payments for payments, amount in found.values())


def table(name: str, columns: str, more: str = "") -> str:
    return (
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://localhost:5432/shop', "
        f"'table-name' = '{name}', 'username' = 'me', 'password' = '${{secret:env:SHOP_PASSWORD}}'{more});\n"
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_table_is_copied_exactly_once_with_checkpoints(
    postgres: PostgresDatabase, tmp_path: Path, parallelism: int
) -> None:
    postgres.execute("CREATE TABLE a AS SELECT i::bigint AS id, 'v' || i AS v FROM generate_series(1, 30000) i")
    postgres.execute("CREATE TABLE b (id bigint, v text)")
    text = (
        "SET 'execution.checkpointing.interval' = '100 ms';\n" + f"SET 'state.checkpoints.dir' = '{tmp_path}/state';\n"
    )
    text += table("a", "id BIGINT, v STRING") + table(
        "b", "id BIGINT, v STRING", ", 'sink.delivery-guarantee' = 'exactly-once'"
    )
    run_file(
        script(tmp_path, postgres, text + "INSERT INTO b SELECT id, v FROM a WHERE id > 10;", postgres.password),
        parallelism=parallelism,
    )
    assert postgres.execute("SELECT count(*), count(DISTINCT (id, v)), min(id) FROM b") == [(29990, 29990, 11)]


def test_a_wrong_password_fails_the_job_without_being_shown(
    postgres: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.execute(SHOP)
    path = script(tmp_path, postgres, table("revenue", "tier STRING") + "SELECT * FROM revenue;", "not-the-password")
    with pytest.raises(JobFailedError, match="authentication failed") as raised:
        run_file(path)
    shown = "".join(capsys.readouterr())
    cause: BaseException | None = raised.value
    while cause is not None:
        shown += f"{cause} {cause!r}"
        cause = cause.__cause__
    assert "not-the-password" not in shown


def test_an_updating_query_needs_a_primary_key(postgres: PostgresDatabase, tmp_path: Path) -> None:
    text = table("revenue", "tier STRING, payments BIGINT") + table("customers", "tier STRING")
    path = script(
        tmp_path, postgres, text + "INSERT INTO revenue SELECT tier, COUNT(*) FROM customers GROUP BY tier;", "pw"
    )
    with pytest.raises(PipelineError, match=r"(?i)primary key|updates"):
        compile_pipeline(path, {}, {})
