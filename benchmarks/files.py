"""Filter and projection from Parquet, and reading JSON lines, against plain pyarrow doing the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import DATA, Figure, best_engine_run, median_of, run_pipeline, timed_in_a_fresh_process

PARQUET_ROWS = 10_000_000
JSON_ROWS = 1_000_000


def run() -> list[Figure]:
    return [_parquet(), _json()]


def _parquet_file() -> Path:
    path = DATA / "rows.parquet"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        rng = np.random.default_rng(1)
        columns = {f"c{i}": rng.integers(0, 1_000_000, PARQUET_ROWS) for i in range(6)}
        columns["price"] = rng.random(PARQUET_ROWS) * 100
        columns["name"] = pa.array(rng.integers(0, 1000, PARQUET_ROWS)).cast(pa.string())
        pq.write_table(pa.table(columns), path, row_group_size=500_000)
    return path


def _parquet() -> Figure:
    path = _parquet_file()
    pipeline = f"""
    name: scan
    settings: {{parallelism: 2}}
    sources:
      rows:
        connector: filesystem
        path: {path}
        format: parquet
        schema: {{c0: BIGINT, c1: BIGINT, c2: BIGINT, c3: BIGINT, c4: BIGINT, c5: BIGINT, price: DOUBLE, name: STRING}}
    steps:
      some: {{from: rows, filter: "c0 < 200000 AND price > 10", select: ["c1", "price * 2 AS p", "name"]}}
    sinks:
      out: {{from: some, connector: blackhole}}
    """
    engine, _ = best_engine_run(5, lambda: run_pipeline(pipeline))

    scan = f"""
    import pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds
    pa.set_cpu_count(2)
    # begin
    wanted = (pc.field("c0") < 200_000) & (pc.field("price") > 10)
    columns = {{"c1": pc.field("c1"), "p": pc.multiply(pc.field("price"), 2.0), "name": pc.field("name")}}
    for _ in ds.dataset("{path}").scanner(columns=columns, filter=wanted).to_batches(): pass
    """
    theirs = median_of(3, lambda: timed_in_a_fresh_process(scan))
    return Figure(
        "Parquet, 10 M rows: filter and projection of 4 of 8 columns",
        f"{PARQUET_ROWS / engine / 1e6:.1f} M rows/s",
        f"pyarrow scanner: {PARQUET_ROWS / theirs / 1e6:.1f} M rows/s",
        f"{theirs / engine:.2f}",
        "≥ 0.5",
        theirs / engine >= 0.5,
    )


def _json_file() -> Path:
    path = DATA / "rows.json"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        rng = np.random.default_rng(2)
        ids, amounts = rng.integers(0, 1 << 40, JSON_ROWS).tolist(), rng.random(JSON_ROWS).tolist()
        with path.open("w") as out:
            for i, (number, amount) in enumerate(zip(ids, amounts, strict=True)):
                when = f"2024-03-01 {i // 3600000 % 24:02d}:{i // 60000 % 60:02d}:{i // 1000 % 60:02d}.{i % 1000:03d}"
                out.write(
                    f'{{"id": {number}, "user": "user-{number % 9973}", "amount": {amount:.6f}, "ok": true, "ts": "{when}"}}\n'
                )
    return path


def _json() -> Figure:
    path = _json_file()
    size = path.stat().st_size / 1e6
    pipeline = f"""
    name: read-json
    settings: {{parallelism: 2}}
    sources:
      rows:
        connector: filesystem
        path: {path}
        format: json
        schema: {{id: BIGINT, user: STRING, amount: DOUBLE, ok: BOOLEAN, ts: TIMESTAMP(3)}}
    sinks:
      out: {{from: rows, connector: blackhole}}
    """
    engine, _ = best_engine_run(5, lambda: run_pipeline(pipeline))
    read = f"""
    import pyarrow as pa, pyarrow.json as pj
    pa.set_cpu_count(2)
    types = {{"id": pa.int64(), "user": pa.string(), "amount": pa.float64(), "ok": pa.bool_(), "ts": pa.timestamp("ms")}}
    options = pj.ReadOptions(use_threads=True, block_size=4 << 20), pj.ParseOptions(explicit_schema=pa.schema(types))
    # begin
    pj.read_json("{path}", *options)
    """
    theirs = median_of(5, lambda: timed_in_a_fresh_process(read))
    return Figure(
        f"JSON lines, {size:.0f} MB",
        f"{size / engine:.0f} MB/s",
        f"pyarrow.json, 2 threads: {size / theirs:.0f} MB/s",
        f"{theirs / engine:.2f}",
        "≥ 0.7",
        theirs / engine >= 0.7,
    )
