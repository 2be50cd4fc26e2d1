"""Window functions over many keys: the rates of `process_batch` and `process` in processor time, whatever else the machine does."""

from __future__ import annotations

import resource
import statistics
import tempfile
from pathlib import Path

from benchmarks.measuring import FLOWRUN, Figure, run_process

KEYS = 100_000
ROWS = {"ByBatch": 4_000_000, "ByWindow": 1_000_000}
BARS = {"ByBatch": 0.5, "ByWindow": 0.1}
FUNCTIONS = '''
import numpy as np
import pyarrow as pa

from flowrun.api.window_function import ProcessWindowFunction


class ByBatch(ProcessWindowFunction):
    """By how much values differ in a window."""

    def process_batch(self, windows, rows, context):
        values, first = rows.column("v").to_numpy(), context.offsets[:-1]
        spread = np.maximum.reduceat(values, first) - np.minimum.reduceat(values, first)
        return pa.record_batch({"k": windows.column("k"), "spread": spread})


class ByWindow(ProcessWindowFunction):
    """The same."""

    def process(self, key, context, rows):
        values = [row["v"] for row in rows]
        yield {"k": key[0], "spread": max(values) - min(values)}
'''
PIPELINE = """
name: spreads
settings: {{parallelism: 1}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: 1000000000
    schema: {{k: BIGINT, v: BIGINT, n: BIGINT}}
    fields:
      k: {{min: 0, max: {last_key}}}
      v: {{min: 0, max: 1000000}}
      n: {{kind: sequence, start: 0, end: {last_row}}}
    watermark: {{time: "TO_TIMESTAMP_LTZ(n, 3)", delay: 1s}}
steps:
  spreads:
    from: rows
    key_by: [k]
    window: {{type: tumbling, size: 5m}}
    process: {{function: "spreading:{function}", schema: {{k: BIGINT, spread: BIGINT}}}}
sinks:
  out: {{from: spreads, connector: blackhole}}
"""


def run() -> list[Figure]:
    figures = []
    for function, rows in ROWS.items():
        rate = rows / (_processor_seconds(function, rows) - _processor_seconds(function, 1)) / 1e6
        method = "process_batch" if function == "ByBatch" else "process"
        figures.append(
            Figure(
                f"window function over datagen, {KEYS} keys, parallelism 1, rows a second of processor time: {method}",
                f"{rate:.2f} M rows/s",
                bar=f"≥ {BARS[function]} M rows/s",
                cleared=rate >= BARS[function],
            )
        )
    return figures


def _processor_seconds(function: str, rows: int) -> float:
    """User seconds of a whole run, median of three."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spreading.py").write_text(FUNCTIONS)
        file = Path(folder) / "pipeline.yaml"
        file.write_text(PIPELINE.format(rows=rows, last_key=KEYS - 1, last_row=max(rows - 1, 1), function=function))
        return statistics.median(_user_seconds(file) for _ in range(3))


def _user_seconds(file: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run_process([*FLOWRUN, "run", str(file), "--quiet"])
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
