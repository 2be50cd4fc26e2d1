"""Conditions on a rank: which ranks `rn <= 3`, `rn = 1`, `2 <= rn` … let through."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from flowrun.core.record import record
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, InList, Literal
from flowrun.plan.folding import fold_constants

_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@record
class RankBounds:
    """Ranks from `first` to `last`; `rest` are the conditions that say something else."""

    first: int
    last: int
    rest: tuple[Expression, ...]


def rank_bounds(parts: Sequence[Expression], rank: int) -> RankBounds | None:
    """What the conditions say of column `rank`, a rank from 1; None if they do not bound it above.

    >>> from flowrun.core.types import BIGINT, BOOLEAN
    >>> at_most = Call(BOOLEAN, "<=", (ColumnRef(BIGINT, 2, "rn"), Literal(BIGINT, 3)))
    >>> rank_bounds([at_most], 2)
    RankBounds(first=1, last=3, rest=())
    """
    first, last, rest = 1, None, []
    for part in parts:
        bounds = _bounds(part, rank)
        if bounds is None:
            rest.append(part)
            continue
        low, high = bounds
        first = max(first, low or 1)
        last = high if last is None else min(last, high if high is not None else last)
        if isinstance(part, InList):
            rest.append(part)
    if last is None or last < first:  # nothing passes an empty range: an ordinary condition says so as well
        return None if last is None else RankBounds(1, max(last, 1), tuple(parts))
    return RankBounds(first, last, tuple(rest))


def _bounds(condition: Expression, rank: int) -> tuple[int | None, int | None] | None:
    """Lowest and highest rank that satisfy the condition; None if it says something else."""
    if isinstance(condition, InList) and not condition.negated and _is_rank(condition.operand, rank):
        known = [v for v in condition.values if isinstance(v, int)]
        return (min(known), max(known)) if known and len(known) == len(condition.values) else None
    if not isinstance(condition, Call) or condition.function not in _MIRRORED:
        return None
    left, right = condition.arguments
    symbol = condition.function
    if not _is_rank(left, rank):
        left, right, symbol = right, left, _MIRRORED[symbol]
    if not _is_rank(left, rank):
        return None
    limit = fold_constants(right)
    if not isinstance(limit, Literal) or not isinstance(limit.value, int | Decimal) or limit.value != int(limit.value):
        return None
    value = int(limit.value)
    return {
        "=": (value, value),
        "<": (None, value - 1),
        "<=": (None, value),
        ">": (value + 1, None),
        ">=": (value, None),
    }[symbol]


def _is_rank(expression: Expression, rank: int) -> bool:
    """Whether it is the rank, perhaps cast for the comparison to a type that holds every rank."""
    if (
        isinstance(expression, Cast)
        and not expression.safe
        and (expression.type.is_integer or expression.type.scale == 0)
    ):
        expression = expression.operand
    return isinstance(expression, ColumnRef) and expression.index == rank
