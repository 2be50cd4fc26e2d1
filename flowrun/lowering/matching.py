"""MATCH_RECOGNIZE: conditions and measures become expressions over the columns of the rows that they refer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.errors import InternalError
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.aggregate_calls import bound_aggregate
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import keyed
from flowrun.operators.factories import CalcFactory
from flowrun.operators.matching.factories import MatchFactory
from flowrun.operators.matching.pattern import (
    Anchor,
    Condition,
    Pattern,
    RangeAggregate,
    Reference,
    RowReference,
    Skip,
    Variable,
)
from flowrun.plan.compiled import Projection, predicate_of
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import ColumnRef, Expression, Literal, transform, walk
from flowrun.plan.matching import AfterMatch, MatchRecognize, Navigation, PatternAggregate, PatternColumn
from flowrun.plan.nodes import PlanNode, Settings

_SKIPS = {
    AfterMatch.SKIP_PAST_LAST_ROW: Skip.PAST_LAST_ROW,
    AfterMatch.SKIP_TO_NEXT_ROW: Skip.TO_NEXT_ROW,
    AfterMatch.SKIP_TO_FIRST: Skip.TO_FIRST,
    AfterMatch.SKIP_TO_LAST: Skip.TO_LAST,
}
_ANCHORS = {Navigation.FIRST: Anchor.FIRST, Navigation.LAST: Anchor.LAST, Navigation.PREV: Anchor.PREVIOUS}


def lower_match(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:  # noqa: ARG001 - one signature for all
    """The operator of a MATCH_RECOGNIZE behind a shuffle by its partition columns."""
    assert isinstance(node, MatchRecognize)
    arguments, node = prepared(node)
    schema, source = node.input.schema, inputs.only
    if arguments:
        schema = widened(schema, arguments)
        columns = (*(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.input.schema)), *arguments)
        name = f"{node.hints.name or 'match_recognize'}.input"
        uid = f"{node.hints.stable_id}:input" if node.hints.stable_id else None
        calc = CalcFactory(None, Projection(columns, schema), name)
        source = OneInputTransformation(name=name, schema=schema, uid=uid, factory=calc, input=source)
    names = [v.name for v in node.pattern]
    defines = dict(node.defines)
    measures = _References(names)
    outputs = tuple(measures.rewrite(m) for m in node.measures)
    event = node.domain is TimeDomain.EVENT
    pattern = Pattern(
        tuple(Variable(v.name, v.least, v.most, v.greedy) for v in node.pattern),
        tuple(_condition(defines.get(v.name), i, names) for i, v in enumerate(node.pattern)),
        _SKIPS[node.after],
        names.index(node.skip_to) if node.skip_to is not None else None,
        node.within_ms,
    )
    measured = node.schema.fields[len(node.partition) :]
    factory = MatchFactory(
        input_schema=schema,
        output_schema=node.schema,
        keys=node.partition,
        time=node.order[0].column if event else None,
        order=node.order[1:],
        pattern=pattern,
        measures=Projection(outputs, Schema(measured)),
        measure_references=tuple(measures.references),
    )
    return keyed(node, factory, source, node.partition, "match_recognize")


def _condition(expression: Expression | None, variable: int, names: Sequence[str]) -> Condition:
    """The condition of a variable, parted into what depends on what was matched before and what does not."""
    if expression is None or (isinstance(expression, Literal) and expression.value is True):
        return Condition()
    parts = conjuncts(expression)
    local = _References(names, current=variable)
    dependent = _References(names)
    here = [local.rewrite(c) for c in parts if _is_local(c, variable, names)]
    there = [dependent.rewrite(c) for c in parts if not _is_local(c, variable, names)]
    return Condition(
        predicate_of(conjunction(here)),
        tuple(r for r in local.references if isinstance(r, RowReference)),
        predicate_of(conjunction(there)),
        tuple(dependent.references),
    )


def _is_local(part: Expression, variable: int, names: Sequence[str]) -> bool:
    """Whether it reads the current row, and rows before it, alone."""
    return all(_is_current(e, names[variable]) for e in walk(part) if isinstance(e, PatternColumn | PatternAggregate))


def _is_current(expression: Expression, variable: str) -> bool:
    if not isinstance(expression, PatternColumn):
        return False
    if expression.navigation is Navigation.PREV:
        return True
    return (
        expression.navigation is Navigation.LAST and not expression.offset and expression.variable in (None, variable)
    )


@dataclass(slots=True)
class _References:
    """Collects what expressions refer to. `current`: the variable whose rows are the current row, which is then read as such."""

    names: Sequence[str]
    current: int | None = None
    references: list[Reference] = field(default_factory=list)

    def rewrite(self, expression: Expression) -> Expression:
        """The expression over one column a reference."""

        def replace_references(node: Expression) -> Expression:
            if isinstance(node, PatternColumn):
                return self._column(node, self._row(node), str(node))
            if isinstance(node, PatternAggregate):
                variable = self.names.index(node.variable) if node.variable is not None else None
                return self._column(node, RangeAggregate(bound_aggregate(node.call), variable), str(node))
            return node

        return transform(expression, replace_references)

    def _row(self, column: PatternColumn) -> RowReference:
        if self.current is not None:
            return RowReference(
                column.index, None, Anchor.PREVIOUS, column.offset if column.navigation is Navigation.PREV else 0
            )
        anchor = _ANCHORS.get(column.navigation)
        if anchor is None:
            raise InternalError(f"{column} cannot be evaluated")
        variable = self.names.index(column.variable) if column.variable is not None else None
        return RowReference(column.index, variable, anchor, column.offset)

    def _column(self, node: Expression, reference: Reference, name: str) -> Expression:
        if reference not in self.references:
            self.references.append(reference)
        return ColumnRef(node.type, self.references.index(reference), name)


def prepared(node: MatchRecognize) -> tuple[tuple[Expression, ...], MatchRecognize]:
    """(expressions that the input needs as further columns, the node whose aggregates read them)."""
    columns: list[Expression] = []
    width = len(node.input.schema)

    def position(expression: Expression) -> Expression:
        if isinstance(expression, ColumnRef):
            return expression
        if expression not in columns:
            columns.append(expression)
        return ColumnRef(expression.type, width + columns.index(expression), str(expression))

    def visit(expression: Expression) -> Expression:
        if not isinstance(expression, PatternAggregate):
            return expression
        call = expression.call
        arguments = (*(position(a) for a in call.arguments[:1]), *call.arguments[1:])
        return replace(expression, call=replace(call, arguments=arguments))

    measures = tuple(transform(m, visit) for m in node.measures)
    defines = tuple((name, transform(e, visit)) for name, e in node.defines)
    return tuple(columns), replace(node, measures=measures, defines=defines)


def widened(schema: Schema, columns: Sequence[Expression]) -> Schema:
    """The schema with further columns under names of their own."""
    taken = set(schema.names)
    fields = []
    for i, column in enumerate(columns):
        name = f"$argument{i}"
        while name in taken:
            name += "_"
        fields.append(Field(name, column.type))
    return Schema((*schema.fields, *fields))
