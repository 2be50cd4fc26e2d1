"""What PostgreSQL does for the sources, lookups and sinks of `jdbc:postgresql:`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.client_library import ClientLibrary
from flowrun.api.connector import PushedFilter
from flowrun.api.sink import RowCheck
from flowrun.connectors.jdbc.postgres import columns, conditions
from flowrun.connectors.jdbc.postgres.connecting import CLIENT
from flowrun.connectors.jdbc.postgres.reading import PostgresReader
from flowrun.connectors.jdbc.postgres.writing import PostgresWriter
from flowrun.connectors.jdbc.relation import Access, MisfitError, ReadSession, Relation, ServerColumn, WriteSession
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType
from flowrun.errors import DataError


@record
class PostgresDialect:
    """PostgreSQL 12 and newer; ranges of places are found without reading the whole table from 14 on."""

    @property
    def client(self) -> ClientLibrary | None:
        """ADBC for reading, psycopg for writing."""
        return CLIENT

    def in_process(self, access: Access) -> bool:
        """A server is spoken to by any number of processes."""
        return False

    def row_check(self) -> RowCheck | None:
        """Texts with a zero byte."""
        return _check_texts

    def check_written(self, schema: Schema) -> None:
        """The server says what it does not take."""

    def check_column(self, column: ServerColumn, declared: DataType) -> None:
        """See `columns`."""
        columns.check_written(column, declared)

    def check_key(self, column: ServerColumn, declared: DataType) -> None:
        """The server compares all types."""

    def describe(self, access: Access) -> Relation:
        """Looks at the table over psycopg: ADBC takes several times as long to connect."""
        session = PostgresWriter(access)
        try:
            return session.describe()
        finally:
            session.close()

    def open_reader(self, access: Access, *, in_order: bool = False) -> ReadSession:
        """Connect for reading."""
        return PostgresReader(access, in_order=in_order)

    def open_writer(self, access: Access) -> WriteSession:
        """Connect for writing."""
        return PostgresWriter(access)

    def expression(self, column: ServerColumn, declared: DataType) -> str:
        """See `columns`."""
        return columns.expression(column, declared)

    def guard(self, relation: Relation, fields: Sequence[Field]) -> str | None:
        """The server sees to the types."""
        return None

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


def _check_texts(rows: pa.RecordBatch) -> None:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_string(column.type):
            found = pc.index(pc.match_substring(column, "\0"), True).as_py()
            if found >= 0:
                raise DataError(
                    f"column '{name}' holds a text with a zero byte, which PostgreSQL cannot store", row=found
                )
