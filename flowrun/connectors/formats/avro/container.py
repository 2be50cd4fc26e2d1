"""Avro object container files: a header with the writer's schema, then blocks of records, each of which may be compressed."""

from __future__ import annotations

import bz2
import lzma
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import numpy as np
import pyarrow as pa

from flowrun.api.format import FilePart, FileReader, FileRows, FileWriter, ReadRequest, RecordChunk
from flowrun.connectors.formats.avro.columns import MisfitError
from flowrun.connectors.formats.avro.encoding import AvroEncoder
from flowrun.connectors.formats.avro.reading import AvroReader
from flowrun.connectors.formats.avro.schema import AvroSchemaError, AvroType, parse_schema
from flowrun.connectors.formats.avro.skipping import BrokenRecordError, Skip, read_long, skipper
from flowrun.connectors.formats.avro.types import schema_text
from flowrun.connectors.formats.damage import DamagedInputError
from flowrun.connectors.formats.json_encoder import joined_bytes
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import DataError

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_HEADER_BYTES = 16 << 20
"""The longest header: it holds the schema."""
MAX_BLOCK_BYTES = 256 << 20
"""The largest block, compressed or not."""
_GROUP_BYTES = 1 << 20
"""Blocks are decoded together until they have so many bytes."""
BLOCK_BYTES = 64_000
"""The size of a block that is written, before compression: that of Avro's own writers."""
_AHEAD_BYTES = 1 << 20
"""How much of a file is read at a time."""
_COUNTS_BYTES = 20
"""Room for the two numbers before a block."""


@record
class _Header:
    """What a file says of itself."""

    schema: AvroType
    codec: str
    sync: bytes
    size: int


class ContainerReader:
    """Reads container files as rows of a schema. The unit of a position is the byte at which a block begins; 0 is the first block."""

    def __init__(self, request: ReadRequest) -> None:
        self._schema = request.schema

    def parts(self, file: IO[bytes], name: str, target_bytes: int) -> Sequence[FilePart]:
        """Consecutive ranges of blocks of about `target_bytes`: each ends behind the first marker of a block's end after so many bytes."""
        data = _Data(file)
        header = _header(data, name)
        parts: list[FilePart] = []
        begin = header.size
        while (
            data.size - begin > target_bytes and (end := _behind_marker(data, header, begin + target_bytes)) < data.size
        ):
            parts.append(FilePart(begin, end, end - begin))
            begin = end
        return [*parts, FilePart(begin, data.size, data.size - begin)] if begin < data.size else parts

    def read(
        self, file: IO[bytes], name: str, first: int, row: int, stop: int | None, batch_rows: int
    ) -> Iterator[FileRows]:
        """The rows of the blocks that begin at the bytes `first` to `stop`; see `FileReader`."""
        data = _Data(file)
        header = _header(data, name)
        try:
            reader = AvroReader(header.schema, self._schema)
        except MisfitError as error:
            raise DataError(
                f"{name}: {error}", hint="declare the column as the file has it, or read it under another type and CAST"
            ) from None
        skip = skipper(header.schema)
        end = data.size if stop is None else stop
        start = max(first, header.size)
        while start < end:
            group, following = _group(data, name, header, start, end, batch_rows)
            yield from _rows_of(reader, skip, name, group, row, following, batch_rows)
            start, row = following, 0


@record
class _Block:
    start: int
    rows: int
    data: bytes


def _group(data: _Data, name: str, header: _Header, start: int, end: int, batch_rows: int) -> tuple[list[_Block], int]:
    """(some consecutive blocks, where the next one begins)."""
    blocks: list[_Block] = []
    size = rows = 0
    while start < end and size < _GROUP_BYTES and rows < batch_rows:
        count, content, following = _block(data, name, header, start)
        blocks.append(_Block(start, count, content))
        size, rows, start = size + len(content), rows + count, following
    return blocks, start


def _rows_of(
    reader: AvroReader, skip: Skip, name: str, blocks: list[_Block], row: int, following: int, batch_rows: int
) -> Iterator[FileRows]:
    """The rows of blocks from row `row` of the first one on, in batches."""
    data = b"".join(block.data for block in blocks)
    starts: list[int] = []
    base = 0
    for block in blocks:
        _find_rows(block, name, skip, data, base, starts)
        base += len(block.data)
    places = np.array([*starts, len(data)], np.int64)
    firsts = np.cumsum([0, *(block.rows for block in blocks)])
    for begin in range(min(row, len(starts)), len(starts), batch_rows):
        stop = min(begin + batch_rows, len(starts))
        chunk = RecordChunk(pa.py_buffer(data), places[begin:stop], places[begin + 1 : stop + 1], separated=False)
        decoded = reader.read(chunk)
        if decoded.bad:
            bad = decoded.bad[0]
            at = int(np.searchsorted(firsts, begin + bad.index, side="right")) - 1
            place = f"record {begin + bad.index - int(firsts[at]) + 1} of the block at byte {blocks[at].start}"
            raise DataError(f"{name}: {place}: {bad.reason}")
        if stop == len(starts):
            yield FileRows(decoded.columns, following, 0)
        else:
            at = int(np.searchsorted(firsts, stop, side="right")) - 1
            yield FileRows(decoded.columns, blocks[at].start, stop - int(firsts[at]))


