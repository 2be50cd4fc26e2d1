"""Batch mode on the embedded runtime gives what the stream amounts to in the end, with the state of few keys at a time."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowrun.connectors import memory
from flowrun.core.elements import RowKind
from flowrun.errors import PipelineError
from flowrun.operators.updating.group_state import GroupState
from flowrun.runtime.task import sorted_input
from flowrun.state.backend.objects import ObjectStore
from tests.end_to_end import keyed_functions
from tests.end_to_end.random_pipelines import moment
from tests.end_to_end.running import json_rows, run_file
from tests.slices import everyday

TABLES = """
CREATE TABLE a (k STRING, n BIGINT, x DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = '${FOLDER}/a.json', 'format' = 'json');
CREATE TABLE b (k STRING, m BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = '${FOLDER}/b.json', 'format' = 'json');
"""
QUERIES = {
    "groups": "SELECT k, COUNT(*), SUM(n), MIN(n), MAX(x), COUNT(DISTINCT n) FROM a GROUP BY k",
    "groups of groups": "SELECT c, COUNT(*) FROM (SELECT k, COUNT(*) AS c FROM a GROUP BY k) GROUP BY c",
    "all rows": "SELECT COUNT(*), SUM(n) FROM a",
    "distinct": "SELECT DISTINCT k, n FROM a",
    "tumbling": "SELECT k, window_start, COUNT(*), SUM(n) FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND)\n"
    "GROUP BY k, window_start, window_end",
    "hopping": "SELECT k, window_end, SUM(n) FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)\n"
    "GROUP BY k, window_start, window_end",
    "sessions": "SELECT k, window_start, window_end, COUNT(*)\n"
    "FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY k, window_start, window_end",
    "global windows": "SELECT window_end, COUNT(*) FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND)\n"
    "GROUP BY window_start, window_end",
    "inner join": "SELECT a.k, a.n, b.m FROM a JOIN b ON a.k = b.k AND a.n < b.m",
    "left join": "SELECT a.k, a.n, b.m FROM a LEFT JOIN b ON a.k = b.k AND a.n = b.m",
    "full join": "SELECT a.k, a.n, b.k, b.m FROM a FULL JOIN b ON a.k = b.k AND a.n = b.m",
    "semi join": "SELECT k, n FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.m = a.n)",
    "interval join": "SELECT a.k, a.n, b.m FROM a JOIN b ON a.k = b.k\n"
    "AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + INTERVAL '1' SECOND",
    "window join": "SELECT l.k, l.n, r.m FROM (SELECT * FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND))) l\n"
    "LEFT JOIN (SELECT * FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '5' SECOND))) r\n"
    "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end",
    "top two": "SELECT k, n, p FROM (SELECT k, n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC, x, ts) AS p FROM a) WHERE p <= 2",
    "newest": "SELECT k, n, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS p FROM a) WHERE p = 1",
    "oldest": "SELECT k, n, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS p FROM a) WHERE p = 1",
    "window top": "SELECT k, n, p FROM (SELECT *, ROW_NUMBER() OVER\n"
    "(PARTITION BY k, window_start, window_end ORDER BY n DESC, x, ts) AS p\n"
    "FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND)) WHERE p <= 1",
    "running sum": "SELECT k, n, SUM(n) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM a",
    "share": "SELECT k, n, n * 100 / (1 + SUM(n) OVER (PARTITION BY k)) FROM a",
    "pattern": "SELECT * FROM a MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES U.n AS low, V.n AS high\n"
    "ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (U V) DEFINE V AS V.n > U.n)",
    "join of groups": "SELECT g.k, g.s, b.m FROM (SELECT k, SUM(n) AS s FROM a GROUP BY k) g JOIN b ON g.k = b.k",
    "union": "SELECT k, n FROM a UNION SELECT k, m FROM b",
    "except": "SELECT k, n FROM a EXCEPT SELECT k, m FROM b",
}
MODES = [(1, 1), (7, 2), (131_072, 2)]
"""(rows a batch, parallelism) of the runs in batch mode."""


@pytest.fixture(autouse=True)
def _few_rows_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sorted_input, "SORT_MEMORY_BYTES", 4000)
    yield
    memory.clear()


def make_rows(rng: random.Random, count: int, value: str) -> str:
    rows, now = [], 1_709_287_200_000
    for _ in range(count):
        now += rng.randrange(1, 200)
        keys = ["", None, "a", "b", "b\u0000", "longer than eight bytes", str(rng.randrange(30))]
        row = {"k": rng.choice(keys), value: rng.choice((None, rng.randrange(8))), "ts": str(moment(now))}
        if value == "n":
            row["x"] = rng.choice((0.0, -0.0, 1.5, None))
        rows.append(row)
    for i in range(0, count - 1, 3):
        rows[i], rows[i + 1] = rows[i + 1], rows[i]
    return "".join(json.dumps(row) + "\n" for row in rows)


def run(folder: Path, text: str, **settings: object) -> list[tuple[int, tuple[Any, ...]]]:
    """(kind, row) of all rows of the memory table `out`."""
    memory.clear()
    path = folder / "query.sql"
    path.write_text(TABLES + text, encoding="utf-8")
    run_file(path, {"FOLDER": folder}, **settings)
    found = []
    for batch in memory.take("out"):
        kinds = [0] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
        found += list(zip(kinds, map(tuple, (r.values() for r in batch.columns.to_pylist())), strict=True))
    return found


def folded(changes: list[tuple[int, tuple[Any, ...]]]) -> Counter[str]:
    """What changes amount to."""
    rows: Counter[str] = Counter()
    for kind, row in changes:
        rows[repr(row).replace("-0.0", "0.0")] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    assert all(count >= 0 for count in rows.values())
    return +rows


def to_memory(query: str) -> str:
    return f"CREATE TABLE o WITH ('connector' = 'memory', 'table' = 'out') AS {query};"


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", everyday(range(8), 8, ci=4))
def test_a_query_gives_what_the_stream_amounts_to(tmp_path: Path, name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    for table, value in (("a", "n"), ("b", "m")):
        (tmp_path / f"{table}.json").write_text(make_rows(rng, rng.choice((5, 120)), value))
    query = to_memory(QUERIES[name])
    wanted = folded(run(tmp_path, query))
    for batch_rows, parallelism in MODES:
        found = run(tmp_path, query, batch_rows=batch_rows, parallelism=parallelism, embedded_mode="batch")
        assert folded(found) == wanted, (batch_rows, parallelism)
        if name in ("groups", "tumbling"):
            assert all(kind == RowKind.INSERT for kind, _ in found), "the last row of each group, and nothing else"


FUNCTIONS = """
name: functions
settings: {functions: [tests]}
sources:
  a:
    connector: filesystem
    path: ${FOLDER}/a.json
    format: json
    schema: {k: STRING, n: BIGINT, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 1s}
