"""Window functions, triggers, evictors and assigners of users in pipelines: the same rows whatever the batches."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowrun.connectors import memory
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.errors import FlowrunError
from tests.end_to_end.random_pipelines import moment
from tests.end_to_end.running import run_file
from tests.end_to_end.test_exact_watermarks import BATCHES, DROPPED, make_rows, pipeline, run
from tests.end_to_end.window_parts import Timed
from tests.slices import everyday

PARTS = "tests.end_to_end.window_parts:"
SEEN = {"k": "STRING", "start": "BIGINT", "end": "BIGINT", "seen": "STRING", "firing": "BIGINT", "total": "BIGINT"}
Row = dict[str, Any]


def step(window: dict[str, Any], process: Any) -> dict[str, Any]:
    return {"told": {"from": "kept", "key_by": ["k"], "window": window, "process": process}}


def tumbled(rows: list[Row], size: int, busy: int) -> tuple[dict[str, list[Row]], list[Row]]:
    """What `Seen` tells of the windows of each key, in order of their ends, when all fire at the end of the input."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        if row["k"] != DROPPED:
            windows[row["k"], row["ts"] // size * size].append(row["wait"])
    told: dict[str, list[Row]] = defaultdict(list)
    total: dict[str, int] = defaultdict(int)
    for (key, start), waits in sorted(windows.items(), key=lambda w: w[0][1]):
        total[key] += len(waits)
        row = {"start": start, "end": start + size, "seen": repr(waits), "firing": 1, "total": total[key]}
        told[key].append({"k": key, **row})
    return told, [{"k": k, "size": len(w)} for (k, _), w in windows.items() if len(w) >= busy]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("function", ["Seen", "SeenBatch"])
def test_window_functions_and_their_side_outputs(tmp_path: Path, function: str, parallelism: int) -> None:
    rows = make_rows(random.Random(5), 300)
    process = {
        "function": PARTS + function,
        "with": {"busy": 5},
        "schema": SEEN,
        "side_outputs": {"busy": {"k": "STRING", "size": "BIGINT"}},
    }
    document = pipeline(step({"type": "tumbling", "size": "40ms"}, process), "told", punctuated=False, delay=10_000)
    document["sinks"]["busy"] = {"from": "busy", "connector": "memory", "table": "busy"}
    told, busy = tumbled(rows, 40, 5)
    for batch_rows in BATCHES:
        assert run(tmp_path, rows, document, parallelism=parallelism, batch_rows=batch_rows) == told
        found = [row for batch in memory.take("busy") for row in batch.columns.to_pylist()]
        assert sorted(map(repr, found)) == sorted(map(repr, busy))


def oracle(rows: list[Row], size: int, punctuated: bool, delay: int, even: bool) -> dict[str, list[Row]]:
    """What `Plain` tells of the windows of each key with the trigger `Timed`, if rows and watermarks come one by one."""
    told: dict[str, list[Row]] = defaultdict(list)
    windows: dict[tuple[str, int], list[int]] = {}
    counts: dict[tuple[str, int], int] = defaultdict(int)
    at: dict[tuple[str, int], int] = {}
    timers: dict[tuple[int, tuple[str, int]], int] = {}
    watermark, registered = MIN_TIMESTAMP, 0

    def fire(window: tuple[str, int]) -> None:
        if even:
            windows[window] = [w for w in windows[window] if w % 2 == 0]
        if windows[window]:
            shown = f"{window[1]} {window[1] + size} {windows[window]} {watermark}"
            told[window[0]].append({"k": window[0], "seen": shown})

    def register(time: int, window: tuple[str, int]) -> None:
        nonlocal registered
        if (time, window) not in timers:
            registered += 1
            timers[time, window] = registered

    def advance(to: int) -> None:
        nonlocal watermark
        watermark = to
        while due := sorted((t, n, w) for (t, w), n in timers.items() if t <= watermark):
            time, _, window = due[0]
            del timers[time, window]
            if window not in windows:
                continue
            end = window[1] + size - 1
            if time in (at[window], end):
                fire(window)
            if time == end:
                del windows[window], at[window], counts[window]

    for row in rows:
        window = (row["k"], row["ts"] // size * size)
        if row["k"] != DROPPED and window[1] + size - 1 > watermark:
            windows.setdefault(window, []).append(row["wait"])
            register(window[1] + size - 1, window)
            if window not in at:
                at[window] = row["ts"] + abs(row["wait"]) % 50
                register(at[window], window)
            counts[window] += 1
            if watermark >= at[window] and counts[window] % 2 == 0:
                fire(window)
        mark = row["mark"] if punctuated else row["ts"] - delay - 1
        if mark is not None and mark > watermark:
            advance(mark)
    advance(MAX_TIMESTAMP)
    return told


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("punctuated", [True, False])
@pytest.mark.parametrize("seed", everyday(range(20), 4, ci=3))
def test_triggers_of_users_fire_between_the_same_rows(
    tmp_path: Path, seed: int, punctuated: bool, parallelism: int
) -> None:
    rng = random.Random(seed)
    rows, delay = make_rows(rng, rng.choice((3, 60, 300))), rng.choice((0, 20))
    even = rng.random() < 0.5
    window: dict[str, Any] = {"type": "tumbling", "size": "80ms", "trigger": {"function": PARTS + Timed.__name__}}
    if even:
        window["evictor"] = {"function": f"{PARTS}Even"}
    plain = {"function": f"{PARTS}Plain", "schema": {"k": "STRING", "seen": "STRING"}}
    document = pipeline(step(window, plain), "told", punctuated, delay)
    wanted = oracle(rows, 80, punctuated, delay, even)
    for batch_rows in BATCHES:
        found = run(tmp_path, rows, document, parallelism=parallelism, batch_rows=batch_rows)
        assert found == wanted, f"batches of {batch_rows}"


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("assigner", ["ByWait", "WaitGaps"])
def test_windows_of_users_are_aggregated_the_same_whatever_the_batches(
    tmp_path: Path, assigner: str, parallelism: int
) -> None:
    rows = make_rows(random.Random(9), 200)
    window = {"type": "custom", "function": PARTS + assigner, "allowed_lateness": "10ms"}
    aggregate = {
        "told": {"from": "kept", "key_by": ["k"], "window": window, "aggregate": ["SUM(wait) AS s", "COUNT(*) AS n"]}
    }
    results = [
        run(tmp_path, rows, pipeline(aggregate, "told", True, 0), parallelism=parallelism, batch_rows=batch_rows)
        for batch_rows in BATCHES
    ]
    assert results[0]
    assert results == [results[0]] * len(BATCHES)


@pytest.mark.parametrize(
    ("window", "process", "message"),
    [
        (
            {"type": "session", "gap": "5s"},
            f"{PARTS}Seen",
            "declares the state 'firings' of a window, but its windows merge",
        ),
        ({"type": "tumbling", "size": "5s"}, "tests.end_to_end.timed_functions:Diary", "not a window function"),
        (
            {"type": "tumbling", "size": "5s", "trigger": {"function": f"{PARTS}Even"}},
            f"{PARTS}Plain",
            "is the class Even, not a trigger",
        ),
        (
            {"type": "tumbling", "size": "5s", "trigger": {"function": f"{PARTS}Timed", "count": 5}},
            f"{PARTS}Plain",
            "'count' has no effect beside 'function'",
        ),
        (
            {"type": "tumbling", "size": "5s", "evictor": {"function": f"{PARTS}Even", "count": 5}},
            f"{PARTS}Plain",
            "evictor needs either 'count' or 'time' or 'function'",
        ),
        ({"type": "custom", "function": f"{PARTS}Even"}, f"{PARTS}Plain", "is the class Even, not a window assigner"),
        (
            {"type": "session", "gap": "5s", "trigger": {"function": f"{PARTS}Timed"}},
            f"{PARTS}Plain",
            "cannot be used with session windows, which merge",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    tmp_path: Path, window: dict[str, Any], process: str, message: str
) -> None:
    document = pipeline(step(window, process), "told", punctuated=False, delay=0)
    with pytest.raises(FlowrunError, match=message):
        run(tmp_path, make_rows(random.Random(1), 3), document)


MODES = [
    {"type": "tumbling", "size": "80ms", "allowed_lateness": "40ms", "trigger": {"every": "20ms"}},
    {"type": "session", "gap": "15ms", "allowed_lateness": "60ms"},
]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("window", MODES)
def test_output_modes_agree_on_the_last_result_of_each_window(
    tmp_path: Path, window: dict[str, Any], parallelism: int
) -> None:
    rows = make_rows(random.Random(4), 60)
    found: dict[str, list[dict[tuple[Any, ...], tuple[int, int]]]] = {}
    for mode in ("append", "update", "complete"):
        moded = {**window, "output_mode": mode}
        step = {"from": "kept", "key_by": ["k"], "window": moded, "aggregate": ["SUM(wait) AS s", "COUNT(*) AS n"]}
        document = pipeline({"told": step}, "told", True, 0)
        results = []
        for batch_rows in BATCHES:
            write(tmp_path, rows, document)
            run_file(tmp_path / "pipeline.yaml", {"FOLDER": tmp_path}, parallelism=parallelism, batch_rows=batch_rows)
            results.append(last_results(mode))
        # A session that is merged later is told or not, as watermarks come sooner or later. One of two subtasks has no file:
        # until it has begun, it holds the watermark back.
        if mode != "complete" or parallelism == 1:
            assert results == [results[0]] * len(BATCHES), mode
        found[mode] = results
    append = found["append"][0]
    assert append
    assert found["update"][0] == append
    for complete in found["complete"]:
        assert {w: complete.get(w) for w in append} == append


def write(folder: Path, rows: list[Row], document: dict[str, Any]) -> None:
    memory.clear()
    texts = [{n: str(moment(v)) if n in ("mark", "ts") and v is not None else v for n, v in r.items()} for r in rows]
    (folder / "rows.json").write_text("".join(json.dumps(text) + "\n" for text in texts))
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def last_results(mode: str) -> dict[tuple[Any, ...], tuple[int, int]]:
    """What is left of the changes in the sink `out`: by key and window."""
    left: dict[tuple[Any, ...], tuple[int, int]] = {}
    for batch in memory.take("out"):
        kinds = [0] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
        for kind, row in zip(kinds, batch.columns.to_pylist(), strict=True):
            window = (row["k"], row["window_start"], row["window_end"])
            if kind in (1, 3):
                assert left.pop(window) == (row["s"], row["n"])
            else:
                assert mode == "complete" or window not in left
                left[window] = (row["s"], row["n"])
    return left
