"""Results of OVER calls for the rows of a `Sequence`: accumulators over frames, finished by the aggregates' own kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.aggregate import Accumulator, BoundAggregate
from flowrun.core.arrays import Bools, Floats, Integers, as_type
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.operators.aggregation.grouping import group_ids
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.over.exact_numbers import number_column, whole_numbers
from flowrun.operators.over.frames import (
    Frames,
    covering_greatest,
    covering_sums,
    exact_sums,
    extremes,
    first_occurrences,
    float_sums,
    members,
    nearest,
)
from flowrun.operators.over.sequence import Sequence
from flowrun.operators.ranking.order import sorted_order
from flowrun.state.storage.key_order import key_ranks

_MEMBERS_AT_A_TIME = 1024 * 1024


@record
class Carry:
    """What the past amounts to, for frames without a bound.

    Attributes:
        accumulators: of each aggregate: its accumulators' columns, one row a partition of the sequence.
        unseen: of each DISTINCT aggregate, by its place: which rows of the sequence have a value that was not seen before.
    """

    accumulators: list[list[pa.Array]] = field(default_factory=list)
    unseen: dict[int, Bools] = field(default_factory=dict)


class AggregateEvaluator:
    """Evaluates aggregates over the frames of one sequence.

    Args:
        frames: of the sequence's targets.
        carry: for frames without a bound whose past is not in the sequence.
    """

    def __init__(self, schema: Schema, sequence: Sequence, frames: Frames, carry: Carry | None) -> None:
        self._schema = schema
        self._sequence = sequence
        self._frames = frames
        self._carry = carry

    def accumulators(self, place: int, aggregate: BoundAggregate) -> list[pa.Array]:
        """The accumulators of an aggregate that has some, one row a target."""
        values, passing = self._argument(aggregate)
        if aggregate.distinct:
            if self._carry is not None:
                passing = passing & self._carry.unseen[place]
            else:
                return [self._distinct(a, aggregate, values, passing) for a in aggregate.kernel.accumulators]
        columns = []
        for i, accumulator in enumerate(aggregate.kernel.accumulators):
            before = self._carry.accumulators[place][i] if self._carry is not None else None
            columns.append(self._over_frames(accumulator, aggregate, values, passing, before))
        return columns

    def collected(self, aggregate: BoundAggregate) -> pa.Array:
        """The result of an aggregate that needs its values."""
        kernel = aggregate.kernel
        assert kernel.collect is not None
        assert aggregate.argument is not None
        values, passing = self._argument(aggregate)
        if not kernel.keeps_nulls:
            passing = passing & _valid(values)
        previous = self._previous(values, passing, aggregate.argument) if aggregate.distinct else None
        results = []
        for frames, owners, positions in self._members():
            counted = passing[positions]
            if previous is not None:
                counted &= previous[positions] < frames.low[owners]
            lengths = np.bincount(owners[counted], minlength=len(frames))
            offsets = np.zeros(len(frames) + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            lists = pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(positions[counted])))
            results.append(kernel.collect(lists, kernel.result))
        return as_type(pa.concat_arrays(results), kernel.result.arrow) if results else pa.array([], kernel.result.arrow)

    def _argument(self, aggregate: BoundAggregate) -> tuple[pa.Array, Bools]:
        """(the argument; which rows the filter lets pass) of all rows; without an argument a column of ones."""
        sequence = self._sequence
        passing = np.ones(len(sequence), np.bool_)
        if aggregate.filter is not None:
            mask = pc.fill_null(sequence.column(aggregate.filter), False)
            passing = mask.to_numpy(zero_copy_only=False)
        if aggregate.argument is None:
            return pa.array(np.ones(len(sequence), np.int8)), passing
        column = sequence.column(aggregate.argument)
        return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column), passing

    # ---- one accumulator

    def _over_frames(
        self,
        accumulator: Accumulator,
        aggregate: BoundAggregate,
        values: pa.Array,
        passing: Bools,
        before: pa.Array | None,
    ) -> pa.Array:
        frames, kind = self._frames, accumulator.type.arrow
        place = f"{aggregate.kernel.function} AS {aggregate.name}"
        counted = passing & _valid(values)
        match accumulator.partial:
            case "count_all" | "count":
                ones = (passing if accumulator.partial == "count_all" else counted).astype(np.int64)
                return pa.array(exact_sums(self._with_carry(ones, before), frames))
            case "sum" | "sum_of_squares" if pa.types.is_floating(kind):
                numbers = _floats(values, counted, squared=accumulator.partial == "sum_of_squares")
                return pa.array(float_sums(self._with_carry(numbers, before), frames))
            case "sum":
                longest = int(frames.lengths.max(initial=1))
                exact = self._with_exact_carry(_summands(values, counted, accumulator), before, longest)
                return number_column(exact_sums(exact, frames), _sum_type(accumulator), place)
            case _:
                return self._chosen(accumulator, values, counted, before)

    def _with_carry(self, values: npt.NDArray[Any], before: pa.Array | None) -> npt.NDArray[Any]:
        """The values, the past of each partition added to its first new row."""
        if before is not None:
            growing = self._frames.growing
            assert growing is not None
            values[growing] += before.to_numpy(zero_copy_only=False)
        return values

    def _with_exact_carry(self, values: pa.Array, before: pa.Array | None, longest: int) -> npt.NDArray[Any]:
        most = longest + (before is not None)
        numbers = whole_numbers(values, 2 * most)
        if before is None:
            return numbers
        past = whole_numbers(before, 2)
        if numbers.dtype != past.dtype:
            numbers, past = numbers.astype(object), past.astype(object)
        growing = self._frames.growing
        assert growing is not None
        numbers[growing] += past
        return numbers

    def _chosen(self, accumulator: Accumulator, values: pa.Array, counted: Bools, before: pa.Array | None) -> pa.Array:
        """Extremes, first and last values: one of the rows of each frame, or of the past."""
        frames, partial = self._frames, accumulator.partial
        if partial in ("first", "last"):
            found = nearest(counted, frames, last=partial == "last")
        else:
            found = _extreme_rows(values, counted, frames, greatest=partial == "max")
        result = values.take(pa.array(found, mask=found < 0))
        if before is None:
            return as_type(result, accumulator.type.arrow)
        past = before.take(pa.array(self._sequence.owners[self._sequence.targets]))
        result = as_type(result, past.type)
        if partial == "first":
            return pc.coalesce(past, result)
        if partial == "last":
            return pc.coalesce(result, past)
        return _better(past, result, greatest=partial == "max")

    # ---- DISTINCT within bounds

    def _distinct(
        self, accumulator: Accumulator, aggregate: BoundAggregate, values: pa.Array, passing: Bools
    ) -> pa.Array:
        partial, kind = accumulator.partial, accumulator.type.arrow
        if partial in ("first", "min", "max"):  # how often a value occurs makes no difference
            return self._over_frames(accumulator, aggregate, values, passing, None)
        assert aggregate.argument is not None
        counted = passing & _valid(values)
        previous = self._previous(values, counted, aggregate.argument)
        if pa.types.is_floating(kind):
            return self._distinct_floats(
                _floats(values, counted, squared=partial == "sum_of_squares"), counted, previous
            )
        start, stop = first_occurrences(np.where(counted, previous, len(values)), self._frames)
        if partial == "last":
            found = covering_greatest(start, stop, len(self._frames))
            return as_type(values.take(pa.array(found, mask=found < 0)), kind)
        if partial == "sum":
            numbers = whole_numbers(_summands(values, counted, accumulator), 2 * len(values))
            place = f"{aggregate.kernel.function} AS {aggregate.name}"
            sums = covering_sums(numbers, start, stop, len(self._frames))
            return number_column(sums, _sum_type(accumulator), place)
        return pa.array(covering_sums(counted.astype(np.int64), start, stop, len(self._frames)))

    def _distinct_floats(self, numbers: Floats, counted: Bools, previous: Integers) -> pa.Array:
        sums = []
        for frames, owners, positions in self._members():
            new = counted[positions] & (previous[positions] < frames.low[owners])
            sums.append(np.bincount(owners[new], weights=numbers[positions[new]], minlength=len(frames)))
        return pa.array(np.concatenate(sums) if sums else np.zeros(0))

    def _previous(self, values: pa.Array, counted: Bools, argument: int) -> Integers:
        """For each row that counts, where its value stood before in its partition; −1: nowhere."""
        previous = np.full(len(values), -1, np.int64)
        rows = np.flatnonzero(counted)
        encoded = KeyCodec.of([("value", self._schema.types[argument])]).encode([values.take(pa.array(rows))])
        ids, _ = group_ids([pa.array(self._sequence.owners[rows]), *encoded], len(rows))
        order = sorted_order([ids])
        same = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        previous[rows[order[same + 1]]] = rows[order[same]]
        return previous

    def _members(self) -> Iterator[tuple[Frames, Integers, Integers]]:
        """Some frames at a time, with (frame, position) of each of their rows."""
        total = np.cumsum(self._frames.lengths)
        start = 0
        while start < len(self._frames):
            done = int(total[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(total, done + _MEMBERS_AT_A_TIME, side="right")))
            part = self._frames.part(start, stop)
            yield part, *members(part)
            start = stop


def finished(aggregate: BoundAggregate, accumulators: list[pa.Array]) -> pa.Array:
    """The results of an aggregate from its accumulators.

    Raises:
        DataError: a result does not fit its type.
    """
    kernel = aggregate.kernel
    assert kernel.finish is not None
    return as_type(kernel.finish(accumulators, kernel.result), kernel.result.arrow)


def _sum_type(accumulator: Accumulator) -> pa.DataType:
    kind = accumulator.type.arrow
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else BIGINT.arrow


def _valid(values: pa.Array) -> Bools:
    valid: Bools = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _summands(values: pa.Array, counted: Bools, accumulator: Accumulator) -> pa.Array:
    kind = accumulator.type.arrow
    if pa.types.is_decimal(kind) and (not pa.types.is_decimal(values.type) or values.type.scale != kind.scale):
        values = pc.cast(values, pa.decimal128(38, kind.scale))
    if counted.all():
        return values
    return pc.if_else(pa.array(counted), values, pa.scalar(None, values.type))


def _floats(values: pa.Array, counted: Bools, *, squared: bool) -> Floats:
    numbers = pc.fill_null(pc.cast(values, pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    numbers = np.where(counted, numbers, 0.0)
    return numbers * numbers if squared else numbers


def _extreme_rows(values: pa.Array, counted: Bools, frames: Frames, *, greatest: bool) -> Integers:
    """A row of each frame that has its extreme value; −1 where no row counts."""
    if not counted.any():
        return np.full(len(frames), -1, np.int64)
    rows = np.flatnonzero(counted)
    none = -1 if greatest else len(values)
    ranks = np.full(len(values), none, np.int64)
    own = _ranks(values.take(pa.array(rows)), greatest=greatest)
    ranks[rows] = own
    holder = np.full(int(own.max()) + 2, -1, np.int64)
    holder[own] = rows
    best = extremes(ranks, frames, greatest=greatest)
    known = (best != none) & (frames.lengths > 0)
    return np.where(known, holder[np.where(known, best, 0)], -1)


def _ranks(values: pa.Array, *, greatest: bool) -> Integers:
    """A number for each value that orders like it; any number wins over NaN, as in `updating.accumulators`."""
    ranks = key_ranks([values])
    if greatest and pa.types.is_floating(values.type):
        nan = pc.fill_null(pc.is_nan(values), False).to_numpy(zero_copy_only=False)
        ranks = np.where(nan, 0, ranks + 1)
    return ranks


def _better(left: pa.Array, right: pa.Array, *, greatest: bool) -> pa.Array:
    """Of two columns the lesser, or greater, value of each row; NULL only where both are."""
    both = pa.concat_arrays([left, right])
    ranks = _ranks(both, greatest=greatest)
    first, second = ranks[: len(left)], ranks[len(left) :]
    take_right = second > first if greatest else second < first
    no_left, no_right = ~_valid(left), ~_valid(right)
    take_right = (take_right | no_left) & ~no_right
    return both.take(pa.array(np.arange(len(left)) + np.where(take_right, len(left), 0)))
