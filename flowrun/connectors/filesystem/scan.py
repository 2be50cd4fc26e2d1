"""The description of the files that a source reads: where they are, in which format, and which of their columns are wanted."""

from __future__ import annotations

from dataclasses import field

from flowrun.api.changelog import ChangelogMode
from flowrun.api.connector import PushedFilter
from flowrun.api.format import Format, ReadRequest, RecordFormat
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.connectors.formats.registry import error_mode, file_format_named
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.row_errors import OnError
from flowrun.core.schema import Schema


@record(slots=False)
class FileScan:
    """What is read from the files of one location, and how.

    Attributes:
        location: a file, a folder or a glob.
        format_name: the name of the format, which is looked up where it is needed: so the source is small when it is pickled.
        schema: the columns that the source gives.
        partitions: those of them whose values come from folder names.
        request: the columns and filters that the format is asked for, without partition columns.
        options: all parsed options.
        metadata: the columns that hold facts about the file.
        metadata_keys: which fact each of them holds, in the order of the columns.
        partition_filters: filters on partition columns: a file none of whose rows can pass, as its folders say, is not read.
    """

    location: TablePath
    format_name: str
    schema: Schema
    partitions: Schema
    request: ReadRequest
    options: Options
    metadata: Schema = field(default=Schema(()))
    metadata_keys: tuple[str, ...] = ()
    partition_filters: tuple[PushedFilter, ...] = ()

    @property
    def format(self) -> Format:
        """The format that reads the files."""
        return file_format_named(self.format_name)

    @property
    def changelog_mode(self) -> ChangelogMode:
        """The kinds of changes that the format's records may be."""
        used = self.format
        return used.changelog_mode(self.options) if isinstance(used, RecordFormat) else ChangelogMode.APPEND

    @property
    def monitor_interval_ms(self) -> int | None:
        """How often to look for new files, in ms; None: never."""
        value = self.options.get("source.monitor-interval")
        return None if value is None else int(value)

    @property
    def error_mode(self) -> OnError:
        """What happens to bad records."""
        return error_mode(self.options, self.format_name)
