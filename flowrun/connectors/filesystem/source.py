"""The filesystem source: a picklable description of files to read, and how to find and read them."""

from __future__ import annotations

from typing import cast

from flowrun.api.connector import PushedFilter, TableDefinition
from flowrun.api.format import FileFormat, ReadRequest, RecordFormat
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceReader,
    SplitEnumerator,
    split_list,
)
from flowrun.connectors.filesystem.dead_letters import DeadLetters
from flowrun.connectors.filesystem.enumerator import FileEnumerator
from flowrun.connectors.filesystem.file_metadata import FILE_METADATA
from flowrun.connectors.filesystem.reader import FileSourceReader
from flowrun.connectors.filesystem.row_estimate import estimated_rows
from flowrun.connectors.filesystem.scan import FileScan
from flowrun.connectors.filesystem.seen_paths import paths
from flowrun.connectors.filesystem.table_path import TablePath, check_exists, check_pattern, location_of
from flowrun.connectors.formats.registry import error_mode, file_format_named
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.row_errors import OnError
from flowrun.core.shapes import Shape, boolean, integer, members, optional, text
from flowrun.errors import InternalError, OptionError

_RECORDS = members({"path": text, "offset": integer(), "stop": optional(integer()), "aligned": boolean})
_UNITS = members({"path": text, "unit": integer(), "row": integer(), "stop": optional(integer())})


@record(slots=False)
class FileSource(FileScan):
    """Reads the files of a scan: it finds them, cuts them into splits and reads the splits."""

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded if new files are watched for."""
        return Boundedness.BOUNDED if self.monitor_interval_ms is None else Boundedness.UNBOUNDED

    @property
    def filters(self) -> tuple[PushedFilter, ...]:
        """By which files, and parts of them, are left out."""
        return (*self.request.filters, *self.partition_filters)

    @property
    def delivery(self) -> Delivery:
        """Exactly once: files are read again from exact positions."""
        return Delivery.EXACTLY_ONCE

    @property
    def position_shape(self) -> Shape:
        """A range of bytes of a file of records, or of units (row groups) of a file whose format reads whole files."""
        return _RECORDS if isinstance(self.format, RecordFormat) else _UNITS

    @property
    def enumerator_shape(self) -> Shape:
        """The splits that were not handed out, and the paths that were found (null in state of versions that could not watch folders)."""
        return members({"pending": split_list(self.position_shape), "seen": optional(paths)})

    def estimated_rows(self) -> int | None:
        """About how many rows the files hold, from their sizes; None: they are not on the local disk."""
        return estimated_rows(self)

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator, which finds files and cuts them into splits."""
        return FileEnumerator(self, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader, which reads splits one after the other."""
        letters = None
        if self.error_mode is OnError.DEAD_LETTER and context.reject is None:
            path = self.options.get("format.dead-letter.path")
            if path is None:
                raise InternalError(f"nobody takes the dead letters of '{self.location}'")
            letters = DeadLetters(TablePath(str(path)), context.subtask)
        return FileSourceReader(self, context, letters)


def create_source(table: TableDefinition) -> FileSource:
    """The source of a table definition.

    Raises:
        OptionError: an option is wrong, the format cannot read a column's type, or a local path does not exist.
    """
    if table.format is None:
        raise OptionError(
            "format", "connector 'filesystem' needs option 'format'", hint="for example json, csv or parquet"
        )
    declared = table.declared or table.schema
    used = file_format_named(table.format)
    unknown = [k for k in table.partition_keys if k not in declared]
    if unknown:
        raise OptionError("partition_keys", f"partition column '{unknown[0]}' is no column of {table.name}")
    facts = {key for key, _ in FILE_METADATA}
    metadata = {n: key for n, key in table.metadata.items() if key in facts}
    apart = {*table.partition_keys, *metadata}
    stored = declared.select(n for n in declared.names if n not in apart)
    (used.check if isinstance(used, FileFormat) else used.check_delimited)(stored, table.options)
    error_mode(table.options, table.format)
    location = location_of(table.options.text("path"), table.options)
    pattern = cast("str | None", table.options.get("source.path.regex-pattern"))
    check_pattern(pattern)
    if table.options.get("source.monitor-interval") is None:
        check_exists(location, pattern)
    pruned = table.schema.select(n for n in table.schema.names if n not in apart)
    filters = tuple(f for f in table.filters if f.column not in apart)
    return FileSource(
        location=location,
        format_name=table.format,
        schema=table.schema,
        partitions=table.schema.select(n for n in table.schema.names if n in table.partition_keys),
        request=ReadRequest(pruned, stored, table.options, filters),
        options=table.options,
        metadata=table.schema.select(n for n in table.schema.names if n in metadata),
        metadata_keys=tuple(metadata[n] for n in table.schema.names if n in metadata),
        partition_filters=tuple(f for f in table.filters if f.column in table.partition_keys),
    )
