"""Random windows over rows of which some are late give what a row-at-a-time oracle gives, late rows included.

The oracle is Flink's rule for allowed lateness 0: the watermark follows every row, a row counts in those of its windows that have not
fired, and goes to the late output when none is left; a session is judged after it has been merged.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowrun.connectors import memory
from tests.end_to_end.random_pipelines import SCHEMA, Row, json_line, make_rows, moment
from tests.end_to_end.running import run_file

SEEDS = 20
SOAK = 1000
BEGINNING = -(2**62)
Assign = Callable[[int], Iterator[tuple[int, int]]]
Result = tuple[Any, ...]


def windows(rng: random.Random) -> tuple[dict[str, Any], Assign | int]:
    """A window in YAML, and the windows of a time (of a session: its gap)."""
    kind = rng.choice(("tumbling", "sliding", "cumulative", "session"))
    step = rng.choice((500, 3_000, 60_000))
    size = step * rng.choice((1, 3, 4))
    offset = rng.choice((0, step // 3))
    match kind:
        case "session":
            gap = rng.choice((1, 500, 4_000))
            return {"type": kind, "gap": f"{gap}ms"}, gap
        case "cumulative":
            document = {"type": kind, "size": f"{size}ms", "step": f"{step}ms", "offset": f"{offset}ms"}

            def growing(time: int) -> Iterator[tuple[int, int]]:
                start = (time - offset) // size * size + offset
                yield from ((start, end) for end in range(start + step, start + size + 1, step) if end > time)

            return document, growing
        case "sliding":
            document = {"type": kind, "size": f"{size}ms", "slide": f"{step}ms", "offset": f"{offset}ms"}
        case _:
            document, step = {"type": kind, "size": f"{size}ms", "offset": f"{offset}ms"}, size

    def covering(time: int) -> Iterator[tuple[int, int]]:
        start = (time - offset) // step * step + offset
        while start + size > time:
            yield start, start + size
            start -= step

    return document, covering


def oracle(rows: list[Row], delay: int, assign: Assign | int) -> tuple[Counter[Result], Counter[int]]:
    """Results (key, start, end, count, sum) and the ids of late rows."""
    state: dict[tuple[Any, int, int], list[int | None]] = {}
    fired: Counter[Result] = Counter()
    late: Counter[int] = Counter()
    watermark = highest = BEGINNING

    for row in rows:
        key, time = row["k"], row["ts"]
        if row["f"] is not False:
            if isinstance(assign, int):
                state, kept = _merged(state, key, time, assign, watermark)
            else:
                kept = [(key, *window) for window in assign(time) if window[1] - 1 > watermark]
            for window in kept:
                state.setdefault(window, []).append(row["a"])
            late.update([] if kept else [row["id"]])
        highest = max(highest, time)
        watermark = max(watermark, highest - delay - 1)
        for window in [w for w in state if w[2] - 1 <= watermark]:
            fired[_result(window, state.pop(window))] += 1
    fired.update(_result(window, values) for window, values in state.items())
    return fired, late


def _merged(
    state: dict[tuple[Any, int, int], list[int | None]], key: Any, time: int, gap: int, watermark: int
) -> tuple[dict[tuple[Any, int, int], list[int | None]], list[tuple[Any, int, int]]]:
    """Open sessions once a row's has been merged with those it touches, and the one it is in: none if that has passed."""
    touched = [w for w in state if w[0] == key and w[1] <= time + gap and time <= w[2]]
    whole = (key, min(time, *(w[1] for w in touched), time), max(time + gap, *(w[2] for w in touched), time))
    if whole[2] - 1 <= watermark:
        return state, []
    left = {w: values for w, values in state.items() if w not in touched}
    left[whole] = [value for w in touched for value in state[w]]
    return left, [whole]


def _result(window: tuple[Any, int, int], values: list[int | None]) -> Result:
    known = [v for v in values if v is not None]
    return window[0], moment(window[1]), moment(window[2]), len(values), sum(known) if known else None


def check(seed: int, folder: Path) -> None:
    """One seed against the oracle."""
    rng = random.Random(seed)
    disorder = rng.choice((1_000, 20_000, 100_000))
    delay = rng.choice((0, disorder // 10, disorder // 2))
    rows = make_rows(rng, rng.choice((20, 100, 200)), 0, rng.choice((100, 3_000, 20_000)), disorder)
    window, assign = windows(rng)
    window["late_output"] = "late"
    (folder / "rows.json").write_text("".join(json_line(row, rng) + "\n" for row in rows), encoding="utf-8")
    document: dict[str, Any] = {
        "settings": {
            "parallelism": 1,
            "batch_rows": rng.choice((1, 2, 7, 64, 65_536)),
            "chaining": rng.random() < 0.5,
            "local_aggregation": rng.random() < 0.5,
        },
        "sources": {
            "rows": {
                "connector": "filesystem", "path": str(folder / "rows.json"), "format": "json",
                "schema": {name: type for name, (type, _) in SCHEMA.items()},
                "watermark": {"column": "ts", "delay": f"{delay}ms"},
            }
        },
        "steps": {
            "kept": {"from": "rows", "filter": "f IS NOT FALSE"},
            "result": {
                "from": "kept", "key_by": ["k"], "null_keys": "group",
                "window": window, "aggregate": ["COUNT(*) AS n", "SUM(a) AS total"],
                "parallelism": rng.choice((1, 3)),
            }
        },
        "sinks": {name: {"from": name, "connector": "memory", "table": name} for name in ("result", "late")},
    }  # fmt: skip
    if rng.random() < 0.2 and window["type"] != "cumulative":  # the same results by the general operator
        window["trigger"] = {"late_count": 2}
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    memory.clear()
    result = run_file(path)
    fired, late = oracle(rows, delay, assign)
    found = Counter(tuple(row.values()) for batch in memory.take("result") for row in batch.columns.to_pylist())
    found_late = Counter(row["id"] for batch in memory.take("late") for row in batch.columns.to_pylist())
    shown = f"seed {seed}\n{path.read_text(encoding='utf-8')}\n" + "\n".join(map(str, rows))
    assert found_late == late, f"{shown}\nlate: unexpected {found_late - late}, missing {late - found_late}"
    assert found == fired, f"{shown}\nunexpected {found - fired}\nmissing {fired - found}"
    assert result.accumulators["result"]["numLateRecordsSideOutput"] == sum(late.values())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_late_rows(tmp_path: Path, seed: int) -> None:
    check(seed, tmp_path)


@pytest.mark.soak
def test_many_random_late_rows(tmp_path: Path) -> None:
    for seed in range(SEEDS, SEEDS + SOAK):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check(seed, folder)
