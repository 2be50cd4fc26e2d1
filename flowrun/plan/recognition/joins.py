"""Joins by what their condition says: of equal windows, of times that lie close together, or of anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import JoinKind, TimeDomain
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import ColumnRef, Expression, columns_used, remap_columns
from flowrun.plan.joins import IntervalJoin, Join, WindowJoin
from flowrun.plan.nodes import PlanNode
from flowrun.plan.recognition.context import Context
from flowrun.plan.recognition.intervals import TimeBounds, time_bounds
from flowrun.plan.recognition.keys import KeyPair, split_keys
from flowrun.plan.recognition.nodes_made import Extension, auxiliary, renamed, unique_name
from flowrun.plan.traits import Role, WindowIdentity

_OUTER = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)


def recognise_join(node: Join, context: Context) -> PlanNode:
    """The join as a window join, an interval join, or a regular one with keys."""
    if node.left_keys:  # its keys are known, so it is regular on purpose
        return node
    parts = conjuncts(node.condition)
    pairs, rest = split_keys(parts, len(node.left.schema))
    appends = context.appends(node.left) and context.appends(node.right)
    if appends:
        windows = _equal_windows(pairs, node, context)
        if windows is not None:
            return _window_join(node, pairs, rest, windows)
        if node.kind in _OUTER:
            for domain in TimeDomain:
                bounds = _bounds(node, parts, domain, context)
                if bounds is not None:
                    return _interval_join(node, pairs, bounds, domain)
    return _with_keys(node, pairs, rest)


# -- both sides with columns for keys -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sides:
    """The inputs of a join with expressions as columns behind theirs."""

    left: Extension
    right: Extension

    @classmethod
    def of(cls, node: PlanNode, left: PlanNode, right: PlanNode) -> Sides:
        """Nothing is added yet."""
        return cls(
            Extension.of(left, auxiliary(node.hints, "left")), Extension.of(right, auxiliary(node.hints, "right"))
        )

    def keys(self, pairs: Sequence[KeyPair]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Positions of the keys on both sides."""
        return (
            tuple(self.left.position(p.left) for p in pairs),
            tuple(self.right.position(p.right) for p in pairs),
        )

    def condition(self, parts: Sequence[Expression]) -> Expression | None:
        """Conditions over the inputs as they were, over the extended ones."""
        condition = conjunction(parts)
        width, more = len(self.left.node.schema), len(self.left.added)
        if condition is None or not more:
            return condition
        return remap_columns(condition, {i: i if i < width else i + more for i in columns_used(condition)})

    def schema(self, kind: JoinKind, schema: Schema) -> Schema:
        """Output columns of a join of the extended inputs; `schema` is that of the join of the inputs as they were."""
        if not (self.left.added or self.right.added):
            return schema
        left = len(self.left.node.schema)
        added = (
            self.left.build().schema.fields[left:],
            self.right.build().schema.fields[len(self.right.node.schema) :],
        )
        fields = [*schema.fields[:left], *added[0]]
        if not kind.left_only:
            fields += [*schema.fields[left:], *added[1]]
        unique: list[Field] = []
        for field in fields:
            unique.append(replace(field, name=unique_name(field.name, (f.name for f in unique))))
        return Schema(tuple(unique))

    def restored(self, joined: PlanNode, schema: Schema) -> PlanNode:
        """The columns of the join as they would be without the added ones."""
        left, more = len(self.left.node.schema), len(self.left.added)
        positions = [i if i < left else i + more for i in range(len(schema))]
        return renamed(joined, schema, positions, auxiliary(joined.hints, "columns"))


def regular_join(node: Join) -> PlanNode:
    """A join that is written by its condition alone as a regular one with keys, whatever else it could be."""
    return _with_keys(node, *split_keys(conjuncts(node.condition), len(node.left.schema)))


# -- the kinds ----------------------------------------------------------------------------------------------------------------


def _with_keys(node: Join, pairs: Sequence[KeyPair], rest: Sequence[Expression]) -> PlanNode:
    sides = Sides.of(node, node.left, node.right)
    left_keys, right_keys = sides.keys(pairs)
    null_safe = tuple(p.null_safe for p in pairs)
    joined = replace(
        node,
        schema=sides.schema(node.kind, node.schema),
        left=sides.left.build(),
        right=sides.right.build(),
        left_keys=left_keys,
        right_keys=right_keys,
        null_safe=null_safe if any(null_safe) else (),
        condition=sides.condition(rest),
    )
    return sides.restored(joined, node.schema)


@record
class _EqualWindows:
    """The pairs that say that start and end of a window are equal."""

    window: WindowIdentity
    start: KeyPair
    end: KeyPair


def _equal_windows(pairs: Sequence[KeyPair], node: Join, context: Context) -> _EqualWindows | None:
    left, right = context.traits(node.left), context.traits(node.right)
    found: dict[Role, KeyPair] = {}
    for pair in pairs:
        if not isinstance(pair.left, ColumnRef) or not isinstance(pair.right, ColumnRef):
            continue
        first, second = left.columns[pair.left.index], right.columns[pair.right.index]
        if first is None or second is None or first.window is None:
            continue
        if first.role is second.role and first.window == second.window:
            found.setdefault(first.role, pair)
    if Role.WINDOW_START not in found or Role.WINDOW_END not in found or left.window is None:
        return None
    return _EqualWindows(left.window, found[Role.WINDOW_START], found[Role.WINDOW_END])


def _window_join(node: Join, pairs: Sequence[KeyPair], rest: Sequence[Expression], windows: _EqualWindows) -> PlanNode:
    bounds = (windows.start, windows.end)
    # a window join's keys never match NULL: what NULL equals stays a condition
    keys = [p for p in pairs if p not in bounds and not p.null_safe]
    conditions = [*rest, *(p.condition for p in pairs if p.null_safe and p not in bounds)]
    sides = Sides.of(node, node.left, node.right)
    left_keys, right_keys = sides.keys(keys or [windows.end])  # without other keys, windows are spread over subtasks
    left_bounds, right_bounds = sides.keys(bounds)
    joined = WindowJoin(
        sides.schema(node.kind, node.schema),
        node.hints,
        sides.left.build(),
        sides.right.build(),
        node.kind,
        left_keys,
        right_keys,
        (left_bounds[0], left_bounds[1]),
        (right_bounds[0], right_bounds[1]),
        sides.condition(conditions),
        windows.window.domain,
        windows.window.zone,
    )
    return sides.restored(joined, node.schema)


def _bounds(node: Join, parts: Sequence[Expression], domain: TimeDomain, context: Context) -> TimeBounds | None:
    columns = (*context.traits(node.left).columns, *context.traits(node.right).columns)
    attributes = [c is not None and c.attribute is domain for c in columns]
    return time_bounds(parts, len(node.left.schema), attributes)


def _interval_join(node: Join, pairs: Sequence[KeyPair], bounds: TimeBounds, domain: TimeDomain) -> PlanNode:
    # times that must be equal are a key, too: rows then spread over subtasks without any other key
    keys = [p for p in pairs if not p.null_safe]
    used = {p.condition for p in keys}
    conditions = [c for c in bounds.rest if c not in used]
    sides = Sides.of(node, node.left, node.right)
    left_keys, right_keys = sides.keys(keys)
    joined = IntervalJoin(
        sides.schema(node.kind, node.schema),
        node.hints,
        sides.left.build(),
        sides.right.build(),
        node.kind,
        left_keys,
        right_keys,
        bounds.left,
        bounds.right,
        bounds.lower_ms,
        bounds.upper_ms,
        domain,
        sides.condition(conditions),
    )
    return sides.restored(joined, node.schema)
