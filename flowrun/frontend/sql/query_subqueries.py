"""Subqueries of expressions as joins: SEMI and ANTI where a condition asks, LEFT with a value or a marker elsewhere.

Three-valued logic is kept: `x NOT IN (query)` is true only if the query gave no NULL and nothing equal to x, and x is not NULL (or the
query gave nothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.types import BIGINT, BOOLEAN
from flowrun.frontend.sql.query_decorrelation import Decorrelation, SubqueryPlan, SubqueryRows, bound_subquery, joined
from flowrun.frontend.sql.query_nodes import compare, fail, may_be_null, test
from flowrun.frontend.sql.query_pending import PendingAggregate, PendingSubquery, SubqueryKind, find, has, map_children
from flowrun.frontend.sql.query_relations import Named, OuterScope
from flowrun.frontend.sql.syntax import QuerySyntax, Span
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import AggregateCall, And, Call, Case, ColumnRef, Expression, Literal, Or
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import JoinKind

if TYPE_CHECKING:
    from flowrun.frontend.sql.query_binder import Environment, QueryBinder

_TRUE = Literal(BOOLEAN, True)
_FALSE = Literal(BOOLEAN, False)
_ZERO_OF_NOTHING = ("COUNT", "SUM0")


class SubqueryPlanner:
    """Plans the subqueries of one query's expressions."""

    def __init__(self, binder: QueryBinder) -> None:
        self._binder = binder
        self._nodes = binder.nodes

    def bound(
        self, query: QuerySyntax, environment: Environment, outer: OuterScope, span: Span
    ) -> tuple[SubqueryPlan, list[Expression]]:
        """A subquery, not yet planned, and the values of the query around that it reads."""
        plan = bound_subquery(self._binder, query, environment, outer, span)
        return plan, outer.captured

    def rows(self, plan: SubqueryPlan) -> SubqueryRows:
        """The rows of LATERAL (query).

        Raises:
            ExpressionError: a query that cannot be joined instead.
        """
        return Decorrelation(self._binder, plan).rows()

    def one_group(
        self, node: PlanNode, plan: SubqueryPlan, outer: Sequence[Expression]
    ) -> tuple[PlanNode, list[Expression], Expression | None]:
        """The node with what an aggregate without GROUP BY gives for each of its rows: its select list, and its HAVING.

        Args:
            node: the rows around.
            plan: the aggregate, which reads them.
            outer: what it reads, over the columns of the node.

        Raises:
            ExpressionError: a query that cannot be joined instead.
        """
        values = _Values(self, node)
        use = PendingSubquery(plan.types[0], SubqueryKind.SCALAR, (), tuple(outer), plan, plan.span)
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
        if use.kind is SubqueryKind.SCALAR or use.plan.is_one_group:
            return False
        return not any(has(e, PendingSubquery) for e in use.children)

    def _semi(self, node: PlanNode, use: PendingSubquery) -> PlanNode:
        kind = JoinKind.ANTI if use.negated else JoinKind.SEMI
        width = len(node.schema)
        if use.kind is SubqueryKind.EXISTS:
            rows = Decorrelation(self._binder, use.plan).rows(with_items=False)
            right = rows.node if rows.conditions else self._marker(rows.node, 0, use.span)
            return self._nodes.join(node, right, kind, rows.condition(use.outer, width), use.span, kind.value)
        rows = Decorrelation(self._binder, use.plan).rows()
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
            node = self._nodes.join(node, self._marker(missing, 0, span), JoinKind.ANTI, None, span, "anti")
        if optional:
            condition = test("IS NULL", operand)
            node = self._nodes.join(node, self._marker(right, 0, span), JoinKind.ANTI, condition, span, "anti")
        return node

    def _marker(self, node: PlanNode, width: int, span: Span) -> PlanNode:
        """Each value of the first `width` columns once, followed by TRUE."""
        columns: list[Named] = [
            (f.name, ColumnRef(f.type, i, f.name)) for i, f in enumerate(node.schema.fields[:width])
        ]
        return self._nodes.distinct(self._nodes.calc(node, [*columns, ("PRESENT", _TRUE)], span), span)

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
        values = _Values(self, node)
        found = [values.of(e, true_only=true_only) for e in expressions]
        return values.node, found


