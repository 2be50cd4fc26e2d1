"""Arrays of int64 numbers: positions of rows, and ranges of them."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from flowrun.core import arrays

Integers: TypeAlias = arrays.Integers


Array = TypeVar("Array", bound=npt.NDArray[Any])


_LEAST_ROOM = 64
_DOUBLED_BYTES = 64 << 20


def room_for(size: int, have: int, entry_bytes: int) -> int:
    """How many entries an array that must hold `size` gets room for when it had room for `have`.

    It doubles while it is small. Beyond 64 MiB it grows by a quarter, so that the memory of a job grows by parts: the array of before
    exists beside the new one while it is copied, and nobody has twice the memory of a large state to spare.

    >>> room_for(65, 64, 8), room_for(10_000_001, 10_000_000, 8)
    (128, 12500000)
    """
    more = have if have * entry_bytes <= _DOUBLED_BYTES else have // 4
    return max(size, have + more, _LEAST_ROOM)


def extended(values: Array, size: int, fill: int) -> Array:
    """The array with room for at least `size` entries, new ones being `fill`; grows as `room_for` says."""
    if len(values) >= size:
        return values
    room = room_for(size, len(values), values.itemsize)
    # zeros cost nothing until they are written
    grown = np.full(room, fill, values.dtype) if fill else np.zeros(room, values.dtype)
    grown[: len(values)] = values
    return cast(Array, grown)


def sorted_with_places(values: Integers) -> tuple[Integers, Integers]:
    """(values from 0 to 2³¹ − 1 in ascending order, the place of each among those given); places ascend where values are equal.

    Sorts both in one number, which takes half of the time that an argsort takes.

    >>> [found.tolist() for found in sorted_with_places(np.array([7, 3, 7]))]
    [[3, 7, 7], [1, 0, 2]]
    """
    both = values << 32
    both |= np.arange(len(values))
    both.sort()
    return both >> 32, both & 0xFFFFFFFF


def ranges(starts: Integers, lengths: Integers) -> Integers:
    """The numbers start, start + 1, … of several ranges, one range after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Integers = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers
