"""Expressions of a query → typed trees in which aggregates, OVER calls and subqueries are still pending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Protocol

from sqlglot import exp

from flowrun.core.types import DataType, timestamp
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.expressions.ordered_aggregates import reject_order
from flowrun.frontend.sql.expressions.over import OverBinder, is_over_function
from flowrun.frontend.sql.expressions.pending import (
    PendingAggregate,
    PendingGrouping,
    PendingSubquery,
    PendingWindowBound,
    SubqueryKind,
    negation,
)
from flowrun.frontend.sql.expressions.query_aggregates import QueryAggregates
from flowrun.frontend.sql.expressions.relations import QueryScope
from flowrun.frontend.sql.expressions.user_functions import UserFunctions
from flowrun.frontend.sql.grammar.syntax import OverClause, QuerySyntax
from flowrun.frontend.sql.spans import Span, span_of
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate, scalar
from flowrun.plan.expressions import And, Expression, Literal, Or

GROUP_WINDOWS = ("TUMBLE", "HOP", "SESSION")
_BOUNDS = ("START", "END", "ROWTIME", "PROCTIME")
_AUXILIARY = {f"{w}_{b}": (w, b) for w in GROUP_WINDOWS for b in _BOUNDS}
_GROUPINGS = ("GROUPING", "GROUPING_ID", "GROUP_ID")
_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
}  # fmt: skip


class Clause(Enum):
    """The part of a query that an expression stands in; the value is how messages call it."""

    WHERE = "WHERE"
    ON = "ON"
    GROUP_BY = "GROUP BY"
    SELECT = "SELECT"
    ROWS = "a select list of rows"
    HAVING = "HAVING"
    QUALIFY = "QUALIFY"
    ORDER_BY = "ORDER BY"
    FROM = "FROM"
    VALUES = "VALUES"
    LIMIT = "LIMIT"
    AGGREGATE = "an aggregate"
    OVER = "OVER"

    @property
    def takes_aggregates(self) -> bool:
        """Whether aggregates over groups may stand there."""
        return self in (Clause.SELECT, Clause.HAVING, Clause.QUALIFY, Clause.ORDER_BY, Clause.OVER)

    @property
    def takes_over(self) -> bool:
        """Whether OVER calls may stand there."""
        return self in (Clause.SELECT, Clause.ROWS, Clause.QUALIFY, Clause.ORDER_BY)


class BindsSubqueries(Protocol):
    """What the expression binder needs of the query binder."""

    @property
    def user_functions(self) -> UserFunctions:
        """The script's functions."""

    @property
    def variances_in_double(self) -> bool:
        """As the statement says, see `QueryContext`."""

    def subquery(
        self, query: QuerySyntax, scope: QueryScope, kind: SubqueryKind, span: Span
    ) -> tuple[PendingSubquery, tuple[DataType, ...]]:
        """The bound query, not yet planned, and its column types."""


