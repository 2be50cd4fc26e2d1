"""What the sinks of all lake tables are: rows that are appended, or changes that are applied by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

import pyarrow as pa

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committer, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.lake.columns import check_columns
from flowrun.connectors.lake.committables import PAYLOAD
from flowrun.connectors.lake.committer import AppendCommitter, LakeCommitter, TableVersion
from flowrun.connectors.lake.writer import AppendWriter, ChangeWriter, DataFiles
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape
from flowrun.core.types import DataType
from flowrun.errors import OptionError


@record(slots=False)
class LakeSink:
    """Writes to a table, one commit a checkpoint. Subclasses say to which, and how it is opened.

    Attributes:
        schema: the columns of the rows.
        partitions: the columns that partition a table that is created.
        keys: those of the primary key by which changes are applied; empty: rows are appended.
        roll_bytes: the size at which a data file is closed.
        interval_ms: how often a job without checkpoints and without end commits.
        compression: of the files.
    """

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

    def writer(self, open_files: Callable[[], DataFiles], context: WriterContext) -> SinkWriter:
        """A writer for one subtask.

        Args:
            open_files: opens the table, and creates it if it is not there.
            context: of the subtask.
        """
        if self.keys:
            return ChangeWriter(
                open_files, context, keys=self.keys, compression=self.compression, commit_interval_ms=self.interval_ms
            )
        return AppendWriter(
            open_files,
            context,
            roll_bytes=self.roll_bytes,
            compression=self.compression,
            commit_interval_ms=self.interval_ms,
        )

    def committer(self, open_table: Callable[[], TableVersion]) -> Committer:
        """A committer, which adds what writers wrote to the table. `open_table` opens its newest version."""
        return LakeCommitter(open_table) if self.keys else AppendCommitter(open_table)


class SinkArguments(TypedDict):
    """The fields of `LakeSink`."""

    schema: Schema
    partitions: tuple[str, ...]
    keys: tuple[str, ...]
    roll_bytes: int
    interval_ms: int
    compression: str


def sink_arguments(
    table: TableDefinition, connector: str, arrow_type: Callable[[DataType], pa.DataType], keys: tuple[str, ...]
) -> SinkArguments:
    """The fields of a `LakeSink` from a table definition.

    Args:
        table: the definition; its options hold those of `options.SINK_OPTIONS`.
        connector: its name.
        arrow_type: the Arrow type that its tables have for a type; raises ValueError if there is none.
        keys: the columns by which changes are applied.

    Raises:
        OptionError: there is no type for a column, or a partition or key column is wrong.
    """
    check_columns(table, connector, arrow_type)
    nested = [k for k in table.primary_key if table.schema.field(k).type.is_nested]
    if nested:
        kind = table.schema.field(nested[0]).type
        raise OptionError("primary_key", f"key column '{nested[0]}' is {kind}: rows cannot be found by it")
    return SinkArguments(
        schema=table.schema,
        partitions=table.partition_keys,
        keys=keys,
        roll_bytes=table.options.integer("sink.rolling-policy.file-size"),
        interval_ms=table.options.integer("sink.rolling-policy.rollover-interval"),
        compression=table.options.text("parquet.compression"),
    )
