"""`flowrun backfill`: ranges that tile, are replaced when repeated, survive a kill, and hand over to the stream."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flowrun.plan.nodes import Plan
from flowrun.plan.windows import SlidingWindow
from flowrun.runners.backfill import parts_of
from flowrun.spark.context import TimeRange
from tests.end_to_end.conftest import Command
from tests.plan.plans import plan, scan, window
from tests.spark.session_fixture import QUICK_RUN

START = dt.datetime(2024, 1, 1)
PIPELINE = """
name: shop
sources:
  orders:
    connector: filesystem
    path: "${FOLDER}/orders"
    format: json
    schema: {id: BIGINT, user: STRING, amount: BIGINT, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 30s}
steps:
  per_minute: {from: orders, key_by: [user], window: {type: sliding, size: 2m, slide: 1m}, aggregate: ["COUNT(*) AS n", "SUM(amount) AS s"]}
  big: {sql: "SELECT id, ts FROM orders WHERE amount > 6"}
sinks:
  windows: {from: per_minute, connector: filesystem, path: "${OUT}/windows", format: json}
  big: {from: big, connector: filesystem, path: "${OUT}/big", format: parquet}
"""
Rows = Counter[str]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A pipeline over ten minutes of orders in two files, five minutes each."""
    chance = random.Random(11)
    (tmp_path / "orders").mkdir()
    for half in (0, 1):
        seconds = sorted(chance.randrange(half * 300, half * 300 + 300) for _ in range(60))
        rows = [order(half * 60 + i, chance.choice("abc"), chance.randrange(10), s) for i, s in enumerate(seconds)]
        (tmp_path / "orders" / f"{half}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "shop.yaml").write_text(PIPELINE)
    return tmp_path


def order(id: int, user: str, amount: int, second: float) -> dict[str, Any]:
    return {"id": id, "user": user, "amount": amount, "ts": str(START + dt.timedelta(seconds=second))}


def arguments(shop: Path, out: str = "out") -> list[str]:
    return [str(shop / "shop.yaml"), "--var", f"FOLDER={shop}", "--var", f"OUT={shop / out}"]


def written(folder: Path) -> Rows:
    """The rows of the visible files below a folder."""
    import pyarrow.parquet as pq

    rows: Rows = Counter()
    for file in sorted(folder.rglob("part-*")):
        if any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        if file.suffix == ".parquet":
            rows.update(str(tuple(row.values())) for row in pq.read_table(file).to_pylist())
        else:
            rows.update(file.read_text().splitlines())
    return rows


def outputs(shop: Path, out: str = "out") -> tuple[Rows, Rows]:
    return written(shop / out / "windows"), written(shop / out / "big")


def minutes(start: float | None, stop: float) -> list[str]:
    given = [] if start is None else ["--from", (START + dt.timedelta(minutes=start)).isoformat()]
    return [*given, "--to", (START + dt.timedelta(minutes=stop)).isoformat()]


@pytest.mark.usefixtures("spark")
def test_ranges_tile_and_a_repeated_one_replaces(flowrun: Command, shop: Path) -> None:
    assert flowrun("run", *arguments(shop, "stream"), "-q").code == 0
    dry = flowrun("backfill", *arguments(shop), *minutes(2, 6), "--dry-run")
    assert (dry.code, outputs(shop)) == (0, (Counter(), Counter())), dry.err
    assert "orders      filesystem  from 2024-01-01 00:01:00 up to 2024-01-01 00:06:00  2 of 2" in dry.out
    assert f"nothing; new files in {shop}/out/windows" in dry.out

    ran = flowrun("backfill", *arguments(shop), *minutes(2, 6))
    assert ran.code == 0, ran.err
    assert "shop: from 2024-01-01 00:02:00 up to 2024-01-01 00:06:00 recomputed in" in ran.err
    first = outputs(shop)
    assert f"windows: {first[0].total()} rows\n  big: {first[1].total()} rows" in ran.err
    again = flowrun("backfill", *arguments(shop), *minutes(2, 6), "--dry-run").out
    assert re.search(rf"\d files, \S+ kB in {shop}/out/big", again), again
    assert flowrun("backfill", *arguments(shop), *minutes(2, 6), "--parallel-ranges", 3, "-q").code == 0
    assert outputs(shop) == first

    for start, stop in ((None, 2), (6, 6.5), (6.5, 20)):
        assert flowrun("backfill", *arguments(shop), *minutes(start, stop), "-q").code == 0
    assert outputs(shop) == outputs(shop, "stream")


@pytest.mark.usefixtures("spark")
def test_results_that_are_updated_are_those_at_the_end_of_the_range(flowrun: Command, shop: Path) -> None:
    script = shop / "totals.sql"
    script.write_text(
        """
        CREATE TABLE orders (id BIGINT, `user` STRING, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
          WITH ('connector'='filesystem', 'path'='${FOLDER}/orders', 'format'='json');
        CREATE TABLE totals (`user` STRING, n BIGINT, PRIMARY KEY (`user`) NOT ENFORCED)
          WITH ('connector'='filesystem', 'path'='${OUT}/totals', 'format'='json');
        INSERT INTO totals SELECT `user`, COUNT(*) FROM orders GROUP BY `user`;
        """
    )
    given = [str(script), *arguments(shop)[1:]]
    assert flowrun("backfill", *given, *minutes(5, 6), "-q").code == 0
    before = {row["user"]: row["n"] for row in map(json.loads, written(shop / "out" / "totals"))}
    assert flowrun("backfill", *given, *minutes(7, 20), "-q").code == 0
    after = {row["user"]: row["n"] for row in map(json.loads, written(shop / "out" / "totals"))}
    assert sum(after.values()) == 120
    assert 60 < sum(before.values()) < 120
    dry = flowrun("backfill", *given, *minutes(5, 6), "--dry-run").out
    assert "(GroupAggregate) needs everything before the range" in dry
    assert "as things stand at the end" in dry


DYING = """
import os, signal, sys
import flowrun.spark.execution as execution
from flowrun.cli.main import main
staged = execution.commit_all
def die(outputs):
    os.kill(os.getpid(), signal.SIGKILL)
execution.commit_all = die
sys.argv = ["flowrun", *sys.argv[1:]]
main()
"""


@pytest.mark.usefixtures("spark")
def test_a_killed_backfill_leaves_nothing_to_see_and_is_replaced_by_the_next(flowrun: Command, shop: Path) -> None:
    assert flowrun("backfill", *arguments(shop), *minutes(0, 5), "-q").code == 0
    before = outputs(shop)
    with (shop / "orders" / "2.json").open("w") as late:
        late.write(json.dumps(order(999, "a", 9, 61)) + "\n")
    command = [
        sys.executable,
        "-c",
        DYING,
        "backfill",
        *arguments(shop),
        *minutes(0, 5),
        "--spark-master",
        "local[1]",
        *QUICK_RUN,
        "-q",
    ]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert outputs(shop) == before
    assert list((shop / "out").rglob(".*")), "the killed run had written nothing"

    assert flowrun("backfill", *arguments(shop), *minutes(0, 5), "-q").code == 0
    windows, big = outputs(shop)
    assert (big.total(), windows == before[0]) == (before[1].total() + 1, False)
    assert not list((shop / "out").rglob(".*"))


# ---- hand-over


@pytest.mark.everyday
@pytest.mark.usefixtures("spark")
def test_a_savepoint_is_resumed_and_both_together_are_one_stream(flowrun: Command, shop: Path) -> None:
    assert flowrun("run", *arguments(shop, "stream"), "-q").code == 0
    ran = flowrun("backfill", *arguments(shop), *minutes(None, 4.5), "--savepoint", shop / "savepoints")
    assert ran.code == 0, ran.err
    (savepoint,) = (shop / "savepoints").iterdir()
    assert f"go on from there with:\n  flowrun resume --from-savepoint {savepoint}" in ran.err
    assert 0 < outputs(shop)[1].total() < outputs(shop, "stream")[1].total()
    assert flowrun("resume", "--from-savepoint", savepoint, "-q").code == 0
    assert outputs(shop) == outputs(shop, "stream")


@pytest.mark.usefixtures("spark")
def test_both_in_one_command(flowrun: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    assert flowrun("run", *arguments(shop, "stream"), "-q").code == 0
    ran = flowrun("backfill", *arguments(shop), *minutes(None, 4.5), "--then-stream")
    assert ran.code == 0, ran.err
    assert "resuming from savepoint" in ran.err
    assert outputs(shop) == outputs(shop, "stream")
    assert list((shop / ".flowrun" / "savepoints").iterdir())


TABLE = """
CREATE TABLE orders (id BIGINT, `user` STRING, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '30' SECOND)
  WITH ('connector'='filesystem', 'path'='${FOLDER}/orders', 'format'='json');
CREATE TABLE totals (`user` STRING, n BIGINT, parity BIGINT, PRIMARY KEY (`user`) NOT ENFORCED) PARTITIONED BY (parity)
  WITH ('connector'='filesystem', 'path'='${OUT}/totals', 'format'='json', 'sink.upsert.buckets'='3');
INSERT INTO totals SELECT `user`, COUNT(*), COUNT(*) % 2 FROM orders GROUP BY `user`;
"""


def table_rows(folder: Path) -> list[tuple[str, str, int]]:
    """(partition, user, n) of all visible files."""
    files = [f for f in folder.rglob("*.json") if not f.name.startswith(".")]
    rows = [(f.parent.name, json.loads(line)) for f in files for line in f.read_text().splitlines()]
    return sorted((partition, row["user"], row["n"]) for partition, row in rows)


@pytest.mark.usefixtures("spark")
def test_a_table_by_key_is_taken_over_by_the_stream(flowrun: Command, shop: Path) -> None:
    script = shop / "totals.sql"
    script.write_text(TABLE)
    given = [str(script), *arguments(shop)[1:]]
    streamed = [str(script), *arguments(shop, "stream")[1:]]
    assert flowrun("run", *streamed, "-q").code == 0
    assert flowrun("backfill", *given, *minutes(None, 3), "-q").code == 0
    for _ in range(2):  # a repeated one replaces the table that a stream has gone on with
        ran = flowrun("backfill", *given, *minutes(None, 5), "--savepoint", shop / "savepoints", "-q")
        assert ran.code == 0, ran.err
        counted = table_rows(shop / "out" / "totals")
        assert len({user for _, user, _ in counted}) == len(counted) == 3
        assert sum(n for *_, n in counted) == 60
        savepoint = max((shop / "savepoints").iterdir(), key=lambda p: p.stat().st_mtime_ns)
        for _ in range(2):  # as often as one likes
            assert flowrun("resume", "--from-savepoint", savepoint, "-q").code == 0
            assert table_rows(shop / "out" / "totals") == table_rows(shop / "stream" / "totals")
    assert flowrun("backfill", *given, *minutes(None, 20), "-q").code == 0
    assert table_rows(shop / "out" / "totals") == table_rows(shop / "stream" / "totals")
    left = [p.name for p in (shop / "out").rglob(".*") if not p.name.endswith(".flowrun-note")]
    assert not left, "but for what runs that go on from savepoints note in their output"


# ---- what cannot be


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--from", "2024-01-02", "--to", "2024-01-01"],
            "'2024-01-02' is later than --to '2024-01-01': the range is empty",
        ),
        (["--from", "2024-01-01", "--to", "2024-01-01T00:00Z"], "is the same moment as --to"),
        (["--to", "yesterday"], "'yesterday' is no time: write 2024-01-31,"),
        (["--to", "2024"], "'2024' is no time"),
        ([], "Missing option '--to'"),
        (["--to", "2024-01-01", "--parallel-ranges", "2"], "--parallel-ranges needs --from"),
        (
            ["--from", "2024-01-01", "--to", "2024-01-02", "--parallel-ranges", "2", "--savepoint", "s"],
            "--parallel-ranges does not go with --savepoint",
        ),
    ],
)
def test_bad_ranges(flowrun: Command, shop: Path, given: list[str], said: str) -> None:
    ran = flowrun("backfill", *arguments(shop), *given)
    assert ran.code == 2
    assert said in ran.err


