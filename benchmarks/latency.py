"""Source-to-sink latency of every row at 100,000 rows/s: now, at the sink, less the time at which the row was due at the source."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring import ENVIRONMENT, Figure, run_pipeline

SECONDS = 15
WARM_UP_ROWS = 200_000
REPORT = "FLOWRUN_BENCHMARK_LATENCIES"
PIPELINE = f"""
name: latency
settings: {{parallelism: 1, buffer_timeout: 20ms, functions: [benchmarks]}}
sources:
  rows:
    connector: datagen
    number-of-rows: {SECONDS * 100_000}
    rows-per-second: 100000
    schema: {{k: BIGINT, due: TIMESTAMP(3)}}
steps:
  spread: {{from: rows, map: {{function: "benchmarks.latency:Recorder"}}, parallelism: 2}}
sinks:
  out: {{from: spread, connector: blackhole}}
"""


class Recorder:
    """A map step that notes how old each row is when it comes."""

    def __init__(self) -> None:
        self._ages: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        due = rows.column("due").view(pa.int64()).to_numpy()
        self._ages.append(time.time_ns() // 1_000_000 - due)
        return rows

    def close(self) -> None:
        ages = np.concatenate(self._ages)[WARM_UP_ROWS // 2 :] if self._ages else np.zeros(0)
        folder = Path(os.environ[REPORT])
        (folder / f"{id(self)}.json").write_text(json.dumps(ages.tolist()))


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        ENVIRONMENT[REPORT] = folder
        run_pipeline(PIPELINE)
        ages = np.concatenate([np.array(json.loads(f.read_text())) for f in Path(folder).iterdir()])
    p50, p99 = np.quantile(ages, [0.5, 0.99])
    return [
        Figure(
            "100,000 rows/s through an exchange: p50 / p99 of every row's age at the sink",
            f"{p50:.0f} / {p99:.0f} ms",
            bar="p99 ≤ 100 ms",
            cleared=bool(p99 <= 100),
        )
    ]
