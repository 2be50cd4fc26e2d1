"""Writes the part files of one subtask, and commits those of all subtasks."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from flowrun.api.changelog import ChangesTaken
from flowrun.api.format import ChangeEncoder, FileFormat, FileWriter, RecordEncoder
from flowrun.api.operator import TimerHandle
from flowrun.api.sink import Committable, CommittedPiece, OutputNote, ToldCommit, WriterContext
from flowrun.connectors.filesystem.earlier_output import EarlierOutput
from flowrun.connectors.filesystem.output import FileOutput
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.part_names import (
    part_origin,
    part_stem,
    temporary_ending,
    visible_stem,
    without_extension,
)
from flowrun.connectors.filesystem.partition_commit import OpenPartitions
from flowrun.connectors.filesystem.partitions import split_by_partition
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.core.elements import RecordBatch
from flowrun.core.provided import provides
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import DataError, StateError, UnsupportedPlanError

_KINDS = "\0row kinds"
"""The name of the column that holds row kinds while rows are split by partition; no column of a table has it."""

_NOTE = ".flowrun-note"
"""The end of the hidden names of notes."""

MAX_OPEN_PARTS = 256
"""How many part files a subtask has open at most: if one more is needed, the one that was written longest ago is closed."""


class _Content(Protocol):
    def write(self, columns: pa.RecordBatch, kinds: pa.Int8Array | None) -> None: ...

    @property
    def written_bytes(self) -> int: ...

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


class _Records:
    """A file of encoded records."""

    def __init__(self, folder: OutputFolder, stream: Any, path: str, encoder: RecordEncoder) -> None:
        self._folder = folder
        self._stream = stream
        self._path = path
        self._encoder = encoder
        self.written_bytes = 0
        self._append(encoder.header())

    def write(self, columns: pa.RecordBatch, kinds: pa.Int8Array | None) -> None:
        if kinds is not None and provides(self._encoder, ChangeEncoder):
            self._append(self._encoder.encode_changes(columns, kinds))
        else:
            self._append(self._encoder.encode(columns))

    def _append(self, data: bytes | pa.Buffer) -> None:
        size = len(data)
        if size:
            self._folder.write(self._stream, data, self._path)
            self.written_bytes += size

    def finish(self) -> None:
        """Nothing to do: a file of records ends with its last record."""

    def abandon(self) -> None:
        """Nothing to release."""


class _WholeFile:
    """A file that its format writes as a whole; such formats hold rows, not changes."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer

    def write(self, columns: pa.RecordBatch, kinds: pa.Int8Array | None) -> None:
        self._writer.write(columns)

    @property
    def written_bytes(self) -> int:
        return self._writer.written_bytes

    def finish(self) -> None:
        self._writer.finish()

    def abandon(self) -> None:
        self._writer.abandon()


@record(frozen=False)
class _Part:
    """An open part file."""

    folder: str
    temporary: str
    final: str
    stream: Any
    content: _Content
    opened_ms: int
    written_ms: int


