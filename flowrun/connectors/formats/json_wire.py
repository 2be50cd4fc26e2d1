"""The types that pyarrow's JSON reader reads columns as (their wire types), and the kernels that convert them to those of the schema.

pyarrow reads most SQL types directly. The others are read as text, which vectorised kernels parse afterwards. MAP has no wire type: tables
with maps are read by Python's parsers.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from flowrun.connectors.formats.text_values import parse_whole, round_decimal
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot

Finish = Callable[[pa.Array], pa.Array]

_NATIVE = {
    TypeRoot.BOOLEAN,
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INTEGER,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
    TypeRoot.CHAR,
    TypeRoot.VARCHAR,
}
_MAX_SCALE_DIGITS = 38


class NoWireFormError(ValueError):
    """pyarrow's JSON reader cannot read a type in any form."""


@record
class WireColumn:
    """The Arrow type that pyarrow reads a column as, and the kernel that converts it to the column's own type (None: they are equal)."""

    arrow: pa.DataType
    finish: Finish | None = None


@record
class WireSchema:
    """The schema for pyarrow's reader, and the kernel that converts each of its columns."""

    arrow: pa.Schema
    finishes: tuple[Finish | None, ...]


def wire_schema(schema: Schema, *, widened: bool) -> WireSchema:
    """How pyarrow reads the columns of `schema`.

    Args:
        schema: the columns to give.
        widened: whether timestamps are read as text, and decimals with the largest scale that fits. That is slower; it is for data that
            has more digits than its type.

    Raises:
        NoWireFormError: pyarrow cannot read a column in any form.
    """
    columns = [wire_column(f.type, widened=widened) for f in schema]
    fields = [pa.field(f.name, c.arrow) for f, c in zip(schema, columns, strict=True)]
    return WireSchema(pa.schema(fields), tuple(c.finish for c in columns))


def wire_column(target: DataType, *, widened: bool) -> WireColumn:
    """How pyarrow reads columns of one type.

    Raises:
        NoWireFormError: it cannot.
    """
    match target.root:
        case root if root in _NATIVE:
            return WireColumn(target.arrow)
        case TypeRoot.DECIMAL:
            return _decimal(target) if widened else WireColumn(target.arrow, _checked_decimal)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _text(target) if widened else WireColumn(target.arrow)
        case TypeRoot.BINARY | TypeRoot.VARBINARY | TypeRoot.DATE | TypeRoot.TIME:
            return _text(target)
        case TypeRoot.ARRAY:
            return _array(wire_column(target.children[0], widened=widened), target)
        case TypeRoot.ROW:
            return _row([wire_column(c, widened=widened) for c in target.children], target)
        case _:
            raise NoWireFormError(f"{target} has no form in pyarrow's JSON reader")


def _text(target: DataType) -> WireColumn:
    return WireColumn(pa.string(), lambda values: parse_whole(values, target))


def _checked_decimal(values: pa.Array) -> pa.Array:
    """The same decimals, checked, because pyarrow reads integers beyond the precision (100 as DECIMAL(4, 2)) without an error."""
    values.validate(full=True)
    return values


def _decimal(target: DataType) -> WireColumn:
    integral = (target.precision or 10) - (target.scale or 0)
    return WireColumn(
        pa.decimal128(_MAX_SCALE_DIGITS, _MAX_SCALE_DIGITS - integral),
        lambda values: round_decimal(_checked_decimal(values), target),
    )


def _array(element: WireColumn, target: DataType) -> WireColumn:
    wire = pa.list_(element.arrow)
    finish_element = element.finish
    if finish_element is None:
        return WireColumn(wire)

    def finish(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(
            values.offsets, finish_element(values.values), type=target.arrow, mask=values.is_null()
        )

    return WireColumn(wire, finish)


def _row(children: list[WireColumn], target: DataType) -> WireColumn:
    wire = pa.struct([pa.field(n, c.arrow) for n, c in zip(target.names, children, strict=True)])
    if all(c.finish is None for c in children):
        return WireColumn(wire)

    def finish(values: pa.Array) -> pa.Array:
        finished = [values.field(i) if c.finish is None else c.finish(values.field(i)) for i, c in enumerate(children)]
        return pa.StructArray.from_arrays(finished, fields=list(target.arrow), mask=values.is_null())

    return WireColumn(wire, finish)
