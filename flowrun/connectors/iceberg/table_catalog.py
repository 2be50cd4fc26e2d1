"""Catalogs of type `iceberg`, after Iceberg's catalog for Flink: its namespaces are databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from flowrun.api.table_catalog import CatalogType, StoredColumn, StoredTable
from flowrun.connectors.iceberg.catalog import CLIENT, CatalogAccess, catalog_of, first_line, library, may_pass
from flowrun.connectors.iceberg.connector import CATALOG_OPTIONS
from flowrun.core import types
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.types import DataType
from flowrun.errors import ConnectorError, FlowrunError

_UPSERT = "write.upsert.enabled"

OPTIONS = (
    *CATALOG_OPTIONS,
    Option(
        "default-database",
        OptionType.STRING,
        "The namespace that names without one are looked up in; dots stand between its levels.",
        default="default",
    ),
    Option("property-version", OptionType.INT, "Accepted for Flink's scripts: there is one version."),
)


class IcebergCatalog:
    """The namespaces and tables of a catalog.

    Args:
        access: of the catalog.
        default_database: see `TableCatalog`.
        given: the options of the catalog that its tables have, too, as text.
    """

    def __init__(self, access: CatalogAccess, default_database: str, given: Mapping[str, str]) -> None:
        self._access = access
        self._default_database = default_database
        self._given = given

    @property
    def default_database(self) -> str:
        """As the options say."""
        return self._default_database

    def databases(self) -> Sequence[str]:
        """All namespaces, with those below others."""
        catalog = self._access.open()
        with self._translated("its namespaces cannot be listed"):
            found, waiting = [], list(catalog.list_namespaces())
            while waiting:
                namespace = waiting.pop()
                found.append(".".join(namespace))
                waiting += catalog.list_namespaces(namespace)
        return found

    def tables(self, database: str) -> Sequence[str] | None:
        """The tables of a namespace."""
        catalog = self._access.open()
        with self._translated(f"the tables of {database} cannot be listed"):
            try:
                return [name[-1] for name in catalog.list_tables(tuple(database.split(".")))]
            except library("pyiceberg.exceptions").NoSuchNamespaceError:
                return None

    def views(self, database: str) -> Sequence[str] | None:
        """None are known: flowrun does not read views of Iceberg catalogs."""
        return None if self.tables(database) is None else ()

    def table(self, database: str, name: str) -> StoredTable | None:
        """A table, with its identifier fields as primary key."""
        catalog, errors = self._access.open(), library("pyiceberg.exceptions")
        with self._translated(f"table {database}.{name} cannot be opened"):
            try:
                table = catalog.load_table((*database.split("."), name))
            except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
                return None
            return _stored(table)

    def options_of(self, database: str, name: str) -> Mapping[str, str]:
        """The connector's options for a table, which need not be there yet."""
        of_table = {"catalog-name": self._access.name, "catalog-database": database, "catalog-table": name}
        return {"connector": "iceberg", **self._given, **of_table}

    def close(self) -> None:
        """Nothing: the client library keeps no connection that has to be closed."""

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except FlowrunError:
            raise
        except Exception as error:
            message = f"Iceberg catalog '{self._access.name}' ({self._access.type}): {what}: {first_line(error)}"
            raise ConnectorError(message, retryable=may_pass(error)) from error


def _stored(table: Any) -> StoredTable:
    schema = table.schema()
    columns = tuple(
        StoredColumn(f.name, column_type(f.field_type), str(f.field_type), not f.required, f.doc) for f in schema.fields
    )
    names, identifiers = [c.name for c in columns], schema.identifier_field_names()
    key = tuple(n for n in names if n in identifiers) if identifiers <= set(names) else ()
    upsert = table.properties.get(_UPSERT)
    return StoredTable(
        columns,
        key,
        _partition_columns(table),
        {} if upsert is None else {"upsert-enabled": upsert},
        table.properties.get("comment"),
    )


def _partition_columns(table: Any) -> tuple[str, ...]:
    """The columns by whose values it is partitioned; none if it is partitioned in another way, as well."""
    schema, fields = table.schema(), table.spec().fields
    if any(str(f.transform) != "identity" for f in fields):
        return ()
    names = [schema.find_column_name(f.source_id) for f in fields]
    top = {f.name for f in schema.fields}
    return tuple(names) if all(n in top for n in names) else ()


def column_type(kind: Any) -> DataType | None:
    """The type of a column of an Iceberg table; None: flowrun has none for it, or for a part of it.

    Args:
        kind: PyIceberg's `IcebergType`.
    """
    kinds = library("pyiceberg.types")
    match kind:
        case kinds.DecimalType():
            return types.decimal(kind.precision, kind.scale)
        case kinds.ListType():
            element = column_type(kind.element_type)
            return None if element is None else types.with_required(types.array(element), (kind.element_required,))
        case kinds.MapType():
            key, value = column_type(kind.key_type), column_type(kind.value_type)
            if key is None or value is None:
                return None
            return types.with_required(types.map_of(key, value), (False, kind.value_required))
        case kinds.StructType():
            return _row_type(kind)
        case kinds.FixedType():
            return types.BYTES
        case _:
            return _PLAIN.get(type(kind).__name__)


def _row_type(kind: Any) -> DataType | None:
    fields = []
    for field in kind.fields:
        type = column_type(field.field_type)
        if type is None:
            return None
        fields.append((field.name, type))
    return types.with_required(types.row(*fields), tuple(f.required for f in kind.fields))


_PLAIN = {
    "BooleanType": types.BOOLEAN,
    "IntegerType": types.INT,
    "LongType": types.BIGINT,
    "FloatType": types.FLOAT,
    "DoubleType": types.DOUBLE,
    "DateType": types.DATE,
    "TimeType": types.time(6),
    "TimestampType": types.timestamp(6),
    "TimestamptzType": types.timestamp_ltz(6),
    "TimestampNanoType": types.timestamp(9),
    "TimestamptzNanoType": types.timestamp_ltz(9),
    "StringType": types.STRING,
    "BinaryType": types.BYTES,
}
"""By the name of PyIceberg's class."""


def _open(name: str, options: Options) -> IcebergCatalog:
    access = catalog_of(Options({**options.values, "catalog-name": name}))
    shared = [o for o in CATALOG_OPTIONS if "#" not in o.name]
    given = {o.name: str(v) for o in shared if (v := options.get(o.name)) is not None}
    for prefix in ("catalog-options", "catalog-secrets"):
        given |= {f"{prefix}.{key}": str(value) for key, value in options.under(prefix).items()}
    return IcebergCatalog(access, options.text("default-database"), given)


CATALOG_TYPE = CatalogType(
    name="iceberg",
    summary="The tables of an Apache Iceberg catalog.",
    options=OPTIONS,
    open=_open,
    creates_tables=True,
    client=CLIENT,
)
