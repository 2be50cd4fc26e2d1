"""What a row pattern is to its operator: variables, how often each occurs, and what conditions and measures look at."""

from __future__ import annotations

from enum import Enum

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.functions import PredicateFunction
from flowrun.core.record import record


@record
class Variable:
    """One variable: it takes `least` to `most` consecutive rows; None: any number."""

    name: str
    least: int
    most: int | None
    greedy: bool

    @property
    def keeps_rows_from_others(self) -> bool:
        """Whether, having taken `most` rows, it still keeps rows that it would take from the variables behind it."""
        return self.greedy and self.most is not None and self.least < self.most


class Anchor(Enum):
    """From where a referred row is counted."""

    FIRST = "first"
    LAST = "last"
    PREVIOUS = "previous"


@record
class RowReference:
    """A column of one row: the `offset`-th after the first or before the last one of a variable (None: of the match so far), or before
    the current row, matched or not. NULL if there is no such row.
    """

    column: int
    variable: int | None
    anchor: Anchor
    offset: int = 0


@record
class RangeAggregate:
    """An aggregate over the rows of a variable (None: of the match so far). `aggregate` reads the columns of the rows."""

    aggregate: BoundAggregate
    variable: int | None


Reference = RowReference | RangeAggregate


@record
class Condition:
    """What must hold for a row to be taken as a variable.

    Attributes:
        local: over `local_references`, which look at the current row and rows before it alone: the same whatever was matched.
        dependent: over `references`, the current row being the last one of the variable.
    """

    local: PredicateFunction | None = None
    local_references: tuple[RowReference, ...] = ()
    dependent: PredicateFunction | None = None
    references: tuple[Reference, ...] = ()


class Skip(Enum):
    """Where the search goes on after a match."""

    PAST_LAST_ROW = "past last row"
    TO_NEXT_ROW = "to next row"
    TO_FIRST = "to first"
    TO_LAST = "to last"


@record
class Pattern:
    """A whole pattern; `conditions` are those of `variables`, in the same order. `skip_to`: variable of Skip.TO_FIRST and TO_LAST."""

    variables: tuple[Variable, ...]
    conditions: tuple[Condition, ...]
    skip: Skip
    skip_to: int | None = None
    within_ms: int | None = None

    @property
    def lookback(self) -> int:
        """How many rows before a start of a match conditions may look at."""
        references = [r for c in self.conditions for r in (*c.local_references, *c.references)]
        return max(
            (r.offset for r in references if isinstance(r, RowReference) and r.anchor is Anchor.PREVIOUS), default=0
        )
