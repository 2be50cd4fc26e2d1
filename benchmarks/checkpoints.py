"""A gigabyte of keyed window state: what checkpoints cost, what they write, and how fast they are read back."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.checkpoint_job import KEYS, STATE_BYTES
from benchmarks.measuring import Figure
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded

RECOVERING = """
name: recovering
settings:
  parallelism: 2
  batch_rows: 1000
  checkpoint: {interval: 100ms}
  restart: {strategy: fixed_delay, attempts: 5, delay: 0s}
sources:
  rows:
    connector: datagen
    number-of-rows: 60000
    rows-per-second: 20000
    schema: {n: BIGINT}
    fields: {n: {kind: sequence, start: 0, end: 59999}}
    computed: {k: "n % 100"}
    watermark: {time: "TO_TIMESTAMP_LTZ(n, 3)"}
steps:
  risky: {from: rows, map: "benchmarks.checkpoints:risky"}
  windows: {from: risky, key_by: [k], window: {type: tumbling, size: 1s}, aggregate: [COUNT(*) AS c]}
sinks:
  out: {from: windows, connector: blackhole}
"""
FAILED: list[float] = []
RECOVERED: list[float] = []


def risky(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A map step that fails three times, and notes when, and when rows come again."""
    last = rows.column("n")[-1].as_py()
    if len(FAILED) < 3 and last > 15_000 * (len(FAILED) + 1):
        FAILED.append(time.perf_counter())
        raise RuntimeError("this failure is wanted")
    if len(RECOVERED) < len(FAILED):
        RECOVERED.append(time.perf_counter())
    return rows


def run() -> list[Figure]:
    ratios = []
    for _ in range(2):
        plain, fast = _measured("plain"), _measured("fast")
        ratios.append(fast["rows_per_second"] / plain["rows_per_second"])
    with tempfile.TemporaryDirectory() as folder:
        grown = _measured("grow", folder)
        restored = _measured("restore", folder)
    share = grown["increment_bytes"] / grown["whole_bytes"]
    pause = max(grown["synchronous_ms"], fast["synchronous_ms"])
    name = f"{KEYS / 1e6:.0f} M keys in a window, {STATE_BYTES / 1e9:.0f} GB"
    return [
        Figure(
            f"{name}: rows/s with checkpoints every second / without",
            f"{statistics.median(ratios):.2f} ({fast['rows_per_second'] / 1e6:.1f} M rows/s, {fast['checkpoints']:.0f} checkpoints)",
            bar="≥ 0.9",
            cleared=statistics.median(ratios) >= 0.9,
        ),
        Figure(f"{name}: longest synchronous pause of a task", f"{pause:.1f} ms", bar="< 10 ms", cleared=pause < 10),
        Figure(
            f"{name}: first checkpoint",
            f"{grown['whole_bytes'] / 1e6:.0f} MB of Parquet in {grown['whole_ms'] / 1000:.1f} s",
        ),
        Figure(
            f"{name}: bytes of a checkpoint after {100 * grown['changed']:.1f} % of the state changed",
            f"{100 * share:.1f} % ({grown['increment_bytes'] / 1e6:.0f} MB in {grown['increment_ms'] / 1000:.2f} s)",
            bar="< 5 %",
            cleared=share < 0.05,
        ),
        Figure(
            f"{name}: restored at parallelism 3 instead of 2",
            f"{restored['bytes_per_second'] / 1e6:.0f} MB/s ({restored['seconds']:.1f} s)",
            bar="≥ 300 MB/s",
            cleared=restored["bytes_per_second"] >= 300e6,
        ),
        _recovery(),
    ]


def _measured(mode: str, folder: str | None = None) -> dict[str, float]:
    """The figures of one run in a fresh process."""
    with tempfile.TemporaryDirectory() as own:
        command = [sys.executable, "-m", "benchmarks.checkpoint_job", mode, folder or own]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{mode} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _recovery() -> Figure:
    FAILED.clear()
    RECOVERED.clear()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(RECOVERING)
        with start_embedded(compile_pipeline(file).job_graph, state=JobStateOptions(f"{folder}/state")) as job:
            job.wait()
    waits = [after - failed for failed, after in zip(FAILED, RECOVERED, strict=True)]
    worst = max(waits)
    return Figure(
        "a small job fails and is restored in process: from the failure to the next row, worst of 3",
        f"{worst * 1000:.0f} ms",
        bar="< 500 ms",
        cleared=worst < 0.5,
    )
