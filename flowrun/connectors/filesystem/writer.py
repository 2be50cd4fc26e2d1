"""Writing part files in one subtask, and committing them once a job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa

from flowrun.api.format import FileFormat, RecordEncoder
from flowrun.api.operator import TimerHandle
from flowrun.api.sink import Committable, WriterContext
from flowrun.connectors.filesystem.locations import Location
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.partitions import split_by_partition
from flowrun.core.elements import RecordBatch
from flowrun.errors import DataError, UnsupportedPlanError

if TYPE_CHECKING:
    from flowrun.connectors.filesystem.sink import FileSink

MAX_OPEN_PARTS = 256
"""More partitions at a time than this close the part that was written longest ago."""


class _Content(Protocol):
    def write(self, columns: pa.RecordBatch) -> None: ...

    @property
    def written_bytes(self) -> int: ...

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


class _Records:
    """Encoded records behind each other."""

    def __init__(self, folder: OutputFolder, stream: Any, path: str, encoder: RecordEncoder) -> None:
        self._folder = folder
        self._stream = stream
        self._path = path
        self._encoder = encoder
        self.written_bytes = 0
        self._append(encoder.header())

    def write(self, columns: pa.RecordBatch) -> None:
        self._append(self._encoder.encode(columns))

    def _append(self, data: bytes | pa.Buffer) -> None:
        size = len(data)
        if size:
            self._folder.write(self._stream, data, self._path)
            self.written_bytes += size

    def finish(self) -> None:
        """Nothing follows the last record."""

    def abandon(self) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class _Part:
    """An open part file."""

    bucket: str
    temporary: str
    final: str
    stream: Any
    content: _Content
    opened_ms: int
    written_ms: int


class FileSinkWriter:
    """Writes one part file at a time a partition; closes them by size, age and idleness, and when a commit is prepared."""

    def __init__(self, sink: FileSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._folder = OutputFolder(sink.location)
        self._parts: dict[str, _Part] = {}
        self._closed: list[Committable] = []
        self._count = 0
        self._timer: TimerHandle | None = None
        self._encoder: RecordEncoder | None = None

    def open(self) -> None:
        """Create the folder, check that it can be written, start looking at the age of parts."""
        self._folder.prepare()
        self._watch()

    def _watch(self) -> None:
        due = self._context.processing_time.now_ms() + self._sink.check_interval_ms
        self._timer = self._context.processing_time.register(due, self._check_ages)

    def _check_ages(self, now_ms: int) -> None:
        sink = self._sink
        for part in list(self._parts.values()):
            idle = sink.inactivity_ms is not None and now_ms - part.written_ms >= sink.inactivity_ms
            if idle or now_ms - part.opened_ms >= sink.rollover_ms:
                self._close_part(part)
        self._watch()

    def write(self, batch: RecordBatch) -> None:
        """Append rows to the part of their partition.

        Raises:
            UnsupportedPlanError: rows that update or delete.
            DataError: NULL in a NOT NULL column, or a value that the format cannot write.
            ConnectorError: the disk says no.
        """
        if batch.row_kinds is not None and np.any(batch.row_kinds.to_numpy(zero_copy_only=False)):
            raise UnsupportedPlanError(
                "connector 'filesystem' writes rows once and cannot update or delete them",
                hint="aggregate in windows, whose results are final, or write to a sink that takes updates",
            )
        columns = batch.columns
        if not columns.num_rows:
            return
        self._check_nulls(columns)
        if not self._sink.partitions.fields:
            self._write_to("", columns)
            return
        for bucket, rows in split_by_partition(columns, self._sink.partitions, self._sink.default_partition):
            self._write_to(bucket, rows)

    def _check_nulls(self, columns: pa.RecordBatch) -> None:
        for i, field in enumerate(self._sink.schema):
            if not field.nullable and columns.column(i).null_count:
                row = int(np.argmax(columns.column(i).is_null().to_numpy(zero_copy_only=False)))
                raise DataError(
                    f"column '{field.name}' of the sink is NOT NULL, but the row holds NULL",
                    row=row,
                    hint="filter such rows or declare the column nullable",
                )

    def _write_to(self, bucket: str, rows: pa.RecordBatch) -> None:
        part = self._parts.pop(bucket, None) or self._open_part(bucket)
        self._parts[bucket] = part  # the part written last comes last
        try:
            part.content.write(rows)
        except OSError as error:
            raise self._folder.failure(part.temporary, error) from error
        part.written_ms = self._context.processing_time.now_ms()
        if part.content.written_bytes >= self._sink.roll_bytes:
            self._close_part(part)

    def _open_part(self, bucket: str) -> _Part:
        if len(self._parts) >= MAX_OPEN_PARTS:
            self._close_part(next(iter(self._parts.values())))
        context, used = self._context, self._sink.format
        name = f"part-{context.attempt}-{context.subtask}-{self._count}"
        self._count += 1
        temporary = self._folder.path(bucket, f".{name}{temporary_ending(context.owner)}")
        final = self._folder.path(bucket, f"{name}.{used.extension}")
        stream = self._folder.create(temporary)
        now = context.processing_time.now_ms()
        content: _Content
        if isinstance(used, FileFormat):
            content = used.create_writer(stream, self._sink.stored, self._sink.options)
        else:
            if self._encoder is None:
                self._encoder = used.create_encoder(self._sink.stored, self._sink.options)
            content = _Records(self._folder, stream, temporary, self._encoder)
        return _Part(bucket, temporary, final, stream, content, now, now)

    def _close_part(self, part: _Part) -> None:
        try:
            part.content.finish()
        except OSError as error:
            raise self._folder.failure(part.temporary, error) from error
        self._folder.finish(part.stream, part.temporary)
        del self._parts[part.bucket]
        self._closed.append(Committable(part.final, {"from": part.temporary, "to": part.final}))

    def write_watermark(self, timestamp_ms: int) -> None:
        """Files carry no event time."""

    def flush(self, end_of_input: bool) -> None:
        """Rows reach the disk when their part is closed."""

    def prepare_commit(self) -> Sequence[Committable]:
        """Close all parts; hand over everything that is closed."""
        for part in list(self._parts.values()):
            self._close_part(part)
        return self.rolled()

    def rolled(self) -> Sequence[Committable]:
        """Parts that were closed by size, age or idleness."""
        closed, self._closed = tuple(self._closed), []
        if closed:
            self._folder.settle()
        return closed

    def close(self) -> None:
        """Remove what was not handed over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        parts, self._parts = list(self._parts.values()), {}
        for part in parts:
            part.content.abandon()
            self._folder.close_quietly(part.stream)
            self._folder.discard(part.temporary)
        closed, self._closed = self._closed, []
        for committable in closed:
            self._folder.discard(cast(str, committable.payload["from"]))


