"""The first numbers of `java.util.Random` for whole columns of seeds, so that RAND(seed) gives what Flink's gives.

Source: the linear congruential generator in the documentation of `java.util.Random` (48 bits, multiplier 0x5DEECE66D, increment 11).
"""

from __future__ import annotations

import numpy as np

_MULTIPLIER = np.uint64(0x5DEECE66D)
_INCREMENT = np.uint64(0xB)
_MASK = np.uint64((1 << 48) - 1)

UInt64Array = np.ndarray[tuple[int], np.dtype[np.uint64]]
Int64Array = np.ndarray[tuple[int], np.dtype[np.int64]]


def _next(state: UInt64Array, bits: int) -> tuple[UInt64Array, Int64Array]:
    state = (state * _MULTIPLIER + _INCREMENT) & _MASK
    return state, (state >> np.uint64(48 - bits)).astype(np.int64)


def _seeded(seeds: Int64Array) -> UInt64Array:
    return (seeds.astype(np.uint64) ^ _MULTIPLIER) & _MASK


def first_doubles(seeds: Int64Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What `new Random(seed).nextDouble()` gives for each seed.

    >>> [round(float(v), 6) for v in first_doubles(np.array([42]))]
    [0.727564]
    """
    state, high = _next(_seeded(seeds), 26)
    _, low = _next(state, 27)
    return ((high << 27) + low).astype(np.float64) * np.float64(2.0**-53)


def first_integers(seeds: Int64Array, bounds: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Int64Array:
    """What `new Random(seed).nextInt(bound)` gives for each seed and positive bound.

    >>> [int(v) for v in first_integers(np.array([42, 42]), np.array([10, 16]))]
    [0, 11]
    """
    highs = bounds.astype(np.int64)
    state, bits = _next(_seeded(seeds), 31)
    power_of_two = (highs & -highs) == highs
    values: Int64Array = np.where(power_of_two, (highs * bits) >> 31, bits % highs)
    retry = ~power_of_two & (bits - values + (highs - 1) >= 2**31)
    while retry.any():  # the generator's own rejection of the last, incomplete range
        state, again = _next(state, 31)
        bits = np.where(retry, again, bits)
        values = np.where(retry, bits % highs, values)
        retry = retry & (bits - values + (highs - 1) >= 2**31)
    return values
