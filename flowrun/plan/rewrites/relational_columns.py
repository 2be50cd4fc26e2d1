"""Which columns of their inputs relational nodes use, and the same nodes over inputs with fewer columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.plan.changelog_nodes import ChangelogNormalize
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression, columns_used, remap_columns, transform, walk
from flowrun.plan.matching import MatchRecognize, PatternAggregate, PatternColumn
from flowrun.plan.nodes import Calc, NodeHints, PlanNode
from flowrun.plan.relational import (
    AssignTime,
    Deduplicate,
    Expand,
    GroupAggregate,
    IntervalJoin,
    Join,
    LookupJoin,
    OverAggregate,
    Rank,
    SortKey,
    TemporalJoin,
    TemporalSort,
    Unnest,
    WindowJoin,
    WindowRank,
    WindowTableFunction,
)

Positions = dict[int, int]
_JOINS = (Join, WindowJoin, IntervalJoin, TemporalJoin)
_PASSING = (
    AssignTime,
    Rank,
    Deduplicate,
    WindowRank,
    TemporalSort,
    OverAggregate,
    WindowTableFunction,
    Unnest,
    LookupJoin,
    ChangelogNormalize,
)
"""Nodes whose output begins with all columns of their input."""


@record
class Pruned:
    """A rebuilt node, and where each kept column of the old one is now."""

    node: PlanNode
    positions: Positions


def used_columns(node: PlanNode, child: PlanNode, own: set[int]) -> set[int] | None:
    """Columns of the input `child` that a relational node uses to produce its columns `own`; None: it is of another kind."""
    if isinstance(node, _JOINS):
        return _used_by_join(node, child, own)
    if isinstance(node, Expand):
        return {c for projection in node.projections for i in own for c in columns_used(projection[i])}
    if isinstance(node, GroupAggregate):
        calls = [c for i, c in enumerate(node.aggregates) if i + len(node.keys) in own]
        return set(node.keys) | _columns_of_calls(calls)
    if isinstance(node, MatchRecognize):
        return _used_by_match(node)
    if isinstance(node, _PASSING):
        width = len(node.input.schema)
        return {i for i in own if i < width} | _used_by_passing(node, own)
    return None


def pruned(node: PlanNode, own: set[int], children: Mapping[int, Pruned]) -> Pruned | None:
    """The node over its rewritten inputs with the columns `own` at least; None: it is of another kind."""
    if isinstance(node, _JOINS):
        return _pruned_join(node, own, children)
    if isinstance(node, Expand):
        return _pruned_expand(node, own, children[id(node.input)])
    if isinstance(node, GroupAggregate):
        return _pruned_aggregate(node, own, children[id(node.input)])
    if isinstance(node, MatchRecognize):
        return _pruned_match(node, children[id(node.input)])
    if isinstance(node, _PASSING):
        return _pruned_passing(node, own, children[id(node.input)])
    return None


def narrowed(child: Pruned, wanted: Iterable[int], hints: NodeHints) -> Pruned:
    """The input with the wanted columns of the old one only: by a Calc if others read more of it."""
    kept = sorted(set(wanted)) or [min(child.positions)]
    if len(kept) == len(child.node.schema):
        return child
    fields = [child.node.schema.fields[child.positions[i]] for i in kept]
    columns = tuple(ColumnRef(f.type, child.positions[i], f.name) for i, f in zip(kept, fields, strict=True))
    calc_hints = NodeHints(
        name=f"{hints.name}.input" if hints.name else None,
        parallelism=child.node.hints.parallelism,
        slot_sharing_group=hints.slot_sharing_group,
        location=hints.location,
    )
    calc = Calc(schema=Schema(tuple(fields)), hints=calc_hints, input=child.node, projections=columns)
    return Pruned(calc, {old: new for new, old in enumerate(kept)})


# -- joins ---------------------------------------------------------------------------------------------------------------------


def _used_by_join(node: PlanNode, child: PlanNode, own: set[int]) -> set[int]:
    assert isinstance(node, _JOINS)
    width = len(node.left.schema)
    both = own | (columns_used(node.condition) if node.condition is not None else frozenset())
    used: set[int] = set()
    if child is node.left:
        used |= {i for i in both if i < width} | set(node.left_keys) | _times(node, left=True)
    if child is node.right:
        used |= {i - width for i in both if i >= width} | set(node.right_keys) | _times(node, left=False)
    return used


def _times(node: PlanNode, *, left: bool) -> set[int]:
    match node:
        case WindowJoin():
            return set(node.left_window if left else node.right_window)
        case IntervalJoin() | TemporalJoin():
            time = node.left_time if left else node.right_time
            return set() if time is None else {time}
        case _:
            return set()


def _pruned_join(node: PlanNode, own: set[int], children: Mapping[int, Pruned]) -> Pruned:
    assert isinstance(node, _JOINS)
    left = narrowed(children[id(node.left)], _used_by_join(node, node.left, own), node.hints)
    right = narrowed(children[id(node.right)], _used_by_join(node, node.right, own), node.hints)
    width, new_width = len(node.left.schema), len(left.node.schema)
    positions = dict(left.positions)
    condition_positions = {**positions, **{width + i: new_width + p for i, p in right.positions.items()}}
    if not node.kind.left_only:
        positions = condition_positions
    names = {new: node.schema.fields[old] for old, new in positions.items()}
    schema = Schema(tuple(names[i] for i in range(len(names))))
    changes: dict[str, object] = {
        "schema": schema,
        "left": left.node,
        "right": right.node,
        "left_keys": tuple(left.positions[k] for k in node.left_keys),
        "right_keys": tuple(right.positions[k] for k in node.right_keys),
        "condition": None if node.condition is None else remap_columns(node.condition, condition_positions),
    }
    match node:
        case WindowJoin():
            changes["left_window"] = tuple(left.positions[i] for i in node.left_window)
            changes["right_window"] = tuple(right.positions[i] for i in node.right_window)
        case IntervalJoin() | TemporalJoin():
            changes["left_time"] = left.positions[node.left_time]
            changes["right_time"] = None if node.right_time is None else right.positions[node.right_time]
    return Pruned(replace(node, **changes), positions)  # type: ignore[arg-type]


# -- nodes that pass their input's columns on ----------------------------------------------------------------------------------


def _order_columns(order: Iterable[SortKey]) -> set[int]:
    return {k.column for k in order}


def _used_by_passing(node: PlanNode, own: set[int]) -> set[int]:
    match node:
        case AssignTime():
            return {node.column}
        case Rank():
            return set(node.partition) | _order_columns(node.order)
        case WindowRank():
            return set(node.partition) | _order_columns(node.order) | set(node.window)
        case Deduplicate():
            return {*node.keys, node.time}
        case ChangelogNormalize():
            return set(node.keys)
        case TemporalSort():
            return _order_columns(node.order)
        case WindowTableFunction():
            return {*node.keys, node.time}
        case Unnest():
            return {node.collection}
        case OverAggregate():
            calls = [node.calls[i] for i in _kept_calls(node, own)]
            return set(node.keys) | _order_columns(node.order) | _columns_of_calls(calls)
        case LookupJoin():
            width = len(node.input.schema)
            used = {c for e, _ in node.keys for c in columns_used(e)}
            return used | {c for c in (columns_used(node.condition) if node.condition is not None else ()) if c < width}
        case _:
            return set()


def _kept_calls(node: OverAggregate, own: set[int]) -> list[int]:
    """Positions of the calls that are used: the first one if none is, as there must be one."""
    width = len(node.input.schema)
    return [i for i in range(len(node.calls)) if i + width in own] or [0]


def _pruned_passing(node: PlanNode, own: set[int], child: Pruned) -> Pruned:
    assert isinstance(node, _PASSING)
    width = len(node.input.schema)
    if isinstance(node, Rank | Deduplicate | WindowRank | TemporalSort | OverAggregate | ChangelogNormalize):
        child = narrowed(child, {i for i in own if i < width} | _used_by_passing(node, own), node.hints)
    moved, new_width = child.positions, len(child.node.schema)
    kept_calls_list = list(range(len(node.schema) - width))
    if isinstance(node, OverAggregate):
        kept_calls_list = _kept_calls(node, own)
    elif isinstance(node, LookupJoin):
        asked = own | (columns_used(node.condition) if node.condition is not None else frozenset())
        kept_calls_list = [i for i in kept_calls_list if i + width in asked]
    positions = {**moved, **{width + old: new_width + new for new, old in enumerate(kept_calls_list)}}
    old_of = {new: old for old, new in positions.items()}
    schema = Schema(tuple(node.schema.fields[old_of[i]] for i in range(len(positions))))
    common = {"schema": schema, "input": child.node}
    return Pruned(_remapped(node, common, moved, positions, kept_calls_list), positions)


def _remapped(
    node: PlanNode, common: Mapping[str, object], moved: Positions, positions: Positions, calls: list[int]
) -> PlanNode:
    changes: dict[str, object] = dict(common)
    match node:
        case AssignTime():
            changes["column"] = moved[node.column]
        case Rank():
            changes |= {"partition": _all(node.partition, moved), "order": _moved_order(node.order, moved)}
        case WindowRank():
            changes |= {"partition": _all(node.partition, moved), "order": _moved_order(node.order, moved)}
            changes["window"] = _all(node.window, moved)
        case Deduplicate() | WindowTableFunction():
            changes |= {"keys": _all(node.keys, moved), "time": moved[node.time]}
        case ChangelogNormalize():
            changes["keys"] = _all(node.keys, moved)
        case TemporalSort():
            changes["order"] = _moved_order(node.order, moved)
        case Unnest():
            changes["collection"] = moved[node.collection]
        case OverAggregate():
            changes |= {"keys": _all(node.keys, moved), "order": _moved_order(node.order, moved)}
            changes["calls"] = tuple(remapped_call(node.calls[i], moved) for i in calls)
        case LookupJoin():
            changes["keys"] = tuple((remap_columns(e, moved), c) for e, c in node.keys)
            changes["condition"] = None if node.condition is None else remap_columns(node.condition, positions)
            changes |= _pruned_lookup(node, calls)
    return replace(node, **changes)  # type: ignore[arg-type]


def _pruned_lookup(node: LookupJoin, kept: list[int]) -> dict[str, object]:
    """The outside table with fewer columns; one at least, as rows without columns cannot be counted."""
    projections = [node.projections[i] for i in kept]
    physical = sorted({c for p in projections for c in columns_used(p)}) or [0]
    places = {old: new for new, old in enumerate(physical)}
    return {
        "projections": tuple(remap_columns(p, places) for p in projections),
        "physical": Schema(tuple(node.physical.fields[c] for c in physical)),
        "declared": node.declared or node.physical,
    }


def _all(columns: tuple[int, ...], moved: Positions) -> tuple[int, ...]:
    return tuple(moved[c] for c in columns)


def _moved_order(order: tuple[SortKey, ...], moved: Positions) -> tuple[SortKey, ...]:
    return tuple(replace(k, column=moved[k.column]) for k in order)


# -- aggregates, grouping sets, patterns ---------------------------------------------------------------------------------------


def _columns_of_calls(calls: Iterable[AggregateCall]) -> set[int]:
    expressions: list[Expression] = []
    for call in calls:
        expressions += [*call.arguments, *(() if call.filter is None else (call.filter,))]
    return {i for e in expressions for i in columns_used(e)}


def remapped_call(call: AggregateCall, moved: Positions) -> AggregateCall:
    """The call over moved columns."""
    return replace(
        call,
        arguments=tuple(remap_columns(a, moved) for a in call.arguments),
        filter=None if call.filter is None else remap_columns(call.filter, moved),
    )


def _pruned_aggregate(node: GroupAggregate, own: set[int], child: Pruned) -> Pruned:
    width = len(node.keys)
    kept = [i for i in range(len(node.aggregates)) if i + width in own]
    if not kept and not node.keys and node.aggregates:
        kept = [0]  # rows without columns cannot be counted
    positions = {**{i: i for i in range(width)}, **{width + old: width + new for new, old in enumerate(kept)}}
    fields = [*node.schema.fields[:width], *(node.schema.fields[width + i] for i in kept)]
    calls = tuple(remapped_call(node.aggregates[i], child.positions) for i in kept)
    rebuilt = replace(
        node, schema=Schema(tuple(fields)), input=child.node, keys=_all(node.keys, child.positions), aggregates=calls
    )
    return Pruned(rebuilt, positions)


def _pruned_expand(node: Expand, own: set[int], child: Pruned) -> Pruned:
    kept = sorted(own)
    projections = tuple(tuple(remap_columns(p[i], child.positions) for i in kept) for p in node.projections)
    schema = Schema(tuple(node.schema.fields[i] for i in kept))
    return Pruned(
        replace(node, schema=schema, input=child.node, projections=projections),
        {old: new for new, old in enumerate(kept)},
    )


def _used_by_match(node: MatchRecognize) -> set[int]:
    used = set(node.partition) | _order_columns(node.order)
    for expression in (*node.measures, *(e for _, e in node.defines)):
        for part in walk(expression):
            if isinstance(part, PatternColumn):
                used.add(part.index)
            elif isinstance(part, PatternAggregate):
                used |= _columns_of_calls([part.call])
    return used


def _pruned_match(node: MatchRecognize, child: Pruned) -> Pruned:
    child = narrowed(child, _used_by_match(node), node.hints)
    moved = child.positions

    def move(expression: Expression) -> Expression:
        if isinstance(expression, PatternColumn):
            return replace(expression, index=moved[expression.index])
        if isinstance(expression, PatternAggregate):
            return replace(expression, call=remapped_call(expression.call, moved))
        return expression

    rebuilt = replace(
        node,
        input=child.node,
        partition=_all(node.partition, moved),
        order=_moved_order(node.order, moved),
        measures=tuple(transform(m, move) for m in node.measures),
        defines=tuple((name, transform(e, move)) for name, e in node.defines),
    )
    return Pruned(rebuilt, {i: i for i in range(len(node.schema))})
