"""The rule that drops columns nobody needs, down into the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.plan.expressions import ColumnRef, Expression, columns_used, remap_columns
from flowrun.plan.nodes import (
    Calc,
    Plan,
    PlanNode,
    Process,
    Scan,
    SideOutput,
    Split,
    Union,
    WindowAggregate,
    walk_plan,
)
from flowrun.plan.rewrites.relational_columns import Pruned, pruned, remapped_call, used_columns
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks


def prune_columns(plan: Plan) -> Plan:
    """Scans read, and Calcs compute, only columns that something after them uses. Nested columns are kept whole.

    Python functions and sinks use every column they are given. A node that needs no column at all (COUNT(*)) keeps its cheapest
    one, since rows without columns cannot be counted. Aggregates whose results nobody uses are not computed.
    """
    needed = _needed_columns(plan)
    done: dict[int, Pruned] = {}
    for node in walk_plan(plan):
        done[id(node)] = _prune(node, needed[id(node)], done)
    return with_sinks(plan, tuple(done[id(s)].node for s in plan.sinks))


def _needed_columns(plan: Plan) -> dict[int, set[int]]:
    """For each node, by identity, the positions of the output columns that its readers use."""
    nodes = list(walk_plan(plan))
    needed: dict[int, set[int]] = {id(n): set() for n in nodes}
    for node in reversed(nodes):  # readers before what they read
        own = needed[id(node)]
        if not own:
            own.add(_cheapest(node.schema))
        for child in node.inputs:
            needed[id(child)] |= _used_of_input(node, child, own)
    return needed


def _cheapest(schema: Schema) -> int:
    """Position of the column that costs least to carry: fixed width before text before nested."""

    def cost(position: int) -> tuple[bool, int]:
        type_ = schema.types[position]
        return type_.is_nested, _width(type_)

    return min(range(len(schema)), key=cost)


def _width(type_: DataType) -> int:
    """Bits of a value; text and bytes count as wide."""
    try:
        return int(type_.arrow.bit_width)
    except ValueError:
        return 1 << 10


def _used_of_input(node: PlanNode, child: PlanNode, own: set[int]) -> set[int]:
    """Columns of the input `child` that `node` uses to produce its columns `own`."""
    match node:
        case Calc():
            kept = [node.projections[i] for i in own]
            return _columns([*kept, *([node.condition] if node.condition is not None else [])])
        case Union() | SideOutput() if not _has_own_columns(node):
            return set(own)
        case SideOutput():
            return (
                set()
            )  # what they are made of is needed anyway: windows with late rows and functions keep all columns
        case Split():
            return own | _columns(e for _, e in node.branches)
        case WindowAggregate():
            return _window_columns(node, own)
        case _:
            used = used_columns(node, child, own)
            return set(range(len(child.schema))) if used is None else used


def _has_own_columns(node: PlanNode) -> bool:
    """Whether a side output's columns are not those of the main output: of a window's late rows, of a process function's rows."""
    return isinstance(node, SideOutput) and isinstance(node.input, WindowAggregate | Process)


def _window_columns(node: WindowAggregate, own: set[int]) -> set[int]:
    if node.late_tag is not None:
        return set(range(len(node.input.schema)))  # late rows leave as they came
    calls = [node.aggregates[i] for i in _kept_calls(node, own)]
    expressions = [a for call in calls for a in call.arguments]
    expressions += [call.filter for call in calls if call.filter is not None]
    if node.trigger is not None and node.trigger.delta is not None:
        expressions.append(node.trigger.delta)
    return set(node.keys) | _columns(expressions)


def _columns(expressions: Iterable[Expression]) -> set[int]:
    return {i for e in expressions for i in columns_used(e)}


def _prune(node: PlanNode, own: set[int], done: Mapping[int, Pruned]) -> Pruned:
    kept = sorted(own)
    positions = {old: new for new, old in enumerate(kept)}
    match node:
        case Scan():
            return Pruned(_prune_scan(node, kept), positions)
        case Calc():
            child = done[id(node.input)]
            return Pruned(
                replace(
                    node,
                    schema=_kept(node.schema, kept),
                    input=child.node,
                    projections=tuple(remap_columns(node.projections[i], child.positions) for i in kept),
                    condition=_remapped(node.condition, child.positions),
                ),
                positions,
            )
        case Union():
            return _prune_union(node, kept, positions, done)
        case Split():
            child = done[id(node.input)]
            branches = tuple((name, remap_columns(e, child.positions)) for name, e in node.branches)
            return Pruned(replace(node, schema=child.node.schema, input=child.node, branches=branches), child.positions)
        case SideOutput():
            return _prune_side(node, done)
        case WindowAggregate():
            return _prune_window(node, own, done[id(node.input)])
        case _:
            relational = pruned(node, own, done)
            if relational is not None:
                return relational
            # uses every column that it is given, so none of them went
            return Pruned(with_inputs(node, tuple(done[id(i)].node for i in node.inputs)), _identity(node))


