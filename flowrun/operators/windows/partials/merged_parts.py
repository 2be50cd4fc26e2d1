"""Partial results of one window, slice or key space: appended cheaply, merged when it pays.

What is appended stays in the block in which a snapshot found it until it is merged; see `MergedParts`.
"""

from __future__ import annotations

from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.reduction import keys_repeat
from flowrun.operators.windows.partials.part_log import Block, PartLog

MIN_PENDING_ROWS = 256 * 1024


class MergedParts:
    """What is merged, then a tail of parts in order of arrival.

    The tail is merged by itself while its keys repeat, and with the rest once it outgrows twice that: each row takes part in a bounded
    number of merges, and keys that are updated often cost nothing to those that are not, in checkpoints neither.
    """

    __slots__ = ("_ahead", "_base", "_look_at", "_tail")

    def __init__(self) -> None:
        self._base = PartLog()
        self._tail = PartLog()
        self._look_at = MIN_PENDING_ROWS
        """Rows of the tail at which it is looked at next."""
        self._ahead: dict[int, PartLog] = {}

    def append(self, part: Bundle, engine: AggregationEngine) -> None:
        """Add partial results that arrived after all others."""
        self._tail.append(part)
        if self._tail.rows <= self._look_at:
            return
        if self._base.rows and keys_repeat(self._tail.bundles()):
            self._tail = _merged(self._tail, engine)
        if self._tail.rows > 2 * self._base.rows:
            self.compact(engine)
        self._look_at = self._tail.rows + MIN_PENDING_ROWS

    def append_ahead(self, part: Bundle, fired: int) -> None:
        """Add partial results of keys whose windows another subtask had fired up to event time `fired`, ahead of this one."""
        self._ahead.setdefault(fired, PartLog()).append(part)

    @property
    def unmerged_rows(self) -> int:
        """Rows that came since the last merge."""
        return self._tail.rows

    @property
    def has_ahead(self) -> bool:
        """Whether it holds parts that are ahead of this subtask."""
        return bool(self._ahead)

    def compact(self, engine: AggregationEngine) -> None:
        """Merge all own parts into one."""
        if self._tail.rows or len(self._base.bundles()) > 1:
            self._base.prepend_to(self._tail)
            self._base, self._tail = _merged(self._tail, engine), PartLog()

    @property
    def merged(self) -> Bundle | None:
        """The own parts after `compact`; None if there are none."""
        return next(iter(self._base.bundles()), None)

    def parts(self, fired_before: int | None = None) -> list[Bundle]:
        """All parts; with `fired_before`, without those whose windows had fired up to that time or later in another subtask."""
        own = [*self._base.bundles(), *self._tail.bundles()]
        if not self._ahead:
            return own
        ahead = [log for fired, log in self._ahead.items() if fired_before is None or fired < fired_before]
        return [*(b for log in ahead for b in log.bundles()), *own]

    def settle(self, fired: int) -> None:
        """Treat parts as own ones once this subtask has caught up with them."""
        for ahead in [f for f in self._ahead if f <= fired]:
            self._ahead.pop(ahead).prepend_to(self._base)

    def blocks(self) -> list[Block]:
        """Everything in blocks that never change."""
        return [b for log in (*self._ahead.values(), self._base, self._tail) for b in log.blocks()]

    @property
    def num_rows(self) -> int:
        """Rows of all parts."""
        return sum(log.rows for log in (self._base, self._tail, *self._ahead.values()))

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(b.nbytes for b in self.parts())


def _merged(log: PartLog, engine: AggregationEngine) -> PartLog:
    return PartLog([engine.merge(concat_bundles(log.bundles()), in_arrival_order=True)])
