"""The sink of the `delta` connector: a picklable description of a table that is written."""

from __future__ import annotations

from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committer, SinkWriter, WriterContext
from flowrun.connectors.delta.commit import OpenDeltaVersion
from flowrun.connectors.delta.data_files import OpenDeltaTable
from flowrun.connectors.delta.table import DeltaLocation, delta_arrow, location_of
from flowrun.connectors.lake.sink import LakeSink, sink_arguments
from flowrun.core.record import record


@record(slots=False)
class DeltaSink(LakeSink):
    """Writes rows to a Delta table. `location` says where it is."""

    location: DeltaLocation

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        return self.writer(OpenDeltaTable(self.location, self.schema, self.partitions, self.keys), context)

    def create_committer(self) -> Committer:
        """A committer, which adds what writers wrote to the table."""
        return self.committer(
            OpenDeltaVersion(
                self.location.open, lambda: self.location.create(self.schema, self.partitions), self.schema, self.keys
            )
        )


def create_sink(table: TableDefinition) -> DeltaSink:
    """The sink of a table definition.

    Raises:
        OptionError: Delta has no type for a column, or a partition or key column is wrong.
    """
    arguments = sink_arguments(table, "delta", delta_arrow, table.primary_key)
    return DeltaSink(location=location_of(table.options), **arguments)