def _prune_scan(scan: Scan, kept: list[int]) -> Scan:
    projections = [scan.projections[i] for i in kept]
    used = _columns(projections)
    if scan.watermark is not None:
        used |= _columns([scan.watermark.time])
        used |= _columns([scan.watermark.punctuation]) if scan.watermark.punctuation is not None else set()
    physical = sorted(used) or [_cheapest(scan.physical)]
    positions = {old: new for new, old in enumerate(physical)}
    mark = scan.watermark
    if mark is not None:
        mark = replace(
            mark,
            time=remap_columns(mark.time, positions),
            punctuation=_remapped(mark.punctuation, positions),
            column=mark.column if mark.column in {scan.schema.names[i] for i in kept} else None,
        )
    return replace(
        scan,
        schema=_kept(scan.schema, kept),
        physical=_kept(scan.physical, physical),
        projections=tuple(remap_columns(p, positions) for p in projections),
        watermark=mark,
        declared=scan.declared or scan.physical,
    )


def _prune_union(union: Union, kept: list[int], positions: dict[int, int], done: Mapping[int, Pruned]) -> Pruned:
    """Members may have kept more (others read them too) or other positions: each is brought to the union's columns."""
    schema = _kept(union.schema, kept)
    members: list[PlanNode] = []
    for member in union.members:
        child = done[id(member)]
        wanted = [child.positions[i] for i in kept]
        if wanted == list(range(len(child.node.schema))):
            members.append(child.node)
            continue
        fields = child.node.schema.fields
        columns = tuple(ColumnRef(fields[w].type, w, fields[w].name) for w in wanted)
        members.append(
            Calc(schema=schema, hints=replace(union.hints, uid=None, place=None), input=child.node, projections=columns)
        )
    return Pruned(replace(union, schema=schema, members=tuple(members)), positions)


def _prune_side(node: SideOutput, done: Mapping[int, Pruned]) -> Pruned:
    child = done[id(node.input)]
    if isinstance(child.node, WindowAggregate):
        return Pruned(replace(node, schema=child.node.input.schema, input=child.node), _identity(node))
    if isinstance(child.node, Process):
        return Pruned(replace(node, input=child.node), _identity(node))
    return Pruned(replace(node, schema=child.node.schema, input=child.node), child.positions)


def _kept_calls(node: WindowAggregate, own: set[int]) -> list[int]:
    """Numbers of the aggregates that somebody uses; all of a window whose content is more than its aggregates."""
    first = len(node.schema) - len(node.aggregates)
    plain = node.trigger is None and node.evictor is None
    kept = [i for i in range(len(node.aggregates)) if not plain or first + i in own]
    return kept if kept or first else [0]


def _prune_window(node: WindowAggregate, own: set[int], child: Pruned) -> Pruned:
    trigger = node.trigger
    if trigger is not None:
        trigger = replace(trigger, delta=_remapped(trigger.delta, child.positions))
    first = len(node.schema) - len(node.aggregates)
    calls = _kept_calls(node, own)
    columns = [*range(first), *(first + i for i in calls)]
    pruned = replace(
        node,
        schema=_kept(node.schema, columns),
        input=child.node,
        keys=tuple(child.positions[k] for k in node.keys),
        aggregates=tuple(remapped_call(node.aggregates[i], child.positions) for i in calls),
        trigger=trigger,
    )
    return Pruned(pruned, {old: new for new, old in enumerate(columns)})


def _remapped(expression: Expression | None, positions: dict[int, int]) -> Expression | None:
    return None if expression is None else remap_columns(expression, positions)


def _kept(schema: Schema, positions: list[int]) -> Schema:
    return Schema(tuple(schema.fields[i] for i in positions))


def _identity(node: PlanNode) -> dict[int, int]:
    return {i: i for i in range(len(node.schema))}
