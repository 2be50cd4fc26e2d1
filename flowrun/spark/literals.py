"""Writes constants as Spark SQL text, exact to the last bit."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from flowrun.connectors.formats.value_text import non_finite_text
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import is_counted, quote_text, spark_type

_SUFFIXES = {TypeRoot.TINYINT: "Y", TypeRoot.SMALLINT: "S", TypeRoot.INTEGER: "", TypeRoot.BIGINT: "L"}
_EPOCH = datetime.datetime(1970, 1, 1)
_YEARS = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
"""Microseconds since the epoch of the years 1 to 9999, the only ones that Python and date constants have."""


def literal_text(value: Any, type: DataType) -> str:
    """A constant as Spark SQL text, which has exactly the Spark type of `type`; `value` is as in `plan.expressions.Literal`.

    >>> from flowrun.core.types import BIGINT, STRING, decimal
    >>> literal_text(5, BIGINT), literal_text(None, STRING), literal_text(1, decimal(5, 2))
    ('5L', 'CAST(NULL AS STRING)', 'CAST(1.00BD AS DECIMAL(5, 2))')
    """
    if value is None or type.root is TypeRoot.NULL:
        return "NULL" if type.root is TypeRoot.NULL else f"CAST(NULL AS {spark_type(type)})"
    if is_counted(type):
        return _count(value, type)
    if type.is_integer:
        return _signed(f"{value}{_SUFFIXES[type.root]}")
    if type.is_character:
        return quote_text(value)
    if type.is_binary:
        return f"X'{bytes(value).hex()}'"
    match type.root:
        case TypeRoot.BOOLEAN:
            return str(bool(value)).upper()
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return _approximate(pa.scalar(value, type.arrow).as_py(), type)
        case TypeRoot.DECIMAL:
            return f"CAST({_signed(f'{pa.scalar(value, type.arrow).as_py():f}BD')} AS {spark_type(type)})"
        case TypeRoot.DATE:
            days = pa.scalar(value, type.arrow).value
            if days * 86_400_000_000 in _YEARS:
                return f"DATE '{(_EPOCH + datetime.timedelta(days)).date()}'"
            return f"date_from_unix_date({days})"
        case TypeRoot.TIME:
            micros = pa.scalar(value, type.arrow).cast(pa.time64("us")).value
            clock = (_EPOCH + datetime.timedelta(microseconds=micros)).time().isoformat("microseconds")
            return f"CAST(TIME '{clock}' AS {spark_type(type)})"
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamp(pa.scalar(value, type.arrow), type)
        case TypeRoot.ARRAY:
            return _array((literal_text(v, type.children[0]) for v in value), type)
        case TypeRoot.MAP:
            return _map(value, type)
        case _:
            fields = (
                f"{quote_text(name)}, {literal_text(value[name], child)}"
                for name, child in zip(type.names, type.children, strict=True)
            )
            return f"named_struct({', '.join(fields)})"


def _signed(number: str) -> str:
    return f"({number})" if number.startswith("-") else number


def _count(value: Any, type: DataType) -> str:
    integer = pa.int32() if type.arrow.bit_width == 32 else pa.int64()
    return _signed(f"{pa.scalar(value, type.arrow).cast(integer).as_py()}{'' if integer.bit_width == 32 else 'L'}")


def _approximate(value: float, type: DataType) -> str:
    if math.isfinite(value):
        text = _signed(f"{value!r}D")
        return text if type.root is TypeRoot.DOUBLE else f"CAST({text} AS FLOAT)"
    return f"CAST('{non_finite_text(value)}' AS {spark_type(type)})"


def _timestamp(value: pa.Scalar, type: DataType) -> str:
    micros = value.cast(pa.timestamp("us", value.type.tz)).value
    if micros not in _YEARS:
        text = f"timestamp_micros({_signed(f'{micros}L')})"
        return text if type.root is TypeRoot.TIMESTAMP_LTZ else f"CAST({text} AS TIMESTAMP_NTZ)"
    moment = (_EPOCH + datetime.timedelta(microseconds=micros)).isoformat(" ")
    return f"TIMESTAMP_LTZ '{moment} UTC'" if type.root is TypeRoot.TIMESTAMP_LTZ else f"TIMESTAMP_NTZ '{moment}'"


def _array(elements: Iterable[str], type: DataType) -> str:
    inner = ", ".join(elements)
    return f"array({inner})" if inner else f"CAST(array() AS {spark_type(type)})"


def _map(value: Any, type: DataType) -> str:
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    if not pairs:
        return f"CAST(map() AS {spark_type(type)})"
    key, item = type.children
    return f"map({', '.join(f'{literal_text(k, key)}, {literal_text(v, item)}' for k, v in pairs)})"
