"""Columns of generated values, each a pure function of (seed, row number). Each class makes one kind of values."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.counter_random import Int64s, random_uint64, scale_to_range, to_unit_interval
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import OptionError

_NULL_STREAM = 1 << 20
_LENGTH_STREAM = 1 << 21
_PART_STREAM = 1 << 8
INTEGER_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INTEGER: 32, TypeRoot.BIGINT: 64}
_DEFAULT_TEXT_LENGTH = 100
_DEFAULT_LIST_LENGTH = 3
_HEX_PAIRS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)


class ColumnGenerator(Protocol):
    """Makes the values of one column."""

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """Values of rows `start` … `start + count − 1`; row n's nominal time is `origin_ms` + n · 1000 / `rows_per_second`."""
        ...


@record
class SequenceColumn:
    """The numbers `first`, `first` + 1, …: `length` values, or values without end if it is None."""

    type: DataType
    first: int
    length: int | None

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """The numbers of the rows, cast to the column's type."""
        numbers = pa.array(np.arange(self.first + start, self.first + start + count, dtype=np.int64))
        return numbers if self.type.root is TypeRoot.BIGINT else pc.cast(numbers, self.type.arrow)


@record
class IntegerColumn:
    """Uniform integers in [low, high]."""

    type: DataType
    seed: int
    stream: int
    low: int
    high: int

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """Uniform integers."""
        drawn = scale_to_range(random_uint64(self.seed, self.stream, start, count), self.low, self.high)
        return (
            pa.array(drawn)
            if self.type.root is TypeRoot.BIGINT
            else pa.array(drawn.astype(self.type.arrow.to_pandas_dtype()))
        )


@record
class RealColumn:
    """Uniform FLOAT, DOUBLE or DECIMAL values in [low, high)."""

    type: DataType
    seed: int
    stream: int
    low: float
    high: float

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """Uniform reals, rounded to the type."""
        bits = random_uint64(self.seed, self.stream, start, count)
        if self.type.root is TypeRoot.DECIMAL:
            scale = self.type.scale or 0
            unscaled = scale_to_range(bits, round(self.low * 10**scale), round(self.high * 10**scale))
            whole = pc.cast(pa.array(unscaled), pa.decimal128(19, 0))
            return _shift_decimal(whole, self.type)
        drawn = self.low + to_unit_interval(bits) * (self.high - self.low)
        return pa.array(drawn.astype(np.float32) if self.type.root is TypeRoot.FLOAT else drawn)


def _shift_decimal(whole: pa.Array, kind: DataType) -> pa.Array:
    """Whole decimals as the unscaled values of another type: the 128-bit buffer is the same, only the type changes."""
    return pa.Array.from_buffers(kind.arrow, len(whole), whole.buffers())


@record
class BooleanColumn:
    """True or false, each with probability ½."""

    seed: int
    stream: int

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """One bit for each row."""
        return pa.array((random_uint64(self.seed, self.stream, start, count) & np.uint64(1)).astype(bool))


