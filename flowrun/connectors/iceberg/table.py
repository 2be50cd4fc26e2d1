"""An Iceberg table: how it is found, opened and created, and whether the declared columns fit it."""

from __future__ import annotations

import re
import threading
from typing import Any

import pyarrow as pa

from flowrun.connectors.iceberg.catalog import CatalogAccess, first_line, library, may_pass
from flowrun.connectors.lake.columns import check_read, check_written
from flowrun.connectors.lake.storage import TableStorage
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import ConnectorError, SetupError

_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*://")

_WRITABLE_VERSION = 2

_creating = threading.Lock()
_ATTEMPTS = 3
"""Several processes may create a namespace or a table at the same time: those that come second look again."""


@record
class IcebergName:
    """Which table.

    Attributes:
        catalog: that it is in.
        database: its namespace, with dots between levels.
        table: its name.
    """

    catalog: CatalogAccess
    database: str
    table: str

    @property
    def identifier(self) -> tuple[str, ...]:
        """The name as the client library takes it."""
        return (*self.database.split("."), self.table)

    @property
    def shown(self) -> str:
        """The name for messages."""
        return f"Iceberg table {self.database}.{self.table} in catalog '{self.catalog.name}'"

    def open(self) -> IcebergTable:
        """The table as it is now. It blocks on I/O.

        Raises:
            SetupError: the client library is not installed, or there is no such table.
            ConnectorError: the catalog or the table cannot be read.
        """
        catalog = self.catalog.open()
        errors = library("pyiceberg.exceptions")
        try:
            return IcebergTable(self, catalog.load_table(self.identifier))
        except (errors.NoSuchTableError, errors.NoSuchNamespaceError) as error:
            raise SetupError(
                f"there is no {self.shown}",
                hint="check catalog-database and catalog-table; a sink creates the table if it is not there, a source does not",
            ) from error
        except Exception as error:
            raise ConnectorError(
                f"{self.shown} cannot be opened: {first_line(error)}", retryable=may_pass(error)
            ) from error

    def create(self, schema: Schema, partitions: tuple[str, ...]) -> None:
        """Create the table, and its namespace, with these columns; nothing happens if it is there. It blocks on I/O.

        Raises:
            ConnectorError: it cannot be created.
        """
        catalog = self.catalog.open()
        arrow = pa.schema([pa.field(f.name, iceberg_arrow(f.type), f.nullable) for f in schema])
        with _creating:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._create(catalog, arrow, partitions)
                except Exception as error:
                    if self._is_there(catalog):  # another process was faster
                        return
                    if attempt == _ATTEMPTS:
                        raise ConnectorError(
                            f"{self.shown} cannot be created: {first_line(error)}", retryable=may_pass(error)
                        ) from error
                else:
                    return

    def _is_there(self, catalog: Any) -> bool:
        try:
            return bool(catalog.table_exists(self.identifier))
        except Exception:  # why it cannot be reached is told already
            return False

    def _create(self, catalog: Any, arrow: pa.Schema, partitions: tuple[str, ...]) -> None:
        if catalog.table_exists(self.identifier):
            return
        catalog.create_namespace_if_not_exists(self.identifier[:-1])
        if not partitions:
            catalog.create_table_if_not_exists(self.identifier, arrow)
            return
        with catalog.create_table_transaction(self.identifier, arrow) as transaction, transaction.update_spec() as spec:
            for column in partitions:
                spec.add_identity(column)


