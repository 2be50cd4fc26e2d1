"""Parts of a bound expression that are no scalar expressions yet: aggregates, OVER calls, subqueries, columns of the query around.

The binder leaves them in the typed tree; planning replaces each by a column of the node that computes it. No finished plan holds any.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum

from flowrun.core.record import record
from flowrun.core.semantics import NullOrder
from flowrun.core.types import BIGINT, BOOLEAN, DataType
from flowrun.frontend.sql.spans import Span
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.relational import Frame


@record
class PendingAggregate(Expression):
    """An aggregate over the group's rows; the call's `name` is empty."""

    call: AggregateCall

    @property
    def children(self) -> tuple[Expression, ...]:
        filter = () if self.call.filter is None else (self.call.filter,)
        return (*self.call.arguments, *filter)

    def __str__(self) -> str:
        return str(self.call)


@record
class PendingOrder:
    """An order of OVER, by an expression."""

    expression: Expression
    descending: bool
    nulls: NullOrder


@record
class PendingOver(Expression):
    """An OVER call."""

    call: AggregateCall
    partition: tuple[Expression, ...]
    order: tuple[PendingOrder, ...]
    frame: Frame | None
    span: Span = field(compare=False)

    @property
    def children(self) -> tuple[Expression, ...]:
        filter = () if self.call.filter is None else (self.call.filter,)
        return (*self.call.arguments, *filter, *self.partition, *(o.expression for o in self.order))

    def __str__(self) -> str:
        return f"{self.call} OVER (…)"


@record
class PendingGrouping(Expression):
    """GROUPING, GROUPING_ID or GROUP_ID."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span = field(compare=False)
    type: DataType = field(default=BIGINT, kw_only=True)

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments


@record
class PendingWindowBound(Expression):
    """TUMBLE_START(ts, size) and its like: `bound` of the group window `window(arguments)`."""

    window: str
    bound: str
    arguments: tuple[Expression, ...]
    span: Span = field(compare=False)

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments


@record
class OuterColumn(Expression):
    """Inside a correlated subquery: number `index` of the values that it takes from the query around it."""

    index: int
    name: str = field(compare=False)

    def __str__(self) -> str:
        return self.name


class SubqueryKind(Enum):
    """What an expression asks of a subquery."""

    SCALAR = "scalar"
    EXISTS = "exists"
    IN = "in"
    QUANTIFIED = "quantified"


@record
class PendingSubquery(Expression):
    """The value of a subquery.

    Attributes:
        operands: what IN looks for, one a column of the query; what ALL or ANY compare.
        outer: the values that `OuterColumn`s of the subquery stand for, over the row of the query around.
        number: of the subquery among those of the query text; the binding context knows how it is computed.
        negated: NOT IN or NOT EXISTS.
        column: of a scalar subquery, which of its columns.
        quantifier: of a quantified comparison, its operator, and whether it is with ALL.
    """

    kind: SubqueryKind
    operands: tuple[Expression, ...]
    outer: tuple[Expression, ...]
    number: int
    span: Span = field(compare=False)
    negated: bool = False
    column: int = 0
    quantifier: tuple[str, bool] | None = None

    @property
    def children(self) -> tuple[Expression, ...]:
        return (*self.operands, *self.outer)

    def __str__(self) -> str:
        return f"{self.kind.value} subquery"


def negation(subquery: PendingSubquery) -> PendingSubquery:
    """The opposite of EXISTS or IN."""
    return replace(subquery, negated=not subquery.negated, type=BOOLEAN)
