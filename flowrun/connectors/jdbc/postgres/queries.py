"""The queries for rows of PostgreSQL: of a split, and of a batch of keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.jdbc.postgres import columns
from flowrun.connectors.jdbc.postgres.texts import array_literal
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.jdbc.relation import Relation, Scan, Selection, ServerColumn
from flowrun.core.types import DataType

PLACE = "ctid"
"""Block and line of a row, which stay while the row does."""

_UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_AS_TEXT = ("text", "varchar", "bpchar", "uuid")
_AS_ITSELF = (
    *columns.INTEGERS,
    "numeric",
    "bool",
    "float4",
    "float8",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "bytea",
)


def scan_query(scan: Scan) -> str:
    r"""The query of a scan. Its rows come in the order of their places where the session has `in_order`.

    >>> scan_query(Scan('"t"', Selection('"a"', ()), PLACE, lower=8, after=(9 << 16) + 2))
    'SELECT ctid, "a" FROM "t" WHERE ctid >= \'(8,0)\' AND ctid > \'(9,2)\''
    """
    wanted = f"{scan.place}, {scan.selection.text}" if scan.place else scan.selection.text
    chosen = " AND ".join((*_of_places(scan), *scan.conditions))
    return f"SELECT {wanted} FROM {scan.source}" + (f" WHERE {chosen}" if chosen else "")


def _of_places(scan: Scan) -> Iterator[str]:
    if scan.lower:
        yield f"{scan.place} >= '({scan.lower},0)'"
    if scan.upper is not None:
        yield f"{scan.place} < '({scan.upper},0)'"
    if scan.after is not None:
        yield f"{scan.place} > '({scan.after >> 16},{scan.after & 0xFFFF})'"


def lookup_query(
    relation: Relation, selection: Selection, keys: Sequence[tuple[ServerColumn, DataType]], asked: pa.RecordBatch
) -> str | None:
    """The query for all rows with one of the keys; None: no row can have one of them.

    One key column is asked for by = ANY, for which indexes serve best; several by a join with the keys as a table.
    """
    kept = pa.array(np.ones(asked.num_rows, np.bool_))
    for (column, _), values in zip(keys, asked.columns, strict=True):
        possible = _possible(column, values)
        kept = kept if possible is None else pc.and_(kept, possible)
    rows = asked.filter(kept)
    if not rows.num_rows:
        return None
    sides = [_side(column, declared) for column, declared in keys]
    arrays = [
        f"{literal(array_literal(values))}::{kind}[]" for (_, kind), values in zip(sides, rows.columns, strict=True)
    ]
    if len(keys) == 1:
        return f"SELECT {selection.text} FROM {relation.name} WHERE {sides[0][0]} = ANY ({arrays[0]})"
    names = ", ".join(f"flowrun_key{i}" for i in range(len(keys)))
    equal = " AND ".join(f"{left} = flowrun_key{i}" for i, (left, _) in enumerate(sides))
    return f"SELECT {selection.text} FROM {relation.name} JOIN unnest({', '.join(arrays)}) AS flowrun_keys ({names}) ON {equal}"


def _side(column: ServerColumn, declared: DataType) -> tuple[str, str]:
    """(the table's side of a comparison by key, the type of the keys): the column's own type where every key can be read as that."""
    name = identifier(column.name)
    if column.kind in (_AS_TEXT if declared.is_character else _AS_ITSELF):
        return name, "text" if column.kind == "varchar" else column.kind
    return f"{name}::text", "text"


def _possible(column: ServerColumn, values: pa.Array) -> pa.BooleanArray | None:
    """Which keys can be values of the column at all, where the server would refuse others."""
    if pa.types.is_string(values.type):
        without_zero = pc.invert(pc.match_substring(values, "\0"))
        return pc.and_(without_zero, pc.match_substring_regex(values, _UUID)) if column.kind == "uuid" else without_zero
    return None
