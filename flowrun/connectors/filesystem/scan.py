"""Which files are read, in which format, and which of their columns: all that finding and reading files need to know."""

from __future__ import annotations

from dataclasses import field

from flowrun.api.changelog import ChangelogMode
from flowrun.api.connector import PushedFilter
from flowrun.api.format import Format, ReadRequest, RecordFormat
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.connectors.formats.registry import format_named
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.row_errors import OnError
from flowrun.core.schema import Schema


@record(slots=False)
class FileScan:
    """What is read of the files of one location, and how.

    Attributes:
        location: file, folder or glob.
        format_name: the format; looked up by name where it is needed, so that the source pickles small.
        schema: columns to produce.
        partitions: those of them that come from folder names.
        request: what the format is asked for (without partition columns).
        options: all parsed options.
        metadata: columns that hold facts about the file.
        metadata_keys: which fact each of them holds.
        partition_filters: files whose folders say that none of their rows passes are not read.
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
        return format_named(self.format_name)

    @property
    def changelog_mode(self) -> ChangelogMode:
        """What the format's records may be."""
        used = self.format
        return used.changelog_mode(self.options) if isinstance(used, RecordFormat) else ChangelogMode.APPEND

    @property
    def monitor_interval_ms(self) -> int | None:
        """How often to look for new files; None: never."""
        value = self.options.get("source.monitor-interval")
        return None if value is None else int(value)

    @property
    def error_mode(self) -> OnError:
        """What happens to bad records; the format's `ignore-parse-errors` means that at least nothing fails."""
        mode = OnError(self.options.text("format.on-error"))
        ignore = self.options.get(f"{self.format_name}.ignore-parse-errors")
        return OnError.SKIP if mode is OnError.FAIL and ignore else mode
