"""A Delta table: where it is, how it is opened and created, and whether the declared columns fit it."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.api.client_library import ClientLibrary
from flowrun.api.refusals import retryable_io
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.connectors.lake.columns import check_read, check_written
from flowrun.connectors.lake.storage import TableStorage
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import ConnectorError, SetupError

CLIENT = ClientLibrary("delta", ("deltalake",))

_CAUSE = re.compile(r"\s*(?:\x1b\[\d*m)*↳(?:\x1b\[\d*m)*\s*")
_LONGEST_MESSAGE = 600

_CHECKED_BY_WRITERS = ("delta.generationExpression", "delta.identity.start", "delta.invariants")
"""Metadata of columns that writers have to compute or check."""


@record
class DeltaLocation:
    """Where a Delta table is.

    Attributes:
        path: of its folder, as the user wrote it.
        settings: (name, value) of the options for its store.
    """

    path: TablePath
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def uri(self) -> str:
        """The folder as the client library takes it."""
        return self.path.local_path if self.path.is_local else self.path.text.rstrip("/")

    def open(self, version: int | None = None) -> DeltaFolder:
        """The table, at a version or at its newest. It blocks on I/O.

        Raises:
            SetupError: the client library is not installed, there is no such table, or it has no such version any more.
            ConnectorError: the table cannot be read.
        """
        library = client()
        try:
            table = library.DeltaTable(self.uri, version=version, storage_options=dict(self.settings) or None)
        except library.exceptions.TableNotFoundError as error:
            raise SetupError(
                f"there is no Delta table at {self.path.text}",
                hint="check table-path; a sink creates the table if it is not there, a source does not",
            ) from error
        except Exception as error:
            if version is not None and self._newest() is not None:
                raise SetupError(
                    f"version {version} of the Delta table at {self.path.text} does not exist, or is gone: {in_one_line(error)}",
                    hint=f"its newest version is {self._newest()}; old ones are removed as the table is cleaned up",
                ) from error
            raise ConnectorError(
                f"the Delta table at {self.path.text} cannot be opened: {in_one_line(error)}",
                retryable=retryable_io(error, True),
            ) from error
        return DeltaFolder(self, table)

    def _newest(self) -> int | None:
        try:
            version: int = client().DeltaTable(self.uri, storage_options=dict(self.settings) or None).version()
        except Exception:
            return None
        return version

    def create(self, schema: Schema, partitions: tuple[str, ...]) -> None:
        """Create the table with these columns; nothing happens if it is there. It blocks on I/O.

        Several writers may create it at once. The client library would repeat the commit of a slower one as version 1, with another
        identity of the table, maybe after the first rows; so it must not repeat it.

        Raises:
            ConnectorError: it cannot be created.
        """
        library = client()
        fields = [pa.field(f.name, delta_arrow(f.type), f.nullable) for f in schema]
        try:
            library.DeltaTable.create(
                self.uri,
                library.Schema.from_arrow(pa.schema(fields)),
                mode="ignore",
                partition_by=list(partitions) or None,
                storage_options=dict(self.settings) or None,
                commit_properties=library.CommitProperties(max_commit_retries=0),
            )
        except Exception as error:
            if self._newest() is None:  # else another subtask was faster
                raise ConnectorError(
                    f"a Delta table at {self.path.text} cannot be created: {in_one_line(error)}",
                    retryable=retryable_io(error, True),
                ) from error


class DeltaFolder:
    """A Delta table that was opened at a version.

    Attributes:
        location: of it.
        table: the client library's `DeltaTable`.
        storage: its folder; locations in it are paths relative to it.
    """

    def __init__(self, location: DeltaLocation, table: Any) -> None:
        self.location = location
        self.table = table
        if location.path.is_local:
            base = location.path.local_path
            self.storage = TableStorage(pafs.LocalFileSystem(), base, lambda relative: f"{base}/{relative}")
        else:
            handler = client().fs.DeltaStorageHandler.from_table(table._table)
            self.storage = TableStorage(pafs.PyFileSystem(handler), "", lambda relative: relative)

    @property
    def version(self) -> int:
        """Of the table."""
        version: int = self.table.version()
        return version

    @property
    def arrow(self) -> pa.Schema:
        """Its columns, with those that partition it."""
        return pa.schema(self.table.schema().to_arrow())

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns that partition it, outermost first."""
        return tuple(self.table.metadata().partition_columns)

    def check_source(self, declared: Schema) -> None:
        """Whether the table has the declared columns.

        Raises:
            SetupError: it does not, or it cannot be read.
        """
        self._check_mapping()
        check_read(f"the Delta table at {self.location.path.text}", self.arrow, declared)

    def check_sink(self, schema: Schema, partitions: tuple[str, ...], keys: tuple[str, ...]) -> None:
        """Whether rows of `schema` can be written to the table.

        Raises:
            SetupError: they cannot.
        """
        what = f"the Delta table at {self.location.path.text}"
        self._check_mapping()
        check_written(what, self.arrow, schema, delta_arrow, whole_rows=bool(keys))
        if partitions and partitions != self.partitions:
            raise SetupError(
                f"{what} is partitioned by {_named(self.partitions)}, but PARTITIONED BY says {_named(partitions)}",
                hint="declare the table as it is, or leave PARTITIONED BY out",
            )
        lacking = [n for n in self.partitions if n not in schema]
        if lacking:
            raise SetupError(
                f"{what} is partitioned by '{lacking[0]}', which is no column of the sink", hint="declare the column"
            )
        constraints = [
            k.removeprefix("delta.constraints.")
            for k in self.table.metadata().configuration
            if k.startswith("delta.constraints.")
        ]
        if constraints and not keys:
            raise SetupError(
                f"{what} has the constraint '{constraints[0]}', which flowrun does not check when it appends files",
                hint="declare a PRIMARY KEY: rows then go in by MERGE, which checks it; or drop the constraint",
            )
        for field in self.table.schema().fields:
            wanted = [name for name in _CHECKED_BY_WRITERS if name in (field.metadata or {})]
            if wanted:
                raise SetupError(
                    f"column '{field.name}' of {what} has {wanted[0]}, which flowrun does not compute or check",
                    hint="write to a table without it",
                )

    def _check_mapping(self) -> None:
        mode = self.table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mode != "none":
            raise SetupError(
                f"the Delta table at {self.location.path.text} maps its columns to others in its files "
                f"(delta.columnMapping.mode = {mode}), which flowrun does not do",
                hint="copy it into a table without column mapping",
            )


