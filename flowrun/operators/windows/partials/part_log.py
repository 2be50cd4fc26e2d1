"""Partial results in order of arrival, in blocks that never change: what a snapshot names without copying or computing anything.

What has come since the last snapshot is sealed into one block by the next, and a block is one segment of each state table for as long
as it lives. Thousands of small batches between two snapshots are one segment; small blocks of many snapshots are joined by tiers, so
that there are few; what is big is only rewritten when its owner merges it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowrun.api.state import SegmentedTable, StateSegment
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.windows.partials.partial_tables import PartialTables

_TIER_CHUNKS = 32
_TIER_BLOCKS = 8
_SMALL_ROWS = 8 * 1024
_REWRITTEN_SHARE = 64
"""Joining blocks rewrites at most one part in so many of a log, so that a checkpoint after a small change stays small."""


class TieredParts:
    """Partial results in order of arrival; chunks of tiny batches are concatenated by tiers, so that there are few."""

    def __init__(self) -> None:
        self.bundles: list[Bundle] = []
        self.rows = 0
        self._tiers: list[int] = []

    def append(self, part: Bundle) -> None:
        """Add what arrived last."""
        self.bundles.append(part)
        self._tiers.append(0)
        self.rows += part.num_rows
        while len(self._tiers) >= _TIER_CHUNKS and self._tiers[-_TIER_CHUNKS] == self._tiers[-1]:
            tier = self._tiers[-1] + 1
            self.bundles[-_TIER_CHUNKS:] = [concat_bundles(self.bundles[-_TIER_CHUNKS:])]
            self._tiers[-_TIER_CHUNKS:] = [tier]

    def clear(self) -> None:
        """Forget everything."""
        self.bundles, self._tiers, self.rows = [], [], 0


class Block:
    """Partial results that never change. `tier` counts how often blocks were joined to make it."""

    __slots__ = ("_segments", "bundles", "rows", "tier")

    def __init__(self, bundles: Sequence[Bundle], tier: int = 0) -> None:
        self.bundles = tuple(bundles)
        self.rows = sum(b.num_rows for b in self.bundles)
        self.tier = tier
        self._segments: tuple[tuple[str, StateSegment], ...] | None = None

    def segments(self, tables: PartialTables, constants: Sequence[int]) -> tuple[tuple[str, StateSegment], ...]:
        """(state table, segment) for each table in which it has rows; the same objects whenever it is asked."""
        if self._segments is None:
            self._segments = tables.segments(self.bundles, constants)
        return self._segments


class PartLog:
    """A log of partial results; see the module. `rows` counts the rows of all tables."""

    __slots__ = ("_blocks", "_pending", "_untidy", "rows")

    def __init__(self, bundles: Sequence[Bundle] = ()) -> None:
        self._blocks: list[Block] = [Block(bundles)] if bundles else []
        self._pending = TieredParts()
        self._untidy = False
        self.rows = sum(b.rows for b in self._blocks)

    def append(self, part: Bundle) -> None:
        """Add what arrived last."""
        if self._untidy:
            self._untidy = False
            self._tidy()
        self._pending.append(part)
        self.rows += part.num_rows

    def bundles(self) -> list[Bundle]:
        """Everything, in order of arrival."""
        return [*(p for b in self._blocks for p in b.bundles), *self._pending.bundles]

    def prepend_to(self, other: PartLog) -> None:
        """Put everything before the rows of another log; this one is not used afterwards."""
        other._blocks[:0] = self.blocks()
        other.rows += self.rows

    def blocks(self) -> Sequence[Block]:
        """Everything as blocks: what is not in one yet is sealed now."""
        if self._pending.bundles:
            self._blocks.append(Block(self._pending.bundles))
            self._pending = TieredParts()
            self._untidy = True
        return self._blocks

    def _tidy(self) -> None:
        """Join the last blocks while there are enough of one tier; done as rows come, never while a snapshot is taken."""
        limit = max(_SMALL_ROWS, self.rows // _REWRITTEN_SHARE)
        while len(self._blocks) >= _TIER_BLOCKS:
            last = self._blocks[-_TIER_BLOCKS:]
            if any(b.tier != last[0].tier for b in last) or sum(b.rows for b in last) > limit:
                return
            joined = concat_bundles([p for b in last for p in b.bundles])
            self._blocks[-_TIER_BLOCKS:] = [Block((joined,), last[0].tier + 1)]


class SegmentCollector:
    """Gathers the segments of many blocks into the tables of one snapshot."""

    def __init__(self, tables: PartialTables) -> None:
        self._tables = tables
        self._segments: dict[str, list[StateSegment]] = {name: [] for name in tables.schemas}

    def add(self, blocks: Sequence[Block], constants: Sequence[int] = ()) -> None:
        """Add blocks whose rows all have these values in the columns after the keys."""
        for block in blocks:
            for name, segment in block.segments(self._tables, constants):
                self._segments[name].append(segment)

    def collected(self) -> Mapping[str, SegmentedTable]:
        """The tables, the empty ones too."""
        schemas = self._tables.schemas
        return {name: SegmentedTable(schemas[name], tuple(found)) for name, found in self._segments.items()}
