"""`flowrun infer` of tables of databases: types and keys from the catalog, times and NULL from the rows, passwords nowhere."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.end_to_end.conftest import Command
from tests.servers.postgres import PostgresDatabase


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("PGPASSWORD", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def shown(flowrun: Command, path: str, *words: str) -> list[dict[str, Any]]:
    done = flowrun("preview", path, "--format", "json", *words)
    assert done.code == 0, Path(path).read_text() + done.err
    return [json.loads(line) for line in done.out.splitlines()]


SQLITE = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, "who is" TEXT, amount DECIMAL(10, 2), paid BOOLEAN, at TIMESTAMP, anything, raw BLOB, x REAL);
INSERT INTO orders VALUES (1, 'ann', 5.25, 1, '2024-01-01 10:00:00', 'a', x'00', 1.5), (2, NULL, 6, 0, '2024-01-01 09:59:58', 7, NULL, 2);
"""


def make_sqlite(path: str, script: str = SQLITE) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(script)
    connection.close()


@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_sqlite(flowrun: Command, to: str) -> None:
    make_sqlite("shop.db")
    done = flowrun("infer", "shop.db", "-o", to)
    assert done.code == 0, done.err
    text = Path(to).read_text()
    assert ("primary_key: [id]" if to.endswith("yaml") else "PRIMARY KEY (`id`) NOT ENFORCED") in text
    assert "in 2 rows of the sample none is more than 2 s behind one before it" in text
    first, second = shown(flowrun, to)
    assert (first["id"], first["who is"], first["paid"], first["anything"]) == (1, "ann", True, "a")
    assert (str(first["amount"]), second["at"], second["who is"]) == ("5.25", "2024-01-01 09:59:58", None)


