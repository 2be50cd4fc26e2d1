"""What all parts of one query text share while it is bound: its errors, its nodes, its subqueries, and one way to bind a query inside it.

FROM, subqueries and expressions hold queries, and queries hold them. So that no module needs one that needs it, they bind the queries
inside them through `BindingContext.queries`, which the query binder fills.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeVar

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN, DataType
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.catalog import Catalog
from flowrun.frontend.sql.expressions.pending import (
    OuterColumn,
    PendingAggregate,
    PendingOver,
    PendingSubquery,
    SubqueryKind,
)
from flowrun.frontend.sql.expressions.relations import OuterScope, QueryScope
from flowrun.frontend.sql.expressions.trees import has
from flowrun.frontend.sql.expressions.user_functions import UserFunctions
from flowrun.frontend.sql.grammar.syntax import Ordered, OrderItem, QuerySyntax, Select
from flowrun.frontend.sql.queries.bound_queries import Bound, FailedError, SelectParts
from flowrun.frontend.sql.queries.nodes import NodeMaker
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.spans import Span
from flowrun.plan.expressions import Call, Expression, columns_used
from flowrun.plan.nodes import PlanNode

_Result = TypeVar("_Result")


class QueryBinding(Protocol):
    """Binds and plans the queries inside a query."""

    def bind(self, query: QuerySyntax, environment: Environment, outer: OuterScope | None = None) -> Bound:
        """The plan of a query.

        Args:
            query: its syntax.
            environment: what names of tables mean in it.
            outer: the query around, if it may read it.

        Raises:
            ExpressionError: one thing is wrong.
            FailedError: what is wrong was added to the context's errors.
        """

    def select_parts(
        self, select: Select, environment: Environment, outer: OuterScope | None, order: Sequence[OrderItem] = ()
    ) -> SelectParts:
        """The bound clauses of a SELECT, before its nodes are made; raises as `bind` does."""

    def finished(
        self, parts: SelectParts, limit: Ordered | None, environment: Environment, *, partition: int = 0
    ) -> Bound:
        """The plan of a bound SELECT; `limit` holds for each value of its first `partition` columns by itself."""

    def grouping(self, parts: SelectParts) -> GroupMaker:
        """What makes the groups of a bound SELECT."""


class GroupMaker(Protocol):
    """Makes the groups of one SELECT."""

    def aggregated(
        self, node: PlanNode, aggregates: Sequence[PendingAggregate], extra_keys: Sequence[Expression] = ()
    ) -> PlanNode:
        """The node that groups; `extra_keys` come first."""

    def over_groups(self, output: Expression, index: int) -> Expression:
        """An expression over the rows as one over the groups; `index` is its place among the outputs."""


class BindingContext:
    """The shared part of binding one query text. Errors count places in that text.

    Attributes:
        text: the query.
        offset: where it begins in the script, in code points.
        catalog: tables, views and functions that it may name.
        statement: the statement around it.
        queries: binds the queries inside it.
        nodes: makes its nodes.
        user_functions: the script's functions.
        errors: what is wrong; errors that do not stand in each other's way are all collected.
    """

    def __init__(
        self, text: str, offset: int, catalog: Catalog, statement: QueryContext, queries: QueryBinding
    ) -> None:
        self.text = text
        self.offset = offset
        self.catalog = catalog
        self.statement = statement
        self.queries = queries
        self.nodes = NodeMaker(statement, offset)
        self.user_functions = UserFunctions(catalog)
        self.errors: list[ExpressionError] = []
        self._subqueries: list[SubqueryPlan] = []

    def attempt(self, step: Callable[[], _Result]) -> _Result | None:
        """What `step` gives; None if it failed, its error being kept."""
        try:
            return step()
        except ExpressionError as error:
            self.errors.append(error)
        except FailedError:
            pass
        return None

    def all_of(self, steps: Sequence[Callable[[], _Result]]) -> list[_Result]:
        """What all of the steps give.

        Raises:
            FailedError: one of them failed; all were tried.
        """
        before = len(self.errors)
        results: list[_Result] = []
        failed = False
        for step in steps:
            try:
                results.append(step())
            except ExpressionError as error:
                self.errors.append(error)
            except FailedError:
                failed = True
        if failed or len(self.errors) > before:
            raise FailedError
        return results

    # -- subqueries ----------------------------------------------------------------------------------------------------------

    def subquery(self, number: int) -> SubqueryPlan:
        """The bound subquery that an expression names."""
        return self._subqueries[number]

    def bound_subquery(
        self, query: QuerySyntax, environment: Environment, outer: OuterScope, span: Span
    ) -> SubqueryPlan:
        """A subquery, bound and not yet planned.

        Raises:
            ExpressionError: one thing is wrong.
            FailedError: what is wrong was added to `errors`.
        """
        limit = parts = bound = None
        if isinstance(query, Ordered):
            limit = query if query.limit is not None or query.offset is not None else None
            query = query.query if limit is None or isinstance(query.query, Select) else query
        if isinstance(query, Select):
            parts = self.queries.select_parts(query, environment, outer, limit.order if limit is not None else ())
            types = tuple(e.type for _, e in parts.items)
        else:
            bound, limit = self.queries.bind(query, environment, outer), None
            types = bound.node.schema.types[: len(bound.names)]
        plan = SubqueryPlan(len(self._subqueries), types, span, environment, parts, bound, limit, tuple(outer.captured))
        self._subqueries.append(plan)
        return plan


@record(slots=False)
class Environment:
    """What names of tables mean inside a query before the catalog is asked: the tables of WITH; None: its query is wrong."""

    context: BindingContext
    tables: Mapping[str, Bound | None] = field(default_factory=dict)

    @property
    def user_functions(self) -> UserFunctions:
        """The script's functions."""
        return self.context.user_functions

    @property
    def variances_in_double(self) -> bool:
        """As the statement says, see `QueryContext`."""
        return self.context.statement.variances_in_double

    def subquery(
        self, query: QuerySyntax, scope: QueryScope, kind: SubqueryKind, span: Span
    ) -> tuple[PendingSubquery, tuple[DataType, ...]]:
        """A subquery of an expression, bound and not yet planned, and its column types."""
        plan = self.context.bound_subquery(query, self, OuterScope(scope), span)
        type = plan.types[0] if kind is SubqueryKind.SCALAR else BOOLEAN
        return PendingSubquery(type, kind, (), plan.outer, plan.number, span), plan.types


