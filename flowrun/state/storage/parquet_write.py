"""State files: Parquet whose every byte is covered by a checksum, written durably under a name that appears when all is there.

Pages carry Parquet's own checksums, for any reader. flowrun's readers check more: the CRC-32 of each row group's bytes, page headers
included, is in the footer (`ROW_GROUPS_METADATA`), the footer's CRC-32 and the size are in the checkpoint's metadata, which has
one of its own. So whatever is altered or cut off is noticed when it is read, and only what is read must be checked. A CRC-32 can be
forged: where metadata is signed, the SHA-256 of row groups and footer stand in their places.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flowrun.api.state import KeyGroupRange
from flowrun.errors import InternalError, StateError
from flowrun.state.checkpoints import StateFile
from flowrun.state.storage.grouped_rows import GroupedRows, runs_of_groups
from flowrun.state.storage.local_copies import local_copies
from flowrun.state.storage.parquet_types import stored_schema
from flowrun.state.storage.signing import state_key
from flowrun.state.storage.state_path import TEMPORARY_SUFFIX, StatePath, failures

ROW_GROUPS_METADATA = b"flowrun.row_groups"
"""Key in a state file's footer: JSON `{"ends": [position after each row group], "crc32": [of its bytes]}`; the first begins at 0.

Where state is signed also `"sha256": [of its bytes]`.
"""

_ROWS = 1 << 16
"""Least rows of a row group, unless the file has fewer or rows are wide."""
_MAX_ROWS = 1 << 20
_BYTES = 32 << 20
"""Arrow bytes above which a row group need not grow to `_ROWS`."""
_SAMPLE = 16_384
_COMPRESSION = "lz4"
"""Measured with 900 MB of window state on one core: none 450 MB/s written and 890 MB left, LZ4 500 MB/s and 555, Zstandard 350 and 417."""


class _Sink:
    """A writable file for Parquet that sums up what passes; after a failure it swallows what the Parquet library still wants to write."""

    def __init__(self, location: StatePath) -> None:
        self._location = location
        self._temporary = location.parent / f"{location.name}{TEMPORARY_SUFFIX}" if location.is_local else location
        self._stream: Any = _opened(self._temporary)
        copies = None if location.is_local else local_copies()
        self._copy = None if copies is None else copies.begin(location.uri)
        self._failed = False
        self._crc = 0
        self._digest = None if state_key() is None else hashlib.sha256()
        self._last: list[bytes] = []
        self.position = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        if not self._failed:
            self._stream.write(data)
            if self._copy is not None:
                self._copy.write(data)
            self._crc = zlib.crc32(data, self._crc)
            if self._digest is not None:
                self._digest.update(data)
            self._last = [*self._last[-7:], data]
            self.position += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing to do: `commit` forces everything to disk."""

    def close(self) -> None:
        """Called by the Parquet library; the file is closed by `commit` or `abort`."""

    @property
    def signs(self) -> bool:
        """Whether metadata that name this file are signed, so that they need digests that nobody can forge."""
        return self._digest is not None

    def section(self) -> tuple[int, str | None]:
        """CRC-32 of what was written since the last call and, where state is signed, SHA-256 in hexadecimal digits."""
        crc, self._crc = self._crc, 0
        if self._digest is None:
            return crc, None
        digest, self._digest = self._digest.hexdigest(), hashlib.sha256()
        return crc, digest

    def footer_length(self) -> int:
        """What the last 8 bytes say about the length of the footer, themselves included."""
        return int.from_bytes(b"".join(self._last)[-8:-4], "little") + 8

    def commit(self, checksum: str) -> None:
        """Make everything durable under its name; `checksum` is how checkpoints know the content."""
        if self._location.is_local:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self._stream.close()
        if self._location.is_local:
            os.replace(self._temporary.path, self._location.path)
        if self._copy is not None:
            self._copy.keep(checksum)

    def abort(self) -> None:
        """Leave nothing behind."""
        self._failed = True
        with suppress(OSError, pa.ArrowException):  # what failed is reported already
            self._stream.close()
        self._temporary.remove_quietly()
        if self._copy is not None:
            self._copy.drop()


def _opened(location: StatePath) -> Any:
    if location.is_local:
        return location.create_local()
    return location.filesystem.open_output_stream(location.path)


