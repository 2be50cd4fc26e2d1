"""A star of 300 k, 30 k and 1 k rows joined in a bad order, the filtered table last: as it is written, and by sizes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, best_engine_run, run_pipeline

RUNS = 3
SALES, OFFERS, PARTS = 300_000, 30_000, 1_000
PIPELINE = """
name: star
settings: {{parallelism: 1, join_reorder: {reorder}}}
sources:
  sales: {{connector: filesystem, format: parquet, path: {folder}/sales.parquet, schema: {{id: BIGINT, day: BIGINT, part: BIGINT}}}}
  offers: {{connector: filesystem, format: parquet, path: {folder}/offers.parquet, schema: {{day: BIGINT, shop: BIGINT}}}}
  parts: {{connector: filesystem, format: parquet, path: {folder}/parts.parquet, schema: {{part: BIGINT, brand: BIGINT}}}}
steps:
  joined:
    sql: >
      SELECT s.id, o.shop, p.brand FROM sales AS s JOIN offers AS o ON s.`day` = o.`day` JOIN parts AS p ON s.part = p.part
      WHERE p.brand = 7
sinks:
  out: {{from: joined, connector: blackhole}}
"""


def run() -> list[Figure]:
    """Each sale meets `OFFERS / days` offers; one of a hundred sales is of the brand."""
    return [_star("a key of the second table", 30_000), _star("one in a hundred of the second table's rows", 300)]


def _star(matches: str, days: int) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), days)
        written, ordered = (
            best_engine_run(RUNS, lambda on=on: run_pipeline(PIPELINE.format(folder=folder, reorder=on)))[0]  # type: ignore[misc]
            for on in ("false", "true")
        )
    return Figure(
        f"a star of 300 k × 30 k × 1 k rows in a bad order, by {matches}",
        f"by sizes: {ordered * 1000:.0f} ms",
        f"as written: {written * 1000:.0f} ms",
        f"{written / ordered:.1f}",
    )


def _write(folder: Path, days: int) -> None:
    random = np.random.default_rng(1)
    tables = {
        "sales": {
            "id": np.arange(SALES),
            "day": random.integers(0, days, SALES),
            "part": random.integers(0, PARTS, SALES),
        },
        "offers": {"day": np.arange(OFFERS) % days, "shop": np.arange(OFFERS)},
        "parts": {"part": np.arange(PARTS), "brand": np.arange(PARTS) % 100},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
