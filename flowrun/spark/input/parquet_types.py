"""Decides which columns of Parquet files Spark reads exactly as flowrun (`formats.arrow_fit`), and converts them to the table's types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot, timestamp, timestamp_ltz
from flowrun.functions.spark_text import is_counted, quote_text, quoted, spark_type
from flowrun.spark.arrow import spark_data_type
from flowrun.spark.input.exactness import NotExactError
from flowrun.spark.times import millis_of, timestamp_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType as SparkType


@record
class StoredColumn:
    """How one stored column is read.

    Attributes:
        type: the type that Spark's reader reads.
        text: Spark SQL that converts the column to the table's type; None: it has that type.
        floored: whether `text` only rounds a time down to ms.
    """

    type: SparkType
    text: str | None = None
    floored: bool = False


def stored_column(given: pa.DataType, target: DataType, text: str) -> StoredColumn:
    """How to read a column of a file's type as `target`; `text` is the column as Spark SQL.

    Raises:
        NotExactError: flowrun's own reader must read it, and may say that the types do not fit.
    """
    if pa.types.is_dictionary(given):
        given = given.value_type
    if is_counted(target) or target.root in (TypeRoot.TIME, TypeRoot.NULL):
        raise NotExactError(f"Spark has no exact reading of {target}")
    match target.root:
        case TypeRoot.ROW:
            return _row(given, target, text)
        case TypeRoot.ARRAY:
            return _array(given, target, text)
        case TypeRoot.MAP:
            return _map(given, target)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamp(given, target, text)
        case TypeRoot.DECIMAL:
            return _decimal(given, target, text)
    if given in _SAME[target.root]:
        return StoredColumn(spark_data_type(target))
    wider = _CAST.get(target.root, {}).get(given)
    if wider is None:
        raise NotExactError(f"{given} as {target}")
    return StoredColumn(spark_data_type(DataType(wider)), f"CAST({text} AS {spark_type(target)})")


_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())
_SAME: dict[TypeRoot, tuple[pa.DataType, ...]] = {
    TypeRoot.BOOLEAN: (pa.bool_(),),
    TypeRoot.TINYINT: (pa.int8(),),
    TypeRoot.SMALLINT: (pa.int16(),),
    TypeRoot.INTEGER: (pa.int32(),),
    TypeRoot.BIGINT: (pa.int64(),),
    TypeRoot.FLOAT: (pa.float32(),),
    TypeRoot.DOUBLE: (pa.float64(),),
    TypeRoot.CHAR: _TEXT,
    TypeRoot.VARCHAR: _TEXT,
    TypeRoot.BINARY: _BYTES,
    TypeRoot.VARBINARY: _BYTES,
    TypeRoot.DATE: (pa.date32(),),
}
_INTEGERS = {
    pa.int8(): TypeRoot.TINYINT,
    pa.int16(): TypeRoot.SMALLINT,
    pa.int32(): TypeRoot.INTEGER,
    pa.int64(): TypeRoot.BIGINT,
}
_CAST: dict[TypeRoot, dict[pa.DataType, TypeRoot]] = {
    **dict.fromkeys(_INTEGERS.values(), _INTEGERS),
    TypeRoot.DOUBLE: {pa.float32(): TypeRoot.FLOAT},
}


def _timestamp(given: pa.DataType, target: DataType, text: str) -> StoredColumn:
    if not pa.types.is_timestamp(given) or given.unit not in ("ms", "us") or given.tz not in (None, "UTC"):
        raise NotExactError(f"{given} as {target}")
    stored = timestamp(6) if given.tz is None else timestamp_ltz(6)
    if given.unit == "us" and (target.precision or 0) <= 3:
        floored = spark_type(stored) == spark_type(target)
        return StoredColumn(spark_data_type(stored), timestamp_of(millis_of(text, stored), target), floored)
    if spark_type(stored) == spark_type(target):
        return StoredColumn(spark_data_type(stored))
    return StoredColumn(spark_data_type(stored), f"CAST({text} AS {spark_type(target)})")


def _decimal(given: pa.DataType, target: DataType, text: str) -> StoredColumn:
    if pa.types.is_decimal128(given):
        scale, precision = target.scale or 0, target.precision or 10
        if (given.precision, given.scale) == (precision, scale):
            return StoredColumn(spark_data_type(target))
        if 0 <= given.scale <= scale and given.precision - given.scale <= precision - scale:
            stored = DataType(TypeRoot.DECIMAL, precision=given.precision, scale=given.scale)
            return StoredColumn(spark_data_type(stored), f"CAST({text} AS {spark_type(target)})")
    raise NotExactError(f"{given} as {target}")


def _row(given: pa.DataType, target: DataType, text: str) -> StoredColumn:
    from pyspark.sql.types import StructField, StructType

    if not pa.types.is_struct(given):
        raise NotExactError(f"{given} as {target}")
    known = [name for name in target.names if given.get_field_index(name) >= 0]
    if not known:  # without a known field Spark cannot know which rows are NULL
        raise NotExactError(f"{given} as {target}")
    fields, texts, changed = [], [], False
    for name, child in zip(target.names, target.children, strict=True):
        inner = f"{text}.{quoted(name)}"
        position = given.get_field_index(name)
        column = (
            StoredColumn(spark_data_type(child)) if position < 0 else stored_column(given[position].type, child, inner)
        )
        fields.append(StructField(name, column.type))
        texts.append(f"{quote_text(name)}, {column.text or inner}")
        changed = changed or column.text is not None
    kind = StructType(fields)
    if not changed:
        return StoredColumn(kind)
    return StoredColumn(kind, f"CASE WHEN {text} IS NOT NULL THEN named_struct({', '.join(texts)}) END")


def _array(given: pa.DataType, target: DataType, text: str) -> StoredColumn:
    from pyspark.sql.types import ArrayType

    if not (pa.types.is_list(given) or pa.types.is_large_list(given)):
        raise NotExactError(f"{given} as {target}")
    element = stored_column(given.value_type, target.children[0], "`$element`")
    if element.text is None:
        return StoredColumn(ArrayType(element.type))
    return StoredColumn(ArrayType(element.type), f"transform({text}, `$element` -> {element.text})")


def _map(given: pa.DataType, target: DataType) -> StoredColumn:
    if not pa.types.is_map(given):
        raise NotExactError(f"{given} as {target}")
    sides = zip((given.key_type, given.item_type), target.children, strict=True)
    if any(stored_column(side, child, "").text is not None for side, child in sides):
        raise NotExactError(f"{given} as {target}")
    return StoredColumn(spark_data_type(target))
