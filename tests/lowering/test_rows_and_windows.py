"""Scripts run in this process: constant rows, unnesting, table functions and windows over tables, against DuckDB and plain Python."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.core.types import timestamp
from tests.end_to_end.running import run_file

EVENTS = """CREATE TABLE events (id INT, k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '0.020' SECOND)
  WITH ('connector' = 'memory', 'table' = 'events');"""
SECOND = 1000


@pytest.fixture(autouse=True)
def own_tables() -> Any:
    memory.clear()
    yield
    memory.clear()


def run(tmp_path: Path, script: str, columns: str, query: str, **settings: Any) -> list[tuple[Any, ...]]:
    """The final rows of a query, folded from its changes."""
    path = tmp_path / "script.sql"
    path.write_text(
        f"{script}\nCREATE TABLE result ({columns}) WITH ('connector' = 'memory', 'table' = 'result');\nINSERT INTO result {query};"
    )
    run_file(path, **settings)
    rows: Counter[tuple[Any, ...]] = Counter()
    for batch in memory.take("result"):
        kinds = batch.row_kinds.to_pylist() if batch.row_kinds is not None else [0] * batch.num_rows
        for kind, row in zip(kinds, batch.columns.to_pylist(), strict=True):
            values = tuple(tuple(v) if isinstance(v, list) else v for v in row.values())
            rows[values] += 1 if kind in (0, 2) else -1
    assert all(n > 0 for n in (+rows).values())
    assert not -rows, "nothing is retracted that was not sent"
    return sorted(rows.elements(), key=repr)


def random_events(seed: int, rows: int = 200) -> list[dict[str, Any]]:
    """Rows with up to 20 ms of disorder, so that none is late."""
    chance = random.Random(seed)
    events = []
    for i in range(rows):
        time = i * 7 - chance.randrange(20) + 20
        key = chance.choice(["a", "b", "c", None])
        events.append(
            {
                "id": i,
                "k": key,
                "v": chance.choice([None, 1, 2, 3]),
                "ts": dt.datetime(2024, 1, 1) + dt.timedelta(milliseconds=time),
            }
        )
    return events


def put(events: list[dict[str, Any]], batch_rows: int) -> pa.Table:
    schema = pa.schema([("id", pa.int32()), ("k", pa.string()), ("v", pa.int32()), ("ts", timestamp(3).arrow)])
    table = pa.Table.from_pylist(events, schema=schema).combine_chunks()
    memory.put("events", table.to_batches(max_chunksize=batch_rows))
    return table


def duck(table: pa.Table, query: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.register("events", table)
    return sorted(connection.sql(query).fetchall(), key=repr)


# -- rows ----------------------------------------------------------------------------------------------------------------------


def test_constant_rows(tmp_path: Path) -> None:
    query = """SELECT * FROM (VALUES (1, 'a', DATE '2024-05-06', ARRAY['x', CAST(NULL AS STRING)]), (2, CAST(NULL AS STRING), NULL, NULL))
               AS t(i, s, d, tags)"""
    assert run(tmp_path, "", "i INT, s STRING, d DATE, tags ARRAY<STRING>", query) == [
        (1, "a", dt.date(2024, 5, 6), ("x", None)),
        (2, None, None, None),
    ]


def test_one_row_without_a_table(tmp_path: Path) -> None:
    assert run(tmp_path, "", "a INT, b STRING", "SELECT 1 + 1, UPPER('x')", parallelism=3) == [(2, "X")]


def test_unnested_collections(tmp_path: Path) -> None:
    values = "(VALUES (1, ARRAY['x', 'y'], MAP['k', 1]), (2, CAST(ARRAY[] AS ARRAY<STRING>), MAP['l', 2, 'm', 3])) AS t(i, tags, m)"
    values = values.replace("CAST(ARRAY[] AS ARRAY<STRING>)", "CAST(NULL AS ARRAY<STRING>)")
    inner = run(tmp_path, "", "i INT, tag STRING", f"SELECT i, tag FROM {values} CROSS JOIN UNNEST(tags) AS u(tag)")
    assert inner == [(1, "x"), (1, "y")]
    outer = run(
        tmp_path,
        "",
        "i INT, tag STRING, n INT",
        f"SELECT i, tag, n FROM {values} LEFT JOIN UNNEST(tags) WITH ORDINALITY AS u(tag, n) ON TRUE",
    )
    assert outer == [(1, "x", 1), (1, "y", 2), (2, None, None)]
    pairs = run(tmp_path, "", "i INT, k STRING, v INT", f"SELECT i, k, v FROM {values} CROSS JOIN UNNEST(m) AS u(k, v)")
    assert pairs == [(1, "k", 1), (2, "l", 2), (2, "m", 3)]


@pytest.mark.parametrize("name", ["numbers", "repeated"])
def test_table_functions(tmp_path: Path, name: str) -> None:
    function = f"SET 'flowrun.functions' = 'tests'; CREATE FUNCTION f AS 'tests.operators.rows.functions.{name}' LANGUAGE PYTHON;"
    values = "(VALUES (1, 2), (2, 0)) AS t(i, size)"
    query = f"SELECT i, n FROM {values} LEFT JOIN LATERAL TABLE(f(CAST(size AS BIGINT))) AS u(n) ON TRUE"
    assert run(tmp_path, function, "i INT, n BIGINT", query) == [(1, 0), (1, 1), (2, None)]


# -- windows -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "batch_rows", "parallelism"), [(1, 1, 1), (2, 7, 2), (3, 1000, 3)])
def test_windowed_rows(tmp_path: Path, seed: int, batch_rows: int, parallelism: int) -> None:
    table = put(random_events(seed), batch_rows)
    got = run(
        tmp_path,
        EVENTS,
        "id INT, s TIMESTAMP(3), e TIMESTAMP(3), t TIMESTAMP(3)",
        "SELECT id, window_start, window_end, window_time FROM "
        "TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '0.050' SECOND, INTERVAL '0.150' SECOND))",
        parallelism=parallelism,
    )
    expected = duck(
        table,
        """SELECT id, s, s + INTERVAL 150 MILLISECOND, s + INTERVAL 149 MILLISECOND FROM (
             SELECT id, time_bucket(INTERVAL 50 MILLISECOND, ts) - n * INTERVAL 50 MILLISECOND AS s FROM events, range(3) r(n))""",
    )
    assert got == expected


@pytest.mark.parametrize(("seed", "batch_rows", "parallelism"), [(1, 1, 1), (2, 7, 3), (3, 1000, 2)])
def test_an_aggregate_that_reads_its_window(tmp_path: Path, seed: int, batch_rows: int, parallelism: int) -> None:
    """Its rows are expanded and grouped by the window that they have: the same as grouping without."""
    put(random_events(seed), batch_rows)
    window = "TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.050' SECOND, INTERVAL '0.200' SECOND))"
    columns = "s TIMESTAMP(3), e TIMESTAMP(3), k STRING, n BIGINT, total INT"
    fast = f"SELECT window_start, window_end, k, COUNT(*), SUM(v) FROM {window} GROUP BY window_start, window_end, k"
    read = (
        f"SELECT window_start, MAX(window_end), k, COUNT(*), SUM(v) FROM {window} GROUP BY window_start, window_end, k"
    )
    assert run(tmp_path, EVENTS, columns, read, parallelism=parallelism) == run(tmp_path, EVENTS, columns, fast)


SESSIONS = """WITH runs AS (
  SELECT *, SUM(CASE WHEN ts <= before + INTERVAL 30 MILLISECOND THEN 0 ELSE 1 END) OVER (PARTITION BY {key} ORDER BY ts, id) AS run
  FROM (SELECT *, LAG(ts) OVER (PARTITION BY {key} ORDER BY ts, id) AS before FROM events)),
  bounds AS (SELECT *, MIN(ts) OVER r AS s, MAX(ts) OVER r + INTERVAL 30 MILLISECOND AS e FROM runs WINDOW r AS (PARTITION BY {key}, run))
  SELECT {select} FROM bounds {rest}"""


@pytest.mark.parametrize(("seed", "batch_rows", "parallelism"), [(1, 1, 1), (2, 7, 3), (3, 1000, 2)])
@pytest.mark.parametrize("key", ["k", None])
def test_rows_of_sessions(tmp_path: Path, seed: int, batch_rows: int, parallelism: int, key: str | None) -> None:
    """They come out when their session closes, each with its bounds; NULL is a key like any other."""
    events = [e for e in random_events(seed, 300) if e["id"] % 10 < 7]
    table = put(events, batch_rows)
    partition = "" if key is None else f" PARTITION BY {key}"
    sessions = f"TABLE(SESSION(TABLE events{partition}, DESCRIPTOR(ts), INTERVAL '0.030' SECOND))"
    query = f"SELECT id, k, v, window_start, window_end FROM {sessions}"
    got = run(
        tmp_path, EVENTS, "id INT, k STRING, v INT, s TIMESTAMP(3), e TIMESTAMP(3)", query, parallelism=parallelism
    )
    assert got == duck(table, SESSIONS.format(key=key or "1", select="id, k, v, s, e", rest=""))


def test_groups_within_sessions(tmp_path: Path) -> None:
    """Finer groups than those whose rows make the sessions."""
    table = put(random_events(5, 300), 13)
    query = """SELECT k, v, window_start, window_end, COUNT(*)
               FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '0.030' SECOND))
               GROUP BY k, v, window_start, window_end"""
    got = run(tmp_path, EVENTS, "k STRING, v INT, s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT", query, parallelism=2)
    assert got == duck(table, SESSIONS.format(key="k", select="k, v, s, e, COUNT(*)", rest="GROUP BY ALL"))


def test_windows_over_windows_of_windows(tmp_path: Path) -> None:
    """A cascade through window_time, then an aggregate over its windows, then the best of each."""
    table = put(random_events(6, 300), 11)
    query = """
      WITH small AS (SELECT k, window_time AS t, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.050' SECOND))
                     GROUP BY k, window_start, window_end, window_time),
           large AS (SELECT k, window_start, window_end, SUM(n) AS n FROM TABLE(TUMBLE(TABLE small, DESCRIPTOR(t), INTERVAL '0.200' SECOND))
                     GROUP BY k, window_start, window_end)
      SELECT l.window_start, l.k, l.n FROM large l
      JOIN (SELECT window_start AS s, window_end AS e, MAX(n) AS best FROM large GROUP BY window_start, window_end) m
      ON l.window_start = m.s AND l.window_end = m.e AND l.n = m.best"""
    got = run(tmp_path, EVENTS, "s TIMESTAMP(3), k STRING, n BIGINT", query, parallelism=2)
    expected = duck(
        table,
        """SELECT s, k, n FROM (SELECT time_bucket(INTERVAL 200 MILLISECOND, ts) AS s, k, COUNT(*) AS n FROM events GROUP BY ALL)
           QUALIFY n = MAX(n) OVER (PARTITION BY s)""",
    )
    assert got == expected


def test_grouping_sets_within_windows(tmp_path: Path) -> None:
    table = put(random_events(7), 9)
    query = """SELECT window_start, k, v, GROUPING(k), COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.200' SECOND))
               GROUP BY window_start, window_end, GROUPING SETS ((k, v), (k), ())"""
    got = run(tmp_path, EVENTS, "s TIMESTAMP(3), k STRING, v INT, g BIGINT, n BIGINT", query)
    expected = duck(
        table,
        """SELECT s, k, v, GROUPING(k), COUNT(*) FROM (SELECT *, time_bucket(INTERVAL 200 MILLISECOND, ts) AS s FROM events)
           GROUP BY GROUPING SETS ((s, k, v), (s, k), (s))""",
    )
    assert got == expected