@record
class TextColumn:
    """Random hexadecimal strings or random bytes: `length` of them in each value, or 1 to `length`."""

    type: DataType
    seed: int
    stream: int
    length: int
    variable: bool

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """Texts that are slices of one buffer."""
        per_word = 8 if self.type.is_binary else 16
        words = max(1, -(-self.length // per_word))
        bits = np.empty((count, words), np.uint64)
        for word in range(words):
            bits[:, word] = random_uint64(self.seed, self.stream + _PART_STREAM * (word + 1), start, count)
        raw = bits.view(np.uint8)
        text = raw if self.type.is_binary else _HEX_PAIRS[raw].view(np.uint8)
        if self.variable and self.length > 1:
            lengths = scale_to_range(
                random_uint64(self.seed, self.stream + _LENGTH_STREAM, start, count), 1, self.length
            )
            data = text[:, : self.length][np.arange(self.length) < lengths[:, None]]
        else:
            lengths = np.full(count, self.length, np.int64)
            data = np.ascontiguousarray(text[:, : self.length])
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.Array.from_buffers(self.type.arrow, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@record
class TimeColumn:
    """The row's nominal time less up to `max_past_ms`, as TIMESTAMP, TIMESTAMP_LTZ, DATE or TIME (UTC)."""

    type: DataType
    seed: int
    stream: int
    max_past_ms: int

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """Times shortly before the nominal time of each row."""
        times: Int64s = origin_ms + np.arange(start, start + count, dtype=np.int64) * 1000 // rows_per_second
        if self.max_past_ms:
            times -= scale_to_range(random_uint64(self.seed, self.stream, start, count), 0, self.max_past_ms)
        moments = pa.array(times).cast(pa.timestamp("ms"))
        if self.type.root is TypeRoot.TIMESTAMP_LTZ:
            return pc.assume_timezone(moments, "UTC").cast(self.type.arrow)
        return moments.cast(self.type.arrow)


@record
class ListColumn:
    """Arrays or maps of `length` random elements."""

    type: DataType
    parts: tuple[ColumnGenerator, ...]
    length: int

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """`length` elements for each row, which are drawn from streams of their own."""
        items = [
            p.values(start * self.length, count * self.length, origin_ms, rows_per_second * max(self.length, 1))
            for p in self.parts
        ]
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * self.length)
        if self.type.root is TypeRoot.MAP:
            return pa.MapArray.from_arrays(offsets, items[0], items[1])
        return pa.ListArray.from_arrays(offsets, items[0])


@record
class RowColumn:
    """Rows of random fields."""

    type: DataType
    parts: tuple[ColumnGenerator, ...]

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """One struct for each row."""
        fields = [p.values(start, count, origin_ms, rows_per_second) for p in self.parts]
        return pa.StructArray.from_arrays(fields, fields=list(self.type.arrow))


@record
class NullableColumn:
    """Another column with a share of its values replaced by NULL."""

    inner: ColumnGenerator
    seed: int
    stream: int
    null_rate: float

    def values(self, start: int, count: int, origin_ms: int, rows_per_second: int) -> pa.Array:
        """The inner values, some NULL."""
        drawn = self.inner.values(start, count, origin_ms, rows_per_second)
        chance = to_unit_interval(random_uint64(self.seed, self.stream + _NULL_STREAM, start, count))
        kept = np.arange(count, dtype=np.int64)
        return drawn.take(pa.array(kept, mask=chance < self.null_rate))


def random_column(prefix: str, kind: DataType, options: Options, seed: int, stream: int) -> ColumnGenerator:
    """The generator of a random column.

    Args:
        prefix: the prefix of the column's options, e.g. `fields.amount`.
        kind: the column's type.
        options: the parsed options of `datagen`.
        seed: the seed of the whole source.
        stream: distinguishes the column's draws from those of others.

    Raises:
        OptionError: an option does not fit the type.
    """
    _refuse_misplaced(prefix, kind, options)
    column = _column_of(prefix, kind, options, seed, stream)
    rate = options.get(f"{prefix}.null-rate")
    if rate is None or float(rate) == 0:
        return column
    if not float(rate) <= 1:  # so that NaN is refused too
        raise OptionError(f"{prefix}.null-rate", f"datagen: '{prefix}.null-rate' must be 0 to 1, got {rate}")
    return NullableColumn(column, seed, stream, float(rate))


def _refuse_misplaced(prefix: str, kind: DataType, options: Options) -> None:
    """Raise an OptionError for an option that does not apply to a column of this type."""
    is_text = kind.is_character or kind.is_binary
    fitting = {
        "min": kind.is_numeric,
        "max": kind.is_numeric,
        "max-past": kind.is_temporal,
        "length": is_text or kind.root in (TypeRoot.ARRAY, TypeRoot.MAP),
        "var-len": is_text,
    }
    for name, fits in fitting.items():
        option = f"{prefix}.{name}"
        if not fits and options.get(option) is not None:
            raise OptionError(option, f"datagen: '{option}' means nothing for a column of type {kind}")


def _column_of(prefix: str, kind: DataType, options: Options, seed: int, stream: int) -> ColumnGenerator:
    def part(name: str, of: DataType, number: int) -> ColumnGenerator:
        return random_column(f"{prefix}.{name}", of, options, seed, stream * 31 + number + _PART_STREAM)

    if kind.is_integer:
        bits = INTEGER_BITS[kind.root]
        low, high = _bounds(prefix, options, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        return IntegerColumn(kind, seed, stream, int(low), int(high))
    if kind.is_approximate:
        low, high = _bounds(prefix, options, 0.0, 1.0)
        return RealColumn(kind, seed, stream, float(low), float(high))
    if kind.root is TypeRoot.DECIMAL:
        largest = 10 ** min((kind.precision or 10) - (kind.scale or 0), 18 - min(kind.scale or 0, 18)) - 1
        low, high = _bounds(prefix, options, 0, largest)
        return RealColumn(kind, seed, stream, float(low), float(high))
    if kind.is_temporal:
        return TimeColumn(kind, seed, stream, int(options.get(f"{prefix}.max-past") or 0))
    if kind.is_character or kind.is_binary:
        default = kind.length if kind.length is not None else _DEFAULT_TEXT_LENGTH
        length = options.get(f"{prefix}.length")
        wanted = default if length is None else int(length)
        if kind.length is not None and wanted > kind.length:
            raise OptionError(f"{prefix}.length", f"datagen: '{prefix}.length' ({wanted}) exceeds {kind}")
        return TextColumn(kind, seed, stream, wanted, options.get(f"{prefix}.var-len") is True)
    if kind.root is TypeRoot.BOOLEAN:
        return BooleanColumn(seed, stream)
    length = options.get(f"{prefix}.length")
    size = _DEFAULT_LIST_LENGTH if length is None else int(length)
    match kind.root:
        case TypeRoot.ARRAY:
            return ListColumn(kind, (part("element", kind.children[0], 0),), size)
        case TypeRoot.MAP:
            return ListColumn(kind, (part("key", kind.children[0], 0), part("value", kind.children[1], 1)), size)
        case TypeRoot.ROW:
            return RowColumn(
                kind, tuple(part(n, c, i) for i, (n, c) in enumerate(zip(kind.names, kind.children, strict=True)))
            )
        case _:
            raise OptionError(prefix, f"datagen cannot make values of type {kind} ({prefix})")


def _bounds(prefix: str, options: Options, low: float, high: float) -> tuple[float, float]:
    given_low, given_high = options.get(f"{prefix}.min"), options.get(f"{prefix}.max")
    smallest = low if given_low is None or isinstance(given_low, str) else given_low
    largest = high if given_high is None or isinstance(given_high, str) else given_high
    if smallest > largest:
        raise OptionError(f"{prefix}.min", f"datagen: '{prefix}.min' ({smallest}) exceeds '{prefix}.max' ({largest})")
    return smallest, largest