def test_duckdb_in_another_folder(flowrun: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect("shop.duckdb") as connection:
        connection.execute(
            "CREATE SCHEMA s; CREATE TABLE s.orders (a INTEGER, b VARCHAR, ts TIMESTAMPTZ, tags VARCHAR[], big HUGEINT, u UUID, "
            "gap INTERVAL, PRIMARY KEY (b, a))"
        )
        connection.execute(
            "INSERT INTO s.orders VALUES (1, 'x', '2024-01-01 10:00:00Z', ['t'], 5, uuid(), INTERVAL 1 DAY)"
        )
        connection.execute("CREATE TABLE other (n INTEGER)")
    which = flowrun("infer", "shop.duckdb")
    assert which.code == 2
    assert "which of its tables is meant?\n  hint: shop.duckdb/TABLE; there are: other, s.orders" in which.err
    made = flowrun("init", "project", "--from", "shop.duckdb/s.orders")
    assert made.code == 0, made.err
    monkeypatch.chdir("project")
    text = Path("pipeline.yaml").read_text()
    assert "jdbc:duckdb:../shop.duckdb;access_mode=READ_ONLY" in text
    assert "primary_key: [b, a]" in text
    assert "ARRAY<STRING>" in text
    tested = flowrun("test")
    assert tested.code == 0, tested.out + tested.err
    (row,) = shown(flowrun, "pipeline.yaml")
    assert (row["a"], row["tags"], row["big"]) == (1, ["t"], 5)


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("shop.db/order", 1, "there is no table 'order' in the file\n  hint: did you mean 'orders'?"),
        ("none.db/orders", 2, "none.db/orders"),
        ("jdbc:sqlite:shop.db", 2, "a place is no URL of JDBC"),
        ("damaged.db/t", 1, "damaged"),
        ("old.duckdb/t", 1, "old.duckdb"),
    ],
)
def test_what_cannot_be_read(flowrun: Command, place: str, code: int, said: str) -> None:
    make_sqlite("shop.db")
    Path("damaged.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4_096)
    Path("old.duckdb").write_bytes(bytes(8) + b"DUCK" + (38).to_bytes(8, "little") + bytes(8_192))
    done = flowrun("infer", place)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_changes_are_for_postgres(flowrun: Command) -> None:
    make_sqlite("shop.db")
    done = flowrun("infer", "shop.db", "--changes")
    assert done.code == 2
    assert "is a file, whose changes nobody tells" in done.err


@pytest.mark.exhaustive
def test_postgres(flowrun: Command, postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.execute(
        'CREATE TABLE orders (id bigint PRIMARY KEY, "Who" text, amount numeric(10, 2), at timestamptz, tags text[], j jsonb)'
    )
    postgres.execute(
        "INSERT INTO orders SELECT i, 'u', i, timestamptz '2024-01-01 10:00:00Z' + i * interval '1 s', '{a}', '{}' "
        "FROM generate_series(1, 50) i"
    )
    done = flowrun("infer", f"{postgres.uri}/orders", "-o", "made.yaml")
    assert done.code == 0, done.err
    text = Path("made.yaml").read_text()
    assert postgres.password not in text + done.err
    assert "connector: jdbc" in text
    assert 'password: "${PGPASSWORD}"' in text
    assert "primary_key: [id]" in text
    assert "`--changes` declares it so that its changes are read, too" in text
    assert "50 rows of the sample are in order" in text
    found = shown(flowrun, "made.yaml", "--secret-var", f"PGPASSWORD={postgres.password}")
    assert [f["id"] for f in found] == list(range(1, 51))
    assert found[0]["tags"] == ["a"]

    monkeypatch.setenv("PGPASSWORD", postgres.password)
    place = f"postgresql://{postgres.user}@{postgres.host}:{postgres.port}/{postgres.name}"
    made = flowrun("init", "project", "--from", f"{place}/public.orders", "--changes")
    assert made.code == 0, made.err
    pipeline = Path("project/pipeline.yaml").read_text()
    assert "connector: postgres-cdc" in pipeline
    assert "slot.name: flowrun_orders" in pipeline
    monkeypatch.delenv("PGPASSWORD")
    tested = flowrun("test", "project")
    assert tested.code == 0, tested.out + tested.err
    assert postgres.execute("SELECT count(*) FROM pg_replication_slots") == [(0,)]


@pytest.mark.exhaustive
def test_values_that_no_type_has_are_texts(flowrun: Command, postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE prices (id int, at timestamptz, price numeric(8, 2), x float8)")
    postgres.execute("INSERT INTO prices VALUES (1, 'infinity', 'NaN', 'NaN'), (2, '2024-01-01', 5, 1)")
    done = flowrun("infer", f"{postgres.uri}/prices", "-o", "made.yaml")
    assert done.code == 0, done.err
    text = Path("made.yaml").read_text()
    assert (
        "Column 'at' holds a value that is no TIMESTAMP_LTZ(6), such as infinity or NaN: it is read as a text" in text
    )
    found = shown(flowrun, "made.yaml", "--secret-var", f"PGPASSWORD={postgres.password}")
    assert [(f["at"], f["price"]) for f in found] == [("infinity", "NaN"), ("2024-01-01 00:00:00+00", "5.00")]


@pytest.mark.exhaustive
def test_what_postgres_refuses(flowrun: Command, postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE orders (id bigint)")
    server = f"{postgres.user}:WORD@{postgres.host}:{postgres.port}/{postgres.name}"
    for place, code, said in (
        (f"postgresql://{server}/orders", 1, "authentication failed"),
        (f"{postgres.uri}/order", 1, "did you mean 'orders'?"),
        (f"{postgres.uri}", 2, "which of its tables is meant?"),
        (
            f"postgresql://{postgres.user}@{postgres.host}:1/{postgres.name}/orders",
            1,
            "check that it runs and can be reached",
        ),
        ("postgresql://host", 2, "names no database"),
    ):
        done = flowrun("infer", place)
        assert (done.code, said in done.err) == (code, True), done.err
        assert postgres.password not in done.err
    changes = flowrun("infer", f"{postgres.uri}/orders", "--changes")
    assert changes.code == 2
    assert "it has no primary key" in changes.err
