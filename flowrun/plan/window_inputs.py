"""The rewrite that brings rows into the shape aggregating operators read: keys, arguments and filters as plain columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field

from flowrun.core.row_errors import OnError
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BOOLEAN, row
from flowrun.plan.expressions import AggregateCall, Call, ColumnRef, Expression, Literal
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.folding import argument_of
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, SideOutput, WindowAggregate, walk_plan
from flowrun.plan.relational import GroupAggregate, OverAggregate
from flowrun.plan.rewrites.calcs import merge_calcs, remove_identity_calcs
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks
from flowrun.plan.windows import sees_whole_rows


def prepare_window_inputs(plan: Plan) -> Plan:
    """The plan with a Calc below every window, group and OVER aggregation, so that its aggregates read columns only.

    Just the columns that the aggregation needs go through, each once, keys first: less to shuffle. If late rows of a window have an
    output, they must leave as they came: then all columns stay and the computed ones are appended, and a Calc over the side output
    drops them again. The rows of OVER leave as they came, too: its input keeps its columns and gets the computed ones behind them,
    of which the operator sends none (the first `len(schema) - len(calls)` columns go through). The new Calcs are merged with those
    below them.
    """
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if isinstance(rebuilt, WindowAggregate | GroupAggregate | OverAggregate):
            rebuilt = with_argument_columns(rebuilt)
        elif isinstance(node, SideOutput) and isinstance(node.input, WindowAggregate):
            rebuilt = original_columns(node, rebuilt.inputs[0])
        done[id(node)] = rebuilt
    prepared = with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))
    return merge_calcs(remove_identity_calcs(prepared))


Aggregating = WindowAggregate | GroupAggregate | OverAggregate


@dataclass(slots=True)
class _Columns:
    """Columns of the new input, each expression once."""

    fields: list[Field] = dataclass_field(default_factory=list)
    expressions: list[Expression] = dataclass_field(default_factory=list)
    _positions: dict[Expression, int] = dataclass_field(default_factory=dict)
    _names: set[str] = dataclass_field(default_factory=set)

    def keep_all(self, schema: Schema) -> None:
        """Begin with the columns of the input as they are."""
        for i, f in enumerate(schema):
            self._add(f, ColumnRef(f.type, i, f.name))

    def position(self, expression: Expression, name: str | None = None) -> int:
        """Where the expression is a column, added if it is not there yet."""
        known = self._positions.get(expression)
        if known is not None and is_deterministic(expression):
            return known
        wanted = name or f"${len(self.fields)}"
        while wanted in self._names:
            wanted += "_"
        return self._add(Field(wanted, expression.type), expression)

    def _add(self, entry: Field, expression: Expression) -> int:
        position = len(self.fields)
        self.fields.append(entry)
        self.expressions.append(expression)
        self._names.add(entry.name)
        self._positions.setdefault(expression, position)
        return position


def with_argument_columns(node: Aggregating) -> Aggregating:
    """The aggregation above a Calc that computes its keys, arguments and filters: then it reads columns only."""
    match node:
        case WindowAggregate():
            return _prepared_window(node)
        case GroupAggregate():
            return _prepared_groups(node)
        case OverAggregate():
            return _prepared_over(node)


def _prepared_window(node: WindowAggregate) -> WindowAggregate:
    columns = _Columns()
    if node.late_tag is not None or sees_whole_rows(node.window, node.trigger, node.evictor):
        columns.keep_all(node.input.schema)
    keys = _keys(node, columns)
    calls = tuple(_over_columns(c, columns) for c in node.aggregates)
    trigger = node.trigger
    if trigger is not None and trigger.delta is not None:
        trigger = replace(trigger, delta=_reference(trigger.delta, columns))
    return replace(node, input=_input(node, node.input, columns), keys=keys, aggregates=calls, trigger=trigger)


def _prepared_groups(node: GroupAggregate) -> GroupAggregate:
    columns = _Columns()
    keys = _keys(node, columns)
    calls = tuple(_over_columns(c, columns) for c in node.aggregates)
    return replace(node, input=_input(node, node.input, columns), keys=keys, aggregates=calls)


def _prepared_over(node: OverAggregate) -> OverAggregate:
    columns = _Columns()
    columns.keep_all(node.input.schema)
    calls = tuple(_over_columns(c, columns) for c in node.calls)
    if len(columns.fields) == len(node.input.schema):
        return replace(node, calls=calls)
    return replace(node, input=_input(node, node.input, columns), calls=calls)


def _keys(node: WindowAggregate | GroupAggregate, columns: _Columns) -> tuple[int, ...]:
    fields = node.input.schema.fields
    return tuple(columns.position(ColumnRef(fields[k].type, k, fields[k].name), fields[k].name) for k in node.keys)


def _input(node: PlanNode, source: PlanNode, columns: _Columns) -> Calc:
    """The Calc that makes the columns."""
    if not columns.fields:
        # COUNT(*) over everything: rows need one column to be counted by
        first = source.schema.fields[0]
        columns.position(ColumnRef(first.type, 0, first.name), first.name)
    hints = node.hints
    return Calc(
        schema=Schema(tuple(columns.fields)),
        # An aggregation without keys runs alone, but what it reads is prepared where the input runs.
        hints=NodeHints(
            name=f"{hints.name}.input" if hints.name else None,
            uid=f"{hints.stable_id}:input" if hints.stable_id else None,
            parallelism=_parallelism(source),
            slot_sharing_group=hints.slot_sharing_group,
            chaining=hints.chaining,
            location=hints.location,
            # Dead letters are seen to before, in `flowrun.plan.row_errors`: what is computed here does not fail, or nobody catches it.
            on_error=OnError.FAIL,
        ),
        input=source,
        projections=tuple(columns.expressions),
    )


def _parallelism(node: PlanNode) -> int | None:
    """Parallelism of the operator that produces a node's rows; None: the pipeline's, or that of several operators."""
    while isinstance(node, SideOutput):
        node = node.input
    return node.hints.parallelism


def _over_columns(call: AggregateCall, columns: _Columns) -> AggregateCall:
    """The call with its first argument and its filter as columns; of further arguments constants stay as they are.

    A user's aggregate gets one column: a ROW of all its arguments, or a constant if it has none.
    """
    arguments = call.arguments if call.reference is None else (packed(call.arguments),)
    count = 0 if call.function == "NTILE" else 1  # NTILE has a number only
    first, rest = arguments[:count], arguments[count:]
    return replace(
        call,
        arguments=(
            *(_reference(a, columns) for a in first),
            *(a if argument_of(a).is_literal else _reference(a, columns) for a in rest),
        ),
        filter=_reference(call.filter, columns) if call.filter is not None else None,
        argument_text=", ".join(map(str, call.arguments if call.reference is not None else first)),
        filter_text="" if call.filter is None else str(call.filter),
    )


def packed(arguments: tuple[Expression, ...]) -> Expression:
    """The one argument of a user's aggregate: a ROW of those that it was called with, or a constant if there are none."""
    if not arguments:
        return Literal(BOOLEAN, True)
    return Call(row(*((f"f{i}", a.type) for i, a in enumerate(arguments))), "ROW", arguments)


def _reference(expression: Expression, columns: _Columns) -> Expression:
    named = expression.name if isinstance(expression, ColumnRef) else None
    position = columns.position(expression, named)
    return ColumnRef(expression.type, position, columns.fields[position].name)


def original_columns(side: SideOutput, window: PlanNode) -> PlanNode:
    """The side output of a prepared window, with the columns that it had before."""
    schema = window.inputs[0].schema
    changed = replace(side, schema=schema, input=window)
    if len(schema) == len(side.schema):
        return changed
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(side.schema))
    hints = replace(side.hints, parallelism=window.hints.parallelism)
    return Calc(schema=side.schema, hints=hints, input=changed, projections=columns)
