"""What DuckDB does for the sources, lookups and sinks of `jdbc:duckdb:`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowrun.api.client_library import ClientLibrary
from flowrun.api.connector import PushedFilter
from flowrun.api.sink import RowCheck
from flowrun.connectors.jdbc.duckdb import columns, conditions
from flowrun.connectors.jdbc.duckdb.reading import DuckDbReader
from flowrun.connectors.jdbc.duckdb.writing import DuckDbWriter
from flowrun.connectors.jdbc.relation import Access, MisfitError, ReadSession, Relation, ServerColumn, WriteSession
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType


@record
class DuckDbDialect:
    """DuckDB 1.4 and newer."""

    @property
    def client(self) -> ClientLibrary | None:
        """None: flowrun itself needs DuckDB."""
        return None

    def in_process(self, access: Access) -> bool:
        """A file that is open for reading only may be open in several processes."""
        return access.address.parameters.get("access_mode") != "READ_ONLY"

    def row_check(self) -> RowCheck | None:
        """Columns hold all values of the types that are written to them."""
        return None

    def check_written(self, schema: Schema) -> None:
        """DuckDB has all types, nested ones too."""

    def describe(self, access: Access) -> Relation:
        """Looks at the table."""
        session = DuckDbReader(access)
        try:
            return session.describe()
        finally:
            session.close()

    def open_reader(self, access: Access, *, in_order: bool = False) -> ReadSession:
        """Connect for reading."""
        return DuckDbReader(access)

    def open_writer(self, access: Access) -> WriteSession:
        """Connect for writing."""
        return DuckDbWriter(access)

    def expression(self, column: ServerColumn, declared: DataType) -> str:
        """See `columns`."""
        return columns.expression(column, declared)

    def guard(self, relation: Relation, fields: Sequence[Field]) -> str | None:
        """DuckDB sees to the types."""
        return None

    def check_column(self, column: ServerColumn, declared: DataType) -> None:
        """See `columns`."""
        columns.check_written(column, declared)

    def check_key(self, column: ServerColumn, declared: DataType) -> None:
        """DuckDB compares all types."""

    def condition(self, column: ServerColumn, declared: DataType, pushed: PushedFilter) -> str | None:
        """See `conditions`."""
        return conditions.condition(column, declared, pushed)

    def places_of(self, column: pa.Array) -> pa.Int64Array:
        """Row ids as they are."""
        return column

    def bound(self, column: ServerColumn, value: int) -> str:
        """A whole number; of dates the days since 1970, of timestamps the milliseconds."""
        match column.kind:
            case "DATE":
                return f"(DATE '1970-01-01' + {value})"
            case "TIMESTAMP" | "TIMESTAMP_S" | "TIMESTAMP_MS":
                return f"make_timestamp({value} * 1000)"
            case "TIMESTAMP WITH TIME ZONE":
                return f"(TIMESTAMPTZ '1970-01-01 00:00:00+00' + to_milliseconds({value}))"
            case "DECIMAL" | "FLOAT" | "DOUBLE":
                return str(value)
            case kind if kind in (*columns.INTEGERS, *columns.HUGE):
                return str(value)
            case _:
                raise MisfitError
