"""Filter and projection from Parquet, reading JSON lines, and writing formats, against plain pyarrow and orjson doing the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.measuring import DATA, Figure, best_engine_run, median_of, run_pipeline, timed_in_a_fresh_process
from flowrun.api.format import ReadRequest, RecordChunk, RecordFormat, lines_chunk, messages_chunk
from flowrun.connectors.formats.registry import format_named, prefixed_options
from flowrun.core.options import Options, parse_options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, DOUBLE, STRING, timestamp

PARQUET_ROWS = 10_000_000
JSON_ROWS = 1_000_000
ENCODED_ROWS = 65_536


def run() -> list[Figure]:
    return [_parquet(), _json(), _messages(), *_encoders()]


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


def _rows() -> tuple[Schema, pa.RecordBatch]:
    """The first rows of the JSON file, as they are decoded."""
    schema = Schema.of(id=BIGINT, user=STRING, amount=DOUBLE, ok=BOOLEAN, ts=timestamp(3))
    return schema, _decoder(schema)(lines_chunk(_lines()))


def _lines() -> list[bytes]:
    with _json_file().open("rb") as file:
        return [file.readline().rstrip(b"\n") for _ in range(ENCODED_ROWS)]


def _format(name: str) -> tuple[RecordFormat, Options]:
    found = format_named(name)
    assert isinstance(found, RecordFormat)
    return found, parse_options(prefixed_options(name), {}, name)[0]


def _decoder(schema: Schema) -> Callable[[RecordChunk], pa.RecordBatch]:
    json, options = _format("json")
    decoder = json.create_decoder(ReadRequest(schema, schema, options))
    return lambda chunk: decoder.decode(chunk).columns


def _seconds(work: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return median_of(9, once)


def _messages() -> Figure:
    schema, _ = _rows()
    decode = _decoder(schema)
    lines = _lines()
    messages, one_a_line = messages_chunk(pa.array(lines, pa.binary())), lines_chunk(lines)
    engine, peer = _seconds(lambda: decode(messages)), _seconds(lambda: decode(one_a_line))
    return Figure(
        "JSON messages of a queue decoded, one thread",
        f"{ENCODED_ROWS / engine / 1e6:.2f} M/s",
        f"the same as lines of a file: {ENCODED_ROWS / peer / 1e6:.2f} M/s",
        f"{peer / engine:.2f}",
        "≥ 0.6",
        peer / engine >= 0.6,
    )


def _encoders() -> list[Figure]:
    schema, rows = _rows()
    by_row = _seconds(lambda: b"\n".join(orjson.dumps(row) for row in rows.to_pylist()))
    by_arrow = _seconds(lambda: pa.csv.write_csv(rows, pa.BufferOutputStream()))
    peers = {"json": ("orjson, by row", by_row, 5.0), "debezium-json": ("orjson, by row", by_row, 5.0)}
    peers["csv"] = ("pyarrow.csv", by_arrow, 0.4)
    figures = []
    for name, (peer, theirs, bar) in peers.items():
        used, options = _format(name)
        encoder = used.create_encoder(schema, options)
        seconds = _seconds(lambda encoder=encoder: encoder.encode(rows))  # type: ignore[misc]
        figures.append(
            Figure(
                f"{name} written, 5 columns, one thread",
                f"{ENCODED_ROWS / seconds / 1e6:.2f} M rows/s",
                f"{peer}: {ENCODED_ROWS / theirs / 1e6:.2f} M rows/s",
                f"{theirs / seconds:.1f}",
                f"≥ {bar:g}",
                theirs / seconds >= bar,
            )
        )
    return figures
