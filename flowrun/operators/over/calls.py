"""What OVER computes for each row, bound to columns."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.record import record
from flowrun.core.semantics import FrameUnit
from flowrun.core.types import DataType


class Place(Enum):
    """Functions of a row's place among the rows of its partition."""

    ROW_NUMBER = "ROW_NUMBER"
    RANK = "RANK"
    DENSE_RANK = "DENSE_RANK"
    LAG = "LAG"
    LEAD = "LEAD"
    NTILE = "NTILE"
    PERCENT_RANK = "PERCENT_RANK"
    CUME_DIST = "CUME_DIST"

    @property
    def looks_ahead(self) -> bool:
        """Whether later rows change the result: then it can be given only where results are corrected."""
        return self in (Place.LEAD, Place.NTILE, Place.PERCENT_RANK, Place.CUME_DIST)


@record(slots=False)
class PlaceCall:
    """A function of a row's place.

    Attributes:
        name: output column.
        type: of the result.
        argument: position of the column that LAG and LEAD read.
        offset: how many rows LAG and LEAD go back or on; the number of buckets of NTILE.
        default: position of the column with the value where there is no such row.
        default_value: that value, if it is a constant.
    """

    name: str
    place: Place
    type: DataType
    argument: int | None = None
    offset: int = 0
    default: int | None = None
    default_value: Any = None


FrameCall: TypeAlias = BoundAggregate | PlaceCall


@record
class OverFrame:
    """From `preceding` rows, or units of the order, before the current row to `following` behind it; None: from the first, to the last.

    RANGE counts rows of equal order together. Below 0 an end is on the other side of the current row. Units of floating point are
    floats, of other orders those of its codes.
    """

    unit: FrameUnit
    preceding: int | float | None = None
    following: int | float | None = 0

    @property
    def counts_units(self) -> bool:
        """Whether an end is so many units of the order away."""
        return self.unit is FrameUnit.RANGE and bool(self.preceding or self.following)