class QueryExpressionBinder(ExpressionBinder):
    """Binds the expressions of one clause of one query."""

    def __init__(
        self,
        scope: QueryScope,
        clause: Clause,
        queries: BindsSubqueries,
        windows: Mapping[str, OverClause] | None = None,
        outputs: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(scope)
        self.outputs = outputs
        self.query_scope = scope
        self.clause = clause
        self.queries = queries
        self.windows = windows or {}
        self._aggregates = QueryAggregates(queries.user_functions, variances_in_double=queries.variances_in_double)

    def within(self, clause: Clause) -> QueryExpressionBinder:
        """A binder of the same names for what stands inside `clause`."""
        scope = self.query_scope.in_aggregates if clause is Clause.AGGREGATE else self.query_scope
        return QueryExpressionBinder(scope, clause, self.queries, self.windows, self.outputs)

    @property
    def current_database(self) -> str:
        """That of the script."""
        return self.queries.user_functions.current_database

    def bind(self, node: exp.Expression) -> Expression:
        """The typed tree of a node; see the class for what may be pending in it."""
        symbol = _COMPARISONS.get(type(node))
        if symbol is not None:
            if isinstance(node.expression, exp.Any | exp.All):
                return self._quantified(node, symbol)
            if (rows := self._compared_rows(node, symbol)) is not None:
                return rows
        return super().bind(node)

    def column(self, node: exp.Expression) -> Expression:
        """A dotted name; `outputs` are names that the select list gives and that Flink does not know here."""
        try:
            return super().column(node)
        except ExpressionError as error:
            if not isinstance(node, exp.Column) or node.table or node.name not in self.outputs:
                raise
            hint = f"'{node.name}' is a name of the select list: repeat its expression here, or name it in a subquery in FROM"
            raise ExpressionError(error.message, offset=error.offset, length=error.length, hint=hint) from None

    # -- functions -----------------------------------------------------------------------------------------------------------

    def function(self, node: exp.Expression) -> Expression:
        """A call by name: a user's function, an aggregate, a function of group windows, or an ordinary one."""
        name = str(node.this).upper()
        user = self.queries.user_functions.find(name)
        if user is not None and (call := self.queries.user_functions.scalar(user, self, node)) is not None:
            return call
        if user is None and node.meta.get("qualified"):
            return super().function(node)
        if name in _GROUPINGS and self.clause.takes_aggregates:
            return PendingGrouping(name, tuple(self.bind(a) for a in node.expressions), span_of(node))
        if name in _AUXILIARY:
            return self._window_bound(node, *_AUXILIARY[name])
        if name in GROUP_WINDOWS:
            self.fail(
                f"{name}(…) stands only in GROUP BY", node, f"use {name}_START(…), {name}_END(…) or {name}_ROWTIME(…)"
            )
        if self._aggregates.knows(name):
            return self._aggregate(node, None)
        if is_over_function(name) and scalar(name) is None:
            self.fail(f"{name} needs OVER", node, f"write {name}() OVER (PARTITION BY … ORDER BY …)")
        reject_order(self, node)
        return super().function(node)

    def filtered(self, node: exp.Expression) -> Expression:
        """An aggregate with FILTER (WHERE …)."""
        call, where = node.this, node.expression
        if not isinstance(call, exp.Anonymous) or not self._aggregates.knows(str(call.this).upper()):
            return super().filtered(node)
        condition = where.this if isinstance(where, exp.Where) else where
        return self._aggregate(call, condition)

    def _aggregate(self, node: exp.Expression, condition: exp.Expression | None) -> Expression:
        if not self.clause.takes_aggregates:
            self.reject_aggregate(node, str(node.this))
        return self._aggregates.result(
            node, condition, self.within(Clause.AGGREGATE), lambda call: PendingAggregate(call.type, call)
        )

    def reject_aggregate(self, node: exp.Expression, name: str) -> None:
        """Fail if the name is an aggregate: it has no meaning in this clause."""
        if not self._aggregates.knows(name.upper()) or self.clause.takes_aggregates:
            return
        if self.clause is Clause.AGGREGATE:
            self.fail(
                f"{name.upper()} stands inside another aggregate", node, "aggregate in a subquery in FROM, then again"
            )
        hints = {
            Clause.WHERE: "use HAVING, or compare with a subquery: (SELECT … FROM …)",
            Clause.GROUP_BY: "group by columns, or aggregate in a subquery in FROM first",
        }
        self.fail(
            f"{name.upper()} is an aggregate, it is not possible in {self.clause.value}",
            node,
            hints.get(self.clause, "aggregate in a subquery in FROM first"),
        )

    def _window_bound(self, node: exp.Expression, window: str, bound: str) -> Expression:
        if not self.clause.takes_aggregates:
            self.fail(f"{window}_{bound} is not possible in {self.clause.value}", node, "use it in the select list")
        arguments = tuple(self.within(Clause.AGGREGATE).bind(a) for a in node.expressions)
        if not arguments:
            self.fail(f"{window}_{bound} needs the arguments of {window}", node)
        proctime = scalar("PROCTIME")
        assert proctime is not None
        types = {"ROWTIME": arguments[0].type, "PROCTIME": proctime.type_rule(()).result}
        return PendingWindowBound(types.get(bound, timestamp(3)), window, bound, arguments, span_of(node))

    # -- OVER ----------------------------------------------------------------------------------------------------------------

    def windowed(self, node: exp.Expression) -> Expression:
        """A call with OVER."""
        if not self.clause.takes_over:
            hint = "put it into a subquery: SELECT … FROM (SELECT …, ROW_NUMBER() OVER (…) AS rn FROM …) WHERE rn <= 3"
            self.fail(f"OVER is not possible in {self.clause.value}", node, hint)
        inner = Clause.OVER if self.clause.takes_aggregates else Clause.AGGREGATE
        return OverBinder(self.within(inner), self.windows, self._aggregates).call(node)

    # -- subqueries ----------------------------------------------------------------------------------------------------------

    def subquery(self, node: exp.Expression) -> Expression:
        """A query as a value."""
        self._check_subquery(node)
        if isinstance(node, exp.Any | exp.All):
            self.fail("ANY and ALL follow only a comparison", node, "write x = ANY (SELECT …)")
        pending, types = self.queries.subquery(node.meta["query"], self.query_scope, SubqueryKind.SCALAR, span_of(node))
        if len(types) != 1:
            self.fail(f"a subquery as a value must have one column, this has {len(types)}", node, "select one column")
        return pending

    def exists(self, node: exp.Expression) -> Expression:
        """EXISTS."""
        self._check_subquery(node)
        pending, _ = self.queries.subquery(
            node.this.meta["query"], self.query_scope, SubqueryKind.EXISTS, span_of(node)
        )
        return pending

    def _check_subquery(self, node: exp.Expression) -> None:
        if self.clause in (Clause.FROM, Clause.VALUES, Clause.LIMIT):
            self.fail(
                f"a subquery as a value is not possible in {self.clause.value}",
                node,
                "join it in FROM: … JOIN (SELECT …) AS t ON …",
            )

    def inversion(self, node: exp.Expression) -> Expression:
        """NOT; of EXISTS it is another test."""
        inner = node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Exists):
            pending = self.exists(inner)
            assert isinstance(pending, PendingSubquery)
            return negation(pending)
        return super().inversion(node)

    def in_query(self, node: exp.Expression, negated: bool) -> Expression:
        """X [NOT] IN (query), (x, y) [NOT] IN (query)."""
        return self._in(node, node.this, node.args["query"], negated)

    def _in(self, node: exp.Expression, left: exp.Expression, query: exp.Expression, negated: bool) -> Expression:
        self._check_subquery(node)
        pending, types = self.queries.subquery(query.meta["query"], self.query_scope, SubqueryKind.IN, span_of(node))
        while isinstance(left, exp.Paren):
            left = left.this
        is_row = isinstance(left, exp.Tuple) or (
            isinstance(left, exp.Anonymous) and str(left.this).upper() == "ROW" and len(types) > 1
        )
        nodes = list(left.expressions) if is_row else [left]
        if len(nodes) != len(types):
            self.fail(
                f"{len(nodes)} value{'s'[: len(nodes) > 1]} cannot be IN a query of {len(types)} columns",
                node,
                "select as many columns as there are values",
            )
        operands = [self.bind(n) for n in nodes]
        for operand, type, one in zip(operands, types, nodes, strict=True):
            # the comparison is built when the join is; here it only shows whether there is one
            self.apply("=", (operand, Literal(type, None)), (one, one), one)
        return replace(pending, operands=tuple(operands), negated=negated)

    def _quantified(self, node: exp.Expression, symbol: str) -> Expression:
        """X op ALL (query), x op ANY (query)."""
        quantified: exp.Expression = node.expression
        every = isinstance(quantified, exp.All)
        if (symbol, every) in (("=", False), ("<>", True)):
            return self._in(node, node.this, quantified.this, negated=every)
        self._check_subquery(node)
        query = quantified.this.meta["query"]
        pending, types = self.queries.subquery(query, self.query_scope, SubqueryKind.QUANTIFIED, span_of(node))
        word = "ALL" if every else "ANY"
        if len(types) != 1 or isinstance(node.this, exp.Tuple):
            self.fail(
                f"{symbol} {word} compares one value with a query of one column",
                node,
                "compare rows with = ANY or <> ALL, or one column at a time",
            )
        operand = self.bind(node.this)
        compared = self.apply(symbol, (operand, Literal(types[0], None)), (node.this, node.this), node)
        least = aggregate("MIN")
        assert least is not None
        try:
            least.type_rule([Argument(compared.children[1].type)])
        except ExpressionError:
            hint = f"use {'NOT IN' if every else 'IN'}, or compare a value that has an order"
            self.fail(f"{symbol} {word} needs values that have an order, this is {types[0]}", node, hint)
        return replace(pending, operands=(operand,), quantifier=(symbol, every))

    # -- comparisons of rows -------------------------------------------------------------------------------------------------

    def _compared_rows(self, node: exp.Expression, symbol: str) -> Expression | None:
        """(a, b) < (c, d), (a, b) = (SELECT c, d …): value by value, from the left; None: not a comparison of rows."""
        left, right = (_without_parens(n) for n in (node.this, node.expression))
        row, other = (left, right) if isinstance(left, exp.Tuple) else (right, left)
        if not isinstance(row, exp.Tuple) or not isinstance(other, exp.Tuple | exp.Subquery):
            return None
        if isinstance(other, exp.Tuple) and symbol in ("=", "<>"):
            return None  # values of type ROW, which have equality themselves
        width = len(row.expressions)
        return self._compared(symbol, self._row_values(left, width, node), self._row_values(right, width, node), node)

    def _row_values(self, node: exp.Expression, width: int, comparison: exp.Expression) -> list[Expression]:
        if isinstance(node, exp.Tuple):
            values = [self.bind(n) for n in node.expressions]
        else:
            self._check_subquery(node)
            query = node.meta["query"]
            pending, types = self.queries.subquery(query, self.query_scope, SubqueryKind.SCALAR, span_of(node))
            values = [replace(pending, type=t, column=i) for i, t in enumerate(types)]
        if len(values) != width:
            self.fail(
                f"a row of {width} values does not compare with one of {len(values)}",
                comparison,
                "write as many values on both sides",
            )
        return values

    def _compared(
        self, symbol: str, left: Sequence[Expression], right: Sequence[Expression], node: exp.Expression
    ) -> Expression:
        """Rows compared value by value: the first values that are not equal decide."""
        if symbol in ("=", "<>"):
            parts = tuple(self.apply(symbol, pair, (node, node), node) for pair in zip(left, right, strict=True))
            return And(parts) if symbol == "=" else Or(parts)
        *before, last = zip(left, right, strict=True)
        found = self.apply(symbol, last, (node, node), node)
        for pair in reversed(before):
            equal = self.apply("=", pair, (node, node), node)
            found = Or((self.apply(symbol[0], pair, (node, node), node), And((equal, found))))
        return found


def _without_parens(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def conjuncts(node: exp.Expression | None) -> list[exp.Expression]:
    """The operands of a chain of ANDs, in the order of the text."""
    found: list[exp.Expression] = []
    stack = [] if node is None else [node]
    while stack:
        current = stack.pop()
        if isinstance(current, exp.And):
            stack += [current.expression, current.this]
        elif isinstance(current, exp.Paren) and isinstance(current.this, exp.And | exp.Paren):
            stack.append(current.this)
        else:
            found.append(current)
    return found
