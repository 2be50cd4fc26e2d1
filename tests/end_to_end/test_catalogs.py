"""Scripts that declare no tables, with a real PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowrun.graph.fingerprint import fingerprint
from flowrun.runners.compile import compile_pipeline, compile_sent
from flowrun.runners.pipeline_text import withheld_values
from tests.end_to_end.conftest import Command
from tests.end_to_end.processes import checkpoints, newest, started, wait_for
from tests.end_to_end.running import ROOT
from tests.servers.postgres import PostgresDatabase, PostgresServer

pytestmark = pytest.mark.exhaustive

PAGE = ROOT / "docs" / "catalogs.md"
SHOP = """
CREATE TABLE customers (id bigint PRIMARY KEY, name text, tier varchar(10) NOT NULL);
INSERT INTO customers VALUES (1, 'Ann', 'gold'), (2, 'Bob', 'silver'), (3, 'Cy', 'gold');
CREATE TABLE revenue (tier varchar(10) PRIMARY KEY, payments bigint, amount bigint);
CREATE TABLE payments (id bigint PRIMARY KEY, tier text);
"""
CATALOG = """
CREATE CATALOG pg WITH (
  'type' = 'jdbc', 'base-url' = 'jdbc:postgresql://localhost:5432', 'default-database' = 'shop',
  'username' = 'me', 'password' = '${secret:env:SHOP_PASSWORD}');
"""
PAYMENTS = """
CREATE TABLE incoming (id BIGINT, seen AS PROCTIME()) WITH (
  'connector' = 'datagen', 'number-of-rows' = '${ROWS:-3000}', 'rows-per-second' = '${RATE:-1000000000}',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '${ROWS:-3000}');