steps:
  known: {from: a, filter: "k IS NOT NULL AND n IS NOT NULL"}
  told: {from: known, key_by: [k], process: {function: "tests.end_to_end.keyed_functions:NAME", schema: {k: STRING, told: STRING}}}
sinks:
  out: {from: told, connector: memory, table: out}
"""


def told(folder: Path, name: str, **settings: object) -> dict[str, list[str]]:
    """What a function tells of each key, in order."""
    memory.clear()
    path = folder / "functions.yaml"
    path.write_text(FUNCTIONS.replace("NAME", name), encoding="utf-8")
    run_file(path, {"FOLDER": folder}, **settings)
    found: dict[str, list[str]] = {}
    for batch in memory.take("out"):
        for row in batch.columns.to_pylist():
            found.setdefault(str(row["k"]), []).append(row["told"])
    return found


@pytest.mark.parametrize("name", ["Remembering", "Counting"])
def test_a_function_with_timers_tells_the_same_of_each_key(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.json").write_text(make_rows(random.Random(name), 300, "n"))
    wanted = told(tmp_path, name)
    assert len(wanted) > 15
    for batch_rows, parallelism in MODES:
        found = told(tmp_path, name, batch_rows=batch_rows, parallelism=parallelism, embedded_mode="batch")
        assert found == wanted, (batch_rows, parallelism)


def test_functions_on_rows_have_the_state_of_one_key_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys_at_once: set[int] = set()
    put = ObjectStore.put

    def counting(store: ObjectStore, item: Any, value: Any) -> None:
        put(store, item, value)
        keys_at_once.add(len({i[0] if store.name == "often" else i for i in store.values}))

    monkeypatch.setattr(ObjectStore, "put", counting)
    (tmp_path / "a.json").write_text(make_rows(random.Random(1), 300, "n"))
    told(tmp_path, "Remembering")
    assert max(keys_at_once) > 20
    keys_at_once.clear()
    told(tmp_path, "Remembering", embedded_mode="batch")
    assert keys_at_once == {1}


def test_aggregates_have_the_state_of_the_keys_of_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups_at_once: list[int] = []
    apply = GroupState.apply

    def counting(state: GroupState, *given: Any) -> Any:
        changes = apply(state, *given)
        groups_at_once.append(len(state))
        return changes

    monkeypatch.setattr(GroupState, "apply", counting)
    monkeypatch.setattr(sorted_input, "SORT_MEMORY_BYTES", 1 << 20)
    rows = "".join(json.dumps({"k": str(i % 5000), "n": i, "ts": "2024-03-01 10:00:00"}) + "\n" for i in range(10_000))
    (tmp_path / "a.json").write_text(rows)
    query = to_memory("SELECT k, COUNT(*), MAX(n) FROM a GROUP BY k")
    wanted = folded(run(tmp_path, query))
    assert max(groups_at_once) == 5000
    groups_at_once.clear()
    assert folded(run(tmp_path, query, batch_rows=500, embedded_mode="batch")) == wanted
    assert sum(groups_at_once) == 5000
    assert max(groups_at_once) <= 500


def test_it_is_batch_mode_by_itself_where_all_sources_end(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(make_rows(random.Random(2), 50, "n"))
    query = to_memory(QUERIES["groups"])
    changes = run(tmp_path, query)
    assert any(kind != RowKind.INSERT for kind, _ in run(tmp_path, query, batch_rows=7, local_aggregation="false"))
    found = run(tmp_path, query, batch_rows=7, local_aggregation="false", embedded_mode="automatic")
    assert all(kind == RowKind.INSERT for kind, _ in found)
    assert folded(found) == folded(changes)
    kept = run(
        tmp_path,
        query,
        batch_rows=7,
        local_aggregation="false",
        embedded_mode="automatic",
        **{"checkpoint.interval": "1h", "checkpoint.dir": tmp_path / "state"},
    )
    assert any(kind != RowKind.INSERT for kind, _ in kept), "checkpoints were asked for"


def test_batch_mode_and_checkpoints_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match="'embedded_mode: batch' takes no checkpoints, but 'checkpoint' asks for some"
    ):
        run(tmp_path, to_memory(QUERIES["groups"]), embedded_mode="batch", **{"checkpoint.interval": "1h"})


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_stage_that_fails_amid_its_sorted_rows_runs_again(tmp_path: Path, parallelism: int) -> None:
    (tmp_path / "a.json").write_text(make_rows(random.Random(3), 300, "n"))
    wanted = told(tmp_path, "Remembering")
    again = {"restart.strategy": "fixed_delay", "restart.attempts": 1, "restart.delay": "1ms"}
    keyed_functions.FailingOnce.rows = keyed_functions.FailingOnce.failures = 0
    path = tmp_path / "once.yaml"
    files = FUNCTIONS.replace(
        "connector: memory, table: out", "connector: filesystem, path: '${FOLDER}/out', format: json"
    )
    path.write_text(files.replace("NAME", "FailingOnce"), encoding="utf-8")
    run_file(path, {"FOLDER": tmp_path}, parallelism=parallelism, embedded_mode="batch", batch_rows=20, **again)
    assert keyed_functions.FailingOnce.failures == 1
    found: dict[str, list[object]] = {}
    for row in json_rows(tmp_path / "out"):
        found.setdefault(str(row["k"]), []).append(row["told"])
    assert found == wanted, "what the first attempt wrote is not there"
