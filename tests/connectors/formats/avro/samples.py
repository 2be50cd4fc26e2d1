"""Rows of every type that Avro can hold, and what fastavro, another implementation, makes of them."""

from __future__ import annotations

import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa

from flowrun.connectors.formats.avro.types import schema_text
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)

EVERYTHING = Schema.of(
    flag=BOOLEAN,
    tiny=TINYINT,
    small=SMALLINT,
    int=INT,
    long=BIGINT,
    single=FLOAT,
    double=DOUBLE,
    text=STRING,
    raw=BYTES,
    price=decimal(20, 4),
    day=DATE,
    clock=time(3),
    fine_clock=time(6),
    at=timestamp(3),
    fine_at=timestamp(6),
    instant=timestamp_ltz(6),
    numbers=array(BIGINT),
    prices=map_of(STRING, decimal(5, 1)),
    place=row(("city", STRING), ("zips", array(row(("zip", INT))))),
)


def sample_rows(schema: Schema, rows: int, seed: int = 0) -> pa.RecordBatch:
    """Rows with NULLs, extremes and values of every length."""
    source = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if source.random() < 0.15 else value

    def one() -> dict[str, Any]:
        every = {
            "flag": source.random() < 0.5,
            "tiny": source.randrange(-128, 128),
            "small": source.choice([-(2**15), 2**15 - 1, 0]),
            "int": source.choice([-(2**31), 2**31 - 1, source.randrange(100)]),
            "long": source.choice([0, -1, 2**63 - 1, -(2**63), 2**56, -(2**62), source.randrange(-(2**40), 2**40)]),
            "single": float(source.randrange(1000)) / 8,
            "double": source.random(),
            "text": "x☂" * source.randrange(9),
            "raw": b"\xff\x00" * source.randrange(12),
            "price": Decimal(source.choice([0, -1, 127, 128, -128, -129, 10**19, -(10**19), 255, 256])) / 10_000,
            "day": source.randrange(-1000, 30_000),
            "clock": source.randrange(86_400_000),
            "fine_clock": source.randrange(86_400_000_000),
            "at": source.randrange(-(10**12), 10**13),
            "fine_at": source.randrange(-(10**15), 10**16),
            "instant": source.randrange(10**15),
            "numbers": [maybe(source.randrange(10**6)) for _ in range(source.randrange(5))],
            "prices": [(f"k{i}", maybe(Decimal(i) / 10)) for i in range(source.randrange(4))],
            "place": {"city": maybe("a"), "zips": maybe([maybe({"zip": maybe(5)})])},
        }
        return {name: maybe(every[name]) for name in schema.names}

    return pa.RecordBatch.from_pylist([one() for _ in range(rows)], schema=schema.arrow)


def their_schema(schema: Schema, *, legacy_timestamps: bool = False) -> Any:
    return fastavro.parse_schema(json.loads(schema_text(schema, legacy_timestamps=legacy_timestamps)))


def their_records(schema: Any, values: list[Any]) -> list[bytes]:
    """Values as fastavro encodes them."""
    records = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        records.append(out.getvalue())
    return records


def as_dicts(columns: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as fastavro gives and takes them: maps are dictionaries."""
    maps = [f.name for f in columns.schema if pa.types.is_map(f.type)]
    return [r | {n: dict(r[n]) if r[n] is not None else None for n in maps} for r in columns.to_pylist()]
