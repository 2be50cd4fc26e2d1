"""Functions that are not functions: COALESCE, IF, IFNULL and NULLIF bind to CASE, so that what they guard is not evaluated."""

from __future__ import annotations

from sqlglot import exp

from flowrun.frontend.sql.binding_expressions import ExpressionBinder
from flowrun.plan.expressions import Expression, Literal


def _count(
    binder: ExpressionBinder, node: exp.Expression, least: int, most: int | None, usage: str
) -> list[exp.Expression]:
    arguments: list[exp.Expression] = list(node.expressions)
    if len(arguments) < least or (most is not None and len(arguments) > most):
        expected = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
        binder.fail(
            f"{str(node.this).upper()} takes {expected} arguments, {len(arguments)} given", node, f"usage: {usage}"
        )
    return arguments


def _coalesce(binder: ExpressionBinder, node: exp.Expression) -> Expression:
    return _first_not_null(binder, node, _count(binder, node, 1, None, "COALESCE(value, …)"))


def _ifnull(binder: ExpressionBinder, node: exp.Expression) -> Expression:
    return _first_not_null(binder, node, _count(binder, node, 2, 2, "IFNULL(value, replacement)"))


def _first_not_null(binder: ExpressionBinder, node: exp.Expression, arguments: list[exp.Expression]) -> Expression:
    bound = binder.unify([binder.bind(a) for a in arguments], arguments, f"the arguments of {str(node.this).upper()}")
    if len(bound) == 1:
        return bound[0]
    present = [binder.apply("IS NOT NULL", (b,), (n,), node) for b, n in zip(bound[:-1], arguments, strict=False)]
    return binder.choice(present, bound, arguments, "the arguments")


def _if(binder: ExpressionBinder, node: exp.Expression) -> Expression:
    condition, yes, no = _count(binder, node, 3, 3, "IF(condition, value, otherwise)")
    test = binder.boolean(condition, "the condition of IF")
    return binder.choice([test], [binder.bind(yes), binder.bind(no)], [yes, no], "the results of IF")


def _nullif(binder: ExpressionBinder, node: exp.Expression) -> Expression:
    value, other = _count(binder, node, 2, 2, "NULLIF(value, other)")
    bound = binder.bind(value)
    same = binder.apply("=", (bound, binder.bind(other)), (value, other), node)
    return binder.choice([same], [Literal(bound.type, None), bound], [value, value], "the arguments of NULLIF")


ExpressionBinder.special_calls.update({"COALESCE": _coalesce, "IFNULL": _ifnull, "IF": _if, "NULLIF": _nullif})
