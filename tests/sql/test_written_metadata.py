"""Metadata that queries write: beside the rows, of each row its own, at any parallelism and batch size."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.core.elements import RowKind
from flowrun.errors import JobFailedError
from tests.end_to_end.running import run_file

COLUMNS = """
  id BIGINT, at TIMESTAMP(3) METADATA FROM 'timestamp', twice AS id * 2, name STRING,
  `headers` MAP<STRING, BYTES> METADATA, k STRING METADATA FROM 'key'
"""
TABLES = f"""
CREATE TABLE s (id BIGINT, name STRING, ts TIMESTAMP(3)) WITH ('connector' = 'memory', 'table' = 's');
CREATE TABLE o ({COLUMNS}) WITH ('connector' = 'memory', 'table' = 'o');
CREATE TABLE keyed ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'memory', 'table' = 'o');
"""
EACH = "INSERT INTO o SELECT id, ts, name, MAP['name', CAST(name AS BYTES), 'none', CAST(NULL AS BYTES)], name FROM s;"
MOMENT = dt.datetime(2024, 3, 1, 10)


@pytest.fixture(autouse=True)
def _no_tables() -> Iterator[None]:
    yield
    memory.clear()


def put(count: int, partitions: int = 1) -> None:
    rows = [
        {"id": i, "name": f"n{i}" if i % 5 else None, "ts": MOMENT + dt.timedelta(seconds=i) if i % 7 else None}
        for i in range(count)
    ]
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("ms"))])
    memory.put("s", *([pa.RecordBatch.from_pylist(rows[p::partitions], schema)] for p in range(partitions)))


def run(folder: Path, statement: str, **settings: object) -> list[memory.WrittenRows]:
    script = folder / "s.sql"
    script.write_text(TABLES + statement)
    run_file(script, **settings)
    return memory.take_with_metadata("o")


def joined(written: list[memory.WrittenRows]) -> list[dict[str, Any]]:
    """Each row with its metadata, by id."""
    found = []
    for part in written:
        for row, metadata in zip(part.rows.columns.to_pylist(), part.metadata.to_pylist(), strict=True):
            assert not row.keys() & metadata.keys()
            found.append({**row, **metadata})
    return sorted(found, key=lambda r: r["id"])


def expected(i: int) -> dict[str, Any]:
    name = f"n{i}" if i % 5 else None
    encoded = None if name is None else name.encode()
    at = (MOMENT + dt.timedelta(seconds=i)).replace(tzinfo=dt.UTC) if i % 7 else None
    return {"id": i, "name": name, "timestamp": at, "headers": [("name", encoded), ("none", None)], "key": encoded}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("batch_rows", [1, 7, 100_000])
def test_each_row_comes_with_its_own_metadata(parallelism: int, batch_rows: int, tmp_path: Path) -> None:
    put(40, partitions=3)
    written = run(tmp_path, EACH, parallelism=parallelism, batch_rows=batch_rows)
    assert joined(written) == [expected(i) for i in range(40)]
    assert written[0].rows.columns.schema.names == ["id", "name"]
    assert written[0].metadata.schema == pa.schema(
        [("timestamp", pa.timestamp("ms", "UTC")), ("headers", pa.map_(pa.string(), pa.binary())), ("key", pa.binary())]
    )


def test_columns_that_get_no_value_are_null(tmp_path: Path) -> None:
    put(2)
    assert joined(run(tmp_path, "INSERT INTO o (name, k, id) SELECT name, name, id FROM s;")) == [
        {**expected(i), "timestamp": None, "headers": None} for i in range(2)
    ]
    assert joined(run(tmp_path, "INSERT INTO o VALUES (7, TIMESTAMP '2024-01-01 00:00:00', 'x', NULL, 'k');")) == [
        {"id": 7, "name": "x", "timestamp": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "headers": None, "key": b"k"}
    ]


def test_a_table_without_metadata_is_taken_as_before(tmp_path: Path) -> None:
    put(3)
    statement = "CREATE TABLE plain WITH ('connector' = 'memory', 'table' = 'o') AS SELECT id FROM s;"
    (part,) = run(tmp_path, statement)
    assert part.rows.columns.to_pydict() == {"id": [0, 1, 2]}
    assert part.metadata.num_columns == 0
    run(tmp_path, EACH)
    run_file(tmp_path / "s.sql")
    assert [b.columns.schema.names for b in memory.take("o")] == [["id", "name"]]


def test_changes_carry_metadata_too(tmp_path: Path) -> None:
    put(4)
    statement = (
        "INSERT INTO keyed SELECT MOD(id, 2), MAX(ts), CAST(COUNT(*) AS STRING), NULL, 'k' FROM s GROUP BY MOD(id, 2);"
    )
    written = run(tmp_path, statement, parallelism=1, batch_rows=1)
    rows = [
        (kind, row["id"], row["name"], metadata["timestamp"])
        for part in written
        for kind, row, metadata in zip(
            part.rows.row_kinds.to_pylist() if part.rows.row_kinds is not None else [0] * part.rows.num_rows,
            part.rows.columns.to_pylist(),
            part.metadata.to_pylist(),
            strict=True,
        )
    ]
    last = {id: (name, at) for kind, id, name, at in rows if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER)}
    assert last == {0: ("2", expected(2)["timestamp"]), 1: ("2", expected(3)["timestamp"])}


@pytest.mark.parametrize("action", ["NOTHING", "DEDUPLICATE"])
def test_conflicts_choose_whole_rows_with_their_metadata(action: str, tmp_path: Path) -> None:
    put(6)
    statement = f"INSERT INTO keyed SELECT MOD(id, 2), ts, name, MAP['n', CAST(name AS BYTES)], name FROM s ON CONFLICT DO {action};"
    found: dict[int, Any] = {}
    for row in joined_in_order(run(tmp_path, statement, parallelism=1)):
        found[row["id"]] = (row["name"], row["key"], row["timestamp"])
    chosen = (0, 1) if action == "NOTHING" else (4, 5)
    assert found == {i % 2: tuple(expected(i)[k] for k in ("name", "key", "timestamp")) for i in chosen}


def joined_in_order(written: list[memory.WrittenRows]) -> list[dict[str, Any]]:
    return [
        {**row, **metadata}
        for part in written
        for row, metadata in zip(part.rows.columns.to_pylist(), part.metadata.to_pylist(), strict=True)
    ]


def test_metadata_that_must_be_there_is_named(tmp_path: Path) -> None:
    put(2)
    statement = """
    CREATE TABLE strict (id BIGINT, at TIMESTAMP(3) NOT NULL METADATA FROM 'timestamp') WITH ('connector' = 'memory', 'table' = 'o');
    INSERT INTO strict SELECT id, ts FROM s;
    """
    with pytest.raises(JobFailedError, match="column 'at' is NOT NULL"):
        run(tmp_path, statement)
    dropped = "SET 'table.exec.sink.not-null-enforcer' = 'DROP';" + statement
    assert [part.rows.columns.to_pydict() for part in run(tmp_path, dropped)] == [{"id": [1]}]