def test_sources_that_no_range_can_be_read_of(flowrun: Command, tmp_path: Path) -> None:
    file = tmp_path / "bad.sql"
    file.write_text(
        """CREATE TABLE a (x INT) WITH ('connector'='datagen', 'number-of-rows'='3');
        CREATE TABLE b (x INT) WITH ('connector'='datagen');
        SELECT * FROM a; SELECT * FROM b"""
    )
    ran = flowrun("backfill", file, "--to", "2024-01-01")
    assert ran.code == 2
    assert "source 'b' has no end" in ran.err
    assert "a backfill is of a range of event time, which no source has (sources: 'a', 'b')" in ran.err


def test_parts_begin_where_windows_begin() -> None:
    def parts(of: Plan, count: int) -> list[tuple[int, int]]:
        return [(p.start or 0, p.stop or 0) for p in parts_of(of, TimeRange(150, 1000), count)]

    rows = scan(event_time=True)
    windowed = plan(window(rows, "COUNT(*) AS n", of=SlidingWindow(300, 100, offset_ms=20)))
    assert parts(windowed, 3) == [(150, 420), (420, 620), (620, 1000)]
    assert parts(windowed, 20)[:2] == [(150, 220), (220, 320)]
    assert parts(plan(rows), 2) == [(150, 575), (575, 1000)]


