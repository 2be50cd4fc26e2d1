"""How many rows nodes give, from the rows of the tables below them, with the selectivities of System R.

P. G. Selinger and others, "Access Path Selection in a Relational Database Management System", SIGMOD 1979. Distinct values are known of
unique keys alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowrun.core.record import record
from flowrun.core.semantics import JoinKind
from flowrun.plan.conditions import conjuncts
from flowrun.plan.expressions import And, Call, ColumnRef, Expression, InList, Or
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, Union, walk_plan
from flowrun.plan.relational import AssignTime, GroupAggregate, Values
from flowrun.plan.unique_keys import Keys, node_unique_keys

_EQUAL = 0.1
_RANGE = 1 / 3
_HALF = 0.5
_NULL = 0.1


@record
class Size:
    """Rows of a node; `base` are those before filters: how many values a unique key of it has in the tables that refer to it."""

    rows: float
    base: float


def sizes_of(plan: Plan, table_rows: Mapping[str, int]) -> dict[int, Size]:
    """The size of each node by `id`; nodes of which nothing is known are not in it."""
    sizes: dict[int, Size] = {}
    keys: dict[int, Keys] = {}
    for node in walk_plan(plan):
        keys[id(node)] = node_unique_keys(node, [keys[id(i)] for i in node.inputs])
        inputs = [sizes[id(i)] for i in node.inputs if id(i) in sizes]
        if len(inputs) == len(node.inputs):
            size = _size(node, inputs, [keys[id(i)] for i in node.inputs], table_rows)
            if size is not None:
                sizes[id(node)] = size
    return sizes


def _size(node: PlanNode, inputs: Sequence[Size], keys: Sequence[Keys], table_rows: Mapping[str, int]) -> Size | None:
    match node:
        case Scan():
            rows = table_rows.get(node.table.name)
            return None if rows is None else _unfiltered(rows)
        case Values():
            return _unfiltered(len(node.rows))
        case Calc():
            (size,) = inputs
            return Size(max(1.0, size.rows * selectivity(node.condition, size.base, keys[0])), size.base)
        case Union():
            return Size(sum(s.rows for s in inputs), sum(s.base for s in inputs))
        case AssignTime():
            return inputs[0]
        case GroupAggregate():
            (size,) = inputs
            return Size(max(1.0, size.rows * _EQUAL), max(1.0, size.base * _EQUAL)) if node.keys else _unfiltered(1)
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            return Size(max(1.0, inputs[0].rows * _HALF), inputs[0].base)
        case Join():
            left, right = (s.rows for s in inputs)
            return _unfiltered(max(left, right) if node.left_keys else left * right)
        case _:
            return None


def _unfiltered(rows: float) -> Size:
    rows = max(1.0, float(rows))
    return Size(rows, rows)


def selectivity(condition: Expression | None, base: float, keys: Keys = frozenset()) -> float:
    """The share of rows that satisfy a condition.

    Args:
        condition: None: none.
        base: rows of the table.
        keys: its unique keys.

    >>> from flowrun.core.types import BIGINT, BOOLEAN
    >>> from flowrun.plan.expressions import Literal
    >>> same = Call(BOOLEAN, "=", (ColumnRef(BIGINT, 0, "id"), Literal(BIGINT, 7)))
    >>> selectivity(same, 1000), selectivity(same, 1000, frozenset([frozenset([0])]))
    (0.1, 0.001)
    """
    share = 1.0
    for part in conjuncts(condition):
        share *= _share(part, base, keys)
    return share


def _share(part: Expression, base: float, keys: Keys) -> float:
    match part:
        case Or(operands=operands):
            missed = 1.0
            for operand in operands:
                missed *= 1 - _share(operand, base, keys)
            return 1 - missed
        case And():
            return selectivity(part, base, keys)
        case InList(operand=operand, values=values, negated=negated):
            share = min(_HALF, len(values) * _equal_share(operand, base, keys))
            return 1 - share if negated else share
        case Call(function="=" | "IS NOT DISTINCT FROM", arguments=(left, right)):
            return min(_equal_share(side, base, keys) for side in (left, right))
        case Call(function="<>"):
            return 1 - _EQUAL
        case Call(function="NOT", arguments=(operand,)):
            return 1 - _share(operand, base, keys)
        case Call(function="IS NULL"):
            return _NULL
        case Call(function="IS NOT NULL"):
            return 1 - _NULL
        case Call(function="LIKE" | "SIMILAR TO"):
            return _EQUAL
        case _:  # ranges, and what else there is
            return _RANGE


def _equal_share(operand: Expression, base: float, keys: Keys) -> float:
    by_key = isinstance(operand, ColumnRef) and frozenset((operand.index,)) in keys
    return 1 / base if by_key else _EQUAL


# -- joins --------------------------------------------------------------------------------------------------------------------


@record
class KeyedTable:
    """A table of a group of joins.

    Attributes:
        size: its rows.
        keys: its unique keys.
        first: where its columns begin among those of all tables side by side.
    """

    size: Size
    keys: Keys
    first: int


@record
class Equality:
    """What two tables of a group have in common: the columns of either side, None for what is computed."""

    left: int | None
    right: int | None


def joined_share(
    left: KeyedTable, right: KeyedTable, equalities: Sequence[Equality], distinct: Mapping[int, float]
) -> float:
    """The share of all pairs of rows of two tables that equalities leave.

    Each row finds at most one in a table whose unique key they give. Else the columns hold as many values as the smallest of the tables
    that are joined by them (`distinct`, by column); of several equalities the stronger counts whole, the next by its root, and so on, as
    what is compared is seldom independent.
    """
    one_left = _is_unique(left, [e.left for e in equalities])
    one_right = _is_unique(right, [e.right for e in equalities])
    if one_left or one_right:
        return 1 / max(t.size.base for t, one in ((left, one_left), (right, one_right)) if one)
    smaller = min(left.size.base, right.size.base)
    values = [
        min([smaller, *(distinct.get(c, smaller) for c in (e.left, e.right) if c is not None)]) for e in equalities
    ]
    product = 1.0
    for place, count in enumerate(sorted(values, reverse=True)):
        product *= count ** (0.5**place)
    return 1 / min(product, max(left.size.base, right.size.base))


def _is_unique(table: KeyedTable, columns: Sequence[int | None]) -> bool:
    given = {c - table.first for c in columns if c is not None}
    return any(key <= given for key in table.keys)


def distinct_values(equal: Sequence[tuple[int, int]], bases: Mapping[int, float]) -> dict[int, float]:
    """By column, the most values that matter: the rows of the smallest table in whose columns equalities say that they occur, too.

    Args:
        equal: pairs of columns that are equal in every result.
        bases: by column, the rows of its table before filters.

    >>> distinct_values([(0, 4), (4, 9)], {0: 1000.0, 4: 25.0, 9: 300.0})
    {0: 25.0, 4: 25.0, 9: 25.0}
    """
    classes: dict[int, set[int]] = {}
    for a, b in equal:
        merged = classes.get(a, {a}) | classes.get(b, {b})
        classes.update(dict.fromkeys(merged, merged))
    return {c: min(bases[m] for m in classes[c]) for c in sorted(classes)}