class FileCommitter:
    """Renames finished parts to their visible names."""

    def __init__(self, location: Location) -> None:
        self._folder = OutputFolder(location)

    def commit(self, committables: Sequence[Committable]) -> None:
        """Rename; a part that has its name already is left alone. Raises ConnectorError if a part is gone."""
        self._folder.publish([(cast(str, c.payload["from"]), cast(str, c.payload["to"])) for c in committables])

    def abort(self, committables: Sequence[Committable]) -> None:
        """Remove parts that are not visible yet."""
        for committable in committables:
            self._folder.discard(cast(str, committable.payload["from"]))

    def discard_orphans(self, owner: str, keep: Collection[str]) -> int:
        """Remove the unfinished and finished parts of this owner, in all partitions, that nobody will commit."""
        ending = temporary_ending(owner)
        kept = {_without_extension(commit_id) for commit_id in keep}
        orphans = [
            path for path in self._folder.hidden_files(ending) if _visible_stem(path.removesuffix(ending)) not in kept
        ]
        for path in orphans:
            self._folder.discard(path)
        return len(orphans)


def temporary_ending(owner: str) -> str:
    """The end of the names of parts that are not visible yet.

    >>> temporary_ending("8f0e"), temporary_ending("")
    ('.8f0e.inprogress', '.inprogress')
    """
    return f".{owner}.inprogress" if owner else ".inprogress"


def _without_extension(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return folder + slash + name.partition(".")[0]


def _visible_stem(hidden: str) -> str:
    folder, slash, name = hidden.rpartition("/")
    return folder + slash + name.removeprefix(".")
