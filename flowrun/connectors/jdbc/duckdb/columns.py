"""Which columns of DuckDB are read and written as which types, and what to select for them."""

from __future__ import annotations

from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import MisfitError, ServerColumn
from flowrun.core.types import DataType, TypeRoot

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
HUGE = ("HUGEINT", "UHUGEINT")
TIMES = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
ZONED = "TIMESTAMP WITH TIME ZONE"
_NESTED = {TypeRoot.ARRAY: "LIST", TypeRoot.ROW: "STRUCT", TypeRoot.MAP: "MAP"}
_AS_THEY_ARE = {
    TypeRoot.BOOLEAN: ("BOOLEAN",),
    TypeRoot.FLOAT: ("FLOAT",),
    TypeRoot.BINARY: ("BLOB",),
    TypeRoot.VARBINARY: ("BLOB",),
    TypeRoot.DATE: ("DATE",),
    TypeRoot.TIME: ("TIME", "TIME_NS"),
    TypeRoot.TIMESTAMP: TIMES,
    TypeRoot.TIMESTAMP_LTZ: (ZONED,),
}
_HINTS = {
    (ZONED, TypeRoot.TIMESTAMP): "it is an instant: declare it TIMESTAMP_LTZ",
    ("TIMESTAMP", TypeRoot.TIMESTAMP_LTZ): "it has no time zone: declare it TIMESTAMP",
}


def expression(column: ServerColumn, declared: DataType) -> str:
    """What to select for a column.

    Raises:
        MisfitError: it cannot be read as the declared type.

    >>> from flowrun.core.types import BIGINT, decimal
    >>> expression(ServerColumn("price", "DECIMAL", "DECIMAL(12,4)", 4), decimal(10, 2))
    'CAST("price" AS DECIMAL(38,2))'
    """
    cast = _cast(column, declared)
    if cast is None:
        raise MisfitError(_HINTS.get((column.kind, declared.root), ""))
    name = identifier(column.name)
    return f"CAST({name} AS {cast})" if cast else name


def _cast(column: ServerColumn, declared: DataType) -> str | None:
    """The type to cast to; empty: none; None: the column does not fit."""
    kind, root = column.kind, declared.root
    if root in _NESTED:
        return "" if kind == _NESTED[root] else None
    if kind in _AS_THEY_ARE.get(root, ()):
        return ""
    match root:
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INTEGER | TypeRoot.BIGINT:
            whole = kind in HUGE or (kind == "DECIMAL" and column.scale == 0)
            return "" if kind in INTEGERS else "BIGINT" if whole else None
        case TypeRoot.DOUBLE:
            return "" if kind == "DOUBLE" else "DOUBLE" if kind in ("FLOAT", *INTEGERS) else None
        case TypeRoot.DECIMAL:
            return _decimal_cast(column, declared)
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return None if kind == "BLOB" else "" if kind == "VARCHAR" else "VARCHAR"
        case TypeRoot.TIMESTAMP:
            return "TIMESTAMP" if kind == "DATE" else None
        case _:
            return None


def _decimal_cast(column: ServerColumn, declared: DataType) -> str | None:
    """Digits behind the declared scale are rounded by DuckDB, half away from zero, as Flink does it."""
    if column.kind in INTEGERS:
        return ""
    if column.kind in HUGE:
        return "DECIMAL(38,0)"
    if column.kind != "DECIMAL":
        return None
    return "" if keeps_digits(column, declared) else f"DECIMAL(38,{declared.scale or 0})"


def keeps_digits(column: ServerColumn, declared: DataType) -> bool:
    """Whether no value of a decimal column has more digits behind the point than the declared type."""
    return (column.scale or 0) <= (declared.scale or 0)


def check_written(column: ServerColumn, declared: DataType) -> None:
    """Pass if values of a type can be written to a column: DuckDB itself would round what is too exact for a column of whole numbers.

    Raises:
        MisfitError: they cannot.
    """
    kind, root = column.kind, declared.root
    if declared.is_character and kind != "BLOB":
        return
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        fits = kind in ("FLOAT", "DOUBLE")
    elif root is TypeRoot.DECIMAL:
        fits = kind == "DECIMAL" or (declared.scale == 0 and kind in (*INTEGERS, *HUGE))
    elif root is TypeRoot.TIMESTAMP:
        fits = kind in TIMES
    else:
        fits = _cast(column, declared) is not None
    if not fits:
        raise MisfitError(_HINTS.get((kind, root), ""))
