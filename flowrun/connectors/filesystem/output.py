"""The description of a sink's files: where they are, in which format, and when a file is closed."""

from __future__ import annotations

from flowrun.api.changelog import ChangesTaken
from flowrun.api.format import Format, RecordFormat
from flowrun.connectors.filesystem.buckets import Buckets
from flowrun.connectors.filesystem.partition_commit import PartitionCommit
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.connectors.formats.registry import file_format_named
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.schema import Schema


@record(slots=False)
class FileOutput:
    """What is written to the part files below one folder, and how.

    Attributes:
        location: the folder.
        format_name: the name of the format.
        schema: the columns of the rows.
        partitions: the columns that become folders, outermost first.
        stored: the columns that the files hold.
        options: all parsed options.
        primary_key: names of the key columns if the files hold one row for each key; empty: rows are written as they come.
        key_groups: how many files the rows of a partition are distributed to if there is a primary key.
        partition_commit: when partitions are marked as complete; None: never.
        buckets: the buckets that rows are distributed to if there is no primary key; None: there are no buckets.
    """

    location: TablePath
    format_name: str
    schema: Schema
    partitions: Schema
    stored: Schema
    options: Options
    primary_key: tuple[str, ...] = ()
    key_groups: int = 1
    partition_commit: PartitionCommit | None = None
    buckets: Buckets | None = None

    @property
    def format(self) -> Format:
        """The format that writes the files."""
        return file_format_named(self.format_name)

    @property
    def changes_taken(self) -> ChangesTaken:
        """All changes if the format can hold row kinds; else upserts if the files are compacted by a primary key; else inserts."""
        if carries_changes(self.format):
            return ChangesTaken.ALL
        return ChangesTaken.UPSERT if self.primary_key else ChangesTaken.APPEND

    @property
    def roll_bytes(self) -> int:
        """The size in bytes at which a part file is closed."""
        return self.options.integer("sink.rolling-policy.file-size")

    @property
    def rollover_ms(self) -> int:
        """The age in ms at which a part file is closed."""
        return self.options.integer("sink.rolling-policy.rollover-interval")

    @property
    def check_interval_ms(self) -> int:
        """How often the ages of part files are checked, in ms."""
        return self.options.integer("sink.rolling-policy.check-interval")

    @property
    def inactivity_ms(self) -> int | None:
        """The time without rows, in ms, after which a part file is closed; None: it is not closed because of that."""
        value = self.options.get("sink.rolling-policy.inactivity-interval")
        return None if value is None else int(value)

    @property
    def default_partition(self) -> str:
        """The text that stands for NULL in folder names."""
        return self.options.text("partition.default-name")


def carries_changes(used: Format) -> bool:
    """Whether a format can hold row kinds."""
    return isinstance(used, RecordFormat) and used.changelog
