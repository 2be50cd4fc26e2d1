# ruff: noqa: ARG001 - kernels share one signature
"""GREATEST and LEAST. (COALESCE, NULLIF, IF and CASE are expression nodes of their own.)"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import BIGINT, DataType, TypeRoot
from flowrun.functions.contract import Datum, ScalarFunction
from flowrun.functions.rules import CommonType
from flowrun.functions.vectors import any_null_constant, null_of


def _comparable(type: DataType) -> bool:
    return type.is_numeric or type.is_character or type.is_binary or type.is_temporal or type.root is TypeRoot.BOOLEAN


def _extreme(name: str, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    if len(arguments) == 1:
        return arguments[0]
    if result.root is TypeRoot.BOOLEAN:  # Arrow orders no booleans: the greatest is OR, the least AND, and NULL wins
        combine = pc.or_ if name == "max" else pc.and_
        combined = arguments[0]
        for other in arguments[1:]:
            combined = combine(combined, other)
        return combined
    if result.root is TypeRoot.TIMESTAMP_LTZ:  # no kernel for times with a zone
        ticks = [a.cast(pa.int64()) for a in arguments]
        return _extreme(name, ticks, rows, BIGINT).cast(result.arrow)
    kernel = pc.max_element_wise if name == "max" else pc.min_element_wise
    return kernel(*arguments, skip_nulls=False)


def _spark_extreme(name: str, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    if len(texts) == 1:
        return texts[0]
    if result.is_approximate:
        return None  # to Spark, NaN is the greatest and -0.0 equals 0.0
    missing = " OR ".join(f"{t} IS NULL" for t in texts)  # Spark's skip NULLs
    return f"CASE WHEN {missing} THEN NULL ELSE {name}({', '.join(texts)}) END"


_GREATEST = "GREATEST(value, …)"
_LEAST = "LEAST(value, …)"
_EXPECTS = "numbers, strings, times or booleans"

CONDITIONALS = (
    ScalarFunction(
        "GREATEST",
        CommonType(_GREATEST, _comparable, _EXPECTS),
        partial(_extreme, "max"),
        _GREATEST,
        "The greatest of the values; NULL if any is NULL.",
        partial(_spark_extreme, "greatest"),
    ),
    ScalarFunction(
        "LEAST",
        CommonType(_LEAST, _comparable, _EXPECTS),
        partial(_extreme, "min"),
        _LEAST,
        "The least of the values; NULL if any is NULL.",
        partial(_spark_extreme, "least"),
    ),
)
"""GREATEST and LEAST."""
