"""JSON lines to columns against pyarrow's reader, in this process, on one thread: processor time, the shortest of runs in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.json

from benchmarks.measuring import Figure
from benchmarks.nexmark import events
from flowrun.api.format import RecordChunk, lines_chunk
from flowrun.connectors.formats.json_compiled import library
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, array, decimal, row, timestamp

ROWS = 100_000
BLOCK_RECORDS = 20_000
RUNS = 9
BAR = 1.6
AT = timestamp(3)
FLAT = Schema.of(id=BIGINT, user=STRING, amount=DOUBLE, ok=BOOLEAN, ts=AT)
BIDS = Schema.of(
    event_type=INT,
    person=row(("dateTime", AT)),
    auction=row(("dateTime", AT)),
    bid=row(("auction", BIGINT), ("bidder", BIGINT), ("price", BIGINT), ("dateTime", AT), ("extra", STRING)),
)
ORDERS = Schema.of(
    order=row(("id", BIGINT), ("customer", row(("name", STRING), ("tags", array(STRING)), ("at", array(DOUBLE))))),
    lines=array(row(("sku", STRING), ("count", BIGINT), ("price", decimal(10, 2)))),
    note=STRING,
)


def run() -> list[Figure]:
    library()  # without it, these would be figures of pyarrow alone
    return [
        _figure("JSON, five columns", _flat(), FLAT),
        _figure("JSON, Nexmark's events, the columns of q0", _events(), BIDS),
        _figure("JSON, nested, with lists of rows", _orders(), ORDERS),
    ]


def _flat() -> list[bytes]:
    rng = np.random.default_rng(2)
    return [
        b'{"id": %d, "user": "user-%d", "amount": %.6f, "ok": true, "ts": "2024-03-01 10:%02d:%02d.%03d"}'
        % (number, number % 9973, amount, number % 60, number % 59, number % 1000)
        for number, amount in zip(rng.integers(0, 1 << 40, ROWS).tolist(), rng.random(ROWS).tolist(), strict=True)
    ]


def _events() -> list[bytes]:
    with (events() / "events" / "part-000.json").open("rb") as file:
        return [text.rstrip(b"\n") for text in islice(file, ROWS)]


def _orders() -> list[bytes]:
    return [
        b'{"order": {"id": %d, "customer": {"name": "n%d", "tags": ["a", "b%d"], "at": [%r, %r]}}, "lines":'
        b' [{"sku": "s%d", "count": %d, "price": %.2f}, {"sku": "t", "count": 2, "price": 3.50}], "note": "x\\ny"}'
        % (i, i % 77, i % 5, part * 90, part * 180, i % 100, i % 9, part * 100)
        for i, part in enumerate(np.random.default_rng(3).random(ROWS).tolist())
    ]


def _figure(name: str, lines: list[bytes], schema: Schema) -> Figure:
    chunks = [lines_chunk(lines[begin : begin + BLOCK_RECORDS]) for begin in range(0, len(lines), BLOCK_RECORDS)]
    decoder = JsonDecoder(schema)
    ours, theirs = _seconds(lambda: list(map(decoder.decode, chunks)), lambda: [_peer(c, schema) for c in chunks])
    size = sum(map(len, lines)) / 1e6
    ratio = theirs / ours
    return Figure(
        f"{name}, one thread",
        f"{size / ours:.0f} MB/s",
        f"pyarrow.json: {size / theirs:.0f} MB/s",
        f"{ratio:.1f}",
        f"≥ {BAR:g}",
        ratio >= BAR,
    )


def _peer(chunk: RecordChunk, schema: Schema) -> pa.Table:
    return pa.json.read_json(
        pa.BufferReader(chunk.data),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=chunk.data.size + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema.arrow, unexpected_field_behavior="ignore"),
    )


def _seconds(work: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(RUNS):
        for function, found in ((work, ours), (peer, theirs)):
            begin = time.process_time()
            function()
            found.append(time.process_time() - begin)
    return min(ours), min(theirs)
