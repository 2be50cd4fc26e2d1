"""The finaliser of SplitMix64 (Steele, Lea and Flood, 2014), vectorised. Frozen: key groups in checkpoints depend on it."""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import UInt64s


def splitmix64(values: UInt64s, out: UInt64s | None = None) -> UInt64s:
    """Mixes the bits of each value, one to one; into `out` if given, which may be `values` itself.

    >>> hex(int(splitmix64(np.array([1], np.uint64))[0]))
    '0x5692161d100b05e5'
    """
    shifted = values >> np.uint64(30)
    mixed: UInt64s = np.bitwise_xor(values, shifted, out=out)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(mixed, np.uint64(27), out=shifted)
    mixed ^= shifted
    mixed *= np.uint64(0x94D049BB133111EB)
    np.right_shift(mixed, np.uint64(31), out=shifted)
    mixed ^= shifted
    return mixed
