"""Rows that a sink's format cannot write, and pairs that a join's condition fails on: left out, counted and kept aside, once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from flowrun.errors import JobFailedError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from flowrun.runtime.job_status import JobResult
from tests.end_to_end.running import json_rows, written_files

LAYOUTS = [(1, 131_072), (2, 7), (1, 1)]


def run(
    folder: Path, script: str, parallelism: int = 1, batch_rows: int = 131_072, mode: str = "dead-letter"
) -> JobResult:
    path = folder / "script.sql"
    path.write_text(
        f"SET 'flowrun.on_error' = '{mode}'; SET 'flowrun.dead_letters' = '{folder}/dead';\n"
        + script.replace("FOLDER", str(folder))
    )
    overrides = {"settings.parallelism": str(parallelism), "settings.batch_rows": str(batch_rows)}
    return run_embedded(compile_pipeline(path, {}, overrides).job_graph)


def put(folder: Path, table: str, rows: list[dict[str, object]]) -> None:
    (folder / table).mkdir()
    (folder / table / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def letters(folder: Path) -> list[tuple[str, str]]:
    return sorted((str(r["place"]), str(r["kind"])) for r in json_rows(folder / "dead"))


# ---- sinks

TEXTS = [{"n": n, "s": s} for n, s in enumerate(("plain", "a;b", "two\nlines", "fine", "", "x;"))]
BARE = "'format' = 'csv', 'csv.disable-quote-character' = 'true', 'csv.field-delimiter' = ';'"
SOURCE = "CREATE TABLE texts (n INT, s STRING) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/texts', 'format' = 'json');\n"


@pytest.mark.parametrize(("parallelism", "batch_rows"), LAYOUTS)
@pytest.mark.parametrize(
    ("columns", "select", "options", "bad"),
    [
        ("s STRING", "s", "'format' = 'raw'", ["two\nlines"]),
        ("n INT, s STRING", "n, s", BARE, ["a;b", "two\nlines", "x;"]),
        ("s STRING, n INT", "s, n", "'format' = 'json', 'sink.mode' = 'error'", []),
    ],
)  # fmt: skip
def test_what_a_format_cannot_write_is_kept_aside_and_all_else_is_written(
    tmp_path: Path, parallelism: int, batch_rows: int, columns: str, select: str, options: str, bad: list[str]
) -> None:
    put(tmp_path, "texts", TEXTS)
    script = f"CREATE TABLE out ({columns}) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/out', {options});\n"
    result = run(tmp_path, SOURCE + script + f"INSERT INTO out SELECT {select} FROM texts;", parallelism, batch_rows)
    written = [line for f in written_files(tmp_path / "out") for line in f.read_text().splitlines()]
    assert len(written) == len(TEXTS) - len(bad)
    assert sorted(json.loads(str(r["text"]))["s"] for r in json_rows(tmp_path / "dead")) == sorted(bad)
    assert letters(tmp_path) == [("sink 'out'", "sink")] * len(bad)
    counted = sum(c.get("numRecordsFailed.sink", 0) for c in result.accumulators.values())
    assert counted == len(bad)


def test_lengths_that_are_an_error_and_null_inside_of_values_leave_their_rows_out(tmp_path: Path) -> None:
    put(tmp_path, "texts", TEXTS)
    script = (
        "SET 'table.exec.sink.type-length-enforcer' = 'ERROR';\n"
        "CREATE TABLE out (n INT, s VARCHAR(4)) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/out', 'format' = 'json');\n"
        "INSERT INTO out SELECT n, s FROM texts;"
    )
    run(tmp_path, SOURCE.replace("STRING", "VARCHAR(4)") + script)
    assert {r["s"] for r in json_rows(tmp_path / "out")} == {"a;b", "fine", "", "x;"}
    assert letters(tmp_path) == [("sink 'out'", "sink")] * 2


def test_without_on_error_the_job_still_fails(tmp_path: Path) -> None:
    put(tmp_path, "texts", TEXTS)
    script = "CREATE TABLE out (s STRING) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/out', 'format' = 'raw');\n"
    with pytest.raises(JobFailedError, match="the value holds a line end"):
        run(tmp_path, SOURCE + script + "INSERT INTO out SELECT s FROM texts;", mode="fail")


# ---- joins

TIME = "TIMESTAMP '2024-01-01 00:00:00'"
ROWS = {
    "a": [{"id": i, "k": i % 4, "v": i % 5, "ts": f"2024-01-01 00:00:{i:02}"} for i in range(40)],
    "b": [{"id": i, "k": i % 4, "v": i % 3, "ts": f"2024-01-01 00:00:{i:02}"} for i in range(30)],
}
TABLES = "".join(
    f"CREATE TABLE {t} (id INT, k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
    f"WITH ('connector' = 'filesystem', 'path' = 'FOLDER/{t}', 'format' = 'json');\n"
    for t in ROWS
)
OUT = "CREATE TABLE out (x INT, y INT) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/out', 'format' = 'debezium-json');\n"
FAILS = "100 / (a.v - b.v) > 30"
ORACLE = "CASE WHEN a.v = b.v THEN FALSE ELSE 100 / (a.v - b.v) > 30 END"
NEAR = "a.ts BETWEEN b.ts - INTERVAL '5' SECOND AND b.ts + INTERVAL '5' SECOND"
WINDOWED = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
KINDS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
SAME = "a.window_start = b.window_start AND a.window_end = b.window_end"


def changes(folder: Path) -> Counter[tuple[object, object]]:
    """The rows that the changes in a folder come to."""
    found: Counter[tuple[object, object]] = Counter()
    for change in json_rows(folder):
        for name, sign in (("before", -1), ("after", 1)):
            row = change[name]
            if isinstance(row, dict):
                found[row["x"], row["y"]] += sign
    return +found


def joined(query: str) -> Counter[tuple[object, object]]:
    with duckdb.connect() as database:
        for table, rows in ROWS.items():
            values = ", ".join(f"({r['id']}, {r['k']}, {r['v']}, TIMESTAMP '{r['ts']}')" for r in rows)
            database.execute(f"CREATE TABLE {table} AS SELECT * FROM (VALUES {values}) AS t (id, k, v, ts)")
        return Counter(database.execute(query.replace("100 / (", "100 // (")).fetchall())


EQUAL = sum(a["k"] == b["k"] and a["v"] == b["v"] for a in ROWS["a"] for b in ROWS["b"])
CLOSE = sum(
    a["k"] == b["k"] and a["v"] == b["v"] and abs(int(str(a["id"])) - int(str(b["id"]))) <= 5
    for a in ROWS["a"] for b in ROWS["b"]
)  # fmt: skip
WITHIN = sum(
    a["k"] == b["k"] and a["v"] == b["v"] and int(str(a["id"])) // 10 == int(str(b["id"])) // 10
    for a in ROWS["a"] for b in ROWS["b"]
)  # fmt: skip
CASES = {
    **{kind: (f"SELECT a.id, b.id FROM a {kind} b ON a.k = b.k AND C", EQUAL) for kind in KINDS},
    "semi": ("SELECT a.id, a.v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND C)", EQUAL),
    "anti": ("SELECT a.id, a.v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND C)", EQUAL),
    "interval": (f"SELECT a.id, b.id FROM a JOIN b ON a.k = b.k AND {NEAR} AND C", CLOSE),
    "interval left": (f"SELECT a.id, b.id FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} AND C", CLOSE),
    **{
        f"window {kind}": (
            f"SELECT a.id, b.id FROM (SELECT * FROM {WINDOWED.format('a')}) a {kind} (SELECT * FROM {WINDOWED.format('b')}) b "
            f"ON {SAME} AND a.k = b.k AND C",
            WITHIN,
        )
        for kind in KINDS
    },
}  # fmt: skip


@pytest.mark.parametrize(("parallelism", "batch_rows"), LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_pairs_that_a_condition_fails_on_do_not_match_and_are_kept_aside(
    tmp_path: Path, name: str, parallelism: int, batch_rows: int
) -> None:
    query, failing = CASES[name]
    for table, rows in ROWS.items():
        put(tmp_path, table, rows)
    run(tmp_path, TABLES + OUT + f"INSERT INTO out {query.replace(' C', ' ' + FAILS)};", parallelism, batch_rows)
    wanted = query.replace(" C", " " + ORACLE)
    for table in ROWS:
        bounds = "time_bucket(INTERVAL '10 seconds', ts)"
        wanted = wanted.replace(
            f"(SELECT * FROM {WINDOWED.format(table)})",
            f"(SELECT *, {bounds} AS window_start, {bounds} AS window_end FROM {table})",
        )
    assert changes(tmp_path / "out") == joined(wanted)
    found = json_rows(tmp_path / "dead")
    assert {(str(r["kind"]), "division by zero" in str(r["reason"])) for r in found} == {("expression", True)}
    assert len(found) == failing


def test_a_pair_is_said_once_although_its_rows_come_and_go(tmp_path: Path) -> None:
    """A changing side: the pair is looked at again when its row is taken back.

    Both sides read one source, so that the row of the side that does not change is there before the other has changed twice.
    """
    put(tmp_path, "b", [{"id": i, "k": 1, "v": 2, "ts": "2024-01-01 00:00:01"} for i in range(3)])
    script = (
        "CREATE VIEW counted AS SELECT k, COUNT(*) AS c FROM b GROUP BY k;\n"
        "INSERT INTO out SELECT a.id, CAST(n.c AS INT) FROM (SELECT * FROM b WHERE id = 0) AS a "
        "LEFT JOIN counted AS n ON a.k = n.k AND 100 / (a.v - n.c) > 0;"
    )
    run(tmp_path, TABLES + OUT + script, batch_rows=1)
    assert changes(tmp_path / "out") == Counter({(0, None): 1})
    assert [r["kind"] for r in json_rows(tmp_path / "dead")] == ["expression"], "of counts 1, 2 and 3 only 2 fails"


def test_a_lookup_whose_condition_fails_finds_nothing(tmp_path: Path) -> None:
    for table, rows in ROWS.items():
        put(tmp_path, table, rows)
    script = (
        "INSERT INTO out SELECT a.id, b.id FROM (SELECT *, PROCTIME() AS p FROM a) AS a "
        f"LEFT JOIN b FOR SYSTEM_TIME AS OF a.p ON a.k = b.k AND {FAILS};"
    )
    run(tmp_path, TABLES + OUT + script)
    assert changes(tmp_path / "out") == joined(f"SELECT a.id, b.id FROM a LEFT JOIN b ON a.k = b.k AND {ORACLE}")
    assert len(json_rows(tmp_path / "dead")) == EQUAL


def test_a_version_whose_condition_fails_is_none(tmp_path: Path) -> None:
    put(tmp_path, "a", [{"id": i, "k": 1, "v": i, "ts": f"2024-01-01 00:00:0{i}"} for i in (2, 3, 4)])
    put(tmp_path, "b", [{"id": i, "k": 1, "v": 3, "ts": f"2024-01-01 00:00:0{i}"} for i in (1, 4)])
    versions = TABLES.replace("TABLE b (id INT, k INT,", "TABLE b (id INT, k INT PRIMARY KEY NOT ENFORCED,")
    script = "INSERT INTO out SELECT a.id, b.id FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k AND 9 / (a.v - b.v) > 0;"
    run(tmp_path, versions + OUT + script)
    assert changes(tmp_path / "out") == Counter({(2, None): 1, (3, None): 1, (4, 4): 1})
    assert [json.loads(str(r["text"]))["id"] for r in json_rows(tmp_path / "dead")] == [3]
