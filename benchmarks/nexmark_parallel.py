"""Nexmark over 5 M events from Parquet: parallelism 2 against 1, and worker processes against threads.

Engine seconds, in turn, and of each form the least of several runs: the machine's other work only adds to them. Parallelism 1 is measured
on one core, too: where it may use two, its source and what comes after it run beside each other.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.measuring import DATA, FLOWRUN, Figure, run_measured
from benchmarks.nexmark import FLINK_SECONDS, GENERATOR, ROOT

EVENTS = 5_000_000
RUNS = 3
FORMS = {
    "core": ["--parallelism", "1"],
    "one": ["--parallelism", "1"],
    "two": ["--parallelism", "2"],
    "threads": ["--parallelism", "2", "--workers", "0"],
    "workers": ["--parallelism", "2", "--workers", "2"],
}
MEAN_BAR, QUERY_BAR, Q16_BAR = 1.5, 0.95, 1.6


def run() -> list[Figure]:
    """Two figures a query, and the geometric means."""
    events = _events()
    figures: list[Figure] = []
    by_parallelism, by_workers, by_cores = [], [], []
    for query in FLINK_SECONDS:
        seconds = _measure(query, events)
        print(query, {form: round(least, 2) for form, least in seconds.items()}, file=sys.stderr, flush=True)
        by_parallelism.append(seconds["one"] / seconds["two"])
        by_workers.append(seconds["threads"] / seconds["workers"])
        by_cores.append(seconds["core"] / seconds["two"])
        name = f"Nexmark {query}, 5 M events, parallelism 2 as the command chooses"
        figures.append(_figure(name, seconds["two"], "parallelism 1", seconds["one"], QUERY_BAR))
        bar = Q16_BAR if query == "q16" else QUERY_BAR
        figures.append(
            _figure("the same: two worker processes", seconds["workers"], "one process", seconds["threads"], bar)
        )
    mean = statistics.geometric_mean(by_parallelism)
    figures.append(
        Figure("geometric mean: parallelism 2 against 1", "", "", f"{mean:.2f}", f"≥ {MEAN_BAR}", mean >= MEAN_BAR)
    )
    for name, ratios in (
        ("parallelism 2 against 1 on one core", by_cores),
        ("two worker processes against one process", by_workers),
    ):
        figures.append(Figure(f"geometric mean: {name}", "", "", f"{statistics.geometric_mean(ratios):.2f}"))
    return figures


def _figure(name: str, seconds: float, peer: str, theirs: float, bar: float) -> Figure:
    ratio = theirs / seconds
    return Figure(name, f"{seconds:.2f} s", f"{peer}: {theirs:.2f} s", f"{ratio:.2f}", f"≥ {bar}", ratio >= bar)


def _measure(query: str, events: Path) -> dict[str, float]:
    """The least engine seconds of each form."""
    least = dict.fromkeys(FORMS, math.inf)
    for _ in range(RUNS):
        for form, arguments in FORMS.items():
            with tempfile.TemporaryDirectory() as out:
                variables = {"EVENTS": events, "FORMAT": "parquet", "OUT": out}
                given = [part for name, value in variables.items() for part in ("--var", f"{name}={value}")]
                script = ROOT / "pipelines" / "nexmark" / f"{query}.sql"
                report = Path(out) / "report.json"
                with _one_core() if form == "core" else nullcontext():
                    run_measured([*FLOWRUN, "run", str(script), "--quiet", "--report", str(report), *arguments, *given])
                least[form] = min(least[form], json.loads(report.read_text())["duration_ms"] / 1000)
    return least


@contextmanager
def _one_core() -> Iterator[None]:
    """What is started meanwhile runs on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _events() -> Path:
    folder = DATA / "nexmark5"
    if not (folder / "events.parquet").exists():
        subprocess.run([sys.executable, str(GENERATOR), str(folder), str(EVENTS), "--parts", "4"], check=True)
    return folder / "events.parquet"
