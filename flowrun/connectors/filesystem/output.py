"""Into which files rows are written, in which format, and when a file is closed: all that writing files needs to know."""

from __future__ import annotations

from flowrun.api.changelog import ChangesTaken
from flowrun.api.format import Format, RecordFormat
from flowrun.connectors.filesystem.buckets import Buckets
from flowrun.connectors.filesystem.partition_commit import PartitionCommit
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.connectors.formats.registry import format_named
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.schema import Schema


@record(slots=False)
class FileOutput:
    """What is written to the part files below one folder, and how.

    Attributes:
        location: the folder.
        format_name: the format, looked up by name.
        schema: columns of the rows.
        partitions: those that become folders, outermost first.
        stored: those that the files hold.
        options: all parsed options.
        primary_key: columns of which each file set holds one row a value; empty: rows are written as they come.
        key_groups: into how many files (a partition) such rows are dealt.
        partition_commit: what marks complete partitions; None: nothing does.
        buckets: into which rows are dealt that are written as they come; None: into none.
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
        return format_named(self.format_name)

    @property
    def changes_taken(self) -> ChangesTaken:
        """All if the format can say which change a row is; else by primary key if there is one to compact by."""
        if carries_changes(self.format):
            return ChangesTaken.ALL
        return ChangesTaken.UPSERT if self.primary_key else ChangesTaken.APPEND

    @property
    def roll_bytes(self) -> int:
        """Size at which a part is closed."""
        return self.options.integer("sink.rolling-policy.file-size")

    @property
    def rollover_ms(self) -> int:
        """Age at which a part is closed."""
        return self.options.integer("sink.rolling-policy.rollover-interval")

    @property
    def check_interval_ms(self) -> int:
        """How often ages are looked at."""
        return self.options.integer("sink.rolling-policy.check-interval")

    @property
    def inactivity_ms(self) -> int | None:
        """Time without rows after which a part is closed; None: never."""
        value = self.options.get("sink.rolling-policy.inactivity-interval")
        return None if value is None else int(value)

    @property
    def default_partition(self) -> str:
        """The folder name of NULL."""
        return self.options.text("partition.default-name")


def carries_changes(used: Format) -> bool:
    """Whether a format can say which change a row is."""
    return isinstance(used, RecordFormat) and used.changelog
