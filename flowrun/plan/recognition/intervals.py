"""Conditions that bound two time attributes against each other: what makes a join an interval join."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import TypeRoot
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, Literal
from flowrun.plan.folding import fold_constants

_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@record
class TimeBounds:
    """left time + `lower_ms` ≤ right time ≤ left time + `upper_ms`.

    Attributes:
        left: position of the time attribute in the left input.
        right: position in the right input.
        rest: parts of the condition that say something else.
    """

    left: int
    right: int
    lower_ms: int
    upper_ms: int
    rest: tuple[Expression, ...]


@record
class _Bound:
    """right time − left time `symbol` `offset_ms`."""

    columns: tuple[int, int]
    symbol: str
    offset_ms: int


def time_bounds(parts: Sequence[Expression], left_width: int, attributes: Sequence[bool]) -> TimeBounds | None:
    """The bounds of the first pair of time attributes that the condition bounds on both sides; None if there is none.

    Args:
        parts: conjuncts over both inputs.
        left_width: number of columns of the left input.
        attributes: for each column of both inputs, whether it is a time attribute that counts here.
    """
    bounds = [_bound(p, left_width, attributes) for p in parts]
    for pair in dict.fromkeys(b.columns for b in bounds if b is not None):
        own = [b for b in bounds if b is not None and b.columns == pair]
        lowest = [b.offset_ms + (b.symbol == ">") for b in own if b.symbol in ("=", ">=", ">")]
        highest = [b.offset_ms - (b.symbol == "<") for b in own if b.symbol in ("=", "<=", "<")]
        if lowest and highest and max(lowest) <= min(highest):
            rest = tuple(p for p, b in zip(parts, bounds, strict=True) if b is None or b.columns != pair)
            return TimeBounds(pair[0], pair[1] - left_width, max(lowest), min(highest), rest)
    return None


def _bound(condition: Expression, left_width: int, attributes: Sequence[bool]) -> _Bound | None:
    if not isinstance(condition, Call) or condition.function not in _MIRRORED:
        return None
    first, second = (_moved_time(a, attributes) for a in condition.arguments)
    if first is None or second is None:
        return None
    symbol = condition.function
    if first[0] < left_width:
        first, second, symbol = second, first, _MIRRORED[symbol]
    if first[0] < left_width or second[0] >= left_width:
        return None
    return _Bound((second[0], first[0]), symbol, second[1] - first[1])


def _moved_time(expression: Expression, attributes: Sequence[bool]) -> tuple[int, int] | None:
    """(position, ms) of an expression that is a time attribute plus or minus constant intervals."""
    match expression:
        case ColumnRef(index=index, type=type):
            # finer times would need finer bounds than ms
            return (index, 0) if attributes[index] and (type.precision or 0) <= 3 else None
        case Cast(operand=operand, type=type, safe=False) if type.root is operand.type.root and (
            (type.precision or 0) >= (operand.type.precision or 0)
        ):
            return _moved_time(operand, attributes)
        case Call(function="+" | "-" as sign, arguments=(a, b)) if expression.type.is_timestamp:
            if sign == "+" and a.type.is_interval:
                a, b = b, a
            moved, ms = _moved_time(a, attributes), _milliseconds(b)
            if moved is None or ms is None:
                return None
            return moved[0], moved[1] + (ms if sign == "+" else -ms)
    return None


def _milliseconds(expression: Expression) -> int | None:
    value = fold_constants(expression)
    if isinstance(value, Literal) and value.type.root is TypeRoot.INTERVAL_DAY_TIME and value.value is not None:
        return int(value.value)
    return None
