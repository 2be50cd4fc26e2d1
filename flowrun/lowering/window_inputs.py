"""The rewrite that brings rows into the shape window operators read: keys, arguments and filters as plain columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flowrun.core.schema import Field, Schema
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, SideOutput, WindowAggregate, walk_plan
from flowrun.plan.rewrites.calcs import merge_calcs, remove_identity_calcs
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks


def prepare_window_inputs(plan: Plan) -> Plan:
    """The plan with a Calc below every window aggregation, so that its aggregates read columns only.

    Just the columns that the aggregation needs go through, each once, keys first: less to shuffle. If late rows have an output,
    they must leave as they came: then all columns stay and the computed ones are appended, and a Calc over the side output drops
    them again. The new Calcs are merged with those below them.
    """
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if isinstance(rebuilt, WindowAggregate):
            rebuilt = _prepared(rebuilt)
        elif isinstance(node, SideOutput) and isinstance(node.input, WindowAggregate):
            rebuilt = _original_columns(node, rebuilt.inputs[0])
        done[id(node)] = rebuilt
    prepared = with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))
    return merge_calcs(remove_identity_calcs(prepared))


@dataclass(slots=True)
class _Columns:
    """Columns of the new input, each expression once."""

    fields: list[Field]
    expressions: list[Expression]

    def position(self, expression: Expression, name: str | None = None) -> int:
        """Where the expression is a column, added if it is not there yet."""
        if expression in self.expressions and is_deterministic(expression):
            return self.expressions.index(expression)
        taken = {f.name for f in self.fields}
        wanted = name or f"${len(self.fields)}"
        while wanted in taken:
            wanted += "_"
        self.fields.append(Field(wanted, expression.type))
        self.expressions.append(expression)
        return len(self.fields) - 1


def _prepared(node: WindowAggregate) -> WindowAggregate:
    schema = node.input.schema
    all_columns = [ColumnRef(f.type, i, f.name) for i, f in enumerate(schema)]
    columns = _Columns(list(schema.fields), list(all_columns)) if node.late_tag is not None else _Columns([], [])
    keys = tuple(columns.position(all_columns[k], schema.names[k]) for k in node.keys)
    calls = tuple(_over_columns(c, columns) for c in node.aggregates)
    trigger = node.trigger
    if trigger is not None and trigger.delta is not None:
        trigger = replace(trigger, delta=_reference(trigger.delta, columns))
    if not columns.fields:
        # COUNT(*) over everything: rows need one column to be counted by
        columns.position(all_columns[0], schema.names[0])
    hints = node.hints
    calc = Calc(
        schema=Schema(tuple(columns.fields)),
        # An aggregation without keys runs alone, but what it reads is prepared where the input runs.
        hints=NodeHints(
            name=f"{hints.name}.input",
            uid=f"{hints.stable_id}:input" if hints.stable_id else None,
            parallelism=_parallelism(node.input),
            slot_sharing_group=hints.slot_sharing_group,
            chaining=hints.chaining,
            location=hints.location,
        ),
        input=node.input,
        projections=tuple(columns.expressions),
    )
    return replace(node, input=calc, keys=keys, aggregates=calls, trigger=trigger)


def _parallelism(node: PlanNode) -> int | None:
    """Parallelism of the operator that produces a node's rows; None: the pipeline's, or that of several operators."""
    while isinstance(node, SideOutput):
        node = node.input
    return node.hints.parallelism


def _over_columns(call: AggregateCall, columns: _Columns) -> AggregateCall:
    """The call with its first argument and its filter as columns; further arguments are constants and stay."""
    first, rest = call.arguments[:1], call.arguments[1:]
    return replace(
        call,
        arguments=(*(_reference(a, columns) for a in first), *rest),
        filter=_reference(call.filter, columns) if call.filter is not None else None,
        argument_text=str(first[0]) if first else "",
        filter_text="" if call.filter is None else str(call.filter),
    )


def _reference(expression: Expression, columns: _Columns) -> Expression:
    named = expression.name if isinstance(expression, ColumnRef) else None
    position = columns.position(expression, named)
    return ColumnRef(expression.type, position, columns.fields[position].name)


def _original_columns(side: SideOutput, window: PlanNode) -> PlanNode:
    """The side output of a prepared window, with the columns that it had before."""
    schema = window.inputs[0].schema
    changed = replace(side, schema=schema, input=window)
    if len(schema) == len(side.schema):
        return changed
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(side.schema))
    hints = replace(side.hints, parallelism=window.hints.parallelism)
    return Calc(schema=side.schema, hints=hints, input=changed, projections=columns)