class StateFileWriter:
    """One state file: row groups in order, then `finish`. Use through `state_file`."""

    def __init__(
        self, location: StatePath, schema: pa.Schema, sample: pa.RecordBatch, notes: Mapping[str, str]
    ) -> None:
        self._sink = _Sink(location)
        self._notes = notes
        self._rows = 0
        self._ends: list[int] = []
        self._checksums: list[tuple[int, str | None]] = []
        try:
            self._writer = pq.ParquetWriter(
                self._sink,
                stored_schema(schema),
                compression=_COMPRESSION,
                use_dictionary=_repetitive(sample),
                write_page_checksum=True,
            )
        except BaseException:
            self._sink.abort()
            raise

    def add(self, rows: pa.RecordBatch) -> None:
        """Write one row group."""
        table = pa.Table.from_batches([rows])
        if not table.schema.equals(self._writer.schema):
            table = table.cast(self._writer.schema)
        self._writer.write_table(table, row_group_size=max(rows.num_rows, 1))
        self._rows += rows.num_rows
        self._ends.append(self._sink.position)
        self._checksums.append(self._sink.section())

    def finish(self, path: str, groups: KeyGroupRange | None, offsets: Sequence[int]) -> StateFile:
        """Write the footer and let the file appear; `path` is how checkpoints name it."""
        notes = dict(self._notes)
        summary: dict[str, list[Any]] = {"ends": self._ends, "crc32": [crc for crc, _ in self._checksums]}
        if self._sink.signs:
            summary["sha256"] = [digest for _, digest in self._checksums]
        notes[ROW_GROUPS_METADATA.decode()] = json.dumps(summary)
        self._writer.add_key_value_metadata(notes)
        begin = self._sink.position
        self._sink.section()  # without row groups, the file's first four bytes
        self._writer.close()
        if self._sink.position - begin != self._sink.footer_length():
            raise InternalError(f"{path}: there is something between the last row group and the footer")
        crc, digest = self._sink.section()
        checksum = f"crc32:{crc:08x}" if digest is None else f"sha256:{digest}"
        self._sink.commit(checksum)
        return StateFile(path, self._sink.position, self._rows, checksum, groups, tuple(offsets))

    def abort(self) -> None:
        """Leave nothing behind."""
        self._sink.abort()
        with suppress(OSError, pa.ArrowException):  # the sink swallows what it writes
            self._writer.close()


@contextmanager
def state_file(
    location: StatePath, schema: pa.Schema, sample: pa.RecordBatch, notes: Mapping[str, str]
) -> Iterator[StateFileWriter]:
    """A writer of the file at `location`; whatever fails inside leaves nothing behind and becomes one `StateError`.

    Args:
        location: of the file; its folder exists.
        schema: of the rows.
        sample: some rows, which tell what columns are worth a dictionary.
        notes: what the footer says about the file to those who find it.
    """
    with failures("write the state file", location):
        try:
            writer = StateFileWriter(location, schema, sample, notes)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise StateError(f"Parquet cannot hold the state for '{location}': {error}") from error
        try:
            yield writer
        except BaseException:
            writer.abort()
            raise


def write_rows(location: StatePath, path: str, rows: pa.Table, notes: Mapping[str, str]) -> StateFile:
    """Write rows in the order that they have.

    Raises:
        StateError: they cannot be written; nothing is left.
    """
    batches = rows.combine_chunks().to_batches()
    with state_file(location, rows.schema, _sample(batches, rows.schema), notes) as writer:
        for batch in batches:
            for start in range(0, batch.num_rows, _MAX_ROWS):
                writer.add(batch.slice(start, _MAX_ROWS))
        return writer.finish(path, None, ())


def write_keyed_rows(
    location: StatePath, path: str, rows: pa.Table, keys: Sequence[str], groups: KeyGroupRange, notes: Mapping[str, str]
) -> StateFile:
    """Write the rows of a keyed table by (key group, keys), stable; row groups begin and end at borders of key groups.

    Args:
        location: of the file; its folder exists.
        path: how checkpoints name it.
        rows: at least one; first column the key group.
        keys: names of the key columns.
        groups: those of the subtask.
        notes: as in `state_file`.

    Raises:
        StateError: they cannot be written; nothing is left.
    """
    grouped = GroupedRows(rows, keys, groups)
    least, most = _row_group_rows(rows)
    with state_file(location, rows.schema, _sample(grouped.batches, rows.schema), notes) as writer:
        for first, last in runs_of_groups(grouped.offsets, least):
            batch = grouped.sorted_run(first, last)
            for start in range(0, batch.num_rows, most):
                writer.add(batch.slice(start, most))
        return writer.finish(path, groups, grouped.offsets.tolist())


def _row_group_rows(rows: pa.Table) -> tuple[int, int]:
    """Least and most rows of a row group, by how wide rows are."""
    width = max(rows.nbytes // max(rows.num_rows, 1), 1)
    least = min(_ROWS, max(_BYTES // width, 1))
    return least, min(_MAX_ROWS, 16 * least)


def _sample(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return batches[0].slice(0, _SAMPLE) if batches else pa.RecordBatch.from_pylist([], schema)


def _repetitive(sample: pa.RecordBatch) -> list[str]:
    """Columns worth a dictionary: few distinct values among some rows. The rest is written plain, which is faster and no larger."""
    return [
        field.name
        for field, column in zip(sample.schema, sample.columns, strict=True)
        if not pa.types.is_nested(field.type)
        and not pa.types.is_boolean(field.type)
        and (pa.types.is_dictionary(field.type) or 4 * _distinct(column) <= len(column))
    ]


def _distinct(column: pa.Array) -> int:
    try:
        return len(pc.unique(column))
    except pa.ArrowNotImplementedError:  # Arrow hashes most types; for the others a dictionary is no gain
        return len(column)
