"""Values of subqueries as columns: scalar subqueries, EXISTS, IN and quantified comparisons, joined to the rows around them.

Three-valued logic is kept: what a NULL leaves open is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowrun.core.semantics import JoinKind
from flowrun.core.types import BIGINT, BOOLEAN, INT
from flowrun.frontend.sql.expressions.pending import PendingAggregate, PendingSubquery, SubqueryKind
from flowrun.frontend.sql.expressions.trees import compare, find, map_children, may_be_null, shifted, test
from flowrun.frontend.sql.queries.binding_context import BindingContext
from flowrun.frontend.sql.queries.nodes import identity
from flowrun.frontend.sql.queries.subqueries.decorrelation import SubqueryRows, joined, marker, subquery_rows
from flowrun.frontend.sql.queries.subqueries.dependent_joins import domain_of, is_empty_count, same_values
from flowrun.frontend.sql.spans import Span
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import AggregateCall, And, Call, Case, Cast, ColumnRef, Expression, Literal, Or
from flowrun.plan.nodes import PlanNode

_TRUE = Literal(BOOLEAN, True)
_FALSE = Literal(BOOLEAN, False)
_UNKNOWN = Literal(BOOLEAN, None)
_EXTREMES = {
    (">", True): ("MAX",), (">=", True): ("MAX",), ("<", True): ("MIN",), ("<=", True): ("MIN",),
    (">", False): ("MIN",), (">=", False): ("MIN",), ("<", False): ("MAX",), ("<=", False): ("MAX",),
    ("=", True): ("MIN", "MAX"), ("<>", False): ("MIN", "MAX"),
}  # fmt: skip
"""A comparison, and whether it is with ALL → the values of the query that decide it."""


class SubqueryValues:
    """Replaces subqueries in expressions by columns; `node` grows by the joins that give them."""

    def __init__(self, context: BindingContext, node: PlanNode) -> None:
        self._context = context
        self._nodes = context.nodes
        self.node = node
        self._known: dict[tuple[PendingSubquery, bool], Expression] = {}
        self._rows: dict[tuple[int, tuple[Expression, ...]], int] = {}

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
        plan = self._context.subquery(use.number)
        match use.kind:
            case SubqueryKind.SCALAR:
                return self._one_group(use) if plan.is_group_by_keys else self._single(use)
            case SubqueryKind.EXISTS:
                return self._exists(use)
            case SubqueryKind.IN if plan.is_group_by_keys and len(use.operands) == 1 and not plan.has_having:
                return compare("<>" if use.negated else "=", use.operands[0], self._one_group(use))
            case SubqueryKind.IN:
                return self._in(use, true_only=true_only and not use.negated)
            case SubqueryKind.QUANTIFIED:
                return self._quantified(use)

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
        values, condition = self.group_outputs(use)
        value = values[use.column]
        return value if condition is None else Case(value.type, ((condition, value),), Literal(value.type, None))

    def group_outputs(self, use: PendingSubquery) -> tuple[list[Expression], Expression | None]:
        """Select list and HAVING of an aggregate over the rows that belong to a row: COUNT of none is 0, all else is NULL.

        One value for all rows is NULL until it is known, COUNT too, as in Apache Flink: rows would else be computed with a 0 before the
        first row of the subquery has come.
        """
        plan = self._context.subquery(use.number)
        parts = plan.parts
        assert parts is not None
        keys = plan.equalities
        assert keys is not None
        inner, outer = keys
        outputs = (*(e for _, e in parts.items), *parts.having)
        aggregates = list(dict.fromkeys(a for output in outputs for a in find(output, PendingAggregate)))
        grouping = self._context.queries.grouping(parts)
        node = grouping.aggregated(parts.relation.node, aggregates, inner)
        conditions = tuple(
            compare("=", o, ColumnRef(e.type, i, node.schema.names[i]))
            for i, (e, o) in enumerate(zip(inner, outer, strict=True))
        )
        start = self._join(SubqueryRows(node, len(inner), (), conditions), use)
        counts = [i for i, a in enumerate(aggregates) if inner and is_empty_count(a.call)]
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
        known = self._rows.get((use.number, use.outer))
        if known is None:
            rows = subquery_rows(self._context, use, self.node, by_keys=True)
            if not self._context.subquery(use.number).is_unique:
                rows = self._only_rows(rows, use.span)
            known = self._join(rows, use) + rows.width
            self._rows[use.number, use.outer] = known
        return self._column(known + use.column)

    def _only_rows(self, rows: SubqueryRows, span: Span) -> SubqueryRows:
        """The only row of each row around; more than one is an error when the job runs."""
        schema, count = rows.node.schema, len(rows.names)
        values = [ColumnRef(schema.types[i], i, schema.names[i]) for i in range(rows.width, rows.width + count)]
        calls = [AggregateCall("SINGLE_VALUE", (v,), v.type, "") for v in values]
        return replace(rows, node=self._nodes.group(rows.node, tuple(range(rows.width)), calls, span, rows.names))

    def _exists(self, use: PendingSubquery) -> Expression:
        plan = self._context.subquery(use.number)
        if plan.is_one_group and not plan.has_having:
            return _FALSE if use.negated else _TRUE
        rows = subquery_rows(self._context, use, self.node, by_keys=True, with_items=False)
        start = self._join(self._marked(rows, rows.width, use.span), use)
        return test("IS NULL" if use.negated else "IS NOT NULL", self._column(start + rows.width))

    def _marked(self, rows: SubqueryRows, width: int, span: Span) -> SubqueryRows:
        return replace(rows, node=marker(self._nodes, rows.node, width, span))

    def _in(self, use: PendingSubquery, *, true_only: bool) -> Expression:
        rows = subquery_rows(self._context, use, self.node, by_keys=True)
        schema, count = rows.node.schema, len(use.operands)
        columns = [ColumnRef(schema.types[rows.width + i], rows.width + i, "") for i in range(count)]
        optional = any(may_be_null(o, self.node.schema) for o in use.operands)
        gaps = any(may_be_null(c, schema) for c in columns)
        if not true_only and (optional or gaps) and count > 1:
            several = self._several_three_valued(use, rows, columns)
            return Call(BOOLEAN, "NOT", (several,)) if use.negated else several
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
        branches = [(hit, _TRUE)]
        if optional:
            start = self._join(self._marked(rows, rows.width, use.span), use)
            branches.append((test("IS NULL", self._column(start + rows.width)), _FALSE))  # nothing is IN an empty query
            branches.append((test("IS NULL", use.operands[0]), _UNKNOWN))
        if gaps:
            value = ColumnRef(rows.node.schema.types[rows.width], rows.width, "")
            missing = replace(rows, node=self._nodes.filter(rows.node, [test("IS NULL", value)], use.span))
            start = self._join(self._marked(missing, rows.width, use.span), use)
            branches.append((test("IS NOT NULL", self._column(start + rows.width)), _UNKNOWN))
        return Case(BOOLEAN, tuple(branches), _FALSE)

    def _several_three_valued(
        self, use: PendingSubquery, rows: SubqueryRows, columns: Sequence[ColumnRef]
    ) -> Expression:
        """(a, b) IN rows: TRUE if a row is equal, else unknown if one is equal for all that is known."""
        given = (*use.outer, *use.operands)
        domain = domain_of(self._nodes, self.node, given, use.span)
        width = len(given)
        values = [e for _, e in identity(domain.schema)]
        sides = zip(values[len(use.outer) :], columns, strict=True)
        equal = conjunction([compare("=", v, joined(c, (), width)) for v, c in sides])
        assert equal is not None, "IN has operands"
        correlated = rows.condition(values, width)
        condition = conjunction([*([] if correlated is None else [correlated]), test("IS NOT FALSE", equal)])
        pairs = self._nodes.join(domain, rows.node, JoinKind.INNER, condition, use.span, "subquery")
        rank = Case(INT, ((equal, Literal(INT, 1)),), Literal(INT, 0))
        ranked = self._nodes.calc(pairs, [*identity(pairs.schema)[:width], ("EQUAL$", rank)], use.span)
        call = AggregateCall("MAX", (ColumnRef(INT, width, "EQUAL$"),), INT, "")
        best = self._nodes.group(ranked, tuple(range(width)), [call], use.span, ["EQUAL$"])
        start = len(self.node.schema)
        same = same_values(given, [shifted(e, start) for _, e in identity(best.schema)[:width]])
        self.node = self._nodes.join(self.node, best, JoinKind.LEFT, conjunction(same), use.span, "subquery")
        found = self._column(start + width)
        is_equal = compare("=", found, Literal(INT, 1))
        return Case(BOOLEAN, ((test("IS NULL", found), _FALSE), (is_equal, _TRUE)), _UNKNOWN)

    # -- quantified comparisons ----------------------------------------------------------------------------------------------

    def _quantified(self, use: PendingSubquery) -> Expression:
        """X > ALL (query) by the greatest value of the query, its rows and those that are not NULL; the others alike.

        Of no rows ALL is true and ANY is false. A NULL leaves unknown what no other value decides.
        """
        assert use.quantifier is not None
        symbol, every = use.quantifier
        rows = subquery_rows(self._context, use, self.node, by_keys=True)
        field = rows.node.schema.fields[rows.width]
        typed = compare(symbol, use.operands[0], Literal(field.type, None))
        operand, like = typed.children
        value = ColumnRef(field.type, rows.width, field.name)
        keys = identity(rows.node.schema)[: rows.width]
        node = self._nodes.calc(
            rows.node, [*keys, ("VALUE$", value if value.type == like.type else Cast(like.type, value))], use.span
        )
        column = ColumnRef(like.type, rows.width, "VALUE$")
        extremes = _EXTREMES[symbol, every]
        calls = [
            AggregateCall("COUNT", (), BIGINT, ""),
            AggregateCall("COUNT", (column,), BIGINT, ""),
            *(AggregateCall(e, (column,), like.type, "") for e in extremes),
        ]
        names = ["ROWS$", "VALUES$", *(f"{e}$" for e in extremes)]
        grouped = self._nodes.group(node, tuple(range(rows.width)), calls, use.span, names)
        start = self._join(replace(rows, node=grouped), use) + rows.width
        count, known = self._column(start), self._column(start + 1)
        tests = tuple(compare(symbol, operand, self._column(start + 2 + i)) for i in range(len(extremes)))
        decided = tests[0] if len(tests) == 1 else (And(tests) if every else Or(tests))
        unknown = Or((test("IS NULL", decided), compare("<", known, count)))
        return Case(
            BOOLEAN,
            (
                (test("IS NULL", count), _TRUE if every else _FALSE),
                (test("IS FALSE" if every else "IS TRUE", decided), _FALSE if every else _TRUE),
                (unknown, _UNKNOWN),
            ),
            _TRUE if every else _FALSE,
        )
