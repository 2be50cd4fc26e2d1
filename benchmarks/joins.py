"""A regular join while its state grows to 10 M rows: how fast at the end against the first million, as a job and as an operator alone."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.join_job import MILLION, ROWS, rate
from benchmarks.measuring import ENVIRONMENT, Figure, run_pipeline
from flowrun.runtime.process import prepare_environment

RUNS = 3
BAR = 0.7
REPORT = "FLOWRUN_BENCHMARK_JOINED"
PIPELINE = """
name: join
settings: {{parallelism: 1, functions: [benchmarks]}}
sources:
  rows: {{connector: filesystem, format: parquet, path: {path}, schema: {{k: BIGINT, a: BIGINT, b: BIGINT, side: INT}}}}
steps:
  joined:
    sql: >
      SELECT l.k, l.a, l.b, r.a AS c, r.b AS d
      FROM (SELECT * FROM rows WHERE side = 0) l JOIN (SELECT * FROM rows WHERE side = 1) r ON l.k = r.k
  seen: {{from: joined, map: {{function: "benchmarks.joins:Recorder"}}}}
sinks:
  out: {{from: seen, connector: blackhole}}
"""


class Recorder:
    """A map step that notes when how many pairs have come."""

    def __init__(self) -> None:
        self._progress = [(0, time.perf_counter())]

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self._progress.append((self._progress[-1][0] + rows.num_rows, time.perf_counter()))
        return rows

    def close(self) -> None:
        Path(os.environ[REPORT]).write_text(json.dumps(self._progress))


def run() -> list[Figure]:
    return [_job(), *_operator()]


def _job() -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder) / "rows.parquet")
        report = Path(folder) / "progress.json"
        ENVIRONMENT[REPORT] = str(report)
        firsts, lasts, peaks = [], [], []
        for _ in range(RUNS):
            measured = run_pipeline(PIPELINE.format(path=f"{folder}/rows.parquet"))
            # every other row makes a pair; counting starts with the first pairs, when everything is loaded
            progress = [(2 * pairs, seconds) for pairs, seconds in json.loads(report.read_text())][1:]
            firsts.append(rate(progress, 0, MILLION))
            lasts.append(rate(progress, ROWS - MILLION, ROWS))
            peaks.append(measured.peak_mb)
    ratio = statistics.median(last / first for first, last in zip(firsts, lasts, strict=True))
    return Figure(
        "a job that joins, 10 M rows of state in one subtask: at the last million",
        f"{statistics.median(lasts) / 1e6:.2f} M rows/s, {statistics.median(peaks):.0f} MB",
        f"at the first million: {statistics.median(firsts) / 1e6:.2f} M rows/s",
        f"{ratio:.2f}",
        f"≥ {BAR} of the first",
        ratio >= BAR,
    )


def _write(path: Path) -> None:
    """Rows of both sides in turn: a new key for each row of the left one, the key of any left row so far for each of the right one."""
    random = np.random.default_rng(1)
    half = ROWS // 2
    left = random.permutation(half)
    right = left[(random.random(half) * np.arange(1, half + 1)).astype(np.int64)]
    keys = _in_turn(left, right)
    sides = np.tile(np.array([0, 1], np.int32), half)
    pq.write_table(pa.table({"k": keys, "a": 2 * keys, "b": keys + 1, "side": sides}), path, row_group_size=1 << 17)


def _in_turn(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.stack([left, right], axis=1).ravel()


def _operator() -> list[Figure]:
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
            "the join's operator alone: at the last million",
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
