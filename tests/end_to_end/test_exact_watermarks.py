"""Timers and early firings fall between the same rows whatever the batches: as if rows and watermarks came one by one.

One file is one split: at parallelism 2 a subtask of the source has none, and must not hold event time back until it has ended.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowrun.connectors import memory
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from tests.end_to_end.random_pipelines import moment
from tests.end_to_end.running import run_file
from tests.slices import everyday

DROPPED = "d"
"""A key whose rows are filtered out; the watermark follows them."""
SENT = {"k": "STRING", "what": "STRING", "at": "BIGINT", "seen": "BIGINT", "watermark": "BIGINT"}
BATCHES = (1, 7, 131_072)
Row = dict[str, Any]


def make_rows(rng: random.Random, count: int) -> list[Row]:
    """Rows out of order, some of which carry a watermark."""
    top, rows = rng.choice((0, 1_709_287_200_000)), []
    for _ in range(count):
        top += rng.choice((0, 1, rng.randrange(40)))
        rows.append(
            {
                "k": rng.choice("abcd"),
                "wait": rng.choice((0, rng.randrange(60), rng.randrange(500), -rng.randrange(1, 60))),
                "mark": None if rng.random() < 0.6 else top - rng.randrange(60),
                "ts": top - rng.choice((0, rng.randrange(50))),
            }
        )
    return rows


def diary(rows: list[Row], punctuated: bool, delay: int) -> dict[str, list[Row]]:
    """What `Diary` tells of each key if rows and watermarks come one by one."""
    told: dict[str, list[Row]] = defaultdict(list)
    seen: dict[str, int] = defaultdict(int)
    timers: dict[tuple[int, str], int] = {}
    watermark, registered = MIN_TIMESTAMP, 0

    def tell(key: str, what: str, at: int) -> None:
        told[key].append({"k": key, "what": what, "at": at, "seen": seen[key], "watermark": watermark})

    def advance(to: int) -> None:
        nonlocal watermark, registered
        watermark = to
        while due := sorted((t, n, k) for (t, k), n in timers.items() if t <= watermark):
            at, _, key = due[0]
            del timers[at, key]
            if at % 7 == 0 and (at + 3, key) not in timers:
                registered += 1
                timers[at + 3, key] = registered
            tell(key, "timer", at)

    for row in rows:
        key, at = row["k"], row["ts"]
        if key != DROPPED:
            seen[key] += 1
            if row["wait"] < 0:
                timers.pop((at - row["wait"], key), None)
            elif (at + row["wait"], key) not in timers:
                registered += 1
                timers[at + row["wait"], key] = registered
            tell(key, "row", at)
        mark = row["mark"] if punctuated else at - delay - 1
        if mark is not None and mark > watermark:
            advance(mark)
    advance(MAX_TIMESTAMP)
    return told


def run(folder: Path, rows: list[Row], document: dict[str, Any], **settings: object) -> dict[str, list[Row]]:
    """By key, and window, the rows of the sink `out` in their order."""
    memory.clear()
    texts = [{n: str(moment(v)) if n in ("mark", "ts") and v is not None else v for n, v in r.items()} for r in rows]
    (folder / "rows.json").write_text("".join(json.dumps(text) + "\n" for text in texts))
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    run_file(path, {"FOLDER": folder}, **settings)
    found: dict[str, list[Row]] = defaultdict(list)
    for batch in memory.take("out"):
        for row in batch.columns.to_pylist():
            found[row["k"] if "window_start" not in row else f"{row['k']} {row['window_start']}"].append(row)
    return found


def pipeline(steps: dict[str, Any], last: str, punctuated: bool, delay: int) -> dict[str, Any]:
    mark: dict[str, Any] = {"column": "ts", "delay": f"{delay}ms"}
    if punctuated:
        mark = {"column": "ts", "type": "punctuated", "expression": "mark"}
    columns = {"k": "STRING", "wait": "BIGINT", "mark": "TIMESTAMP(3)", "ts": "TIMESTAMP(3)"}
    source: dict[str, Any] = {
        "connector": "filesystem",
        "path": "${FOLDER}/rows.json",
        "format": "json",
        "schema": columns,
        "watermark": mark,
    }
    return {
        "name": "exact",
        "settings": {"functions": ["tests"]},
        "sources": {"rows": source},
        "steps": {"kept": {"from": "rows", "filter": f"k <> '{DROPPED}'"}, **steps},
        "sinks": {"out": {"from": last, "connector": "memory", "table": "out"}},
    }


DIARY = {"key_by": ["k"], "process": {"function": "tests.end_to_end.timed_functions:Diary", "schema": SENT}}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("punctuated", [True, False])
@pytest.mark.parametrize("seed", everyday(range(20), 10, ci=2))
def test_timers_fire_between_the_same_rows(tmp_path: Path, seed: int, punctuated: bool, parallelism: int) -> None:
    rng = random.Random(seed)
    rows, delay = make_rows(rng, rng.choice((3, 60, 400))), rng.choice((0, 20))
    document, wanted = (
        pipeline({"told": {"from": "kept", **DIARY}}, "told", punctuated, delay),
        diary(rows, punctuated, delay),
    )
    for batch_rows in BATCHES:
        assert run(tmp_path, rows, document, parallelism=parallelism, batch_rows=batch_rows) == wanted, (
            f"batches of {batch_rows}"
        )


@pytest.mark.parametrize("seed", everyday(range(10), 4))
def test_tasks_behind_a_source_subtask_without_rows_hold_nothing_back(tmp_path: Path, seed: int) -> None:
    """Without chaining each operator has tasks of its own; those behind the subtasks that read nothing are late to begin, and to end."""
    rng = random.Random(seed)
    rows, delay = make_rows(rng, rng.choice((3, 60))), rng.choice((0, 20))
    slow = {"function": "tests.end_to_end.timed_functions:SlowToOpen", "schema": {"k": "STRING", "wait": "BIGINT"}}
    document = pipeline(
        {"slow": {"from": "kept", "process": slow}, "told": {"from": "slow", **DIARY}}, "told", False, delay
    )
    found = run(tmp_path, rows, document, parallelism=3, batch_rows=7, chaining="false")
    assert found == diary(rows, False, delay)


WINDOWS = [
    ({"type": "tumbling", "size": "200ms"}, {"every": "20ms"}),
    ({"type": "tumbling", "size": "200ms"}, {"every": "30ms", "count": 4}),
    ({"type": "sliding", "size": "90ms", "slide": "30ms"}, {"every": "25ms", "purge": True}),
    ({"type": "session", "gap": "12ms"}, {"every": "10ms"}),
    ({"type": "global"}, {"every": "50ms"}),
    ({"type": "tumbling", "size": "60ms", "allowed_lateness": "40ms"}, {"every": "20ms", "late_count": 2}),
]


@pytest.mark.parametrize(
    ("window", "trigger", "punctuated", "parallelism"),
    everyday([(*window, *more) for window, more in product(WINDOWS, product([True, False], [1, 2]))], 3, ci=2),
)
@pytest.mark.parametrize("seed", everyday(range(10), 10, ci=4))
def test_early_firings_see_the_same_rows(
    tmp_path: Path, seed: int, window: dict[str, Any], trigger: dict[str, Any], punctuated: bool, parallelism: int
) -> None:
    rng = random.Random(seed)
    rows, delay = make_rows(rng, rng.choice((60, 400))), rng.choice((0, 20))
    step = {
        "from": "kept",
        "key_by": ["k"],
        "window": {**window, "trigger": trigger},
        "aggregate": ["COUNT(*) AS n", "SUM(wait) AS total"],
    }
    document = pipeline({"told": step}, "told", punctuated, delay)
    wanted, *others = (
        run(tmp_path, rows, document, parallelism=parallelism, batch_rows=batch_rows) for batch_rows in BATCHES
    )
    assert sum(map(len, wanted.values())) > len(wanted)
    for batch_rows, found in zip(BATCHES[1:], others, strict=True):
        assert found == wanted, f"batches of {batch_rows}"


@pytest.mark.parametrize("punctuated", [True, False])
@pytest.mark.parametrize("seed", everyday(range(10), 10, ci=2))
def test_timers_behind_what_timers_and_windows_send(tmp_path: Path, seed: int, punctuated: bool) -> None:
    rng = random.Random(seed)
    rows, delay = make_rows(rng, rng.choice((60, 400))), rng.choice((0, 20))
    counted = {"key_by": ["k"], "window": {"type": "tumbling", "size": "40ms"}, "aggregate": ["COUNT(*) AS wait"]}
    steps = {
        "first": {"from": "kept", **DIARY},
        "again": {"from": "first", "select": ["k", "seen AS wait"], **DIARY},
        "counted": {"from": "kept", **counted},
        "told": {"from": "counted", "select": ["k", "wait"], **DIARY},
    }
    for last in ("again", "told"):
        used = {n: steps[n] for n in (("first", "again") if last == "again" else ("counted", "told"))}
        document = pipeline(used, last, punctuated, delay)
        wanted, *others = (
            run(tmp_path, rows, document, parallelism=1, batch_rows=batch_rows) for batch_rows in BATCHES
        )
        for batch_rows, found in zip(BATCHES[1:], others, strict=True):
            assert found == wanted, f"{last}: batches of {batch_rows}"


COUNTED = {
    "key_by": ["k"],
    "window": {"type": "tumbling", "size": "15ms"},
    "aggregate": ["COUNT(*) AS n", "SUM(x) AS total"],
}


@pytest.mark.parametrize(("punctuated", "chaining"), everyday(product([True, False], ["true", "false"]), 3))
@pytest.mark.parametrize("seed", everyday(range(20), 20, ci=4))
def test_windows_drop_the_same_rows_behind_and_beside_functions(
    tmp_path: Path, seed: int, punctuated: bool, chaining: str
) -> None:
    """Some rows are late by the watermark that came just before them, rows of timers that were set for the past as well."""
    rng = random.Random(seed)
    rows, delay = make_rows(rng, rng.choice((60, 400))), rng.choice((0, 20))
    steps = {
        "first": {"from": "kept", **DIARY},
        "behind": {"from": "first", "select": ["k", "seen AS x"]},
        "beside": {"from": "kept", "select": ["k", "wait AS x"]},
        "told": {"from": "behind", **COUNTED},
        "counted": {"from": "beside", **COUNTED},
    }
    document = pipeline(steps, "told", punctuated, delay)
    document["sinks"]["others"] = {"from": "counted", "connector": "memory", "table": "others"}
    wanted: dict[str, Any] = {}
    for batch_rows in BATCHES:
        found = run(tmp_path, rows, document, parallelism=1, batch_rows=batch_rows, chaining=chaining)
        others = sorted(repr(row) for batch in memory.take("others") for row in batch.columns.to_pylist())
        wanted = wanted or {"behind": found, "beside": others}
        assert found == wanted["behind"], f"behind: batches of {batch_rows}"
        assert others == wanted["beside"], f"beside: batches of {batch_rows}"
