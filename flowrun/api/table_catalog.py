"""Catalogs: systems that know their tables, so that a script can name these without declaring them.

A `CatalogType` is what `CREATE CATALOG … WITH ('type' = '…')` names; it is found like a connector, by a table of flowrun's own or an entry
point `flowrun.catalogs`. Catalogs are asked while a script is planned, by one thread; what they say of the tables that it names is kept
with the job, so that no other process of the job has to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from flowrun.api.client_library import ClientLibrary
from flowrun.core.options import Option, Options
from flowrun.core.record import record
from flowrun.core.types import DataType


@record
class StoredColumn:
    """A column of a table that a catalog knows.

    Attributes:
        name: as the system spells it.
        type: None: flowrun has no type for it; a table with such a column is an error where it is named.
        shown: its type as the system writes it, for messages.
        nullable: whether NULL may occur.
        comment: None: it has none.
    """

    name: str
    type: DataType | None
    shown: str
    nullable: bool = True
    comment: str | None = None


@record
class StoredTable:
    """A table as its catalog describes it.

    Attributes:
        columns: in order.
        primary_key: names of columns, in the order of the key; empty: rows may repeat.
        partition_keys: names of the columns whose values tables are partitioned by.
        options: of its connector, for this table alone, beside `TableCatalog.options_of`; none is secret, as they are kept with the job.
        comment: None: it has none.
    """

    columns: tuple[StoredColumn, ...]
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


class TableCatalog(Protocol):
    """One catalog. It connects when it is first asked something, and blocks on I/O then; one thread uses it.

    All methods but `options_of` and `close` raise `ConnectorError` if the system cannot be reached or refuses, and `SetupError` if a client
    library is not installed.
    """

    @property
    def default_database(self) -> str:
        """The database that `USE CATALOG` begins with; need not exist. No I/O."""
        ...

    def databases(self) -> Sequence[str]:
        """Names of all databases that the user may see, in any order."""
        ...

    def tables(self, database: str) -> Sequence[str] | None:
        """Names of all tables and views of a database, in any order; None: there is no such database."""
        ...

    def views(self, database: str) -> Sequence[str] | None:
        """Those of `tables` that are views."""
        ...

    def table(self, database: str, name: str) -> StoredTable | None:
        """A table or view; None: there is none of this name, or no such database."""
        ...

    def options_of(self, database: str, name: str) -> Mapping[str, str]:
        """The options, `connector` among them, that all tables of a database have, and `name` by itself. No I/O."""
        ...

    def close(self) -> None:
        """Disconnect; idempotent. What is asked later connects anew."""
        ...


@record
class CatalogType:
    """A kind of catalog.

    Attributes:
        name: the value of `type`.
        summary: one sentence for users.
        options: all but `type`.
        open: (name of the catalog, its options) → the catalog; no I/O. Raises OptionError for options that do not go together.
        creates_tables: whether CREATE TABLE makes a table in it, which its connector's sinks do when a job first writes to one.
        origins: option of the connector → option of the catalog that its value comes from, where their names differ.
        client: what must be installed to ask it.
    """

    name: str
    summary: str
    options: tuple[Option, ...]
    open: Callable[[str, Options], TableCatalog]
    creates_tables: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)
    client: ClientLibrary | None = None
