"""Unique keys: sets of columns of which no two current rows of a node share the values.

Sinks, joins and ranking keep less state by them, and a changelog with a unique key is a table of one row a key. The rules follow Apache
Flink's `FlinkRelMdUniqueKeys`. A node may have several; the empty key says that there is at most one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TypeAlias

from flowrun.core.semantics import JoinKind, OutputMode, RankFunction
from flowrun.core.types import DataType, TypeRoot
from flowrun.plan.changelog_nodes import ChangelogNormalize
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.description import Rows, node_description
from flowrun.plan.expressions import Cast, ColumnRef, Expression
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Calc, PlanNode, Scan, WindowAggregate
from flowrun.plan.relational import Deduplicate, GroupAggregate, Rank, WindowRank
from flowrun.plan.windows import CustomWindow

Keys: TypeAlias = frozenset[frozenset[int]]
"""Positions of the columns of each key."""

_NONE: Keys = frozenset()
_DIGITS = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INTEGER: 10, TypeRoot.BIGINT: 19}
"""Digits of the largest values."""
_DOUBLE_DIGITS = 15
_LIMIT = 16
"""No more keys than so many are kept: joins multiply them."""


def unique_keys(node: PlanNode, *, declared: bool = True, widened: bool = False) -> Keys:
    """The unique keys of a node's rows, none of which contains another; empty if none is known.

    Args:
        node: whose rows are meant.
        declared: the primary keys of tables count, which nobody enforces; else only what operators see to.
        widened: columns cast to a type that holds all their values count as themselves. Not by default: what operators a plan has
            follows from unique keys in other places, and with that whose state there is.
    """
    known: dict[int, Keys] = {}
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [i for i in top.inputs if id(i) not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if isinstance(top, Scan | LookupJoin) and not declared:
            known[id(top)] = _NONE
        else:
            known[id(top)] = node_unique_keys(top, [known[id(i)] for i in top.inputs], widened=widened)
    return known[id(node)]


def node_unique_keys(node: PlanNode, inputs: Sequence[Keys], *, widened: bool = False) -> Keys:
    """The unique keys of a node from those of its inputs; `widened` as of `unique_keys`."""
    match node:
        case Scan():
            names = node.table.primary_key
            known = names and all(n in node.schema for n in names)
            return _keys([frozenset(node.schema.index(n) for n in names)]) if known else _NONE
        case Calc():
            return _projected(node.projections, inputs[0], widened)
        case GroupAggregate():
            return _keys([frozenset(range(len(node.keys)))])
        case WindowAggregate():
            bounds = len(node.schema) - len(node.keys) - len(node.aggregates)
            if node.output_mode is OutputMode.COMPLETE:
                return _NONE
            if node.output_mode is not None:
                return _keys([frozenset(range(len(node.keys) + 2))])
            if bounds == 2 and node.trigger is None and not isinstance(node.window, CustomWindow):
                return _keys([frozenset((*range(len(node.keys)), len(node.keys) + 1))])
            return _NONE
        case Deduplicate():
            return _keys([frozenset(node.keys), *inputs[0]])
        case Rank() | WindowRank():
            return _ranked(node, inputs[0])
        case Join() | WindowJoin() | IntervalJoin() | TemporalJoin():
            return _joined(node, inputs[0], inputs[1])
        case ChangelogNormalize() | ResolveConflicts():
            return _keys([frozenset(node.keys), *inputs[0]])
        case LookupJoin():
            names = node.table.primary_key
            by_key = names and set(names) <= {column for _, column in node.keys}
            return inputs[0] if by_key else _NONE
        case _:
            return inputs[0] if node_description(type(node)).rows is Rows.EACH else _NONE


def _keys(found: Iterable[frozenset[int]]) -> Keys:
    """The keys that contain no other, the shortest first if there are too many."""
    kept: list[frozenset[int]] = []
    for key in sorted(set(found), key=lambda k: (len(k), sorted(k))):
        if not any(k <= key for k in kept):
            kept.append(key)
    return frozenset(kept[:_LIMIT])


def _projected(projections: Sequence[Expression], keys: Keys, widened: bool) -> Keys:
    """Keys all of whose columns are passed on, under each position that they have."""
    places: dict[int, list[int]] = {}
    for position, projection in enumerate(projections):
        value = projection
        while widened and isinstance(value, Cast) and _holds_all(value.type, value.operand.type):
            value = value.operand
        if isinstance(value, ColumnRef):
            places.setdefault(value.index, []).append(position)
    moved = []
    for key in keys:
        if all(c in places for c in key):
            moved += [frozenset(choice) for choice in product(*(places[c] for c in sorted(key)))]
    return _keys(moved)


def _holds_all(wide: DataType, given: DataType) -> bool:
    """Whether a cast gives different values of `wide` for different values of `given`, and fails for none.

    >>> from flowrun.core.types import BIGINT, DOUBLE, INT, STRING
    >>> _holds_all(BIGINT, INT), _holds_all(INT, BIGINT), _holds_all(STRING, BIGINT), _holds_all(STRING, DOUBLE)
    (True, False, True, False)
    """
    if wide == given:
        return True
    digits = _DIGITS.get(given.root)
    match wide.root:
        case TypeRoot.VARCHAR if given.is_character:
            return wide.length is None or (given.length is not None and given.length <= wide.length)
        case TypeRoot.VARCHAR:
            return wide.length is None and (digits is not None or given.root is TypeRoot.DATE)
        case TypeRoot.VARBINARY if given.root is TypeRoot.VARBINARY:
            return wide.length is None or (given.length is not None and given.length <= wide.length)
        case TypeRoot.DECIMAL:
            whole = (wide.precision or 0) - (wide.scale or 0)
            if given.root is TypeRoot.DECIMAL:
                scale = given.scale or 0
                return scale <= (wide.scale or 0) and (given.precision or 0) - scale <= whole
            return digits is not None and digits <= whole
        case TypeRoot.DOUBLE:
            return given.root is TypeRoot.FLOAT or (digits is not None and digits <= _DOUBLE_DIGITS)
        case TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return given.root is wide.root and (given.precision or 0) <= (wide.precision or 0)
    return digits is not None and digits <= _DIGITS.get(wide.root, 0)


def _ranked(node: Rank | WindowRank, input: Keys) -> Keys:
    partition = frozenset(node.partition)
    if isinstance(node, WindowRank):
        partition |= {node.window[1]}
    found = set(input)
    if node.function is RankFunction.ROW_NUMBER:
        if node.first == node.last:
            found.add(partition)
        elif node.rank_column:
            found.add(partition | {len(node.schema) - 1})
    return _keys(found)


def _joined(node: Join | WindowJoin | IntervalJoin | TemporalJoin, left: Keys, right: Keys) -> Keys:
    if node.kind.left_only:
        return left
    left_keys, right_keys = set(node.left_keys), set(node.right_keys)
    if isinstance(node, WindowJoin):
        left_keys |= set(node.left_window)
        right_keys |= set(node.right_window)
    width = len(node.left.schema)
    one_left = any(k <= left_keys for k in left)  # at most one left row matches a right row
    one_right = any(k <= right_keys for k in right) or isinstance(node, TemporalJoin)
    moved = frozenset(frozenset(c + width for c in k) for k in right)
    found = [a | b for a in left for b in moved]
    # a missing side is all NULL, and several rows may miss it: only the kept side's key still tells rows apart
    if one_right and not node.kind.keeps_right:
        found += left
    if one_left and not node.kind.keeps_left:
        found += moved
    if node.kind is JoinKind.FULL:
        return _NONE
    return _keys(found)
