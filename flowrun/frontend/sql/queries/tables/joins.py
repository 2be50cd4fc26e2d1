"""Joins of two relations: conditions, USING, NATURAL, and versions as of a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from flowrun.core.semantics import JoinKind, TimeDomain
from flowrun.frontend.sql.expressions.pending import PendingSubquery
from flowrun.frontend.sql.expressions.query_expressions import Clause, conjuncts
from flowrun.frontend.sql.expressions.relations import Named, Relation, Source
from flowrun.frontend.sql.expressions.trees import compare, has, shifted, test
from flowrun.frontend.sql.grammar.syntax import JoinTable, Name, NamedTable, TableSyntax
from flowrun.frontend.sql.queries.bound_queries import FailedError
from flowrun.frontend.sql.queries.hints import joined_lifetimes
from flowrun.frontend.sql.queries.nodes import joined_schema, with_lifetimes
from flowrun.frontend.sql.queries.subqueries.outer_joins import OuterJoinWithSubqueries
from flowrun.frontend.sql.queries.subqueries.planner import SubqueryPlanner
from flowrun.frontend.sql.queries.tables.from_context import FromContext
from flowrun.frontend.sql.spans import error_at, span_of
from flowrun.functions.coercion import common_type
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import Case, Cast, Expression, columns_used
from flowrun.plan.joins import Join, TemporalJoin
from flowrun.plan.nodes import PlanNode


def side_by_side(left: Relation, right: Relation, node: PlanNode) -> Relation:
    """The relation of a join's rows: the tables of the left, then those of the right."""
    width = len(left.schema)
    moved = tuple(Source(s.alias, s.names, tuple(c + width for c in s.columns)) for s in right.sources)
    merged = tuple((n, shifted(e, width)) for n, e in right.merged)
    return Relation(node, (*left.sources, *moved), (*left.merged, *merged))