def _find_rows(block: _Block, name: str, skip: Skip, data: bytes, base: int, starts: list[int]) -> None:
    """Append where each record of a block begins in `data`."""
    position, stop = base, base + len(block.data)
    try:
        for _ in range(block.rows):
            starts.append(position)
            position = skip(data, position, stop)
        if position != stop:
            raise BrokenRecordError(f"{stop - position} bytes are left behind its {block.rows} records")
    except BrokenRecordError as error:
        raise _damaged(name, block.start, f"is damaged: {error}") from None


# ---- blocks and header


class _Data:
    """The bytes of a file, read ahead: blocks are small, and each read of an object store is a request."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._start = 0
        self._ahead = b""
        self.size = file.seek(0, os.SEEK_END)

    def at(self, start: int, size: int) -> bytes:
        """The bytes from `start` on: `size`, or fewer at the end of the file."""
        if not self._start <= start <= start + size <= self._start + len(self._ahead):
            self._file.seek(start)
            self._start, self._ahead = start, self._file.read(max(size, min(_AHEAD_BYTES, self.size - start)))
        begin = start - self._start
        return self._ahead[begin : begin + size]


def _behind_marker(data: _Data, header: _Header, start: int) -> int:
    """Where the first block begins whose predecessor ends at `start` or later; the size of the file if there is none."""
    while start < data.size:
        window = data.at(start, min(_AHEAD_BYTES, data.size - start))
        found = window.find(header.sync)
        if found >= 0:
            return start + found + _SYNC_BYTES
        start += max(1, len(window) - _SYNC_BYTES + 1)
    return data.size


def _damaged(name: str, start: int, what: str) -> DamagedInputError:
    return DamagedInputError(f"{name}: the block at byte {start} {what}")


def _block(data: _Data, name: str, header: _Header, start: int) -> tuple[int, bytes, int]:
    """(the records of a block, its bytes, where the next one begins)."""
    head = data.at(start, _COUNTS_BYTES)
    try:
        rows, position = read_long(head, 0, len(head))
        size, position = read_long(head, position, len(head))
    except BrokenRecordError as error:
        raise _damaged(name, start, f"has no counts: {error}") from None
    if rows < 0 or not 0 <= size <= MAX_BLOCK_BYTES:
        raise _damaged(name, start, f"says that it has {rows} records in {size} bytes")
    stored = data.at(start + position, size + _SYNC_BYTES)
    if len(stored) < size + _SYNC_BYTES or stored[size:] != header.sync:
        raise _damaged(name, start, "does not end with the marker that blocks of this file end with")
    try:
        content = _CODECS[header.codec].decompress(stored[:size])
    except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise _damaged(name, start, f"cannot be decompressed ({header.codec}): {error}") from None
    if rows > 8 * len(content) + 1024:
        raise _damaged(name, start, f"says that it has {rows} records in {len(content)} bytes")
    return rows, content, start + position + size + _SYNC_BYTES


def _header(data: _Data, name: str) -> _Header:
    head = data.at(0, min(64 << 10, data.size))
    try:
        if not head.startswith(_MAGIC):
            raise BrokenRecordError("it does not begin with Obj and 1")
        try:
            described, size = _metadata(head)
        except BrokenRecordError:
            head = data.at(0, min(_HEADER_BYTES, data.size))  # a long schema
            described, size = _metadata(head)
        codec = described.get("avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise BrokenRecordError(f"it is compressed with '{codec}', expected {', '.join(_CODECS)}")
        schema = parse_schema(described.get("avro.schema", b"").decode())
    except (BrokenRecordError, AvroSchemaError, UnicodeDecodeError) as error:
        raise DamagedInputError(f"{name} is no Avro file or is truncated: {error}") from None
    return _Header(schema, codec, head[size - _SYNC_BYTES : size], size)


def _metadata(head: bytes) -> tuple[dict[str, bytes], int]:
    """(what the header's map says, where the first block begins)."""
    found: dict[str, bytes] = {}
    position, stop = len(_MAGIC), len(head)
    while True:
        count, position = read_long(head, position, stop)
        if count < 0:
            count = -count
            _, position = read_long(head, position, stop)
        for _ in range(min(count, stop)):
            key, position = _bytes(head, position, stop)
            found[key.decode(errors="replace")], position = _bytes(head, position, stop)
        if count == 0:
            if position + _SYNC_BYTES > stop:
                raise BrokenRecordError("its header ends too early")
            return found, position + _SYNC_BYTES


def _bytes(data: bytes, position: int, stop: int) -> tuple[bytes, int]:
    size, position = read_long(data, position, stop)
    if not 0 <= size <= stop - position:
        raise BrokenRecordError("its header ends too early")
    return data[position : position + size], position + size


# ---- compression


@record
class _Codec:
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]