"""


@pytest.fixture
def shop(postgres: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PostgresDatabase:
    postgres.execute(SHOP)
    monkeypatch.setenv("SHOP_PASSWORD", postgres.password)
    monkeypatch.chdir(tmp_path)
    return postgres


def script(database: PostgresDatabase, text: str, name: str = "s.sql") -> Path:
    """A script in the working directory, whose catalog is the database of the test."""
    text = text.replace("//localhost:5432", f"//{database.host}:{database.port}").replace("'me'", f"'{database.user}'")
    path = Path(name)
    path.write_text(re.sub(r"\bshop\b", database.name, text))
    return path


@pytest.mark.parametrize("parallelism", [("-p", "1"), ("-p", "2", "--workers", "2")], ids=["one", "two"])
def test_tables_are_read_looked_up_in_and_written(
    shop: PostgresDatabase, tmp_path: Path, parallelism: tuple[str, ...]
) -> None:
    shop.execute(
        "INSERT INTO payments SELECT i, 'old' FROM generate_series(1, 2000) i; CREATE TABLE copied (LIKE payments)"
    )
    text = CATALOG + PAYMENTS + "INSERT INTO pg.shop.copied SELECT * FROM pg.shop.`public.payments` WHERE id > 10;"
    text += """
    INSERT INTO pg.shop.revenue
    SELECT c.tier, COUNT(*), SUM(p.id) FROM incoming AS p
    JOIN pg.shop.customers FOR SYSTEM_TIME AS OF p.seen AS c ON MOD(p.id, 3) + 1 = c.id GROUP BY c.tier;
    """
    with started("run", script(shop, text), *parallelism, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert shop.execute("SELECT count(*), count(DISTINCT id), min(id) FROM copied") == [(1990, 1990, 11)]
    assert sorted(shop.execute("SELECT tier, payments FROM revenue")) == [("gold", 2000), ("silver", 1000)]
    assert shop.password not in out + err


def test_the_example_of_the_page_runs(shop: PostgresDatabase, flowrun: Command) -> None:
    (example,) = (e for e in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL) if "'jdbc'" in e)
    done = flowrun("run", script(shop, example))
    assert done.code == 0, done.err
    assert "| public.customers |" in done.out
    found = {tier: (payments, amount) for tier, payments, amount in shop.execute("SELECT * FROM revenue")}
    assert sum(payments for payments, _ in found.values()) == 1000
    assert all(amount == 5 * payments for payments, amount in found.values())


def test_other_processes_get_the_tables_with_the_job(
    shop: PostgresDatabase, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    path = script(shop, CATALOG + "USE CATALOG pg; SHOW TABLES; INSERT INTO payments SELECT id, tier FROM customers;")
    compiled = compile_pipeline(path)
    secrets = withheld_values(compiled.text, {}, {})
    postgres_server.stop()
    try:
        again = compile_sent(compiled.text, secrets, tmp_path)
    finally:
        postgres_server.start()
    assert fingerprint(again.job_graph) == fingerprint(compiled.job_graph)
    kept = compiled.text.catalog_tables
    assert kept[f"pg.{shop.name}.customers"] == (
        "CREATE TABLE `customers` (`id` BIGINT NOT NULL, `name` STRING, `tier` VARCHAR(10) NOT NULL, "
        "PRIMARY KEY (`id`) NOT ENFORCED) WITH ('table-name' = '\"public\".\"customers\"')"
    )
    assert shop.password not in str(compiled.text)


RESUMABLE = (
    "SET 'execution.checkpointing.interval' = '100 ms'; SET 'state.checkpoints.dir' = 'state';\n"
    "SET 'restart-strategy.type' = 'none';\n" + CATALOG + PAYMENTS
)


def killed(path: Path, folder: Path) -> Path:
    """Runs a script slowly until it has taken checkpoints; gives the metadata of the last one."""
    with started("run", path, "--var", "RATE=500", cwd=folder) as process:
        wait_for(lambda: newest(folder) >= 2, process)
        process.kill()
    return checkpoints(folder / "state")[-1] / "_metadata.json"


def test_a_job_goes_on_with_the_tables_that_it_began_with(
    shop: PostgresDatabase, flowrun: Command, tmp_path: Path
) -> None:
    text = """
    INSERT INTO pg.shop.payments
    SELECT p.id, x.tier FROM incoming AS p
    JOIN pg.shop.customers FOR SYSTEM_TIME AS OF p.seen AS x ON MOD(p.id, 3) + 1 = x.id;
    """
    path = script(shop, RESUMABLE + text)
    kept = killed(path, tmp_path).read_text()
    assert '"catalog_tables"' in kept
    assert shop.password not in kept
    shop.execute("ALTER TABLE customers ADD COLUMN email text; ALTER TABLE payments ADD COLUMN noted text")
    planned = flowrun("plan", path, "--from-savepoint", "state")
    assert planned.code == 2, planned.out  # INSERT by position: the sink has a column more by now
    assert "takes 3 columns, the query gives 2" in planned.err
    done = flowrun("resume", "--from-savepoint", "state", "--var", "RATE=1000000000")
    assert done.code == 0, done.err
    tiers = {1: "gold", 2: "silver", 3: "gold"}
    assert sorted(shop.execute("SELECT id, tier FROM payments")) == [(i, tiers[i % 3 + 1]) for i in range(1, 3001)]


def test_a_column_that_is_gone_is_an_error_that_names_it(
    shop: PostgresDatabase, flowrun: Command, tmp_path: Path
) -> None:
    killed(script(shop, RESUMABLE + "INSERT INTO pg.shop.payments SELECT id, 'x' FROM incoming;"), tmp_path)
    shop.execute("ALTER TABLE payments DROP COLUMN tier")
    done = flowrun("resume", "--from-savepoint", "state", "--var", "RATE=1000000000")
    assert done.code == 1
    assert "has no column 'tier'" in done.err


@pytest.mark.parametrize(
    ("command", "wrong", "message"),
    [
        ("run", ("SHOP_PASSWORD", "not-the-password"), "password authentication failed"),
        ("validate", ("port", ":1'"), "Connection refused"),
        ("explain", ("database", "nowhere"), 'database "nowhere" does not exist'),
    ],
    ids=["password", "port", "database"],
)
def test_a_catalog_that_cannot_be_asked_is_an_error_of_the_script(
    shop: PostgresDatabase,
    flowrun: Command,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    wrong: tuple[str, str],
    message: str,
) -> None:
    what, value = wrong
    text = CATALOG + "SELECT * FROM pg.shop.customers;"
    if what == "database":
        text = text.replace("'default-database' = 'shop'", f"'default-database' = '{value}'").replace(
            "pg.shop", "pg." + value
        )
    path = script(shop, text)
    if what == "port":
        path.write_text(path.read_text().replace(f":{shop.port}'", value))
    if what == "SHOP_PASSWORD":
        monkeypatch.setenv(what, value)
    done = flowrun(command, path)
    assert done.code == 2
    assert "s.sql:5:15: error: catalog 'pg': PostgreSQL at 127.0.0.1" in done.out + done.err
    assert message in done.out + done.err
    assert shop.password not in done.out + done.err
    assert "not-the-password" not in done.out + done.err


def test_hostile_names_are_copied(shop: PostgresDatabase, flowrun: Command) -> None:
    shop.execute(
        'CREATE SCHEMA "A.b"; CREATE TABLE "A.b"."it\'s ""ü"" `x`.y" ("select" text, "Ä b" int, "ä b" int, PRIMARY KEY ("Ä b"))'
    )
    shop.execute('CREATE TABLE "A.b"."T" ("select" text, "Ä b" int, "ä b" int, PRIMARY KEY ("Ä b"))')
    shop.execute('INSERT INTO "A.b"."it\'s ""ü"" `x`.y" VALUES (\'a\', 1, 2), (\'b\', 2, 3)')
    name = '`A.b.it\'s "ü" ``x``.y`'
    done = flowrun(
        "run",
        script(shop, CATALOG + f"USE CATALOG pg; SHOW TABLES LIKE 'A%'; INSERT INTO `A.b.T` SELECT * FROM {name};"),
    )
    assert done.code == 0, done.err
    assert '| A.b.it\'s "ü" `x`.y |' in done.out
    assert sorted(shop.execute('SELECT * FROM "A.b"."T"')) == [("a", 1, 2), ("b", 2, 3)]
