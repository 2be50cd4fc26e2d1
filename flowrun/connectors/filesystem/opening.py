"""Opens splits with the reader for a source's format, and adds the columns whose values come from folder names and the file itself."""

from __future__ import annotations

import pyarrow.fs as pafs

from flowrun.api.changelog import ChangelogMode
from flowrun.api.format import FileReader, RecordDecoder, RecordFormat
from flowrun.connectors.filesystem.file_metadata import file_values
from flowrun.connectors.filesystem.partitions import partition_values, with_partition_columns
from flowrun.connectors.filesystem.scan import FileScan
from flowrun.connectors.filesystem.split_readers import (
    OnBad,
    Position,
    RecordSplitReader,
    SplitReader,
    UnitSplitReader,
)
from flowrun.connectors.formats.record_hints import HeaderWatch, WatchedDecoder
from flowrun.core.elements import RecordBatch
from flowrun.errors import StateError


class OpenSplit:
    """A split that is being read: gives rows with the source's columns, and the position behind them."""

    def __init__(self, scan: FileScan, filesystem: pafs.FileSystem, base: str, reader: SplitReader, path: str) -> None:
        self._schema = scan.schema
        self._reader = reader
        default_name = scan.options.text("partition.default-name")
        self._constants = partition_values(path, base, scan.partitions, default_name)
        if scan.metadata.fields:
            self._constants |= file_values(filesystem, path, scan.metadata, scan.metadata_keys)

    def next_rows(self) -> RecordBatch | None:
        """Some rows, perhaps none; None at the end.

        Raises:
            ConnectorError: the file cannot be read.
            DataError: a record is no row of the source, and the source does not skip such records.
        """
        rows = self._reader.next_rows()
        if rows is None or not self._constants:
            return rows
        return rows.with_columns(with_partition_columns(rows.columns, self._constants, self._schema))

    @property
    def position(self) -> Position:
        """The position behind the rows that were returned so far."""
        return self._reader.position

    def close(self) -> None:
        """Close the file. It may be called again."""
        self._reader.close()


class SplitOpener:
    """Opens the splits of a source one after the other, in one thread. They share a reader, or a decoder, which knows which columns records
    had.
    """

    def __init__(self, scan: FileScan, batch_rows: int, on_bad: OnBad) -> None:
        self._scan = scan
        self._batch_rows = batch_rows
        self._on_bad = on_bad
        self.filesystem, self._base = scan.location.open()
        self._decoder: RecordDecoder | None = None
        self._reader: FileReader | None = None

    def open(self, position: Position) -> OpenSplit:
        """Begin to read a split.

        Raises:
            ConnectorError: a folder name for a partition column is missing in the path.
            DataError: a folder name is no value of its column's type.
            StateError: the file of the split, which may come from a checkpoint, is not below the path of the source.
        """
        path = str(position["path"])
        if not self._scan.location.holds(path):
            raise StateError(
                f"the state asks to read '{path}', which is not below the source's path '{self._scan.location.text}'",
                hint="if the path was changed, give the source another uid to start it anew; else somebody altered the state",
            )
        return OpenSplit(self._scan, self.filesystem, self._base, self._split_reader(position), path)

    @property
    def is_watching(self) -> bool:
        """Whether records that were not read yet decide about a warning."""
        return isinstance(self._decoder, WatchedDecoder | HeaderWatch) and self._decoder.is_watching

    def report_unseen(self) -> None:
        """Warn about columns that no record had."""
        if isinstance(self._decoder, WatchedDecoder):
            self._decoder.report()

    def _split_reader(self, position: Position) -> SplitReader:
        scan = self._scan
        used = scan.format
        schema = scan.request.schema
        if not isinstance(used, RecordFormat):
            if self._reader is None:
                self._reader = used.create_reader(scan.request)
            return UnitSplitReader(self.filesystem, position, self._reader, schema, self._batch_rows)
        if self._decoder is None:
            self._decoder = used.create_decoder(scan.request)
            if used.name == "json":
                self._decoder = WatchedDecoder(self._decoder, schema, scan.location.text)
            elif used.name == "csv" and not self._decoder.has_header:
                self._decoder = HeaderWatch(self._decoder, schema, scan.location.text)
        assert used.create_framer is not None  # else files would be containers
        framer = used.create_framer(scan.options)
        return RecordSplitReader(
            self.filesystem,
            position,
            framer,
            self._decoder,
            schema,
            self._batch_rows,
            self._on_bad,
            upserts=scan.changelog_mode is ChangelogMode.UPSERT,
        )
