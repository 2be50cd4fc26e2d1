"""Which columns of PostgreSQL can be read as which types, and what to select for them.

Numbers of any precision, and types that Arrow does not know, are written as texts by the server, which is faster than the client library
is at it, and exact.
"""

from __future__ import annotations

from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import MisfitError, ServerColumn
from flowrun.core.types import DataType, TypeRoot

INTEGERS = ("int2", "int4", "int8")
TEXTS = ("text", "varchar", "bpchar", "name")
_READ_AS_TEXT = (*TEXTS, "json")
_FLOATS = ("float4", "float8")
_NO_TEXT = ("bytea",)

_HINTS = {
    ("timestamptz", TypeRoot.TIMESTAMP): "it is an instant: declare it TIMESTAMP_LTZ",
    ("timestamp", TypeRoot.TIMESTAMP_LTZ): "it has no time zone: declare it TIMESTAMP",
    ("json", TypeRoot.ROW): "declare it STRING",
    ("jsonb", TypeRoot.ROW): "declare it STRING",
    ("json", TypeRoot.MAP): "declare it STRING",
    ("jsonb", TypeRoot.MAP): "declare it STRING",
}


def expression(column: ServerColumn, declared: DataType) -> str:
    """What to select for a column.

    Raises:
        MisfitError: it cannot be read as the declared type.

    >>> from flowrun.core.types import STRING, decimal
    >>> expression(ServerColumn("price", "numeric", "numeric(12,4)", 4), decimal(10, 2))
    '"price"::numeric(10,2)::text'
    >>> expression(ServerColumn("id", "uuid", "uuid"), STRING)
    '"id"::text'
    """
    return identifier(column.name) + _cast(column, declared)


def _cast(column: ServerColumn, declared: DataType) -> str:
    kind = column.kind
    if declared.root is TypeRoot.ARRAY:
        return _array_cast(column, declared)
    if kind.startswith("_") and not declared.is_character:
        raise MisfitError
    cast = _scalar_cast(column, declared)
    if cast is None:
        raise MisfitError(_HINTS.get((kind, declared.root), ""))
    return cast


def _scalar_cast(column: ServerColumn, declared: DataType) -> str | None:
    """What comes behind the column; None: it does not fit."""
    kind = column.kind
    match declared.root:
        case TypeRoot.BOOLEAN:
            return "" if kind == "bool" else None
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INTEGER | TypeRoot.BIGINT:
            whole = kind == "oid" or (kind == "numeric" and column.scale == 0)
            return "" if kind in INTEGERS else "::int8" if whole else None
        case TypeRoot.FLOAT:
            return "" if kind == "float4" else None
        case TypeRoot.DOUBLE:
            return "" if kind == "float8" else "::float8" if kind in ("float4", *INTEGERS) else None
        case TypeRoot.DECIMAL:
            return _decimal_cast(column, declared)
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return None if kind in _NO_TEXT else "" if kind in _READ_AS_TEXT else "::text"
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return "" if kind == "bytea" else None
        case TypeRoot.DATE:
            return "" if kind == "date" else None
        case TypeRoot.TIME:
            return "" if kind == "time" else None
        case TypeRoot.TIMESTAMP:
            return "" if kind == "timestamp" else "::timestamp" if kind == "date" else None
        case TypeRoot.TIMESTAMP_LTZ:
            return "" if kind == "timestamptz" else None
        case _:
            return None


_NUMBERS = (
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INTEGER,
    TypeRoot.BIGINT,
    TypeRoot.DECIMAL,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
)
_TAKEN = {
    **dict.fromkeys((*INTEGERS, "oid"), _NUMBERS[:5]),
    **dict.fromkeys(("numeric", "money", *_FLOATS), _NUMBERS),
    "bool": (TypeRoot.BOOLEAN,),
    "date": (TypeRoot.DATE,),
    **dict.fromkeys(("time", "timetz"), (TypeRoot.TIME,)),
    **dict.fromkeys(("timestamp", "timestamptz"), (TypeRoot.DATE, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)),
    "bytea": (TypeRoot.BINARY, TypeRoot.VARBINARY),
}
"""Which types are written to columns of which kind; to all others what the server reads of their texts."""


def check_written(column: ServerColumn, declared: DataType) -> None:
    """Pass if values of a type can be written to a column. The server would take a part of some texts: the date of a timestamp.

    Raises:
        MisfitError: they cannot.
    """
    kind, root = column.kind, declared.root
    if declared.is_character:
        return
    if root is TypeRoot.ARRAY and kind.startswith("_"):
        kind, root = kind[1:], declared.children[0].root
        if declared.children[0].is_character:
            return
    if kind in TEXTS:
        return
    is_whole = declared.scale == 0 or root is not TypeRoot.DECIMAL or kind not in (*INTEGERS, "oid")
    if root not in _TAKEN.get(kind, (root,)) or not is_whole:
        raise MisfitError(_HINTS.get((kind, root), ""))


def _decimal_cast(column: ServerColumn, declared: DataType) -> str | None:
    """Digits behind the declared scale are rounded by the server, half away from zero, as Flink does it."""
    if column.kind in INTEGERS:
        return ""
    if column.kind == "money":
        return f"::numeric({declared.precision},{declared.scale})::text"
    if column.kind != "numeric":
        return None
    if keeps_digits(column, declared):
        return "::text"
    return f"::numeric({declared.precision},{declared.scale})::text"


def keeps_digits(column: ServerColumn, declared: DataType) -> bool:
    """Whether no value of a numeric column has more digits behind the point than the declared type."""
    return column.scale is not None and column.scale <= (declared.scale or 0)


def _array_cast(column: ServerColumn, declared: DataType) -> str:
    element = declared.children[0]
    if not column.kind.startswith("_") or element.is_nested:
        raise MisfitError("arrays of arrays are not read" if element.is_nested else "")
    inner = ServerColumn(column.name, column.kind[1:], column.shown.removesuffix("[]"), column.scale)
    cast = _scalar_cast(inner, element)
    if cast is None:
        raise MisfitError(_HINTS.get((inner.kind, element.root), ""))
    return "".join(f"::{part}[]" for part in cast.split("::")[1:])
