"""Writes a table that is compacted by its primary key: the visible files always hold the newest row of each key.

Rows are distributed to buckets by the hash of their key. Each bucket of each partition is one file, which a commit replaces by renaming
a new one over it. The rows of the files are in the sink's state, so that a restored job goes on with exactly the rows of its checkpoint,
at any parallelism: a bucket is a key group, and moves with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.format import FileFormat
from flowrun.api.operator import TimerHandle
from flowrun.api.sink import Committable, WriterContext
from flowrun.connectors.filesystem.output import FileOutput
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.part_names import temporary_ending
from flowrun.connectors.filesystem.partitions import split_by_partition
from flowrun.connectors.filesystem.table_path import list_files
from flowrun.connectors.filesystem.writer import check_not_null
from flowrun.connectors.newest_rows import NewestRows
from flowrun.core.arrays import Int32s
from flowrun.core.elements import RecordBatch, removals
from flowrun.state.key_groups import key_groups


def table_stem(identity: str) -> str:
    """The text that the names of all files of a table begin with.

    >>> table_stem("1f0c")
    'table-1f0c'
    """
    return f"table-{identity}"


class UpsertWriter:
    """Writes the buckets of one subtask.

    A commit writes the buckets that have changed since the commit before. The first commit after a restore writes all of them, as there may
    be files of later checkpoints. A bucket whose last row was deleted becomes an empty file, because a file can be replaced again if a
    commit is repeated.
    """

    def __init__(self, output: FileOutput, context: WriterContext) -> None:
        self._output = output
        self._context = context
        self._folder = OutputFolder(output.location)
        self._keys = [output.schema.index(k) for k in output.primary_key]
        self._rows = NewestRows(output.schema.arrow, self._keys)
        self._dirty: set[int] = set()
        self._files: set[tuple[int, str]] = set()
        self._written: list[Committable] = []
        self._count = 0
        self._timer: TimerHandle | None = None
        self._table = table_stem(context.identity)

    def restore(self, rows: pa.RecordBatch) -> None:
        """Take the rows that `kept` gave before. It is called before `open`."""
        self._rows.add(rows, None)

    def kept(self) -> pa.RecordBatch:
        """The rows of the files, which nobody may change."""
        return self._rows.alive()

    def open(self) -> None:
        """Create the folder, check that it can be written, and find the files that are there already."""
        self._folder.prepare()
        self._find_files()
        rows = self._rows.newest()
        for bucket, own in self._by_bucket(rows, range(self._output.key_groups)):
            self._dirty.add(bucket)  # also buckets whose files are being committed just now
            self._files.update((bucket, folder) for folder, _ in self._by_partition(own))
        self._watch()

    def _find_files(self) -> None:
        base = self._folder.base.rstrip("/")
        for file in list_files(self._output.location, None, may_be_missing=True):
            folder, _, name = file.path.rpartition("/")
            stem = name.partition(".")[0]
            if not stem.startswith(self._table + "-"):
                continue
            bucket = int(stem.removeprefix(self._table + "-"))
            if bucket in self._context.key_groups:
                self._files.add((bucket, folder.removeprefix(base).strip("/")))
                self._dirty.add(bucket)

    def _watch(self) -> None:
        due = self._context.processing_time.now_ms() + self._output.check_interval_ms
        self._timer = self._context.processing_time.register(due, self._write_in_time)

    def _write_in_time(self, now_ms: int) -> None:
        if self._context.publishes_early:
            self._write_buckets()
        self._watch()

    def write(self, batch: RecordBatch) -> None:
        """Apply changes to the rows of the files.

        Raises:
            DataError: a NOT NULL column has a NULL.
        """
        columns = batch.columns
        if not columns.num_rows:
            return
        check_not_null(columns, self._output.schema)
        removes = None if batch.row_kinds is None else removals(batch.row_kinds)
        self._dirty.update(np.unique(self._buckets(columns)).tolist())
        self._rows.add(columns, removes)

    def _buckets(self, rows: pa.RecordBatch) -> Int32s:
        return key_groups([rows.column(k) for k in self._keys], self._output.key_groups)

    def _write_buckets(self) -> None:
        dirty, self._dirty = self._dirty, set()
        if not dirty:
            return
        wanted: dict[tuple[int, str], pa.RecordBatch | None] = {f: None for f in sorted(self._files) if f[0] in dirty}
        for bucket, own in self._by_bucket(self._rows.newest(), sorted(dirty)):
            wanted.update(((bucket, folder), part) for folder, part in self._by_partition(own))
        for (bucket, folder), part in wanted.items():
            self._write_file(bucket, folder, part)

    def _by_bucket(self, rows: pa.RecordBatch, wanted: Iterable[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(a bucket, its rows), for each wanted bucket that has rows."""
        buckets = self._buckets(rows)
        order = np.argsort(buckets, kind="stable")
        bounds = np.searchsorted(buckets[order], np.arange(self._output.key_groups + 1))
        for bucket in wanted:
            if bounds[bucket] < bounds[bucket + 1]:
                yield bucket, rows.take(pa.array(order[bounds[bucket] : bounds[bucket + 1]]))

    def _by_partition(self, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        output = self._output
        if not output.partitions.fields:
            return [("", rows)]
        return list(split_by_partition(rows, output.partitions, output.default_partition))

    def _write_file(self, bucket: int, folder: str, rows: pa.RecordBatch | None) -> None:
        output, context = self._output, self._context
        used = output.format
        if rows is None:
            rows = pa.RecordBatch.from_arrays(
                [pa.array([], f.type) for f in output.stored.arrow], schema=output.stored.arrow
            )
        name = f"{self._table}-{bucket}"
        version = f"{name}-{context.attempt}-{self._count}"
        self._count += 1
        temporary = self._folder.path(folder, f".{version}{temporary_ending(context.owner)}")
        stream = self._folder.create(temporary)
        if isinstance(used, FileFormat):
            content = used.create_writer(stream, output.stored, output.options)
            try:
                content.write(rows)
                content.finish()
            except OSError as error:
                raise self._folder.failure(temporary, error) from error
        else:
            encoder = used.create_encoder(output.stored, output.options)
            self._folder.write(stream, encoder.header(), temporary)
            self._folder.write(stream, encoder.encode(rows), temporary)
        self._folder.finish(stream, temporary)
        self._files.add((bucket, folder))
        final = self._folder.path(folder, f"{name}.{used.extension}")
        commit_id = self._folder.path(folder, f"{version}.{used.extension}")
        self._written.append(Committable(commit_id, {"from": temporary, "to": final}))

    def write_watermark(self, timestamp_ms: int) -> None:
        """Nothing to do: files hold no watermarks."""

    def flush(self, end_of_input: bool) -> None:
        """Nothing to do: rows are written to disk when a commit is prepared."""

    def prepare_commit(self) -> Sequence[Committable]:
        """Write the buckets that have changed."""
        self._write_buckets()
        return self.rolled()

    def rolled(self) -> Sequence[Committable]:
        """The buckets that were written at the check interval, in a job that takes no checkpoints."""
        written, self._written = tuple(self._written), []
        if written:
            self._folder.settle()
        return written

    def close(self) -> None:
        """Remove the files that were not handed over to the committer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        written, self._written = self._written, []
        for committable in written:
            self._folder.discard(str(committable.payload["from"]))