def client() -> Any:
    """The client library.

    Raises:
        SetupError: it is not installed.
    """
    library = CLIENT.module("deltalake", "connector 'delta'")
    for name in ("exceptions", "fs", "transaction"):
        CLIENT.module(f"deltalake.{name}", "connector 'delta'")
    return library


def delta_arrow(type: DataType) -> pa.DataType:
    """The Arrow type of a column in a Delta table's files.

    Raises:
        ValueError: Delta has no such type.
    """
    match type.root:
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            if (type.precision or 0) > 6:
                raise ValueError(f"Delta tables keep microseconds, not {type}")
            return pa.timestamp("us", "UTC" if type.root is TypeRoot.TIMESTAMP_LTZ else None)
        case TypeRoot.TIME | TypeRoot.INTERVAL_DAY_TIME | TypeRoot.INTERVAL_YEAR_MONTH | TypeRoot.NULL:
            raise ValueError(f"Delta tables have no type for {type}")
        case TypeRoot.ARRAY:
            return pa.list_(pa.field("element", delta_arrow(type.children[0])))
        case TypeRoot.MAP:
            return pa.map_(delta_arrow(type.children[0]), delta_arrow(type.children[1]))
        case TypeRoot.ROW:
            return pa.struct([(n, delta_arrow(c)) for n, c in zip(type.names, type.children, strict=True)])
        case _:
            return type.arrow


def location_of(options: Options) -> DeltaLocation:
    """The location that options name."""
    given = {**options.under("storage-options"), **options.under("storage-secrets")}
    return DeltaLocation(TablePath(options.text("table-path")), tuple(sorted((k, str(v)) for k, v in given.items())))


def in_one_line(error: BaseException) -> str:
    r"""The message of an error of the client library: its first line, with the causes that are drawn below it.

    >>> in_one_line(OSError("S3 error\n  \x1b[31m↳\x1b[0m GET failed\n   \x1b[31m↳\x1b[0m Connection refused\n"))
    'S3 error: GET failed: Connection refused'
    """
    first, *others = str(error).splitlines() or [type(error).__name__]
    causes = [_CAUSE.sub("", line) for line in others if _CAUSE.match(line)]
    return ": ".join([first, *causes])[:_LONGEST_MESSAGE]


def _named(columns: tuple[str, ...]) -> str:
    return ", ".join(columns) or "nothing"
