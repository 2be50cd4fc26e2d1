"""Numbers of segments: for good once given, and in an upsert log ascending with age, so that the highest number of a key is the newest."""

from __future__ import annotations

from collections.abc import Sequence


def numbers_for(known: Sequence[int | None], next_number: int, *, ordered: bool) -> tuple[list[int], int]:
    """A number for each segment of a table, and the next that was never given.

    A segment that takes the place of older ones, while newer ones stay, gets one of their numbers. If that cannot be, all get new ones.

    Args:
        known: numbers that segments have, oldest first; None: has none yet.
        next_number: was never given.
        ordered: numbers must ascend.

    >>> numbers_for([0, 1, None], 2, ordered=True)
    ([0, 1, 2], 3)
    >>> numbers_for([0, None, 4], 5, ordered=True)
    ([0, 1, 4], 5)
    >>> numbers_for([None, 0], 1, ordered=True)
    ([1, 2], 3)
    >>> numbers_for([None, 0], 1, ordered=False)
    ([1, 0], 2)
    """
    if ordered:
        fitted = _fitted(known, next_number)
        if fitted is None:
            return list(range(next_number, next_number + len(known))), next_number + len(known)
        return fitted, max([next_number, *(n + 1 for n in fitted)])
    numbers = []
    for number in known:
        numbers.append(next_number if number is None else number)
        next_number += number is None
    return numbers, next_number


def _fitted(known: Sequence[int | None], next_number: int) -> list[int] | None:
    """Ascending numbers that keep those known; None if there are none."""
    limit = next_number + len(known)
    limits: list[int] = []
    for number in reversed(known):
        limits.append(limit)
        limit = limit - 1 if number is None else min(limit, number)
    limits.reverse()
    newer = len(known)  # those from here on are newer than all that have a number
    while newer and known[newer - 1] is None:
        newer -= 1
    numbers: list[int] = []
    previous = -1
    for position, (number, below) in enumerate(zip(known, limits, strict=True)):
        lowest = max(previous + 1, next_number) if position >= newer else previous + 1
        chosen = lowest if number is None else number
        if chosen <= previous or chosen >= below:
            return None
        numbers.append(chosen)
        previous = chosen
    return numbers
