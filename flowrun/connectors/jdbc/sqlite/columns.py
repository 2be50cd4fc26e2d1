"""How values of SQLite, each of which has a type of its own, are read and written as declared.

SQLite keeps integers, floats, texts and blobs. Booleans are 0 and 1; decimals are numbers, or texts where a double would lose digits;
dates and times are texts as SQLite's own functions write them. The type that a column is declared with decides what SQLite makes of a
value that is written to it (its affinity), and no more: what is read is compared value by value with what the pipeline says.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import MisfitError, Relation, ServerColumn
from flowrun.core.schema import Field
from flowrun.core.types import DataType, TypeRoot

TEXTS = ("TEXT", "TEXT16")
EXACT_DIGITS = 15
"""So many decimal digits a double keeps."""

_OF_TIME = (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_NO_SUCH = "SQLite has no such values: declare it STRING, and keep JSON in it"


def expression(column: ServerColumn, declared: DataType) -> str:
    """What to select for a column: NULL for values that `wrong` finds.

    Raises:
        MisfitError: no value of the column can be read as the declared type.
    """
    name, root = identifier(column.name), declared.root
    if column.kind in TEXTS and (declared.is_integer or root is TypeRoot.BOOLEAN or root in _FLOATS):
        raise MisfitError("SQLite makes texts of all numbers that are written to it: declare it STRING, and CAST")
    if declared.is_integer or root is TypeRoot.BOOLEAN:
        return f"CASE WHEN typeof({name}) = 'integer' THEN {name} END"
    if root in _FLOATS:
        return f"CASE WHEN typeof({name}) IN ('integer', 'real') THEN CAST({name} AS REAL) END"
    if declared.is_character:
        return f"CASE WHEN typeof({name}) <> 'blob' THEN CAST({name} AS TEXT) END"
    if root is TypeRoot.DECIMAL:
        digits = f"printf('%.{EXACT_DIGITS}g', {name})"
        return f"CASE typeof({name}) WHEN 'real' THEN {digits} WHEN 'blob' THEN NULL ELSE CAST({name} AS TEXT) END"
    if root in _BYTES:
        return f"CASE WHEN typeof({name}) = 'blob' THEN {name} END"
    if root in _OF_TIME:
        return f"CASE WHEN typeof({name}) = 'text' THEN {name} END"
    raise MisfitError(_NO_SUCH)


def first_row(fields: Sequence[Field]) -> list[str]:
    """A value for each column that tells the client library its type: it would take that of the first value, which may be NULL."""
    return [_STORED[stored(f.type)] for f in fields]


_STORED = {"INTEGER": "0", "REAL": "0.0", "BLOB": "x''", "TEXT": "''"}


def stored(declared: DataType) -> str:
    """What values of a type are for SQLite."""
    if declared.is_integer or declared.root is TypeRoot.BOOLEAN:
        return "INTEGER"
    return "REAL" if declared.root in _FLOATS else "BLOB" if declared.root in _BYTES else "TEXT"


def guard(relation: Relation, fields: Sequence[Field]) -> str | None:
    """The number of the first column whose value is of another type than declared; 0: there is none. See `Selection.guarded`."""
    cases = [f"WHEN {_wrong(relation.column(f.name), f.type)} THEN {i}" for i, f in enumerate(fields, 1)]
    return f"CASE {' '.join(cases)} ELSE 0 END" if cases else None


def _wrong(column: ServerColumn, declared: DataType) -> str:
    name, root = identifier(column.name), declared.root
    if root is TypeRoot.BOOLEAN:
        return f"typeof({name}) NOT IN ('integer', 'null') OR {name} NOT IN (0, 1)"
    if declared.is_character or root is TypeRoot.DECIMAL:
        return f"typeof({name}) = 'blob'"
    allowed = {"INTEGER": "'integer'", "REAL": "'integer', 'real'", "BLOB": "'blob'", "TEXT": "'text'"}
    return f"typeof({name}) NOT IN ({allowed[stored(declared)]}, 'null')"


def check_written(column: ServerColumn, declared: DataType) -> None:
    """Pass if SQLite keeps values of a type as they are in a column.

    Raises:
        MisfitError: it would make others of them.
    """
    kind, root = column.kind, declared.root
    if declared.is_character and kind not in (*TEXTS, "BLOB"):
        raise MisfitError(
            "SQLite makes numbers of texts that look like some: make the column TEXT, or CAST to a number"
        )
    if (declared.is_integer or root is TypeRoot.BOOLEAN) and kind not in ("INTEGER", "NUMERIC", "BLOB"):
        raise MisfitError(f"SQLite makes {'texts' if kind in TEXTS else 'floats'} of them: make the column INTEGER")
    if root in _FLOATS and kind in TEXTS:
        raise MisfitError("SQLite makes texts of them: make the column REAL")
    if root is TypeRoot.DECIMAL and kind not in (*TEXTS, "BLOB") and (declared.precision or 0) > EXACT_DIGITS:
        raise MisfitError(f"SQLite keeps {EXACT_DIGITS} digits there: make the column TEXT, or CAST to fewer digits")


def check_key(column: ServerColumn, declared: DataType) -> None:
    """Pass if equal values of a type are equal for SQLite.

    Raises:
        MisfitError: there are several ways to write one.
    """
    text_number = declared.root is TypeRoot.DECIMAL and column.kind in (*TEXTS, "BLOB")
    if declared.root in _OF_TIME or text_number:
        raise MisfitError(
            "SQLite keeps it as a text, of which there are several for one value: ask by a column of another type"
        )


def bindable(column: pa.Array) -> pa.Array:
    """Values as SQLite keeps them: integers, floats, texts or blobs."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return pc.cast(column, pa.int64())
    if pa.types.is_floating(kind):
        return pc.cast(column, pa.float64())
    return column if pa.types.is_binary(kind) or pa.types.is_string(kind) else pc.cast(column, pa.string())
