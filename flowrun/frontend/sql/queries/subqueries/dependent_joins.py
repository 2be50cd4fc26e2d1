"""Dependent joins: a plan that reads the query around it, for all values of that query at once.

The values that a subquery takes from the query around are its *domain*, each combination once. A dependent join pairs each row of the
domain with the rows that the subquery has for it. Pushed down through the subquery's plan until nothing below reads the query around, it
is an ordinary join. This works for every plan that does not need event time above the place where it reads the query around.

Source: Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind, SortKey
from flowrun.core.types import BIGINT
from flowrun.frontend.sql.expressions.pending import OuterColumn
from flowrun.frontend.sql.expressions.relations import Named, unique_fields
from flowrun.frontend.sql.expressions.trees import compare, has, rewrite, shifted, test
from flowrun.frontend.sql.queries.nodes import NodeMaker, identity, joined_schema
from flowrun.frontend.sql.spans import Span, error_at
from flowrun.plan import relational as rel
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import AggregateCall, Case, ColumnRef, Expression, Literal
from flowrun.plan.joins import Join, TemporalJoin
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import Calc, PlanNode, Union

_TIMED: dict[type[PlanNode], str] = {
    rel.WindowTableFunction: "a window",
    TemporalJoin: "FOR SYSTEM_TIME AS OF",
    MatchRecognize: "MATCH_RECOGNIZE",
}
"""Steps that need event time, which rows of a dependent join have no more."""
_EMPTY_COUNTS = ("COUNT", "SUM0")
"""Aggregates that give 0 for no rows; all others give NULL."""


def domain_of(nodes: NodeMaker, around: PlanNode, values: Sequence[Expression], span: Span) -> PlanNode:
    """Each combination of the values that a subquery reads of the rows around it, once."""
    columns: list[Named] = [(f"OUTER${i}", value) for i, value in enumerate(values)]
    return nodes.distinct(nodes.calc(around, columns, span), span)


def same_values(left: Sequence[Expression], right: Sequence[Expression]) -> list[Expression]:
    """Conditions that two rows of the domain are the same; a NULL is a value like others."""
    return [compare("IS NOT DISTINCT FROM", a, b) for a, b in zip(left, right, strict=True)]


def is_empty_count(call: AggregateCall) -> bool:
    """Whether the aggregate of no rows is 0."""
    return call.function in _EMPTY_COUNTS


class DependentJoin:
    """Joins a domain with plans that read it. Each result has the domain's columns first, then those of the plan."""

    def __init__(self, nodes: NodeMaker, domain: PlanNode, span: Span) -> None:
        self._nodes = nodes
        self._domain = domain
        self._span = span
        self._width = len(domain.schema)
        self._dependent: dict[int, bool] = {}
        self._pushed: dict[int, PlanNode] = {}
        self._kept: list[PlanNode] = []  # ids are those of living nodes

    def with_rows_of(self, node: PlanNode) -> PlanNode:
        """Each row of the domain with each row that the plan has for it.

        Raises:
            ExpressionError: a step of the plan that needs event time, or a table function of time, reads the query around.
        """
        if id(node) not in self._pushed:
            self._kept.append(node)
            self._pushed[id(node)] = self._push(node) if self.is_dependent(node) else self._cross(node, None)
        return self._pushed[id(node)]

    def is_dependent(self, node: PlanNode) -> bool:
        """Whether the plan reads the query around."""
        known = self._dependent.get(id(node))
        if known is None:
            own = any(has(e, OuterColumn) for e in expressions_of(node))
            known = own or any(self.is_dependent(i) for i in node.inputs)
            self._kept.append(node)
            self._dependent[id(node)] = known
        return known

    # -- expressions and schemas ---------------------------------------------------------------------------------------------

    def _domain_columns(self, schema: Schema) -> list[Named]:
        return identity(schema)[: self._width]

    def _moved(self, expression: Expression) -> Expression:
        """An expression of the plan over its rows with the domain in front."""
        return _placed(expression, 0, lambda own: own + self._width)

    def _call(self, call: AggregateCall) -> AggregateCall:
        condition = None if call.filter is None else self._moved(call.filter)
        return replace(call, arguments=tuple(self._moved(a) for a in call.arguments), filter=condition)

    def _positions(self, columns: Sequence[int]) -> tuple[int, ...]:
        return (*range(self._width), *(c + self._width for c in columns))

    def _order(self, order: Sequence[SortKey]) -> tuple[SortKey, ...]:
        return tuple(replace(k, column=k.column + self._width) for k in order)

    def _schema(self, input: PlanNode, own: Schema) -> Schema:
        return unique_fields([*input.schema.fields[: self._width], *own.fields])

    # -- nodes ---------------------------------------------------------------------------------------------------------------

    def _cross(self, node: PlanNode, condition: Expression | None) -> PlanNode:
        """Each row of the domain with each row of a plan that reads nothing of it, where the condition holds."""
        if isinstance(node, rel.Values) and len(node.rows) == 1:  # a query without FROM
            columns = [*identity(self._domain.schema), *zip(node.schema.names, node.rows[0], strict=True)]
            row = self._nodes.calc(self._domain, columns, self._span)
            return row if condition is None else self._nodes.filter(row, [condition], self._span)
        return self._nodes.join(self._domain, node, JoinKind.INNER, condition, self._span, "dependent-join")

    def _push(self, node: PlanNode) -> PlanNode:
        for kind, push in _PUSHES.items():
            if isinstance(node, kind):
                return push(self, node)
        raise error_at(
            f"{_TIMED.get(type(node), type(node).__name__)} in this subquery reads rows that depend on the query around it",
            self._span,
            "make a view of it that does not, and compare the view's columns with the query around in WHERE",
        )

    def _calc(self, node: Calc) -> PlanNode:
        condition = None if node.condition is None else self._moved(node.condition)
        if self.is_dependent(node.input):
            input = self.with_rows_of(node.input)
        else:
            input, condition = self._cross(node.input, condition), None
        columns = [*self._domain_columns(input.schema), *self._named(node)]
        return self._nodes.calc(input, columns, self._span, condition, "dependent-select")

    def _named(self, node: Calc) -> list[Named]:
        return [(n, self._moved(e)) for n, e in zip(node.schema.names, node.projections, strict=True)]

    def _union(self, node: Union) -> PlanNode:
        members = [self.with_rows_of(m) for m in node.members]
        fields = unique_fields([*self._domain.schema.fields, *node.schema.fields]).fields
        fields = tuple(
            replace(f, nullable=any(m.schema.fields[i].nullable for m in members)) for i, f in enumerate(fields)
        )
        named = [
            self._nodes.calc(m, [(f.name, e) for f, (_, e) in zip(fields, identity(m.schema), strict=True)], self._span)
            for m in members
        ]
        return Union(Schema(fields), self._nodes.hints("dependent-union", self._span), tuple(named))

    def _group(self, node: rel.GroupAggregate) -> PlanNode:
        input = self.with_rows_of(node.input)
        hints = replace(self._nodes.hints("dependent-aggregate", self._span), state_ttl_ms=node.hints.state_ttl_ms)
        schema = self._schema(input, node.schema)
        calls = tuple(
            replace(self._call(c), name=schema.names[self._width + len(node.keys) + i])
            for i, c in enumerate(node.aggregates)
        )
        grouped = rel.GroupAggregate(schema, hints, input, self._positions(node.keys), calls)
        return grouped if node.keys or not calls else self._for_all(grouped)

    def _for_all(self, grouped: rel.GroupAggregate) -> PlanNode:
        """An aggregate without GROUP BY gives a row for no rows too: COUNT is 0 there, and all else NULL."""
        left = [e for _, e in identity(self._domain.schema)]
        right = [shifted(e, self._width) for _, e in self._domain_columns(grouped.schema)]
        same = conjunction(same_values(left, right))
        joined = self._nodes.join(self._domain, grouped, JoinKind.LEFT, same, self._span, "dependent-join")
        columns = self._domain_columns(joined.schema)
        for place, call in enumerate(grouped.aggregates):
            position = 2 * self._width + place
            value: Expression = ColumnRef(call.type, position, call.name)
            if is_empty_count(call):
                value = Case(call.type, ((test("IS NOT NULL", value), value),), Literal(BIGINT, 0))
            columns.append((call.name, value))
        return self._nodes.calc(joined, columns, self._span, None, "dependent-select")

    def _over(self, node: rel.Over) -> PlanNode:
        input = self.with_rows_of(node.input)
        schema = self._schema(input, node.schema)
        names = schema.names[len(input.schema) :]
        calls = tuple(
            replace(
                c,
                call=replace(self._call(c.call), name=name),
                partition=self._positions(c.partition),
                order=self._order(c.order),
            )
            for c, name in zip(node.calls, names, strict=True)
        )
        return rel.Over(schema, self._nodes.hints("dependent-over", self._span), input, calls)

    def _rank(self, node: rel.Rank) -> PlanNode:
        input = self.with_rows_of(node.input)
        return replace(
            node,
            schema=self._schema(input, node.schema),
            hints=self._nodes.hints("dependent-limit", self._span),
            input=input,
            partition=self._positions(node.partition),
            order=self._order(node.order),
        )

    def _sort(self, node: rel.TemporalSort) -> PlanNode:
        return self.with_rows_of(node.input)  # the rows of a subquery have no order

    def _expand(self, node: rel.Expand) -> PlanNode:
        input = self.with_rows_of(node.input)
        own = [e for _, e in self._domain_columns(input.schema)]
        projections = tuple((*own, *(self._moved(e) for e in p)) for p in node.projections)
        hints = self._nodes.hints("dependent-expand", self._span)
        return rel.Expand(self._schema(input, node.schema), hints, input, projections)

    def _unnest(self, node: rel.Unnest) -> PlanNode:
        input = self.with_rows_of(node.input)
        schema, hints = self._schema(input, node.schema), self._nodes.hints("dependent-unnest", self._span)
        return replace(node, schema=schema, hints=hints, input=input, collection=node.collection + self._width)

    def _function(self, node: rel.TableFunctionCall) -> PlanNode:
        input = self.with_rows_of(node.input)
        schema, hints = self._schema(input, node.schema), self._nodes.hints("dependent-function", self._span)
        arguments = tuple(self._moved(a) for a in node.arguments)
        return replace(node, schema=schema, hints=hints, input=input, arguments=arguments)

    # -- joins ---------------------------------------------------------------------------------------------------------------

    def _join(self, node: Join) -> PlanNode:
        """The join within each row of the domain. A side that reads nothing of it stays as it is if no row of it can come out alone."""
        width, own_left, own_right = self._width, len(node.left.schema), len(node.right.schema)
        left_reads, right_reads = self.is_dependent(node.left), self.is_dependent(node.right)
        with_left = left_reads or node.kind.keeps_left or node.kind.left_only or not right_reads
        with_right = right_reads or node.kind.keeps_right
        left = self.with_rows_of(node.left) if with_left else node.left
        right = self.with_rows_of(node.right) if with_right else node.right
        start = len(left.schema)
        lefts = [i + (width if with_left else 0) for i in range(own_left)]
        rights = [i + start + (width if with_right else 0) for i in range(own_right)]
        both = [e for _, e in identity(left.schema)] + [shifted(e, start) for _, e in identity(right.schema)]
        outer_at = 0 if with_left else start
        places = [*lefts, *rights]
        parts = [_placed(e, outer_at, places.__getitem__) for e in _conditions(node)]
        if with_left and with_right:
            parts = [*same_values(both[:width], both[start : start + width]), *parts]
        hints = replace(self._nodes.hints("dependent-join", self._span), state_ttl_ms=node.hints.state_ttl_ms)
        schema = joined_schema(left.schema, right.schema, node.kind)
        joined = Join(schema, hints, left, right, node.kind, condition=conjunction(parts))
        if node.kind.left_only:
            return joined
        domain = [
            self._domain_value(joined, node.kind, i, outer_at, start if with_left and with_right else None)
            for i in range(width)
        ]
        fields = schema.fields
        columns: list[Named] = [(f"OUTER${i}", e) for i, e in enumerate(domain)]
        columns += [
            (name, ColumnRef(fields[p].type, p, name)) for name, p in zip(node.schema.names, places, strict=True)
        ]
        return self._nodes.calc(joined, columns, self._span, None, "dependent-select")

    def _domain_value(self, joined: Join, kind: JoinKind, index: int, at: int, other: int | None) -> Expression:
        """The domain's column after a join: where a side may be missing, from the other one."""

        def column(position: int) -> Expression:
            entry = joined.schema.fields[position + index]
            return ColumnRef(entry.type, position + index, entry.name)

        if other is None:
            return column(at)
        match kind:
            case JoinKind.RIGHT:
                return column(other)
            case JoinKind.FULL:
                left = column(at)
                return Case(left.type, ((test("IS NOT NULL", left), left),), column(other))
            case _:
                return column(at)


