"""Accumulators as words (see `slot_words`): counts, sums and kept values, to which partial results are added or subtracted.

A partial result is a list of Arrow columns, one entry a group: what `lift` makes of rows, what travels between a local and a global
aggregation, and what a state table holds. Sums never wrap: integers carry into a second word, decimals have 128 bits and fail beyond
38 digits, and floating point sums keep what each addition rounded off (Neumaier's sum), so that retractions take away what was added.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Integers, Words, as_type
from flowrun.core.decimal_words import decimal_words_or_zero
from flowrun.core.types import TypeRoot
from flowrun.operators.aggregation.dense import Reduction, from_words, is_addressable, to_words
from flowrun.operators.aggregation.grouping import reduce_ids
from flowrun.operators.aggregation.inputs import ArgumentReader
from flowrun.operators.aggregation.layout import PartialColumn
from flowrun.operators.aggregation.sums import check_carry, overflow, plan_sum
from flowrun.operators.keyed.row_log import RowLog

Partials = list[pa.Array]

_DECIMAL_HIGH, _DECIMAL_LOW = divmod(10**38, 1 << 64)
_SHORT_DECIMAL = 18
_SIGN = np.int64(63)
_SPARE_VALUES = 64 * 1024


class Accumulator(Protocol):
    """One accumulator of every group. All methods are for many groups at once.

    Attributes:
        initial: the words of a group without rows.
        fields: columns of its partial results; all nullable, as NULL is what has seen nothing.
    """

    @property
    def initial(self) -> tuple[int, ...]: ...

    @property
    def fields(self) -> tuple[pa.Field, ...]: ...

    def lift(self, reader: ArgumentReader, ids: Integers, total: int) -> Partials:
        """Partial results of rows, by group: `ids` are the groups 0 … total − 1 of the rows."""
        ...

    def merge(self, partials: Sequence[pa.Array], ids: Integers, total: int) -> Partials:
        """Partial results of partial results, by group."""
        ...

    def add(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        """The words with partial results added, one row a group."""
        ...

    def subtract(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        """The words with partial results taken away; not for kept values."""
        ...

    def partials(self, words: Words) -> Partials:
        """What the words hold as partial results."""
        ...

    def result(self, words: Words) -> pa.Array:
        """The accumulator as the aggregate's kernel takes it. Raises DataError if a sum overflows."""
        ...

    def captured(self) -> Accumulator:
        """The accumulator as it is now, for words of now; another thread may read it."""
        ...


class _Accumulator:
    def __init__(self, column: PartialColumn) -> None:
        self.column = column
        self.fields: tuple[pa.Field, ...] = (pa.field(column.name, column.type.arrow),)

    def captured(self) -> Self:
        return self


