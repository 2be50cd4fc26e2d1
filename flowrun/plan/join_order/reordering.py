"""The rule that puts chains of inner joins in the order that the sizes of their tables make cheap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from flowrun.api.changelog import ChangelogMode
from flowrun.errors import OptionError
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.fallibility import is_deterministic, may_fail
from flowrun.plan.join_order.estimates import (
    Equality,
    KeyedTable,
    Size,
    distinct_values,
    joined_share,
    selectivity,
    sizes_of,
)
from flowrun.plan.join_order.search import JoinCosts, cheapest
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Scan
from flowrun.plan.recognition.join_groups import JoinGroup, JoinGroups, Link, Rebuilding, has_hints, link_of
from flowrun.plan.recognition.joins import regular_join
from flowrun.plan.recognition.keys import equality
from flowrun.plan.unique_keys import unique_keys

_CLEARLY = 2.0
"""An order is taken if it costs so many times less than the one that is written."""


def order_by_sizes(table_rows: Mapping[str, int]) -> Callable[[Plan], Plan]:
    """The rule for tables with so many rows, by name; without any it changes nothing.

    Three or more inner joins in a row (of keys and conditions that cannot fail and are the same each time, over tables that do not change,
    all of known size) are put in another order if that is estimated to cost at most half. Columns, their names and order stay. Joins and
    steps with hints of the user's own stay.
    """

    def order_joins_by_sizes(plan: Plan) -> Plan:
        if not table_rows:
            return plan
        try:
            return _Ordering(plan, table_rows).ordered()
        except OptionError:  # a source cannot be made any more; what is wrong is said where the plan is checked
            return plan

    return order_joins_by_sizes


class _Ordering:
    """The rule on one plan."""

    def __init__(self, plan: Plan, table_rows: Mapping[str, int]) -> None:
        self._plan = plan
        self._groups = JoinGroups(plan, _may_move, _may_pass)
        self._sizes = sizes_of(plan, table_rows)
        self._modes = changelog_modes(plan)

    def ordered(self) -> Plan:
        """The plan after the rule; the very plan if nothing moves."""
        return self._groups.replaced(self._better)

    def _better(self, root: Join, group: JoinGroup, tables: Sequence[PlanNode]) -> PlanNode | None:
        if len(tables) < 3 or not all(self._stays_as_it_is(t) for t in group.tables):
            return None
        if any(may_fail(c) or not is_deterministic(c) for c in group.conditions):
            return None
        sizes = [self._sizes.get(id(t)) for t in group.tables]
        known = [s for s in sizes if s is not None]
        if len(known) < len(sizes):
            return None
        links = [link_of(c, group.owners, by_times=False) for c in group.conditions]
        costs = _costs(group, links, known)
        found = cheapest(costs)
        if found is None or found[1] * _CLEARLY > costs.cost([(_bits(a), _bits(b)) for a, b in group.written]):
            return None
        return Rebuilding(group, links, tables, _placed, regular_join).restored(found[0], root)

    def _stays_as_it_is(self, table: PlanNode) -> bool:
        """Whether no row of it is taken back. In a batch aggregates give their last rows only."""
        if not self._plan.settings.is_batch:
            return self._modes[id(table)] is ChangelogMode.APPEND
        return all(self._modes[id(s)] is ChangelogMode.APPEND for s in _scans(table))


def _may_move(join: Join) -> bool:
    return bool(join.left_keys) and not has_hints(join) and join.hints.on_error is None


def _may_pass(calc: Calc) -> bool:
    """Whether joins may move across a Calc: it only computes columns, which cannot fail, as a part of the query and not as it is told."""
    own = calc.hints
    told = own.uid or own.parallelism or own.slot_sharing_group or own.on_error or not own.chaining
    if told or calc.condition is not None or calc.required is not None:
        return False
    return all(is_deterministic(p) and not may_fail(p) for p in calc.projections)


def _scans(node: PlanNode) -> list[Scan]:
    found, stack = [], [node]
    while stack:
        top = stack.pop()
        stack.extend(top.inputs)
        if isinstance(top, Scan):
            found.append(top)
    return found


def _placed(written: NodeHints, left: frozenset[int], right: frozenset[int]) -> NodeHints:
    """Hints of a join that was put elsewhere: state of a join of other tables is not taken for its own."""
    if written.place is None:
        return written
    sides = ("+".join(map(str, sorted(side))) for side in (left, right))
    return replace(written, place=f"{written.place}:{'×'.join(sides)}")


# -- costs --------------------------------------------------------------------------------------------------------------------


def _costs(group: JoinGroup, links: Sequence[Link], sizes: Sequence[Size]) -> JoinCosts:
    tables: list[KeyedTable] = []
    first = 0
    for node, size in zip(group.tables, sizes, strict=True):
        tables.append(KeyedTable(size, unique_keys(node), first))
        first += len(node.schema)
    owners = group.owners
    pairs: dict[tuple[int, int], list[Equality]] = defaultdict(list)
    shares: list[tuple[int, float]] = []
    keys: list[tuple[int, int]] = []
    for link in links:
        if link.sides is None:
            shares.append((_bits(link.tables), selectivity(link.condition, 1.0)))
            continue
        one, other = link.sides
        keys.append((_bits(one), _bits(other)))
        if len(one) > 1 or len(other) > 1:
            shares.append((_bits(link.tables), selectivity(link.condition, 1.0)))
            continue
        (a,), (b,) = one, other
        left, right = _columns(link.condition)
        pairs[min(a, b), max(a, b)].append(Equality(left, right) if a < b else Equality(right, left))
    equal = [(e.left, e.right) for found in pairs.values() for e in found if e.left is not None and e.right is not None]
    bases = {column: tables[owner].size.base for column, owner in enumerate(owners)}
    distinct = distinct_values(equal, bases)
    for (a, b), found in pairs.items():
        shares.append((1 << a | 1 << b, joined_share(tables[a], tables[b], found, distinct)))
    return JoinCosts([s.rows for s in sizes], shares, keys)


def _columns(condition: Expression) -> tuple[int | None, int | None]:
    """The columns that an equality compares; None for what is computed."""
    found = equality(condition)
    assert found is not None
    left, right = (side.index if isinstance(side, ColumnRef) else None for side in found[:2])
    return left, right


def _bits(tables: frozenset[int]) -> int:
    return sum(1 << t for t in tables)
