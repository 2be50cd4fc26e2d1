"""The sink of the `delta` connector: a picklable description of a table that is written."""

from __future__ import annotations

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committer, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.delta.commit import OpenDeltaVersion
from flowrun.connectors.delta.data_files import OpenDeltaTable
from flowrun.connectors.delta.table import DeltaLocation, delta_arrow, location_of
from flowrun.connectors.lake.columns import check_columns
from flowrun.connectors.lake.committables import PAYLOAD
from flowrun.connectors.lake.committer import AppendCommitter, LakeCommitter
from flowrun.connectors.lake.writer import AppendWriter, ChangeWriter
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape
from flowrun.errors import OptionError


@record(slots=False)
class DeltaSink:
    """Writes rows to a Delta table, one commit a checkpoint.

    Attributes:
        location: of the table.
        schema: the columns of the rows.
        partitions: the columns that partition a table that is created.
        keys: those of the primary key by which changes are applied; empty: rows are appended.
        roll_bytes: the size at which a data file is closed.
        interval_ms: how often a job without checkpoints and without end commits.
        compression: of the files.
    """

    location: DeltaLocation
    schema: Schema
    partitions: tuple[str, ...]
    keys: tuple[str, ...]
    roll_bytes: int
    interval_ms: int
    compression: str

    @property
    def delivery(self) -> Delivery:
        """Exactly once: a commit of the table names what it holds."""
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
        opener = OpenDeltaTable(self.location, self.schema, self.partitions, self.keys)
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
        opener = OpenDeltaVersion(
            self.location.open, lambda: self.location.create(self.schema, self.partitions), self.schema, self.keys
        )
        return LakeCommitter(opener) if self.keys else AppendCommitter(opener)


def create_sink(table: TableDefinition) -> DeltaSink:
    """The sink of a table definition.

    Raises:
        OptionError: Delta has no type for a column, or a partition column is wrong.
    """
    check_columns(table, "delta", delta_arrow)
    nested = [k for k in table.primary_key if table.schema.field(k).type.is_nested]
    if nested:
        raise OptionError(
            "primary_key",
            f"key column '{nested[0]}' is {table.schema.field(nested[0]).type}: rows cannot be found by it",
        )
    return DeltaSink(
        location=location_of(table.options),
        schema=table.schema,
        partitions=table.partition_keys,
        keys=table.primary_key,
        roll_bytes=table.options.integer("sink.rolling-policy.file-size"),
        interval_ms=table.options.integer("sink.rolling-policy.rollover-interval"),
        compression=table.options.text("parquet.compression"),
    )
