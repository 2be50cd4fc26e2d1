"""Timers behind joins and unions see every row up to their time, and fire once, whatever batches and parallelism are; no row is late."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowrun.connectors import memory
from tests.end_to_end.random_pipelines import moment
from tests.end_to_end.running import run_file
from tests.slices import everyday

DISORDER = 30
WITHIN = 25
SIZE = 40
SENT = {"k": "STRING", "at": "BIGINT", "complete": "BIGINT", "x": "BIGINT"}
COLUMNS = {"k": "STRING", "x": "BIGINT", "ts": "TIMESTAMP(3)"}
Row = dict[str, Any]


def make_rows(rng: random.Random) -> list[Row]:
    """Rows out of order by at most `DISORDER` ms, so that none is late."""
    top, rows = 0, []
    for _ in range(rng.choice((20, 120))):
        top += rng.choice((0, 1, rng.randrange(20)))
        rows.append({"k": rng.choice("abc"), "x": rng.randrange(60), "ts": top - rng.randrange(DISORDER)})
    return rows


def complete(rows: list[Row]) -> Counter[tuple[str, int, int, int]]:
    """What the function of the tests tells: at the time of each timer, the rows of the key that are not after it."""
    timers = {(row["k"], row["ts"] + row["x"]) for row in rows}
    told = []
    for key, at in timers:
        seen = [r["x"] for r in rows if r["k"] == key and r["ts"] <= at]
        told.append((key, at, len(seen), sum(seen)))
    return Counter(told)


def union(left: list[Row], right: list[Row]) -> list[Row]:
    return left + right


def within(left: list[Row], right: list[Row]) -> list[Row]:
    """The interval join: pairs of one key that are close; event time is the later one's."""
    return [
        {"k": a["k"], "x": a["x"] + b["x"], "ts": max(a["ts"], b["ts"])}
        for a in left
        for b in right
        if a["k"] == b["k"] and abs(a["ts"] - b["ts"]) <= WITHIN
    ]


def same_window(left: list[Row], right: list[Row]) -> list[Row]:
    """The window join: pairs of one key in the same window; event time is the last millisecond of it."""
    return [
        {"k": a["k"], "x": a["x"] + b["x"], "ts": (a["ts"] // SIZE + 1) * SIZE - 1}
        for a in left
        for b in right
        if a["k"] == b["k"] and a["ts"] // SIZE == b["ts"] // SIZE
    ]


WINDOW = {"window": {"type": "tumbling", "size": f"{SIZE}ms"}}
STEPS: dict[str, tuple[dict[str, Any], Callable[[list[Row], list[Row]], list[Row]]]] = {
    "union": ({"both": {"union": ["left", "right"]}}, union),
    "interval join": (
        {
            "both": {
                "from": "left",
                "join": {
                    "with": "right",
                    "on": (
                        f"left.k = right.k AND right.ts BETWEEN left.ts - INTERVAL '0.{WITHIN:03}' SECOND"
                        f" AND left.ts + INTERVAL '0.{WITHIN:03}' SECOND"
                    ),
                },
                "select": ["left.k AS k", "left.x + right.x AS x"],
            }
        },
        within,
    ),
    "window join": (
        {
            "l": {"from": "left", **WINDOW},
            "r": {"from": "right", **WINDOW},
            "both": {
                "from": "l",
                "join": {
                    "with": "r",
                    "kind": "window",
                    "on": "l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end",
                },
                "select": ["l.k AS k", "l.x + r.x AS x"],
            },
        },
        same_window,
    ),
}


@pytest.mark.parametrize("function", ["Complete", "CompleteByBatch"])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("seed", everyday(range(12), 12, ci=4))
def test_timers_have_all_rows_up_to_their_time(tmp_path: Path, seed: int, name: str, function: str) -> None:
    rng = random.Random(seed)
    sides = {"left": make_rows(rng), "right": make_rows(rng)}
    steps, oracle = STEPS[name]
    sources = {}
    for side, rows in sides.items():
        text = "".join(json.dumps({**r, "ts": str(moment(r["ts"]))}) + "\n" for r in rows)
        (tmp_path / f"{side}.json").write_text(text)
        sources[side] = {
            "connector": "filesystem",
            "path": str(tmp_path / f"{side}.json"),
            "format": "json",
            "schema": COLUMNS,
            "watermark": {"column": "ts", "delay": f"{DISORDER}ms"},
        }
    process = {"function": f"tests.end_to_end.timed_functions:{function}", "schema": SENT}
    document = {
        "name": "joined",
        "settings": {"functions": ["tests"]},
        "sources": sources,
        "steps": {**steps, "told": {"from": "both", "key_by": ["k"], "process": process}},
        "sinks": {"out": {"from": "told", "connector": "memory", "table": "out"}},
    }
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    wanted = complete(oracle(sides["left"], sides["right"]))
    for parallelism, batch_rows, chaining in (
        (1, 1, True),
        (2, 7, True),
        (2, 1, False),
        (1, 131_072, True),
        (2, 131_072, True),
    ):
        memory.clear()
        run_file(path, parallelism=parallelism, batch_rows=batch_rows, chaining=str(chaining).lower())
        found = Counter(tuple(row.values()) for batch in memory.take("out") for row in batch.columns.to_pylist())
        assert found == wanted, f"parallelism {parallelism}, batches of {batch_rows}"
