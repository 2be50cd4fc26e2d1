"""The writers of a lake table's sink, one in each subtask: rows or changes go to Parquet files, which the committer adds to the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flowrun.api.sink import Committable, WriterContext
from flowrun.connectors.lake.changes import OPERATION, last_changes
from flowrun.connectors.lake.committables import Content, Handed, file_name, writer_name
from flowrun.connectors.lake.storage import TableStorage, close_quietly, failure
from flowrun.core.arrays import Bools
from flowrun.core.elements import RecordBatch, removals
from flowrun.errors import DataError, UnsupportedPlanError

MAX_OPEN_FILES = 128
"""How many data files a subtask has open at most: if one more is needed, the one that was written longest ago is closed."""

_ROW_GROUP_BYTES = 64 << 20
_CHANGE_BYTES = 32 << 20


class DataFiles(Protocol):
    """How a table wants its data files: what differs between table formats. All methods block on I/O."""

    @property
    def storage(self) -> TableStorage:
        """The folder of the table."""
        ...

    @property
    def arrow(self) -> pa.Schema:
        """The columns of a data file."""
        ...

    @property
    def required(self) -> Sequence[str]:
        """The columns of the table that are NOT NULL."""
        ...

    @property
    def change_location(self) -> str:
        """The location of the folder of changes that wait for their commit."""
        ...

    def split(self, columns: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(text of a partition, its rows with the columns of `arrow`), for each partition of a batch."""
        ...

    def location(self, partition: str, name: str) -> str:
        """Where the data file `name` of a partition is to be."""
        ...

    def describe(self, partition: str, location: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        """A finished data file, as the committer will add it; JSON values, with a `path`."""
        ...


class OpenFile:
    """A Parquet file that is being written. It holds one row group of bounded size in memory.

    Args:
        storage: where.
        location: of the file.
        schema: of its rows.
        compression: of its pages.
    """

    def __init__(self, storage: TableStorage, location: str, schema: pa.Schema, compression: str) -> None:
        self.location = location
        self.rows = 0
        self._storage = storage
        self._schema = schema
        self._stream = storage.create(location)
        self._collected: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._stream, schema, compression=compression, version="2.6", metadata_collector=self._collected
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    @property
    def written_bytes(self) -> int:
        """The size of the file in bytes, with the open row group."""
        return int(self._stream.tell()) + self._pending_bytes

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._pending_bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._pending, schema=self._schema)
        self._pending, self._pending_bytes = [], 0
        try:
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be written", self.location, error) from error

    def finish(self) -> tuple[int, pq.FileMetaData]:
        """Write the rest and force the file to disk; gives its size in bytes and its metadata."""
        if self._pending:
            self._write_group()
        try:
            self._writer.close()
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be written", self.location, error) from error
        return self._storage.finish(self._stream, self.location), self._collected[0]

    def abandon(self) -> None:
        """Close and remove the file."""
        self._pending = []
        close_quietly(self._writer)
        self._writer.is_open = False
        close_quietly(self._stream)
        self._storage.discard(self.location)


class _Writer:
    """What both writers have in common: names, counts and committables.

    Args:
        open_files: opens the table, and creates it if it is not there.
        context: of the subtask.
        content: of the files.
        compression: of their pages.
        commit_interval_ms: how often a job without checkpoints and without end shows what it has written.
    """

    def __init__(
        self,
        open_files: Callable[[], DataFiles],
        context: WriterContext,
        content: Content,
        *,
        compression: str,
        commit_interval_ms: int,
    ) -> None:
        self._open_files = open_files
        self._opened: DataFiles | None = None
        self._context = context
        self._content = content
        self._compression = compression
        self._interval_ms = commit_interval_ms
        self._committed_ms = context.processing_time.now_ms()
        self._name = writer_name(context)
        self._sequence = 1
        self._number = 0
        self._closed: list[dict[str, Any]] = []

    @property
    def _files(self) -> DataFiles:
        assert self._opened is not None, "open() comes first"
        return self._opened

    def open(self) -> None:
        """Open the table, create it if it is not there, and check that the columns fit."""
        self._opened = self._open_files()

    def _check_required(self, columns: pa.RecordBatch, removes: Bools | None) -> None:
        """Whether rows have values where the table wants some: readers trust it. Of rows that delete only the key matters."""
        for name in self._files.required:
            missing = columns.column(name).is_null()
            if removes is not None and missing.true_count:
                missing = pc.and_(missing, pa.array(~removes))
            if missing.true_count:
                raise DataError(
                    f"column '{name}' of the table is NOT NULL, but a row has no value",
                    row=pc.index(missing, True).as_py(),
                    hint=f"drop such rows with a filter ({name} IS NOT NULL), or give them a value (COALESCE)",
                )

    def _next_name(self) -> str:
        self._number += 1
        return file_name(self._name, self._sequence, self._number)

    def _handed_over(self) -> Sequence[Committable]:
        """One committable of all closed files."""
        self._committed_ms = self._context.processing_time.now_ms()
        if not self._closed:
            return ()
        self._files.storage.settle()
        number = 0 if self._context.next_checkpoint_id is None else self._context.next_checkpoint_id()
        files, self._closed = tuple(self._closed), []
        result = Handed(self._name, self._sequence, number, self._context.clock.now_ms(), self._content, files)
        self._sequence += 1
        self._number = 0
        return (result.committable,)

    def rolled(self) -> Sequence[Committable]:
        """What was written, once the interval is over: a job that takes no checkpoints shows it so."""
        if self._context.processing_time.now_ms() - self._committed_ms < self._interval_ms:
            return ()
        return self.prepare_commit()

    def prepare_commit(self) -> Sequence[Committable]:
        """Close what was written since the last call."""
        raise NotImplementedError

    def write_watermark(self, timestamp_ms: int) -> None:
        """Nothing to do: tables hold no watermarks."""

    def flush(self, end_of_input: bool) -> None:
        """Nothing to do: files are forced to disk when a commit is prepared."""

    def _discard_closed(self) -> None:
        closed, self._closed = self._closed, []
        for file in closed:
            self._files.storage.discard(str(file["path"]))