class JoinBinder:
    """Binds joins of one FROM."""

    def __init__(self, tables: FromContext) -> None:
        self._tables = tables
        self._context = tables.context
        self._nodes = tables.nodes

    def check_aliases(self, left: Relation, right: Relation, table: JoinTable) -> None:
        """Fail if both sides have a table of one name.

        Raises:
            ExpressionError: they have.
        """
        taken = {s.alias for s in left.sources if s.alias is not None}
        for source in right.sources:
            if source.alias in taken:
                raise error_at(
                    f"two tables in FROM are called '{source.alias}'",
                    table.right.span,
                    f"write {source.alias} AS another_name",
                )

    def regular(self, left: Relation, right: Relation, table: JoinTable) -> Relation:
        """Two tables joined by ON, USING or NATURAL, or every row with every row.

        Raises:
            ExpressionError: the condition is wrong.
        """
        self.check_aliases(left, right, table)
        if table.natural or table.using:
            return self._using(left, right, table)
        conditions, subqueries = self.conditions(left, right, table)
        if not subqueries:
            return side_by_side(left, right, self._join(left, right, table, conjunction(conditions)))
        assert table.on is not None
        return side_by_side(left, right, self._with_subqueries(left, right, table, conditions, subqueries))

    def _with_subqueries(
        self,
        left: Relation,
        right: Relation,
        table: JoinTable,
        conditions: Sequence[Expression],
        subqueries: Sequence[Expression],
    ) -> PlanNode:
        assert table.on is not None
        span, planner, width = span_of(table.on), SubqueryPlanner(self._context), len(left.schema)
        if table.kind is JoinKind.INNER:
            return planner.filtered(self._join(left, right, table, conjunction(conditions)), subqueries, span)
        # a condition on the side that is not kept is a filter below the join
        alone: list[Expression] = []
        if table.kind is JoinKind.LEFT:
            alone = [shifted(c, -width) for c in subqueries if min(columns_used(c), default=width) >= width]
            subqueries = [c for c in subqueries if min(columns_used(c), default=width) < width]
            right = replace(right, node=planner.filtered(right.node, alone, span)) if alone else right
        elif table.kind is JoinKind.RIGHT:
            alone = [c for c in subqueries if max(columns_used(c), default=-1) < width]
            subqueries = [c for c in subqueries if max(columns_used(c), default=-1) >= width]
            left = replace(left, node=planner.filtered(left.node, alone, span)) if alone else left
        if not subqueries:
            return self._join(left, right, table, conjunction(conditions))
        sides = (left.node, right.node)
        return OuterJoinWithSubqueries(self._nodes, planner, *sides, conditions, subqueries, span).joined(table.kind)

    def _join(self, left: Relation, right: Relation, table: JoinTable, condition: Expression | None) -> PlanNode:
        node = self._nodes.join(left.node, right.node, table.kind, condition, table.span)
        return with_lifetimes(node, joined_lifetimes(left, right, self._tables.lifetimes))

    def conditions(
        self, left: Relation, right: Relation, table: JoinTable
    ) -> tuple[list[Expression], list[Expression]]:
        """The conditions of ON over both sides: those without subqueries, then those with.

        Raises:
            ExpressionError: a condition is wrong.
        """
        if table.on is None or is_true(table.on):
            return [], []
        rows = self._nodes.join(left.node, right.node, table.kind, None, table.span, "condition")
        binder = self._tables.expressions(side_by_side(left, right, rows), Clause.ON)
        before = len(self._context.errors)
        plain: list[Expression] = []
        subqueries: list[Expression] = []
        for part in conjuncts(table.on):
            bound = self._context.attempt(lambda p=part: binder.boolean(p, "a condition of ON"))  # type: ignore[misc]
            if bound is None:
                continue
            (subqueries if has(bound, PendingSubquery) else plain).append(bound)
        if len(self._context.errors) > before:
            raise FailedError
        return plain, subqueries

    def _using(self, left: Relation, right: Relation, table: JoinTable) -> Relation:
        names = table.using or self._common(left, right, table)
        width = len(left.schema)
        schema = joined_schema(left.schema, right.schema, table.kind)
        conditions, merged = [], []
        for name in names:
            a, b = self._named(left, name), shifted(self._named(right, name), width)
            if common_type([a.type, b.type]) is None:
                hint = "CAST one of them in a subquery, or write ON"
                raise error_at(
                    f"column '{name.text}' is {a.type} on the left and {b.type} on the right", name.span, hint
                )
            conditions.append(compare("=", a, b))
            merged.append((name.text, _merged(table.kind, a, b)))
        condition = conjunction(conditions)
        node = self._join(left, right, table, condition)
        assert node.schema == schema
        relation = side_by_side(left, right, node)
        kept: list[Named] = [m for m in relation.merged if m[0] not in {n for n, _ in merged}]
        return Relation(relation.node, relation.sources, (*merged, *kept))

    def _common(self, left: Relation, right: Relation, table: JoinTable) -> tuple[Name, ...]:
        other = {n for n, _ in right.star()}
        return tuple(Name(n, table.span) for n, _ in left.star() if n in other)

    def _named(self, relation: Relation, name: Name) -> Expression:
        identifier = exp.to_identifier(name.text, quoted=True)
        identifier.meta["span"] = name.span
        return self._tables.expressions(Relation(relation.node, relation.sources, relation.merged)).column(
            exp.Column(this=identifier)
        )

    def temporal(self, left: Relation, right: Relation, table: JoinTable, versions: NamedTable) -> Relation:
        """Each left row with the right row of its key as of its time.

        Raises:
            ExpressionError: no INNER or LEFT JOIN … ON, or a wrong condition or time.
        """
        self.check_aliases(left, right, table)
        if table.kind not in (JoinKind.INNER, JoinKind.LEFT):
            raise error_at(
                f"FOR SYSTEM_TIME AS OF is not possible in a {table.kind.name} JOIN",
                table.span,
                "use JOIN or LEFT JOIN",
            )
        assert versions.as_of is not None
        time = self._tables.expressions(left).bind(versions.as_of)
        if not time.type.is_timestamp:
            raise error_at(
                f"FOR SYSTEM_TIME AS OF needs a time attribute, this is {time.type}",
                span_of(versions.as_of),
                "name the left table's event-time or processing-time column",
            )
        node, (position,) = self._nodes.extended(left.node, [time], span_of(versions.as_of))
        left = Relation(node, left.sources, left.merged)
        conditions, subqueries = self.conditions(left, right, table)
        if subqueries and table.on is not None:
            raise error_at("a subquery in ON of a temporal join is not supported", span_of(table.on), "filter in WHERE")
        schema = joined_schema(left.schema, right.schema, table.kind)
        hints = self._nodes.hints("temporal-join", table.span)
        condition = conjunction(conditions)
        joined = TemporalJoin(
            schema, hints, node, right.node, table.kind, (), (), position, None, TimeDomain.EVENT, condition
        )
        return side_by_side(left, right, joined)


def absorbed(
    node: PlanNode, table: TableSyntax | None, conditions: Sequence[Expression]
) -> tuple[PlanNode, list[Expression]]:
    """The joins of FROM with the conditions of WHERE that compare their two sides, and the conditions that are left.

    An inner join finds equal keys and time bounds only in its own condition; `FROM a, b WHERE a.x = b.x` has them in WHERE.
    """
    if not isinstance(table, JoinTable) or not isinstance(node, Join | TemporalJoin) or node.kind is not JoinKind.INNER:
        return node, list(conditions)
    width = len(node.left.schema)
    mine: list[Expression] = []
    left_only: list[Expression] = []
    rest: list[Expression] = []
    for condition in conditions:
        used = columns_used(condition)
        if has(condition, PendingSubquery) or not used:
            rest.append(condition)
        elif max(used) < width:
            left_only.append(condition)
        else:
            (mine if min(used) < width else rest).append(condition)
    left, left_rest = absorbed(node.left, table.left, left_only)
    if mine or left is not node.left:
        whole = [*([] if node.condition is None else [node.condition]), *mine]
        node = replace(node, left=left, condition=conjunction(whole))
    return node, [*left_rest, *rest]


def is_true(node: exp.Expression) -> bool:
    """Whether a condition is TRUE as written."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Boolean) and bool(node.this)


def _merged(kind: JoinKind, left: Expression, right: Expression) -> Expression:
    if kind is JoinKind.RIGHT:
        return right
    if kind is not JoinKind.FULL:
        return left
    type = common_type([left.type, right.type])
    assert type is not None
    a, b = (e if e.type == type else Cast(type, e) for e in (left, right))
    return Case(type, ((test("IS NOT NULL", a), a),), b)
