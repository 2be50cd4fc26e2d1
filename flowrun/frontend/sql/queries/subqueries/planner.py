"""Subqueries of expressions as joins: SEMI and ANTI where a condition asks, LEFT with their value elsewhere (`values.py`).

Three-valued logic is kept: `x NOT IN (query)` is true only if the query gave no NULL and nothing equal to x, and x is not NULL (or the
query gave nothing).
"""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.semantics import JoinKind
from flowrun.frontend.sql.expressions.pending import PendingSubquery, SubqueryKind
from flowrun.frontend.sql.expressions.trees import compare, has, may_be_null, test
from flowrun.frontend.sql.queries.binding_context import BindingContext, SubqueryPlan
from flowrun.frontend.sql.queries.subqueries.decorrelation import (
    Decorrelation,
    SubqueryRows,
    joined,
    marker,
    subquery_rows,
)
from flowrun.frontend.sql.queries.subqueries.values import SubqueryValues
from flowrun.frontend.sql.spans import Span
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.nodes import PlanNode


class SubqueryPlanner:
    """Plans the subqueries of one query's expressions."""

    def __init__(self, context: BindingContext) -> None:
        self._context = context
        self._nodes = context.nodes

    def rows(self, plan: SubqueryPlan, around: PlanNode) -> SubqueryRows:
        """The rows of LATERAL (query) for the rows around it.

        Raises:
            ExpressionError: a query that cannot be joined instead.
        """
        return Decorrelation(self._context, plan, around, plan.outer).rows()

    def one_group(self, node: PlanNode, plan: SubqueryPlan) -> tuple[PlanNode, list[Expression], Expression | None]:
        """The node with what an aggregate without GROUP BY gives for each of its rows: its select list, and its HAVING.

        Args:
            node: the rows around.
            plan: the aggregate, which reads them.

        Raises:
            ExpressionError: a query that cannot be joined instead.
        """
        values = SubqueryValues(self._context, node)
        use = PendingSubquery(plan.types[0], SubqueryKind.SCALAR, (), plan.outer, plan.number, plan.span)
        outputs, condition = values.group_outputs(use)
        return values.node, outputs, condition

    # -- conditions ----------------------------------------------------------------------------------------------------------

    def filtered(self, node: PlanNode, conditions: Sequence[Expression], span: Span) -> PlanNode:
        """The rows for which all conditions are true, with the same columns.

        Raises:
            ExpressionError: a subquery that cannot be planned; marks the place.
        """
        width = len(node.schema)
        plain = [c for c in conditions if not has(c, PendingSubquery)]
        if plain:
            node = self._nodes.filter(node, plain, span)
        rest = []
        for condition in conditions:
            if not has(condition, PendingSubquery):
                continue
            if isinstance(condition, PendingSubquery) and self._joins_directly(condition):
                node = self._semi(node, condition)
            else:
                rest.append(condition)
        if rest:
            node, values = self.applied(node, rest, true_only=True)
            node = self._nodes.filter(node, values, span, width)
        return node

    def _joins_directly(self, use: PendingSubquery) -> bool:
        if (
            use.kind in (SubqueryKind.SCALAR, SubqueryKind.QUANTIFIED)
            or self._context.subquery(use.number).is_one_group
        ):
            return False
        return not any(has(e, PendingSubquery) for e in use.children)

    def _semi(self, node: PlanNode, use: PendingSubquery) -> PlanNode:
        kind = JoinKind.ANTI if use.negated else JoinKind.SEMI
        width = len(node.schema)
        if use.kind is SubqueryKind.EXISTS:
            rows = subquery_rows(self._context, use, node, with_items=False)
            right = rows.node if rows.conditions else marker(self._nodes, rows.node, 0, use.span)
            return self._nodes.join(node, right, kind, rows.condition(use.outer, width), use.span, kind.value)
        rows = subquery_rows(self._context, use, node)
        columns = [
            ColumnRef(f.type, rows.width + i, f.name) for i, f in enumerate(rows.node.schema.fields[rows.width :])
        ]
        columns = columns[: len(use.operands)]
        optional = any(may_be_null(o, node.schema) for o in use.operands)
        gaps = any(may_be_null(c, rows.node.schema) for c in columns)
        if use.negated and (optional or gaps):
            if rows.conditions or len(columns) > 1:
                return self._anti_unknown(node, use, rows, columns)
            node = self._without_unknown(node, use.operands[0], rows.node, optional=optional, gaps=gaps, span=use.span)
        conditions = [compare("=", o, joined(c, (), width)) for o, c in zip(use.operands, columns, strict=True)]
        correlated = rows.condition(use.outer, width)
        whole = conjunction([*conditions, *([] if correlated is None else [correlated])])
        return self._nodes.join(node, rows.node, kind, whole, use.span, kind.value)

    def _anti_unknown(
        self, node: PlanNode, use: PendingSubquery, rows: SubqueryRows, columns: Sequence[Expression]
    ) -> PlanNode:
        """NOT IN as one ANTI join: no row of the query may be equal, or equal for all that is known."""
        width = len(node.schema)
        equal = conjunction(compare("=", o, joined(c, (), width)) for o, c in zip(use.operands, columns, strict=True))
        assert equal is not None, "IN has operands"
        correlated = rows.condition(use.outer, width)
        conditions = [*([] if correlated is None else [correlated]), test("IS NOT FALSE", equal)]
        return self._nodes.join(node, rows.node, JoinKind.ANTI, conjunction(conditions), use.span, "anti")

    def _without_unknown(
        self, node: PlanNode, operand: Expression, right: PlanNode, *, optional: bool, gaps: bool, span: Span
    ) -> PlanNode:
        """The rows for which `operand NOT IN right` is not unknown: each join looks at one row that is there or not."""
        if gaps:
            column = ColumnRef(right.schema.types[0], 0, right.schema.names[0])
            missing = self._nodes.filter(right, [test("IS NULL", column)], span)
            node = self._nodes.join(node, marker(self._nodes, missing, 0, span), JoinKind.ANTI, None, span, "anti")
        if optional:
            condition = test("IS NULL", operand)
            node = self._nodes.join(node, marker(self._nodes, right, 0, span), JoinKind.ANTI, condition, span, "anti")
        return node

    # -- values --------------------------------------------------------------------------------------------------------------

    def applied(
        self, node: PlanNode, expressions: Sequence[Expression], *, true_only: bool = False
    ) -> tuple[PlanNode, list[Expression]]:
        """The node with what the subqueries give as further columns, and the expressions over it.

        With `true_only` the expressions are conditions of which only truth counts, so that unknown may be false.

        Raises:
            ExpressionError: a subquery that cannot be planned; marks the place.
        """
        if not any(has(e, PendingSubquery) for e in expressions):
            return node, list(expressions)
        values = SubqueryValues(self._context, node)
        found = [values.of(e, true_only=true_only) for e in expressions]
        return values.node, found
