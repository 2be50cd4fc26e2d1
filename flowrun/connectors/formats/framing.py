"""Finds where records begin and end in the bytes of a file.

`LineFramer` ends a record at every line end. `QuotedFramer`, for CSV, does not end it at a line end between quotes: as long as the number
of quotes before each line end is even, counting them is enough; only blocks with an odd count are scanned field by field.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.format import Framer, Offsets, RecordChunk
from flowrun.core.arrays import Bytes
from flowrun.core.options import Options

_LINE_FEED, _CARRIAGE_RETURN, _HASH = 10, 13, ord("#")
MAX_QUOTED_RECORD_BYTES = 16 << 20
"""The longest quoted record. In a longer one the quote is taken for a mistake: its first line is a bad record, the next line another."""


class LineFramer:
    """Takes each line for a record, which ends with LF or CR LF. Empty lines are none, nor, with `comments`, lines that begin with #."""

    def __init__(self, *, comments: bool = False) -> None:
        self._comments = comments

    def frame(self, data: bytes | memoryview, at_end: bool) -> tuple[RecordChunk, int]:
        """The complete lines of the data; see `Framer`."""
        bytes_ = np.frombuffer(data, np.uint8)
        ends = _line_ends(bytes_, at_end)
        return _chunk(data, bytes_, ends, self._comments)


class QuotedFramer:
    """Takes each line for a record, except that quoted fields may contain line ends.

    Args:
        delimiter: the byte between fields.
        quote: the byte around quoted fields.
        escape: the byte that makes the next one literal; None: there is none.
        comments: whether lines that begin with # are no records.
    """

    def __init__(self, delimiter: bytes, quote: bytes, escape: bytes | None, *, comments: bool = False) -> None:
        self._delimiter = delimiter
        self._quote = quote
        self._escape = escape
        self._comments = comments

    def frame(self, data: bytes | memoryview, at_end: bool) -> tuple[RecordChunk, int]:
        """The complete records of the data; see `Framer`."""
        bytes_ = np.frombuffer(data, np.uint8)
        ends = _line_ends(bytes_, at_end)
        quotes = np.flatnonzero(bytes_ == self._quote[0])
        odd = len(quotes) and ((np.searchsorted(quotes, ends) % 2).any() or (not at_end and len(quotes) % 2))
        if odd or (self._escape is not None and (bytes_ == self._escape[0]).any()):
            ends = self._scan(bytes(data), at_end)
        return _chunk(data, bytes_, ends, self._comments)

    def _scan(self, data: bytes, at_end: bool) -> Offsets:
        """The ends of the records, found field by field."""
        ends: list[int] = []
        start, size = 0, len(data)
        while start < size:
            end = self._record_end(data, start)
            if end is None:
                if not at_end and size - start <= MAX_QUOTED_RECORD_BYTES:
                    break
                line_end = data.find(b"\n", start)  # the quote is never closed: only this line is a bad record
                end = size if line_end < 0 else line_end
            elif end >= size and not at_end:
                break
            ends.append(end)
            start = end + 1
        return np.array(ends, np.int64)

    def _record_end(self, data: bytes, start: int) -> int | None:
        """The position of the line end behind a record; the size of `data` if there is none; None if a quote stays open."""
        position, size = start, len(data)
        if self._comments and data[start : start + 1] == b"#":
            end = data.find(b"\n", start)
            return size if end < 0 else end
        while True:
            if data[position : position + 1] == self._quote:
                closing = self._closing_quote(data, position + 1)
                if closing is None or closing - start > MAX_QUOTED_RECORD_BYTES:
                    return None
                position = closing + 1
            position = self._field_end(data, position)
            if position >= size:
                return size
            if data[position] == _LINE_FEED:
                return position
            position += 1

    def _closing_quote(self, data: bytes, position: int) -> int | None:
        quote, escape = self._quote, self._escape
        while True:
            found = data.find(quote, position)
            if escape is not None and escape != quote:
                escaped = data.find(escape, position, None if found < 0 else found)
                if escaped >= 0:
                    position = escaped + 2
                    continue
            if found < 0:
                return None
            if data[found + 1 : found + 2] != quote:
                return found
            position = found + 2

    def _field_end(self, data: bytes, position: int) -> int:
        line_end = data.find(b"\n", position)
        line_end = len(data) if line_end < 0 else line_end
        delimiter = data.find(self._delimiter, position, line_end)
        end = line_end if delimiter < 0 else delimiter
        if self._escape is not None:
            escaped = data.find(self._escape, position, end)
            if escaped >= 0:
                return self._field_end(data, escaped + 2)
        return end


def _line_ends(bytes_: Bytes, at_end: bool) -> Offsets:
    """The positions of the line feeds; at the end of the file also the end of a last line without one."""
    ends = np.flatnonzero(bytes_ == _LINE_FEED)
    if at_end and len(bytes_) and (not len(ends) or ends[-1] != len(bytes_) - 1):
        ends = np.append(ends, len(bytes_))
    return ends


def _chunk(data: bytes | memoryview, bytes_: Bytes, ends: Offsets, comments: bool) -> tuple[RecordChunk, int]:
    buffer = pa.py_buffer(data)
    if not len(ends):
        return RecordChunk(buffer, ends, ends), 0
    consumed = min(int(ends[-1]) + 1, len(data))
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    stops = ends - ((ends > starts) & (bytes_[ends - 1] == _CARRIAGE_RETURN))
    filled = stops > starts
    if not filled.all():
        starts, stops = starts[filled], stops[filled]
    chunk = RecordChunk(buffer, starts, stops)
    if comments and len(starts):
        comment = bytes_[starts] == _HASH
        if comment.any():  # comments between records are no white space: the records of the chunk are not contiguous
            chunk = RecordChunk(buffer, starts[~comment], stops[~comment], separated=False)
    return chunk, consumed


def framer_for_lines(_options: Options) -> Framer:
    """Creates the framer of formats whose records are lines (`RecordFormat.create_framer`)."""
    return LineFramer()


def at_any_line(_options: Options) -> bool:
    """True: a file whose records are lines can be split at any line end (`RecordFormat.splittable`)."""
    return True
