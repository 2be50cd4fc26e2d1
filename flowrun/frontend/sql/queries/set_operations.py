"""UNION, INTERSECT, EXCEPT and VALUES."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import JoinKind
from flowrun.core.types import BIGINT, INT, DataType, map_of
from flowrun.frontend.sql.expressions.query_expressions import Clause, QueryExpressionBinder
from flowrun.frontend.sql.expressions.relations import Named, OuterScope, QueryScope, Relation, unique_names
from flowrun.frontend.sql.expressions.trees import compare, may_be_null
from flowrun.frontend.sql.grammar.syntax import SetOperation, SetOperator, ValuesRows
from flowrun.frontend.sql.queries.binding_context import BindingContext, Environment
from flowrun.frontend.sql.queries.nodes import NodeMaker, identity
from flowrun.frontend.sql.spans import Span, error_at, span_of
from flowrun.functions.coercion import common_type
from flowrun.plan.expressions import AggregateCall, Call, Case, Cast, ColumnRef, Expression, Literal
from flowrun.plan.folding import fold_constants
from flowrun.plan.joins import Join
from flowrun.plan.nodes import PlanNode, Union
from flowrun.plan.relational import Unnest, Values


def combined(nodes: NodeMaker, query: SetOperation, left: PlanNode, right: PlanNode, names: Sequence[str]) -> PlanNode:
    """Two results combined by position, each column in a type that both sides convert to.

    Raises:
        ExpressionError: other numbers of columns, or types that do not go together.
    """
    word = query.operator.value
    if len(left.schema) != len(right.schema):
        raise error_at(
            f"{word} needs equally many columns: {len(left.schema)} on the left, {len(right.schema)} on the right",
            query.right.span,
            "select the same columns on both sides",
        )
    types = []
    for place, (a, b) in enumerate(zip(left.schema, right.schema, strict=True)):
        type = common_type([a.type, b.type])
        if type is None:
            raise error_at(
                f"column {place + 1} ('{names[place]}') of {word} is {a.type} on the left and {b.type} on the right",
                query.right.span,
                "CAST one of them to the other's type",
            )
        types.append(type)
    unique = unique_names(names)
    sides = [_converted(nodes, side, unique, types, query.span) for side in (left, right)]
    if query.operator is SetOperator.UNION:
        return _union(nodes, query, sides)
    if query.all:
        return _counted(nodes, query, sides)
    first = nodes.distinct(sides[0], query.span)
    keys = tuple(range(len(types)))
    kind = JoinKind.SEMI if query.operator is SetOperator.INTERSECT else JoinKind.ANTI
    hints = nodes.hints(word.lower(), query.span)
    second = nodes.distinct(sides[1], query.span)
    return Join(first.schema, hints, first, second, kind, keys, keys, (True,) * len(keys))


def _counted(nodes: NodeMaker, query: SetOperation, sides: list[PlanNode]) -> PlanNode:
    """INTERSECT ALL and EXCEPT ALL: each row as often as the lesser count of the two sides, or their difference, says."""
    span, width = query.span, len(sides[0].schema)
    members = []
    for own, side in enumerate(sides):
        marks = [(f"COUNT${place}", Literal(BIGINT, int(own == place))) for place in (0, 1)]
        members.append(nodes.calc(side, [*identity(side.schema), *marks], span))
    fields = [
        Field(a.name, a.type, a.nullable or b.nullable)
        for a, b in zip(members[0].schema, members[1].schema, strict=True)
    ]
    union = Union(Schema(tuple(fields)), nodes.hints("union", span), tuple(members))
    sums = [AggregateCall("SUM0", (ColumnRef(BIGINT, width + i, f"COUNT${i}"),), BIGINT, "") for i in (0, 1)]
    grouped = nodes.group(union, tuple(range(width)), sums, span, ("COUNT$0", "COUNT$1"))
    left, right = (ColumnRef(BIGINT, width + i, f"COUNT${i}") for i in (0, 1))
    if query.operator is SetOperator.INTERSECT:
        times: Expression = Case(BIGINT, ((compare("<", left, right), left),), right)
    else:
        times = Call(BIGINT, "-", (left, right))
    # a map from an element to how often it is there, unnested as the multiset that it is
    copies = Call(map_of(INT, INT), "MAP", (Literal(INT, 1), Cast(INT, times)))
    columns: list[Named] = [*identity(grouped.schema)[:width], ("COPIES$", copies)]
    several = nodes.calc(grouped, columns, span, compare(">", times, Literal(BIGINT, 0)))
    schema = Schema((*several.schema.fields, Field("COPY$", INT, False)))
    copied = Unnest(schema, nodes.hints(query.operator.value.lower(), span), several, width)
    return nodes.first_columns(copied, width, span)


def _union(nodes: NodeMaker, query: SetOperation, sides: list[PlanNode]) -> PlanNode:
    fields = [
        Field(a.name, a.type, a.nullable or b.nullable) for a, b in zip(sides[0].schema, sides[1].schema, strict=True)
    ]
    members: list[PlanNode] = []
    for side in sides:
        # A UNION ALL B UNION ALL C is one node
        members += side.members if isinstance(side, Union) and query.all else (side,)
    union = Union(Schema(tuple(fields)), nodes.hints("union", query.span), tuple(members))
    return union if query.all else nodes.distinct(union, query.span)


def _converted(
    nodes: NodeMaker, node: PlanNode, names: Sequence[str], types: Sequence[DataType], span: Span
) -> PlanNode:
    columns: list[tuple[str, Expression]] = []
    for name, (_, column), type in zip(names, identity(node.schema), types, strict=True):
        columns.append((name, column if column.type == type else Cast(type, column)))
    return nodes.calc(node, columns, span)


def values(
    context: BindingContext, query: ValuesRows, environment: Environment, outer: OuterScope | None = None
) -> PlanNode:
    """The rows of VALUES: columns EXPR$0, EXPR$1, …, each in the common type of its values.

    Raises:
        ExpressionError: rows of different lengths, or values without a common type.
        FailedError: values are wrong; what is wrong was added to the context's errors.
    """
    width = len(query.rows[0])
    odd = next((r for r in query.rows if len(r) != width), None)
    if odd is not None:
        span = (span_of(odd[0])[0], span_of(odd[-1])[1])
        raise error_at(f"this row of VALUES has {len(odd)} values, the first has {width}", span)
    nodes = context.nodes
    source = nodes.one_row(query.span)
    expressions = QueryExpressionBinder(
        QueryScope(relation=Relation(source, ()), outer=outer), Clause.VALUES, environment
    )
    flat = context.all_of([partial(expressions.bind, n) for row in query.rows for n in row])
    columns = [flat[i::width] for i in range(width)]
    written = [[row[i] for row in query.rows] for i in range(width)]
    unified = [
        expressions.unify(c, n, f"the values of column {i + 1}")
        for i, (c, n) in enumerate(zip(columns, written, strict=True))
    ]
    rows = [tuple(fold_constants(c[r]) for c in unified) for r in range(len(query.rows))]
    names = [f"EXPR${i}" for i in range(width)]
    fields = [
        Field(n, c[0].type, any(may_be_null(row[i], source.schema) for row in rows))
        for i, (n, c) in enumerate(zip(names, unified, strict=True))
    ]
    schema = Schema(tuple(fields))
    if all(isinstance(v, Literal) for row in rows for v in row):
        return Values(schema, nodes.hints("values", query.span), tuple(rows))
    members = [nodes.calc(source, list(zip(names, row, strict=True)), query.span) for row in rows]
    return members[0] if len(members) == 1 else Union(schema, nodes.hints("union", query.span), tuple(members))