class FileSinkWriter:
    """Writes one part file at a time for each partition, and closes it by size, age or idleness, or when a commit is prepared."""

    def __init__(self, output: FileOutput, context: WriterContext) -> None:
        self._output = output
        self._context = context
        self._folder = OutputFolder(output.location)
        self._parts: dict[str, _Part] = {}
        self._closed: list[Committable] = []
        self._count = 0
        self._timer: TimerHandle | None = None
        self._encoder: RecordEncoder | None = None
        self._partitions = None if output.partition_commit is None else OpenPartitions(output.partition_commit)
        self._ended = False

    def open(self) -> None:
        """Create the folder, check that it can be written, and begin to check the age of parts."""
        self._folder.prepare()
        if self._partitions is not None and self._context.subtask == 0:
            for folder in self._folder.folders_without(self._partitions.policy.file_name):
                self._partitions.written(
                    folder, self._context.processing_time.now_ms()
                )  # this subtask wrote it before the restart
        self._watch()

    def _watch(self) -> None:
        due = self._context.processing_time.now_ms() + self._output.check_interval_ms
        self._timer = self._context.processing_time.register(due, self._check_ages)

    def _check_ages(self, now_ms: int) -> None:
        output = self._output
        for part in list(self._parts.values()):
            idle = output.inactivity_ms is not None and now_ms - part.written_ms >= output.inactivity_ms
            if idle or now_ms - part.opened_ms >= output.rollover_ms:
                self._close_part(part)
        self._watch()

    def write(self, batch: RecordBatch) -> None:
        """Append rows to the part of their partition.

        Raises:
            UnsupportedPlanError: rows update or delete, and the format cannot hold row kinds.
            DataError: a NOT NULL column has a NULL, or the format cannot write a value.
            ConnectorError: a file cannot be written.
        """
        columns, kinds = batch.columns, batch.row_kinds
        if kinds is not None and not np.any(kinds.to_numpy(zero_copy_only=False)):
            kinds = None
        if kinds is not None and self._output.changes_taken is not ChangesTaken.ALL:
            raise UnsupportedPlanError(
                f"connector 'filesystem' cannot update or delete rows with format '{self._output.format_name}'",
                hint="use a format that carries changes (debezium-json, canal-json), declare a PRIMARY KEY to keep one row a key, or "
                "aggregate in windows, whose results are final",
            )
        if not columns.num_rows:
            return
        check_not_null(columns, self._output.schema)
        if self._output.buckets is None:
            self._write_partitions(columns, kinds, "")
            return
        for bucket, rows in self._output.buckets.split(columns):
            self._write_partitions(columns.take(rows), None if kinds is None else kinds.take(rows), bucket)

    def _write_partitions(self, columns: pa.RecordBatch, kinds: pa.Int8Array | None, bucket: str) -> None:
        if not self._output.partitions.fields:
            self._write_to("", bucket, columns, kinds)
            return
        if kinds is not None:
            columns = columns.append_column(_KINDS, kinds)
        for folder, rows in split_by_partition(columns, self._output.partitions, self._output.default_partition):
            if kinds is None:
                self._write_to(folder, bucket, rows, None)
            else:
                last = rows.num_columns - 1
                self._write_to(folder, bucket, rows.select(list(range(last))), rows.column(last))

    def _write_to(self, partition: str, bucket: str, rows: pa.RecordBatch, kinds: pa.Int8Array | None) -> None:
        folder = f"{partition}/{bucket}" if partition and bucket else partition or bucket
        part = self._parts.pop(folder, None) or self._open_part(folder)
        self._parts[folder] = part  # parts are in the order in which they were last written
        try:
            part.content.write(rows, kinds)
        except OSError as error:
            raise self._folder.failure(part.temporary, error) from error
        part.written_ms = self._context.processing_time.now_ms()
        if self._partitions is not None:
            self._partitions.written(partition, part.written_ms)
        if part.content.written_bytes >= self._output.roll_bytes:
            self._close_part(part)

    def _open_part(self, folder: str) -> _Part:
        if len(self._parts) >= MAX_OPEN_PARTS:
            self._close_part(next(iter(self._parts.values())))
        context, used = self._context, self._output.format
        name = part_stem(context, self._count)
        self._count += 1
        temporary = self._folder.path(folder, f".{name}{temporary_ending(context.owner)}")
        final = self._folder.path(folder, f"{name}.{used.extension}")
        stream = self._folder.create(temporary)
        now = context.processing_time.now_ms()
        content: _Content
        if isinstance(used, FileFormat):
            content = _WholeFile(used.create_writer(stream, self._output.stored, self._output.options))
        else:
            if self._encoder is None:
                self._encoder = used.create_encoder(self._output.stored, self._output.options)
            content = _Records(self._folder, stream, temporary, self._encoder)
        return _Part(folder, temporary, final, stream, content, now, now)

    def _close_part(self, part: _Part) -> None:
        try:
            part.content.finish()
        except OSError as error:
            raise self._folder.failure(part.temporary, error) from error
        self._folder.finish(part.stream, part.temporary)
        del self._parts[part.folder]
        self._closed.append(Committable(part.final, {"from": part.temporary, "to": part.final}))

    def write_watermark(self, timestamp_ms: int) -> None:
        """Note the event time, which decides which partitions are complete; files hold no watermarks."""
        if self._partitions is not None:
            self._partitions.watermark = timestamp_ms

    def flush(self, end_of_input: bool) -> None:
        """Note the end of the input, at which all partitions are complete. Rows are forced to disk when their part is closed."""
        self._ended = end_of_input

    def prepare_commit(self) -> Sequence[Committable]:
        """Close all parts; gives all closed parts, and then the marks of complete partitions."""
        for part in list(self._parts.values()):
            self._close_part(part)
        return (*self.rolled(), *self._marks())

    def _marks(self) -> Iterator[Committable]:
        if self._partitions is None:
            return
        now = self._context.processing_time.now_ms()
        for folder in self._partitions.take_complete(now, all_of_them=self._ended):
            path = self._folder.path(folder, self._partitions.policy.file_name)
            yield Committable(f"{path}-{self._context.attempt}-{self._context.subtask}-{self._count}", {"mark": path})
            self._count += 1

    def rolled(self) -> Sequence[Committable]:
        """The parts that were closed by size, age or idleness."""
        closed, self._closed = tuple(self._closed), []
        if closed:
            self._folder.settle()
        return closed

    def close(self) -> None:
        """Remove the parts that were not handed over to the committer."""
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
    """Renames finished parts to their visible names.

    Committables come from state, which somebody may have altered: one is accepted only if a writer of this sink, as it is configured now,
    could have made it.

    Args:
        location: the folder of the sink.
        earlier: the files that were in the folder when the run began.
        mark: the name of the file that marks complete partitions; None: partitions are not marked.
    """

    def __init__(self, location: TablePath, earlier: EarlierOutput, mark: str | None = None) -> None:
        self._folder = OutputFolder(location)
        self._earlier = earlier
        self._mark = mark
        self._marked: set[str] = set()

    def replace_earlier(self, run: str) -> None:
        """Remove the files that the run found when it began, if it is to replace them."""
        self._earlier.replace(run, self._marked)

    def keep_earlier(self, run: str) -> None:
        """Keep the files that the run found when it began: it shows no files of its own."""
        self._earlier.forget(run)

    def commit(self, committables: Sequence[Committable]) -> None:
        """Rename parts, except those that have their visible name already, and then mark partitions.

        Raises:
            ConnectorError: a part is gone, or a rename fails.
            StateError: a committable is not one of this sink; then nothing is renamed.
        """
        renames = [self._rename(c) for c in committables if "mark" not in c.payload]
        marks = [self._checked(c.payload["mark"], c.payload["mark"]) for c in committables if "mark" in c.payload]
        self._folder.publish(renames)
        for mark in marks if self._mark is not None else ():
            path = f"{mark.rpartition('/')[0]}/{self._mark}"
            self._folder.finish(self._folder.create(path), path)
            self._marked.add(path)

    def abort(self, committables: Sequence[Committable]) -> None:
        """Remove parts that are not visible yet.

        Raises:
            StateError: a committable is not one of this sink.
        """
        for temporary, _ in [self._rename(c) for c in committables if "mark" not in c.payload]:
            self._folder.discard(temporary)

    def _rename(self, committable: Committable) -> tuple[str, str]:
        """(the hidden path, the visible path in the same folder) of a part."""
        temporary, final = committable.payload.get("from"), committable.payload.get("to")
        temporary, final = self._checked(temporary, temporary), self._checked(final, temporary)
        (folder, _, hidden), (into, _, visible) = temporary.rpartition("/"), final.rpartition("/")
        stem = visible.partition(".")[0]
        written = stem.startswith(("part-", "table-")) and hidden.startswith(f".{stem}")
        if folder != into or not written or not hidden.endswith(temporary_ending("")):
            raise self._foreign(f"to rename '{temporary}' to '{final}', which no writer asks for")
        return temporary, final

    def _checked(self, path: object, shown: object) -> str:
        if not isinstance(path, str) or not self._folder.holds(path):
            raise self._foreign(
                f"to commit '{shown}' as '{path}', which is not below the sink's path '{self._folder.base}'"
            )
        return path

    def _foreign(self, what: str) -> StateError:
        return StateError(
            f"the state asks {what}",
            hint="if the sink's path was changed, go on once with the old one; else somebody altered the state: use another checkpoint",
        )

    def committed(self, committables: Sequence[Committable]) -> Sequence[CommittedPiece]:
        """The part files among the committables. Files of a table that is compacted by its key are replaced, and marks hold no rows."""
        parts = [(c.commit_id, path) for c in committables if (path := self._part_of(c)) is not None]
        pieces = [CommittedPiece(commit_id, path, self._folder.exists(path)) for commit_id, path in parts]
        hidden = {c.commit_id: temporary for c in committables if isinstance(temporary := c.payload.get("from"), str)}
        # A part that still has its hidden name was about to be committed, but was not.
        return [
            p for p in pieces if p.is_there or not (p.commit_id in hidden and self._folder.exists(hidden[p.commit_id]))
        ]

    def revert(self, committables: Sequence[Committable]) -> None:
        """Remove part files of this folder, and the marks of partitions, which are not complete any more."""
        for committable in committables:
            path = self._part_of(committable)
            mark = committable.payload.get("mark")
            if path is not None:
                temporary, _ = self._rename(committable)
                self._folder.discard(temporary)
                self._folder.discard_durably(path)
            elif isinstance(mark, str) and mark.rpartition("/")[2] == self._mark:
                self._folder.discard_durably(self._checked(mark, mark))

    def told(self) -> Sequence[ToldCommit]:
        """The part files that streams wrote, and the marks of their partitions, which are incomplete if a part is removed."""
        told = []
        marks = set(self._folder.marks(self._mark)) if self._mark is not None else set()
        for path in self._folder.visible_files():
            folder, _, name = path.rpartition("/")
            origin = part_origin(name)
            if origin is None:
                continue
            hidden = f"{folder}/.{name.partition('.')[0]}{temporary_ending('')}"
            found = [Committable(path, {"from": hidden, "to": path})]
            mark = f"{folder}/{self._mark}"
            if mark in marks:
                found.append(Committable(f"{mark} of {name}", {"mark": mark}))
            told.append(ToldCommit(origin.owner, origin.checkpoint_id, tuple(found)))
        return told

    def notes(self) -> Sequence[OutputNote]:
        """The notes in the folder, which are hidden files."""
        found = [(path, self._folder.read(path)) for path in self._folder.hidden_here(_NOTE)]
        return [OutputNote(path, content) for path, content in found if content is not None]

    def leave_note(self, content: bytes) -> None:
        """Leave a note in the folder, as a hidden file."""
        self._folder.prepare()
        self._folder.write_whole(self._folder.path(f".{uuid.uuid4().hex}{_NOTE}"), content)

    def _part_of(self, committable: Committable) -> str | None:
        """The path of a committable that is a part file of this folder; None: it is none, but replaces a file, or it is a mark."""
        path = committable.payload.get("to")
        if not isinstance(path, str) or path != committable.commit_id or not self._folder.holds(path):
            return None
        return path

    def discard_orphans(self, owner: str, keep: Collection[str]) -> int:
        """Remove all parts of this owner that will never be committed, finished or not; gives how many they were."""
        ending = temporary_ending(owner)
        kept = {without_extension(commit_id) for commit_id in keep}
        orphans = [
            path for path in self._folder.hidden_files(ending) if visible_stem(path.removesuffix(ending)) not in kept
        ]
        for path in orphans:
            self._folder.discard(path)
        return len(orphans)


def check_not_null(columns: pa.RecordBatch, schema: Schema) -> None:
    """Check that NOT NULL columns have no NULL.

    Raises:
        DataError: one has.
    """
    for i, field in enumerate(schema):
        if not field.nullable and columns.column(i).null_count:
            row = int(np.argmax(columns.column(i).is_null().to_numpy(zero_copy_only=False)))
            raise DataError(
                f"column '{field.name}' of the sink is NOT NULL, but the row holds NULL",
                row=row,
                hint="filter such rows or declare the column nullable",
            )
