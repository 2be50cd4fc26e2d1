"""Arrays of int64 numbers: positions of rows, and ranges of them."""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Integers

_MANY = 1000


def sorted_with_places(values: Integers) -> tuple[Integers, Integers]:
    """(values from 0 to 2³¹ − 1 in ascending order, the place of each among those given); places ascend where values are equal.

    Many are sorted by radix, 16 bits at a time, in a third of the time of a sort that compares; few as one number with their place.

    >>> [found.tolist() for found in sorted_with_places(np.array([7, 3, 7]))]
    [[3, 7, 7], [1, 0, 2]]
    """
    if len(values) < _MANY:
        both = values << 32
        both |= np.arange(len(values))
        both.sort()
        return both >> 32, both & 0xFFFFFFFF
    # NumPy's stable sorts of 16 bits are radix sorts
    by_low = values.astype(np.uint16).argsort(kind="stable")
    places = by_low[(values >> 16).astype(np.uint16)[by_low].argsort(kind="stable")]
    return values[places], places


def ranges(starts: Integers, lengths: Integers) -> Integers:
    """The numbers start, start + 1, … of several ranges, one range after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Integers = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers
