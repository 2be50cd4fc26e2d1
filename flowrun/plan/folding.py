"""Constant folding: what reads no column is evaluated once, before the job runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.functions.casts.casts import cast_datum
from flowrun.functions.contract import Argument
from flowrun.functions.registry import scalar
from flowrun.plan.expressions import (
    And,
    Call,
    Case,
    Cast,
    Expression,
    InList,
    Literal,
    Or,
    transform,
)
from flowrun.plan.fallibility import is_constant, is_deterministic, may_fail

__all__ = ["argument_of", "fold_constants", "is_constant", "literal_value"]


def fold_constants(expression: Expression) -> Expression:
    """The tree with constant sub-expressions replaced by their values, and AND, OR, CASE cut down by constant conditions.

    A constant that fails (1 / 0) stays as it is: it is an error only if a row reaches it. Nested values stay constructor calls.

    >>> from flowrun.core.types import INT
    >>> str(fold_constants(Call(INT, "+", (Literal(INT, 1), Literal(INT, 2)))))
    '3'
    """
    return transform(expression, _fold_node)


def argument_of(expression: Expression) -> Argument:
    """What a type rule may know of an aggregate's argument: its type, and its value if it is a constant or an ARRAY of constants."""
    match expression:
        case Literal(type=type, value=value):
            return Argument(type, value, True)
        case Call(function="ARRAY", type=type, arguments=elements) if all(isinstance(e, Literal) for e in elements):
            return Argument(type, tuple(e.value for e in elements if isinstance(e, Literal)), True)
        case _:
            return Argument(expression.type)


def literal_value(value: pa.Scalar, type: DataType) -> Any:
    """The Python value that a `Literal` of this type holds for an Arrow scalar.

    >>> literal_value(pa.scalar(1500, pa.duration("ms")), DataType(TypeRoot.INTERVAL_DAY_TIME))
    1500
    """
    if not value.is_valid:
        return None
    if type.root is TypeRoot.INTERVAL_DAY_TIME or (type.is_temporal and getattr(value.type, "unit", "") == "ns"):
        return value.cast(pa.int64()).as_py()
    return value.as_py()


def _fold_node(node: Expression) -> Expression:
    match node:
        case And(operands=operands):
            return _fold_connective(node, operands, False)
        case Or(operands=operands):
            return _fold_connective(node, operands, True)
        case Case():
            return _fold_case(node)
        case Call() | Cast() | InList():
            return _fold_value(node)
        case _:
            return node


def _fold_value(node: Call | Cast | InList) -> Expression:
    if node.type.is_nested or not all(isinstance(c, Literal) for c in node.children):
        return node
    try:
        value = _evaluate(node)
        return node if value is None else Literal(node.type, literal_value(value, node.type))
    except (DataError, pa.ArrowInvalid, ValueError, ArithmeticError):
        return node  # fails if and when a row reaches it, or is a time that Python has no value for


def _evaluate(node: Call | Cast | InList) -> pa.Scalar | None:
    values = [pa.scalar(c.value, c.type.arrow) for c in node.children if isinstance(c, Literal)]
    match node:
        case Cast(operand=operand, type=type, safe=safe):
            result = cast_datum(values[0], operand.type, type, safe=safe)
        case InList(operand=operand, values=known, negated=negated):
            assert isinstance(operand, Literal)
            found = operand.value in [v for v in known if v is not None]
            unknown = operand.value is None or (not found and None in known)
            return pa.scalar(None if unknown else found != negated, pa.bool_())
        case Call():
            function = scalar(node.function)
            if function is None or not function.deterministic:
                return None
            result = function.kernel(values, 1, node.type)
    return result if isinstance(result, pa.Scalar) else result[0]


def _fold_connective(node: And | Or, operands: tuple[Expression, ...], deciding: bool) -> Expression:
    """AND is decided by FALSE, OR by TRUE; the other constant drops out."""
    kept: list[Expression] = []
    for operand in operands:
        nested = operand.operands if isinstance(operand, And | Or) and type(operand) is type(node) else (operand,)
        for one in nested:
            if isinstance(one, Literal) and one.value is (not deciding):
                continue
            if isinstance(one, Literal) and one.value is deciding:
                # what stands before it must still be evaluated if it may fail
                if not any(may_fail(k) for k in kept):
                    return one
                return replace(node, operands=(*kept, one))
            kept.append(one)
    if not kept:
        return Literal(node.type, not deciding)
    return kept[0] if len(kept) == 1 else replace(node, operands=tuple(kept))


def _fold_case(node: Case) -> Expression:
    branches: list[tuple[Expression, Expression]] = []
    otherwise = node.otherwise
    for condition, result in node.branches:
        if isinstance(condition, Literal):
            if condition.value is not True:
                continue
            otherwise = result
            break
        branches.append((condition, result))
    if not branches:
        return otherwise
    same = all(r == otherwise for _, r in branches) and not any(
        may_fail(c) or not is_deterministic(c) for c, _ in branches
    )
    if same and is_deterministic(otherwise):
        return otherwise
    return replace(node, branches=tuple(branches), otherwise=otherwise)
