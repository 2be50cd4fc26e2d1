"""Random values of any type that the codec knows, made from annotations alone, and their comparison."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from flowrun.api.source import JsonValue
from flowrun.errors import ConnectorError
from flowrun.runtime.rpc import codec

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
SCHEMAS = st.sampled_from(
    [
        pa.schema([]),
        pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.list_(pa.string()))], {"k": "v"}),
        pa.schema([("d", pa.dictionary(pa.int32(), pa.string())), ("t", pa.timestamp("us", "UTC"))]),
    ]
)
COLUMNS = {
    "a": pa.array([1, None, 3]),
    "b": pa.array(["x", None, "é"]),
    "d": pa.array(["p", "q", "p"]).dictionary_encode(),
}
TABLES = st.sampled_from(
    [pa.table(COLUMNS), pa.table({}), pa.table(COLUMNS).slice(1, 1), pa.concat_tables([pa.table(COLUMNS)] * 2)]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**200]),
    float: st.floats(),
    str: TEXTS,
    bytes: st.binary(max_size=8),
    pa.Schema: SCHEMAS,
    pa.Table: TABLES,
    pa.RecordBatch: st.just(pa.RecordBatch.from_pydict(COLUMNS)),
    pa.Int64Array: st.lists(st.integers(-5, 5), max_size=4).map(lambda v: pa.array(v, pa.int64())),
    pa.Int8Array: st.lists(st.integers(0, 3), max_size=4).map(lambda v: pa.array(v, pa.int8())),
    BaseException: st.sampled_from([ValueError("bad"), ConnectorError("gone", retryable=True, hint="wait")]),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return JSON if codec._is_json(kind) else st.one_of(*map(values, arguments))
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return st.tuples(*map(values, arguments))
    if origin in (tuple, Sequence, Collection):
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if origin is np.ndarray:
        return st.lists(st.integers(-5, 5), max_size=4).map(lambda v: np.array(v, np.int64))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    assert is_dataclass(kind), kind
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: st.deferred(lambda n=f.name: values(hints[n])) for f in fields(kind) if f.init})


def plain(value: Any) -> Any:
    """What is compared instead of a value: NaN is itself, and what has no equality of its own is taken apart."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.tolist())
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value), getattr(value, "retryable", None))
    if isinstance(value, pa.Schema | pa.Table | pa.RecordBatch):
        schema = value if isinstance(value, pa.Schema) else value.schema
        return (schema, schema.metadata, None if isinstance(value, pa.Schema) else value.to_pylist())
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), [plain(getattr(value, f.name)) for f in fields(value)])
    if isinstance(value, Mapping):
        return [(plain(k), plain(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return (type(value), [plain(v) for v in value])
    return (type(value), value)


__all__ = ["JsonValue", "plain", "values"]
