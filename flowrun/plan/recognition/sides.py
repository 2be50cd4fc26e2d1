"""Conditions over two inputs side by side: which input a part reads, and whether it is true of missing rows."""

from __future__ import annotations

from enum import Enum

from flowrun.plan import expressions as trees

_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">=", "LIKE", "IS NOT NULL", "IS TRUE", "IS FALSE"))
_STRICT = frozenset(("+", "-", "*", "NEGATE", "||", "UPPER", "LOWER", "ABS"))


class Side(Enum):
    """Which of the two inputs an expression reads."""

    NEITHER = 0
    LEFT = 1
    RIGHT = 2
    BOTH = 3


def side_of(expression: trees.Expression, left_width: int) -> Side:
    """The inputs whose columns occur: the first `left_width` are the left one's.

    >>> from flowrun.core.types import BOOLEAN
    >>> side_of(trees.ColumnRef(BOOLEAN, 2, "b"), 2)
    <Side.RIGHT: 2>
    """
    used = trees.columns_used(expression)
    left = any(i < left_width for i in used)
    right = any(i >= left_width for i in used)
    return Side(left + 2 * right)


def over_right(expression: trees.Expression, left_width: int) -> trees.Expression:
    """An expression of the right side over the right input's own columns."""
    return trees.remap_columns(expression, {i: i - left_width for i in trees.columns_used(expression)})


def is_true(condition: trees.Expression) -> bool:
    """Whether it is the constant TRUE."""
    return isinstance(condition, trees.Literal) and condition.value is True


def rejects_missing(condition: trees.Expression, left_width: int, side: Side) -> bool:
    """Whether the condition is never true of a row whose columns of `side` are all NULL, as far as that is easily seen."""
    match condition:
        case trees.Call(function=name, arguments=arguments) if name in _COMPARISONS:
            return any(_null_if_missing(a, left_width, side) for a in arguments)
        case trees.InList(operand=operand):
            return _null_if_missing(operand, left_width, side)
        case trees.ColumnRef():
            return _null_if_missing(condition, left_width, side)
        case trees.Or(operands=operands):
            return all(rejects_missing(o, left_width, side) for o in operands)
        case trees.And(operands=operands):
            return any(rejects_missing(o, left_width, side) for o in operands)
        case _:
            return False


def _null_if_missing(expression: trees.Expression, left_width: int, side: Side) -> bool:
    match expression:
        case trees.ColumnRef():
            return side_of(expression, left_width) is side
        case trees.Cast(operand=operand):
            return _null_if_missing(operand, left_width, side)
        case trees.Call(function=name, arguments=arguments) if name in _STRICT:
            return any(_null_if_missing(a, left_width, side) for a in arguments)
        case _:
            return False
