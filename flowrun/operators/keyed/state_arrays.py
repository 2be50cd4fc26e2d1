"""Arrays that hold state of operators by number: the one place that makes them, and the one rule by which they grow.

What grows with the state of an operator comes from `allocated`. Operators neither know nor ask where that memory is, so that state
larger than memory can be put elsewhere, such as in a mapped file, without a change of them. Not made here: what lives as long as a
batch, and the copies that are made of arrays when they are about to change under a snapshot.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Array = TypeVar("Array", bound=npt.NDArray[Any])

_LEAST_ROOM = 64
_DOUBLED_BYTES = 64 << 20


def allocated(entries: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of zeros for so many entries of the shape and type of those of `like`. Zeros cost nothing until they are written."""
    return np.zeros((entries, *like.shape[1:]), like.dtype)


def room_for(size: int, have: int, entry_bytes: int) -> int:
    """How many entries an array that must hold `size` gets room for when it had room for `have`.

    It doubles while it is small. Beyond 64 MiB it grows by a quarter, so that the memory of a job grows by parts: the array of before
    exists beside the new one while it is copied, and nobody has twice the memory of a large state to spare.

    >>> room_for(65, 64, 8), room_for(10_000_001, 10_000_000, 8)
    (128, 12500000)
    """
    more = have if have * entry_bytes <= _DOUBLED_BYTES else have // 4
    return max(size, have + more, _LEAST_ROOM)


def resized(values: Array, room: int, fill: int | npt.NDArray[Any] = 0) -> Array:
    """A copy with room for exactly `room` entries, at least as many as there are; new ones are `fill`.

    >>> resized(np.array([5, 6]), 4, -1).tolist()
    [5, 6, -1, -1]
    """
    grown = allocated(room, values)
    grown[: len(values)] = values
    if not isinstance(fill, int) or fill:
        grown[len(values) :] = fill
    return cast(Array, grown)


def extended(values: Array, size: int, fill: int | npt.NDArray[Any] = 0) -> Array:
    """The array with room for at least `size` entries, new ones being `fill`; grows as `room_for` says.

    Entries of a matrix are its rows; `fill` may be one of them.

    >>> len(extended(np.zeros(64), 65)), len(extended(np.zeros(64), 64))
    (128, 64)
    """
    if len(values) >= size:
        return values
    return resized(values, room_for(size, len(values), values[:1].nbytes or values.itemsize), fill)
