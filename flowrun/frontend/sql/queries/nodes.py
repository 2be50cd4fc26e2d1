"""Plan nodes of one query: each with its place in the script and a name of its own, so that its state is found again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import JoinKind
from flowrun.core.types import INT, TypeRoot
from flowrun.errors import Location
from flowrun.frontend.sql.expressions.relations import Named, unique_fields, unique_names
from flowrun.frontend.sql.expressions.trees import may_be_null
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.spans import Span, error_at
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import (
    AggregateCall,
    ColumnRef,
    Expression,
    Literal,
)
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Calc, NodeHints, PlanNode
from flowrun.plan.relational import GroupAggregate, Values

_Node = TypeVar("_Node", bound=PlanNode)


class NodeMaker:
    """Makes the nodes of one query. `offset` is where the query's text begins in the script."""

    def __init__(self, context: QueryContext, offset: int) -> None:
        self._context = context
        self._offset = offset
        self._counts: Counter[str] = Counter()

    def locate(self, span: Span) -> Location:
        """The place of a span of the query in the script."""
        return self._context.source.locate(span[0] + self._offset, span[1] + self._offset)

    def hints(self, kind: str, span: Span) -> NodeHints:
        """Name, place and location of the next node of a kind."""
        self._counts[kind] += 1
        if self._context.hints is not None:
            return replace(self._context.hints(kind, self._counts[kind]), location=self.locate(span))
        name = self._context.name
        return NodeHints(name=f"{name}.{kind}", location=self.locate(span), place=f"{name}.{kind}-{self._counts[kind]}")

    # -- nodes ---------------------------------------------------------------------------------------------------------------

    def calc(
        self,
        input: PlanNode,
        columns: Sequence[Named],
        span: Span,
        condition: Expression | None = None,
        kind: str = "select",
    ) -> PlanNode:
        """The columns under unique names, of the rows for which the condition is true; the input itself if that is the same."""
        schema = unique_fields([Field(n, e.type, may_be_null(e, input.schema)) for n, e in columns])
        expressions = tuple(e for _, e in columns)
        if condition is None and schema.names == input.schema.names and is_identity(expressions, input.schema):
            return input
        return Calc(schema, self.hints(kind, span), input, expressions, condition)

    def filter(
        self, input: PlanNode, conditions: Sequence[Expression], span: Span, width: int | None = None
    ) -> PlanNode:
        """The rows for which all conditions are true; of the first `width` columns if that is given."""
        fields = input.schema.fields[:width]
        columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(fields))
        return Calc(Schema(fields), self.hints("filter", span), input, columns, conjunction(conditions))

    def first_columns(self, input: PlanNode, width: int, span: Span) -> PlanNode:
        """The first columns of the input."""
        if len(input.schema) == width:
            return input
        return self.calc(input, identity(input.schema)[:width], span)

    def extended(self, input: PlanNode, wanted: Sequence[Expression], span: Span) -> tuple[PlanNode, tuple[int, ...]]:
        """The input with each expression as a column, and their positions; those that are columns stay where they are."""
        columns = identity(input.schema)
        positions = []
        for expression in wanted:
            if isinstance(expression, ColumnRef):
                positions.append(expression.index)
                continue
            known = next((i for i, (_, e) in enumerate(columns) if e == expression), None)
            if known is None:
                known = len(columns)
                columns.append((f"EXPR${known}", expression))
            positions.append(known)
        if len(columns) == len(input.schema):
            return input, tuple(positions)
        return self.calc(input, columns, span), tuple(positions)

    def one_row(self, span: Span) -> PlanNode:
        """One row with one column that nobody reads: what a query without FROM reads."""
        return Values(Schema((Field("ZERO", INT, False),)), self.hints("values", span), ((Literal(INT, 0),),))

    def join(
        self,
        left: PlanNode,
        right: PlanNode,
        kind: JoinKind,
        condition: Expression | None,
        span: Span,
        name: str = "join",
    ) -> PlanNode:
        """A regular join with the whole condition in it."""
        schema = joined_schema(left.schema, right.schema, kind)
        return Join(schema, self.hints(name, span), left, right, kind, condition=condition)

    def distinct(self, input: PlanNode, span: Span, kind: str = "distinct") -> PlanNode:
        """Each row once.

        Raises:
            ExpressionError: a column is NULL without a type.
        """
        _check_typed(input.schema, range(len(input.schema)), span)
        return GroupAggregate(input.schema, self.hints(kind, span), input, tuple(range(len(input.schema))), ())

    def group(
        self,
        input: PlanNode,
        keys: tuple[int, ...],
        calls: Sequence[AggregateCall],
        span: Span,
        names: Sequence[str] = (),
    ) -> GroupAggregate:
        """Groups and aggregates; calls are named by `names`, made unique.

        Raises:
            ExpressionError: a key is NULL without a type.
        """
        _check_typed(input.schema, keys, span)
        fields = [input.schema.fields[k] for k in keys]
        unique = unique_names([*(f.name for f in fields), *names])
        fields = [Field(n, f.type, f.nullable) for n, f in zip(unique, fields, strict=False)]
        named = tuple(replace(c, name=n) for c, n in zip(calls, unique[len(keys) :], strict=True))
        schema = Schema((*fields, *(Field(c.name, c.type, c.function != "COUNT") for c in named)))
        return GroupAggregate(schema, self.hints("aggregate", span), input, keys, named)


def _check_typed(schema: Schema, keys: Iterable[int], span: Span) -> None:
    """Fail if a key is a bare NULL, which compares with nothing."""
    for key in keys:
        if schema.types[key].root is TypeRoot.NULL:
            hint = "give it a type: CAST(NULL AS STRING)"
            raise error_at(
                f"column '{schema.names[key]}' is NULL without a type: its rows cannot be compared", span, hint
            )


def with_lifetimes(node: _Node, state_ttl_ms: tuple[int | None, ...]) -> _Node:
    """The node with how long what it keeps of each input lives; empty: as the settings say."""
    return replace(node, hints=replace(node.hints, state_ttl_ms=state_ttl_ms)) if state_ttl_ms else node


def joined_schema(left: Schema, right: Schema, kind: JoinKind) -> Schema:
    """Columns of a join: left then right under unique names, nullable on the side that may be missing."""
    if kind.left_only:
        return left
    fields = [Field(f.name, f.type, f.nullable or kind.keeps_right) for f in left]
    fields += [Field(f.name, f.type, f.nullable or kind.keeps_left) for f in right]
    return unique_fields(fields)


def identity(schema: Schema) -> list[Named]:
    """Every column as itself."""
    return [(f.name, ColumnRef(f.type, i, f.name)) for i, f in enumerate(schema)]


def is_identity(expressions: Sequence[Expression], schema: Schema) -> bool:
    """Whether the expressions are the columns of the schema, in order."""
    return len(expressions) == len(schema) and all(
        isinstance(e, ColumnRef) and e.index == i for i, e in enumerate(expressions)
    )
