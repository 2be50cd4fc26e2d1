"""Whether it pays to fold rows, or to merge partial results, by key: not where keys hardly repeat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.grouping import reduce_by
from flowrun.state.key_groups import key_groups

_REDUCING = 0.5
_BYPASS_BATCHES = 16
_TINY = 128
_HASH_BITS = 1 << 15
_SAMPLE_SHIFT = 11


class ReductionSampler:
    """Decides per batch whether folding it by key pays: not after a batch that hardly shrank, until the next sample."""

    def __init__(self) -> None:
        self._skip = 0

    def worthwhile(self, rows: int) -> bool:
        """Whether to fold a batch of `rows`."""
        if rows < _TINY:
            return False
        if self._skip:
            self._skip -= 1
            return False
        return True

    def observe(self, rows: int, groups: int) -> None:
        """A folded batch of `rows` had so many groups."""
        if groups > rows * _REDUCING:
            self._skip = _BYPASS_BATCHES


def keys_repeat(parts: Sequence[Bundle]) -> bool:
    """Whether merging these partial results would leave at most half of their rows, judged by one key in sixteen.

    The sample goes by bits of the key's hash that do not decide about its subtask, so that it holds all rows of its keys.
    """
    if not parts[0].groups:
        return True
    sampled = []
    for part in parts:
        hashes = key_groups(part.keys, _HASH_BITS)
        chosen = pa.array(np.flatnonzero(hashes >> _SAMPLE_SHIFT == 0))
        sampled.append([key.take(chosen) for key in part.keys])
    keys = [pa.concat_arrays(column) for column in zip(*sampled, strict=True)]
    rows = len(keys[0])
    distinct, _ = reduce_by(keys, rows, ())
    return 2 * len(distinct[0]) <= rows
