"""The sink of the `iceberg` connector: a picklable description of a table that is written."""

from __future__ import annotations

from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committer, SinkWriter, WriterContext
from flowrun.connectors.iceberg.catalog import catalog_of
from flowrun.connectors.iceberg.commit import OpenIcebergVersion
from flowrun.connectors.iceberg.data_files import OpenIcebergTable
from flowrun.connectors.iceberg.table import IcebergName, iceberg_arrow
from flowrun.connectors.lake.sink import LakeSink, sink_arguments
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.errors import OptionError


@record(slots=False)
class IcebergSink(LakeSink):
    """Writes rows to an Iceberg table, called `name`."""

    name: IcebergName

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        return self.writer(OpenIcebergTable(self.name, self.schema, self.partitions, self.keys), context)

    def create_committer(self) -> Committer:
        """A committer, which adds what writers wrote to the table."""
        return self.committer(
            OpenIcebergVersion(
                self.name.open,
                lambda: self.name.create(self.schema, self.partitions),
                self.schema,
                self.keys,
                self.compression,
            )
        )


def create_sink(table: TableDefinition) -> IcebergSink:
    """The sink of a table definition.

    Raises:
        OptionError: Iceberg has no type for a column, a partition or key column is wrong, or options contradict each other.
    """
    upserts = table.options.get("upsert-enabled")
    if upserts and not table.primary_key:
        raise OptionError(
            "upsert-enabled", "upsert-enabled needs a PRIMARY KEY", hint="declare it: PRIMARY KEY (id) NOT ENFORCED"
        )
    appends = upserts is False and not table.updating
    arguments = sink_arguments(table, "iceberg", iceberg_arrow, () if appends else table.primary_key)
    return IcebergSink(name=table_name(table.options, table.name), **arguments)


def table_name(options: Options, declared: str) -> IcebergName:
    """The table that options name; by default it is called as it was declared.

    Raises:
        OptionError: the catalog's options are wrong.
    """
    given = options.get("catalog-table")
    return IcebergName(catalog_of(options), options.text("catalog-database"), declared if given is None else str(given))