def test_a_repeated_backfill_replaces_the_dead_letters_of_its_range(flowrun: Command, shop: Path) -> None:
    path = shop / "shop.yaml"
    text = path.read_text().replace(
        "name: shop\n", 'name: shop\nsettings: {on_error: dead-letter, dead_letters: "${OUT}/dead"}\n'
    )
    text = text.replace(
        'sql: "SELECT id, ts FROM orders WHERE amount > 6"',
        'sql: "SELECT id, ts FROM orders WHERE 100 / (amount - 5) > 20"',
    )
    path.write_text(text)
    orders = [
        json.loads(line) for file in sorted((shop / "orders").iterdir()) for line in file.read_text().splitlines()
    ]
    failing = {int(o["id"]): str(o["ts"]) for o in orders if o["amount"] == 5}
    assert len(failing) > 4
    for file in sorted((shop / "orders").iterdir()):
        file.write_text(file.read_text() + "broken\n")
    middle = "2024-01-01T00:05"
    told = []
    ranges = (["--to", middle], ["--from", middle, "--to", "2024-01-01T00:20"])
    for given in (*ranges, *ranges):
        done = flowrun("backfill", *arguments(shop), *given)
        assert done.code == 0, done.err
        told.append(letters(shop / "out" / "dead"))
    assert told[1] == told[2] == told[3], "a repeated range replaces its own dead letters, and no others"
    assert set(told[3]) == {*(f"expression {i}" for i in failing), "decoding broken"}
    second_alone = told[1] - told[0]
    assert all(count == 1 for name, count in (told[0] + second_alone).items() if name not in second_alone)


def letters(folder: Path) -> Counter[str]:
    found = [json.loads(line) for file in folder.rglob("part-*") for line in file.read_text().splitlines()]
    return Counter(
        f"{row['kind']} {row['text'] if row['kind'] == 'decoding' else json.loads(row['text'])['id']}" for row in found
    )
