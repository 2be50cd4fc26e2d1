"""SELECT: its clauses bound to typed expressions, then planned as filter, grouping, OVER, projection and DISTINCT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlglot import exp

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import SortKey
from flowrun.frontend.sql.expressions.binder import dotted_parts
from flowrun.frontend.sql.expressions.over import null_order
from flowrun.frontend.sql.expressions.pending import OuterColumn, PendingOver
from flowrun.frontend.sql.expressions.query_expressions import Clause, QueryExpressionBinder, conjuncts
from flowrun.frontend.sql.expressions.relations import Named, OuterScope, QueryScope, Relation, fields_of, unique_names
from flowrun.frontend.sql.expressions.trees import find, has, rewrite
from flowrun.frontend.sql.grammar.syntax import OrderItem, OverClause, Select, SelectItem
from flowrun.frontend.sql.queries.binding_context import BindingContext, Environment
from flowrun.frontend.sql.queries.bound_queries import FailedError, Planned, SelectParts, SortItem
from flowrun.frontend.sql.queries.grouping import GroupingBinder, GroupingPlanner
from flowrun.frontend.sql.queries.hints import check_names, lifetime_of, lifetimes
from flowrun.frontend.sql.queries.nodes import NodeMaker, with_lifetimes
from flowrun.frontend.sql.queries.subqueries.planner import SubqueryPlanner
from flowrun.frontend.sql.queries.tables.from_clause import FromBinder
from flowrun.frontend.sql.queries.tables.from_context import FromContext
from flowrun.frontend.sql.queries.tables.joins import absorbed
from flowrun.frontend.sql.spans import Span, error_at, span_of
from flowrun.plan.disjunctions import factored_conjuncts
from flowrun.plan.expressions import Call, ColumnRef, Expression, FieldAccess
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import Over, OverCall


class SelectBinder:
    """Binds the clauses of one SELECT."""

    def __init__(
        self, context: BindingContext, select: Select, environment: Environment, outer: OuterScope | None = None
    ) -> None:
        self._context = context
        self._select = select
        self._environment = environment
        self._outer = outer

    def bound(self, order: Sequence[OrderItem] = ()) -> SelectParts:
        """The bound clauses; `order` is the ORDER BY that follows the query.

        Raises:
            FailedError: what is wrong was added to the context's errors.
        """
        select, attempt = self._select, self._context.attempt
        before = len(self._context.errors)
        reads = 0 if self._outer is None else self._outer.reads
        relation, lifetime_ms = self._relation()
        correlated_source = self._outer is not None and self._outer.reads > reads
        scope = QueryScope(relation=relation, outer=self._outer)
        windows = self._windows()
        outputs = frozenset(i.alias.text for i in select.items if i.alias is not None)
        binder_of = partial(QueryExpressionBinder, queries=self._environment, windows=windows, outputs=outputs)
        where = self._conditions(select.where, binder_of(scope, Clause.WHERE))
        items, spans = self._items(binder_of(scope, self._list_clause), relation)
        named = replace_aliases(scope, items)
        grouping = GroupingBinder(self._context, binder_of(scope, Clause.GROUP_BY))
        groups = None if select.grouping is None else attempt(lambda: grouping.bound(select.grouping or ()))
        having = self._conditions(select.having, binder_of(scope, Clause.HAVING))
        qualify = self._conditions(select.qualify, binder_of(named, Clause.QUALIFY))
        sort = self._order(order, binder_of(named, Clause.ORDER_BY), items)
        if len(self._context.errors) > before:
            raise FailedError
        where = tuple(p for c in where for p in factored_conjuncts(c))
        local = [c for c in where if not has(c, OuterColumn)]
        correlated = tuple(c for c in where if has(c, OuterColumn))
        if local:
            span = span_of(select.where) if select.where is not None else select.span
            node, local = absorbed(relation.node, select.source, local)
            if local:
                node = SubqueryPlanner(self._context).filtered(node, local, span)
            relation = replace(relation, node=node)
        parts = (tuple(items), tuple(spans), groups, having, qualify, sort, lifetime_ms, correlated_source)
        return SelectParts(select, relation, correlated, *parts)

    @property
    def _list_clause(self) -> Clause:
        """What the select list is: that of a whole query may have to do without groups, its subqueries never."""
        return Clause.ROWS if self._context.statement.row_by_row and self._outer is None else Clause.SELECT

    def _relation(self) -> tuple[Relation, int | None]:
        """(FROM; what a hint says of how long groups of its rows are kept)."""
        select = self._select
        given = lifetimes(self._context, select.hints)
        if select.source is None:
            relation = Relation(self._context.nodes.one_row(select.span), ())
        else:
            relation = FromBinder(FromContext(self._context, self._environment, self._outer, given)).relation(
                select.source
            )
        check_names(given, relation, select.hints)
        return relation, lifetime_of(relation, given)

    def _windows(self) -> dict[str, OverClause]:
        known: dict[str, OverClause] = {}
        for name, clause in self._select.windows:
            if name.text in known:
                self._context.errors.append(
                    error_at(f"window '{name.text}' is defined twice", name.span, "rename one of them")
                )
            known[name.text] = clause
        return known

    def _conditions(self, node: exp.Expression | None, binder: QueryExpressionBinder) -> tuple[Expression, ...]:
        found = []
        for part in conjuncts(node):
            bound = self._context.attempt(partial(binder.boolean, part, f"a condition of {binder.clause.value}"))
            if bound is not None:
                found.append(bound)
        return tuple(found)

    # -- the select list -----------------------------------------------------------------------------------------------------

    def _items(self, binder: QueryExpressionBinder, relation: Relation) -> tuple[list[Named], list[Span]]:
        items: list[Named] = []
        spans: list[Span] = []
        for item in self._select.items:
            found = self._context.attempt(partial(self._item, item, binder, relation, items))
            if found is None:
                found = [("", ColumnRef(relation.schema.types[0], 0, ""))]  # keeps the count for EXPR$n
            items += found
            spans += [item.span] * len(found)
        return items, spans

    def _item(
        self, item: SelectItem, binder: QueryExpressionBinder, relation: Relation, before: Sequence[Named]
    ) -> list[Named]:
        if item.star:
            columns = self._star(item, binder, relation)
            taken = frozenset(n for n, _ in before)
            names = unique_names([n for n, _ in columns], taken)
            return [(n, e) for n, (_, e) in zip(names, columns, strict=True)]
        assert item.expression is not None
        bound = binder.bind(item.expression)
        name = item.alias.text if item.alias is not None else _own_name(item.expression, bound)
        return [(name or f"EXPR${len(before)}", bound)]

    def _star(self, item: SelectItem, binder: QueryExpressionBinder, relation: Relation) -> list[Named]:
        if item.expression is None:
            if not relation.sources:
                raise error_at("* needs a table: the query has no FROM", item.span, "write SELECT * FROM table")
            return relation.star()
        parts = dotted_parts(item.expression)[:-1] if isinstance(item.expression, exp.Column) else []
        if len(parts) == 1:
            source = relation.source(parts[0].name)
            if source is not None:
                return relation.star_of(source)
        row = binder.column(_column(parts)) if parts else binder.bind(item.expression.this)
        columns = fields_of(row)
        if columns is None:
            raise error_at(f"{row} is {row.type}, only a table or a ROW has columns to list", item.span)
        return columns

    # -- ORDER BY ------------------------------------------------------------------------------------------------------------

    def _order(
        self, order: Sequence[OrderItem], binder: QueryExpressionBinder, items: Sequence[Named]
    ) -> tuple[SortItem, ...]:
        found = []
        for item in order:
            bound = self._context.attempt(partial(sort_expression, item, binder, items))
            if bound is not None:
                found.append(SortItem(bound, item.descending, null_order(item), item.span))
        return tuple(found)


def sort_expression(item: OrderItem, binder: QueryExpressionBinder, items: Sequence[Named]) -> Expression:
    """What an entry of ORDER BY sorts by: a number is the position of an output column.

    Raises:
        ExpressionError: no such column.
    """
    node = item.expression
    if isinstance(node, exp.Literal) and not node.is_string:
        if node.this.isdigit() and 1 <= int(node.this) <= len(items):
            return items[int(node.this) - 1][1]
        raise error_at(f"ORDER BY {node.this}: there are only {len(items)} output columns", item.span, "name a column")
    return binder.bind(node)


def replace_aliases(scope: QueryScope, items: Sequence[Named]) -> QueryScope:
    """The scope in which names of the select list come before columns."""
    return QueryScope(relation=scope.relation, outer=scope.outer, aliases=tuple(items))


def _own_name(node: exp.Expression, bound: Expression) -> str | None:
    if not isinstance(node, exp.Column | exp.Dot) or isinstance(bound, Call):  # CURRENT_DATE is a call, too
        return None
    if isinstance(bound, FieldAccess):
        return bound.name
    return dotted_parts(node)[-1].name if isinstance(node, exp.Column) else None


def _column(parts: Sequence[exp.Expression]) -> exp.Column:
    keys = ("this", "table", "db", "catalog")
    return exp.Column(**dict(zip(keys, reversed(parts), strict=False)))


class SelectPlanner:
    """Makes the nodes of a bound SELECT."""

    def __init__(self, context: BindingContext, parts: SelectParts) -> None:
        self._context = context
        self._parts = parts
        self._nodes: NodeMaker = context.nodes

    def planned(self) -> Planned:
        """The plan of a SELECT. If it reads the query around, its expressions hold `OuterColumn`s for that.

        Raises:
            ExpressionError: something that cannot be planned; marks the place.
        """
        parts, nodes = self._parts, self._nodes
        node, outputs = parts.relation.node, list(parts.outputs)
        if parts.correlated:
            assert parts.syntax.where is not None
            node = SubqueryPlanner(self._context).filtered(node, parts.correlated, span_of(parts.syntax.where))
        if parts.is_grouped:
            node, outputs = GroupingPlanner(self._context, parts).planned(node, outputs)
        elif parts.having:
            raise error_at("HAVING needs groups", parts.syntax.span, "write WHERE")
        count = len(parts.items)
        having = outputs[count : count + len(parts.having)]
        if having:
            assert parts.syntax.having is not None
            node = SubqueryPlanner(self._context).filtered(node, having, span_of(parts.syntax.having))
        outputs[count : count + len(having)] = []
        node, outputs = SubqueryPlanner(self._context).applied(node, outputs)
        node, outputs = self._over(node, outputs)
        if parts.qualify:
            assert parts.syntax.qualify is not None
            node = nodes.filter(node, outputs[count : count + len(parts.qualify)], span_of(parts.syntax.qualify))
            outputs[count : count + len(parts.qualify)] = []
        return self._projected(node, outputs)

    def _projected(self, node: PlanNode, outputs: list[Expression]) -> Planned:
        parts = self._parts
        names = tuple(n for n, _ in parts.items)
        columns = [(n, e) for n, e in zip(names, outputs, strict=False)]
        keys = []
        for item, expression in zip(parts.order, outputs[len(names) :], strict=True):
            position = next((i for i, (_, e) in enumerate(columns) if e == expression), None)
            if position is None:
                if parts.syntax.distinct:
                    raise error_at(
                        "with DISTINCT, ORDER BY takes only output columns", item.span, "add it to the select list"
                    )
                position = len(columns)
                columns.append((f"SORT${position}", expression))
            keys.append(SortKey(position, item.descending, item.nulls))
        node = self._nodes.calc(node, columns, parts.syntax.span)
        if parts.syntax.distinct:
            node = with_lifetimes(self._nodes.distinct(node, parts.syntax.span), parts.lifetimes)
        return Planned(node, names, tuple(keys))

    def _over(self, node: PlanNode, outputs: list[Expression]) -> tuple[PlanNode, list[Expression]]:
        calls: list[PendingOver] = []
        for output in outputs:
            calls += [c for c in find(output, PendingOver) if c not in calls]
        if not calls:
            return node, outputs
        wanted = [e for c in calls for e in (*c.partition, *(o.expression for o in c.order))]
        node, positions = self._nodes.extended(node, wanted, calls[0].span)
        places = iter(positions)
        bound: list[OverCall] = []
        names = unique_names([*node.schema.names, *(self._call_name(c) for c in calls)])[len(node.schema) :]
        for call, name in zip(calls, names, strict=True):
            partition = tuple(dict.fromkeys(next(places) for _ in call.partition))
            order = tuple(SortKey(next(places), o.descending, o.nulls) for o in call.order)
            bound.append(OverCall(replace(call.call, name=name), partition, order, call.frame))
        width = len(node.schema)
        fields = [Field(n, c.type) for n, c in zip(names, calls, strict=True)]
        schema = Schema((*node.schema.fields, *fields))
        over = Over(schema, self._nodes.hints("over", calls[0].span), node, tuple(bound))
        columns = {c: ColumnRef(c.type, width + i, names[i]) for i, c in enumerate(calls)}
        return over, [rewrite(e, lambda x: columns.get(x) if isinstance(x, PendingOver) else None) for e in outputs]

    def _call_name(self, call: PendingOver) -> str:
        named = next((n for n, e in self._parts.items if isinstance(e, PendingOver) and e.span == call.span), None)
        return named or f"{call.call.function.lower()}$"