class Count(_Accumulator):
    """A number of rows, or of values."""

    initial = (0,)

    def lift(self, reader: ArgumentReader, ids: Integers, total: int) -> Partials:
        return reduce_ids(ids, total, reader.reductions(self.column))

    def merge(self, partials: Sequence[pa.Array], ids: Integers, total: int) -> Partials:
        return reduce_ids(ids, total, [Reduction("sum", partials[0])])

    def add(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        return words + _integers(partials[0])[:, None]

    def subtract(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        return words - _integers(partials[0])[:, None]

    def partials(self, words: Words) -> Partials:
        return [pa.array(words[:, 0])]

    def result(self, words: Words) -> pa.Array:
        return pa.array(np.maximum(words[:, 0], 0))  # below 0 only after retractions of what was never added


class IntegerSum(_Accumulator):
    """A sum of integers as word + carry · 2^64."""

    initial = (0, 0)

    def __init__(self, column: PartialColumn) -> None:
        super().__init__(column)
        self.fields = (*self.fields, pa.field(column.companion, pa.int64()))

    def lift(self, reader: ArgumentReader, ids: Integers, total: int) -> Partials:
        return self._sums(reader.summands(self.column), None, ids, total)

    def merge(self, partials: Sequence[pa.Array], ids: Integers, total: int) -> Partials:
        return self._sums(partials[0], partials[1], ids, total)

    def _sums(self, values: pa.Array, carry: pa.Array | None, ids: Integers, total: int) -> Partials:
        plan = plan_sum(values, carry)
        sums, carries = plan.combine(reduce_ids(ids, total, plan.reductions), self.column.place)
        return [sums, pa.nulls(total, pa.int64()) if carries is None else carries]

    def add(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        old, more, carries = words[:, 0], *map(_integers, partials)
        sums = old + more
        wrapped = ((old ^ sums) & (more ^ sums)) < 0
        return np.column_stack([sums, words[:, 1] + carries + np.where(wrapped, np.where(sums < 0, 1, -1), 0)])

    def subtract(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        old, less, carries = words[:, 0], *map(_integers, partials)
        sums = old - less
        wrapped = ((old ^ less) & (old ^ sums)) < 0
        return np.column_stack([sums, words[:, 1] - carries + np.where(wrapped, np.where(sums < 0, 1, -1), 0)])

    def partials(self, words: Words) -> Partials:
        return [pa.array(words[:, 0]), pa.array(words[:, 1], mask=words[:, 1] == 0)]

    def result(self, words: Words) -> pa.Array:
        sums, carries = self.partials(words)
        check_carry(carries, self.column.place)
        return sums


class DecimalSum(_Accumulator):
    """A sum of decimals as a number of 192 bits, low word first: what a batch takes back may be less than what it adds meanwhile."""

    initial = (0, 0, 0)

    def lift(self, reader: ArgumentReader, ids: Integers, total: int) -> Partials:
        return self._sums(reader.summands(self.column), ids, total)

    def merge(self, partials: Sequence[pa.Array], ids: Integers, total: int) -> Partials:
        return self._sums(partials[0], ids, total)

    def _sums(self, values: pa.Array, ids: Integers, total: int) -> Partials:
        plan = plan_sum(values)
        sums, _ = plan.combine(reduce_ids(ids, total, plan.reductions), self.column.place)
        return [as_type(sums, self.column.type.arrow)]

    def add(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        more = decimal_words_or_zero(partials[0])
        low, carry = _added(words[:, 0], more[:, 0], 0)
        high, carry = _added(words[:, 1], more[:, 1], carry)
        return np.column_stack([low, high, words[:, 2] + (more[:, 1] >> _SIGN) + carry])

    def subtract(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        less = ~decimal_words_or_zero(partials[0])  # -x = ~x + 1
        low, carry = _added(words[:, 0], less[:, 0], 1)
        high, carry = _added(words[:, 1], less[:, 1], carry)
        return np.column_stack([low, high, words[:, 2] + (less[:, 1] >> _SIGN) + carry])

    def partials(self, words: Words) -> Partials:
        return [self.result(words)]

    def result(self, words: Words) -> pa.Array:
        self._check(words[:, 0].view(np.uint64), words[:, 1], words[:, 2])
        packed = pa.py_buffer(np.ascontiguousarray(words[:, :2]))
        return pa.Array.from_buffers(self.column.type.arrow, len(words), [None, packed])

    def _check(self, low: npt.NDArray[np.uint64], high: Words, top: Words) -> None:
        outside = top != high >> _SIGN
        if ((high >= _DECIMAL_HIGH) | (high < -_DECIMAL_HIGH)).any():
            outside |= (high > _DECIMAL_HIGH) | ((high == _DECIMAL_HIGH) & (low >= np.uint64(_DECIMAL_LOW)))
            least, rest = divmod(-(10**38), 1 << 64)
            outside |= (high < least) | ((high == least) & (low <= np.uint64(rest)))
        if outside.any():
            raise overflow(self.column.place, str(self.column.type))


class FloatSum(_Accumulator):
    """A sum of floating point numbers: the rounded sum, then what rounding has left out."""

    initial = (0, 0)

    def __init__(self, column: PartialColumn) -> None:
        super().__init__(column)
        self.fields = (*self.fields, pa.field(f"{column.name}_rest", pa.float64()))

    def lift(self, reader: ArgumentReader, ids: Integers, total: int) -> Partials:
        sums = reduce_ids(ids, total, [Reduction("sum", reader.summands(self.column))])[0]
        return [sums, pa.nulls(total, pa.float64())]

    def merge(self, partials: Sequence[pa.Array], ids: Integers, total: int) -> Partials:
        return reduce_ids(ids, total, [Reduction("sum", p) for p in partials])

    def add(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        return self._sum(words, *map(_floats, partials))

    def subtract(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        more, rest = map(_floats, partials)
        return self._sum(words, -more, -rest)

    def _sum(self, words: Words, more: npt.NDArray[np.float64], rest: npt.NDArray[np.float64]) -> Words:
        old, left = words[:, 0].view(np.float64), words[:, 1].view(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            sums = old + more
            part = sums - old
            lost = (old - (sums - part)) + (more - part)
            left = np.where(np.isfinite(sums), left + lost + rest, 0.0)
        return np.column_stack([sums.view(np.int64), left.view(np.int64)])

    def partials(self, words: Words) -> Partials:
        left = words[:, 1].copy().view(np.float64)
        return [pa.array(words[:, 0].copy().view(np.float64)), pa.array(left, mask=left == 0)]

    def result(self, words: Words) -> pa.Array:
        return pa.array(words[:, 0].copy().view(np.float64) + words[:, 1].copy().view(np.float64))


class KeptValue(_Accumulator):
    """The least, greatest, first or last value, of a type that fits one word: its bits, then whether there is one."""

    initial: tuple[int, ...] = (0, 0)

    def lift(self, reader: ArgumentReader, ids: Integers, total: int) -> Partials:
        return self.reduce(reader.argument(self.column.argument, self.column.filter), ids, total)

    def merge(self, partials: Sequence[pa.Array], ids: Integers, total: int) -> Partials:
        return self.reduce(partials[0], ids, total)

    def reduce(self, values: pa.Array, ids: Integers, total: int) -> Partials:
        """The value of each group among `values`; NULL for groups without any."""
        reduced = reduce_ids(ids, total, [Reduction(self.column.merge, values)])[0]
        return [as_type(reduced, self.column.type.arrow)]

    def add(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        given = self.words_of(partials[0])
        old, new = words[:, 0], given[:, 0]
        match self.column.merge:
            case "first":
                better = np.zeros(len(words), np.bool_)
            case "last":
                better = np.ones(len(words), np.bool_)
            case order:
                better = self._better(old, new, order == "min")
        taken = (given[:, 1] != 0) & ((words[:, 1] == 0) | better)
        return np.where(taken[:, None], given, words)

    def _better(self, old: Words, new: Words, least: bool) -> npt.NDArray[np.bool_]:
        kind = self.column.type.arrow
        if not pa.types.is_floating(kind):
            return new < old if least else new > old
        left, right = old.view(np.float64), new.view(np.float64)
        # any number wins over NaN, as in `dense`
        return (right < left if least else right > left) | (np.isnan(left) & ~np.isnan(right))

    def subtract(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        raise TypeError("a kept value cannot be subtracted")

    def words_of(self, values: pa.Array) -> Words:
        """The words of values, of which NULL means that there is none."""
        if pa.types.is_floating(values.type):
            numbers = pc.fill_null(values, 0).to_numpy().astype(np.float64).view(np.int64)
        else:
            numbers = to_words(values)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return np.column_stack([np.where(valid, numbers, 0), valid.astype(np.int64)])

    def partials(self, words: Words) -> Partials:
        return [self.result(words)]

    def result(self, words: Words) -> pa.Array:
        kind, missing = self.column.type.arrow, words[:, 1] == 0
        if pa.types.is_floating(kind):
            numbers = words[:, 0].copy().view(np.float64).astype(kind.to_pandas_dtype())
            return pa.array(numbers, kind, mask=missing, from_pandas=False)
        return from_words(np.ascontiguousarray(words[:, 0]), missing, kind)


class LoggedValue(KeptValue):
    """The same for values of any other type: the word is the position of the value in a log, −1 without one."""

    initial = (-1,)

    def __init__(self, column: PartialColumn) -> None:
        super().__init__(column)
        self.log = RowLog()

    def add(self, words: Words, partials: Sequence[pa.Array]) -> Words:
        values = partials[0]
        given = values.is_valid().to_numpy(zero_copy_only=False)
        had = words[:, 0] >= 0
        match self.column.merge:
            case "first":
                taken = given & ~had
            case "last":
                taken = given
            case _:
                taken = given & (~had | self._improved(words, values, given & had))
        return self._stored(words, values, taken)

    def _improved(self, words: Words, values: pa.Array, contested: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Where a new value is not the one that is kept any more after comparing both."""
        at = np.flatnonzero(contested)
        improved = np.zeros(len(words), np.bool_)
        if len(at):
            old, new = self.result(words[at]), values.take(pa.array(at))
            ids = np.concatenate([np.arange(len(at)), np.arange(len(at))])
            best = self.reduce(pa.concat_arrays([old, new]), ids, len(at))[0]
            improved[at] = pc.not_equal(best, old).to_numpy(zero_copy_only=False)
        return improved

    def _stored(self, words: Words, values: pa.Array, taken: npt.NDArray[np.bool_]) -> Words:
        at = np.flatnonzero(taken)
        stored = words.copy()
        if len(at):
            rows = pa.RecordBatch.from_arrays([values.take(pa.array(at))], names=["value"])
            stored[at, 0] = self.log.append(rows) + np.arange(len(at))
        return stored

    def words_of(self, values: pa.Array) -> Words:
        empty = np.full((len(values), 1), -1, np.int64)
        return self._stored(empty, values, values.is_valid().to_numpy(zero_copy_only=False))

    def captured(self) -> Self:
        frozen = copy.copy(self)
        frozen.log = self.log.view()
        return frozen

    def result(self, words: Words) -> pa.Array:
        positions = words[:, 0]
        if not len(self.log):
            return pa.nulls(len(words), self.column.type.arrow)
        taken: pa.Array = self.log.take(np.maximum(positions, 0)).column(0)
        missing = positions < 0
        return pc.if_else(pa.array(missing), pa.scalar(None, taken.type), taken) if missing.any() else taken

    def clear(self) -> None:
        """Forget all values: nobody keeps words."""
        self.log = RowLog()

    def is_wasteful(self, groups: int) -> bool:
        """Whether most of the log are values that no group keeps."""
        return len(self.log) > 2 * groups + _SPARE_VALUES

    def compacted(self, positions: Words) -> Words:
        """Keep only the values at these positions, one a slot (−1: none); gives their new positions."""
        kept = positions >= 0
        moved = np.where(kept, np.cumsum(kept) - 1, -1)
        self.log.keep(positions[kept])
        return moved


def accumulator_of(column: PartialColumn) -> Accumulator:
    """The accumulator of a partial column."""
    if column.partial in ("count", "count_all"):
        return Count(column)
    if column.merge == "sum":
        if column.type.is_approximate:
            return FloatSum(column)
        return DecimalSum(column) if column.type.root is TypeRoot.DECIMAL else IntegerSum(column)
    kind = column.type.arrow
    short = pa.types.is_decimal128(kind) and kind.precision <= _SHORT_DECIMAL
    fits = is_addressable(kind) or short or (pa.types.is_floating(kind) and not pa.types.is_float16(kind))
    return KeptValue(column) if fits else LoggedValue(column)


def _integers(values: pa.Array) -> Integers:
    filled = pc.fill_null(values, 0) if values.null_count else values
    numbers: Integers = filled.to_numpy(zero_copy_only=False)
    return numbers


def _floats(values: pa.Array) -> npt.NDArray[np.float64]:
    filled = pc.fill_null(values, 0.0) if values.null_count else values
    numbers: npt.NDArray[np.float64] = filled.to_numpy(zero_copy_only=False)
    return numbers


def _added(left: Words, right: Words, carry: int | Words) -> tuple[Words, Words]:
    """(sum of words as unsigned numbers, what carries over)."""
    partial = left.view(np.uint64) + right.view(np.uint64)
    whole = partial + np.asarray(carry).astype(np.uint64)
    over = (partial < left.view(np.uint64)) | (whole < partial)
    return whole.view(np.int64), over.astype(np.int64)
