"""The words of SQL and of streams that plans and operators share, each with one meaning: which rows a join gives, which clock counts, …

Values are those that pipelines are written with and that state keeps.
"""

from __future__ import annotations

from enum import Enum

from flowrun.core.record import record


class TimeDomain(Enum):
    """Which clock windows and timers follow: the watermark over the rows' event times, or the machine's clock."""

    EVENT = "event"
    PROCESSING = "processing"


class OutputMode(Enum):
    """What leaves windows that may fire more than once, by the names of Spark: final results, changes, or the whole table each time."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class NullKeys(Enum):
    """What grouping does with a row one of whose keys is NULL: fail, form a group of its own as in SQL, or drop it."""

    FAIL = "fail"
    GROUP = "group"
    DROP = "drop"


class JoinKind(Enum):
    """Which rows a join gives. SEMI and ANTI give rows of the left side that have, or do not have, a match."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def keeps_left(self) -> bool:
        """Whether a left row without match is in the result."""
        return self in (JoinKind.LEFT, JoinKind.FULL)

    @property
    def keeps_right(self) -> bool:
        """Whether a right row without match is in the result."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def keeps(self) -> tuple[bool, bool]:
        """For the left and the right side, whether a row without match comes out, padded with NULLs."""
        return self.keeps_left, self.keeps_right

    @property
    def counts(self) -> tuple[bool, bool]:
        """For the left and the right side, whether it matters how many matches a row has."""
        return self.keeps_left or self.left_only, self.keeps_right

    @property
    def left_only(self) -> bool:
        """Whether only columns of the left side come out."""
        return self in (JoinKind.SEMI, JoinKind.ANTI)


class FrameUnit(Enum):
    """What the ends of a frame of OVER count: rows, or units of the order, with all rows of equal order."""

    ROWS = "rows"
    RANGE = "range"


class RankFunction(Enum):
    """How rows of equal order count: one after the other, alike with a gap behind them, or alike without."""

    ROW_NUMBER = "ROW_NUMBER"
    RANK = "RANK"
    DENSE_RANK = "DENSE_RANK"


class OnDisorder(Enum):
    """What a monotonous watermark strategy does with a row that is older than one before it."""

    FAIL = "fail"
    WARN = "warn"
    IGNORE = "ignore"


class WatermarkEmit(Enum):
    """When the exact watermark of a SQL table is sent, by the names of Flink's option `scan.watermark.emit.strategy`."""

    PERIODIC = "on-periodic"
    EVENT = "on-event"


class NullOrder(Enum):
    """Where NULLs are sorted."""

    FIRST = "first"
    LAST = "last"


@record
class SortKey:
    """A column of an order, by position.

    SQL's default is NULLs first ascending and last descending (NULL is the least value), as in Flink.
    """

    column: int
    descending: bool = False
    nulls: NullOrder = NullOrder.FIRST
