"""Calls of aggregates in queries: users' functions, built-in ones, and those that are expressions over others."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from flowrun.frontend.sql.expressions.aggregate_calls import check_arguments, is_star, typed_call, written_arguments
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.expressions.derived_aggregates import Pending, derived_aggregate, is_derived_aggregate
from flowrun.frontend.sql.expressions.ordered_aggregates import order_of, ordered_aggregate
from flowrun.frontend.sql.expressions.user_functions import UserFunctions
from flowrun.functions.registry import aggregate
from flowrun.plan.expressions import AggregateCall, Case, Expression, Literal


class QueryAggregates:
    """Binds the calls of aggregates in one query."""

    def __init__(self, user_functions: UserFunctions, *, variances_in_double: bool) -> None:
        self._user_functions = user_functions
        self._variances_in_double = variances_in_double

    def knows(self, name: str) -> bool:
        """Whether an aggregate has the name."""
        return aggregate(name) is not None or self.is_users(name) or is_derived_aggregate(name)

    def is_users(self, name: str) -> bool:
        """Whether a user's aggregate has the name."""
        return self._user_functions.is_aggregate(name)

    def result(
        self,
        node: exp.Expression,
        condition: exp.Expression | None,
        rows: ExpressionBinder,
        pending: Pending,
        *,
        is_over: bool = False,
    ) -> Expression:
        """What a call of an aggregate stands for: `pending` of its call, or an expression over several.

        `rows` binds its arguments; `is_over`: it has an OVER window.
        """
        filter = None if condition is None else rows.boolean(condition, "the condition of FILTER")
        if order_of(node):
            return ordered_aggregate(rows, node, filter, pending)
        derived = None
        if not self._user_functions.is_aggregate(str(node.this).upper()):
            derived = derived_aggregate(
                rows, node, filter, pending, variances_in_double=self._variances_in_double, is_over=is_over
            )
        return pending(self._aggregate_call(node, rows, filter)) if derived is None else derived

    def _aggregate_call(self, node: exp.Expression, rows: ExpressionBinder, filter: Expression | None) -> AggregateCall:
        arguments, distinct = written_arguments(node)
        user = self._user_functions.aggregate(str(node.this), rows, node, arguments, distinct, filter)
        if user is not None:
            return user
        function = aggregate(str(node.this))
        assert function is not None
        star = is_star(arguments)
        check_arguments(rows, function, arguments, node, distinct=distinct, star=star)
        arguments = [] if star else arguments
        bound = [rows.bind(a) for a in arguments]
        if function.name == "COUNT" and len(bound) > 1:
            bound, arguments = [_all_present(rows, bound, arguments, node)], arguments[:1]
        return typed_call(rows, function, bound, arguments, node, distinct=distinct, filter=filter)


def _all_present(
    binder: ExpressionBinder,
    values: Sequence[Expression],
    nodes: Sequence[exp.Expression],
    node: exp.Expression,
) -> Expression:
    """ROW(values) where none is NULL, else NULL: what COUNT(a, b) counts."""
    row = binder.apply("ROW", values, nodes, node)
    missing = [binder.apply("IS NULL", (v,), (n,), node) for v, n in zip(values, nodes, strict=True)]
    return Case(row.type, tuple((m, Literal(row.type, None)) for m in missing), row)
