"""Random numbers as a pure function of (seed, stream, row number), vectorised over rows.

Generated sources need this, so that a row is the same whatever the parallelism, the batch size and the position that a restart
begins at. The mixer is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over a Weyl sequence.
"""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Floats, Integers, UInt64s
from flowrun.core.splitmix import splitmix64

Int64s = Integers

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def random_uint64(seed: int, stream: int, start: int, count: int) -> UInt64s:
    """Uniform 64-bit values for rows `start` … `start + count − 1` of one stream, that is of one kind of draw for one column."""
    origin = _mix(_mix(seed & _MASK) + stream * _GOLDEN)
    first = (origin + (start + 1) * _GOLDEN) & _MASK
    mixed = np.arange(count, dtype=np.uint64)
    mixed *= np.uint64(_GOLDEN)
    mixed += np.uint64(first)
    return splitmix64(mixed, out=mixed)


def scale_to_range(bits: UInt64s, low: int, high: int | Int64s) -> Int64s:
    """Integers in [low, high] from uniform bits; `high` may be another one for each row. `bits` may be overwritten.

    Spans up to 2³² use multiply-shift (bias below 2⁻³², Lemire 2019), wider ones a remainder.
    """
    if isinstance(high, int):
        span = high - low + 1
        if span <= 1 << 32:
            bits >>= np.uint64(32)
            bits *= np.uint64(span)
            bits >>= np.uint64(32)
        elif span < 1 << 64:
            bits %= np.uint64(span)
        scaled = bits.view(np.int64)
        scaled += np.int64(low)
        return scaled
    spans = (high - low + 1).astype(np.uint64)
    return ((bits >> np.uint64(32)) * spans >> np.uint64(32)).astype(np.int64) + low


def to_unit_interval(bits: UInt64s) -> Floats:
    """Floats in [0, 1) from uniform bits, 53 bits of precision."""
    return (bits >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))
