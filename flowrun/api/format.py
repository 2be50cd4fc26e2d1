"""The contract of formats: how bytes become rows and rows become bytes, whatever connector moves them.

There are two kinds. A *record format* (JSON, CSV, raw) turns single records, each a run of bytes, into rows: files hold them behind
a framing (usually one a line), message queues deliver them one by one. A *file format* (Parquet) owns the layout of a whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import IO, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.changelog import ChangelogMode
from flowrun.api.client_library import ClientLibrary
from flowrun.api.connector import PushedFilter
from flowrun.core.arrays import Bools, Integers
from flowrun.core.options import Option, Options
from flowrun.core.record import record
from flowrun.core.schema import Schema

_LINE_FEED, _CARRIAGE_RETURN = b"\n\r"
Offsets = Integers
"""Byte positions, int64."""


@record
class RecordChunk:
    """Records in one buffer: record i is `data[starts[i]:stops[i]]`, in ascending order, without its line end.

    Attributes:
        separated: nothing but line ends and white space stands between two records, and no record holds a line end, so that
            `data[starts[i]:stops[j]]` is a text of whole lines. False for message payloads, which touch each other.
    """

    data: pa.Buffer
    starts: Offsets
    stops: Offsets
    separated: bool = True

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, index: int) -> bytes:
        """The bytes of one record (a copy)."""
        view = memoryview(self.data)
        return bytes(view[int(self.starts[index]) : int(self.stops[index])])

    def slice(self, start: int, stop: int) -> RecordChunk:
        """Records `start` ≤ i < `stop`, zero-copy."""
        return RecordChunk(self.data, self.starts[start:stop], self.stops[start:stop], self.separated)

    def select(self, keep: Bools) -> RecordChunk:
        """The records whose flag is true, copied together one a line."""
        return RecordChunk(self.data, self.starts[keep], self.stops[keep], self.separated).as_lines()

    def as_lines(self) -> RecordChunk:
        r"""The same records, copied together one a line. `separated` holds if none contains a line end.

        >>> messages_chunk(pa.array([b"x", b"yz"])).as_lines().data.to_pybytes()
        b'x\nyz\n'
        """
        if not len(self):
            return lines_chunk([])
        lines = pc.binary_join_element_wise(self._records(), b"\n", b"")
        _, offsets, data = lines.buffers()
        width = np.int64 if pa.types.is_large_binary(lines.type) else np.int32
        ends = np.frombuffer(offsets, width)[: len(lines) + 1].astype(np.int64)
        every = np.frombuffer(data, np.uint8)[: ends[-1]]
        whole = np.count_nonzero(every == _LINE_FEED) == len(lines) and not (every == _CARRIAGE_RETURN).any()
        return RecordChunk(data, ends[:-1], ends[1:] - 1, bool(whole))

    def _records(self) -> pa.Array:
        """The records as a binary array."""
        total = int((self.stops - self.starts).sum())
        wide = max(len(self.data), total + len(self)) >= 1 << 31
        kind, width = (pa.large_binary(), np.int64) if wide else (pa.binary(), np.int32)
        if np.array_equal(self.starts[1:], self.stops[:-1]):
            borders = np.append(self.starts, self.stops[-1]).astype(width)
            return pa.Array.from_buffers(kind, len(self), [None, pa.py_buffer(borders), self.data])
        ends = np.empty((len(self), 2), width)
        ends[:, 0] = self.starts
        ends[:, 1] = self.stops
        runs = pa.Array.from_buffers(kind, 2 * len(self) - 1, [None, pa.py_buffer(ends), self.data])
        return runs.take(pa.array(np.arange(0, 2 * len(self), 2)))  # every other run is what stands between two records


def lines_chunk(records: Sequence[bytes]) -> RecordChunk:
    """A chunk of the given records. `separated` holds if no record contains a line end.

    >>> chunk = lines_chunk([b"a", b"bc"])
    >>> chunk.record(1), chunk.separated
    (b'bc', True)
    """
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    stops = np.cumsum(lengths + 1) - 1
    lines = b"\n".join(records)
    whole = lines.count(b"\n") == max(len(records) - 1, 0) and b"\r" not in lines
    return RecordChunk(pa.py_buffer(lines), stops - lengths, stops, whole)


def messages_chunk(payloads: pa.Array) -> RecordChunk:
    """A chunk over a binary or string array of message payloads, zero-copy. NULLs (tombstones) must be gone.

    >>> messages_chunk(pa.array([b"x", b"yz"])).record(1)
    b'yz'
    """
    _, offsets, data = payloads.buffers()
    width = np.int64 if pa.types.is_large_binary(payloads.type) or pa.types.is_large_string(payloads.type) else np.int32
    ends = np.frombuffer(offsets, width)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
    return RecordChunk(data if data is not None else pa.py_buffer(b""), ends[:-1], ends[1:], separated=False)


@record
class BadRecord:
    """A record that is no row of the schema: its index in the chunk, and why, in words for users."""

    index: int
    reason: str


@record
class DecodedRecords:
    """What a chunk decoded to.

    Attributes:
        columns: the good rows in record order, with the decoder's schema.
        records: for each row the index of its record, ascending; records in neither `records` nor `bad` hold no row (blank). A record
            of a format that carries changes may hold several rows.
        bad: records that could not be decoded, ascending.
        kinds: `RowKind` of each row, int8; None: all are inserts.
    """

    columns: pa.RecordBatch
    records: Offsets
    bad: tuple[BadRecord, ...] = ()
    kinds: pa.Int8Array | None = None


class RecordDecoder(Protocol):
    """Turns records into rows, in one thread. May adapt itself to the data it has seen, but the result never depends on that."""

    @property
    def has_header(self) -> bool:
        """Whether a file's first record names its columns; the caller then passes it to `read_header` and not to `decode`."""
        ...

    def read_header(self, record: bytes) -> None:
        """Take the column order from a file's first record. Raises DataError."""
        ...

    def decode(self, chunk: RecordChunk) -> DecodedRecords:
        """Rows of the chunk. Never raises because of the data: what is wrong is reported in `bad`.

        The rows must not refer to the chunk's buffer: the caller may read the next block into it.
        """
        ...


