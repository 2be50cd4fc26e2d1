"""Which expressions may fail on some row, and which always give the same value: what guards and constant folding go by."""

from __future__ import annotations

from flowrun.core.types import TypeRoot
from flowrun.functions.casts.casts import is_fallible as cast_is_fallible
from flowrun.functions.coercion import MIN_DECIMAL_SCALE
from flowrun.functions.regex.syntax import regex_problem, try_compile
from flowrun.functions.regex.timed import may_exceed_limit
from flowrun.functions.registry import scalar
from flowrun.functions.strings.regexp import REGEX_FUNCTIONS
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, Literal, PythonCall, walk

_ARITHMETIC = frozenset(("+", "-", "*", "NEGATE"))


def may_fail(expression: Expression) -> bool:
    """Whether evaluating the expression may raise `DataError` on some row; CASE, AND and OR then guard it."""
    return any(_node_may_fail(e) for e in walk(expression))


def _node_may_fail(node: Expression) -> bool:
    if isinstance(node, Cast):
        return not node.safe and cast_is_fallible(node.operand.type, node.type)
    if isinstance(node, PythonCall):
        return True
    if not isinstance(node, Call):
        return False
    function = scalar(node.function)
    if function is None or not function.fallible:
        return False
    if node.function in _ARITHMETIC and _always_fits(node):
        return False
    if node.function in ("/", "%") and _harmless_divisor(node.arguments[1]):
        return not (node.type.is_approximate or node.type.is_integer or _always_fits(node))
    if node.function in REGEX_FUNCTIONS:
        pattern = node.arguments[1]
        if not isinstance(pattern, Literal) or (isinstance(pattern.value, str) and regex_problem(pattern.value)):
            return True
        compiled = try_compile(pattern.value) if isinstance(pattern.value, str) else None
        return compiled is not None and may_exceed_limit(pattern.value, compiled)
    if node.function in ("LIKE", "SIMILAR TO"):
        return len(node.arguments) > 2 or node.function == "SIMILAR TO"
    return True


def _always_fits(node: Call) -> bool:
    if node.type.is_approximate:
        return True
    if node.type.root is not TypeRoot.DECIMAL:
        return False
    # below 38 digits the result type has room for every result; at 38 digits it may have been cut
    return (node.type.precision or 0) < 38 and (node.type.scale or 0) >= min(MIN_DECIMAL_SCALE, node.type.scale or 0)


def _harmless_divisor(divisor: Expression) -> bool:
    return isinstance(divisor, Literal) and divisor.value is not None and divisor.value not in (0, -1)


def is_deterministic(expression: Expression) -> bool:
    """Whether equal rows always give equal values."""
    return all(_node_is_deterministic(e) for e in walk(expression))


def _node_is_deterministic(node: Expression) -> bool:
    if isinstance(node, PythonCall):
        return node.deterministic
    return not isinstance(node, Call) or (function := scalar(node.function)) is None or function.deterministic


def is_constant(expression: Expression) -> bool:
    """Whether the expression reads no column and always gives the same value."""
    return not any(isinstance(e, ColumnRef) for e in walk(expression)) and is_deterministic(expression)
