"""Arrays of int64 numbers: positions of rows, and ranges of them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]


def extended(values: Integers, size: int, fill: int) -> Integers:
    """The array with room for at least `size` entries, new ones being `fill`; grows by doubling."""
    if len(values) >= size:
        return values
    room = max(size, 2 * len(values), 64)
    grown = (
        np.full(room, fill, np.int64) if fill else np.zeros(room, np.int64)
    )  # zeros cost nothing until they are written
    grown[: len(values)] = values
    return grown


def ranges(starts: Integers, lengths: Integers) -> Integers:
    """The numbers start, start + 1, … of several ranges, one range after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Integers = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers
