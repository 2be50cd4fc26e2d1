"""How rows choose a channel of the next vertex: a value on an edge; `flowrun.runtime.network` does what it says."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np

from flowrun.core.elements import RecordBatch
from flowrun.core.record import record


class DistributionPattern(Enum):
    """Which consumers a producer subtask connects to: a share of them, or all."""

    POINTWISE = "pointwise"
    ALL_TO_ALL = "all-to-all"


@record
class Partitioner:
    """Base: `pattern` follows from the kind."""

    @property
    def pattern(self) -> DistributionPattern:
        """Connections that this partitioner needs."""
        return DistributionPattern.ALL_TO_ALL

    @property
    def label(self) -> str:
        """Name as `explain` shows it, e.g. `FORWARD` or `HASH[0, 2]`."""
        return type(self).__name__.removesuffix("Partitioner").upper()


@record
class ForwardPartitioner(Partitioner):
    """Subtask i to subtask i; needs equal parallelism."""

    @property
    def pattern(self) -> DistributionPattern:
        return DistributionPattern.POINTWISE


@record
class RebalancePartitioner(Partitioner):
    """Whole batches, round robin over all consumers."""


@record
class RescalePartitioner(Partitioner):
    """Whole batches, round robin over the near share of consumers."""

    @property
    def pattern(self) -> DistributionPattern:
        return DistributionPattern.POINTWISE


@record
class ShufflePartitioner(Partitioner):
    """Each row to a random consumer (seeded by subtask)."""

    seed: int = 0


@record
class BroadcastPartitioner(Partitioner):
    """Every row to every consumer; serialised once."""


@record
class GlobalPartitioner(Partitioner):
    """Every row to consumer 0."""


@record
class KeyGroupPartitioner(Partitioner):
    """By key group of the key columns (positions in the producer's schema)."""

    keys: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"HASH[{', '.join(map(str, self.keys))}]"


ChannelFunction = Callable[[RecordBatch, int], np.ndarray[tuple[int], np.dtype[np.integer]]]


@record
class CustomPartitioner(Partitioner):
    """A user's `function(batch, number_of_channels)` → one channel index a row."""

    function: ChannelFunction
    name: str = "custom"

    @property
    def label(self) -> str:
        return f"CUSTOM[{self.name}]"
