"""Conditions as conjunctions: their parts, and which of them may be tested elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from flowrun.plan.expressions import And, Expression, columns_used
from flowrun.plan.fallibility import is_deterministic, may_fail


def conjuncts(condition: Expression | None) -> tuple[Expression, ...]:
    """The operands of a conjunction, flat and in order; none for no condition.

    >>> from flowrun.core.types import BOOLEAN
    >>> from flowrun.plan.expressions import ColumnRef
    >>> a, b = (ColumnRef(BOOLEAN, i, n) for i, n in enumerate("ab"))
    >>> [str(c) for c in conjuncts(And((a, And((b, a)))))]
    ['a', 'b', 'a']
    """
    if condition is None:
        return ()
    if isinstance(condition, And):
        return tuple(c for operand in condition.operands for c in conjuncts(operand))
    return (condition,)


def conjunction(parts: Iterable[Expression]) -> Expression | None:
    """All conditions as one, flat, each guarding those behind it; None if there are none.

    >>> from flowrun.core.types import BOOLEAN
    >>> from flowrun.plan.expressions import ColumnRef
    >>> a, b = (ColumnRef(BOOLEAN, i, n) for i, n in enumerate("ab"))
    >>> conjunction([And((a, b)), b]) == And((a, b, b))
    True
    """
    flat = tuple(c for part in parts for c in conjuncts(part))
    if not flat:
        return None
    return flat[0] if len(flat) == 1 else And(flat)


def may_move(part: Expression) -> bool:
    """Whether a condition may be tested on more rows, or earlier: it reads columns, cannot fail and is the same each time."""
    return bool(columns_used(part)) and is_deterministic(part) and not may_fail(part)