def _bounded(data: bytes, more: bool) -> bytes:
    if more or len(data) > MAX_BLOCK_BYTES:
        raise ValueError(f"it holds more than {MAX_BLOCK_BYTES >> 20} MB")
    return data


def _inflate(data: bytes) -> bytes:
    decompressor = zlib.decompressobj(-15)
    found = decompressor.decompress(data, MAX_BLOCK_BYTES)
    if not decompressor.eof and not decompressor.unconsumed_tail:
        raise ValueError("it ends too early")
    return _bounded(found, bool(decompressor.unconsumed_tail))


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def _from_snappy(data: bytes) -> bytes:
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    _bounded(b"", size > MAX_BLOCK_BYTES)
    found: bytes = pa.decompress(data[:-4], decompressed_size=size, codec="snappy", asbytes=True)
    if struct.pack(">I", zlib.crc32(found)) != data[-4:]:
        raise ValueError("its checksum is wrong")
    return found


def _to_snappy(data: bytes) -> bytes:
    stored: bytes = pa.compress(data, codec="snappy", asbytes=True)
    return stored + struct.pack(">I", zlib.crc32(data))


def _from_bzip2(data: bytes) -> bytes:
    decompressor = bz2.BZ2Decompressor()
    found = decompressor.decompress(data, MAX_BLOCK_BYTES)
    return _bounded(found, not decompressor.eof)


def _from_xz(data: bytes) -> bytes:
    decompressor = lzma.LZMADecompressor(memlimit=2 * MAX_BLOCK_BYTES)
    found = decompressor.decompress(data, MAX_BLOCK_BYTES)
    return _bounded(found, not decompressor.eof)


def _from_zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        found: bytes = stream.read(MAX_BLOCK_BYTES + 1)
    return _bounded(found, False)


def _to_zstandard(data: bytes) -> bytes:
    stored: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return stored


_CODECS = {
    "null": _Codec(lambda data: data, lambda data: data),
    "deflate": _Codec(_deflate, _inflate),
    "snappy": _Codec(_to_snappy, _from_snappy),
    "bzip2": _Codec(bz2.compress, _from_bzip2),
    "xz": _Codec(lzma.compress, _from_xz),
    "zstandard": _Codec(_to_zstandard, _from_zstandard),
}
CODECS = tuple(_CODECS)
"""The compressions that files may have."""


# ---- writing


class ContainerWriter:
    """Writes a container file; rows wait in memory until they fill a block."""

    def __init__(self, file: IO[bytes], schema: Schema, codec: str, *, legacy_timestamps: bool) -> None:
        self._file = file
        self._codec = codec
        self._encoder = AvroEncoder(schema)
        self._sync = os.urandom(_SYNC_BYTES)
        self._pending: list[pa.Array] = []
        self._pending_bytes = 0
        text = schema_text(schema, legacy_timestamps=legacy_timestamps)
        described = _pair("avro.codec", codec.encode()) + _pair("avro.schema", text.encode())
        file.write(_MAGIC + _long(2) + described + _long(0) + self._sync)

    def write(self, columns: pa.RecordBatch) -> None:
        """Add rows; blocks that are full are written."""
        records = self._encoder.encode_messages(columns)
        self._pending.append(records)
        self._pending_bytes += len(joined_bytes(records))
        if self._pending_bytes >= BLOCK_BYTES:
            self._write_blocks()

    def _write_blocks(self) -> None:
        records = pa.concat_arrays(self._pending)
        ends = np.frombuffer(records.buffers()[1], np.int32)[records.offset : records.offset + len(records) + 1]
        self._pending, self._pending_bytes = [], 0
        begin = 0
        while begin < len(records):
            room = int(ends[begin]) + BLOCK_BYTES
            stop = min(max(begin + 1, int(np.searchsorted(ends, room, side="left"))), len(records))
            data = _CODECS[self._codec].compress(joined_bytes(records.slice(begin, stop - begin)).to_pybytes())
            self._file.write(_long(stop - begin) + _long(len(data)) + data + self._sync)
            begin = stop

    @property
    def written_bytes(self) -> int:
        """The size of the file in bytes, with the rows that wait."""
        return self._file.tell() + self._pending_bytes

    def finish(self) -> None:
        """Write the last block."""
        if self._pending:
            self._write_blocks()

    def abandon(self) -> None:
        """Drop what waits."""
        self._pending = []


def _long(value: int) -> bytes:
    bits = value << 1  # zigzag of a number that is not negative
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def _pair(key: str, value: bytes) -> bytes:
    return _long(len(key)) + key.encode() + _long(len(value)) + value


def create_reader(request: ReadRequest) -> FileReader:
    """The reader of container files (`FileFormat.create_reader`)."""
    return ContainerReader(request)


def create_writer(file: IO[bytes], schema: Schema, options: Options) -> FileWriter:
    """The writer of a container file (`FileFormat.create_writer`)."""
    legacy = options.flag("avro.timestamp_mapping.legacy")
    return ContainerWriter(file, schema, options.text("avro.codec"), legacy_timestamps=legacy)
