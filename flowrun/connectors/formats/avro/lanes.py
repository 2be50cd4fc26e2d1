"""Reads a value of each of many records at once: the primitive types of Avro, with NumPy.

A lane is a place in a record. All lanes stand at a value of the same type, and reading it moves each of them behind its value. A record
that is broken is noted with the reason, and its lane goes on in a run of zeros behind the data, so that nothing else has to know of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.avro.skipping import CUT_OFF, NO_LONG, BrokenRecordError, Skip, item_starts
from flowrun.core.arrays import Bools, Bytes, Integers, UInt64s

PADDING = 16
"""How many zeros there are behind the data."""

_CONTINUED = np.uint64(0x8080808080808080)
_DIGITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)
_INLINE = 12
"""The longest value that stands in a view itself."""


class Source:
    """The bytes of records, and which of the records are broken.

    Attributes:
        bytes: the data and `PADDING` zeros.
        end: where the zeros begin.
        failures: record → why it is broken.
    """

    def __init__(self, data: pa.Buffer | bytes | memoryview) -> None:
        self.end = len(data)
        self.bytes: Bytes = np.zeros(self.end + PADDING, np.uint8)
        self.bytes[: self.end] = np.frombuffer(data, np.uint8)
        self.buffer = pa.py_buffer(self.bytes)
        self.words = np.ndarray((self.end + PADDING - 7,), "<u8", self.bytes, strides=(1,))
        self.halves = np.ndarray((self.end + PADDING - 3,), "<u4", self.bytes, strides=(1,))
        self.failures: dict[int, str] = {}
        self._text: bytes | None = None

    @property
    def text(self) -> bytes:
        """The same bytes for code that looks at one at a time."""
        if self._text is None:
            self._text = self.bytes.tobytes()
        return self._text


class Lanes:
    """Places in records that are read in step.

    Args:
        source: the records.
        position: where each lane stands.
        stop: where its record ends.
        record: the index of its record.
    """

    def __init__(self, source: Source, position: Integers, stop: Integers, record: Integers) -> None:
        self.source = source
        self.position = position
        self.stop = stop
        self.record = record

    def __len__(self) -> int:
        return len(self.position)

    def some(self, which: Integers) -> Lanes:
        """A copy of some of the lanes."""
        return Lanes(self.source, self.position[which], self.stop[which], self.record[which])

    def follow(self, which: Integers, others: Lanes) -> None:
        """Move some of the lanes to where others, which were copied from them, stand now."""
        self.position[which] = others.position
        self.stop[which] = others.stop

    def fail(self, which: Bools, reason: str | Callable[[int], str]) -> None:
        """Note that the records of some lanes are broken; `reason` may be a function of the lane."""
        if not which.any():
            return
        failures = self.source.failures
        for lane in np.flatnonzero(which).tolist():
            text = reason if isinstance(reason, str) else reason(lane)
            failures.setdefault(int(self.record[lane]), text)
        self.position = np.where(which, self.source.end, self.position)
        self.stop = np.where(which, self.source.end, self.stop)

    def long(self) -> Integers:
        """Read an int or long of each lane: a `varint` whose lowest bit is the sign."""
        values = self.varint()
        return ((values >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(values & 1)

    def varint(self) -> Integers:
        """Read the 64 bits of a number of each lane: 7 bits a byte, the lowest first."""
        first = self.source.bytes[self.position]
        if not (first & 0x80).any():
            values = first.astype(np.int64)
            behind = self.position + 1
        else:
            values, behind = self._several_bytes()
        if (behind > self.stop).any():
            cut = behind > self.stop
            self.fail(cut, CUT_OFF)
            values = np.where(cut, 0, values)
            behind = np.where(cut, self.position, behind)
        self.position = behind
        return values

    def _several_bytes(self) -> tuple[Integers, Integers]:
        """(the bits of the number, where it ends), by the eight bytes at each place, all at once."""
        word: UInt64s = self.source.words[self.position]
        ends = ~word & _CONTINUED
        last = ends & (np.uint64(0) - ends)  # the highest bit of the last byte of the number
        inside = (last << np.uint64(1)) - np.uint64(1)
        size = (((inside & _ONES) * _ONES) >> np.uint64(56)).astype(np.int64)
        bits = word & inside & _DIGITS
        bits = (bits & np.uint64(0x007F007F007F007F)) | ((bits & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
        bits = (bits & np.uint64(0x00003FFF00003FFF)) | ((bits & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
        bits = (bits & np.uint64(0x0FFFFFFF)) | ((bits & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
        if not ends.all():
            self._more_than_eight(np.flatnonzero(ends == 0), bits, size)
        return bits.view(np.int64), self.position + size

    def _more_than_eight(self, which: Integers, bits: UInt64s, size: Integers) -> None:
        ninth = self.source.bytes[self.position[which] + 8]
        tenth = self.source.bytes[self.position[which] + 9]
        two = ninth >= 0x80
        bits[which] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        bits[which] |= np.where(two, tenth & 1, 0).astype(np.uint64) << np.uint64(63)
        size[which] = np.where(two, 10, 9)
        long = two & (tenth > 1)
        if long.any():
            too_long = np.zeros(len(self), np.bool_)
            too_long[which] = long & (self.position[which] + 10 <= self.stop[which])
            self.fail(too_long, NO_LONG)
            bits[too_long], size[too_long] = 0, 0

    def fixed(self, size: int) -> tuple[Integers, Integers]:
        """(where `size` bytes of each lane begin, how many they are: none if the record is broken)."""
        return self.taken(np.full(len(self), size, np.int64))

    def sized(self) -> tuple[Integers, Integers]:
        """(where the bytes or string of each lane begins, how many bytes it has)."""
        return self.taken(self.long())

    def taken(self, length: Integers) -> tuple[Integers, Integers]:
        """(where the next bytes of each lane begin, how many they are): `length`, or none if the record is broken."""
        wrong = (length > self.stop - self.position) | (length < 0)
        if wrong.any():
            minus = length < 0
            self.fail(minus, "a length is negative")
            self.fail(wrong & ~minus, CUT_OFF)
            length = np.where(wrong, 0, length)
        start = self.position
        self.position = start + length
        return start, length

    def boolean(self) -> Bools:
        """Read a boolean of each lane."""
        start, length = self.fixed(1)
        values = np.where(length > 0, self.source.bytes[start], 0)
        self.fail(values > 1, "a boolean is neither 0 nor 1")
        flags: Bools = values == 1
        return flags

    def bits(self, size: int) -> UInt64s | np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """Read the bits of a float (`size` 4) or double (8) of each lane."""
        start, _ = self.fixed(size)
        return self.source.words[start] if size == 8 else self.source.halves[start]

    def binary(self, start: Integers, length: Integers) -> pa.Array:
        """A binary array of the bytes at these places; they are copied."""
        rows = len(start)
        views = np.zeros((rows, 4), "<u4")
        views[:, 0] = length
        views[:, 1] = self.source.halves[start]
        views[:, 3] = start
        short = np.flatnonzero(length <= _INLINE)
        if len(short):
            places = start[short]
            views[short, 2] = self.source.halves[places + 4]
            views[short, 3] = self.source.halves[places + 8]
            texts = views.view(np.uint8).reshape(rows, 16)
            texts[short, 4:] *= _FIRST[length[short]]  # zeros behind the value
        found = pa.Array.from_buffers(pa.binary_view(), rows, [None, pa.py_buffer(views), self.source.buffer])
        return pc.cast(found, pa.binary())

    def text(self, start: Integers, length: Integers) -> pa.Array:
        """A string array of the texts at these places."""
        found = self.binary(start, length)
        try:
            return pc.cast(found, pa.string())
        except pa.ArrowInvalid:
            values = found.to_pylist()
            wrong = np.fromiter((not _is_utf8(v) for v in values), np.bool_, len(values))
            self.fail(wrong, "a text is not UTF-8")
            return pc.cast(pc.if_else(pa.array(wrong), b"", found), pa.string())

    def items(self, skip: Skip, least: int) -> tuple[Lanes, Integers]:
        """(lanes at the items of the array or map at which each lane stands, how many items each lane has).

        Args:
            skip: finds the end of an item.
            least: how many bytes an item takes at least.
        """
        starts: list[int] = []
        lengths = np.zeros(len(self), np.int64)
        behind = self.position.copy()
        reasons: dict[int, str] = {}
        text = self.source.text
        for lane, (position, stop) in enumerate(zip(self.position.tolist(), self.stop.tolist(), strict=True)):
            before = len(starts)
            try:
                behind[lane] = item_starts(text, position, stop, skip, least, starts)
            except BrokenRecordError as error:
                reasons[lane] = str(error)
                del starts[before:]
            lengths[lane] = len(starts) - before
        self.position = behind
        self._fail_some(reasons)
        stops, records = np.repeat(self.stop, lengths), np.repeat(self.record, lengths)
        return Lanes(self.source, np.array(starts, np.int64), stops, records), lengths

    def skip(self, skip: Skip) -> None:
        """Go behind a value of each lane, one after the other."""
        behind = self.position.copy()
        reasons: dict[int, str] = {}
        text = self.source.text
        for lane, (position, stop) in enumerate(zip(self.position.tolist(), self.stop.tolist(), strict=True)):
            try:
                behind[lane] = skip(text, position, stop)
            except BrokenRecordError as error:
                reasons[lane] = str(error)
        self.position = behind
        self._fail_some(reasons)

    def _fail_some(self, reasons: dict[int, str]) -> None:
        if reasons:
            broken = np.zeros(len(self), np.bool_)
            broken[list(reasons)] = True
            self.fail(broken, lambda lane: reasons[lane])


_FIRST = (np.arange(_INLINE)[None, :] < np.arange(_INLINE + 1)[:, None]).astype(np.uint8)
"""Length → which of twelve bytes belong to a value of that length, as 0 and 1."""


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
