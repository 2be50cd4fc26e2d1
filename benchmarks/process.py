"""Keyed process functions: the rate of `process_element`, and how many times that `process_batch` reaches."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measuring import Figure, best_engine_run, run_pipeline

KEYS = 1000
ROWS = {"EachRow": 1_000_000, "EachBatch": 20_000_000}
BAR = 20
FUNCTIONS = '''
import numpy as np
import pyarrow as pa

from flowrun.api.process_function import KeyedProcessFunction, value_state


class EachRow(KeyedProcessFunction):
    """A count a key; a row at every ten-thousandth."""

    count = value_state("BIGINT")

    def process_element(self, row, context):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % 10_000 == 0:
            return {"k": row["k"], "n": count}


class EachBatch(KeyedProcessFunction):
    """The same."""

    count = value_state("BIGINT")

    def process_batch(self, batch, context):
        before = self.count.numpy(default=0)
        counts = before + np.bincount(context.key_index, minlength=context.num_keys)
        self.count.update(counts)
        if (before // 10_000 == counts // 10_000).all():
            return None
        numbers = before[context.key_index] + context.occurrences + 1
        rows = np.flatnonzero(numbers % 10_000 == 0)
        return pa.record_batch({"k": batch.column("k").take(pa.array(rows)), "n": numbers[rows]}), rows
'''
PIPELINE = """
name: keyed-counter
settings: {{parallelism: 2}}
sources:
  rows:
    connector: datagen
    number-of-rows: {rows}
    rows-per-second: 1000000000
    schema: {{k: BIGINT, v: BIGINT}}
    fields:
      k: {{min: 0, max: {last_key}}}
      v: {{min: 0, max: 1000000}}
steps:
  counts:
    from: rows
    key_by: [k]
    process: {{function: "counting:{function}", schema: {{k: BIGINT, n: BIGINT}}}}
sinks:
  out: {{from: counts, connector: blackhole}}
"""


def run() -> list[Figure]:
    rates = {function: _rate(function, rows) for function, rows in ROWS.items()}
    ratio = rates["EachBatch"] / rates["EachRow"]
    return [
        Figure(
            f"keyed counter over datagen, {KEYS} keys, parallelism 2: process_element",
            f"{rates['EachRow'] / 1e6:.2f} M rows/s",
            bar="≥ 0.15 M rows/s",
            cleared=rates["EachRow"] >= 0.15e6,
        ),
        Figure(
            "the same: process_batch",
            f"{rates['EachBatch'] / 1e6:.1f} M rows/s",
            "process_element",
            f"{ratio:.0f}",
            f"≥ {BAR}",
            ratio >= BAR,
        ),
    ]


def _rate(function: str, rows: int) -> float:
    """Rows a second of the engine."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "counting.py").write_text(FUNCTIONS)
        text = PIPELINE.format(rows=rows, last_key=KEYS - 1, function=function)
        seconds, _ = best_engine_run(3, lambda: run_pipeline(text, folder=Path(folder)))
    return rows / seconds
