"""What SQLite does for the sources, lookups and sinks of `jdbc:sqlite:`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.client_library import ClientLibrary
from flowrun.api.connector import Comparison, PushedFilter
from flowrun.api.sink import RowCheck
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.jdbc.relation import Access, MisfitError, ReadSession, Relation, ServerColumn, WriteSession
from flowrun.connectors.jdbc.sqlite import columns
from flowrun.connectors.jdbc.sqlite.connecting import CLIENT
from flowrun.connectors.jdbc.sqlite.reading import SqliteReader
from flowrun.connectors.jdbc.sqlite.writing import SqliteWriter
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError, OptionError


@record
class SqliteDialect:
    """SQLite 3, as ADBC's driver brings it along."""

    @property
    def client(self) -> ClientLibrary | None:
        """ADBC."""
        return CLIENT

    def in_process(self, access: Access) -> bool:
        """Processes share the file by its locks."""
        return False

    def row_check(self) -> RowCheck | None:
        """Floats that are no number, which SQLite makes NULL."""
        return _check_floats

    def check_written(self, schema: Schema) -> None:
        """SQLite has no nested types and no intervals. Raises OptionError."""
        for field in schema:
            try:
                columns.expression(ServerColumn(field.name, "BLOB", ""), field.type)
            except MisfitError:
                raise OptionError(
                    "table-name",
                    f"SQLite has no values like those of column '{field.name}', which is {field.type}",
                    hint="select its fields, or make a text of it with JSON_OBJECT or CAST(… AS STRING)",
                ) from None

    def describe(self, access: Access) -> Relation:
        """Looks at the table."""
        session = SqliteReader(access)
        try:
            return session.describe()
        finally:
            session.close()

    def open_reader(self, access: Access, *, in_order: bool = False) -> ReadSession:
        """Connect for reading."""
        return SqliteReader(access)

    def open_writer(self, access: Access) -> WriteSession:
        """Connect for writing."""
        return SqliteWriter(access)

    def expression(self, column: ServerColumn, declared: DataType) -> str:
        """See `columns`."""
        return columns.expression(column, declared)

    def guard(self, relation: Relation, fields: Sequence[Field]) -> str | None:
        """See `columns`."""
        return columns.guard(relation, fields)

    def check_column(self, column: ServerColumn, declared: DataType) -> None:
        """See `columns`."""
        columns.check_written(column, declared)

    def check_key(self, column: ServerColumn, declared: DataType) -> None:
        """See `columns`."""
        columns.check_key(column, declared)

    def condition(self, column: ServerColumn, declared: DataType, pushed: PushedFilter) -> str | None:
        r"""A condition that holds wherever the filter does; None: there is none. Dates and decimals are texts, or not exact.

        >>> from flowrun.core.types import STRING
        >>> filter = PushedFilter("name", Comparison.GE, "x")
        >>> SqliteDialect().condition(ServerColumn("name", "TEXT", "TEXT"), STRING, filter)
        '"name" COLLATE BINARY >= \'x\''
        """
        name, comparison, value = identifier(column.name), pushed.comparison, pushed.value
        if comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL):
            return f"{name} {comparison.value}"
        if value is None or isinstance(value, float):
            return None
        if declared.is_integer or declared.root is TypeRoot.BOOLEAN:
            return f"{name} {comparison.value} {int(value)}" if isinstance(value, int) else None
        if isinstance(value, bytes):
            return f"{name} {comparison.value} x'{value.hex()}'"
        if declared.is_character and isinstance(value, str) and "\0" not in value:
            return _of_text(name, column.kind, comparison, value)
        return None

    def places_of(self, column: pa.Array) -> pa.Int64Array:
        """Row ids as they are."""
        return column

    def bound(self, column: ServerColumn, value: int) -> str:
        """A whole number."""
        of_time = any(sign in column.shown.upper() for sign in ("DATE", "TIME"))
        if column.kind not in ("INTEGER", "REAL", "NUMERIC") or of_time:
            raise MisfitError
        return str(value)


def _of_text(name: str, kind: str, comparison: Comparison, value: str) -> str | None:
    if kind not in columns.TEXTS:
        return None
    if comparison is Comparison.EQ:  # any collation holds equal texts equal, and an index may serve
        return f"{name} = {literal(value)}"
    if kind == "TEXT" or comparison is Comparison.NE:  # a file in UTF-16 compares other bytes
        return f"{name} COLLATE BINARY {comparison.value} {literal(value)}"
    return None


def _check_floats(rows: pa.RecordBatch) -> None:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_floating(column.type):
            found = pc.index(pc.is_nan(column), True).as_py()
            if found >= 0:
                raise DataError(f"column '{name}' holds NaN, which SQLite cannot store", row=found)