class RecordEncoder(Protocol):
    """Turns rows into bytes."""

    def header(self) -> bytes:
        """What a file begins with, before its first row; mostly nothing."""
        ...

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All rows as whole lines, each ending in a line end."""
        ...

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """One payload a row (string or binary array), without line ends; see `RecordFormat.null_is_no_message` for NULL."""
        ...


@runtime_checkable
class RefusingEncoder(RecordEncoder, Protocol):
    """An encoder that cannot write every value, and can say so before anything is written."""

    @property
    def refuses(self) -> bool:
        """Whether, with these options, there is a value that it cannot write."""
        ...

    def check(self, columns: pa.RecordBatch) -> None:
        """Whether all rows can be written.

        Raises:
            DataError: one cannot.
        """
        ...


@runtime_checkable
class ChangeEncoder(RecordEncoder, Protocol):
    """The encoder of a format that carries changes; its other methods take all rows for inserts."""

    def encode_changes(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Buffer:
        """All rows as whole lines that say which change each row is."""
        ...

    def encode_change_messages(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Array:
        """One payload a row that says which change it is, without line ends."""
        ...


class Framer(Protocol):
    """Finds the records in the bytes of a file."""

    def frame(self, data: bytes | memoryview, at_end: bool) -> tuple[RecordChunk, int]:
        """Whole records at the start of `data`, and the number of bytes that they take with their line ends.

        Args:
            data: begins at the start of a record.
            at_end: nothing follows: a last record without line end counts.
        """
        ...


@record
class ReadRequest:
    """What a source wants of a format.

    Attributes:
        schema: columns to produce, in order (already pruned).
        declared: all columns that the user declared; positions in formats without names (CSV) follow these.
        filters: hints for reading less.
        options: all parsed options, keyed with the format's prefix: `json.ignore-parse-errors`.
    """

    schema: Schema
    declared: Schema
    options: Options
    filters: tuple[PushedFilter, ...] = ()


def _nowhere(_options: Options) -> bool:
    """False: a file must be read from its beginning."""
    return False


@record
class RecordFormat:
    """A format of single records. `options` are declared without the format's prefix.

    `check` raises OptionError for options or column types that the format cannot serve; it does no I/O. All callables are
    module-level functions, so that formats pickle by name.
    """

    name: str
    summary: str
    extension: str
    options: tuple[Option, ...]
    check: Callable[[Schema, Options], None]
    create_decoder: Callable[[ReadRequest], RecordDecoder]
    create_encoder: Callable[[Schema, Options], RecordEncoder]
    create_framer: Callable[[Options], Framer] | None = None
    """How records are told apart in a file; None: a record may hold any byte, so that files of them are `container`s, or there are none."""
    splittable: Callable[[Options], bool] = _nowhere
    """Whether a reader may start at any byte and find the next record by its line end alone."""
    changelog: bool = False
    """Whether records say which change they are: decoders may give row kinds, and encoders are `ChangeEncoder`s."""
    upserts: Callable[[Options], bool] | None = None
    """Whether rows of a format that carries changes are upserts, as the options say (see `ChangelogMode.UPSERT`); None: never."""
    client: ClientLibrary | None = None
    """What must be installed to use it; its options and checks do without."""
    container: FileFormat | None = None
    """The layout of files of this format, if they are not records behind a framing; it has the same options."""
    check_lines: Callable[[Schema, Options], None] | None = None
    """As `check`, of records that a line end or another delimiter ends; None: nothing more is to be said of these."""
    null_is_no_message: bool = False
    """Whether a row of its one column that is NULL is a message without value, so that encoders give NULL for it. Others never do."""

    def check_delimited(self, schema: Schema, options: Options) -> None:
        """`check`, and what `check_lines` says. It raises their errors."""
        self.check(schema, options)
        if self.check_lines is not None:
            self.check_lines(schema, options)

    def changelog_mode(self, options: Options) -> ChangelogMode:
        """Which changes decoded rows may be."""
        if not self.changelog:
            return ChangelogMode.APPEND
        return ChangelogMode.UPSERT if self.upserts is not None and self.upserts(options) else ChangelogMode.RETRACT


@record
class FilePart:
    """A range of units (row groups) of one file, with the bytes that it takes, for balancing."""

    first: int
    stop: int
    size: int


@record
class FileRows:
    """Rows of a file and where the next ones start: `unit` and `row` within it."""

    columns: pa.RecordBatch
    unit: int
    row: int


class FileReader(Protocol):
    """Reads files of one format, one or several, from one thread. `name` is for messages."""

    def parts(self, file: IO[bytes], name: str, target_bytes: int) -> Sequence[FilePart]:
        """Consecutive parts of about `target_bytes`, in order; units that the filters exclude may be missing."""
        ...

    def read(
        self, file: IO[bytes], name: str, first: int, row: int, stop: int | None, batch_rows: int
    ) -> Iterator[FileRows]:
        """Rows from row `row` of unit `first` up to unit `stop` (None: the last), in batches of at most `batch_rows`, lazily.

        `row` counts rows of the file, before filters. Raises DataError and ConnectorError.
        """
        ...


class FileWriter(Protocol):
    """Writes one file."""

    def write(self, columns: pa.RecordBatch) -> None:
        """Append rows; may buffer."""
        ...

    @property
    def written_bytes(self) -> int:
        """Bytes that the file takes so far, buffered rows included (estimated)."""
        ...

    def finish(self) -> None:
        """Complete the file; the caller closes it."""
        ...

    def abandon(self) -> None:
        """Release everything without completing the file, which will be removed; must not raise because of the disk."""
        ...


@record
class FileFormat:
    """A format of whole files. See `RecordFormat` for the common members."""

    name: str
    summary: str
    extension: str
    options: tuple[Option, ...]
    check: Callable[[Schema, Options], None]
    create_reader: Callable[[ReadRequest], FileReader]
    create_writer: Callable[[IO[bytes], Schema, Options], FileWriter]
    client: ClientLibrary | None = None
    """What must be installed to use it; its options and checks do without."""


Format = RecordFormat | FileFormat


@record
class ParsedColumn:
    """Values of a column, NULL where a value could not be read, and for each such row the reason."""

    values: pa.Array
    bad: dict[int, str] = field(default_factory=dict)
