"""Rows sorted by key, in memory as far as a budget goes, then in files: an external merge sort.

Rows are ordered by a hash of their key, rows of one hash by input, then as they came. So rows of one key follow each other, and the few
keys that share a hash are met together. Full buffers are sorted and written as runs; the end merges them: always all rows below the lowest
of the runs' last hashes at once, then those of that hash, run by run. So no more than a batch a run is in memory, however often a key is.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import UInt64s
from flowrun.core.elements import RecordBatch, concat_batches
from flowrun.core.record import record
from flowrun.core.splitmix import splitmix64
from flowrun.errors import ConnectorError
from flowrun.runtime.network.spilled_rows import cannot_spill, from_columns, layout_of, to_columns
from flowrun.state.key_groups import hash_columns

SORT_MEMORY_BYTES = 64 << 20
"""What the rows of one task may take before they are written to a file. While they are sorted they take twice that."""

RUN_RECORD_ROWS = 16_384
"""Rows of a run that are read at a time."""

_HASH = "__flowrun_hash"
_WHAT = "rows to be sorted by key"


@record
class SortedRows:
    """Rows of one input, sorted. What follows may be of the same keys."""

    input_index: int
    rows: RecordBatch


@record
class KeysEnd:
    """No input has more rows of the keys that were."""


class KeySort:
    """Sorts the rows of one task, all inputs together.

    Args:
        keys: positions of the key columns of each input.
        folder: gives where files may be written; not asked before there is something to write.
        batch_rows: how many rows that fit into memory are given at a time.
        memory_bytes: see `SORT_MEMORY_BYTES`.
    """

    def __init__(
        self,
        keys: Mapping[int, Sequence[int]],
        folder: Callable[[], Path],
        batch_rows: int,
        memory_bytes: int,
    ) -> None:
        self._keys = keys
        self._folder = folder
        self._batch_rows = batch_rows
        self._memory_bytes = memory_bytes
        self._waiting: dict[int, list[RecordBatch]] = {index: [] for index in keys}
        self._bytes = 0
        self._runs: list[_Run] = []
        self._files: list[_RunFile] = []

    def add(self, input_index: int, rows: RecordBatch) -> None:
        """Take rows.

        Raises:
            ConnectorError: the disk does not take them.
        """
        waiting = self._waiting[input_index]
        if waiting and layout_of(waiting[0])[0] != layout_of(rows)[0]:
            self._spill(input_index)
        self._waiting[input_index].append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._memory_bytes:
            for index in self._waiting:
                self._spill(index)

    def merged(self) -> Iterator[SortedRows | KeysEnd]:
        """All rows, sorted; a file goes when it has been read. To be called once, when there is nothing more to add."""
        for index in self._waiting:
            if self._waiting[index]:
                rows, hashes = self._sorted(index)
                self._runs.append(_Run(index, layout_of(rows)[0], _parts(rows, hashes, self._batch_rows)))
        # By input, then as they came: `_merge` relies on it.
        runs = sorted(self._runs, key=lambda run: run.input_index)
        self._runs = []
        return _merge(runs)

    @property
    def files(self) -> int:
        """How many files were written."""
        return len(self._files)

    def close(self) -> None:
        """Drop everything, and delete all files. Idempotent."""
        self._runs.clear()
        for waiting in self._waiting.values():
            waiting.clear()
        for file in self._files:
            file.close()

    def _sorted(self, index: int) -> tuple[RecordBatch, UInt64s]:
        """What waits of an input, sorted, with its hashes; nothing waits then."""
        rows = concat_batches(self._waiting[index])
        self._waiting[index] = []
        # Mixed once more: operators find keys by the hash itself, in tables that are slow where all hashes are near to each other.
        hashes = splitmix64(hash_columns([rows.columns.column(k) for k in self._keys[index]]))
        return _in_order(rows, hashes)

    def _spill(self, index: int) -> None:
        """Write what waits of an input as a run."""
        if not self._waiting[index]:
            return
        self._bytes -= sum(batch.nbytes for batch in self._waiting[index])
        rows, hashes = self._sorted(index)
        folder = self._folder()
        try:
            file = _RunFile(folder, rows, hashes, min(RUN_RECORD_ROWS, self._batch_rows), self._files)
        except OSError as error:
            raise cannot_spill(_WHAT, folder, error) from error
        self._runs.append(_Run(index, layout_of(rows)[0], file.read()))


def _parts(rows: RecordBatch, hashes: UInt64s, size: int) -> Iterator[tuple[RecordBatch, UInt64s]]:
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size), hashes[start : start + size]


def _in_order(rows: RecordBatch, hashes: UInt64s) -> tuple[RecordBatch, UInt64s]:
    order = np.argsort(hashes, kind="stable")
    return rows.take(pa.array(order)), hashes[order]


class _RunFile:
    """The file of one run. It is in `files`, which are deleted in the end, before anything is written."""

    def __init__(
        self, folder: Path, rows: RecordBatch, hashes: UInt64s, record_rows: int, files: list[_RunFile]
    ) -> None:
        handle, name = tempfile.mkstemp(prefix="sort-", suffix=".arrows", dir=folder)
        os.close(handle)
        self._path = Path(name)
        self._layout = layout_of(rows)
        self._map: pa.MemoryMappedFile | None = None
        files.append(self)
        columns = to_columns(rows).append_column(_HASH, pa.array(hashes))
        with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, columns.schema) as writer:
            for start in range(0, columns.num_rows, record_rows):
                writer.write_batch(columns.slice(start, record_rows))

    def read(self) -> Iterator[tuple[RecordBatch, UInt64s]]:
        """The rows and their hashes, part by part."""
        try:
            self._map = pa.memory_map(str(self._path))
            for columns in pa.ipc.open_stream(self._map):
                hashes = columns.column(columns.num_columns - 1).to_numpy()
                yield from_columns(columns.select(list(range(columns.num_columns - 1))), self._layout), hashes
        except (OSError, pa.ArrowException) as error:
            raise ConnectorError(
                f"rows that were sorted by key are lost: {self._path}: {error}",
                hint="keep other programs away from that folder, or set TMPDIR to another one",
            ) from error
        self.close()

    def close(self) -> None:
        """Delete the file."""
        if self._map is not None:
            self._map.close()
            self._map = None
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


class _Run:
    """Sorted rows of one input, of which a part is at hand.

    Args:
        input_index: of the input.
        timed: whether the rows have event times.
        parts: the rows and their hashes; no part is empty.
    """

    def __init__(self, input_index: int, timed: bool, parts: Iterator[tuple[RecordBatch, UInt64s]]) -> None:
        self.input_index = input_index
        self.timed = timed
        self._parts = parts
        self._at_hand: tuple[RecordBatch, UInt64s] | None = None

    def load(self) -> bool:
        """Have a part at hand; False at the end."""
        if self._at_hand is None:
            self._at_hand = next(self._parts, None)
        return self._at_hand is not None

    def hash_at(self, position: int) -> np.uint64:
        """The hash of the first (0) or last (−1) row at hand."""
        assert self._at_hand is not None
        found: np.uint64 = self._at_hand[1][position]
        return found

    def take_below(self, bound: np.uint64) -> tuple[RecordBatch, UInt64s] | None:
        """The rows at hand whose hash is less; None if there are none."""
        assert self._at_hand is not None
        return self._take(int(np.searchsorted(self._at_hand[1], bound, side="left")))

    def take_equal(self, bound: np.uint64) -> Iterator[RecordBatch]:
        """All rows of this hash, the lowest there is."""
        while self.load():
            assert self._at_hand is not None
            found = self._take(int(np.searchsorted(self._at_hand[1], bound, side="right")))
            if found is None:
                return
            yield found[0]

    def _take(self, count: int) -> tuple[RecordBatch, UInt64s] | None:
        assert self._at_hand is not None
        rows, hashes = self._at_hand
        if count == 0:
            return None
        self._at_hand = None if count == len(hashes) else (rows.slice(count), hashes[count:])
        return rows.slice(0, count), hashes[:count]


def _merge(runs: list[_Run]) -> Iterator[SortedRows | KeysEnd]:
    while runs := [run for run in runs if run.load()]:
        bound = min(run.hash_at(-1) for run in runs)
        if len({(run.input_index, run.timed) for run in runs}) == len({run.input_index for run in runs}):
            below = [(run.input_index, found) for run in runs if (found := run.take_below(bound)) is not None]
            for index in dict.fromkeys(index for index, _ in below):
                yield SortedRows(index, _together([found for i, found in below if i == index]))
            if below:
                yield KeysEnd()
        else:  # rows with and without event times cannot be in one batch: one hash after the other
            bound = min(run.hash_at(0) for run in runs)
        for run in runs:
            if run.load():
                for rows in run.take_equal(bound):
                    yield SortedRows(run.input_index, rows)
        yield KeysEnd()


def _together(parts: list[tuple[RecordBatch, UInt64s]]) -> RecordBatch:
    if len(parts) == 1:
        return parts[0][0]
    return _in_order(concat_batches([rows for rows, _ in parts]), np.concatenate([hashes for _, hashes in parts]))[0]
