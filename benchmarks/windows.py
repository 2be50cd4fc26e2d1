"""10 M datagen rows into a keyed tumbling window, against DuckDB generating and grouping the same shape."""

from __future__ import annotations

import time

import duckdb

from benchmarks.measuring import Figure, best_engine_run, median_of, run_pipeline

ROWS = 10_000_000
PIPELINE = f"""
name: keyed-tumbling
settings: {{parallelism: 2}}
sources:
  rows:
    connector: datagen
    number-of-rows: {ROWS}
    rows-per-second: 1000000000
    schema: {{k: BIGINT, a: BIGINT, b: BIGINT, n: BIGINT}}
    fields:
      k: {{min: 0, max: 999}}
      a: {{min: 0, max: 1000000}}
      b: {{min: 0, max: 1000000}}
      n: {{kind: sequence, start: 0, end: {ROWS - 1}}}
    watermark: {{time: "TO_TIMESTAMP_LTZ(n, 3)", delay: 1s}}
steps:
  windows:
    from: rows
    key_by: [k]
    window: {{type: tumbling, size: 1m}}
    aggregate: [SUM(a) AS s, MAX(b) AS m, COUNT(*) AS c]
sinks:
  out: {{from: windows, connector: blackhole}}
"""
QUERY = f"""
SELECT k, n // 60000 AS w, SUM(a), MAX(b), COUNT(*)
FROM (SELECT hash(i) % 1000 AS k, hash(i + 1) % 1000001 AS a, hash(i + 2) % 1000001 AS b, i AS n FROM range({ROWS}) t(i))
GROUP BY ALL
"""


def run() -> list[Figure]:
    engine, whole = best_engine_run(5, lambda: run_pipeline(PIPELINE))
    connection = duckdb.connect(config={"threads": 2})

    def peer() -> float:
        began = time.perf_counter()
        connection.sql(QUERY).to_arrow_table()
        return time.perf_counter() - began

    theirs = median_of(3, peer)
    return [
        Figure(
            "10 M datagen rows, keyed tumbling SUM/MAX/COUNT, parallelism 2: engine",
            f"{ROWS / engine / 1e6:.1f} M rows/s",
            f"DuckDB, batch: {ROWS / theirs / 1e6:.1f} M rows/s",
            f"{theirs / engine:.2f}",
            "≥ 10 M rows/s",
            ROWS / engine >= 10e6,
        ),
        Figure(
            "the same: whole process",
            f"{whole:.2f} s",
            "Flink 2.3: 9.7 s",
            f"{9.7 / whole:.1f}",
            "≤ 1.5 s",
            whole <= 1.5,
        ),
    ]
