"""Equalities of a join's condition as keys: the columns by which both sides are shuffled and looked up."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType
from flowrun.functions.coercion import common_type
from flowrun.plan.expressions import And, Call, Cast, Expression, Or
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.recognition.sides import Side, over_right, side_of

_EQUAL = "="
_NULL_SAFE = "IS NOT DISTINCT FROM"


@record
class KeyPair:
    """An equality of something on the left and something on the right, each over its own input.

    Attributes:
        null_safe: NULL equals NULL.
        condition: the equality as it was, over both inputs.
    """

    left: Expression
    right: Expression
    null_safe: bool
    condition: Expression


def split_keys(parts: Sequence[Expression], left_width: int) -> tuple[list[KeyPair], list[Expression]]:
    """The parts of a condition that are equalities between the sides, and the others."""
    pairs: list[KeyPair] = []
    rest = []
    for part in parts:
        pair = _key_pair(part, left_width)
        if pair is None:
            rest.append(part)
        elif all((p.left, p.right) != (pair.left, pair.right) for p in pairs):
            pairs.append(pair)
    return pairs, rest


def _key_pair(condition: Expression, left_width: int) -> KeyPair | None:
    sides = equality(condition)
    if sides is None:
        return None
    left, right, null_safe = sides
    if side_of(left, left_width) is Side.RIGHT:
        left, right = right, left
    if (side_of(left, left_width), side_of(right, left_width)) != (Side.LEFT, Side.RIGHT):
        return None
    common = common_type((left.type, right.type))
    if common is None or common.is_nested or not (is_deterministic(left) and is_deterministic(right)):
        return None
    right = over_right(right, left_width)
    return KeyPair(_typed(left, common), _typed(right, common), null_safe, condition)


def _typed(expression: Expression, type: DataType) -> Expression:
    """The expression with the Arrow type of `type`: only that matters for being equal."""
    return expression if expression.type.arrow == type.arrow else Cast(type, expression)


def equality(condition: Expression) -> tuple[Expression, Expression, bool] | None:
    """The two sides of an equality, and whether NULLs are equal."""
    match condition:
        case Call(function=name, arguments=(left, right)) if name in (_EQUAL, _NULL_SAFE):
            return left, right, name == _NULL_SAFE
        case (
            Or(operands=(Call(function="=", arguments=(left, right)), And(operands=nulls)))
            | Or(operands=(And(operands=nulls), Call(function="=", arguments=(left, right))))
        ):
            return (left, right, True) if _both_null(nulls, left, right) else None
    return None


def _both_null(tests: Sequence[Expression], left: Expression, right: Expression) -> bool:
    """Whether the tests are `left IS NULL AND right IS NULL`; casts for the comparison do not matter."""
    tested = {_uncast(t.arguments[0]) for t in tests if isinstance(t, Call) and t.function == "IS NULL"}
    return len(tests) == 2 and tested == {_uncast(left), _uncast(right)}


def _uncast(expression: Expression) -> Expression:
    while isinstance(expression, Cast) and not expression.safe:
        expression = expression.operand
    return expression
