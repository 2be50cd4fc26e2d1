"""Hypothesis strategies for Arrow types that state tables may have, and rows of them."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_UNITS = st.sampled_from(["s", "ms", "us", "ns"])

SIMPLE_TYPES = st.one_of(
    st.sampled_from(
        [
            pa.bool_(),
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.uint8(),
            pa.uint64(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.date32(),
            pa.time32("s"),
            pa.time32("ms"),
            pa.time64("us"),
            pa.time64("ns"),
            pa.decimal128(10, 2),
            pa.decimal128(38, 0),
            pa.duration("ms"),
            pa.null(),
        ]
    ),
    st.builds(pa.timestamp, _UNITS, st.sampled_from([None, "UTC"])),
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(pa.list_, inner),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: pa.struct([pa.field(f"f{i}", t) for i, t in enumerate(ts)])
        ),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int64()]), inner),
    )


TYPES = st.recursive(SIMPLE_TYPES, nested, max_leaves=4)

_BIG = 2**31 - 1


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values that `pa.array` takes for a type; now and then None."""
    return st.one_of(st.none(), _present(kind)) if not pa.types.is_null(kind) else st.none()


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_signed_integer(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if types.is_unsigned_integer(kind):
        return st.integers(0, 2**kind.bit_width - 1)
    if types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if types.is_string(kind) or types.is_large_string(kind):
        return st.text(max_size=12)
    if types.is_binary(kind):
        return st.binary(max_size=12)
    if types.is_decimal(kind):
        limit = 10**kind.precision - 1
        return st.integers(-limit, limit).map(lambda n: decimal.Decimal(n).scaleb(-kind.scale, _EXACT))
    if types.is_date32(kind):
        return st.dates()
    if types.is_time(kind):
        return st.integers(0, 86_399).map(lambda s: (datetime.datetime.min + datetime.timedelta(seconds=s)).time())
    if types.is_timestamp(kind) or types.is_duration(kind):
        step = 1000 if kind.unit == "ns" else 1  # Python's times end at microseconds
        return st.integers(-_BIG, _BIG).map(lambda n: n * step)
    if types.is_struct(kind):
        return st.fixed_dictionaries({f.name: values_of(f.type) for f in kind})
    if types.is_map(kind):
        return st.dictionaries(_present(kind.key_type), values_of(kind.item_type), max_size=3).map(
            lambda d: list(d.items())
        )
    return st.lists(values_of(kind.value_type), max_size=3)


_EXACT = decimal.Context(prec=60)


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType, rows: int) -> pa.Array:
    """An array of `rows` values of a type, sometimes with an offset."""
    values = draw(st.lists(values_of(kind), min_size=rows + 1, max_size=rows + 1))
    array = pa.array(values, kind)
    return array.slice(1) if draw(st.booleans()) else array.slice(0, rows)
