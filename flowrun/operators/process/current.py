"""The keys of the batch at hand, and what handles do with values and positions that users give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from flowrun.api.keyed_state import Positions, Values
from flowrun.core.arrays import Integers
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import DataError
from flowrun.operators.conformance import conform, rows_to_columns
from flowrun.state.backend.objects import no_key


class CurrentKeys:
    """The distinct keys of the current batch, by position.

    Attributes:
        slots: slot of each key.
        local: for each row the position of its key.
    """

    __slots__ = ("local", "slots")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """No batch is at hand."""
        self.slots: Integers = np.zeros(0, np.int64)
        self.local: Integers = np.zeros(0, np.int64)

    def leave(self) -> None:
        """Rows without keys are at hand: state of a key cannot be used."""
        del self.slots, self.local

    def __getattr__(self, name: str) -> NoReturn:
        raise no_key()

    def positions(self, keys: Positions | None, place: str) -> Integers:
        """Positions of keys as users give them; None: of each row's.

        Raises:
            DataError: they are no positions among the keys.
        """
        return self.local if keys is None else self.chosen(keys, place)

    def slots_of(self, where: Positions | None, place: str) -> Integers:
        """Slots of the chosen keys; None: of all."""
        return self.slots if where is None else self.slots[self.chosen(where, place)]

    def chosen(self, given: Positions, place: str) -> Integers:
        """Positions of keys, given as such or as a boolean for each key."""
        found = np.asarray(given)
        total = len(self.slots)
        if found.dtype == np.bool_ and found.shape == (total,):
            return np.flatnonzero(found)
        if len(found) == 0:
            return np.zeros(0, np.int64)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise DataError(
                f"{place}: keys are chosen by {total} booleans or by integer positions, got {found.dtype} of shape {found.shape}",
                hint="positions are those of context.keys, e.g. context.key_index",
            )
        if int(found.min()) < 0 or int(found.max()) >= total:
            raise DataError(
                f"{place}: position {found[(found < 0) | (found >= total)][0]} is none of the batch's {total} keys",
                hint="positions are those of context.keys, e.g. context.key_index",
            )
        return found.astype(np.int64, copy=False)


def as_column(values: Values, type: DataType, place: str, rows: int) -> pa.Array:
    """Values that users give, as a column of a type.

    Raises:
        DataError: they do not fit the type, or there are not `rows` of them.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype != object:
        values = pa.array(values)
    if isinstance(values, pa.Array):
        column = values
        if column.type != type.arrow:
            batch = pa.record_batch([column], names=["value"])
            column = conform(batch, Schema.of(value=type), place).column(0)
    elif isinstance(values, (list, tuple, np.ndarray)):
        column = rows_to_columns([{"value": v} for v in values], Schema.of(value=type), place).column(0)
    else:
        raise DataError(
            f"{place} takes an Arrow array, a NumPy array or a list, got {values.__class__.__name__}",
            hint="give one value for each key (or row)",
        )
    if len(column) != rows:
        raise DataError(
            f"{place}: got {len(column)} values, expected {rows}",
            hint="give one value for each chosen key (add and put: for each row of the batch), or say which keys are meant",
        )
    return column


def last_of_each(numbers: Integers) -> Integers:
    """Positions of the last occurrence of each number, in order.

    >>> last_of_each(np.array([7, 5, 7])).tolist()
    [1, 2]
    """
    if len(numbers) == 0:
        return numbers
    seen = np.empty(int(numbers.max()) + 1, np.int64)
    positions = np.arange(len(numbers))
    seen[numbers] = positions  # of several assignments to one place the last one stays
    return np.flatnonzero(seen[numbers] == positions)


def stable_order(numbers: Integers) -> Integers:
    """The order that sorts small numbers ≥ 0; equal ones stay in order. By 16 bits at a time, which NumPy sorts by radix.

    >>> stable_order(np.array([2, 0, 2])).tolist()
    [1, 0, 2]
    """
    order: Integers = np.argsort(numbers.astype(np.uint16), kind="stable")
    highest, shift = int(numbers.max(initial=0)), 16
    while highest >> shift:
        order = order[np.argsort((numbers[order] >> shift).astype(np.uint16), kind="stable")]
        shift += 16
    return order


def combined(
    positions: Integers, column: pa.Array, combine: Callable[[pa.Array, pa.Array], Any]
) -> tuple[Integers, pa.Array]:
    """(distinct positions, the values of each combined in order), by halving: `combine` is called about log2 of the longest run times."""
    order = stable_order(positions)
    owners = positions[order]
    values = column.take(pa.array(order))
    while len(owners):
        first = np.concatenate([[True], owners[1:] != owners[:-1]])
        if first.all():
            break
        starts = np.flatnonzero(first)
        rank = np.arange(len(owners)) - np.repeat(starts, np.diff(np.append(starts, len(owners))))
        even = rank % 2 == 0
        lone = even & np.append(first[1:], True)  # the last of an odd run
        left = np.flatnonzero(even & ~lone)
        pairs = combine(values.take(pa.array(left)), values.take(pa.array(left + 1)))
        kept = np.flatnonzero(even)
        sources = kept.copy()
        paired = ~lone[kept]
        sources[paired] = len(owners) + np.arange(len(left))
        values = pa.concat_arrays([values, pairs]).take(pa.array(sources))
        owners = owners[kept]
    return owners, values