class _Values:
    """Replaces subqueries in expressions by columns; `node` grows by the joins that give them."""

    def __init__(self, planner: SubqueryPlanner, node: PlanNode) -> None:
        self._planner = planner
        self._binder = planner._binder
        self._nodes = planner._nodes
        self.node = node
        self._known: dict[tuple[PendingSubquery, bool], Expression] = {}

    def of(self, expression: Expression, *, true_only: bool = False) -> Expression:
        """The expression without subqueries, over the columns of `node`."""
        if isinstance(expression, PendingSubquery):
            known = self._known.get((expression, true_only))
            if known is None:
                known = self._value(expression, true_only=true_only)
                self._known[expression, true_only] = known
            return known
        inner = true_only and isinstance(expression, And | Or)
        return map_children(expression, lambda e: self.of(e, true_only=inner))

    def _value(self, use: PendingSubquery, *, true_only: bool) -> Expression:
        use = replace(use, operands=tuple(self.of(o) for o in use.operands), outer=tuple(self.of(o) for o in use.outer))
        match use.kind:
            case SubqueryKind.SCALAR:
                return self._one_group(use) if use.plan.is_one_group else self._single(use)
            case SubqueryKind.EXISTS:
                return self._exists(use)
            case SubqueryKind.IN if use.plan.is_one_group:
                if len(use.operands) > 1:
                    raise fail("several values IN an aggregate are not supported", use.span, "compare them one by one")
                return compare("<>" if use.negated else "=", use.operands[0], self._one_group(use))
            case SubqueryKind.IN:
                return self._in(use, true_only=true_only and not use.negated)

    def _join(self, rows: SubqueryRows, use: PendingSubquery, extra: Sequence[Expression] = ()) -> int:
        """Joins rows, of which there is at most one for each row of `node`; where their columns then begin."""
        width = len(self.node.schema)
        correlated = rows.condition(use.outer, width)
        conditions = [*([] if correlated is None else [correlated]), *extra]
        self.node = self._nodes.join(self.node, rows.node, JoinKind.LEFT, conjunction(conditions), use.span, "subquery")
        return width

    def _column(self, position: int) -> ColumnRef:
        entry = self.node.schema.fields[position]
        return ColumnRef(entry.type, position, entry.name)

    def _one_group(self, use: PendingSubquery) -> Expression:
        """The value of an aggregate over the rows that belong to a row."""
        (value, *_), condition = self.group_outputs(use)
        return value if condition is None else Case(value.type, ((condition, value),), Literal(value.type, None))

    def group_outputs(self, use: PendingSubquery) -> tuple[list[Expression], Expression | None]:
        """Select list and HAVING of an aggregate over the rows that belong to a row: COUNT of none is 0, all else is NULL.

        One value for all rows is NULL until it is known, COUNT too, as in Apache Flink: rows would else be computed with a 0 before the
        first row of the subquery has come.
        """
        plan, parts = use.plan, use.plan.parts
        assert parts is not None
        bounds = plan.limit
        if bounds is not None and (
            (bounds.offset is not None and bounds.offset.name != "0")
            or (bounds.limit is not None and bounds.limit.name == "0")
        ):
            raise fail(
                "an aggregate without GROUP BY is one row, which is skipped here", plan.span, "leave the bounds out"
            )
        inner, outer = Decorrelation(self._binder, plan).keys()
        outputs = (*(e for _, e in parts.items), *parts.having)
        aggregates: list[PendingAggregate] = []
        for output in outputs:
            aggregates += [a for a in find(output, PendingAggregate) if a not in aggregates]
        grouping = self._binder.grouping(parts)
        node = grouping.aggregated(parts.relation.node, aggregates, inner)
        conditions = tuple(
            compare("=", o, ColumnRef(e.type, i, node.schema.names[i]))
            for i, (e, o) in enumerate(zip(inner, outer, strict=True))
        )
        start = self._join(SubqueryRows(node, len(inner), (), conditions), use)
        counts = [i for i, a in enumerate(aggregates) if inner and a.call.function in _ZERO_OF_NOTHING]
        zero = {start + len(inner) + i for i in counts}

        def filled(e: Expression) -> Expression:
            if isinstance(e, ColumnRef) and e.index in zero:
                return Case(e.type, ((test("IS NOT NULL", e), e),), Literal(BIGINT, 0))
            return map_children(e, filled)

        values = [filled(joined(grouping.over_groups(o, i), use.outer, start)) for i, o in enumerate(outputs)]
        count = len(parts.items)
        return values[:count], conjunction(values[count:])

    def _single(self, use: PendingSubquery) -> Expression:
        """The value of the only row that belongs to a row."""
        decorrelation = Decorrelation(self._binder, use.plan)
        rows = decorrelation.rows(by_keys=True)
        if not decorrelation.is_unique:
            value = ColumnRef(rows.node.schema.types[rows.width], rows.width, rows.names[0])
            call = AggregateCall("SINGLE_VALUE", (value,), value.type, "")
            node = self._nodes.group(rows.node, tuple(range(rows.width)), [call], use.span, [rows.names[0]])
            rows = replace(rows, node=node)
        start = self._join(rows, use)
        return self._column(start + rows.width)

    def _exists(self, use: PendingSubquery) -> Expression:
        if use.plan.is_one_group and use.plan.parts is not None and not use.plan.parts.having:
            return _FALSE if use.negated else _TRUE
        rows = Decorrelation(self._binder, use.plan).rows(by_keys=True, with_items=False)
        start = self._join(self._marked(rows, rows.width, use.span), use)
        return test("IS NULL" if use.negated else "IS NOT NULL", self._column(start + rows.width))

    def _marked(self, rows: SubqueryRows, width: int, span: Span) -> SubqueryRows:
        return replace(rows, node=self._planner._marker(rows.node, width, span))

    def _in(self, use: PendingSubquery, *, true_only: bool) -> Expression:
        rows = Decorrelation(self._binder, use.plan).rows(by_keys=True)
        schema, count = rows.node.schema, len(use.operands)
        columns = [ColumnRef(schema.types[rows.width + i], rows.width + i, "") for i in range(count)]
        optional = any(may_be_null(o, self.node.schema) for o in use.operands)
        gaps = any(may_be_null(c, schema) for c in columns)
        if not true_only and (optional or gaps) and count > 1:
            raise fail(
                "several values IN a query with NULLs are not supported here",
                use.span,
                "filter the NULLs with IS NOT NULL, or let the condition stand alone in WHERE",
            )
        width = len(self.node.schema)
        equal = [compare("=", o, joined(c, (), width)) for o, c in zip(use.operands, columns, strict=True)]
        start = self._join(self._marked(rows, rows.width + count, use.span), use, equal)
        hit: Expression = test("IS NOT NULL", self._column(start + rows.width + count))
        if not true_only and (optional or gaps):
            hit = self._three_valued(use, rows, hit, optional=optional, gaps=gaps)
        return Call(BOOLEAN, "NOT", (hit,)) if use.negated else hit

    def _three_valued(
        self, use: PendingSubquery, rows: SubqueryRows, hit: Expression, *, optional: bool, gaps: bool
    ) -> Expression:
        unknown = Literal(BOOLEAN, None)
        branches = [(hit, _TRUE)]
        if optional:
            start = self._join(self._marked(rows, rows.width, use.span), use)
            branches.append((test("IS NULL", self._column(start + rows.width)), _FALSE))  # nothing is IN an empty query
            branches.append((test("IS NULL", use.operands[0]), unknown))
        if gaps:
            value = ColumnRef(rows.node.schema.types[rows.width], rows.width, "")
            missing = replace(rows, node=self._nodes.filter(rows.node, [test("IS NULL", value)], use.span))
            start = self._join(self._marked(missing, rows.width, use.span), use)
            branches.append((test("IS NOT NULL", self._column(start + rows.width)), unknown))
        return Case(BOOLEAN, tuple(branches), _FALSE)