class AppendWriter(_Writer):
    """Writes rows to data files, one at a time for each partition.

    Args:
        open_files: opens the table, and creates it if it is not there.
        context: of the subtask.
        roll_bytes: the size at which a file is closed.
        compression: of the files.
        commit_interval_ms: how often a job without checkpoints and without end shows what it has written.
    """

    def __init__(
        self,
        open_files: Callable[[], DataFiles],
        context: WriterContext,
        *,
        roll_bytes: int,
        compression: str,
        commit_interval_ms: int,
    ) -> None:
        super().__init__(
            open_files, context, Content.ROWS, compression=compression, commit_interval_ms=commit_interval_ms
        )
        self._roll_bytes = roll_bytes
        self._parts: dict[str, OpenFile] = {}

    def write(self, batch: RecordBatch) -> None:
        """Append rows to the file of their partition.

        Raises:
            UnsupportedPlanError: rows update or delete.
            DataError: a row has no value in a column that is NOT NULL.
            ConnectorError: a file cannot be written.
        """
        kinds = batch.row_kinds
        if kinds is not None and np.any(kinds.to_numpy(zero_copy_only=False)):
            raise UnsupportedPlanError(
                "rows update or delete, but the table has no PRIMARY KEY by which they could be applied",
                hint="declare a PRIMARY KEY, or aggregate in windows, whose results are final",
            )
        if not batch.num_rows:
            return
        self._check_required(batch.columns, None)
        for partition, rows in self._files.split(batch.columns):
            part = self._parts.pop(partition, None) or self._open_part(partition)
            self._parts[partition] = part  # in the order in which they were last written
            part.write(rows)
            if part.written_bytes >= self._roll_bytes:
                self._close_part(partition)

    def _open_part(self, partition: str) -> OpenFile:
        if len(self._parts) >= MAX_OPEN_FILES:
            self._close_part(next(iter(self._parts)))
        files = self._files
        return OpenFile(files.storage, files.location(partition, self._next_name()), files.arrow, self._compression)

    def _close_part(self, partition: str) -> None:
        part = self._parts.pop(partition)
        try:
            size, metadata = part.finish()
        except BaseException:
            part.abandon()
            raise
        self._closed.append(self._files.describe(partition, part.location, size, metadata))

    def prepare_commit(self) -> Sequence[Committable]:
        """Close all files; gives one committable of them."""
        for partition in list(self._parts):
            self._close_part(partition)
        return self._handed_over()

    def close(self) -> None:
        """Remove the files that were not handed over to the committer."""
        parts, self._parts = list(self._parts.values()), {}
        for part in parts:
            part.abandon()
        self._discard_closed()


class ChangeWriter(_Writer):
    """Writes changes by key to files of their own, the last one of each key, which the committer applies to the table.

    Args:
        open_files: opens the table, and creates it if it is not there.
        context: of the subtask.
        keys: names of the key columns.
        compression: of the files.
        commit_interval_ms: how often a job without checkpoints and without end shows what it has written.
    """

    def __init__(
        self,
        open_files: Callable[[], DataFiles],
        context: WriterContext,
        *,
        keys: Sequence[str],
        compression: str,
        commit_interval_ms: int,
    ) -> None:
        super().__init__(
            open_files, context, Content.CHANGES, compression=compression, commit_interval_ms=commit_interval_ms
        )
        self._keys = tuple(keys)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def write(self, batch: RecordBatch) -> None:
        """Keep changes until there are enough for a file.

        Raises:
            DataError: a row has no value in a column that is NOT NULL.
            ConnectorError: a file cannot be written.
        """
        if not batch.num_rows:
            return
        kinds = batch.row_kinds
        removes = np.zeros(batch.num_rows, np.bool_) if kinds is None else removals(kinds)
        self._check_required(batch.columns, removes)
        self._pending.append(batch.columns.append_column(OPERATION, pa.array(removes)))
        self._pending_bytes += batch.columns.nbytes
        if self._pending_bytes >= _CHANGE_BYTES:
            self._fold()
            if self._pending_bytes >= _CHANGE_BYTES // 2:
                self._write_file()

    def _fold(self) -> None:
        """Keep only the last change of each key."""
        if len(self._pending) > 1 or self._pending_bytes:
            rows = last_changes(pa.concat_batches(self._pending), self._keys)
            self._pending, self._pending_bytes = [rows], rows.nbytes

    def _write_file(self) -> None:
        [rows] = self._pending
        self._pending, self._pending_bytes = [], 0
        files = self._files
        location = f"{files.change_location}/{self._next_name()}"
        file = OpenFile(files.storage, location, rows.schema, self._compression)
        try:
            file.write(rows)
            file.finish()
        except BaseException:
            file.abandon()
            raise
        self._closed.append({"path": location})

    def prepare_commit(self) -> Sequence[Committable]:
        """Write what is left; gives one committable of the changes."""
        if self._pending:
            self._fold()
            self._write_file()
        return self._handed_over()

    def close(self) -> None:
        """Remove the files that were not handed over to the committer."""
        self._pending = []
        self._discard_closed()
