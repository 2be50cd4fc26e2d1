"""The filesystem sink: a picklable description of a folder to write."""

from __future__ import annotations

import os

from flowrun.api.connector import TableDefinition
from flowrun.api.format import FileFormat, RecordFormat
from flowrun.api.sink import Committer, RowCheck, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.filesystem.buckets import buckets_of, key_buckets
from flowrun.connectors.filesystem.earlier_output import MODE, EarlierOutput, SinkMode
from flowrun.connectors.filesystem.output import FileOutput, carries_changes
from flowrun.connectors.filesystem.partition_commit import partition_commit
from flowrun.connectors.filesystem.table_path import location_of
from flowrun.connectors.filesystem.upsert_writer import UpsertWriter
from flowrun.connectors.filesystem.writer import FileCommitter, FileSinkWriter
from flowrun.connectors.formats.records import refusing
from flowrun.connectors.formats.registry import file_format_named
from flowrun.core.record import record
from flowrun.core.shapes import Shape, either, members, text
from flowrun.errors import OptionError, did_you_mean

_COMMITTABLE = either(
    lambda payload: members({"mark": text}) if "mark" in payload else members({"from": text, "to": text})
)
"""The shape of a committable: a partition that is to be marked as complete, or a file that is to be renamed."""


@record(slots=False)
class FileSink(FileOutput):
    """Writes rows to files, which become visible when they are committed."""

    @property
    def delivery(self) -> Delivery:
        """Exactly once: files become visible when the checkpoint is complete."""
        return Delivery.EXACTLY_ONCE

    @property
    def committable_shape(self) -> Shape:
        """The paths of a file. The committer checks where they lead."""
        return _COMMITTABLE

    @property
    def mode(self) -> SinkMode | None:
        """What a run without restored state does with files that are there; None: the user has not said."""
        value = self.options.get(MODE)
        return None if value is None else SinkMode(value)

    @property
    def earlier_output(self) -> EarlierOutput:
        """The files that are in the folder."""
        return EarlierOutput(self.location, "" if self.partition_commit is None else self.partition_commit.file_name)

    def describe_start(self) -> str | None:
        """A text for the user: what a run without restored state does with files that are there; None: there are none."""
        return self.earlier_output.describe(self.mode or SinkMode.ERROR)

    def begin(self, run: str) -> None:
        """Begin a run without restored state: check the files that earlier runs left, and note those to be replaced."""
        self.earlier_output.begin(self.mode or SinkMode.ERROR, run)

    def create_check(self) -> RowCheck | None:
        """A check for values that the format cannot write; None: it can write all values."""
        used = self.format
        encoder = refusing(used.create_encoder(self.stored, self.options) if isinstance(used, RecordFormat) else None)
        if encoder is None:
            return None
        check, stored = encoder.check, [self.schema.index(name) for name in self.stored.names]
        return lambda columns: check(columns.select(stored))

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        return UpsertWriter(self, context) if self.primary_key else FileSinkWriter(self, context)

    def create_committer(self) -> Committer:
        """A committer, which renames finished files."""
        mark = self.partition_commit
        return FileCommitter(self.location, self.earlier_output, None if mark is None else mark.file_name)


def create_sink(table: TableDefinition) -> FileSink:
    """The sink of a table definition.

    Raises:
        OptionError: an option is wrong, the format cannot write a column's type, or the path is that of a local file.
    """
    if table.format is None:
        raise OptionError(
            "format", "connector 'filesystem' needs option 'format'", hint="for example json, csv or parquet"
        )
    for key in table.partition_keys:
        if key not in table.schema:
            raise OptionError(
                "partition_keys",
                f"partition column '{key}' is no column of {table.name}",
                hint=did_you_mean(key, table.schema.names),
            )
        if key.startswith("."):
            raise OptionError(
                "partition_keys",
                f"partition column '{key}' begins with '.': its folders would be hidden",
                hint="give the column another name",
            )
        if table.schema.field(key).type.is_nested:
            raise OptionError(
                "partition_keys",
                f"partition column '{key}' is {table.schema.field(key).type}: nested values name no folder",
            )
    stored = table.schema.select(n for n in table.schema.names if n not in table.partition_keys)
    if not stored.fields:
        raise OptionError("partition_keys", "all columns are partition columns: nothing is left for the files")
    used = file_format_named(table.format)
    if isinstance(used, FileFormat):
        used.check(stored, table.options)
    else:
        used.check_delimited(stored, table.options)
        used.create_encoder(stored, table.options)  # so that wrong options are refused now, not when the job runs
    location = location_of(table.options.text("path"), table.options)
    if location.is_local and os.path.isfile(location.local_path):
        raise OptionError("path", f"path '{location.text}' is a file, but a sink writes a folder of files")
    partitions = table.schema.select(table.partition_keys)
    compacted = table.updating and not carries_changes(used)
    commit = partition_commit(table.options, table.partition_keys)
    if commit is not None and compacted and table.primary_key:
        raise OptionError(
            "sink.partition-commit.policy.kind",
            f"partitions of '{table.name}' are never complete: its rows are updated",
            hint="leave the option out",
        )
    return FileSink(
        location=location,
        format_name=table.format,
        schema=table.schema,
        partitions=partitions,
        stored=stored,
        options=table.options,
        primary_key=table.primary_key if compacted else (),
        key_groups=key_buckets(table) if compacted else 1,
        partition_commit=commit,
        buckets=buckets_of(table, by_key=compacted and bool(table.primary_key)),
    )