def _conditions(node: Join) -> list[Expression]:
    """The join's keys and its condition as conditions over both inputs."""
    width = len(node.left.schema)
    safe = node.null_safe or (False,) * len(node.left_keys)
    found: list[Expression] = []
    for left, right, nulls in zip(node.left_keys, node.right_keys, safe, strict=True):
        a = ColumnRef(node.left.schema.types[left], left, node.left.schema.names[left])
        b = ColumnRef(node.right.schema.types[right], right + width, node.right.schema.names[right])
        found.append(compare("IS NOT DISTINCT FROM" if nulls else "=", a, b))
    return [*found, *([] if node.condition is None else [node.condition])]


def _placed(expression: Expression, outer_at: int, place: Callable[[int], int]) -> Expression:
    """An expression of a subquery over rows that hold the domain from position `outer_at` on, and its own columns at `place`."""

    def move(e: Expression) -> Expression | None:
        if isinstance(e, OuterColumn):
            return ColumnRef(e.type, e.index + outer_at, e.name)
        return ColumnRef(e.type, place(e.index), e.name) if isinstance(e, ColumnRef) else None

    return rewrite(expression, move)


_PUSHES: dict[type[PlanNode], Callable[..., PlanNode]] = {
    Calc: DependentJoin._calc,
    Join: DependentJoin._join,
    rel.GroupAggregate: DependentJoin._group,
    Union: DependentJoin._union,
    rel.Over: DependentJoin._over,
    rel.Rank: DependentJoin._rank,
    rel.TemporalSort: DependentJoin._sort,
    rel.Expand: DependentJoin._expand,
    rel.Unnest: DependentJoin._unnest,
    rel.TableFunctionCall: DependentJoin._function,
}


def expressions_of(node: PlanNode) -> list[Expression]:
    """The expressions that a node as the binder makes it evaluates itself."""
    match node:
        case Calc(projections=projections, condition=condition):
            return [*projections, *([] if condition is None else [condition])]
        case rel.GroupAggregate(aggregates=calls):
            return [e for c in calls for e in _of_call(c)]
        case rel.Over(calls=over_calls):
            return [e for c in over_calls for e in _of_call(c.call)]
        case rel.Expand(projections=rows):
            return [e for row in rows for e in row]
        case rel.TableFunctionCall(arguments=arguments):
            return list(arguments)
        case Join(condition=condition):
            return [] if condition is None else [condition]
        case _:
            found = getattr(node, "condition", None)
            return [found] if isinstance(found, Expression) else []


def _of_call(call: AggregateCall) -> list[Expression]:
    return [*call.arguments, *([] if call.filter is None else [call.filter])]


__all__ = ["DependentJoin", "domain_of", "expressions_of", "is_empty_count", "same_values"]
