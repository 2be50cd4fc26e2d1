"""SQL data types with their Arrow representation: what a column is called, holds and costs.

A type is one frozen `DataType` value: a root, its parameters and, for nested types, its children. Arrow alone cannot say
VARCHAR(7) or TIMESTAMP(0), so the engine carries `DataType`s in schemas and Arrow arrays in batches; `DataType.arrow` is the
only mapping between the two. Text form and parameters follow Apache Flink's documentation of its SQL data types.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa

from flowrun.core.record import record

MAX_DECIMAL_PRECISION = 38
MAX_TIME_PRECISION = 9


class TypeRoot(Enum):
    """The families of SQL types; the value is the SQL keyword."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INTEGER = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    INTERVAL_YEAR_MONTH = "INTERVAL YEAR TO MONTH"
    INTERVAL_DAY_TIME = "INTERVAL DAY TO SECOND"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"
    VARIANT = "VARIANT"


_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT)
_PRIMITIVE_ARROW: dict[TypeRoot, pa.DataType] = {
    TypeRoot.NULL: pa.null(),
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INTEGER: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.INTERVAL_YEAR_MONTH: pa.int32(),  # months
    TypeRoot.INTERVAL_DAY_TIME: pa.duration("ms"),
    TypeRoot.VARIANT: pa.large_string(),  # JSON text
}


_AMBIGUOUS = (TypeRoot.CHAR, TypeRoot.BINARY, TypeRoot.INTERVAL_YEAR_MONTH, TypeRoot.VARIANT)
"""Types whose Arrow type stands for another one first."""


def _time_unit(precision: int) -> str:
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


@record(slots=False)
class DataType:
    """One SQL type.

    Attributes:
        root: the family.
        precision: DECIMAL digits, or fractional-second digits of TIME/TIMESTAMP/TIMESTAMP_LTZ.
        scale: DECIMAL fractional digits.
        length: CHAR/VARCHAR/BINARY/VARBINARY length; None means unbounded (STRING, BYTES).
        children: element of ARRAY; key and value of MAP; field types of ROW.
        names: field names of ROW.
        required: which children were declared NOT NULL; empty: none. It is no part of the type's identity: sinks alone look at it.
    """

    root: TypeRoot
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    children: tuple[DataType, ...] = ()
    names: tuple[str, ...] = ()
    required: tuple[bool, ...] = field(default=(), compare=False, repr=False)

    def is_required(self, child: int) -> bool:
        """Whether the values of a child may not be NULL."""
        return bool(self.required) and self.required[child]

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column of this type."""
        match self.root:
            case TypeRoot.DECIMAL:
                return pa.decimal128(self.precision or 10, self.scale or 0)
            case TypeRoot.TIME:
                return pa.time32("ms") if (self.precision or 0) <= 3 else pa.time64(_time_unit(self.precision or 0))
            case TypeRoot.TIMESTAMP:
                return pa.timestamp(_time_unit(self.precision or 0))
            case TypeRoot.TIMESTAMP_LTZ:
                return pa.timestamp(_time_unit(self.precision or 0), tz="UTC")
            case TypeRoot.ARRAY:
                return pa.list_(self.children[0].arrow)
            case TypeRoot.MAP:
                return pa.map_(self.children[0].arrow, self.children[1].arrow)
            case TypeRoot.ROW:
                return pa.struct([pa.field(n, c.arrow) for n, c in zip(self.names, self.children, strict=True)])
            case _:
                return _PRIMITIVE_ARROW[self.root]

    def __str__(self) -> str:
        """The SQL spelling that Flink prints: `DECIMAL(10, 2)`, `STRING`, `ROW<os STRING, version INT>`."""
        match self.root:
            case TypeRoot.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                return f"{self.root.value}({self.precision})"
            case TypeRoot.VARCHAR:
                return "STRING" if self.length is None else f"VARCHAR({self.length})"
            case TypeRoot.VARBINARY:
                return "BYTES" if self.length is None else f"VARBINARY({self.length})"
            case TypeRoot.CHAR | TypeRoot.BINARY:
                return f"{self.root.value}({self.length})"
            case TypeRoot.ARRAY:
                return f"ARRAY<{self.children[0]}>"
            case TypeRoot.MAP:
                return f"MAP<{self.children[0]}, {self.children[1]}>"
            case TypeRoot.ROW:
                inner = ", ".join(f"{n} {c}" for n, c in zip(self.names, self.children, strict=True))
                return f"ROW<{inner}>"
            case _:
                return str(self.root.value)

    @property
    def is_integer(self) -> bool:
        """TINYINT, SMALLINT, INT or BIGINT."""
        return self.root in _INTEGERS

    @property
    def is_approximate(self) -> bool:
        """FLOAT or DOUBLE."""
        return self.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE)

    @property
    def is_numeric(self) -> bool:
        """Integer, approximate or DECIMAL."""
        return self.is_integer or self.is_approximate or self.root is TypeRoot.DECIMAL

    @property
    def is_character(self) -> bool:
        """CHAR or VARCHAR."""
        return self.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)

    @property
    def is_binary(self) -> bool:
        """BINARY or VARBINARY."""
        return self.root in (TypeRoot.BINARY, TypeRoot.VARBINARY)

    @property
    def is_timestamp(self) -> bool:
        """TIMESTAMP or TIMESTAMP_LTZ: what event time may be read from."""
        return self.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)

    @property
    def is_temporal(self) -> bool:
        """DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ."""
        return self.is_timestamp or self.root in (TypeRoot.DATE, TypeRoot.TIME)

    @property
    def is_interval(self) -> bool:
        """Either interval family."""
        return self.root in (TypeRoot.INTERVAL_YEAR_MONTH, TypeRoot.INTERVAL_DAY_TIME)

    @property
    def is_nested(self) -> bool:
        """ARRAY, MAP or ROW."""
        return self.root in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)

    def field(self, name: str) -> DataType | None:
        """The type of a ROW's field, or None if there is no such field."""
        return self.children[self.names.index(name)] if name in self.names else None


