"""Nexmark over 5 M events as JSON lines, parallelism 2, in turn with Apache Flink on the same machine.

Both read the same files and drop the results (`blackhole`), so that neither is limited by a file system. Of flowrun it is the whole
process, start and plan included; of Flink the job alone, in a JVM that runs.
"""

from __future__ import annotations

import math
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import flink
from benchmarks.measuring import DATA, FLOWRUN, Figure, run_measured
from benchmarks.nexmark import FLINK_SECONDS, GENERATOR, ROOT

EVENTS = 5_000_000
ROUNDS = 2
MEAN_BAR = 4.0
_RESERVED = re.compile(r"(?<!`)\bdateTime\b(?!`)")
"""A word that Flink's parser takes as a name only in quotes."""
_SINK = re.compile(r"(CREATE TABLE nexmark_q\d+ \(.*?\n\)) WITH \(.*?\n\)", re.DOTALL)


def run() -> list[Figure]:
    """A figure a query, and their geometric mean."""
    if not flink.is_installed():
        return [
            Figure("Nexmark from JSON against Flink: not measured, as `python -m benchmarks.flink` has not run", "")
        ]
    events = _events()
    figures, ratios = [], []
    for query in FLINK_SECONDS:
        ours, theirs = _measure(query, events)
        ratio = theirs / ours
        print(query, f"{ours:.2f} s, Flink {theirs:.1f} s", file=sys.stderr, flush=True)
        ratios.append(ratio)
        name = f"Nexmark {query}, 5 M events as JSON, parallelism 2"
        peer = f"Flink {flink.VERSION}: {theirs:.1f} s"
        figures.append(Figure(name, f"{ours:.2f} s", peer, f"{ratio:.1f}", "≥ 1", ratio >= 1))
    mean = statistics.geometric_mean(ratios)
    figures.append(Figure("geometric mean", "", "", f"{mean:.1f}", f"≥ {MEAN_BAR:g}", mean >= MEAN_BAR))
    return figures


def _measure(query: str, events: Path) -> tuple[float, float]:
    """The least seconds of flowrun and of Flink, who take turns."""
    ours = theirs = math.inf
    text = script(query, events)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(text)
        file.flush()
        for _ in range(ROUNDS):
            seconds, _ = run_measured([*FLOWRUN, "run", file.name, "--quiet", "--parallelism", "2"])
            ours = min(ours, seconds)
            theirs = min(theirs, flink.job_seconds(text, 2))
    return ours, theirs


def script(query: str, events: Path) -> str:
    """A query that drops its results."""
    text = (ROOT / "pipelines" / "nexmark" / f"{query}.sql").read_text()
    text, found = _SINK.subn(r"\1 WITH ('connector' = 'blackhole')", text)
    assert found == 1, query
    return _RESERVED.sub("`dateTime`", text).replace("${EVENTS}", str(events)).replace("${FORMAT:-json}", "json")


def _events() -> Path:
    folder = DATA / "nexmark5"
    if not (folder / "events").exists():
        subprocess.run([sys.executable, str(GENERATOR), str(folder), str(EVENTS), "--parts", "4"], check=True)
    return folder / "events"
