"""What PostgreSQL does for the sources, lookups and sinks of `jdbc:postgresql:`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.client_library import ClientLibrary
from flowrun.api.connector import PushedFilter
from flowrun.connectors.jdbc.postgres import columns, conditions
from flowrun.connectors.jdbc.postgres.connecting import CLIENT
from flowrun.connectors.jdbc.postgres.reading import PostgresReader
from flowrun.connectors.jdbc.postgres.texts import array_literal, identifier, literal
from flowrun.connectors.jdbc.postgres.writing import PostgresWriter
from flowrun.connectors.jdbc.relation import Access, MisfitError, ReadSession, Relation, ServerColumn, WriteSession
from flowrun.core.record import record
from flowrun.core.types import DataType

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


@record
class PostgresDialect:
    """PostgreSQL 12 and newer; ranges of places are found without reading the whole table from 14 on."""

    @property
    def client(self) -> ClientLibrary | None:
        """ADBC for reading, psycopg for writing."""
        return CLIENT

    @property
    def place(self) -> str:
        """Block and line of a row, which stay while the row does."""
        return "ctid"

    def quoted(self, name: str) -> str:
        """The name as itself."""
        return identifier(name)

    def open_reader(self, access: Access, *, in_order: bool = False) -> ReadSession:
        """Connect for reading."""
        return PostgresReader(access, in_order=in_order)

    def open_writer(self, access: Access) -> WriteSession:
        """Connect for writing."""
        return PostgresWriter(access)

    def expression(self, column: ServerColumn, declared: DataType) -> str:
        """See `columns`."""
        return columns.expression(column, declared)

    def condition(self, column: ServerColumn, declared: DataType, pushed: PushedFilter) -> str | None:
        """See `conditions`."""
        return conditions.condition(column, declared, pushed)

    def places_of(self, column: pa.Array) -> pa.Int64Array:
        """Block times 65,536 and line: both are sent as whole numbers, the highest byte first."""
        stored = column.storage if isinstance(column, pa.ExtensionArray) else column
        first = np.frombuffer(stored.buffers()[1], np.int32)[stored.offset] if len(stored) else 0
        data = stored.buffers()[2]
        raw = np.frombuffer(data, np.uint8, 6 * len(stored), first) if len(stored) else np.zeros(0, np.uint8)
        parts = raw.reshape(-1, 6).astype(np.int64)
        return pa.array(parts @ (1 << np.arange(40, -1, -8, dtype=np.int64)))

    def after_place(self, place: int) -> str:
        """Rows behind a place."""
        return f"ctid > '({place >> 16},{place & 0xFFFF})'"

    def in_units(self, lower: int, upper: int | None) -> str | None:
        """Rows in a range of blocks."""
        from_lower = f"ctid >= '({lower},0)'" if lower else None
        to_upper = None if upper is None else f"ctid < '({upper},0)'"
        return " AND ".join(c for c in (from_lower, to_upper) if c is not None) or None

    def bound(self, column: ServerColumn, value: int) -> str:
        """A whole number; of dates the days since 1970, of timestamps the milliseconds."""
        match column.kind:
            case "date":
                return f"(date '1970-01-01' + {value})"
            case "timestamp" | "timestamptz":
                zone = "+00" if column.kind == "timestamptz" else ""
                return f"({column.kind} '1970-01-01{zone}' + {value} * interval '1 millisecond')"
            case "int2" | "int4" | "int8" | "numeric" | "float4" | "float8":
                return str(value)
            case _:
                raise MisfitError

    def lookup(
        self, relation: Relation, selected: str, keys: Sequence[tuple[ServerColumn, DataType]], asked: pa.RecordBatch
    ) -> str | None:
        """One key column is asked for by = ANY, for which indexes serve best; several by a join with the keys as a table."""
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
            return f"SELECT {selected} FROM {relation.name} WHERE {sides[0][0]} = ANY ({arrays[0]})"
        names = ", ".join(f"flowrun_key{i}" for i in range(len(keys)))
        equal = " AND ".join(f"{left} = flowrun_key{i}" for i, (left, _) in enumerate(sides))
        return f"SELECT {selected} FROM {relation.name} JOIN unnest({', '.join(arrays)}) AS flowrun_keys ({names}) ON {equal}"


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
