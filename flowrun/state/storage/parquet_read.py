"""Reading state files: only the row groups that are wanted, with every byte of them checked against its checksum."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.api.state import KeyGroupRange
from flowrun.core.shapes import Shape, integer, listed, members, text
from flowrun.errors import StateError
from flowrun.state.checkpoints import StateFile
from flowrun.state.storage.local_copies import local_copies
from flowrun.state.storage.parquet_write import ROW_GROUPS_METADATA
from flowrun.state.storage.signing import state_key
from flowrun.state.storage.state_path import StatePath, failures

_TAIL = 1 << 16
"""Bytes at the end that are read first; the Parquet library does the same."""
_PIECE = 64 << 20
"""Bytes that are read and decoded at a time: bounds what a restore needs beyond the rows themselves."""

_SUMMARY: Shape = members({"ends": listed(integer()), "crc32": listed(integer())}, later={"sha256": listed(text)})


class DamagedFileError(StateError):
    """A state file is missing, or not what was written. `path` is how checkpoints name it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class _Window(io.RawIOBase):
    """A stretch of a file in memory, seen at its place in the file: what the Parquet library reads from, without a copy."""

    def __init__(self, size: int, start: int, content: memoryview) -> None:
        super().__init__()
        self._size = size
        self._start = start
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> Any:
        begin = self._position - self._start
        end = len(self._content) if size < 0 else min(begin + size, len(self._content))
        if begin < 0:
            raise OSError(f"byte {self._position} of a state file was not read before")
        self._position = self._start + end
        return self._content[begin:end]


def _local_copy(location: StatePath, file: StateFile) -> pa.NativeFile | None:
    """The copy on this machine of a file elsewhere, if there is one."""
    copies = None if location.is_local else local_copies()
    return None if copies is None else copies.open(location.uri, file.checksum, file.size)


class StateFileReader:
    """One state file, opened and its footer checked.

    Args:
        location: of the file.
        file: what the checkpoint says of it.

    Raises:
        DamagedFileError: it is missing, truncated or altered; or there is a key, and it was written without one.
    """

    def __init__(self, location: StatePath, file: StateFile) -> None:
        self._location = location
        self._file = file
        self._signed = state_key() is not None
        with failures("read the state file", location):
            try:
                self._stream = _local_copy(location, file) or location.filesystem.open_input_file(location.path)
            except FileNotFoundError:
                raise self._damaged("is missing") from None
            try:
                self._footer = self._checked_footer()
                self._ends, self._checksums, self._digests = self._row_groups()
            except BaseException:
                self._stream.close()
                raise

    def __enter__(self) -> StateFileReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _read(self, begin: int, end: int) -> memoryview:
        content = memoryview(self._stream.read_at(end - begin, begin))
        if len(content) != end - begin:
            raise self._damaged(f"is truncated: bytes {begin} to {end} are not there")
        return content

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(self._file.path, f"the state file '{self._location}' {what}")

    def _checked_footer(self) -> pq.FileMetaData:
        size = self._stream.size()
        if size != self._file.size:
            kind = "truncated" if size < self._file.size else "altered"
            raise self._damaged(f"is {kind}: expected {self._file.size} bytes, it has {size}")
        tail = self._read(max(size - _TAIL, 0), size)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > size:
            raise self._damaged("is altered: its end is no Parquet footer")
        if length > len(tail):
            tail = self._read(size - length, size)
        footer = tail[len(tail) - length :]
        if self._signed and not self._file.checksum.startswith("sha256:"):
            raise self._damaged("was written without a key: the signature of the metadata does not cover it")
        is_digest = self._file.checksum.startswith("sha256:")
        found = f"sha256:{hashlib.sha256(footer).hexdigest()}" if is_digest else f"crc32:{zlib.crc32(footer):08x}"
        if found != self._file.checksum:
            raise self._damaged(f"is altered: the checksum of its footer is {found}, expected {self._file.checksum}")
        return pq.ParquetFile(_Window(size, size - len(tail), tail)).metadata

    def _row_groups(self) -> tuple[list[int], list[int], list[str]]:
        """(end, CRC-32, SHA-256) of each, as the footer says; the last only where state is signed."""
        try:
            summary = json.loads((self._footer.metadata or {})[ROW_GROUPS_METADATA])
            _SUMMARY(summary, ROW_GROUPS_METADATA.decode())
            ends, checksums, digests = summary["ends"], summary["crc32"], summary.get("sha256", [])
            lengths = {len(ends), len(checksums), self._footer.num_row_groups}
            if len(lengths) > 1 or (self._signed and len(digests) != len(ends)):
                raise ValueError("it is not about as many row groups as there are")
        except (ValueError, KeyError, RecursionError) as error:
            raise self._damaged(f"is altered: its footer does not say where row groups end: {error}") from None
        return ends, checksums, digests

    def check_signed(self) -> None:
        """Where state is signed, read and check all of the file, for readers that will look at Parquet's own checksums only.

        Raises:
            DamagedFileError: bytes are not those that were written.
        """
        if self._signed:
            for begin, end in self._pieces(0, len(self._ends)):
                self._checked(begin, end)

    def rows(self, groups: KeyGroupRange | None = None) -> pa.Table:
        """All rows, or those of some key groups, in the order of the file.

        Raises:
            DamagedFileError: bytes that were read are not those that were written.
        """
        first, last = self._wanted(groups)
        starts = np.cumsum([0] + [self._footer.row_group(i).num_rows for i in range(self._footer.num_row_groups)])
        begin = int(np.searchsorted(starts, first, "right")) - 1
        end = int(np.searchsorted(starts, last, "left"))
        if first >= last:
            begin = end = 0
        with failures("read the state file", self._location):
            pieces = [self._decoded(a, b) for a, b in self._pieces(begin, end)]
        if not pieces:
            return self._footer.schema.to_arrow_schema().empty_table()
        return pa.concat_tables(pieces).slice(first - int(starts[begin]), last - first)

    def _wanted(self, groups: KeyGroupRange | None) -> tuple[int, int]:
        held = self._file.groups
        if groups is None or held is None:
            return 0, self._file.rows
        start, stop = max(groups.start, held.start), min(groups.stop, held.stop)
        if start >= stop:
            return 0, 0
        return self._file.offsets[start - held.start], self._file.offsets[stop - held.start]

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        while begin < end:
            limit = self._begin(begin) + _PIECE
            last = begin + 1
            while last < end and self._ends[last] <= limit:
                last += 1
            yield begin, last
            begin = last

    def _begin(self, row_group: int) -> int:
        return self._ends[row_group - 1] if row_group else 0

    def _checked(self, begin: int, end: int) -> memoryview:
        """The bytes of row groups begin … end − 1, read at once."""
        start = self._begin(begin)
        content = self._read(start, self._ends[end - 1])
        for i in range(begin, end):
            piece = content[self._begin(i) - start : self._ends[i] - start]
            if self._signed:
                right = hashlib.sha256(piece).hexdigest() == self._digests[i]
            else:
                right = zlib.crc32(piece) == self._checksums[i]
            if not right:
                raise self._damaged(
                    f"is altered between bytes {self._begin(i)} and {self._ends[i]}: the checksum is wrong"
                )
        return content

    def _decoded(self, begin: int, end: int) -> pa.Table:
        """Row groups begin … end − 1."""
        window = _Window(self._file.size, self._begin(begin), self._checked(begin, end))
        rows: pa.Table = pq.ParquetFile(window, metadata=self._footer).read_row_groups(
            range(begin, end), use_threads=False
        )
        return rows
