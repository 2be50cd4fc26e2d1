"""Records of random schemas, whole and damaged, mean what fastavro reads in them."""

from __future__ import annotations

import io
import json
import random
from itertools import count
from typing import Any

import fastavro
import fastavro.utils
import pyarrow as pa
import pytest

from flowrun.api.format import messages_chunk
from flowrun.connectors.formats.avro.reading import AvroReader
from flowrun.connectors.formats.avro.schema import parse_schema
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    DataType,
    TypeRoot,
    array,
    map_of,
    row,
)
from tests.slices import everyday

from .samples import their_records

_PLAIN = {
    "boolean": BOOLEAN,
    "int": INT,
    "long": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BYTES,
    "string": STRING,
}
_DEEPEST = 4


def random_type(source: random.Random, depth: int, numbers: count[int]) -> Any:
    made = ["array", "map", "record", "union", "enum", "fixed", "nullable", "nullable"]
    kind = source.choice(["null", *_PLAIN, *_PLAIN, *(made if depth < _DEEPEST else [])])
    match kind:
        case "array":
            return {"type": "array", "items": random_type(source, depth + 1, numbers)}
        case "map":
            return {"type": "map", "values": random_type(source, depth + 1, numbers)}
        case "enum":
            return {"type": "enum", "name": f"e{next(numbers)}", "symbols": ["A", "B", "C"]}
        case "fixed":
            return {"type": "fixed", "name": f"f{next(numbers)}", "size": source.choice([0, 1, 5, 16])}
        case "record":
            name, fields = f"r{next(numbers)}", source.randrange(4)
            types = [random_type(source, depth + 1, numbers) for _ in range(fields)]
            return {
                "type": "record",
                "name": name,
                "fields": [{"name": f"x{i}", "type": t} for i, t in enumerate(types)],
            }
        case "nullable":
            inner = random_type(source, depth + 1, numbers)
            return (
                inner
                if isinstance(inner, list) or inner == "null"
                else source.choice([["null", inner], [inner, "null"]])
            )
        case "union":
            branches = [random_type(source, depth + 1, numbers) for _ in range(3)]
            named = {_branch(b): b for b in branches if not isinstance(b, list)}
            return list(named.values()) or "int"
    return kind


def _branch(type: Any) -> str:
    """What no other branch of a union may be."""
    return str(type if isinstance(type, str) else type.get("name", type["type"]))


def column_type(type: Any) -> DataType | None:
    """The SQL type of values of an Avro type; None: there is none."""
    if isinstance(type, list):
        others = [t for t in type if t != "null"]
        return column_type(others[0]) if len(others) == 1 else None
    if isinstance(type, str):
        return _PLAIN.get(type)
    match type["type"]:
        case "array":
            inner = column_type(type["items"])
            return None if inner is None else array(inner)
        case "map":
            inner = column_type(type["values"])
            return None if inner is None else map_of(STRING, inner)
        case "record":
            fields = [(f["name"], t) for f in type["fields"] if (t := column_type(f["type"])) is not None]
            return row(*fields) if fields else None
        case "enum":
            return STRING
    return BYTES


def as_column(value: Any, type: DataType) -> Any:
    """A value that fastavro gives, as Arrow gives it."""
    if value is None:
        return None
    match type.root:
        case TypeRoot.ROW:
            return {n: as_column(value[n], c) for n, c in zip(type.names, type.children, strict=True)}
        case TypeRoot.ARRAY:
            return [as_column(v, type.children[0]) for v in value]
        case TypeRoot.MAP:
            return [(k, as_column(v, type.children[1])) for k, v in value.items()]
        case TypeRoot.FLOAT:
            return pa.scalar(value, pa.float32()).as_py()
    return value


@pytest.mark.parametrize("seed", everyday(range(60), 20, ci=3))
def test_values_of_random_schemas(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(seed)
    for name in ("random", "randint", "choice", "getrandbits", "sample", "randrange"):
        monkeypatch.setattr(f"random.{name}", getattr(source, name))  # fastavro draws its values from there
    numbers = count()
    types = {f"c{i}": random_type(source, 0, numbers) for i in range(source.randrange(1, 7))}
    written = {"type": "record", "name": "top", "fields": [{"name": n, "type": t} for n, t in types.items()]}
    theirs = fastavro.parse_schema(json.loads(json.dumps(written)))
    columns = {n: c for n, t in types.items() if (c := column_type(t)) is not None and source.random() < 0.8}
    records = their_records(theirs, list(fastavro.utils.generate_many(theirs, 30)))
    reader = AvroReader(parse_schema(json.dumps(written)), Schema.of(**columns))

    def expected(record: bytes) -> dict[str, Any]:
        value: Any = fastavro.schemaless_reader(io.BytesIO(record), theirs)
        return {n: as_column(value[n], c) for n, c in columns.items()}

    decoded = reader.read(messages_chunk(pa.array(records, pa.binary())))
    assert not decoded.bad
    assert repr(decoded.columns.to_pylist()) == repr([expected(r) for r in records])
    damaged = []
    for record in records:
        changed = bytearray(record or b"\0")
        changed[source.randrange(len(changed))] = source.randrange(256)
        damaged.append(bytes(changed[: source.randrange(len(changed) + 1)] if source.random() < 0.5 else changed))
    decoded = reader.read(messages_chunk(pa.array(damaged, pa.binary())))
    decoded.columns.validate(full=True)
    for index, values in zip(decoded.records.tolist(), decoded.columns.to_pylist(), strict=True):
        try:
            wanted = expected(damaged[index])
        except (UnicodeDecodeError, IndexError):
            continue  # a text or enum in a field that no column reads
        assert repr(values) == repr(wanted)
