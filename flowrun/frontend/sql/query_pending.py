"""Parts of a bound expression that are no scalar expressions yet: aggregates, OVER calls, subqueries, columns of the query around.

The binder leaves them in the typed tree; planning replaces each by a column of the node that computes it. No finished plan holds any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from flowrun.core.record import record
from flowrun.core.types import BIGINT, BOOLEAN, DataType
from flowrun.frontend.sql.places import Span
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.relational import Frame, NullOrder

if TYPE_CHECKING:
    from flowrun.frontend.sql.query_decorrelation import SubqueryPlan

_Pending = TypeVar("_Pending", bound=Expression)


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
        outer: the values that `OuterColumn`s of the plan stand for, over the row of the query around.
        plan: how the query is computed; compared by identity.
        negated: NOT IN or NOT EXISTS.
        column: of a scalar subquery, which of its columns.
        quantifier: of a quantified comparison, its operator, and whether it is with ALL.
    """

    kind: SubqueryKind
    operands: tuple[Expression, ...]
    outer: tuple[Expression, ...]
    plan: SubqueryPlan = field(repr=False)
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


def rewrite(expression: Expression, rule: Callable[[Expression], Expression | None]) -> Expression:
    """The tree rebuilt from the top: what `rule` gives replaces a node whole; where it gives None, the node's children are rewritten."""
    replaced = rule(expression)
    return map_children(expression, lambda child: rewrite(child, rule)) if replaced is None else replaced


def map_children(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The node with each expression that it holds changed, however deep it sits in tuples and calls."""
    changes: dict[str, Any] = {}
    for entry in fields(expression):
        old = getattr(expression, entry.name)
        new = _mapped(old, change)
        if new is not old:
            changes[entry.name] = new
    return replace(expression, **changes) if changes else expression


def _mapped(value: Any, change: Callable[[Expression], Expression]) -> Any:
    match value:
        case Expression():
            return change(value)
        case tuple():
            new = tuple(_mapped(v, change) for v in value)
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        case AggregateCall():
            arguments, condition = _mapped(value.arguments, change), _mapped(value.filter, change)
            same = arguments is value.arguments and condition is value.filter
            return value if same else replace(value, arguments=arguments, filter=condition)
        case PendingOrder():
            by = change(value.expression)
            return value if by is value.expression else replace(value, expression=by)
        case _:
            return value


def find(expression: Expression, kind: type[_Pending]) -> Iterator[_Pending]:
    """All nodes of a kind in the tree, outermost first, left to right."""
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            yield node
        stack.extend(reversed(node.children))


def has(expression: Expression, *kinds: type[Expression]) -> bool:
    """Whether a node of one of the kinds is in the tree."""
    return any(True for kind in kinds for _ in find(expression, kind))
