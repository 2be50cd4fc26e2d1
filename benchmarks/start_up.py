"""How long a user waits for the help text and for a pipeline of ten rows."""

from __future__ import annotations

import statistics

from benchmarks.measuring import FLOWRUN, Figure, run_pipeline, run_process

TEN_ROWS = """
name: ten-rows
sources:
  rows: {connector: datagen, number-of-rows: 10, rows-per-second: 1000000, schema: {k: BIGINT, v: BIGINT}}
steps:
  some: {from: rows, filter: "v > 0", select: [k, "v + 1 AS w"]}
sinks:
  out: {from: some, connector: print}
"""


def run() -> list[Figure]:
    help_s = statistics.median(run_process([*FLOWRUN, "--help"])[0] for _ in range(9))
    ten_s = statistics.median(run_pipeline(TEN_ROWS).seconds for _ in range(7))
    return [
        Figure("`flowrun --help`", f"{help_s:.2f} s", bar="≤ 0.25 s", cleared=help_s <= 0.25),
        Figure("a pipeline of ten rows, whole process", f"{ten_s:.2f} s", bar="≤ 1.2 s", cleared=ten_s <= 1.2),
    ]