class IcebergTable:
    """An Iceberg table that was opened.

    Attributes:
        name: of it.
        table: the client library's `Table`.
        storage: its folder; locations in it are those that its metadata names.
    """

    def __init__(self, name: IcebergName, table: Any) -> None:
        self.name = name
        self.table = table
        arrow_io = library("pyiceberg.io.pyarrow").PyArrowFileIO
        io = table.io if isinstance(table.io, arrow_io) else arrow_io(properties=table.io.properties)
        scheme, netloc, base = arrow_io.parse_location(table.location())
        prefix = table.location().removesuffix(base) if _SCHEME.match(table.location()) else ""

        def to_path(location: str) -> str:
            if not location.startswith(prefix):
                raise ValueError(location)
            return location.removeprefix(prefix)

        self.storage = TableStorage(io.fs_by_scheme(scheme, netloc), base, to_path)

    @property
    def arrow(self) -> pa.Schema:
        """Its columns, with the ids of its fields, as data files have them."""
        made: pa.Schema = library("pyiceberg.io.pyarrow").schema_to_pyarrow(self.table.schema())
        return made

    def check_source(self, declared: Schema, schema: Any) -> None:
        """Whether a schema of the table has the declared columns.

        Raises:
            SetupError: it does not.
        """
        check_read(f"the {self.name.shown}", library("pyiceberg.io.pyarrow").schema_to_pyarrow(schema), declared)

    def check_sink(self, schema: Schema, partitions: tuple[str, ...], keys: tuple[str, ...]) -> None:
        """Whether rows of `schema` can be written to the table.

        Raises:
            SetupError: they cannot.
        """
        what = f"the {self.name.shown}"
        check_written(what, self.arrow, schema, iceberg_arrow, whole_rows=bool(keys))
        given = self.partition_columns
        if partitions and partitions != given:
            raise SetupError(
                f"{what} is partitioned by {', '.join(given) or 'nothing'}, but PARTITIONED BY says {', '.join(partitions)}",
                hint="declare the table as it is, or leave PARTITIONED BY out",
            )
        if self.table.format_version > _WRITABLE_VERSION and self.name.catalog.type != "rest":
            raise SetupError(
                f"{what} has format version {self.table.format_version}, whose metadata PyIceberg cannot write to a "
                f"{self.name.catalog.type} catalog yet",
                hint="use a table of format version 2, or a REST catalog, which writes the metadata itself",
            )
        kind = self.table.properties.get("write.format.default", "parquet")
        if kind != "parquet":
            raise SetupError(f"{what} wants {kind} files (write.format.default), but flowrun writes Parquet")
        if not self.storage.holds(self.table.location_provider().new_data_location("part.parquet")):
            raise SetupError(
                f"{what} has its data files outside of its location (write.data.path), where flowrun does not write",
                hint="remove the property write.data.path",
            )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """What it is partitioned by: columns, and transforms as `day(ts)`."""
        schema, spec = self.table.schema(), self.table.spec()
        found = []
        for field in spec.fields:
            column = schema.find_column_name(field.source_id) or str(field.source_id)
            transform = str(field.transform)
            found.append(column if transform == "identity" else f"{transform}({column})")
        return tuple(found)


def iceberg_arrow(type: DataType) -> pa.DataType:
    """The Arrow type of a column in an Iceberg table.

    Raises:
        ValueError: Iceberg has no such type.
    """
    match type.root:
        case TypeRoot.TINYINT | TypeRoot.SMALLINT:
            return pa.int32()
        case TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ if (type.precision or 0) > 6:
            raise ValueError(f"Iceberg tables keep microseconds, not {type}")
        case TypeRoot.TIME:
            return pa.time64("us")
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return pa.timestamp("us", "UTC" if type.root is TypeRoot.TIMESTAMP_LTZ else None)
        case TypeRoot.INTERVAL_DAY_TIME | TypeRoot.INTERVAL_YEAR_MONTH | TypeRoot.NULL:
            raise ValueError(f"Iceberg tables have no type for {type}")
        case TypeRoot.ARRAY:
            return pa.list_(pa.field("element", iceberg_arrow(type.children[0])))
        case TypeRoot.MAP:
            return pa.map_(iceberg_arrow(type.children[0]), iceberg_arrow(type.children[1]))
        case TypeRoot.ROW:
            return pa.struct([(n, iceberg_arrow(c)) for n, c in zip(type.names, type.children, strict=True)])
        case _:
            return type.arrow
