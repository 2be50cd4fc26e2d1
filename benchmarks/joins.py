"""A regular join while its state grows to 10 M rows: the rate at the end against that at the first million."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.measuring import ENVIRONMENT, Figure
from flowrun.runtime.process import prepare_environment

RUNS = 3
BAR = 0.7


def run() -> list[Figure]:
    command = [sys.executable, "-m", "benchmarks.join_job"]
    variables = dict(ENVIRONMENT)
    prepare_environment(variables)  # as the command line does before it imports NumPy and pyarrow
    runs = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=variables).stdout)
        for _ in range(RUNS)
    ]

    def median(name: str) -> float:
        return float(statistics.median(r[name] for r in runs))

    ratio = statistics.median(r["last_million"] / r["first_million"] for r in runs)
    return [
        Figure(
            "regular join, 10 M rows of state, one subtask: at the last million",
            f"{median('last_million') / 1e6:.2f} M rows/s",
            f"at the first million: {median('first_million') / 1e6:.2f} M rows/s",
            f"{ratio:.2f}",
            f"≥ {BAR} of the first",
            ratio >= BAR,
        ),
        Figure(
            "the same: all of it",
            f"{median('all') / 1e6:.2f} M rows/s, {median('peak_mb'):.0f} MB, longest batch {median('longest_ms'):.0f} ms",
        ),
    ]
