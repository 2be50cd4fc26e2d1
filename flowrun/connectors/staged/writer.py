"""The writer of a staged sink: rows go to files beside the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from flowrun.api.sink import Committable, WriterContext
from flowrun.connectors.staged.commit import committable_of
from flowrun.core.elements import RecordBatch
from flowrun.errors import InternalError
from flowrun.state.storage.staged_files import StagedFileWriter, is_staged, staged_name, staging_folder

_BATCH_ROWS = 16_384
"""Rows that are gathered before they are written: a batch of a file has a fixed cost."""

_MOST_WAITING = 3
"""Files of one subtask that may wait for the committer before the subtask does."""

_PAUSE_MS = 20.0


class StagedWriter:
    """A `SinkWriter` that writes one file a checkpoint. Where the committer is slower than the rows come, it waits for it.

    Args:
        context: with `staging`: use another writer where it is empty.
        schema: of the rows in the files.
        encode: rows of the sink → rows of the files; raises DataError for what the outside system cannot take.
    """

    def __init__(
        self, context: WriterContext, schema: pa.Schema, encode: Callable[[RecordBatch], pa.RecordBatch]
    ) -> None:
        if not context.staging or context.next_checkpoint_id is None:
            raise InternalError("a staged writer needs a folder of checkpoints")
        self._context = context
        self._number = context.next_checkpoint_id
        self._folder = staging_folder(context.staging)
        self._schema = schema
        self._encode = encode
        self._writer = f"{context.owner}/{context.operator_id}/{context.subtask}"
        """Stays the same over restarts: the outside system keeps one record for it."""
        self._file: StagedFileWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._count = 0
        self._submitted: list[str] = []
        """Names of files that the committer was asked to commit, and that were there when this was last looked at."""

    def open(self) -> None:
        """Nothing is made before there are rows."""

    def write(self, batch: RecordBatch) -> None:
        """Encode rows and keep them for the checkpoint.

        Raises:
            DataError: a row cannot be written to the outside system.
            StateError: the folder of checkpoints cannot be written.
        """
        if not batch.num_rows:
            return
        rows = self._encode(batch)
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        if self._gathered_rows >= _BATCH_ROWS:
            self._append()

    def _append(self) -> None:
        if not self._gathered:
            return
        if self._file is None:
            self._wait_for_the_committer()
            unique = f"{self._context.operator_id}-{self._context.attempt}-{self._context.subtask}-{self._count}"
            self._count += 1
            self._file = StagedFileWriter(self._folder, staged_name(self._context.owner, unique), self._schema)
        rows = self._gathered[0] if len(self._gathered) == 1 else pa.concat_batches(self._gathered)
        self._gathered, self._gathered_rows = [], 0
        self._file.write(rows)

    def _wait_for_the_committer(self) -> None:
        """Back pressure: files go when their rows are in the outside system."""
        while len(self._submitted) >= _MOST_WAITING:
            self._submitted = [name for name in self._submitted if is_staged(self._folder, name)]
            if len(self._submitted) >= _MOST_WAITING:
                self._context.pause(_PAUSE_MS)

    def write_watermark(self, timestamp_ms: int) -> None:
        """Event time does not matter."""

    def flush(self, end_of_input: bool) -> None:
        """What was gathered goes to the file."""
        self._append()

    def prepare_commit(self) -> Sequence[Committable]:
        """Complete the file; nothing without rows. Raises StateError."""
        self._append()
        if self._file is None:
            return ()
        file, self._file = self._file, None
        try:
            staged = file.finish()
        except BaseException:
            file.abandon()
            raise
        return (committable_of(self._context.staging, staged, self._writer, self._number()),)

    def rolled(self) -> Sequence[Committable]:
        """Nothing: with checkpoints nobody asks."""
        return ()

    def submitted(self, committables: Sequence[Committable]) -> None:
        """The committer has these now."""
        self._submitted += [c.commit_id for c in committables]

    def close(self) -> None:
        """Remove the file that was never completed; idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.abandon()
