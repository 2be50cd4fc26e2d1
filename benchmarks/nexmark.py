"""Nexmark: every query over 1 M events, from JSON files and from Parquet, as a process of its own with parallelism 2.

The peer is Apache Flink 2.3 from JSON on a machine of the same size: seconds inside its running JVM, without its start. They were
measured once and are written down here.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import DATA, FLOWRUN, Figure, run_measured

ROOT = Path(__file__).parent.parent
GENERATOR = ROOT.parent / "shared" / "nexmark" / "generate.py"
EVENTS = 1_000_000
RUNS = 3
FLINK_SECONDS = {
    "q0": 9.1, "q1": 3.9, "q2": 4.5, "q3": 7.6, "q4": 12.6, "q5": 6.6, "q7": 11.9, "q8": 6.2, "q9": 9.2, "q11": 6.4, "q15": 4.6,
    "q16": 4.7, "q17": 2.9, "q18": 4.7, "q19": 5.3, "q20": 4.8, "q21": 3.6, "q22": 2.4,
}  # fmt: skip
BARS = {"json": 3.0, "parquet": 6.0}


def run() -> list[Figure]:
    """One figure a query and format, and the geometric means."""
    return [figure for form in BARS for figure in _format(form)]


def _format(form: str) -> list[Figure]:
    folder = events()
    figures, ratios = [], []
    for query, theirs in FLINK_SECONDS.items():
        seconds, peak = _measure(query, form, folder)
        ratios.append(theirs / seconds)
        figures.append(
            Figure(
                f"Nexmark {query}, 1 M events as {form}",
                f"{seconds:.2f} s, {peak:.0f} MB",
                f"Flink 2.3 (JSON): {theirs} s",
                f"{theirs / seconds:.1f}",
                "≥ 1",
                seconds <= theirs,
            )
        )
    mean = statistics.geometric_mean(ratios)
    bar = BARS[form]
    figures.append(
        Figure(
            f"Nexmark, geometric mean from {form}", "", "Flink 2.3 (JSON)", f"{mean:.1f}", f"≥ {bar:.0f}", mean >= bar
        )
    )
    return figures


def _measure(query: str, form: str, folder: Path) -> tuple[float, float]:
    """Median seconds of a whole process, and its peak resident MB."""
    source = folder / "events" if form == "json" else folder / "events.parquet"
    measured = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as out:
            variables = {"EVENTS": source, "FORMAT": form, "OUT": out}
            given = [part for name, value in variables.items() for part in ("--var", f"{name}={value}")]
            script = ROOT / "pipelines" / "nexmark" / f"{query}.sql"
            measured.append(run_measured([*FLOWRUN, "run", str(script), "--quiet", "--parallelism", "2", *given]))
    return statistics.median(s for s, _ in measured), max(p for _, p in measured)


def events() -> Path:
    """The folder of the events, which are generated if they are not there."""
    folder = DATA / "nexmark"
    if not (folder / "events.parquet").exists():
        subprocess.run([sys.executable, str(GENERATOR), str(folder), str(EVENTS), "--parts", "4"], check=True)
    return folder
