"""The sink of the `iceberg` connector: a picklable description of a table that is written."""

from __future__ import annotations

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committer, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.iceberg.catalog import catalog_of
from flowrun.connectors.iceberg.commit import OpenIcebergVersion
from flowrun.connectors.iceberg.data_files import OpenIcebergTable
from flowrun.connectors.iceberg.table import IcebergName, iceberg_arrow
from flowrun.connectors.lake.columns import check_columns
from flowrun.connectors.lake.committables import PAYLOAD
from flowrun.connectors.lake.committer import AppendCommitter, LakeCommitter
from flowrun.connectors.lake.writer import AppendWriter, ChangeWriter
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape
from flowrun.errors import OptionError


@record(slots=False)
class IcebergSink:
    """Writes rows to an Iceberg table, one snapshot a checkpoint.

    Attributes:
        name: of the table.
        schema: the columns of the rows.
        partitions: the columns that partition a table that is created.
        keys: those of the primary key by which changes are applied; empty: rows are appended.
        roll_bytes: the size at which a data file is closed.
        interval_ms: how often a job without checkpoints and without end commits.
        compression: of the files.
    """

    name: IcebergName
    schema: Schema
    partitions: tuple[str, ...]
    keys: tuple[str, ...]
    roll_bytes: int
    interval_ms: int
    compression: str

    @property
    def delivery(self) -> Delivery:
        """Exactly once: a snapshot's summary names what it holds."""
        return Delivery.EXACTLY_ONCE

    @property
    def changes_taken(self) -> ChangesTaken:
        """All changes by key, if there is one."""
        return ChangesTaken.UPSERT if self.keys else ChangesTaken.APPEND

    @property
    def committable_shape(self) -> Shape:
        """The files of one writer."""
        return PAYLOAD

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        opener = OpenIcebergTable(self.name, self.schema, self.partitions, self.keys)
        if self.keys:
            return ChangeWriter(
                opener, context, keys=self.keys, compression=self.compression, commit_interval_ms=self.interval_ms
            )
        return AppendWriter(
            opener,
            context,
            roll_bytes=self.roll_bytes,
            compression=self.compression,
            commit_interval_ms=self.interval_ms,
        )

    def create_committer(self) -> Committer:
        """A committer, which adds what writers wrote to the table."""
        opener = OpenIcebergVersion(
            self.name.open,
            lambda: self.name.create(self.schema, self.partitions),
            self.schema,
            self.keys,
            self.compression,
        )
        return LakeCommitter(opener) if self.keys else AppendCommitter(opener)


def create_sink(table: TableDefinition) -> IcebergSink:
    """The sink of a table definition.

    Raises:
        OptionError: Iceberg has no type for a column, a partition column is wrong, or options contradict each other.
    """
    check_columns(table, "iceberg", iceberg_arrow)
    options = table.options
    nested = [k for k in table.primary_key if table.schema.field(k).type.is_nested]
    if nested:
        kind = table.schema.field(nested[0]).type
        raise OptionError("primary_key", f"key column '{nested[0]}' is {kind}: rows cannot be found by it")
    upserts = options.get("upsert-enabled")
    if upserts and not table.primary_key:
        raise OptionError(
            "upsert-enabled", "upsert-enabled needs a PRIMARY KEY", hint="declare it: PRIMARY KEY (id) NOT ENFORCED"
        )
    appends = upserts is False and not table.updating
    return IcebergSink(
        name=table_name(options, table.name),
        schema=table.schema,
        partitions=table.partition_keys,
        keys=() if appends else table.primary_key,
        roll_bytes=options.integer("sink.rolling-policy.file-size"),
        interval_ms=options.integer("sink.rolling-policy.rollover-interval"),
        compression=options.text("parquet.compression"),
    )


def table_name(options: Options, declared: str) -> IcebergName:
    """The table that options name; by default it is called as it was declared.

    Raises:
        OptionError: the catalog's options are wrong.
    """
    given = options.get("catalog-table")
    return IcebergName(catalog_of(options), options.text("catalog-database"), declared if given is None else str(given))
