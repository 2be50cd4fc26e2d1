"""Calls of aggregates: DISTINCT and `*` among their arguments, and the types of built-in ones."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.expressions.binder_core import BinderCore
from flowrun.functions.contract import AggregateFunction
from flowrun.plan.expressions import AggregateCall, Call, Expression
from flowrun.plan.folding import argument_of


def written_arguments(node: exp.Expression) -> tuple[list[exp.Expression], bool]:
    """The arguments of an aggregate's call, and whether they are DISTINCT."""
    arguments: list[exp.Expression] = list(node.expressions)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        return list(arguments[0].expressions), True
    return arguments, False


def is_star(arguments: Sequence[exp.Expression]) -> bool:
    """Whether the arguments are `*`: whole rows."""
    return len(arguments) == 1 and isinstance(arguments[0], exp.Star)


def check_arguments(
    binder: BinderCore,
    function: AggregateFunction,
    arguments: Sequence[exp.Expression],
    node: exp.Expression,
    *,
    distinct: bool,
    star: bool,
) -> None:
    """Raise ExpressionError if a built-in aggregate has no arguments, or whole rows (`star`) that it does not take."""
    name = function.name
    if star and name != "COUNT":
        binder.fail(f"{name}(*) has no meaning; only COUNT takes *", node, f"usage: {function.usage}")
    if star and distinct:
        binder.fail("COUNT(DISTINCT *) is not possible", node, "name the columns: COUNT(DISTINCT a)")
    if not arguments:
        binder.fail(f"{name} needs an argument", node, f"usage: {function.usage}")


def typed_call(
    binder: BinderCore,
    function: AggregateFunction,
    bound: Sequence[Expression],
    nodes: Sequence[exp.Expression],
    node: exp.Expression,
    *,
    distinct: bool,
    filter: Expression | None = None,
) -> AggregateCall:
    """The call of a built-in aggregate with bound arguments, cast as its signature says; its name is empty.

    Raises:
        ExpressionError: it does not take values of these types; marks `node`.
    """
    try:
        casts, kernel = function.type_rule([argument_of(b) for b in bound])
    except ExpressionError as error:
        binder.fail(error.message, node, error.hint)
    cast = tuple(binder.cast(b, t, n) for b, t, n in zip(bound, casts, nodes, strict=True))
    column = kernel.argument
    if column is not None and column.root is TypeRoot.ROW and cast[0].type != column:
        cast = _packed(cast, column)
    return AggregateCall(function.name, cast, kernel.result, "", distinct, filter)


def _packed(arguments: Sequence[Expression], row: DataType) -> tuple[Expression, ...]:
    """An aggregate of two columns takes them as one ROW: PERCENTILE(value, percentage, frequency)."""
    value, parameter, weight = arguments
    return Call(row, "ROW", (value, weight)), parameter
