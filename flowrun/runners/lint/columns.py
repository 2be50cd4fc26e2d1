"""The rule of columns that are computed and that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.errors import Location
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, FieldAccess, Literal, walk
from flowrun.plan.nodes import Calc, PlanNode, Sink, WindowAggregate, walk_plan
from flowrun.plan.relational import GroupAggregate, OverAggregate
from flowrun.plan.rewrites.columns import used_columns
from flowrun.plan.traits import PROCTIME
from flowrun.runners.lint.rule import LintRule, Subject, step_name


def _find(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    plan = subject.written
    nodes = list(walk_plan(plan))
    wanted: dict[int, set[int]] = {id(node): set() for node in nodes}
    for node in reversed(nodes):  # readers come first
        if isinstance(node, Sink):
            wanted[id(node)] = set(range(len(node.schema)))
        for child in node.inputs:
            own = wanted[id(node)]
            wanted[id(child)] |= own if isinstance(node, Sink) else used_columns(node, child, own)
    for node in nodes:
        for column, name in _computed(node):
            if column not in wanted[id(node)] and not name.startswith("$"):
                what = f"nothing reads column '{name}', which {step_name(node)} computes"
                yield what, "leave it out, or read it", node.hints.location


def _computed(node: PlanNode) -> Iterator[tuple[int, str]]:
    """The columns that a node computes, but for those that it only hands on."""
    match node:
        case Calc():
            for column, projection in enumerate(node.projections):
                if _is_computed(projection):
                    yield column, node.schema.names[column]
        case GroupAggregate() | WindowAggregate():
            yield from _last(node, len(node.aggregates))
        case OverAggregate():
            yield from _last(node, len(node.calls))
        case _:
            return


def _is_computed(value: Expression) -> bool:
    """Whether more is done than to hand on a column, a field of it or a constant, of another type perhaps. A processing-time attribute
    is no value that is to be read.
    """
    if isinstance(value, Call) and value.function == PROCTIME:
        return False
    return any(not isinstance(part, ColumnRef | FieldAccess | Cast | Literal) for part in walk(value))


def _last(node: PlanNode, count: int) -> Iterator[tuple[int, str]]:
    names = node.schema.names
    yield from ((column, names[column]) for column in range(len(names) - count, len(names)))


RULE = LintRule(
    "unused-column",
    "A column is computed and nobody reads it.",
    "An expression or an aggregate that reaches no sink, and that no condition, key or window needs. It "
    "is not computed when the pipeline runs, so it costs nothing, but whoever reads the text believes in it: a name may be misspelt, or "
    "the step behind it forgot the column. Columns of tables, computed ones too, are not reported: "
    "a table may have more of them than one pipeline needs.",
    _find,
)