NULL = DataType(TypeRoot.NULL)
BOOLEAN = DataType(TypeRoot.BOOLEAN)
TINYINT = DataType(TypeRoot.TINYINT)
SMALLINT = DataType(TypeRoot.SMALLINT)
INT = DataType(TypeRoot.INTEGER)
BIGINT = DataType(TypeRoot.BIGINT)
FLOAT = DataType(TypeRoot.FLOAT)
DOUBLE = DataType(TypeRoot.DOUBLE)
STRING = DataType(TypeRoot.VARCHAR)
BYTES = DataType(TypeRoot.VARBINARY)
DATE = DataType(TypeRoot.DATE)
INTERVAL_YEAR_MONTH = DataType(TypeRoot.INTERVAL_YEAR_MONTH)
INTERVAL_DAY_TIME = DataType(TypeRoot.INTERVAL_DAY_TIME)
VARIANT = DataType(TypeRoot.VARIANT)


def decimal(precision: int = 10, scale: int = 0) -> DataType:
    """DECIMAL(precision, scale). Raises ValueError outside 1 ≤ precision ≤ 38, 0 ≤ scale ≤ precision."""
    if not 1 <= precision <= MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
        raise ValueError(f"DECIMAL({precision}, {scale}): precision must be 1 to 38 and scale 0 to precision")
    return DataType(TypeRoot.DECIMAL, precision=precision, scale=scale)


def varchar(length: int | None = None) -> DataType:
    """VARCHAR(length); STRING without a length."""
    return DataType(TypeRoot.VARCHAR, length=length)


def char(length: int = 1) -> DataType:
    """CHAR(length)."""
    return DataType(TypeRoot.CHAR, length=length)


def varbinary(length: int | None = None) -> DataType:
    """VARBINARY(length); BYTES without a length."""
    return DataType(TypeRoot.VARBINARY, length=length)


def time(precision: int = 0) -> DataType:
    """TIME(precision), time of day without zone."""
    return DataType(TypeRoot.TIME, precision=precision)


def timestamp(precision: int = 6) -> DataType:
    """TIMESTAMP(precision) without time zone."""
    return DataType(TypeRoot.TIMESTAMP, precision=precision)


def timestamp_ltz(precision: int = 6) -> DataType:
    """TIMESTAMP_LTZ(precision): an instant, shown in the session's zone."""
    return DataType(TypeRoot.TIMESTAMP_LTZ, precision=precision)


def with_required(type: DataType, required: tuple[bool, ...]) -> DataType:
    """The type with children that were declared NOT NULL."""
    return replace(type, required=required) if any(required) else type


def array(element: DataType) -> DataType:
    """ARRAY<element>."""
    return DataType(TypeRoot.ARRAY, children=(element,))


def map_of(key: DataType, value: DataType) -> DataType:
    """MAP<key, value>."""
    return DataType(TypeRoot.MAP, children=(key, value))


def row(*fields: tuple[str, DataType]) -> DataType:
    """ROW<name type, …>."""
    return DataType(TypeRoot.ROW, children=tuple(t for _, t in fields), names=tuple(n for n, _ in fields))


def from_arrow(arrow: pa.DataType, *, large_string: DataType = STRING) -> DataType:
    """The widest `DataType` that an Arrow type stands for (strings become STRING, timestamp[us] TIMESTAMP(6)).

    Args:
        arrow: the Arrow type.
        large_string: what a large string stands for: STRING outside, VARIANT inside kernels.

    Raises:
        ValueError: no SQL type stands for `arrow`; names it.
    """
    for root, known in _PRIMITIVE_ARROW.items():
        if arrow == known and root not in _AMBIGUOUS:
            return DataType(root)
    if pa.types.is_large_string(arrow):
        return large_string
    if pa.types.is_string_view(arrow):
        return STRING
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow) or pa.types.is_fixed_size_binary(arrow):
        return BYTES
    if pa.types.is_decimal(arrow):
        return decimal(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        precision = {"s": 0, "ms": 3, "us": 6, "ns": 9}[arrow.unit]
        return timestamp(precision) if arrow.tz is None else timestamp_ltz(precision)
    if pa.types.is_time(arrow):
        return time({"s": 0, "ms": 3, "us": 6, "ns": 9}[arrow.unit])
    if pa.types.is_duration(arrow):
        return INTERVAL_DAY_TIME
    if pa.types.is_date64(arrow):
        return DATE
    if pa.types.is_uint8(arrow):
        return SMALLINT
    if pa.types.is_uint16(arrow):
        return INT
    if pa.types.is_uint32(arrow):
        return BIGINT
    if pa.types.is_uint64(arrow):
        return decimal(20, 0)
    if pa.types.is_float16(arrow):
        return FLOAT
    if pa.types.is_dictionary(arrow):
        return from_arrow(arrow.value_type, large_string=large_string)
    if pa.types.is_map(arrow):
        return map_of(*(from_arrow(t, large_string=large_string) for t in (arrow.key_type, arrow.item_type)))
    if pa.types.is_struct(arrow):
        return row(*((f.name, from_arrow(f.type, large_string=large_string)) for f in arrow))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return array(from_arrow(arrow.value_type, large_string=large_string))
    raise ValueError(f"no SQL type stands for the Arrow type {arrow}")
