# ruff: noqa: ARG001 - texts share one signature
"""Aggregates as Spark SQL text, over the rows of a group or of a window frame, with or without DISTINCT, FILTER and an order of rows."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import BIGINT, DOUBLE, DataType, TypeRoot, decimal
from flowrun.functions.spark_rows import EACH, SparkRows
from flowrun.functions.spark_text import quote_text, spark_type

_SUM = "`$sum`"
_EXACT_COUNT = "DECIMAL(20, 0)"


def count_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """COUNT(*) and COUNT(value)."""
    if not texts:
        return rows.call("count", "*" if rows.where is None else rows.kept("1"))
    if rows.by_array:
        return f"CAST(size({rows.values(texts[0])}) AS BIGINT)"
    return rows.apply("count", texts[0])


def sum_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """SUM."""
    return f"CAST({_total(rows, texts[0], result)} AS {spark_type(result)})"


def sum0_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """SUM, 0 of no values."""
    return f"coalesce({sum_text(rows, texts, types, result)}, CAST(0 AS {spark_type(result)}))"


def average_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """AVG. Decimals: DECIMAL(38, s) / DECIMAL(20, 0) has exactly the result's scale in Spark, so that it is rounded once."""
    total, number = _total(rows, texts[0], types[0]), count_text(rows, texts, types, BIGINT)
    if result.is_integer:
        return f"CAST({total} DIV {number} AS {spark_type(result)})"
    if result.root is TypeRoot.DECIMAL:
        exact = f"CAST({total} AS {spark_type(decimal(38, types[0].scale or 0))})"
        return f"CAST({exact} / CAST(nullif({number}, 0L) AS {_EXACT_COUNT}) AS {spark_type(result)})"
    return f"CAST({total} / CAST(nullif({number}, 0L) AS DOUBLE) AS {spark_type(result)})"


def _total(rows: SparkRows, text: str, type: DataType) -> str:
    if not rows.by_array:
        return rows.apply("sum", text)
    return _folded(rows.values(text), type, EACH)


def _folded(array: str, type: DataType, term: str) -> str:
    wide = DOUBLE if type.is_approximate else BIGINT if type.is_integer else decimal(38, type.scale or 0)
    cast = spark_type(wide)
    step = f"CAST(coalesce({_SUM}, CAST(0 AS {cast})) + {term} AS {cast})"
    return f"aggregate({array}, CAST(NULL AS {cast}), ({_SUM}, {EACH}) -> {step})"


@record
class Variance:
    """Of a sample or a population; `root`: its square root. Computed as flowrun does: (Σx² − (Σx)²/n) / n or n − 1, in DOUBLE."""

    sample: bool
    root: bool

    def __call__(
        self, rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType
    ) -> str | None:
        if result.root is TypeRoot.DECIMAL:
            return None  # from DOUBLE to DECIMAL, Spark rounds the decimal spelling, flowrun the binary number
        value = texts[0]
        if rows.distinct:
            values = rows.values(value)
            total, squares = _folded(values, DOUBLE, EACH), _folded(values, DOUBLE, f"{EACH} * {EACH}")
            number = f"CAST(size({values}) AS DOUBLE)"
        else:
            total, squares = rows.apply("sum", value), rows.apply("sum", f"({value} * {value})")
            number = f"CAST({rows.apply('count', value)} AS DOUBLE)"
        least = 1 if self.sample else 0
        spread = f"greatest({squares} - {total} * {total} / {number}, 0.0D)"
        variance = f"{spread} / ({number} - {least}D)"
        if self.root:
            variance = f"sqrt({variance})"
        return f"CASE WHEN {number} > {least}D THEN CAST({variance} AS {spark_type(result)}) END"


@record
class Extreme:
    """MIN or MAX. NaN is the result only if there is nothing else; to Spark it is the greatest number."""

    function: str

    def __call__(self, rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        greatest_or_least = rows.call(self.function, rows.kept(texts[0]))
        if self.function == "min" or not types[0].is_approximate:
            return greatest_or_least
        number = rows.call("max", rows.kept(f"CASE WHEN NOT isnan({texts[0]}) THEN {texts[0]} END"))
        return f"coalesce({number}, {greatest_or_least})"


@record
class End:
    """The first or last value that is not NULL."""

    last: bool

    def __call__(
        self, rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType
    ) -> str | None:
        value = texts[0]
        if self.last and rows.distinct:  # equal values count where they come first
            hosted = rows.window is not None or _holds_map(types[0])
            return None if hosted else f"try_element_at({rows.values(value)}, -1)"
        if rows.order is None:
            return rows.call("last" if self.last else "first", rows.kept(value), "true")
        conditions = [f"{value} IS NOT NULL", *(() if rows.where is None else (rows.where,))]
        order = f"CASE WHEN {' AND '.join(conditions)} THEN struct({rows.order}) END"
        return rows.call("max_by" if self.last else "min_by", value, order)


def list_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """LISTAGG."""
    separator = texts[1] if len(texts) > 1 else quote_text(",")
    some = f"{rows.call('count', rows.kept(texts[0]))} > 0"
    return f"CASE WHEN {some} THEN array_join({rows.values(texts[0])}, {separator}) END"


def array_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """ARRAY_AGG."""
    if _holds_map(types[0]) and (rows.order is not None or rows.distinct):
        return None  # Spark compares no maps
    listed = rows.values(texts[0], nulls=True)
    if rows.where is None:
        return listed
    return f"CASE WHEN {rows.call('count', rows.kept('1'))} > 0 THEN {listed} END"


def multiset_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """COLLECT: a map from each value to how often it occurs."""
    values = rows.values(texts[0])
    once = values if rows.distinct else f"array_distinct({values})"
    of_one = "`$one`"
    number = f"size(filter({values}, {EACH} -> {EACH} <=> {of_one}))"
    return f"map_from_arrays({once}, transform({once}, {of_one} -> {number}))"


def single_text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """SINGLEVALUE: an error if there are several."""
    number = rows.call("count", "*" if rows.where is None else rows.kept("1"))
    failure = quote_text("a subquery that stands for one value gave several rows")
    only = f"get({rows.values(texts[0], nulls=True)}, 0)"
    return f"CASE WHEN {number} > 1 THEN CAST(raise_error({failure}) AS {spark_type(result)}) ELSE {only} END"


def _holds_map(type: DataType) -> bool:
    return type.root is TypeRoot.MAP or any(map(_holds_map, type.children))