@record(eq=False, slots=False)
class SubqueryPlan:
    """A bound subquery: `parts` of a SELECT, or `bound` if it is another form. `limit` is what follows the SELECT.

    Attributes:
        number: by which expressions name it, see `PendingSubquery`.
        outer: the values of the query around that it reads.
    """

    number: int
    types: tuple[DataType, ...]
    span: Span
    environment: Environment
    parts: SelectParts | None = None
    bound: Bound | None = None
    limit: Ordered | None = None
    outer: tuple[Expression, ...] = ()

    @property
    def is_correlated(self) -> bool:
        """Whether it reads the query around."""
        return bool(self.outer)

    @property
    def is_one_group(self) -> bool:
        """Whether it aggregates all of its rows to one."""
        return self.parts is not None and self.parts.is_one_group

    @property
    def is_group_by_keys(self) -> bool:
        """Whether it is one group for all rows around, or for each value of columns that they are equal to."""
        parts, bounds = self.parts, self.limit
        if parts is None or not parts.is_one_group or parts.qualify:
            return False
        skips = bounds is not None and (
            bounds.offset is not None or (bounds.limit is not None and bounds.limit.name == "0")
        )
        return not skips and self.equalities is not None

    @property
    def has_having(self) -> bool:
        """Whether groups are left out."""
        return self.parts is not None and bool(self.parts.having)

    @property
    def joins_by_conditions(self) -> bool:
        """Whether only conditions of WHERE, over values, read the query around."""
        parts = self.parts
        if parts is None or parts.is_correlated_beyond_where:
            return False
        return not any(has(c, PendingSubquery) for c in parts.correlated) and not any(
            has(e, PendingOver) for e in parts.outputs
        )

    @property
    def equalities(self) -> tuple[list[Expression], list[Expression]] | None:
        """The inner and the outer sides of the conditions by which the query around is read; None if not all are equalities."""
        if self.parts is None or not self.joins_by_conditions:
            return None
        sides = [_sides(c) for c in self.parts.correlated]
        known = [s for s in sides if s is not None]
        return ([i for i, _ in known], [o for _, o in known]) if len(known) == len(sides) else None

    @property
    def is_unique(self) -> bool:
        """Whether there is at most one row for each row around."""
        parts, limit = self.parts, self.limit
        if parts is None:
            return False
        if self.is_one_group or (limit is not None and limit.limit is not None and limit.limit.name == "1"):
            return True
        if parts.groups is None or len(parts.groups.sets) != 1 or parts.groups.window is not None:
            return False
        keys = self.equalities
        return keys is not None and all(k in keys[0] for k in parts.groups.keys)


def _sides(condition: Expression) -> tuple[Expression, Expression] | None:
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    for inner, outer in (condition.arguments, condition.arguments[::-1]):
        if not has(inner, OuterColumn) and columns_used(inner) and not columns_used(outer) and has(outer, OuterColumn):
            return inner, outer
    return None
